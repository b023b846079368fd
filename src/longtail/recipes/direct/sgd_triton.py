"""Triton kernels for rows of two bytes a number (`sgd`): the product that makes their gradient ends in their update, so
that the gradient is never stored. Imported only where Triton is there.

The torch code of `sgd` is their oracle: random bits are the same, and sums differ by their order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from longtail.nn.triton_kernels import kernel

# How the product is cut: labels and documents of a tile, the widest piece of a row, warps, copies under way, and the
# most registers (0: as many as there are). Larger tiles have more numbers than registers.
TILE = {"labels": 128, "documents": 64, "columns": 128, "warps": 8, "stages": 4, "registers": 0}
_INTERPRETED = bool(triton.knobs.runtime.interpret)
_MOVE_BLOCK = 1024


@kernel
def _random_bits(number: tl.tensor, column: tl.tensor, key: tl.tensor) -> tl.tensor:
    """32 bits, as `sgd.random_bits` gives them; all arguments and the result are uint32."""
    bits = (number * 0x9E3779B1 + column) ^ key
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return bits ^ (bits >> 16)


@kernel
def _wide(bits: tl.tensor) -> tl.tensor:
    """bf16 numbers, given as their 16 bits, as float32."""
    return (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True)


@kernel
def _by_chance(value: tl.tensor, bits: tl.tensor) -> tl.tensor:
    """float32 as the 16 bits of one of the two bf16 numbers around it."""
    return ((value.to(tl.uint32, bitcast=True) + (bits & 0xFFFF)) >> 16).to(tl.uint16)


@kernel
def _learn_tile(
    gradient: tl.tensor,
    rows: tl.tensor,
    sums: tl.tensor,
    n: tl.tensor,
    c: tl.tensor,
    number: tl.tensor,
    pull: tl.tensor,
    trust: tl.tensor,
    scale: tl.tensor,
    key: tl.tensor,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    SUMS: tl.constexpr,
) -> None:
    """Rows of a tile learn from its gradient; gradients to texts are added up.  number: uint32."""
    column = c + tl.arange(0, COLUMNS)
    bits = _random_bits(number[:, None], column.to(tl.uint32)[None, :], key)
    reach = tl.where((column == WIDTH)[None, :], pull[:, None], (pull * trust)[:, None])
    rows.store([n, c], _by_chance(_wide(rows.load([n, c])) - reach * gradient, bits))
    if SUMS:
        added = tl.where((column < WIDTH)[None, :], scale * gradient, 0.0)  # biases have no text
        sums.store([n, c], _by_chance(_wide(sums.load([n, c])) + added, bits >> 16))


@kernel
def _learn_rows(
    slopes: tl.tensor,
    x: tl.tensor,
    x_rest: tl.tensor,
    rows: tl.tensor,
    rows_rest: tl.tensor,
    sums: tl.tensor,
    sums_rest: tl.tensor,
    trusts: tl.tensor,
    shares: tl.tensor,
    step: tl.tensor,
    key: tl.tensor,
    scale: tl.tensor,
    documents: tl.tensor,
    labels: tl.tensor,
    start: tl.tensor,
    rank: tl.tensor,
    processes: tl.tensor,
    COUNT: tl.constexpr,
    WIDTH: tl.constexpr,
    SUMS: tl.constexpr,
    PIECES: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    BC: tl.constexpr,
    REST: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """A tile of labels and a piece of their rows: BC columns; the first piece also has the REST behind all pieces.

    COUNT: rows of x.  WIDE: for the interpreter, which cannot multiply bf16.
    """
    tile = tl.program_id(0)
    n, c = (tile // PIECES) * BN, (tile % PIECES) * BC
    gradient = tl.zeros((BN, BC), dtype=tl.float32)
    label = n + tl.arange(0, BN)
    number = ((start + label) * processes + rank).to(tl.uint32)
    trust = tl.load(trusts + label, mask=label < labels, other=0.0)
    share = tl.load(shares + label, mask=label < labels, other=0.0)
    pull = tl.load(step) / (1.0 + documents * share)
    bits = key.to(tl.uint32, bitcast=True)
    if REST > 0 and c == 0:
        more = tl.zeros((BN, REST), dtype=tl.float32)
        for k in range(0, COUNT, BK):
            left, right, behind = slopes.load([k, n]).T, x.load([k, 0]), x_rest.load([k, PIECES * BC])
            if WIDE:
                left, right, behind = left.to(tl.float32), right.to(tl.float32), behind.to(tl.float32)
            gradient = tl.dot(left, right, gradient)
            more = tl.dot(left, behind, more)
        _learn_tile(more, rows_rest, sums_rest, n, PIECES * BC, number, pull, trust, scale, bits, REST, WIDTH, SUMS)
    else:
        for k in range(0, COUNT, BK):
            left, right = slopes.load([k, n]).T, x.load([k, c])
            if WIDE:
                left, right = left.to(tl.float32), right.to(tl.float32)
            gradient = tl.dot(left, right, gradient)
    _learn_tile(gradient, rows, sums, n, c, number, pull, trust, scale, bits, BC, WIDTH, SUMS)


@kernel
def _move_rows(
    rows: tl.tensor,
    texts: tl.tensor,
    new: tl.tensor,
    key: tl.tensor,
    size: tl.tensor,
    start: tl.tensor,
    rank: tl.tensor,
    processes: tl.tensor,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """texts[:, start...] = new, and rows move as far.  new: (L, COLUMNS) float32."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    label, column = place // COLUMNS, start + place % COLUMNS
    bits = _random_bits((label * processes + rank).to(tl.uint32), column.to(tl.uint32), key.to(tl.uint32, bitcast=True))
    found = tl.load(new + place, mask=inside, other=0.0).to(tl.uint32, bitcast=True)
    # To the nearest, ties to even: a text that does not change must not move its row.
    rounded = ((found + 0x7FFF + ((found >> 16) & 1)) >> 16).to(tl.uint16)
    was = _wide(tl.load(texts + label * WIDTH + column, mask=inside, other=0))
    tl.store(texts + label * WIDTH + column, rounded, mask=inside)
    at = label * STRIDE + column
    value = _wide(tl.load(rows + at, mask=inside, other=0)) + (_wide(rounded) - was)
    tl.store(rows + at, _by_chance(value, bits), mask=inside)


# ---- what `sgd` calls ----


def learn_rows(
    slopes: Tensor,
    x: Tensor,
    rows: Tensor,
    sums: Tensor | None,
    trusts: Tensor,
    shares: Tensor,
    step: Tensor,
    *,
    key: int,
    scale: float,
    documents: int,
    labels: int,
    start: int,
    rank: int,
    processes: int,
    width: int,
    tile: dict[str, int] | None = None,
) -> None:
    """Rows of a block learn: see `sgd.SgdTable.learn`.  rows, sums, trusts, shares: of the block; key: as int32."""
    shape = {**TILE, **(tile or {})}
    stride = rows.stride(0)
    wide = shape["columns"]
    pieces, rest = divmod(stride, wide)
    # What is left of a row goes beside its first piece, where that is little; else it is a piece of its own.
    if rest > wide // 2 or not pieces:
        pieces, rest = pieces + 1, 0
    beside = max(16, int(triton.next_power_of_2(rest))) if rest else 0
    deep, high = shape["documents"], shape["labels"]
    of_rows = rows[:labels].view(torch.uint16)
    of_sums = of_rows if sums is None else sums[:labels].view(torch.uint16)
    tiles = ((x, deep), (of_rows, high), (of_sums, high))
    operands = [TensorDescriptor.from_tensor(slopes, [deep, high])]
    for tensor, count in tiles:
        operands += [TensorDescriptor.from_tensor(tensor, [count, columns]) for columns in (wide, beside or 16)]
    _learn_rows[(triton.cdiv(labels, shape["labels"]) * pieces,)](
        *operands,
        trusts,
        shares,
        step,
        key,
        scale,
        documents,
        labels,
        start,
        rank,
        processes,
        COUNT=len(x),
        WIDTH=width,
        SUMS=sums is not None,
        PIECES=pieces,
        BN=shape["labels"],
        BK=shape["documents"],
        BC=wide,
        REST=beside,
        WIDE=_INTERPRETED,
        num_warps=shape["warps"],
        num_stages=shape["stages"],
        **_registers(shape["registers"]),
    )


def move_rows(rows: Tensor, texts: Tensor, new: Tensor, *, key: int, start: int, rank: int, processes: int) -> None:
    """See `sgd.SgdTable.move`."""
    _move_rows[(triton.cdiv(new.numel(), _MOVE_BLOCK),)](
        rows.view(torch.uint16),
        texts.view(torch.uint16),
        new,
        key,
        new.numel(),
        start,
        rank,
        processes,
        STRIDE=rows.stride(0),
        WIDTH=texts.stride(0),
        COLUMNS=new.shape[1],
        BLOCK=_MOVE_BLOCK,
        num_warps=4,
    )


def _registers(most: int) -> dict[str, Any]:
    return {"maxnreg": most} if most else {}
