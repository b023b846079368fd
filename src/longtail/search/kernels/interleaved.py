"""Products of byte rows that were interleaved for it (`longtail.search.matrix`), their values, and which of them beat a
threshold, in one go.

A row as it is leaves its sum spread over sixteen lanes; adding these up takes longer than the products where rows are
short. Of interleaved rows each lane is a row, and its sum is there when the last numbers are. Four blocks of rows meet
four queries, or a single one, whose sums become values while they are in registers: a bit per row says what beats a
query's threshold, so rows that nobody wants cost nothing after that. Queries are bytes, too
(`longtail.search.packed.as_bytes`).

Elsewhere than on processors with AVX-512 VNNI plain loops do the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled
from longtail.search.kernels.bytes import LANE_BYTES, TILE, available
from longtail.search.kernels.tiles import FLOAT, FLOATS, FUSED, INT16, INT32, INT64, INTEGERS, TileCode
from longtail.search.matrix import LANES, TOGETHER
from longtail.types import F32

# Blocks that are multiplied at once, and blocks whose bits a word of 64 holds.
BLOCKS = 4


def _tile_of(high: int, wide: int) -> Any:
    """tile(...): what `plain_look` does, of `high` blocks of rows and `wide` queries."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Tile(high, wide, context, builder, signature, arguments).write()
        return context.get_dummy_value()

    def tile(
        _: Any, rows: Any, block: Any, queries: Any, query: Any, by_query: Any, by_row: Any, out: Any, place: Any
    ) -> Any:
        return types.void(rows, types.int64, queries, types.int64, by_query, by_row, out, types.int64), code

    return intrinsic(tile)


class _Tile(TileCode):
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
    _tile_of(high, wide) for high, wide in ((BLOCKS, TILE), (1, TILE), (BLOCKS, 1), (1, 1))
)


@compiled()
def _fast_look(
    rows: NDArray[np.int8],
    first: int,
    blocks: int,
    queries: NDArray[np.uint8],
    query: int,
    query_scales: F32,
    lasts: F32,
    shifts: F32,
    thresholds: F32,
    scales: F32,
    offsets: F32,
    totals: F32,
    values: F32,
    bits: NDArray[np.uint16],
) -> None:
    by_query, by_row, out = (query_scales, lasts, shifts, thresholds), (scales, offsets, totals), (values, bits)
    alone = len(queries) == 1
    tiled = blocks // BLOCKS * BLOCKS
    for b in range(0, tiled, BLOCKS):
        if alone:
            _four_by_one(rows, first + b, queries, query, by_query, by_row, out, b)
        else:
            _four_by_four(rows, first + b, queries, query, by_query, by_row, out, b)
    for b in range(tiled, blocks):
        if alone:
            _one_by_one(rows, first + b, queries, query, by_query, by_row, out, b)
        else:
            _one_by_four(rows, first + b, queries, query, by_query, by_row, out, b)


@compiled()
def plain_look(
    rows: NDArray[np.int8],
    first: int,
    blocks: int,
    queries: NDArray[np.uint8],
    query: int,
    query_scales: F32,
    lasts: F32,
    shifts: F32,
    thresholds: F32,
    scales: F32,
    offsets: F32,
    totals: F32,
    values: F32,
    bits: NDArray[np.uint16],
) -> None:
    """Values of the rows of `blocks` blocks from `first` on, and of the four queries from `query` on, or the only one.

    values[q, i]: the product of the bytes times the scales of both, less what was shifted (shift times the row's
    total), plus the row's offset times the query's `last`; bits[q, i // 16]: set where that beats the threshold.
    rows: interleaved; scales, offsets, totals: as many as rows with those that fill the last block.
    """
    for q in range(1 if len(queries) == 1 else TILE):
        known = min(query + q, len(query_scales) - 1)
        for i in range(blocks * LANES):
            row, total = first * LANES + i, np.int32(0)
            for d in range(queries.shape[1]):
                place = d // TOGETHER * LANE_BYTES + row % LANES * TOGETHER + d % TOGETHER
                total = np.int32(total + np.int32(rows[row // LANES, place]) * np.int32(queries[query + q, d]))
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
