"""The name of a data set's content: SHA-256 of what is in memory after reading.

It does not depend on the file format, on compression or on how rows were stored, so a converted data set keeps its
digest as long as the format holds everything. The training side comes first and alone: test documents do not change
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.types import Csr

_CHUNK = 1 << 13  # strings that are encoded at once
_PIECE = 1 << 20  # numbers that are converted at once


def digest(dataset: Dataset) -> str:
    """64 hex digits of labels, training documents and graphs; then, with test documents, ``+`` and 64 digits of
    those.
    """
    training = _Hash()
    training.items(dataset.labels)
    training.split(dataset.train)
    for name in sorted(dataset.graphs):
        training.graph(dataset.graphs[name])
    if dataset.test is None:
        return training.hex()
    test = _Hash()
    test.split(dataset.test)
    return f"{training.hex()}+{test.hex()}"


def training_digest(whole: str) -> str:
    """The part of a digest that names what a model was trained on."""
    return whole.partition("+")[0]


class _Hash:
    """Every value is preceded by a tag and its size, so that no two contents give the same bytes."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self.hex = self._sha.hexdigest

    def _tag(self, *words: object) -> None:
        self._sha.update(repr(words).encode())

    def strings(self, name: str, strings: Sequence[str]) -> None:
        self._tag("strings", name, len(strings))
        for start in range(0, len(strings), _CHUNK):
            chunk = strings[start : start + _CHUNK]
            self._sha.update(np.fromiter(map(len, chunk), dtype="<i8", count=len(chunk)).tobytes())
            self._sha.update("".join(chunk).encode("utf-8", "surrogatepass"))

    def array(self, name: str, array: NDArray[Any], dtype: DTypeLike) -> None:
        self._tag("array", name, array.shape)
        flat = np.ascontiguousarray(array).reshape(-1)
        for start in range(0, flat.size, _PIECE):
            self._sha.update(np.ascontiguousarray(flat[start : start + _PIECE], dtype=dtype).data)

    def matrix(self, name: str, matrix: Csr | NDArray[Any] | None) -> None:
        if matrix is None:
            self._tag("none", name)
        elif isinstance(matrix, np.ndarray):
            self.array(name, matrix, "<f4")
        else:
            self._tag("csr", name, *map(int, matrix.shape))
            self.array("indptr", matrix.indptr, "<i8")
            self.array("indices", matrix.indices, "<i8")
            self.array("data", matrix.data, "<f4")

    def items(self, items: Items) -> None:
        self.strings("uids", items.uids)
        self._tag("fields", len(items.fields))
        for name in sorted(items.fields):
            self.strings(name, items.fields[name])
        self.matrix("vectors", items.vectors)

    def split(self, split: Split) -> None:
        self.items(split.documents)
        self.matrix("targets", split.targets)
        self.array("masked", split.masked, "<i8")
        if len(split.known):
            self.array("known", split.known, "<i8")

    def graph(self, graph: Graph) -> None:
        self._tag("graph", graph.name, graph.anchors is not None)
        if graph.anchors is not None:
            self.items(graph.anchors)
        for name in ("documents", "labels", "label_label"):
            self.matrix(name, getattr(graph, name))
