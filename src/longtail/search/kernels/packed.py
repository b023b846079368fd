"""Kernels over packed tables (`longtail.search.packed`): sums and products of rows as they are stored, and products of
bytes, of which a machine instruction multiplies 64 pairs at once.

Queries that meet bytes are rounded to bytes, so these products only say which rows are worth an exact look. They come
in two forms. Of rows as they are four meet four queries at a time (sixteen rows a single one), whose sixteen sums stay
in registers: each byte read is used four times. That leaves the sum of a row spread over sixteen lanes; adding these up
takes longer than the products where rows are short. Of interleaved rows each lane is a row, and its sum is there when
the last numbers are. Four blocks of them meet four queries, or a single one, whose sums become values while they are in
registers: a bit per row says what beats a query's threshold, so rows that nobody wants cost nothing after that.

`available` says whether the machine has the instruction (AVX-512 VNNI); elsewhere plain loops give the same sums. numba
keeps machine code apart by processor, so a cache on a shared disk is safe.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from longtail.kernels.basics import better_half
from longtail.kernels.compiled import compiled, prange
from longtail.kernels.products import as_float, dot, fetch_rows
from longtail.search.kernels.matrix import FLOAT, FLOATS, FUSED, INT16, INT32, INT64, INTEGERS, TileCode
from longtail.search.packed import LANES, NIBBLE_SHIFT, TOGETHER
from longtail.types import F32, I32, I64

# Bytes of one instruction; rows and queries of a tile; rows of a tile of a single query.
LANE_BYTES, TILE, COLUMN = 64, 4, 16
# Rows that stay in the second-level cache while all queries pass: 128 kB at 512 dimensions.
BLOCK = 256
LOWEST = np.float32(-3.0e38)  # what any score beats

# Rows of bytes, as they are or interleaved and filled up to whole blocks; and of each its scale, its offset and the sum
# of its numbers (times the scale), which takes back what queries were shifted by.
ByteRows: TypeAlias = tuple[NDArray[np.int8], F32, F32, F32]
# Queries as bytes, as many as fill whole tiles, or one; and of each its scale, what offsets are multiplied with, and
# what was added to its numbers, so that none is negative.
Rounded: TypeAlias = tuple[NDArray[np.uint8], F32, F32, F32]


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
def scan_bytes(table: ByteRows, rounded: Rounded, ids: I32, scores: F32, sizes: I64) -> None:
    """The best rows of rounded queries, in any order.

    ids, scores: (pieces, B, 2 keep), room for pools, which hold the `keep` best rows of each piece in the end (a heap
    of hundreds would cost more than the products); sizes: (pieces, B), zero at first.
    """
    rows, scales, offsets, totals = table
    queries, query_scales, lasts, shifts = rounded
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


# ---- bytes of interleaved rows ----

# Blocks that are multiplied at once, and blocks whose bits a word of 64 holds.
BLOCKS = 4


def _block_tile_of(high: int, wide: int) -> Any:
    """tile(...): what `plain_look` does, of `high` blocks of rows and `wide` queries."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _BlockTile(high, wide, context, builder, signature, arguments).write()
        return context.get_dummy_value()

    def tile(
        _: Any, rows: Any, block: Any, queries: Any, query: Any, by_query: Any, by_row: Any, out: Any, place: Any
    ) -> Any:
        return types.void(rows, types.int64, queries, types.int64, by_query, by_row, out, types.int64), code

    return intrinsic(tile)


class _BlockTile(TileCode):
    """Writes the machine code of one tile.

    by_query: (query_scales, lasts, shifts, thresholds).  by_row: (scales, offsets, totals).  out: (values, bits).
    """

    def __init__(self, high: int, wide: int, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        super().__init__(builder)
        self.high, self.wide = high, wide

        def array(kind: Any, value: Any) -> Any:
            return context.make_array(kind)(context, builder, value)

        def arrays(n: int) -> list[Any]:
            return [array(kind, builder.extract_value(arguments[n], i)) for i, kind in enumerate(signature.args[n])]

        self.rows, self.queries = array(signature.args[0], arguments[0]), array(signature.args[2], arguments[2])
        self.of_query, self.of_row, (self.values, self.bits) = arrays(4), arrays(5), arrays(6)
        self.block, self.query, self.place = arguments[1], arguments[3], arguments[7]

    def write(self) -> None:
        sums, builder = self._sums(), self.builder
        weights = [self._weights_of(q) for q in range(self.wide)]
        for r in range(self.high):
            row = builder.mul(builder.add(self.block, INT64(r)), INT64(LANES))
            scales, offsets, totals = (self.loaded(array.data, row, FLOATS) for array in self.of_row)
            for q, (scale, last, shift, threshold) in enumerate(weights):
                total = builder.sitofp(sums[self.high * q + r], FLOATS)
                product = builder.fmul(total, builder.fmul(scale, scales), flags=FUSED)
                shifted = builder.fmul(shift, totals, flags=FUSED)
                beside = builder.fsub(builder.fmul(last, offsets), shifted, flags=FUSED)
                value = builder.fadd(product, beside, flags=FUSED)
                block = builder.add(self.place, INT64(r))
                self.store(self.values, INT64(q), builder.mul(block, INT64(LANES)), value, FLOAT)
                beats = builder.bitcast(builder.fcmp_ordered(">", value, threshold), INT16)
                self.store(self.bits, INT64(q), block, beats, INT16)

    def _sums(self) -> list[Any]:
        builder = self.builder
        block_bytes = builder.extract_value(self.rows.shape, 1)
        steps, query_bytes = builder.udiv(block_bytes, INT64(LANE_BYTES)), builder.udiv(block_bytes, INT64(LANES))
        blocks = self.starts(self.rows, self.block, self.high, block_bytes)
        queries = self.starts(self.queries, self.query, self.wide, query_bytes)

        def step(number: Any, sums: list[Any]) -> list[Any]:
            rows = [self.loaded(start, builder.mul(number, INT64(LANE_BYTES)), INTEGERS) for start in blocks]
            numbers = [
                self.in_all_lanes(self.loaded(start, builder.mul(number, INT64(TOGETHER)), INT32), INTEGERS)
                for start in queries
            ]
            return [
                self.with_bytes(sums[self.high * q + r], numbers[q], rows[r])
                for q in range(self.wide)
                for r in range(self.high)
            ]

        return self.summed(steps, self.high * self.wide, INTEGERS, step)

    def _weights_of(self, q: int) -> list[Any]:
        """Queries come in whole tiles, what belongs to them does not: beyond the last it is that of the last."""
        builder = self.builder
        number = builder.add(self.query, INT64(q))
        last = builder.sub(builder.extract_value(self.of_query[0].shape, 0), INT64(1))
        number = builder.select(builder.icmp_signed("<", number, last), number, last)
        return [self.in_all_lanes(builder.load(builder.gep(array.data, [number])), FLOATS) for array in self.of_query]


_four_by_four, _one_by_four, _four_by_one, _one_by_one = (
    _block_tile_of(high, wide) for high, wide in ((BLOCKS, TILE), (1, TILE), (BLOCKS, 1), (1, 1))
)


@compiled()
def _fast_look(
    table: ByteRows,
    first: int,
    blocks: int,
    queries: Rounded,
    query: int,
    thresholds: F32,
    values: F32,
    bits: NDArray[np.uint16],
) -> None:
    rows, rounded = table[0], queries[0]
    by_query, by_row, out = (queries[1], queries[2], queries[3], thresholds), table[1:], (values, bits)
    alone = len(rounded) == 1
    tiled = blocks // BLOCKS * BLOCKS
    for b in range(0, tiled, BLOCKS):
        if alone:
            _four_by_one(rows, first + b, rounded, query, by_query, by_row, out, b)
        else:
            _four_by_four(rows, first + b, rounded, query, by_query, by_row, out, b)
    for b in range(tiled, blocks):
        if alone:
            _one_by_one(rows, first + b, rounded, query, by_query, by_row, out, b)
        else:
            _one_by_four(rows, first + b, rounded, query, by_query, by_row, out, b)


@compiled()
def plain_look(
    table: ByteRows,
    first: int,
    blocks: int,
    queries: Rounded,
    query: int,
    thresholds: F32,
    values: F32,
    bits: NDArray[np.uint16],
) -> None:
    """Values of the rows of `blocks` blocks from `first` on, and of the four queries from `query` on, or the only one.

    values[q, i]: the product of the bytes times the scales of both, less what was shifted (shift times the row's
    total), plus the row's offset times the query's `last`; bits[q, i // 16]: set where that beats the threshold.
    """
    rows, scales, offsets, totals = table
    rounded, query_scales, lasts, shifts = queries
    for q in range(1 if len(rounded) == 1 else TILE):
        known = min(query + q, len(query_scales) - 1)
        for i in range(blocks * LANES):
            row, total = first * LANES + i, np.int32(0)
            for d in range(rounded.shape[1]):
                place = d // TOGETHER * LANE_BYTES + row % LANES * TOGETHER + d % TOGETHER
                total = np.int32(total + np.int32(rows[row // LANES, place]) * np.int32(rounded[query + q, d]))
            product = np.float32(total) * (query_scales[known] * scales[row])
            values[q, i] = product + (lasts[known] * offsets[row] - shifts[known] * totals[row])
            before = bits[q, i // LANES] if i % LANES else np.uint16(0)
            bits[q, i // LANES] = before | np.uint16(int(values[q, i] > thresholds[known]) << (i % LANES))


look = _fast_look if available() else plain_look


def _lowest_of(typing_context: Any, bits: Any) -> Any:
    """lowest(bits): the number of the lowest bit that is set; there is one."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code


lowest: Any = intrinsic(_lowest_of)


# ---- rows as they are stored: float32, float16, int8 or, of words, int4 ----

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


@compiled(parallel=True, fastmath=True)
def bag_shares(
    starts: I64,
    columns: I32,
    values: F32,
    table: NDArray[Any],
    scales: F32,
    places: I32,
    directions: F32,
    shares: F32,
) -> None:
    """shares[e, c] = values[e] * table[columns[e]] . directions[b, c] for the entries e of bag b.

    table, scales, places: (V, D) stored; directions: (B, C, D); shares: (E, C).
    """
    for unsigned in prange(len(starts) - 1):
        bag = np.int64(unsigned)
        row = np.empty((1, directions.shape[2]), np.float32)
        for at in range(starts[bag], starts[bag + 1]):
            place = places[columns[at]] if len(places) else columns[at]
            row[:] = 0
            if place >= 0:
                add_row(table, place, values[at] * scales[place] if len(scales) else values[at], row, 0)
            for c in range(directions.shape[1]):
                total = np.float32(0.0)
                for d in range(directions.shape[2]):
                    total += row[0, d] * directions[bag, c, d]
                shares[at, c] = total


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
