"""Classifier rows that are trained against all labels in every step, and the same loss for rows that are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from longtail.nn.batches import Bags
from longtail.nn.full.pairs import LossKind, MeanOver, Pairs, Shard
from longtail.nn.full.storage import FixedTable, Float32Table, Precision, SplitTable
from longtail.nn.full.sweep import Sweep, Variant
from longtail.nn.row_tables import AdamFactors


class FullRows:
    """(L, D) classifier rows with their Adam. A step scores a batch against all L labels; (B, L) scores never exist.

    rows: (L, D) float32, with `bias` (L, D + 1) as in `OneVsAll`: the last column is the weight of a feature that is
        always 1.
    precision: how rows and moments are stored. "float32": `rows` is updated in place. "bfloat16": 8 bytes per number in
        all, rows as exact as float32, moments in bf16 (see `storage`); `rows` is copied.
    compute: type of the products; by default bf16 on a GPU and float32 on a CPU.
    weights: (labels,) factor of the positive part of the loss of every label (inverse propensities), or None.
    mean_over: "entries": mean over all B x L entries; "documents": mean over documents of the sum over labels.
        Adam cares through `epsilon` alone.
    shard: which labels `rows` are when labels are split over processes; targets and weights are then of all labels.
    """

    def __init__(
        self,
        rows: Tensor,
        *,
        bias: bool = False,
        loss: LossKind = "bce",
        precision: Precision = "float32",
        weights: Tensor | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        mean_over: MeanOver = "entries",
        compute: torch.dtype | None = None,
        variant: Variant | None = None,
        shard: Shard | None = None,
    ) -> None:
        if shard is not None and shard.count != len(rows):
            raise ValueError(f"{len(rows)} rows for a shard of {shard.count} labels")
        self.has_bias, self.weights, self.betas, self.epsilon, self.shard = bias, weights, betas, epsilon, shard
        self.sweep = Sweep(rows.device, loss=loss, mean_over=mean_over, compute=compute, variant=variant, shard=shard)
        kernels = self.sweep.variant == "triton"
        self.table = (
            Float32Table(rows, kernels=kernels) if precision == "float32" else SplitTable(rows, kernels=kernels)
        )
        self.count = torch.zeros((), dtype=torch.int64)

    @property
    def rows(self) -> Tensor:
        """(L, D) float32, with the bias in a last column: the live tensor for precision "float32", else a copy."""
        return self.table.rows

    def step(self, x_BD: Tensor, targets: Bags, rate: float, masked: Bags | None = None) -> tuple[Tensor, Tensor]:
        """(loss, gradient of the loss to x): a scalar and (B, D). Updates the rows.

        targets: the labels of each document, weights being target values (1 or softer). masked: labels of each
        document that are neither right nor wrong. No label may occur twice in a document.
        """
        self.count += 1
        step = int(self.count)
        factors = AdamFactors.of(step, rate, self.betas, self.epsilon)

        def receive(start: int, count: int, gradient: Tensor, scale: float) -> None:
            self.table.update(start, count, gradient, scale, factors, step)

        x = x_BD.detach()
        if self.has_bias:
            x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        pairs = Pairs.of(targets, masked, self.weights, self.shard, _wide(x))
        loss, gradient = self.sweep(x, self.table, pairs, receive)
        return loss, gradient[:, : x_BD.shape[1]]

    def state(self) -> dict[str, Tensor]:
        """Live tensors: everything that steps change; random rounding depends on `count` alone."""
        return self.table.state() | {"count": self.count}


def full_gradients(
    x_BD: Tensor,
    rows_LD: Tensor,
    targets: Bags,
    *,
    masked: Bags | None = None,
    weights: Tensor | None = None,
    loss: LossKind = "bce",
    mean_over: MeanOver = "entries",
    compute: torch.dtype | None = None,
    variant: Variant | None = None,
    shard: Shard | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, gradient to x, gradient to the rows): for rows that are computed, whose gradient goes on through autograd.

    All as in `FullRows`, but that rows are not updated: a scalar, (B, D) and (L, D).
    """
    sweep = Sweep(x_BD.device, loss=loss, mean_over=mean_over, compute=compute, variant=variant, shard=shard)
    x, gradient_LD = x_BD.detach(), torch.empty_like(rows_LD)

    def receive(start: int, count: int, gradient: Tensor, scale: float) -> None:
        torch.mul(gradient[:count, : rows_LD.shape[1]].to(rows_LD.dtype), scale, out=gradient_LD[start : start + count])

    mean, gradient_BD = sweep(x, FixedTable(rows_LD), Pairs.of(targets, masked, weights, shard, _wide(x)), receive)
    return mean, gradient_BD, gradient_LD


def full_loss(
    x_BD: Tensor,
    rows_LD: Tensor,
    targets: Bags,
    *,
    masked: Bags | None = None,
    loss: LossKind,
    mean_over: MeanOver = "documents",
    compute: torch.dtype | None = None,
) -> Tensor:
    """The mean loss of `full_gradients` as a value that gradients flow through, to documents and rows."""
    return cast(Callable[..., Tensor], _FullLoss.apply)(x_BD, rows_LD, targets, masked, loss, mean_over, compute)


class _FullLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_BD: Tensor,
        rows_LD: Tensor,
        targets: Bags,
        masked: Bags | None,
        loss: LossKind,
        mean_over: MeanOver,
        compute: torch.dtype | None,
    ) -> Tensor:
        value, *gradients = full_gradients(
            x_BD, rows_LD.detach(), targets, masked=masked, loss=loss, mean_over=mean_over, compute=compute
        )
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None, None, None]:
        to_documents, to_rows = ctx.saved_tensors
        return to_documents * gradients[0], to_rows * gradients[0], None, None, None, None, None


def _wide(x: Tensor) -> torch.dtype:
    """The type of losses and slopes of single pairs."""
    return torch.promote_types(x.dtype, torch.float32)
