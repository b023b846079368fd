"""Texts as TF-IDF rows and as keyword graphs side by side: what the recipe `gnnxml` reads.

Where the settings name a folder (`features.keygraph.cache`), graphs of training documents are written there as they are
made, so that a corpus need not fit into memory, and found again by what they are made of:

    FOLDER/<key>/about.json       types and shapes of the arrays
    FOLDER/<key>/<name>.bin       one array each, memory-mapped when read

The key is a hash of texts, settings and encoder: another corpus or another setting gets a place of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from longtail.config import section, to_tables
from longtail.data.dataset import Items
from longtail.errors import DataError
from longtail.features.base import Fitted
from longtail.features.settings import FeaturesConfig, SparseTextConfig
from longtail.features.sparse import Columns, SparseText
from longtail.persistence import DataPart, Part, StringTable, read_json, write_json, written_aside
from longtail.recipes.gnnxml.keygraph import (
    Blocks,
    Collected,
    GraphBuilder,
    KeyGraphConfig,
    KeyGraphs,
    assembled,
    split_pieces,
)
from longtail.recipes.gnnxml.sentences import SentenceEncoder, make_encoder
from longtail.types import F32, Batch, Csr

# Of so few documents a word may be in many without being common.
_FEWEST_FOR_COMMON = 50


@dataclass(frozen=True)
class GraphText(DataPart):
    """A fitted vocabulary, a frozen sentence encoder, and the settings of keyword graphs. A featurizer.

    common: words of so many training documents that they are no keywords.
    """

    KIND = "graph-text"

    config: KeyGraphConfig
    text: SparseText
    encoder: SentenceEncoder
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
        empty = Collected(width).arrays
        files = {name: stack.enter_context((aside / f"{name}.bin").open("wb")) for name in empty}
        rows = dict.fromkeys(empty, 0)
        for pieces, vectors in made:
            for name, array in split_pieces(pieces, vectors).items():
                files[name].write(np.ascontiguousarray(array).data)
                rows[name] += len(array)
        about = {
            name: {"dtype": str(first[0].dtype), "shape": [rows[name], *first[0].shape[1:]]}
            for name, first in empty.items()
        }
        write_json(aside / _ABOUT, about)


def read_graphs(folder: Path) -> KeyGraphs:
    """Graphs that `write_graphs` wrote, memory-mapped and checked."""
    try:
        about = read_json(folder / _ABOUT, DataError)
        return Collected.graphs({name: _mapped(folder / f"{name}.bin", entry) for name, entry in about.items()})
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
