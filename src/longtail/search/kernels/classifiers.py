"""What trained linear classifiers score: by parent and word (`longtail.search.linear.SparseWeights`), or row by row.

Apart from `linear`, which trains them: prediction need not load that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled
from longtail.types import F32, I32

F64 = NDArray[np.float64]


@compiled()
def _place_of(word: int, words: I32, low: int, high: int) -> int:
    """Where the first word that is not before `word` stands in the sorted words[low:high]."""
    while low < high:
        middle = (low + high) // 2
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(fastmath=True)
def dense_dot(data: F32, at: Any, row: F32) -> Any:
    """fastmath keeps several partial sums; their order is fixed at compile time, so results are repeatable."""
    total = np.float32(0.0)
    for column in range(len(row)):
        total += data[at + column] * row[column]
    return total


@compiled()
def child_scores(
    indptr: Any, indices: Any, data: F32, document: Any, rows: Any, weights: Any, parent: Any, scores: F64
) -> int:
    """Write the scores of a parent's children; returns how many there are."""
    first = weights.starts[parent]
    count = weights.starts[parent + 1] - first
    for child in range(count):
        scores[child] = weights.bias[first + child]
    if rows is not None:
        for child in range(count):
            scores[child] += dense_dot(data, document * rows.shape[1], rows[first + child])
    if indptr is not None:
        place, end = weights.word_starts[parent], weights.word_starts[parent + 1]
        for entry in range(indptr[document], indptr[document + 1]):
            place = _place_of(indices[entry], weights.words, place, end)
            if place < end and weights.words[place] == indices[entry]:
                for at in range(weights.entry_starts[place], weights.entry_starts[place + 1]):
                    scores[weights.children[at]] += data[entry] * weights.values[at]
    return count
