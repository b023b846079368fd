"""What makes data the same: the digest of a data set, and which texts are equal.

The digest is SHA-256 of what is in memory after reading. It does not depend on the file format, on compression or on
how rows were stored, so a converted data set keeps its digest as long as the format holds everything. The training side
comes first and alone: test documents do not change it.

Two texts are the same when they agree after lower-casing and collapsing white space: duplicates, documents that are
labels, and reciprocal pairs between them are found so. Everything is linear in the number of items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.metrics import drop_masked_targets
from longtail.types import I64, Csr

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


def normalised(text: str) -> str:
    return " ".join(text.lower().split())


def titles(items: Items) -> list[str]:
    """The normalised title of every item."""
    return [normalised(text) for text in items.titles()]


def full_texts(items: Items) -> list[str]:
    """All text of every item, field after field, normalised; "" where there is none."""
    if not items.fields:
        return [""] * len(items)
    return [normalised(" ".join(texts)) for texts in zip(*items.fields.values(), strict=True)]


def repeated(texts: Sequence[str]) -> int:
    """How many texts occurred before in the list; empty texts do not count."""
    filled = [text for text in texts if text]
    return len(filled) - len(set(filled))


def self_pairs(documents: Items, labels: Items) -> I64:
    """(P, 2) (document, label) pairs with the same title: the document *is* the label. Sorted.

    This is what a filter file lists; use it for data of products or articles that come without one.
    """
    return pairs_by_title(documents, numbers_by_title(labels))


def numbers_by_title(labels: Items) -> Mapping[str, list[int]]:
    """The labels of each normalised title."""
    numbers: dict[str, list[int]] = {}
    for label, title in enumerate(titles(labels)):
        if title:
            numbers.setdefault(title, []).append(label)
    return numbers


def pairs_by_title(documents: Items, numbers: Mapping[str, list[int]]) -> I64:
    """`self_pairs` with labels whose titles were looked at before."""
    pairs = [(document, label) for document, title in enumerate(titles(documents)) for label in numbers.get(title, ())]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def same_titles(documents: Items, labels: Items, pairs: I64) -> I64:
    """Those of (P, 2) (document, label) pairs whose two sides have the same title: of masked pairs, the ones of a
    document that *is* the label.
    """
    ours, theirs = titles(documents.rows(pairs[:, 0])), titles(labels.rows(pairs[:, 1]))
    return pairs[np.array([bool(a) and a == b for a, b in zip(ours, theirs, strict=True)], dtype=bool)]


@dataclass(frozen=True)
class Reciprocal:
    """Pairs a -> b whose reverse b -> a exists too, where documents a and b are also labels.

    test: (P, 2) (test document, label) pairs of the truth whose reverse is a training pair. A model could copy them.
    within_train: number of training pairs whose reverse is a training pair.
    """

    test: I64
    within_train: int


def check_reciprocal(dataset: Dataset) -> Reciprocal:
    """Finds reciprocal pairs that are not masked yet. Masking `test` makes the test honest."""
    size = np.int64(len(dataset.labels))
    sources, targets, _ = _label_edges(dataset.train, dataset.labels)
    forward = np.unique(sources * size + targets)
    within = int(np.isin(targets * size + sources, forward).sum())
    if dataset.test is None:
        return Reciprocal(np.zeros((0, 2), dtype=np.int64), within)
    sources, targets, documents = _label_edges(dataset.test, dataset.labels)
    leaked = np.isin(targets * size + sources, forward)
    return Reciprocal(np.unique(np.stack([documents[leaked], targets[leaked]], axis=1), axis=0), within)


def _label_edges(split: Split, labels: Items) -> tuple[I64, I64, I64]:
    """Every unmasked (document, other label) pair of a document that is a label, as: the label it is, the label it
    has, the document.
    """
    truth: Csr = drop_masked_targets(split.targets, split.masked)
    pairs = self_pairs(split.documents, labels)
    starts, counts = truth.indptr[pairs[:, 0]].astype(np.int64), np.diff(truth.indptr)[pairs[:, 0]].astype(np.int64)
    offsets = np.arange(counts.sum(), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    has = truth.indices[np.repeat(starts, counts) + offsets].astype(np.int64)
    itself = np.repeat(pairs[:, 1], counts)
    other = has != itself
    return itself[other], has[other], np.repeat(pairs[:, 0], counts)[other]
