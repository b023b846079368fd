"""Kernels of prediction. Least to read: one row of D numbers per word of a bag, and per label of a shortlist.

Tables come as `longtail.search.packed.Stored`: float32, float16, int8 or, of words, int4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled, prange
from longtail.kernels.products import as_float, dot, fetch_rows
from longtail.search.packed import NIBBLE_SHIFT
from longtail.types import F32, I32, I64

# How many labels before its turn a row is asked for.
_AHEAD = 4
_NIBBLE_SHIFT = np.int32(NIBBLE_SHIFT)


def add_row(table: Any, place: Any, factor: Any, sums: Any, row: Any) -> None:
    """sums[row] += factor * table[place]. Only kernels can call it."""
    raise NotImplementedError


@overload(add_row)
def _add_row(table: Any, place: Any, factor: Any, sums: Any, row: Any) -> Any:
    def of_nibbles(table: Any, place: Any, factor: Any, sums: Any, row: Any) -> None:
        half = table.shape[1]
        for d in range(half):
            sums[row, d] += factor * np.float32(np.int32(table[place, d] & 15) - _NIBBLE_SHIFT)
        for d in range(half):
            sums[row, half + d] += factor * np.float32(np.int32(table[place, d] >> 4) - _NIBBLE_SHIFT)

    def of_numbers(table: Any, place: Any, factor: Any, sums: Any, row: Any) -> None:
        for d in range(table.shape[1]):
            sums[row, d] += factor * as_float(table[place, d])

    return of_nibbles if table.dtype == types.uint8 else of_numbers


@compiled(parallel=True)
def add_bags(starts: I64, columns: I32, values: F32, table: NDArray[Any], scales: F32, places: I32, sums: F32) -> None:
    """sums[b] += values * table[columns] over the entries of bag b.

    table, scales, places: (V, D) stored; sums: (B, D).
    """
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
            add_row(table, place, values[at] * scales[place] if len(scales) else values[at], sums, row)


@compiled(parallel=True)
def score_candidates(vectors: F32, rows: NDArray[Any], scales: F32, ids: I32, out: F32) -> None:
    """out[b, c] = vectors[b] . rows[ids[b, c]], 0 at padding.

    vectors: (B, D); rows, scales: (L, D) stored, all of them; ids, out: (B, C).
    """
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
