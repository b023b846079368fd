"""Labels of a document's clusters, scored and ranked; documents in parallel.

Documents are words (`indptr`, `indices`, `data` with `words`, see `SparseWeights`), dense vectors (with `rows`), or
both; what there is not is None, and numba leaves out what depends on it. Clusters are of very different size, so no
table of all labels is made to rank them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled, prange
from longtail.kernels.heap import offer, settle
from longtail.search.kernels.tree import child_scores
from longtail.types import F32, I32, I64

F64 = NDArray[np.float64]


@compiled(fastmath=True)
def _dot(a: F32, b: F32) -> Any:
    """fastmath keeps several partial sums; their order is fixed at compile time, so results are repeatable."""
    total = np.float32(0.0)
    for column in range(len(a)):
        total += a[column] * b[column]
    return total


@compiled()
def _member_scores(
    indptr: Any,
    indices: Any,
    data: Any,
    words: Any,
    vectors: Any,
    rows: Any,
    starts: I64,
    bias: F32,
    document: Any,
    cluster: Any,
    scores: F64,
) -> int:
    """Write the scores of a cluster's labels; returns how many there are."""
    first = starts[cluster]
    count = starts[cluster + 1] - first
    if words is not None:
        child_scores(indptr, indices, data, document, None, words, cluster, scores)
    else:
        for member in range(count):
            scores[member] = bias[first + member]
    if rows is not None:
        for member in range(count):
            scores[member] += _dot(vectors[document], rows[first + member])
    return count


@compiled()
def _sigmoid(score: float) -> float:
    if score >= 0.0:
        return 1.0 / (1.0 + math.exp(-score))
    return math.exp(score) / (1.0 + math.exp(score))


@compiled()
def _largest(starts: I64) -> int:
    largest = 0
    for cluster in range(len(starts) - 1):
        largest = max(largest, starts[cluster + 1] - starts[cluster])
    return largest


@compiled(parallel=True)
def rank_members(
    indptr: Any,
    indices: Any,
    data: Any,
    words: Any,
    vectors: Any,
    rows: Any,
    starts: I64,
    bias: F32,
    labels: I32,
    clusters: I32,
    gates: F32,
    ids: I32,
    best: F32,
) -> None:
    """The best labels by gate x probability; (B, k) results are padding on entry. clusters, gates: (B, m), -1 for
    none.
    """
    largest = _largest(starts)
    for unsigned in prange(len(clusters)):
        document: Any = np.int64(unsigned)
        scores = np.empty(largest)
        size = 0
        for place in range(clusters.shape[1]):
            cluster = np.int64(clusters[document, place])
            if cluster >= 0:
                for member in range(
                    _member_scores(indptr, indices, data, words, vectors, rows, starts, bias, document, cluster, scores)
                ):
                    score: Any = np.float32(gates[document, place] * _sigmoid(scores[member]))
                    size = offer(ids[document], best[document], size, labels[starts[cluster] + member], score)
        settle(ids[document], best[document], size)


@compiled(parallel=True)
def score_members(
    indptr: Any,
    indices: Any,
    data: Any,
    words: Any,
    vectors: Any,
    rows: Any,
    starts: I64,
    bias: F32,
    labels: I32,
    clusters: I32,
    ids: I32,
    probabilities: F32,
) -> None:
    """Each label of each document's clusters (B, m), with its probability; (B, m * size) results are padding on
    entry.
    """
    size = _largest(starts)
    for unsigned in prange(len(clusters)):
        document: Any = np.int64(unsigned)
        scores = np.empty(size)
        for place in range(clusters.shape[1]):
            cluster = np.int64(clusters[document, place])
            if cluster >= 0:
                for member in range(
                    _member_scores(indptr, indices, data, words, vectors, rows, starts, bias, document, cluster, scores)
                ):
                    ids[document, place * size + member] = labels[starts[cluster] + member]
                    probabilities[document, place * size + member] = _sigmoid(scores[member])
