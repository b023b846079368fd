"""Slopes of the loss at a block of scores: in torch, which is the oracle, and by Triton kernels."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from longtail.nn.full.pairs import Pairs
from longtail.nn.full.tables import ReadTable, SplitTable

# Beyond this a sum over all labels minus the positives says nothing about the negatives any more.
_SMALLEST_SHARE = 1e-6


class Slopes(Protocol):
    """x: (documents or more, D) and rows: (labels or more, D), as products read them; what is more is zero.

    slopes: (len(x), len(rows)), overwritten. Beyond `documents` and `labels` they are any finite numbers: there they
    are multiplied by zeros, or give the gradient of rows that do not exist.
    """

    def pair_scores(self, x: Tensor, table: ReadTable, pairs: Pairs) -> Tensor:
        """(P,) scores of the pairs; anything for pairs of another shard."""
        ...

    def bce(self, x: Tensor, rows: Tensor, slopes: Tensor, documents: int, labels: int) -> Tensor:
        """Slopes as if every pair were a negative; the sum of the losses."""
        ...

    def softmax(self, x: Tensor, rows: Tensor, slopes: Tensor, shift_B: Tensor, scale_B: Tensor) -> None:
        """scale * exp(score - shift)."""
        ...

    def log_sum_exp(
        self, x: Tensor, rows: Tensor, scratch: Tensor, documents: int, start: int, labels: int, pairs: Pairs
    ) -> Tensor:
        """(documents,) of a block's scores, with or without those of the pairs."""
        ...

    def without_pairs(self, total_B: Tensor, pairs: Pairs, scores_P: Tensor) -> Tensor:
        """`total` of all blocks, now without the pairs."""
        ...

    def put(self, slopes: Tensor, pairs: Pairs, values_P: Tensor, start: int, labels: int) -> None:
        """Overwrite the slopes of pairs whose label is among `labels` from `start` on."""
        ...


class TorchSlopes:
    def __init__(self, compute: torch.dtype) -> None:
        self.compute = compute

    def pair_scores(self, x: Tensor, table: ReadTable, pairs: Pairs) -> Tensor:
        rows = table.picked(pairs.ids.clamp(min=0), self.compute)
        wide = torch.promote_types(self.compute, torch.float32)
        return (x[pairs.owners].to(wide) * rows.to(wide)).sum(1)

    def bce(self, x: Tensor, rows: Tensor, slopes: Tensor, documents: int, labels: int) -> Tensor:
        torch.mm(x, rows.T, out=slopes)
        wide = torch.promote_types(self.compute, torch.float32)
        loss = nn.functional.softplus(slopes[:documents, :labels]).sum(dtype=wide)
        slopes.sigmoid_()
        return loss

    def softmax(self, x: Tensor, rows: Tensor, slopes: Tensor, shift_B: Tensor, scale_B: Tensor) -> None:
        torch.mm(x, rows.T, out=slopes)
        # Positives may lie above the sum over negatives; they are overwritten, but must not overflow before.
        real = slopes[: len(shift_B)]
        real.copy_((real - shift_B[:, None]).clamp_(max=60).exp_().mul_(scale_B[:, None]))

    def log_sum_exp(
        self, x: Tensor, rows: Tensor, scratch: Tensor, documents: int, start: int, labels: int, pairs: Pairs
    ) -> Tensor:
        """Without the pairs."""
        torch.mm(x, rows.T, out=scratch)
        self.put(scratch, pairs, torch.full_like(pairs.values, -torch.inf), start, labels)
        return torch.logsumexp(scratch[:documents, :labels].to(pairs.values.dtype), dim=1)

    def without_pairs(self, total_B: Tensor, pairs: Pairs, scores_P: Tensor) -> Tensor:
        return total_B

    def put(self, slopes: Tensor, pairs: Pairs, values_P: Tensor, start: int, labels: int) -> None:
        """Pairs of other blocks go to the number behind the block: shapes stay fixed, so a GPU is never asked for a
        count.
        """
        here = (pairs.ids >= start) & (pairs.ids < start + labels)
        place = torch.where(here, pairs.owners * slopes.shape[1] + pairs.ids - start, slopes.numel())
        slopes.as_strided((slopes.numel() + 1,), (1,)).scatter_(0, place, values_P.to(slopes.dtype))


class TritonSlopes:
    """fused: the product is part of the kernel; else cuBLAS makes it and a kernel turns scores into slopes."""

    def __init__(self, *, fused: bool) -> None:
        from longtail.nn.full import triton_kernels

        self.kernels, self.fused = triton_kernels, fused

    def pair_scores(self, x: Tensor, table: ReadTable, pairs: Pairs) -> Tensor:
        if isinstance(table, SplitTable):
            return self.kernels.pair_scores(x, table.high, pairs.owners, pairs.ids)
        picked = table.picked(pairs.ids.clamp(min=0), torch.bfloat16)
        return self.kernels.pair_scores(x, picked, pairs.owners, torch.arange(len(picked), device=x.device))

    def bce(self, x: Tensor, rows: Tensor, slopes: Tensor, documents: int, labels: int) -> Tensor:
        if self.fused:
            return self.kernels.bce_slopes(x, rows, slopes, documents, labels)
        torch.mm(x, rows.T, out=slopes)
        return self.kernels.bce_in_place(slopes, documents, labels)

    def softmax(self, x: Tensor, rows: Tensor, slopes: Tensor, shift_B: Tensor, scale_B: Tensor) -> None:
        self.kernels.softmax_slopes(x, rows, slopes, shift_B, scale_B)

    def log_sum_exp(
        self, x: Tensor, rows: Tensor, scratch: Tensor, documents: int, start: int, labels: int, pairs: Pairs
    ) -> Tensor:
        """With the pairs."""
        return self.kernels.log_sum_exp(x, rows, documents, labels)

    def without_pairs(self, total_B: Tensor, pairs: Pairs, scores_P: Tensor) -> Tensor:
        """By subtraction: a document whose positives have all but a millionth of the sum keeps a millionth for its
        negatives.
        """
        share = torch.where(pairs.ids >= 0, (scores_P - total_B[pairs.owners]).exp(), 0)
        return total_B + (1 - pairs.summed(share, len(total_B))).clamp_(min=_SMALLEST_SHARE).log()

    def put(self, slopes: Tensor, pairs: Pairs, values_P: Tensor, start: int, labels: int) -> None:
        self.kernels.put_pairs(slopes, pairs.owners, pairs.ids, values_P, start, labels)
