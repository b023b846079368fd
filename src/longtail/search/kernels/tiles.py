"""Machine code for tiles of products: a few rows of two tables meet, and their products are summed up in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from longtail.search.matrix import LANES

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
