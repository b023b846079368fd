"""Plain formulas that fast paths are compared with, and a batch as encoders take it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import Documents, TensorBatch
from longtail.types import Batch


def masked_bce(scores_BC: Tensor, targets_BC: Tensor, mask_BC: Tensor) -> Tensor:
    """Mean binary cross-entropy over entries where `mask` is True; 0 if there are none."""
    losses = nn.functional.binary_cross_entropy_with_logits(scores_BC, targets_BC.to(scores_BC.dtype), reduction="none")
    return torch.where(mask_BC, losses, 0).sum() / mask_BC.sum().clamp(min=1)


def tensor_batch(batch: Batch) -> TensorBatch:
    return Documents(batch).rows(np.arange(len(batch)))
