"""Triton kernels of steps that are recorded (`recorded`): sums over bags, Adam of the words that bags name, rows of
labels made and taught. Imported only where Triton is there: on a GPU, or in its interpreter (tests).

All of them move much and compute little. So a program has one row, as many threads as the row has groups of 16 bytes,
and goes through the entries of a bag one after the other, four loads under way at a time: nothing is summed across
threads. Rows of labels have one number more than vectors, which no group of 16 bytes fits; there each thread takes
single numbers (`do_not_specialize`), the same ones of all tables.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from longtail.nn.triton_kernels import FactorsThere, adam_step, kernel

_MOST_COLUMNS, _REGISTERS = 1024, 64


@kernel
def _summed(
    table: tl.tensor,
    ids: tl.tensor,
    weights: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    along: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """The columns `along` of the sum of weight * row over entries begin..end."""
    inside = along < WIDTH
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    entry, last = begin, end - 1
    while entry < end:
        # Beyond the end the last row is read again, for nothing: loads that depend on no condition go out together.
        at_1, at_2, at_3 = tl.minimum(entry + 1, last), tl.minimum(entry + 2, last), tl.minimum(entry + 3, last)
        id_0, id_1 = tl.load(ids + entry).to(tl.int64), tl.load(ids + at_1).to(tl.int64)
        id_2, id_3 = tl.load(ids + at_2).to(tl.int64), tl.load(ids + at_3).to(tl.int64)
        weight_0, weight_1 = tl.load(weights + entry), tl.load(weights + at_1)
        weight_2, weight_3 = tl.load(weights + at_2), tl.load(weights + at_3)
        row_0 = tl.load(table + id_0 * WIDTH + along, mask=inside, other=0.0).to(tl.float32)
        row_1 = tl.load(table + id_1 * WIDTH + along, mask=inside, other=0.0).to(tl.float32)
        row_2 = tl.load(table + id_2 * WIDTH + along, mask=inside, other=0.0).to(tl.float32)
        row_3 = tl.load(table + id_3 * WIDTH + along, mask=inside, other=0.0).to(tl.float32)
        total += weight_0 * row_0
        total += tl.where(entry + 1 < end, weight_1, 0.0) * row_1
        total += tl.where(entry + 2 < end, weight_2, 0.0) * row_2
        total += tl.where(entry + 3 < end, weight_3, 0.0) * row_3
        entry += 4
    return total


@kernel
def _bag_sums(
    table: tl.tensor,
    starts: tl.tensor,
    ids: tl.tensor,
    weights: tl.tensor,
    sums: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    bag = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(starts + bag), tl.load(starts + bag + 1)
    for first in range(0, WIDTH, BLOCK):
        along = first + tl.arange(0, BLOCK)
        total = _summed(table, ids, weights, begin, end, along, WIDTH, BLOCK)
        tl.store(sums + bag * WIDTH + along, total, mask=along < WIDTH)


@kernel
def _learn_rows(
    table: tl.tensor,
    moments: tl.tensor,
    squares: tl.tensor,
    rows: tl.tensor,
    starts: tl.tensor,
    ids: tl.tensor,
    weights: tl.tensor,
    gradient: tl.tensor,
    count: tl.tensor,
    keep_first: tl.tensor,
    add_first: tl.tensor,
    keep_second: tl.tensor,
    add_second: tl.tensor,
    rate: tl.tensor,
    spread: tl.tensor,
    epsilon: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Adam on a row whose gradient is the sum of a bag; a row beyond the `count` of the table is none."""
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + place).to(tl.int64)
    rate, spread = tl.load(rate), tl.load(spread)
    if row < count:
        begin, end = tl.load(starts + place), tl.load(starts + place + 1)
        for first in range(0, WIDTH, BLOCK):
            along = first + tl.arange(0, BLOCK)
            inside = along < WIDTH
            at = row * WIDTH + along
            m = tl.load(moments + at, mask=inside, other=0.0)
            v = tl.load(squares + at, mask=inside, other=0.0)
            value = tl.load(table + at, mask=inside, other=0.0)
            g = _summed(gradient, ids, weights, begin, end, along, WIDTH, BLOCK)
            value, m, v = adam_step(
                value, m, v, g, keep_first, add_first, keep_second, add_second, rate, spread, epsilon
            )
            tl.store(moments + at, m, mask=inside)
            tl.store(squares + at, v, mask=inside)
            tl.store(table + at, value, mask=inside)


def _by_number(function: Any) -> Any:
    """A kernel in which each thread takes single numbers, and all tables have the same layout."""
    return triton.jit(function, do_not_specialize=["free_stride", "text_stride", "stride"])


@_by_number
def _compose(
    free: tl.tensor,
    trust: tl.tensor,
    text: tl.tensor,
    composed: tl.tensor,
    free_stride: tl.tensor,
    text_stride: tl.tensor,
    stride: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    TEXT: tl.constexpr,
) -> None:
    """composed = (text + trust * free, bias) in bf16."""
    row = tl.program_id(0).to(tl.int64)
    share = tl.load(trust + row)
    for first in range(0, WIDTH, BLOCK):
        along = first + tl.arange(0, BLOCK)
        inside = along < WIDTH
        value = tl.load(free + row * free_stride + along, mask=inside, other=0.0) * share
        if TEXT:
            value += tl.load(text + row * text_stride + along, mask=inside, other=0.0)
        tl.store(composed + row * stride + along, value.to(tl.bfloat16), mask=inside)
    tl.store(composed + row * stride + WIDTH, tl.load(free + row * free_stride + WIDTH).to(tl.bfloat16))


@_by_number
def _learn_composed(
    free: tl.tensor,
    moments: tl.tensor,
    squares: tl.tensor,
    gradient: tl.tensor,
    trust: tl.tensor,
    text_gradient: tl.tensor,
    free_stride: tl.tensor,
    text_stride: tl.tensor,
    stride: tl.tensor,
    scale: tl.tensor,
    keep_first: tl.tensor,
    add_first: tl.tensor,
    keep_second: tl.tensor,
    add_second: tl.tensor,
    rate: tl.tensor,
    spread: tl.tensor,
    epsilon: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    TEXT: tl.constexpr,
) -> None:
    """From the gradient to composed rows: it is added to that of texts, and times trust Adam's for free vectors."""
    row = tl.program_id(0).to(tl.int64)
    rate, spread = tl.load(rate), tl.load(spread)
    share = tl.load(trust + row)
    for first in range(0, WIDTH, BLOCK):
        along = first + tl.arange(0, BLOCK)
        inside = along < WIDTH
        g = tl.load(gradient + row * stride + along, mask=inside, other=0.0).to(tl.float32) * scale
        at = row * free_stride + along
        m = tl.load(moments + at, mask=inside, other=0.0)
        v = tl.load(squares + at, mask=inside, other=0.0)
        value = tl.load(free + at, mask=inside, other=0.0)
        if TEXT:
            of_text = text_gradient + row * text_stride + along
            tl.store(of_text, tl.load(of_text, mask=inside, other=0.0) + g, mask=inside)
        value, m, v = adam_step(
            value, m, v, g * share, keep_first, add_first, keep_second, add_second, rate, spread, epsilon
        )
        tl.store(moments + at, m, mask=inside)
        tl.store(squares + at, v, mask=inside)
        tl.store(free + at, value, mask=inside)
    bias = row * free_stride + WIDTH
    g = tl.load(gradient + row * stride + WIDTH).to(tl.float32) * scale
    value, m, v = adam_step(
        tl.load(free + bias),
        tl.load(moments + bias),
        tl.load(squares + bias),
        g,
        keep_first,
        add_first,
        keep_second,
        add_second,
        rate,
        spread,
        epsilon,
    )
    tl.store(moments + bias, m)
    tl.store(squares + bias, v)
    tl.store(free + bias, value)


# ---- what `recorded` calls ----


def bag_sums(table: Tensor, starts: Tensor, ids: Tensor, weights: Tensor, out: Tensor | None = None) -> Tensor:
    """(B, D) float32: of each bag the sum of weight * row of a table of float32 or bf16.  starts: (B + 1,); entries
    beyond the last are not read.
    """
    width = table.shape[1]
    sums = torch.empty(len(starts) - 1, width, device=table.device) if out is None else out
    _bag_sums[(len(sums),)](table.contiguous(), starts, ids, weights, sums, WIDTH=width, **_threads(table))
    return sums


def learn_rows(
    table: Tensor,
    first: Tensor,
    second: Tensor,
    rows: Tensor,
    bags: tuple[Tensor, Tensor, Tensor],
    gradient_BD: Tensor,
    factors: FactorsThere,
) -> None:
    """One Adam step, in place, on different `rows` (U,), with the sums of `bags` (starts, ids, weights) of rows of
    the gradient; numbers beyond the table name none.
    """
    width = table.shape[1]
    _learn_rows[(len(rows),)](
        table,
        first,
        second,
        rows,
        *bags,
        gradient_BD.contiguous(),
        len(table),
        *factors,
        WIDTH=width,
        **_threads(table),
    )


def compose(free: Tensor, trust: Tensor, text: Tensor | None, composed: Tensor) -> None:
    """Write (text + trust * free, bias) into the first columns of `composed`, bf16."""
    given = free if text is None else text
    _compose[(len(free),)](
        free,
        trust,
        given,
        composed,
        free.stride(0),
        given.stride(0),
        composed.stride(0),
        WIDTH=free.shape[1] - 1,
        TEXT=text is not None,
        **_single_numbers(free.shape[1] - 1),
    )


def learn_composed(
    tables: tuple[Tensor, Tensor, Tensor],
    gradient: Tensor,
    scale: float,
    trust: Tensor,
    text_gradient: Tensor | None,
    factors: FactorsThere,
) -> None:
    """tables: free vectors with their bias, and both moments, (L, D + 1).  gradient: at least as many rows and columns,
    times `scale`.
    """
    free, given = tables[0], tables[0] if text_gradient is None else text_gradient
    _learn_composed[(len(free),)](
        *tables,
        gradient,
        trust,
        given,
        free.stride(0),
        given.stride(0),
        gradient.stride(0),
        scale,
        *factors,
        WIDTH=free.shape[1] - 1,
        TEXT=text_gradient is not None,
        **_single_numbers(free.shape[1] - 1),
    )


def _threads(table: Tensor) -> dict[str, int]:
    """16 bytes for a thread, and registers for all loads that may be under way."""
    block = min(triton.next_power_of_2(table.shape[1]), _MOST_COLUMNS)
    return {"BLOCK": block, "num_warps": max(1, block * table.element_size() // 512), "maxnreg": _REGISTERS}


def _single_numbers(width: int) -> dict[str, int]:
    block = min(triton.next_power_of_2(width), _MOST_COLUMNS)
    return {"BLOCK": block, "num_warps": max(1, min(4, block // 64))}
