"""Linear one-vs-all on TF-IDF: the baseline that the papers measure gains in rare labels against.

Per label an L2-regularised squared-hinge classifier by dual coordinate descent, as in LIBLINEAR and DiSMEC; no negatives are
left out, no weights are pruned.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import compiled, prange
from longtail.types import F32, I32, I64, Csr, TopK

COST = 1.0
ROUNDS = 10
_LABELS_AT_ONCE = 512


def one_vs_all(documents: Csr, targets: Csr, queries: Csr, k: int, seed: int = 0) -> TopK:
    """The `k` best labels of `queries` by classifiers trained on `documents`.

    documents: (N, V) CSR. targets: (N, L) CSR. queries: (B, V) CSR.
    """
    positives = targets.T.tocsr()
    order = np.random.default_rng(seed).permutation(documents.shape[0]).astype(np.int64)
    ids, scores = [], []
    for first in range(0, targets.shape[1], _LABELS_AT_ONCE):
        chosen = positives[first : first + _LABELS_AT_ONCE]
        weights = np.zeros((chosen.shape[0], documents.shape[1] + 1), dtype=np.float32)
        train_labels(
            documents.indptr.astype(np.int64), documents.indices.astype(np.int32), documents.data.astype(np.float32),
            chosen.indptr.astype(np.int64), chosen.indices.astype(np.int64), order, COST, ROUNDS, weights,
        )  # fmt: skip
        block = np.asarray(queries @ weights[:, :-1].T) + weights[:, -1]
        best = np.argsort(-block, axis=1, kind="stable")[:, :k]
        ids.append(best + first)
        scores.append(np.take_along_axis(block, best, axis=1))
    all_ids, all_scores = np.hstack(ids), np.hstack(scores)
    order_of = np.lexsort((all_ids, -all_scores), axis=1)[:, :k]
    return TopK(np.take_along_axis(all_ids, order_of, axis=1).astype(np.int32), np.take_along_axis(all_scores, order_of, axis=1).astype(np.float32))


@compiled(parallel=True)
def train_labels(
    starts: I64, columns: I32, values: F32, positive_starts: I64, positive_rows: I64, order: I64, cost: float, rounds: int, weights: F32
) -> None:
    """weights[l] of every label, the bias last. starts, columns, values: documents as CSR. positive_*: documents of each label as CSR."""
    n = len(starts) - 1
    for unsigned in prange(len(weights)):
        label = np.int64(unsigned)
        weight = weights[label]
        sign = np.full(n, -1.0, dtype=np.float32)
        for at in range(positive_starts[label], positive_starts[label + 1]):
            sign[positive_rows[at]] = 1.0
        alpha = np.zeros(n, dtype=np.float32)
        for _ in range(rounds):
            for place in range(n):
                row = order[place]
                score, square = weight[-1], np.float32(1.0)
                for at in range(starts[row], starts[row + 1]):
                    score += weight[columns[at]] * values[at]
                    square += values[at] * values[at]
                gradient = sign[row] * score - 1.0 + alpha[row] / (2.0 * cost)
                if alpha[row] == 0.0 and gradient >= 0.0:
                    continue
                before = alpha[row]
                alpha[row] = max(before - gradient / (square + 1.0 / (2.0 * cost)), 0.0)
                step = np.float32((alpha[row] - before) * sign[row])
                for at in range(starts[row], starts[row + 1]):
                    weight[columns[at]] += step * values[at]
                weight[-1] += step
