"""Vectors of sentences: learnt from the documents themselves, from a static table of token vectors, or by any function.

Encoders are frozen. Paper: GNN-XML Sec. 3.1 takes BERT-base; any of these stands in its place.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from longtail.errors import ConfigError, DataError, MissingExtra
from longtail.features.sparse import SparseText
from longtail.kernels.arrays import right_singular_vectors
from longtail.persistence import Part, State, StringTable, map_arrays
from longtail.recipes.gnnxml.keygraph import KeyGraphConfig
from longtail.types import F32, I32, Csr

# Sentences embedded at once by a table of token vectors.
_BLOCK = 8192
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


class SpectralSentences:
    """TF-IDF rows of words, projected to the directions in which training documents differ most (latent semantic
    analysis).

    columns: (R,) features with a vector, increasing. table: (R, D) their vectors.
    """

    KIND = "spectral-sentences"

    def __init__(self, columns: I32, table: F32) -> None:
        if len(columns) != len(table):
            raise ValueError(f"{len(table)} vectors for {len(columns)} features")
        self.columns, self.table = columns, table

    @classmethod
    def fit(cls, documents: Csr, words: SparseText, width: int) -> SpectralSentences:
        """documents: (N, V) TF-IDF rows. A word that one document alone has relates it to nothing, and gets no
        vector.
        """
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

    def state(self) -> State:
        return State(arrays={"columns": self.columns, "table": self.table})

    @classmethod
    def from_state(cls, state: State) -> SpectralSentences:
        return cls(state.arrays["columns"], state.arrays["table"])


class StaticSentences:
    """The mean of static token vectors, e.g. WordLlama's. Table and tokenizer travel with the model: its package is
    needed in training only.

    table: (R, D) float16. tokenizer: the JSON text of `tokenizers`.
    """

    KIND = "static-sentences"

    def __init__(self, table: Any, tokenizer: str) -> None:
        self.table, self.tokenizer = table, tokenizer

    @classmethod
    def wordllama(cls, folder: str) -> StaticSentences:
        """The table of the package `wordllama` (256 numbers per token, 33 MB), or of a folder laid out like it.
        Nothing is downloaded.
        """
        root = _package_folder("wordllama", "wordllama") if not folder else Path(folder)
        weights, tokenizers = (
            sorted((root / "weights").glob("*.safetensors")),
            sorted((root / "tokenizers").glob("*.json")),
        )
        if not weights or not tokenizers:
            raise DataError(
                "no weights/*.safetensors and tokenizers/*.json in the folder",
                "give the folder of WordLlama's package",
                file=root,
            )
        tables = list(map_arrays(weights[0]).values())
        if len(tables) != 1 or tables[0].ndim != 2:
            raise DataError(
                f"expected one table of vectors, found {len(tables)} arrays",
                "give the weights of a WordLlama model",
                file=weights[0],
            )
        return cls(tables[0].astype(np.float16), tokenizers[0].read_text(encoding="utf-8"))

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(self.tokenizer)
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

    def state(self) -> State:
        return State(arrays={"table": self.table}, parts={"tokenizer": StringTable.of([self.tokenizer])})

    @classmethod
    def from_state(cls, state: State) -> StaticSentences:
        tokenizer = state.parts["tokenizer"]
        if not isinstance(tokenizer, StringTable) or len(tokenizer) != 1:
            raise ValueError("the tokenizer is no text")
        return cls(state.arrays["table"], tokenizer[0])


class NamedSentences:
    """An encoder that is code: known by its name, looked up when it is needed. A bundle holds the name alone."""

    KIND = "named-sentences"

    def __init__(self, name: str, model: str, width: int, loaded: EncodeTexts | None = None) -> None:
        """loaded: the encoder, where it is at hand already."""
        self.name, self.model, self.width, self._loaded = name, model, width, loaded

    @classmethod
    def of(cls, name: str, model: str) -> NamedSentences:
        loaded = _encoder(name, model)
        return cls(name, model, np.asarray(loaded(["a sentence"])).shape[1], loaded)

    def _encode(self, sentences: Sequence[str]) -> Any:
        if self._loaded is None:
            self._loaded = _encoder(self.name, self.model)
        return self._loaded(sentences)

    def encode(self, sentences: Sequence[str], words: SparseText) -> F32:
        if not len(sentences):
            return np.zeros((0, self.width), dtype=np.float32)
        vectors = np.asarray(self._encode(sentences), dtype=np.float32)
        if vectors.shape != (len(sentences), self.width) or not np.isfinite(vectors).all():
            raise DataError(
                f"the encoder '{self.name}' gave an array of shape {vectors.shape} for {len(sentences)} sentences, "
                "or numbers that are not finite",
                f"it must give finite vectors of width {self.width}",
            )
        return unit(vectors)

    def state(self) -> State:
        return State({"name": self.name, "model": self.model, "width": self.width})

    @classmethod
    def from_state(cls, state: State) -> NamedSentences:
        return cls(str(state.values["name"]), str(state.values["model"]), int(state.values["width"]))


# Encoders that are code: a function of the model's folder that gives the function to call. Those of the house are
# imported when asked for.
_HOMES = {"minilm": "longtail.recipes.gnnxml.minilm:load"}
_REGISTERED: dict[str, Callable[[str], EncodeTexts]] = {}


def register_encoder(name: str, load: Callable[[str], EncodeTexts]) -> None:
    """Make ``features.keygraph.encoder=name`` known. load: given `features.keygraph.model`, returns the function from
    texts to vectors.

    A model that was trained with it predicts only where it is registered too.
    """
    _REGISTERED[name] = load


def _encoder(name: str, model: str) -> EncodeTexts:
    if name in _REGISTERED:
        return _REGISTERED[name](model)
    if name in _HOMES:
        module, _, function = _HOMES[name].partition(":")
        loaded: EncodeTexts = getattr(importlib.import_module(module), function)(model)
        return loaded
    known = ", ".join(["svd", "wordllama", *_HOMES, *_REGISTERED])
    raise ConfigError(
        f"features.keygraph.encoder is '{name}', which is not known here (known: {known})",
        "register it with longtail.recipes.gnnxml.sentences.register_encoder before training and before predicting",
    )


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


def _package_folder(package: str, extra: str) -> Path:
    """Where a package lies, without importing it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(package, extra, f"features.keygraph.encoder={package}")
    return Path(next(iter(found.submodule_search_locations)))
