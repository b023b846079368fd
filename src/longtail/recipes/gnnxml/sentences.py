"""Vectors of sentences: learnt from the documents themselves, from a static table of token vectors, or by any function.

Encoders are frozen. Paper: GNN-XML Sec. 3.1 takes BERT-base; any of these stands in its place.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from longtail.errors import ConfigError, DataError, MissingExtra
from longtail.features.pieces import checkpoint_folder, tokenizers_for
from longtail.features.sparse import SparseText
from longtail.kernels.arrays import right_singular_vectors
from longtail.persistence import DataPart, Part, StringTable, map_arrays
from longtail.recipes.gnnxml.keygraph import KeyGraphConfig
from longtail.types import F32, I32, Csr

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

    columns: I32
    table: F32

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.table):
            raise ValueError(f"{len(self.table)} vectors for {len(self.columns)} features")

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

    table: NDArray[np.float16]
    tokenizer: StringTable

    def __post_init__(self) -> None:
        if len(self.tokenizer) != 1:
            raise ValueError("the tokenizer is no text")

    @classmethod
    def wordllama(cls, folder: str) -> StaticSentences:
        """The table of the package `wordllama`, or of a folder laid out like it. Nothing is downloaded."""
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
        return cls(tables[0].astype(np.float16), StringTable.of([tokenizers[0].read_text(encoding="utf-8")]))

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
    """An encoder that is code: known by its name, looked up when it is needed. A bundle holds the name alone."""

    KIND = "named-sentences"

    name: str
    model: str
    width: int

    @classmethod
    def of(cls, name: str, model: str) -> NamedSentences:
        return cls(name, model, np.asarray(_encoder(name, model)(["a sentence"])).shape[1])

    def encode(self, sentences: Sequence[str], words: SparseText) -> F32:
        if not len(sentences):
            return np.zeros((0, self.width), dtype=np.float32)
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
        "register it with longtail.recipes.gnnxml.sentences.register_encoder before training and before predicting",
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


def _package_folder(package: str, extra: str) -> Path:
    """Where a package lies, without importing it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(package, extra, f"features.keygraph.encoder={package}")
    return Path(next(iter(found.submodule_search_locations)))
