"""Adam as Triton kernels compute it, and row-wise Adam. Imported only where Triton is there: on a GPU, or in its
interpreter (tests).

By torch a row-wise step takes 14 kernels, three of which scatter rows.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from longtail.nn.row_tables import AdamFactors

_MOST_COLUMNS = 1024
# Sizes that differ from batch to batch: a kernel compiled for one must serve all.
_CHANGING = {"documents", "labels", "count", "start", "size", "position", "seed"}


def kernel(function: Callable[..., Any]) -> Any:
    return triton.jit(function, do_not_specialize=sorted(_CHANGING & set(signature(function).parameters)))


@kernel
def adam_step(
    value: tl.tensor,
    m: tl.tensor,
    v: tl.tensor,
    g: tl.tensor,
    keep_first: tl.tensor,
    add_first: tl.tensor,
    keep_second: tl.tensor,
    add_second: tl.tensor,
    rate: tl.tensor,
    spread: tl.tensor,
    epsilon: tl.tensor,
) -> tl.tensor:
    """(values, first moments, second moments) after a step with the gradient g; `AdamFactors` come in their order."""
    m = keep_first * m + add_first * g
    v = keep_second * v + add_second * g * g
    return value - rate * m / (tl.sqrt(v) * spread + epsilon), m, v


@kernel
def _adam_rows(
    table: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    rows: tl.tensor,
    gradient: tl.tensor,
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
    """One program per entry of `rows`; one that repeats the entry before it has nothing to do."""
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + place)
    if row != tl.load(rows + place - 1, mask=place > 0, other=-1):
        for start in range(0, WIDTH, BLOCK):
            along = start + tl.arange(0, BLOCK)
            inside = along < WIDTH
            at = row * WIDTH + along
            g = tl.load(gradient + place * WIDTH + along, mask=inside, other=0.0)
            m, v = tl.load(first + at, mask=inside, other=0.0), tl.load(second + at, mask=inside, other=0.0)
            value = tl.load(table + at, mask=inside, other=0.0)
            value, m, v = adam_step(
                value, m, v, g, keep_first, add_first, keep_second, add_second, rate, spread, epsilon
            )
            tl.store(first + at, m, mask=inside)
            tl.store(second + at, v, mask=inside)
            tl.store(table + at, value, mask=inside)


def adam_rows(
    table: Tensor, first: Tensor, second: Tensor, rows: Tensor, gradient_UD: Tensor, factors: AdamFactors
) -> None:
    """One Adam step, in place, on `rows` (U,) int64 of contiguous float32 tables.

    Of equal entries, which must be neighbours, the first counts.
    """
    width = table.shape[1]
    if len(rows):
        _adam_rows[(len(rows),)](
            table,
            first,
            second,
            rows,
            gradient_UD.contiguous(),
            *factors,
            WIDTH=width,
            BLOCK=min(triton.next_power_of_2(width), _MOST_COLUMNS),
            num_warps=4,
        )
