"""Kernels of prediction. Floors: a bag reads one row of D numbers per word; a shortlist reads one row of D numbers per label.

Tables come as `longtail.search.packed.Stored`: float32, float16 or int8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.compiled import compiled, prange
from longtail.search.fetch_kernels import fetch_rows
from longtail.search.product_kernels import as_float, dot
from longtail.types import F32, I32, I64

# How many labels before its turn a row is asked for.
_AHEAD = 4


@compiled(parallel=True)
def add_bags(starts: I64, columns: I32, values: F32, table: NDArray[Any], scales: F32, places: I32, sums: F32) -> None:
    """sums[b] += values * table[columns] over the entries of bag b. table, scales, places: (V, D) stored; sums: (B, D)."""
    for unsigned in prange(len(starts) - 1):
        row = np.int64(unsigned)
        for at in range(starts[row], starts[row + 1]):
            place = places[columns[at]] if len(places) else columns[at]
            if place >= 0:
                fetch_rows(table, place, place + 1)
        for at in range(starts[row], starts[row + 1]):
            place = places[columns[at]] if len(places) else columns[at]
            if place < 0:
                continue
            value = values[at] * scales[place] if len(scales) else values[at]
            for d in range(table.shape[1]):
                sums[row, d] += value * as_float(table[place, d])


@compiled(parallel=True)
def score_candidates(vectors: F32, rows: NDArray[Any], scales: F32, ids: I32, out: F32) -> None:
    """out[b, c] = vectors[b] . rows[ids[b, c]], 0 at padding. vectors: (B, D); rows, scales: (L, D) stored, all of them; ids, out: (B, C)."""
    for unsigned in prange(len(ids)):
        row = np.int64(unsigned)
        for place in range(ids.shape[1]):
            if place + _AHEAD < ids.shape[1] and ids[row, place + _AHEAD] >= 0:
                fetch_rows(rows, ids[row, place + _AHEAD], ids[row, place + _AHEAD] + 1)
            label = ids[row, place]
            total = np.float32(0.0)
            if label >= 0:
                total = dot(rows, label, vectors, row)
                if len(scales):
                    total *= scales[label]
            out[row, place] = total
