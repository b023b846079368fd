"""Adam for big tables of which a batch touches few rows (token embeddings, one-vs-all rows)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.nn.batches import Bags

# Entries of the dense (bags, rows) matrix up to which a product sums gradients by row.
_DENSE_ENTRIES = 1 << 28


def summed_by_row(bags: Bags, place: Tensor, rows: int, gradient_BD: Tensor) -> Tensor:
    """(U, D): for each of `rows` distinct rows the sum of weight * gradient over the bags that name it.

    place: (P,) which of the distinct rows each entry is. As a matrix product with the (B, U) weights: adding entry by entry
    would make a GPU wait wherever many bags share a frequent word.
    """
    weights, count = bags.weights.to(gradient_BD.dtype), len(bags)
    if count * rows > _DENSE_ENTRIES:
        return gradient_BD.new_zeros(rows, gradient_BD.shape[1]).index_add_(0, place, gradient_BD[bags.owners] * weights[:, None])
    spread_BU = gradient_BD.new_zeros(count * rows).index_add_(0, bags.owners * rows + place, weights).view(count, rows)
    return spread_BU.T @ gradient_BD


class AdamFactors(NamedTuple):
    """What the update of a step needs, in the order that kernels unpack."""

    keep_first: float
    add_first: float
    keep_second: float
    add_second: float
    rate: float
    spread: float
    epsilon: float

    @staticmethod
    def of(step: int, rate: float, betas: tuple[float, float], epsilon: float) -> AdamFactors:
        """Step t = 1, 2, ...: (beta1, 1 - beta1, beta2, 1 - beta2, rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t), epsilon)."""
        beta1, beta2 = betas
        return AdamFactors(beta1, 1 - beta1, beta2, 1 - beta2, rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step), epsilon)

    def array(self, dtype: Any) -> NDArray[Any]:
        return np.array(self, dtype=dtype)


class RowAdam:
    """Adam whose moments and updates exist only for the rows a step touches; bias correction counts all steps.

    On a touched row the first step equals dense Adam. Later steps differ on purpose: dense Adam would also decay moments
    of, and move, rows without gradient, at the cost of a pass over the whole table.

    table: (R, D) tensor, updated in place. `first` and `second` are its moments, `count` the steps so far; the three
    are the state to save. On a CPU compiled kernels do the work; elsewhere, and for `reference=True` (the oracle), torch.
    """

    def __init__(self, table: Tensor, *, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8, reference: bool = False) -> None:
        self.table = table.detach()
        self.betas, self.epsilon = betas, epsilon
        self.first = torch.zeros_like(self.table)
        self.second = torch.zeros_like(self.table)
        self.count = torch.zeros((), dtype=torch.int64)
        self.by_kernel = self.table.device.type == "cpu" and not reference
        self._slots = np.zeros(len(self.table), dtype=np.int32) if self.by_kernel else None
        self._marks: Tensor | None = None

    def state(self) -> dict[str, Tensor]:
        """Live tensors: what a checkpoint saves, and copies back into."""
        return {"first": self.first, "second": self.second, "count": self.count}

    @property
    def slots(self) -> NDArray[np.int32]:
        """Scratch for grouping by row."""
        assert self._slots is not None
        return self._slots

    def factors(self, rate: float) -> NDArray[Any]:
        """Begin a step: count it, and return its `AdamFactors`, of the table's type."""
        self.count += 1
        factors = AdamFactors.of(int(self.count), rate, self.betas, self.epsilon)
        return factors.array(self.first.numpy().dtype if self.by_kernel else np.float64)

    def step(self, bags: Bags, gradient_BD: Tensor, rate: float) -> None:
        """Rows named by the bags receive the sum of weight * gradient of their bag. A step without entries changes nothing but `count`."""
        if self.by_kernel:
            self._step_by_kernel(bags, gradient_BD, rate)
            return
        if bags.one_each:
            self.update_rows(bags.ids.long(), gradient_BD.to(self.table.dtype), rate)
            return
        if not len(bags.ids):
            self.factors(rate)
            return
        rows, place, slots = self.slotted_rows(bags.ids.long())
        gradient_UD = summed_by_row(bags, place, len(rows), gradient_BD.to(self.table.dtype))
        self.update_rows(rows, gradient_UD[slots], rate)

    def _step_by_kernel(self, bags: Bags, gradient_BD: Tensor, rate: float) -> None:
        from longtail.nn.row_kernels import adam_from_bags, grouped_by_row

        factors = self.factors(rate)
        groups = grouped_by_row(bags.ids.numpy(), self.slots)
        adam_from_bags(
            self.table.numpy(),
            self.first.numpy(),
            self.second.numpy(),
            groups.rows,
            groups.starts,
            groups.entries,
            groups.edges,
            bags.owners.numpy(),
            bags.weights.to(self.table.dtype).numpy(),
            gradient_BD.to(self.table.dtype).contiguous().numpy(),
            factors,
        )

    def named_rows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The different rows that `ids` (int64) name, ascending, and for every id the place of its row among them."""
        counted = self._counted(ids)
        return self._marks_of().nonzero()[:, 0], counted[ids]

    def slotted_rows(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`named_rows` in as many slots as there are `ids` (P,), the slots beyond the last row repeating it; for every id the slot of
        its row; and for every slot the first one of its row.

        How many rows there are stays on the GPU: to ask would stop it in every step.
        """
        counted = self._counted(ids)
        place = counted[ids]
        slots = torch.arange(len(ids), device=ids.device).minimum(counted[-1])
        return torch.zeros_like(ids).scatter_(0, place, ids)[slots], place, slots

    def _counted(self, ids: Tensor) -> Tensor:
        """(R,): for a row that is named its place among the named ones. No sort of the ids, which are many more than the rows they name."""
        marks = self._marks_of().zero_().index_fill_(0, ids.reshape(-1), 1)
        return marks.cumsum(0) - 1

    def _marks_of(self) -> Tensor:
        if self._marks is None:
            self._marks = torch.zeros(len(self.table), dtype=torch.int64, device=self.table.device)
        return self._marks

    @torch.no_grad()
    def update_rows(self, rows: Tensor, gradient_UD: Tensor, rate: float) -> None:
        """A step on `rows` (U,) int64 with their gradients (U, D). On a CPU, by kernel, rows must differ; else a row that occurs
        twice must have the same gradient, which then counts once."""
        if self.by_kernel:
            from longtail.nn.row_kernels import adam_rows

            gradient = gradient_UD.to(self.table.dtype).contiguous().numpy()
            adam_rows(self.table.numpy(), self.first.numpy(), self.second.numpy(), rows.numpy(), gradient, self.factors(rate))
            return
        keep_first, add_first, keep_second, add_second, corrected, spread, epsilon = self.factors(rate).tolist()
        first = self.first[rows].mul_(keep_first).add_(gradient_UD, alpha=add_first)
        second = self.second[rows].mul_(keep_second).addcmul_(gradient_UD, gradient_UD, value=add_second)
        self.first.index_copy_(0, rows, first)
        self.second.index_copy_(0, rows, second)
        self.table.index_copy_(0, rows, self.table[rows].addcdiv_(first, second.sqrt_().mul_(spread).add_(epsilon), value=-corrected))
