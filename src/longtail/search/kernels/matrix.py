"""Products of many rows with one matrix in our own threads, and the residual map in the same pass.

BLAS has threads of its own, which would stand in the way of those of the kernels before and after. Eight rows meet 32
columns in registers. Sums of a row do not depend on the other rows. Any machine compiles it; AVX-512 is what it was
written for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.kernels.compiled import compiled, prange
from longtail.search.kernels.tiles import FLOAT, FLOATS, FUSED, INT64, TileCode
from longtail.search.matrix import LANES
from longtail.types import F32

# Rows and vectors of columns of a tile; columns come in multiples of COLUMNS.
ROWS, VECTORS = 8, 2
COLUMNS = LANES * VECTORS


class _Tile(TileCode):
    """out[row + q, column + i] = rows[row + q] . matrix[:, column + i] for q < wide.

    residual: rows[row + q, column + i] + max(that, 0).
    """

    def __init__(self, wide: int, residual: bool, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        super().__init__(builder)
        self.wide, self.residual = wide, residual
        self.matrix, self.rows, self.out = (
            context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 2, 4)
        )
        self.column, self.row = arguments[1], arguments[3]

    def write(self) -> None:
        builder = self.builder
        depth, columns = builder.extract_value(self.matrix.shape, 0), builder.extract_value(self.matrix.shape, 1)
        places = [builder.mul(builder.add(self.row, INT64(q)), depth) for q in range(self.wide)]

        def step(number: Any, sums: list[Any]) -> list[Any]:
            at = builder.add(builder.mul(number, columns), self.column)
            vectors = [self.loaded(self.matrix.data, builder.add(at, INT64(LANES * r)), FLOATS) for r in range(VECTORS)]
            found = []
            for q, place in enumerate(places):
                value = self.in_all_lanes(self.loaded(self.rows.data, builder.add(place, number), FLOAT), FLOATS)
                products = [builder.fmul(value, vector, flags=FUSED) for vector in vectors]
                found += [
                    builder.fadd(sums[VECTORS * q + r], product, flags=FUSED) for r, product in enumerate(products)
                ]
            return found

        sums = self.summed(depth, self.wide * VECTORS, FLOATS, step)
        for q, place in enumerate(places):
            for r in range(VECTORS):
                column, value = builder.add(self.column, INT64(LANES * r)), sums[VECTORS * q + r]
                if self.residual:
                    zeros = ir.Constant(FLOATS, [0.0] * LANES)
                    kept = builder.select(builder.fcmp_ordered(">", value, zeros), value, zeros)
                    value = builder.fadd(self.loaded(self.rows.data, builder.add(place, column), FLOATS), kept)
                self.store(self.out, builder.add(self.row, INT64(q)), column, value, FLOAT)


def _tile_of(wide: int, residual: bool) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Tile(wide, residual, context, builder, signature, arguments).write()
        return context.get_dummy_value()

    def tile(typing_context: Any, matrix: Any, column: Any, rows: Any, row: Any, out: Any) -> Any:
        return types.void(matrix, types.int64, rows, types.int64, out), code

    return intrinsic(tile)


_eight, _one, _eight_residual, _one_residual = (
    _tile_of(wide, residual) for residual in (False, True) for wide in (ROWS, 1)
)


@compiled(parallel=True)
def multiply(rows: F32, matrix: F32, out: F32, residual: bool, workers: int) -> None:
    """out (B, E) = rows (B, D) @ matrix (D, E), E a multiple of COLUMNS; residual: rows + max(that, 0), where E = D.

    Each worker takes its share of the rows.
    """
    for unsigned in prange(workers):
        worker = np.int64(unsigned)
        begin, end = worker * len(rows) // workers, (worker + 1) * len(rows) // workers
        tiled = begin + (end - begin) // ROWS * ROWS
        for column in range(0, matrix.shape[1], COLUMNS):
            for row in range(begin, tiled, ROWS):
                if residual:
                    _eight_residual(matrix, column, rows, row, out)
                else:
                    _eight(matrix, column, rows, row, out)
            for row in range(tiled, end):
                if residual:
                    _one_residual(matrix, column, rows, row, out)
                else:
                    _one(matrix, column, rows, row, out)
