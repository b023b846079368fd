"""The (document, label) pairs of a batch that are not plain negatives, and what they add to the loss and its slopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from longtail.nn.batches import Bags

LossKind = Literal["bce", "softmax"]
MeanOver = Literal["entries", "documents"]


@dataclass(frozen=True)
class Shard:
    """Labels `first`..`first + count` of `labels`, where labels are split over processes.

    Every process gets the same documents, and targets with label numbers of the whole; sums over all labels are added
    up between processes.  group: the processes that hold the other labels; None for the default group.
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


@dataclass(frozen=True)
class Pairs:
    """Positives and masked pairs of B documents.

    owners: (P,) int64, the document.
    ids: (P,) int64, the row of the label in this shard, -1 where another shard holds it.
    values: (P,) target, 1 or softer.  weights: (P,) how much the positive part of the loss counts.
    masked: (P,) bool, neither positive nor negative.
    """

    owners: Tensor
    ids: Tensor
    values: Tensor
    weights: Tensor
    masked: Tensor

    @staticmethod
    def of(
        targets: Bags, masked: Bags | None, label_weights: Tensor | None, shard: Shard | None, dtype: torch.dtype
    ) -> Pairs:
        """No pair may occur twice.  label_weights: (L,) of all labels, or None for 1."""
        owners, ids, values = targets.owners, targets.ids.long(), targets.weights.to(dtype)
        hidden = torch.zeros_like(ids, dtype=torch.bool)
        if masked is not None and len(masked.ids):
            owners, ids = torch.cat([owners, masked.owners]), torch.cat([ids, masked.ids.long()])
            values = nn.functional.pad(values, (0, len(masked.ids)))
            hidden = nn.functional.pad(hidden, (0, len(masked.ids)), value=True)
        weights = torch.ones_like(values) if label_weights is None else label_weights.to(dtype)[ids]
        if shard is not None:
            ids = torch.where((ids >= shard.first) & (ids < shard.first + shard.count), ids - shard.first, -1)
        return Pairs(owners, ids, values, weights, hidden)

    @staticmethod
    def marked(bags: Bags, label_weights: Tensor | None) -> Pairs:
        """Targets and masked pairs of each document in one bag, a negative weight marking those that are masked."""
        ids = bags.ids.long()
        weights = torch.ones_like(bags.weights) if label_weights is None else label_weights[ids]
        return Pairs(bags.owners, ids, bags.weights.clamp(min=0), weights, bags.weights < 0)

    def bce(self, scores_P: Tensor) -> tuple[Tensor, Tensor]:
        """(loss beyond that of a negative, slope) per pair for w t softplus(-s) + (1 - t) softplus(s).

        A masked pair's loss beyond that of a negative takes back the loss of the negative; its slope is 0.
        """
        as_negative, chance = nn.functional.softplus(scores_P), scores_P.sigmoid()
        extra = self.values * ((self.weights - 1) * as_negative - self.weights * scores_P)
        slope = chance + self.values * ((self.weights - 1) * chance - self.weights)
        here = self.ids >= 0
        return torch.where(here, torch.where(self.masked, -as_negative, extra), 0), torch.where(self.masked, 0, slope)

    def softmax(self, scores_P: Tensor, negatives_B: Tensor) -> tuple[Tensor, Tensor]:
        """(loss, slope) per pair of w t softplus(n - s), n being the log-sum-exp over the document's negatives.

        A positive competes with all negatives and with no other positive. Paper: DEXML, decoupled softmax.
        """
        distance = negatives_B[self.owners] - scores_P
        share = torch.where((self.ids >= 0) & ~self.masked, self.values * self.weights, 0)
        return share * nn.functional.softplus(distance), -share * distance.sigmoid()

    def summed(self, values_P: Tensor, documents: int) -> Tensor:
        """(B,): the sum over the pairs of each document."""
        return values_P.new_zeros(documents).index_add_(0, self.owners, values_P)
