"""Products of many queries with int8 rows in whole numbers: a machine instruction multiplies 64 pairs of bytes at once.

Queries are rounded to bytes, so these products only say which rows are worth an exact look. Four rows meet four
queries at a time (sixteen rows a single one), whose sixteen sums stay in registers: each byte read is used four times.

`available` says whether the machine has the instruction (AVX-512 VNNI); elsewhere plain loops give the same sums. numba
keeps machine code apart by processor, so a cache on a shared disk is safe.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from longtail.kernels.basics import better_half
from longtail.kernels.compiled import compiled, prange
from longtail.search.kernels.tiles import INT32, INT64, INTEGERS, TileCode
from longtail.search.matrix import LANES
from longtail.types import F32, I32, I64

# Bytes of one instruction; rows and queries of a tile; rows of a tile of a single query.
LANE_BYTES, TILE, COLUMN = 64, 4, 16
# Rows that stay in the second-level cache while all queries pass: 128 kB at 512 dimensions.
BLOCK = 256
LOWEST = np.float32(-3.0e38)  # what any score beats


@cache
def available() -> bool:
    """Whether this machine has the instruction (and numba is not set to compile for another)."""
    for_another = any(getattr(config, name, None) is not None for name in ("CPU_NAME", "CPU_FEATURES"))
    return not for_another and bool(llvm.get_host_cpu_features().get("avx512vnni"))


def _tile_of(high: int, wide: int) -> Any:
    """A tile of `high` rows and `wide` queries, sixteen products in all: tile(rows, row, queries, query, out, place).

    out[q, place + r] = rows[row + r] . queries[query + q] for r < high, q < wide.
    rows: (n, D) int8.  queries: (B, D) uint8.  D: a multiple of 64.  out: (wide or more, C) int32.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _tile_code(high, wide, context, builder, signature, arguments)

    def tile(typing_context: Any, rows: Any, row: Any, queries: Any, query: Any, out: Any, place: Any) -> Any:
        return types.void(rows, types.int64, queries, types.int64, out, types.int64), code

    return intrinsic(tile)


def _tile_code(high: int, wide: int, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    code = TileCode(builder)
    rows, queries, out = (context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 2, 4))
    width = builder.extract_value(rows.shape, 1)
    row_starts = code.starts(rows, arguments[1], high, width)
    query_starts = code.starts(queries, arguments[3], wide, width)

    def step(number: Any, sums: list[Any]) -> list[Any]:
        place = builder.mul(number, INT64(LANE_BYTES))
        of_rows = [code.loaded(start, place, INTEGERS) for start in row_starts]
        of_queries = [code.loaded(start, place, INTEGERS) for start in query_starts]
        return [
            code.with_bytes(sums[high * q + r], of_queries[q], of_rows[r]) for q in range(wide) for r in range(high)
        ]

    sums = code.summed(builder.udiv(width, INT64(LANE_BYTES)), high * wide, INTEGERS, step)
    # Sixteen vectors of sixteen lanes are added up pairwise until lane i holds the sum of vector i.
    even, odd = (ir.Constant(INTEGERS, list(range(first, 2 * LANES, 2))) for first in (0, 1))
    while len(sums) > 1:
        pairs = zip(sums[::2], sums[1::2], strict=True)
        sums = [builder.add(builder.shuffle_vector(a, b, even), builder.shuffle_vector(a, b, odd)) for a, b in pairs]
    for q in range(wide):
        lanes = ir.Constant(ir.VectorType(INT32, high), list(range(high * q, high * (q + 1))))
        code.store(out, INT64(q), arguments[5], builder.shuffle_vector(sums[0], sums[0], lanes), INT32)
    return context.get_dummy_value()


@compiled()
def _plain_dot(rows: NDArray[np.int8], row: int, queries: NDArray[np.uint8], query: int) -> np.int32:
    total = np.int32(0)
    for d in range(rows.shape[1]):
        total = np.int32(total + np.int32(rows[row, d]) * np.int32(queries[query, d]))
    return total


@compiled()
def plain_tile(rows: NDArray[np.int8], row: int, queries: NDArray[np.uint8], query: int, out: I32, place: int) -> None:
    """What `_tile_of(TILE, TILE)` does, on any machine."""
    for q in range(TILE):
        for r in range(TILE):
            out[q, place + r] = _plain_dot(rows, row + r, queries, query + q)


@compiled()
def plain_column(
    rows: NDArray[np.int8], row: int, queries: NDArray[np.uint8], query: int, out: I32, place: int
) -> None:
    """What `_tile_of(COLUMN, 1)` does, on any machine."""
    for r in range(COLUMN):
        out[0, place + r] = _plain_dot(rows, row + r, queries, query)


_tile, _column = (_tile_of(TILE, TILE), _tile_of(COLUMN, 1)) if available() else (plain_tile, plain_column)


@compiled()
def products(rows: NDArray[np.int8], first: int, count: int, queries: NDArray[np.uint8], query: int, sums: I32) -> None:
    """sums[q, i] = rows[first + i] . queries[query + q], i < count, of four queries from `query` on or the only one."""
    alone = len(queries) == 1
    step = COLUMN if alone else TILE
    tiled = count // step * step
    for i in range(0, tiled, step):
        if alone:
            _column(rows, first + i, queries, query, sums, i)
        else:
            _tile(rows, first + i, queries, query, sums, i)
    for i in range(tiled, count):
        for q in range(1 if alone else TILE):
            sums[q, i] = _plain_dot(rows, first + i, queries, query + q)


@compiled(fastmath=True)
def scaled(
    sums: I32,
    scale: np.float32,
    scales: F32,
    last: np.float32,
    offsets: F32,
    shift: np.float32,
    totals: F32,
    first: int,
    count: int,
    threshold: np.float32,
    values: F32,
) -> np.int32:
    """values[i] = sums[i] times both scales, what was shifted taken back, and the offset times `last`.

    Returns how many beat the threshold. Slices, and a count in place of the highest, let the compiler take sixteen at a
    time.
    """
    end = first + count
    scales_here, offsets_here, totals_here = scales[first:end], offsets[first:end], totals[first:end]
    beat = np.int32(0)
    for i in range(count):
        value = np.float32(sums[i]) * (scale * scales_here[i]) + (last * offsets_here[i] - shift * totals_here[i])
        values[i] = value
        beat += np.int32(value > threshold)
    return beat


@compiled(parallel=True)
def scan_bytes(
    rows: NDArray[np.int8],
    scales: F32,
    offsets: F32,
    totals: F32,
    queries: NDArray[np.uint8],
    query_scales: F32,
    lasts: F32,
    shifts: F32,
    ids: I32,
    scores: F32,
    sizes: I64,
) -> None:
    """The best rows of rounded queries, in any order: rows and queries have a scale each, and every row an offset.

    queries: (B rounded up to whole tiles, or 1; D).  ids, scores: (pieces, B, 2 keep), room for pools, which hold the
    `keep` best rows of each piece in the end (a heap of hundreds would cost more than the products); sizes: (pieces,
    B), zero at first.
    shifts: (B,) what was added to the numbers of each query, so that none is negative; totals: (n,) the sums of the
    rows, which take it back.
    """
    pieces, n, documents, room = ids.shape[0], len(rows), ids.shape[1], ids.shape[2]
    step = (n + pieces - 1) // pieces
    for unsigned in prange(pieces):
        piece = np.int64(unsigned)
        sums, values, thresholds = (
            np.empty((TILE, BLOCK), np.int32),
            np.empty(BLOCK, np.float32),
            np.full(documents, LOWEST),
        )
        end = min(n, (piece + 1) * step)
        for first in range(piece * step, end, BLOCK):
            count = min(BLOCK, end - first)
            for tile in range(0, documents, TILE):
                products(rows, first, count, queries, tile, sums)
                for query in range(tile, min(tile + TILE, documents)):
                    size, threshold = sizes[piece, query], thresholds[query]
                    scale, last, shift = query_scales[query], lasts[query], shifts[query]
                    if not scaled(
                        sums[query - tile], scale, scales, last, offsets, shift, totals, first, count, threshold, values
                    ):
                        continue
                    for i in range(count):
                        if values[i] > threshold:
                            ids[piece, query, size], scores[piece, query, size] = first + i, values[i]
                            size += 1
                            if size == room:
                                size = room // 2
                                threshold = better_half(ids[piece, query], scores[piece, query], room, size)
                    sizes[piece, query], thresholds[query] = size, threshold
        for query in range(documents):
            if sizes[piece, query] > room // 2:
                better_half(ids[piece, query], scores[piece, query], sizes[piece, query], room // 2)
                sizes[piece, query] = room // 2
