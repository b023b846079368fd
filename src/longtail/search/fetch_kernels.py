"""Rows that will be needed soon, asked for in time: scattered over a table, each would otherwise be waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from longtail.compiled import compiled

_LINE = 64  # bytes that come together
_INSTRUCTION = "llvm.prefetch.p0"


def _fetch_of(typing_context: Any, rows: Any, place: Any) -> Any:
    """fetch(rows, place): ask for the 64 bytes around byte `place` of a table, and go on without waiting."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i32, byte_pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        data = builder.bitcast(context.make_array(signature.args[0])(context, builder, arguments[0]).data, byte_pointer)
        kind = ir.FunctionType(ir.VoidType(), [byte_pointer, i32, i32, i32])
        fetch = builder.module.globals.get(_INSTRUCTION) or ir.Function(builder.module, kind, _INSTRUCTION)
        builder.call(
            fetch, [builder.gep(data, [arguments[1]]), i32(0), i32(2), i32(1)]
        )  # to read, into the second cache, data
        return context.get_dummy_value()

    return types.void(rows, types.int64), code


_fetch: Any = intrinsic(_fetch_of)


@compiled()
def fetch_rows(rows: NDArray[Any], start: int, end: int) -> None:
    """Ask for the rows start..end of a contiguous table. Measured with cold caches: a bag of 80 words takes 60
    microseconds in place of 106.
    """
    width = rows.shape[1] * rows.itemsize
    for place in range(np.int64(start) * width, np.int64(end) * width, _LINE):
        _fetch(rows, place)


@compiled()
def fetch_entry(array: NDArray[Any], place: int) -> None:
    """Ask for what stands around one entry of a contiguous array."""
    _fetch(array, np.int64(place) * array.itemsize)
