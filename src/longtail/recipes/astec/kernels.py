"""Beam search through a tree of linear classifiers, and the scores of labels inside leaves.

Each document is one piece of work, so results do not depend on threads. Documents of a tree are CSR (`indptr`,
`indices`, `data`) and come with `SparseWeights` and ``rows = None``, or they are dense (``indptr = indices = None``,
one after the other in `data`) and come with `DenseWeights` and their `rows`; numba compiles each case on its own, and
leaves out what depends on a None. How parents and children are numbered: see `longtail.search.linear.SparseWeights`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from longtail.kernels.basics import offer, settle
from longtail.kernels.compiled import compiled, prange
from longtail.search.kernels.classifiers import child_scores
from longtail.types import F32, I32, I64


@compiled()
def log_probability(score: float, logistic: bool) -> float:
    """log sigmoid(score), or -max(0, 1 - score)^2 for classifiers that were trained by the squared hinge."""
    if logistic:
        return min(score, 0.0) - math.log1p(math.exp(-abs(score)))
    return -(max(0.0, 1.0 - score) ** 2)


@compiled()
def _has_labels(node: int, n_leaves: int, starts: I64) -> bool:
    """Whether there is a label below a node."""
    first, last = node, node
    while first < n_leaves - 1:
        first, last = 2 * first + 1, 2 * last + 2
    return starts[first] < starts[last + 1]


@compiled(parallel=True)
def find_leaves(
    indptr: Any, indices: Any, data: F32, rows: Any, weights: Any, logistic: bool, leaves: I32, probabilities: F32
) -> None:
    """The best leaves of each document by beam search; the beam is as wide as the (B, m) results, which are padding
    on entry.
    """
    n_leaves = len(weights.starts) // 2
    depth = 0
    while 2**depth < n_leaves:
        depth += 1
    for unsigned in prange(len(leaves)):
        document: Any = np.int64(unsigned)
        scores = np.empty(2)
        nodes, logs, size = np.zeros(leaves.shape[1], dtype=np.int32), np.zeros(leaves.shape[1]), 1
        for _ in range(depth):
            below: Any = np.empty_like(nodes)
            below_logs: Any = np.empty_like(logs)
            found = 0
            for place in range(size):
                child_scores(indptr, indices, data, document, rows, weights, nodes[place], scores)
                for side in range(2):
                    child = 2 * nodes[place] + 1 + side
                    if _has_labels(child, n_leaves, weights.starts):
                        found = offer(
                            below, below_logs, found, child, logs[place] + log_probability(scores[side], logistic)
                        )
            nodes, logs, size = below, below_logs, found
        # Offered again as float32: what is equal then goes by leaf number.
        found = 0
        for place in range(size):
            found = offer(
                leaves[document], probabilities[document], found, nodes[place] - (n_leaves - 1), math.exp(logs[place])
            )
        settle(leaves[document], probabilities[document], found)


@compiled(parallel=True)
def score_labels(
    indptr: Any,
    indices: Any,
    data: F32,
    rows: Any,
    weights: Any,
    logistic: bool,
    labels: I32,
    leaves: I32,
    ids: I32,
    probabilities: F32,
) -> None:
    """Each label of each document's leaves (B, m), with its probability given the leaf; (B, m * size) results are
    padding on entry.
    """
    n_leaves = len(weights.starts) // 2
    first_label = 2 * (n_leaves - 1)
    for unsigned in prange(len(leaves)):
        document: Any = np.int64(unsigned)
        size = ids.shape[1] // max(leaves.shape[1], 1)
        scores = np.empty(size)
        for place in range(leaves.shape[1]):
            if leaves[document, place] >= 0:
                parent = n_leaves - 1 + leaves[document, place]
                count = child_scores(indptr, indices, data, document, rows, weights, parent, scores)
                for child in range(count):
                    ids[document, place * size + child] = labels[weights.starts[parent] - first_label + child]
                    probabilities[document, place * size + child] = math.exp(log_probability(scores[child], logistic))
