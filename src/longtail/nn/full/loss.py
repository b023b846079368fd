"""The loss against all rows as a value that gradients flow through, for rows that are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from longtail.nn.batches import Bags
from longtail.nn.full.pairs import LossKind, MeanOver
from longtail.nn.full.rows import full_gradients


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
    """The mean loss of `full_gradients`, with its gradients to documents and rows."""
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
