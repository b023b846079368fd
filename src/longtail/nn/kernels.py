"""Kernels over the rows of a big table: grouping a batch by row, Adam on just the rows that it touched, and one
training step of classifier rows over each document's own candidates.

Work is grouped by row, so that one thread owns a row and nothing is locked. Rows are cut into `CHUNKS` fixed pieces,
however many threads there are: results do not depend on their number. In a training step a row, its two moments and its
gradient are loaded once, used for the scores, both gradients and the update, and written once; gathering rows per
document would move every row once per document that names it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled, prange
from longtail.types import I32, I64

CHUNKS = 16
# An optimiser update of a row costs about as much as this many (document, row) pairs; balances the chunks.
_ROW_COST = 2


class RowGroups(NamedTuple):
    """The entries of a batch sorted by the row they name.

    rows: (U,) int32, ascending.  starts: (U + 1,) int64.  entries: (P,) int32, flat positions, grouped by row, in order
    within a row.  edges: (CHUNKS + 1,) int64, rows of each piece of work.
    """

    rows: I32
    starts: I64
    entries: I32
    edges: I64


def grouped_by_row(ids: I32, slots: I32) -> RowGroups:
    """Group flat `ids` (P,); negative ids are padding and left out.

    slots: (table rows,) zeros, scratch that is zero again afterwards; it makes grouping linear in P.
    """
    rows = np.sort(_different_rows(ids, slots))
    starts, entries = _entries_by_row(ids, slots, rows)
    return RowGroups(rows, starts, entries, balanced_edges(starts))


def balanced_edges(starts: I64) -> I64:
    """`RowGroups.edges`: pieces of about the same work."""
    work = starts + _ROW_COST * np.arange(len(starts))
    return np.searchsorted(work, np.linspace(0, work[-1], CHUNKS + 1)).astype(np.int64)


@compiled()
def _different_rows(ids: I32, slots: I32) -> I32:
    """Every row that is named, in order of appearance; leaves its number of entries in `slots`."""
    rows = np.empty(min(ids.size, slots.size), np.int32)
    found = 0
    for row in ids:
        if row >= 0:
            if slots[row] == 0:
                rows[found] = row
                found += 1
            slots[row] += 1
    return rows[:found]


@compiled()
def _entries_by_row(ids: I32, slots: I32, rows: I32) -> tuple[I64, I32]:
    """A stable counting sort. `slots` comes with counts, becomes the write position of each row, leaves as zeros."""
    starts = np.empty(rows.size + 1, np.int64)
    total = 0
    for u in range(rows.size):
        starts[u] = total
        count = slots[rows[u]]
        slots[rows[u]] = total
        total += count
    starts[rows.size] = total
    entries = np.empty(total, np.int32)
    for entry in range(ids.size):
        row = ids[entry]
        if row >= 0:
            entries[slots[row]] = entry
            slots[row] += 1
    for row in rows:
        slots[row] = 0
    return starts, entries


# Inlined, because inside a parallel loop numba divides without checking for zero; with the check nothing is vectorised.
@compiled(inline=True)
def adam_row(
    row: NDArray[Any], first: NDArray[Any], second: NDArray[Any], gradient: NDArray[Any], factors: NDArray[Any]
) -> None:
    """One Adam update of one row, in place.  factors: `AdamFactors`, of the table's type."""
    keep_first, add_first, keep_second, add_second, rate, spread, epsilon = factors
    for d in range(row.size):
        g = gradient[d]
        m = keep_first * first[d] + add_first * g
        v = keep_second * second[d] + add_second * g * g
        first[d] = m
        second[d] = v
        row[d] -= rate * m / (np.sqrt(v) * spread + epsilon)


@compiled(parallel=True)
def adam_rows(
    table: NDArray[Any],
    first: NDArray[Any],
    second: NDArray[Any],
    rows: I64,
    gradient_UD: NDArray[Any],
    factors: NDArray[Any],
) -> None:
    """Adam on different rows, each with its gradient."""
    for place in prange(rows.size):
        u = np.int64(place)
        adam_row(table[rows[u]], first[rows[u]], second[rows[u]], gradient_UD[u], factors)


@compiled(parallel=True)
def adam_from_bags(
    table: NDArray[Any],
    first: NDArray[Any],
    second: NDArray[Any],
    rows: I32,
    starts: I64,
    entries: I32,
    edges: I64,
    owners: I64,
    weights: NDArray[Any],
    gradient_BD: NDArray[Any],
    factors: NDArray[Any],
) -> None:
    """Adam on the rows that bags name: a row's gradient is the sum of weight * gradient of the bag over its entries."""
    for chunk in prange(edges.size - 1):
        k = np.int64(chunk)
        gradient = np.empty(table.shape[1], table.dtype)
        for u in range(edges[k], edges[k + 1]):
            gradient[:] = 0
            for position in range(starts[u], starts[u + 1]):
                entry = entries[position]
                weight, source = weights[entry], gradient_BD[owners[entry]]
                for d in range(gradient.size):
                    gradient[d] += weight * source[d]
            adam_row(table[rows[u]], first[rows[u]], second[rows[u]], gradient, factors)


@compiled(parallel=True)
def adam_block(
    rows: NDArray[Any],
    first: NDArray[Any],
    second: NDArray[Any],
    gradient: NDArray[Any],
    scale: float,
    factors: NDArray[Any],
) -> None:
    """Adam on a block of rows, all (n, D).  gradient: to be multiplied by `scale`; overwritten."""
    for index in prange(rows.shape[0]):
        n = np.int64(index)
        for d in range(rows.shape[1]):
            gradient[n, d] *= scale
        adam_row(rows[n], first[n], second[n], gradient[n], factors)


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
