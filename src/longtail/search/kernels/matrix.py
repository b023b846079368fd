"""Products of many rows with one matrix in our own threads, with the residual map in the same pass; and the machine
code that tiles of products are made of: a few rows of two tables meet, and their products are summed up in registers.

BLAS has threads of its own, which would stand in the way of those of the kernels before and after. Eight rows meet 32
columns in registers. Sums of a row do not depend on the other rows. Any machine compiles it; AVX-512 is what it was
written for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.kernels.compiled import compiled, prange
from longtail.search.packed import LANES
from longtail.types import F32

INT16, INT32, INT64, FLOAT = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
INTEGERS, FLOATS = ir.VectorType(INT32, LANES), ir.VectorType(FLOAT, LANES)
# A product and what it is added to may be one instruction.
FUSED = ("contract",)
# Multiplies 64 pairs of bytes at once (AVX-512 VNNI). Asked for by name, as LLVM does not find it in a loop.
MULTIPLY_ADD = "llvm.x86.avx512.vpdpbusd.512"


class TileCode:
    """A builder of LLVM code with the few steps that tiles are made of."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def starts(self, array: Any, first: Any, count: int, size: Any) -> list[Any]:
        """Pointers to bytes: rows first, first + 1, ... of a table whose rows have `size` bytes."""
        data = self.builder.bitcast(array.data, ir.IntType(8).as_pointer())
        return [
            self.builder.gep(data, [self.builder.mul(self.builder.add(first, INT64(n)), size)]) for n in range(count)
        ]

    def loaded(self, data: Any, place: Any, kind: Any) -> Any:
        """A value of this kind, `place` elements of `data` on."""
        found = self.builder.load(self.builder.bitcast(self.builder.gep(data, [place]), kind.as_pointer()))
        found.align = 1
        return found

    def in_all_lanes(self, value: Any, kind: Any) -> Any:
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), value, INT32(0))
        return self.builder.shuffle_vector(first, first, ir.Constant(INTEGERS, [0] * LANES))

    def store(self, array: Any, row: Any, place: Any, value: Any, element: Any) -> None:
        """array[row, place ...] = value.  element: the kind of the array's numbers."""
        builder = self.builder
        data, width = builder.bitcast(array.data, element.as_pointer()), builder.extract_value(array.shape, 1)
        target = builder.gep(data, [builder.add(builder.mul(row, width), place)])
        builder.store(value, builder.bitcast(target, value.type.as_pointer())).align = 2

    def with_bytes(self, sums: Any, unsigned: Any, signed: Any) -> Any:
        """sums[i] + the products of the four unsigned and the four signed bytes of lane i."""
        kind, module = ir.FunctionType(INTEGERS, [INTEGERS] * 3), self.builder.module
        multiply_add = module.globals.get(MULTIPLY_ADD) or ir.Function(module, kind, MULTIPLY_ADD)
        return self.builder.call(multiply_add, [sums, unsigned, signed])

    def summed(self, steps: Any, count: int, kind: Any, step: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        """`count` sums that begin at zero, after `steps` (1 or more) times ``sums = step(number, sums)``."""
        builder = self.builder
        before, loop, after = builder.block, builder.append_basic_block("steps"), builder.append_basic_block("sums")
        builder.branch(loop)
        builder.position_at_end(loop)
        number, sums = builder.phi(INT64), [builder.phi(kind) for _ in range(count)]
        added = step(number, sums)
        following = builder.add(number, INT64(1))
        number.add_incoming(INT64(0), before)
        number.add_incoming(following, loop)
        for total, value in zip(sums, added, strict=True):
            total.add_incoming(ir.Constant(kind, [0] * LANES), before)
            total.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)
        builder.position_at_end(after)
        return added


# Rows and vectors of columns of a tile; columns come in multiples of COLUMNS.
ROWS, VECTORS = 8, 2
COLUMNS = LANES * VECTORS


class _MatrixTile(TileCode):
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
        _MatrixTile(wide, residual, context, builder, signature, arguments).write()
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
