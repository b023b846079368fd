"""A big table of vectors of which a batch reads few rows, with gradients that never become a tensor of the table's
size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import Bags


class RowTable(nn.Module):
    """(R, D) vectors, read as weighted sums of rows (`forward`).

    A backward pass leaves behind *which bags* were read and the gradient of each sum; `RowAdam.step` takes exactly
    that. There is no padding row: what is not there is an empty bag, so padding can never be updated.
    """

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(vectors)
        self._pending: list[tuple[Bags, Tensor]] = []

    @classmethod
    def random(cls, rows: int, width: int, rng: np.random.Generator, device: torch.device | str = "cpu") -> RowTable:
        """Entries from N(0, 1 / D): rows of about unit length. A GPU draws its own: a large table takes a CPU
        seconds.
        """
        if torch.device(device).type == "cpu":
            return cls(torch.from_numpy(rng.standard_normal((rows, width), dtype=np.float32)).div_(width**0.5))
        generator = torch.Generator(device).manual_seed(int(rng.integers(2**63 - 1)))
        return cls(torch.randn(rows, width, generator=generator, device=device).div_(width**0.5))

    def forward(self, bags: Bags) -> Tensor:
        """(B, D): the weighted sum of each bag."""
        return cast(Callable[..., Tensor], _BagSum.apply)(self.weight, self, bags)

    def take_gradient(self) -> tuple[Bags, Tensor] | None:
        """What backward passes left since the last call: all bags and the (B, D) gradients of their sums; None if
        nothing.
        """
        if not self._pending:
            return None
        bags, gradients = zip(*self._pending, strict=True)
        self._pending.clear()
        return Bags.joined(list(bags)), gradients[0] if len(gradients) == 1 else torch.cat(gradients)

    def leave_gradient(self, bags: Bags, gradient_BD: Tensor) -> None:
        self._pending.append((bags, gradient_BD))


class _BagSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, table: RowTable, bags: Bags) -> Tensor:
        ctx.table, ctx.bags = table, bags
        return bag_sums(weight, bags)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.table.leave_gradient(ctx.bags, gradients[0])
        return None, None, None


def bag_sums(table: Tensor, bags: Bags) -> Tensor:
    """(B, D): weighted sums of rows. Measured on a CPU: 3x faster than a numba loop, 4x than a sparse product (60
    features, D = 300).
    """
    if bags.one_each:
        return table.index_select(0, bags.ids)
    weights = bags.weights.to(table.dtype)
    return nn.functional.embedding_bag(
        bags.ids, table, bags.starts.int(), mode="sum", per_sample_weights=weights, include_last_offset=True
    )
