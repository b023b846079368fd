"""Texts as TF-IDF rows and as keyword graphs side by side: what the recipe `gnnxml` reads.

Vectors of sentences are learnt from the documents themselves, or come from a static table of token vectors or from any
function. Encoders are frozen. Paper: GNN-XML Sec. 3.1 takes BERT-base; any of these stands in its place.

Where the settings name a folder (`features.keygraph.cache`), graphs of training documents are written there as they are
made, so that a corpus need not fit into memory, and found again by what they are made of:

    FOLDER/<key>/about.json       types and shapes of the arrays
    FOLDER/<key>/<name>.bin       one array each, memory-mapped when read

The key is a hash of texts, settings and encoder: another corpus or another setting gets a place of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from longtail.config import section, to_tables
from longtail.data.dataset import Items
from longtail.declared import Between, Shaped, Sized
from longtail.errors import ConfigError, DataError, MissingExtra
from longtail.features.base import Fitted
from longtail.features.pieces import checkpoint_folder, tokenizers_for
from longtail.features.places import Places
from longtail.features.settings import FeaturesConfig, SparseTextConfig
from longtail.features.sparse import Columns, SparseText
from longtail.features.static import static_files, static_folder
from longtail.kernels.arrays import right_singular_vectors
from longtail.persistence import DataPart, Part, StringTable, put_json, read_json, written_aside
from longtail.recipes.gnnxml.keygraph import (
    Blocks,
    GraphBuilder,
    KeyGraphConfig,
    KeyGraphs,
    assembled,
    empty_arrays,
    graphs_of_arrays,
    split_pieces,
)
from longtail.types import F32, I32, Batch, Csr

# ---- vectors of sentences ----

# Sentences embedded at once by a table of token vectors; those that MiniLM reads at once, and tokens of each.
_BLOCK, _MINILM_BATCH, _MINILM_TOKENS = 8192, 128, 256
# Features are made before any run, so that every seed sees the same: the subspace iteration starts from this.
_SEED = 0x5E47

EncodeTexts: TypeAlias = Callable[[Sequence[str]], Any]
"""Texts in, (n, D) vectors out."""


@runtime_checkable
class SentenceEncoder(Part, Protocol):
    """Sentences in, (n, width) float32 out: rows of unit length, zero where nothing is known."""

    @property
    def width(self) -> int: ...

    def encode(self, sentences: Sequence[str], words: SparseText) -> F32:
        """words: the vocabulary of the documents, for encoders that are built on it."""
        ...


@dataclass(frozen=True)
class SpectralSentences(DataPart):
    """TF-IDF rows of words, projected to the directions in which training documents differ most (LSA).

    columns: (R,) features with a vector, increasing. table: (R, D) their vectors.
    """

    KIND = "spectral-sentences"

    columns: Annotated[I32, Shaped("known", numbers_of="_")]
    table: Annotated[F32, Shaped("known", "width")]

    @property
    def reads(self) -> int:
        """One more than the largest number of a feature that it reads."""
        return int(self.columns.max(initial=-1)) + 1

    @classmethod
    def fit(cls, documents: Csr, words: SparseText, width: int) -> SpectralSentences:
        """documents: (N, V) TF-IDF rows. A word that one document alone has relates it to nothing: it has no vector."""
        counts = np.bincount(documents.indices, minlength=documents.shape[1])
        whole = np.zeros(len(counts), dtype=np.bool_)
        whole[slice(words.word_range.start, words.word_range.stop) if words.word_range else slice(None)] = True
        columns = np.flatnonzero(whole & (counts > 1)).astype(np.int32)
        if not len(columns):
            columns = np.flatnonzero(whole).astype(np.int32)
        chosen = documents[:, columns]
        rank = max(1, min(width, *chosen.shape))
        table = np.zeros((len(columns), width), dtype=np.float32)
        table[:, :rank] = right_singular_vectors(chosen, rank, np.random.default_rng(_SEED))
        return cls(columns, table)

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    def encode(self, sentences: Sequence[str], words: SparseText) -> F32:
        if not len(sentences):
            return np.zeros((0, self.width), dtype=np.float32)
        return unit(words.transform_texts(sentences)[:, self.columns] @ self.table)


@dataclass(frozen=True)
class StaticSentences(DataPart):
    """The mean of static token vectors, e.g. WordLlama's. Table and tokenizer travel with the model: its package is
    needed in training only.

    table: (R, D).  tokenizer: one string, the JSON text of `tokenizers`.
    """

    KIND = "static-sentences"

    table: Annotated[NDArray[np.float16], Shaped("_", "width")]
    tokenizer: StringTable

    def __post_init__(self) -> None:
        if len(self.tokenizer) != 1:
            raise ValueError("the tokenizer is no text")

    @classmethod
    def wordllama(cls, folder: str) -> StaticSentences:
        """The table of the package `wordllama`, or of a folder laid out like it. Nothing is downloaded."""
        table, tokenizer = static_files(static_folder(folder))
        return cls(table.astype(np.float16), StringTable.of([tokenizer.read_text(encoding="utf-8")]))

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = tokenizers_for("a model with sentence vectors of WordLlama").Tokenizer.from_str(self.tokenizer[0])
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def encode(self, sentences: Sequence[str], words: SparseText) -> F32:
        from scipy.sparse import csr_array

        vectors = np.zeros((len(sentences), self.width), dtype=np.float32)
        for start in range(0, len(sentences), _BLOCK):
            # A lone surrogate is no UTF-8, which is what the tokenizer reads.
            texts = [text.encode("utf-8", "replace").decode() for text in sentences[start : start + _BLOCK]]
            ids = [
                np.array(found.ids, dtype=np.int64)
                for found in self._tokenizer.encode_batch(texts, add_special_tokens=False)
            ]
            indptr = np.cumsum([0, *map(len, ids)])
            known, places = np.unique(np.concatenate(ids), return_inverse=True)
            counts = csr_array((np.ones(indptr[-1], np.float32), places, indptr), shape=(len(texts), len(known)))
            vectors[start : start + _BLOCK] = counts @ self.table[np.minimum(known, len(self.table) - 1)].astype(
                np.float32
            )
        return unit(vectors)


@dataclass(frozen=True)
class NamedSentences(DataPart):
    """An encoder that is code: known by its name, looked up when it is needed. A bundle holds the name alone.

    model: the folder that the settings of training named. A bundle may come from a stranger, so what it names is read
    only where whoever runs this process named it, too (`trust_folder`).
    """

    KIND = "named-sentences"

    name: str
    model: str
    width: Annotated[int, Between(1, 1 << 20)]

    @classmethod
    def of(cls, name: str, model: str) -> NamedSentences:
        trust_folder(model)
        return cls(name, model, np.asarray(_encoder(name, model)(["a sentence"])).shape[1])

    def encode(self, sentences: Sequence[str], words: SparseText) -> F32:
        if not len(sentences):
            return np.zeros((0, self.width), dtype=np.float32)
        _check_trusted(self.model)
        vectors = np.asarray(_encoder(self.name, self.model)(sentences), dtype=np.float32)
        if vectors.shape != (len(sentences), self.width) or not np.isfinite(vectors).all():
            raise DataError(
                f"the encoder '{self.name}' gave an array of shape {vectors.shape} for {len(sentences)} sentences, "
                "or numbers that are not finite",
                f"it must give finite vectors of width {self.width}",
            )
        return unit(vectors)


# Encoders that are code: a function of the model's folder that gives the function to call.
_REGISTERED: dict[str, Callable[[str], EncodeTexts]] = {}


def register_encoder(name: str, load: Callable[[str], EncodeTexts]) -> None:
    """Make ``features.keygraph.encoder=name`` known.

    load: given `features.keygraph.model`, returns the function from texts to vectors.
    A model that was trained with it predicts only where it is registered too.
    """
    _REGISTERED[name] = load
    _encoder.cache_clear()


# The environment variable with the folders, separated as in PATH, of which models may be read that a bundle names.
TRUSTED = "LONGTAIL_MODELS"
_trusted: set[Path] = set()


def trust_folder(folder: str) -> None:
    """Whoever runs this process named the folder of a model: in settings of a training, or by calling this."""
    if folder:
        _trusted.add(Path(folder).resolve())


def _check_trusted(folder: str) -> None:
    named = [Path(one).resolve() for one in os.environ.get(TRUSTED, "").split(os.pathsep) if one]
    if folder and not any(Path(folder).resolve().is_relative_to(one) for one in (*_trusted, *named)):
        raise ConfigError(
            f"the model reads sentences by another one, in the folder {folder!r}, which nobody named here",
            f"if you trust what lies there, set the environment variable {TRUSTED} to this folder",
        )


@cache
def _encoder(name: str, model: str) -> EncodeTexts:
    """The function to call; loaded once."""
    if name in _REGISTERED:
        return _REGISTERED[name](model)
    if name == "minilm":
        return minilm(model)
    known = ", ".join(["svd", "wordllama", "minilm", *_REGISTERED])
    raise ConfigError(
        f"features.keygraph.encoder is '{name}', which is not known here (known: {known})",
        "register it with longtail.recipes.gnnxml.features.register_encoder before training and before predicting",
    )


def minilm(folder: str) -> EncodeTexts:
    """all-MiniLM-L6-v2: frozen, (n, 384) vectors, the mean over tokens. Needs `transformers` and torch, also to
    predict.

    folder: of a model that `transformers` reads; empty: that of the package.
    """
    if importlib.util.find_spec("transformers") is None:
        raise MissingExtra("transformers", "minilm", "features.keygraph.encoder=minilm")
    import torch

    place = checkpoint_folder(folder or "minilm", "features.keygraph.encoder=minilm")
    transformers: Any = importlib.import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(place), local_files_only=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModel.from_pretrained(str(place), local_files_only=True).eval().to(device)

    @torch.inference_mode()
    def encode(texts: Sequence[str]) -> F32:
        # Texts of like length go together, so little is padded.
        order = np.argsort([len(text) for text in texts], kind="stable")
        vectors = np.zeros((len(texts), int(model.config.hidden_size)), dtype=np.float32)
        for start in range(0, len(order), _MINILM_BATCH):
            rows = order[start : start + _MINILM_BATCH]
            # A lone surrogate is no UTF-8, which is what the tokenizer reads.
            readable = [texts[row].encode("utf-8", "replace").decode() for row in rows]
            tokens = tokenizer(
                readable, padding=True, truncation=True, max_length=_MINILM_TOKENS, return_tensors="pt"
            ).to(device)
            mask = tokens["attention_mask"][:, :, None].float()
            found = (model(**tokens).last_hidden_state.float() * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
            vectors[rows] = found.cpu().numpy()
        return vectors

    return encode


def make_encoder(config: KeyGraphConfig, documents: Csr, words: SparseText) -> SentenceEncoder:
    """The encoder that the settings name, fitted on the TF-IDF rows of training documents where it learns."""
    if config.encoder == "svd":
        return SpectralSentences.fit(documents, words, config.width)
    if config.encoder == "wordllama":
        return StaticSentences.wordllama(config.model)
    return NamedSentences.of(config.encoder, config.model)


def unit(vectors: Any) -> F32:
    """Rows of unit length, float32; zero rows stay zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
    return np.divide(
        vectors, lengths[:, None], out=np.zeros_like(vectors), where=lengths[:, None] > 0, casting="unsafe"
    )


# ---- the featurizer ----

# Of so few documents a word may be in many without being common.
_FEWEST_FOR_COMMON = 50


@dataclass(frozen=True)
class GraphText(DataPart):
    """A fitted vocabulary, a frozen sentence encoder, and the settings of keyword graphs. A featurizer.

    common: words of so many training documents that they are no keywords.
    """

    KIND = "graph-text"

    config: KeyGraphConfig
    text: Annotated[SparseText, Sized(width="features")]
    encoder: Annotated[SentenceEncoder, Sized(reads="<=features")]
    common: StringTable

    @classmethod
    def fit_batches(
        cls, documents: Items, labels: Items | None, text_config: SparseTextConfig, config: KeyGraphConfig
    ) -> tuple[GraphText, Batch, Batch | None]:
        """Learn vocabulary and encoder from training documents; the documents and labels as numbers."""
        text, rows, label_rows = SparseText.fit_batches(documents, labels, text_config)
        made = cls(
            config,
            text,
            make_encoder(config, rows.sparse, text),
            StringTable.of(_common_words(rows.sparse, text, config.common)),
        )
        batch = Batch(rows.sparse, tokens=rows.tokens, graphs=made.kept_graphs(text.document_columns(documents)))
        return made, batch, None if labels is None or label_rows is None else made._with_vectors(labels, label_rows)

    @property
    def width(self) -> int:
        return self.text.width

    @property
    def fields(self) -> tuple[str, ...]:
        return self.text.fields

    def batch(self, items: Items) -> Batch:
        rows = self.text.batch(items)
        return Batch(rows.sparse, tokens=rows.tokens, graphs=self.graphs(self.text.document_columns(items)))

    def label_batch(self, labels: Items) -> Batch | None:
        """Label texts as TF-IDF rows and, in place of graphs, as one sentence vector each: they are short."""
        rows = self.text.label_batch(labels)
        return None if rows is None else self._with_vectors(labels, rows)

    def batch_of_texts(self, texts: Sequence[str]) -> Batch:
        rows = self.text.batch_of_texts(texts)
        return Batch(rows.sparse, tokens=rows.tokens, graphs=self.graphs([texts]))

    def places(self, items: Items, batch: Batch) -> Places:
        return self.text.places(items, batch)

    def word_influence(self) -> F32 | None:
        return self.text.word_influence()

    def graphs(self, columns: Columns) -> KeyGraphs:
        """The keyword graphs of documents; columns: one sequence of texts per field."""
        return assembled(self._made(columns), self.encoder.width)

    def kept_graphs(self, columns: Columns) -> KeyGraphs:
        """As `graphs`, but written to a folder block by block, or found there, where the settings name one."""
        if not self.config.cache:
            return self.graphs(columns)
        folder = Path(self.config.cache) / store_key(columns, self.config, self.encoder, self.common)
        if not folder.exists():
            write_graphs(folder, self._made(columns), self.encoder.width)
        return read_graphs(folder)

    @cached_property
    def builder(self) -> GraphBuilder:
        return GraphBuilder(self.config, self.common, self.text.word_reader)

    def _made(self, columns: Columns) -> Iterator[tuple[Blocks, F32]]:
        """Graphs and sentence vectors block by block: encoders use all cores themselves."""
        for made in self.builder.blocks(columns):
            yield made.pieces, self.encoder.encode(made.sentences, self.text)

    def _with_vectors(self, labels: Items, rows: Batch) -> Batch:
        texts = [" ".join(parts) for parts in zip(*self.text.label_columns(labels), strict=True)]
        return Batch(rows.sparse, self.encoder.encode(texts, self.text), rows.tokens)


def _common_words(documents: Csr, text: SparseText, share: float) -> list[str]:
    """Words that more than `share` of the documents have, and no fewer than 50 of them."""
    counts = np.bincount(documents.indices, minlength=documents.shape[1])
    often = np.flatnonzero(counts > max(share * documents.shape[0], _FEWEST_FOR_COMMON - 1))
    return [text.token(feature) for feature in often.tolist() if feature in text.word_range]


@dataclass(frozen=True)
class GraphFeaturesConfig(FeaturesConfig):
    """Texts as words and as keyword graphs."""

    keygraph: KeyGraphConfig = section(KeyGraphConfig, "keyword graphs")

    NEEDS_TEXT: ClassVar[str] = "keyword graphs are made of text, but documents are to be read as vectors"

    def fit(self, documents: Items, labels: Items | None) -> Fitted:
        return GraphText.fit_batches(documents, labels, self.sparse_text(), self.keygraph)


# ---- graphs on disk ----

_ABOUT = "about.json"


def store_key(columns: Sequence[Sequence[str]], config: KeyGraphConfig, encoder: Part, common: Sequence[str]) -> str:
    """What determines the graphs of documents, in 20 characters."""
    digest = sha256()
    settings = {name: value for name, value in to_tables(config).items() if name != "cache"}
    state = encoder.state()
    digest.update(
        json.dumps([settings, encoder.KIND, dict(state.values), list(common), len(columns)], sort_keys=True).encode()
    )
    for array in state.arrays.values():
        digest.update(np.ascontiguousarray(array).data)
    for column in columns:
        for text in column:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:20]


def write_graphs(folder: Path, made: Iterable[tuple[Blocks, F32]], width: int) -> None:
    """Write graphs to `folder`, which appears when all are written. width: of the sentence vectors."""
    with written_aside(folder) as aside, ExitStack() as stack:
        aside.mkdir()
        empty = empty_arrays(width)
        files = {name: stack.enter_context((aside / f"{name}.bin").open("wb")) for name in empty}
        rows = dict.fromkeys(empty, 0)
        for pieces, vectors in made:
            for name, array in split_pieces(pieces, vectors).items():
                files[name].write(np.ascontiguousarray(array).data)
                rows[name] += len(array)
        about = {
            name: {"dtype": str(array.dtype), "shape": [rows[name], *array.shape[1:]]} for name, array in empty.items()
        }
        put_json(aside / _ABOUT, about)


def read_graphs(folder: Path) -> KeyGraphs:
    """Graphs that `write_graphs` wrote, memory-mapped and checked."""
    try:
        about = read_json(folder / _ABOUT, DataError)
        return graphs_of_arrays({name: _mapped(folder / f"{name}.bin", entry) for name, entry in about.items()})
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as problem:
        raise DataError(
            f"the keyword graphs kept there cannot be read ({problem})",
            "remove the folder; they are made anew",
            file=folder,
        ) from problem


def _mapped(path: Path, entry: Any) -> NDArray[Any]:
    shape = tuple(int(n) for n in entry["shape"])
    if 0 in shape:
        return np.zeros(shape, dtype=entry["dtype"])
    if path.stat().st_size != int(np.prod(shape)) * np.dtype(entry["dtype"]).itemsize:
        raise ValueError(f"{path.name} is not of shape {shape}")
    return np.asarray(np.memmap(path, dtype=entry["dtype"], mode="r", shape=shape))
