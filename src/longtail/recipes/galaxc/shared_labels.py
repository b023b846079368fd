"""The labels that all documents of a training step are scored against together: the batch's own, and some more.

Each document's positives are those labels that it has; the others are its negatives (labels of other documents of the
batch, random ones, or hard ones of any document of the batch). Masked pairs count neither way. Paper: GalaXC Sec.
4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from longtail.errors import ConfigError
from longtail.kernels.arrays import pieces
from longtail.search.negatives import ShortlistNegatives
from longtail.types import I32, I64, Csr

# What else is drawn for documents at some rows: label numbers, in any order, repetitions and padding (-1) allowed.
MoreLabels: TypeAlias = Callable[[I64, np.random.Generator], I32]


@dataclass(frozen=True)
class SharedLabels:
    """labels: (U,) int32, ascending.  starts: (B + 1,), places: (P,) int32: which of `labels` each document has.

    ignored: (I, 2) int64 (document of the batch, place among `labels`) pairs that count neither way.
    """

    labels: I32
    starts: I64
    places: I32
    ignored: I64


class BatchLabels:
    """Puts the labels of a step together.

    y: (N, L) CSR of positives.  masked: (P, 2) pairs of a document and a label that may be neither.
    """

    def __init__(self, y: Csr, masked: I64, more: MoreLabels) -> None:
        self.n_labels, self.more = int(y.shape[1]), more
        self._starts, self._labels, _ = pieces(y)
        order = np.lexsort((masked[:, 1], masked[:, 0]))
        self._masked_labels = masked[order, 1]
        self._masked_starts = np.searchsorted(masked[order, 0], np.arange(int(y.shape[0]) + 1)).astype(np.int64)
        self._place = np.full(self.n_labels, -1, dtype=np.int32)

    def draw(self, rows: I64, rng: np.random.Generator) -> SharedLabels:
        starts, own = _taken(self._starts, self._labels, rows)
        more = self.more(rows, rng)
        labels = np.unique(np.concatenate([own, more[more >= 0]])).astype(np.int32)
        self._place[labels] = np.arange(len(labels), dtype=np.int32)
        places = self._place[own]
        ends, hidden = _taken(self._masked_starts, self._masked_labels, rows)
        owners, hidden_places = np.repeat(np.arange(len(rows)), np.diff(ends)), self._place[hidden]
        ignored = np.stack([owners, hidden_places.astype(np.int64)], axis=1)[hidden_places >= 0]
        self._place[labels] = -1
        return SharedLabels(labels, starts, places, ignored)


def random_labels(n_labels: int, count: int) -> MoreLabels:
    """`count` different labels, drawn anew in every step; all of them where there are no more."""
    if count < 0:
        raise ConfigError(f"{count} random labels asked for", "use 0 or more")
    if count >= n_labels:
        return lambda rows, rng: np.arange(n_labels, dtype=np.int32)
    return lambda rows, rng: rng.choice(n_labels, count, replace=False, shuffle=False).astype(np.int32)


def hard_labels(negatives: ShortlistNegatives, per_document: int) -> MoreLabels:
    """Of each document's hard negatives a random choice of `per_document`; all documents of the batch share them."""
    width = int(negatives.ids.shape[1])
    if per_document >= width:
        return lambda rows, rng: np.asarray(negatives.ids[rows]).ravel()

    def drawn(rows: I64, rng: np.random.Generator) -> I32:
        columns = rng.integers(width, size=(len(rows), per_document))
        return np.asarray(negatives.ids[rows[:, None], columns]).ravel()

    return drawn


def _taken(starts: I64, values: I32 | I64, rows: I64) -> tuple[I64, I32 | I64]:
    """Rows of a ragged array: their row pointers and values."""
    lengths = starts[rows + 1] - starts[rows]
    ends = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends, values[np.repeat(starts[rows] - ends[:-1], lengths) + np.arange(ends[-1])]
