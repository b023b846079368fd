"""Products of a few queries with every row of a table, and the best k on the way: one pass over the rows, nothing
stored between.

The floor is the time to read the rows once. Rows are float32, float16 (given as their uint16 bits: numba has no
float16 on a CPU) or int8; an int8 row has a scale. fastmath lets the compiler keep several partial sums; their order
is fixed at compile time. Rows that will be needed soon are asked for in time: scattered over a table, each would
otherwise be waited for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from longtail.kernels.basics import offer
from longtail.kernels.compiled import compiled, prange
from longtail.types import F32, I32, I64, BoolArray

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
    """Ask for the rows start..end of a contiguous table."""
    width = rows.shape[1] * rows.itemsize
    for place in range(np.int64(start) * width, np.int64(end) * width, _LINE):
        _fetch(rows, place)


@compiled()
def fetch_entry(array: NDArray[Any], place: int) -> None:
    """Ask for what stands around one entry of a contiguous array."""
    _fetch(array, np.int64(place) * array.itemsize)


# Where the sign and the other bits of a float16 stand in a float32, and what its exponent lacks there.
_HALF_BITS, _HALF_RANGE = np.int32(-0x70002000), np.float32(2.0**112)


def as_float(value: Any) -> Any:
    """A stored number as float32; of a float16 its bits are given. Only kernels can call it."""
    raise NotImplementedError


@overload(as_float, inline="always")
def _as_float(value: Any) -> Any:
    def of_half(value: Any) -> Any:
        return np.int32((np.int32(np.int16(value)) << 13) & _HALF_BITS).view(np.float32) * _HALF_RANGE

    def of_other(value: Any) -> Any:
        return np.float32(value)

    if value == types.uint8:
        raise TypingError("tables of 4 bits are for words alone")
    return of_half if value == types.uint16 else of_other


@compiled(fastmath=True)
def dot(values: NDArray[Any], row: Any, queries: F32, query: Any) -> np.float32:
    """values[row] . queries[query]"""
    total = np.float32(0.0)
    for d in range(queries.shape[1]):
        total += as_float(values[row, d]) * queries[query, d]
    return total


@compiled()
def product(values: NDArray[Any], scales: F32, offsets: F32, row: Any, queries: F32, lasts: F32, query: Any) -> Any:
    """A row's product with a query, with its scale and offset where there are some; see `scan`."""
    value = np.float32(dot(values, row, queries, query))
    if len(scales):
        value *= scales[row]
    return value + offsets[row] * lasts[query] if len(offsets) else value


@compiled(parallel=True)
def scan(
    values: NDArray[Any], scales: F32, offsets: F32, queries: F32, lasts: F32, ids: I32, scores: F32, sizes: I64
) -> None:
    """The best k rows of each query, as heaps per piece of the table: ids, scores (pieces, B, k); sizes (pieces, B),
    zero at first.

    values: (n, D).  scales: (n,), or none.  queries: (B, D).  offsets: (n,), times lasts (B,) they are added to
        products; or none.
    """
    pieces, n, k = ids.shape[0], len(values), ids.shape[2]
    step = (n + pieces - 1) // pieces
    for unsigned in prange(pieces):
        piece = np.int64(unsigned)
        for row in range(piece * step, min(n, (piece + 1) * step)):
            for query in range(len(queries)):
                value = product(values, scales, offsets, row, queries, lasts, query)
                # An equal one comes later, has a higher number and stays out.
                if sizes[piece, query] < k or value > scores[piece, query, 0]:
                    sizes[piece, query] = offer(
                        ids[piece, query], scores[piece, query], sizes[piece, query], row, value
                    )


@compiled()
def gather(piece_ids: I32, piece_scores: F32, piece_sizes: I64, ids: I32, scores: F32, sizes: I64) -> None:
    """Heaps of the pieces (pieces, B, k) as one heap per query (B, k)."""
    for query in range(len(ids)):
        size = sizes[query]
        for piece in range(len(piece_ids)):
            for place in range(piece_sizes[piece, query]):
                size = offer(
                    ids[query], scores[query], size, piece_ids[piece, query, place], piece_scores[piece, query, place]
                )
        sizes[query] = size


@compiled(parallel=True)
def choose_among(
    values: NDArray[Any],
    scales: F32,
    offsets: F32,
    queries: F32,
    lasts: F32,
    near_ids: I32,
    near_scores: F32,
    near_sizes: I64,
    safety: float,
    ids: I32,
    scores: F32,
    sizes: I64,
    doubtful: BoolArray,
) -> None:
    """Of heaps of candidates (B, m), found by scores that are nearly right, the best k by their products, as heaps
    (B, k).

    A query is doubtful if a row that is no candidate might belong to the best: if its nearly right score, at most
    that of the worst candidate, comes as near to the worst answer as `safety` times the largest error among the
    candidates, or nearer. (Equal ones count: which of them are candidates is left open, and the answer is the one of
    the lowest number.)
    """
    n, m, k = len(values), near_ids.shape[1], ids.shape[1]
    for unsigned in prange(len(queries)):
        query = np.int64(unsigned)
        size, largest_error = 0, np.float32(0.0)
        for place in range(near_sizes[query]):
            row = near_ids[query, place]
            value = product(values, scales, offsets, row, queries, lasts, query)
            largest_error = max(largest_error, abs(value - near_scores[query, place]))
            size = offer(ids[query], scores[query], size, row, value)
        sizes[query] = size
        doubtful[query] = m < n and (size < k or near_scores[query, 0] + safety * largest_error >= scores[query, 0])
