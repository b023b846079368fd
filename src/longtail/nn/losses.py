"""Binary cross-entropy over a document's candidates, and over all labels in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from longtail.nn.batches import Bags
from longtail.nn.products import for_products

# Scores held at a time. On a CPU a block stays in the cache between product, sigmoid and the two products of the
# gradient; on a GPU it is large enough to keep the chip busy.
BLOCK_SCORES = {"cpu": 1 << 20, "cuda": 1 << 26}


def masked_bce(scores_BC: Tensor, targets_BC: Tensor, mask_BC: Tensor) -> Tensor:
    """Mean binary cross-entropy over entries where `mask` is True; 0 if there are none."""
    losses = nn.functional.binary_cross_entropy_with_logits(scores_BC, targets_BC.to(scores_BC.dtype), reduction="none")
    return torch.where(mask_BC, losses, 0).sum() / mask_BC.sum().clamp(min=1)


def full_bce(z_BD: Tensor, rows_LD: Tensor, targets: Bags, *, compute: torch.dtype | None = None) -> Tensor:
    """Mean binary cross-entropy of scores z @ rows.T over all B x L entries.

    targets: bag b holds the labels of document b, its weights their target values (1, or softer); the rest is 0.
    compute: type of the matrix products (bf16 on a GPU); sums are kept in the type of `z`.

    The B x L scores are never stored whole: each block of labels goes through scores, loss and gradients at once, in the
    forward pass. The backward pass only scales.
    """
    return cast(Callable[..., Tensor], _FullBce.apply)(z_BD, rows_LD, targets, compute or z_BD.dtype)


class _FullBce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z_BD: Tensor, rows_LD: Tensor, targets: Bags, compute: torch.dtype) -> Tensor:
        documents, labels = len(z_BD), len(rows_LD)
        share = 1 / max(documents * labels, 1)
        z = for_products(z_BD, compute)
        grad_z = torch.zeros_like(z_BD)
        grad_rows = torch.empty_like(rows_LD)
        loss = torch.zeros((), dtype=z_BD.dtype, device=z_BD.device)
        owners, ids, values = targets.owners, targets.ids.long(), targets.weights.to(z_BD.dtype)
        width = max(1, BLOCK_SCORES[z_BD.device.type] // max(documents, 1))
        for start in range(0, labels, width):
            count = min(width, labels - start)
            rows = for_products(rows_LD[start : start + count], compute)
            scores = (z @ rows.T)[:documents, :count].to(z_BD.dtype, memory_format=torch.contiguous_format)
            # Targets of other blocks get value 0 at place 0: shapes stay fixed, so a GPU is never asked for a count.
            here = (ids >= start) & (ids < start + count)
            place = torch.where(here, owners * count + ids - start, 0)
            value = torch.where(here, values, 0)
            loss += nn.functional.softplus(scores).sum() - (scores.view(-1)[place] * value).sum()
            scores.sigmoid_().view(-1).index_add_(0, place, value, alpha=-1)
            slope = for_products(scores, compute)
            grad_z += (slope @ rows)[:documents, : z_BD.shape[1]]
            grad_rows[start : start + count] = (slope.T @ z)[:count, : z_BD.shape[1]]
        ctx.save_for_backward(grad_z.mul_(share), grad_rows.mul_(share))
        return loss * share

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_z, grad_rows = ctx.saved_tensors
        return grad_z * gradients[0], grad_rows * gradients[0], None, None
