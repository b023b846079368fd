"""A view: pretrained vectors, which training reads and never changes; one matrix that is learnt adds them to the bag.

Trained vectors know the words that training documents have. Pretrained ones know many more, and what they have in
common: a new word is near known ones.

static       vectors of pieces of words. The pieces are features like others (`SparseText.view_range`); their vectors
             come from the package `wordllama` or a folder laid out like it, once, when a model is trained. Words are
             cut into pieces by our own kernel, longest piece first, so prediction needs neither the package nor a
             tokenizer, and the vectors, times the matrix, are rows of the table of words.
transformer  vectors of whole texts, the mean over the tokens of a checkpoint's last layer, of unit length. Training
             encodes every text once, before it begins (`text_vectors`); the transformer is a part of the model and
             reads each document that is predicted for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from longtail.declared import Shaped
from longtail.errors import DataError
from longtail.features.base import Featurizer
from longtail.features.pieces import checkpoint_folder, read_object
from longtail.features.reading import WORD, class_runs, class_table, normalise
from longtail.features.sparse import SparseText
from longtail.features.static import static_files, static_folder
from longtail.features.vocabulary import INSIDE, piece_keys
from longtail.models.encoders import FrozenBag, FrozenEncoder, FrozenSum, FrozenUnit
from longtail.models.transformer import read_checkpoint
from longtail.persistence import DataPart
from longtail.recipes.direct.ranker import BagWithView
from longtail.recipes.direct.settings import DirectFeaturesConfig
from longtail.types import F32, Batch, Csr

# How vocabularies of this kind mark the beginning of a word.
_BEGIN = "\u2581"
# The checkpoint where none is named.
_PACKAGED = "minilm"


class View(Protocol):
    """Texts as encoders read them where vectors are given beside those that are learnt.

    first: features that have vectors to be learnt come before this one.  width: H, numbers of a given vector.
    """

    @property
    def first(self) -> int: ...

    @property
    def width(self) -> int: ...

    def of_documents(self, texts: Csr) -> Batch:
        """The training documents: their trained features, and the given vector of each, (N, H).  texts: (N, V)."""
        ...

    def of_labels(self, texts: Csr) -> Batch:
        """As `of_documents`, of label texts and those of anchors behind them."""
        ...

    def frozen(self, table: F32, matrix: F32, *, rectified: bool) -> FrozenEncoder:
        """See `longtail.nn.encoders.ViewSource`."""
        ...


# ---- static ----


@dataclass(frozen=True)
class StaticView:
    """Features from `first` on have given vectors, (T, H)."""

    first: int
    vectors: F32

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    def of_documents(self, texts: Csr) -> Batch:
        """Vectors are weighted sums."""
        sums = np.asarray(texts[:, self.first :] @ self.vectors, dtype=np.float32)
        return Batch(sparse=texts[:, : self.first], dense=sums)

    def of_labels(self, texts: Csr) -> Batch:
        return self.of_documents(texts)

    def frozen(self, table: F32, matrix: F32, *, rectified: bool) -> FrozenEncoder:
        """A bag like any other: what the matrix makes of given vectors are more rows of the table."""
        return (FrozenBag if rectified else FrozenSum)(np.concatenate([table, self.vectors @ matrix]))


@dataclass(frozen=True)
class StaticVectors:
    """Pieces of words by increasing feature key, as `SparseText` numbers them, and their vectors.

    pieces: those inside a word begin with ``##``.  table: (pieces, D) float32, rows of about unit length.
    """

    pieces: tuple[str, ...]
    table: F32

    @classmethod
    def read(cls, name: str = "") -> StaticVectors:
        """name: a folder; empty: the package."""
        table, tokenizer = static_files(static_folder(name))
        numbers = vocabulary_of(tokenizer)
        if not numbers or max(numbers.values()) >= len(table):
            raise DataError(
                f"{len(numbers)} tokens for {len(table)} vectors",
                "give weights and tokenizer of one model",
                file=tokenizer,
            )
        chosen = pieces_of(numbers)
        pieces = list(chosen)
        order = np.argsort(piece_keys(pieces))
        rows = np.array([chosen[pieces[i]] for i in order.tolist()], dtype=np.int64)
        vectors = np.asarray(table, dtype=np.float32)[rows]
        vectors /= np.sqrt(np.mean(np.einsum("ij,ij->i", vectors, vectors)))
        return cls(tuple(pieces[i] for i in order.tolist()), vectors)


def vocabulary_of(tokenizer: Path) -> dict[str, int]:
    """The tokens of a tokenizer's file, with their numbers."""
    model = read_object(tokenizer).get("model")
    found = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(found, dict) or not all(isinstance(number, int) for number in found.values()):
        raise DataError("no vocabulary of tokens in it", "give a tokenizer.json of a BPE model", file=tokenizer)
    return found


def pieces_of(numbers: dict[str, int]) -> dict[str, int]:
    """Pieces as our reader cuts them, lower case, with the number of the token whose vector they have.

    Of tokens that are one in lower case, the one that was so already counts, else the one with the lowest number (the
    more frequent).
    """
    class_of = class_table(*class_runs())
    chosen: dict[str, tuple[bool, int]] = {}
    for token, number in numbers.items():
        plain = token.removeprefix(_BEGIN)
        lower = normalise(plain)
        if not lower or any(class_of[ord(character)] != WORD for character in lower):
            continue
        piece = lower if token.startswith(_BEGIN) else INSIDE + lower
        rank = (lower != plain, number)
        if piece not in chosen or rank < chosen[piece]:
            chosen[piece] = rank
    return {piece: number for piece, (_, number) in chosen.items()}


# ---- transformer ----


def view_folder(checkpoint: str) -> Path:
    """The folder of a checkpoint, or that of a package; empty: the usual one."""
    return checkpoint_folder(checkpoint or _PACKAGED, "features.view=transformer")


@dataclass(frozen=True)
class TextVectors(DataPart):
    """What a transformer makes of texts before training begins, of unit length; a text without tokens is zero.

    documents: (N, H) float16.  labels: (L + M, H) float16, those of M anchors behind; no rows where labels have no
    texts.
    """

    KIND = "text-vectors"

    documents: Annotated[NDArray[np.float16], Shaped("documents", "width")]
    labels: Annotated[NDArray[np.float16], Shaped("_", "width")]


@dataclass(frozen=True)
class TransformerView:
    """Every text has a given vector.  first: all features are trained.  encoder: makes the vector of a new text."""

    first: int
    encoder: FrozenEncoder
    vectors: TextVectors

    @property
    def width(self) -> int:
        return int(self.vectors.documents.shape[1])

    def of_documents(self, texts: Csr) -> Batch:
        return Batch(sparse=texts, dense=self.vectors.documents.astype(np.float32))

    def of_labels(self, texts: Csr) -> Batch:
        return Batch(sparse=texts, dense=self.vectors.labels.astype(np.float32))

    def frozen(self, table: F32, matrix: F32, *, rectified: bool) -> FrozenEncoder:
        return BagWithView(FrozenSum(table), self.encoder, matrix, rectified)


def view_of(reads: Featurizer, features: DirectFeaturesConfig, vectors: TextVectors | None) -> View | None:
    """What is given beside what is learnt; None without.  vectors: where a transformer made some."""
    if vectors is not None:
        start = read_checkpoint(view_folder(features.view_model)).frozen
        return TransformerView(reads.width, FrozenUnit(start), vectors)
    if not isinstance(reads, SparseText) or not reads.view_range:
        return None
    return StaticView(reads.view_range.start, StaticVectors.read(features.view_model).table)
