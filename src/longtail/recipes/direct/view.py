"""A view: pretrained vectors of pieces of words, which training reads and never changes.

Trained vectors know the words that training documents have. Pretrained ones know many more, and what they have in
common: a new word is near known ones. The pieces are features like others (`SparseText.view_range`); their vectors
come from the package `wordllama` or a folder laid out like it, once, when a model is trained. Words are cut into
pieces by our own kernel, longest piece first, so prediction needs neither the package nor a tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longtail.errors import DataError
from longtail.features.pieces import read_object
from longtail.features.reading import WORD, class_runs, class_table, normalise
from longtail.features.static import static_files, static_folder
from longtail.features.vocabulary import INSIDE, piece_keys
from longtail.types import F32, Batch, Csr

# How vocabularies of this kind mark the beginning of a word.
_BEGIN = "\u2581"


@dataclass(frozen=True)
class View:
    """Features from `first` on have given vectors, (T, H), which training does not change."""

    first: int
    vectors: F32

    def split(self, texts: Csr) -> tuple[Csr, F32]:
        """Trained features as they are; of the others the weighted sums of their vectors, (n, H)."""
        sums = np.asarray(texts[:, self.first :] @ self.vectors, dtype=np.float32)
        return texts[:, : self.first], sums

    def batch(self, texts: Csr) -> Batch:
        """Both as encoders read them."""
        sparse, dense = self.split(texts)
        return Batch(sparse=sparse, dense=dense)


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
