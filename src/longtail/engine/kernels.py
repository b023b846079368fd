"""Kernels of prediction. Floors: a bag reads one row of D floats per word; a shortlist reads one row of D floats per label."""

from __future__ import annotations

import numpy as np

from longtail.compiled import compiled, prange
from longtail.types import F32, I32, I64


@compiled(parallel=True)
def add_bags(starts: I64, columns: I32, values: F32, table: F32, sums: F32) -> None:
    """sums[b] += values * table[columns] over the entries of bag b. table: (V, D); sums: (B, D)."""
    for unsigned in prange(len(starts) - 1):
        row = np.int64(unsigned)
        for at in range(starts[row], starts[row + 1]):
            column, value = columns[at], values[at]
            for d in range(table.shape[1]):
                sums[row, d] += value * table[column, d]


@compiled(parallel=True, fastmath=True)
def score_candidates(vectors: F32, rows: F32, ids: I32, out: F32) -> None:
    """out[b, c] = vectors[b] . rows[ids[b, c]], 0 at padding. vectors: (B, D); rows: (L, D); ids, out: (B, C).

    fastmath lets the compiler keep several partial sums: the order is fixed at compile time, so results are repeatable.
    """
    for unsigned in prange(len(ids)):
        row = np.int64(unsigned)
        for place in range(ids.shape[1]):
            label = ids[row, place]
            total = np.float32(0.0)
            if label >= 0:
                for d in range(vectors.shape[1]):
                    total += vectors[row, d] * rows[label, d]
            out[row, place] = total
