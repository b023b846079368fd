"""Row-wise Adam as a Triton kernel. Imported only where Triton is there: on a GPU, or in its interpreter (tests).

torch needs 14 kernels, three of which scatter rows; on wordnet-related they took half of a step's time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from longtail.nn.rows import AdamFactors

_MOST_COLUMNS = 1024


def _kernel(function: Callable[..., Any]) -> Any:
    return triton.jit(function)


@_kernel
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
            m = keep_first * tl.load(first + at, mask=inside, other=0.0) + add_first * g
            v = keep_second * tl.load(second + at, mask=inside, other=0.0) + add_second * g * g
            value = tl.load(table + at, mask=inside, other=0.0) - rate * m / (tl.sqrt(v) * spread + epsilon)
            tl.store(first + at, m, mask=inside)
            tl.store(second + at, v, mask=inside)
            tl.store(table + at, value, mask=inside)


def adam_rows(
    table: Tensor, first: Tensor, second: Tensor, rows: Tensor, gradient_UD: Tensor, factors: AdamFactors
) -> None:
    """One Adam step, in place, on `rows` (U,) int64 of contiguous float32 tables; of equal entries, which must be
    neighbours, the first counts.
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
