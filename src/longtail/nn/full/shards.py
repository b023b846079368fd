"""Labels split over processes: each holds the rows of some labels; sums over all labels are added up between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shard:
    """Labels `first`..`first + count` of `labels`; `group` joins the processes that hold the others (None: the
    default group).

    Every process gets the same documents, and targets with label numbers of the whole.
    """

    first: int
    count: int
    labels: int
    group: Any = None

    @staticmethod
    def even(labels: int, rank: int, processes: int, group: Any = None) -> Shard:
        """The part of process `rank` when labels are split evenly."""
        first, end = (labels * r // processes for r in (rank, rank + 1))
        return Shard(first, end - first, labels, group)

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum of `tensor` over all processes, in place."""
        torch.distributed.all_reduce(tensor, group=self.group)
        return tensor

    def log_sum_exp(self, tensor: Tensor) -> Tensor:
        """log of the sum of exp(tensor) over all processes."""
        largest = tensor.clone()
        torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=self.group)
        largest.clamp_(min=torch.finfo(tensor.dtype).min)  # where nobody has anything, -inf - -inf would be no number
        return self.summed((tensor - largest).exp()).log() + largest
