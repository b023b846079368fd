"""Several vectors per label become one: by attention of its own, or by weights that all labels share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.blocks import BoundedMatrix
from longtail.nn.dropout import ByteDropout
from longtail.nn.initial import xavier_matrix

MixMode = Literal["attention", "shared", "sum", "mean"]


class AttentionMix(nn.Module):
    """w = sum_j alpha_j z_j over J components, with weights alpha by `mode`:

    attention: alpha = softmax(A [t(z_1); ...; t(z_J)]) per label, t(z) = sigmoid(T dropout(ReLU(z))); T and A have
        spectral
        norm 1. Paper: ECLARE Sec. 3.3.  `sigmoid=False` leaves it out of t, as the released code does.
    shared: alpha_j = sigmoid of one number per component for all labels (DECAF's way).
    sum, mean: alpha_j = 1 or 1 / J; nothing is trained.
    """

    def __init__(
        self,
        components: int,
        width: int,
        rng: np.random.Generator,
        *,
        mode: MixMode = "attention",
        dropout: float = 0.2,
        sigmoid: bool = True,
    ) -> None:
        super().__init__()
        self.components, self.width, self.mode, self.sigmoid = components, width, mode, sigmoid
        self.dropout = ByteDropout(dropout)
        if mode == "attention":
            self.transform = BoundedMatrix(xavier_matrix(width, width, rng), rng, mode="normalise")
            self.attend = BoundedMatrix(xavier_matrix(components, components * width, rng), rng, mode="normalise")
        elif mode == "shared":
            self.logits = nn.Parameter(torch.zeros(components))

    def forward(self, parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """parts: J tensors (U, D). Gives the mixed rows (U, D) and the weights (U, J)."""
        weights_UJ = self.weights(parts)
        mixed = weights_UJ[:, :1] * parts[0]
        for place in range(1, self.components):
            mixed = mixed + weights_UJ[:, place : place + 1] * parts[place]
        return mixed, weights_UJ

    def weights(self, parts: Sequence[Tensor]) -> Tensor:
        """(U, J)"""
        if len(parts) != self.components:
            raise ValueError(f"{len(parts)} components for a mix of {self.components}")
        if self.mode == "attention":
            return torch.softmax(self._logits(parts), dim=1)
        if self.mode == "shared":
            return self.logits.sigmoid().expand(len(parts[0]), -1)
        return parts[0].new_full((len(parts[0]), self.components), 1.0 if self.mode == "sum" else 1 / self.components)

    def _logits(self, parts: Sequence[Tensor]) -> Tensor:
        transform, attend = self.transform.bounded(), self.attend.bounded()
        logits: Tensor | None = None
        # One product per component, summed: the same as one product over their concatenation, without the copy.
        for part, columns in zip(parts, attend.chunk(self.components, dim=1), strict=True):
            turned = nn.functional.linear(self.dropout(torch.relu(part)), transform)
            seen = nn.functional.linear(turned.sigmoid() if self.sigmoid else turned, columns)
            logits = seen if logits is None else logits + seen
        assert logits is not None
        return logits
