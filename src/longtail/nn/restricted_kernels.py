"""One training step of classifier rows over each document's own candidates, in one pass over the touched rows.

A row, its two moments and its gradient are loaded once, used for the scores, both gradients and the update, and
written once; document vectors and their gradients stay in the cache. Gathering rows per document would move every row
once per document that names it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled, prange
from longtail.nn.row_kernels import adam_row
from longtail.types import I32, I64


@compiled(fastmath=True)
def dot(a: NDArray[Any], b: NDArray[Any]) -> Any:
    """Inner product. `fastmath` only here: it lets the sum run in vector lanes (the order is fixed for a machine)."""
    total = a.dtype.type(0)  # not a[0] * b[0]: a loop from 1 loads across cache lines
    for d in range(a.size):
        total += a[d] * b[d]
    return total


@compiled(parallel=True)
def restricted_step(
    table: NDArray[Any],
    first: Any,
    second: Any,
    factors: Any,
    gradients: NDArray[Any] | None,
    rows: I32,
    starts: I64,
    entries: I32,
    edges: I64,
    candidates: int,
    z_BD: NDArray[Any],
    targets: NDArray[Any],
    share: Any,
    partial: NDArray[Any],
    losses: NDArray[np.float64],
) -> None:
    """Scores, binary cross-entropy and gradient to the documents; for the touched rows Adam, or their gradients alone.

    table, first, second, factors: rows with their moments, updated by Adam.
    gradients: (U, D), overwritten: then rows are only read, and the three others are None (numba compiles each case).
    candidates: C; entry e of the flat (B, C) arrays belongs to document e // C.  targets: (B * C,).
    share: weight of one entry in the loss (1 / P), of the table's type.
    partial: (CHUNKS, B, D), overwritten: each chunk's part of the gradient to the documents.
    losses: (CHUNKS,), overwritten: each chunk's sum of losses, not yet divided.
    """
    for chunk in prange(edges.size - 1):
        k = np.int64(chunk)
        to_documents = partial[k]
        to_documents[:] = 0
        gradient = np.empty(table.shape[1], table.dtype)
        one = table.dtype.type(1)
        loss = 0.0
        for u in range(edges[k], edges[k + 1]):
            row = table[rows[u]]
            gradient[:] = 0
            for position in range(starts[u], starts[u + 1]):
                entry = entries[position]
                b = entry // candidates
                document, target = z_BD[b], targets[entry]
                score = dot(row, document)
                # exp of a number <= 0 cannot overflow; both the loss and the sigmoid follow from it
                small = np.exp(-abs(score))
                loss += max(score, 0.0) - score * target + np.log1p(small)
                probability = (one if score >= 0 else small) / (one + small)
                slope = share * (probability - target)
                towards = to_documents[b]
                for d in range(gradient.size):
                    gradient[d] += slope * document[d]
                    towards[d] += slope * row[d]
            # Two conditions, not if and else: numba leaves a branch out only where the argument it asks for is None.
            if first is not None:
                adam_row(row, first[rows[u]], second[rows[u]], gradient, factors)
            if gradients is not None:
                gradients[u] = gradient
        losses[k] = loss


@compiled(parallel=True)
def summed_parts(partial: NDArray[Any], total: NDArray[Any]) -> None:
    """total[b] = sum over chunks of partial[:, b], in the order of the chunks."""
    for document in prange(total.shape[0]):
        b = np.int64(document)
        total[b] = partial[0, b]
        for k in range(1, partial.shape[0]):
            for d in range(total.shape[1]):
                total[b, d] += partial[k, b, d]
