"""The block through which ECLARE sends every sum of token vectors: documents, label texts, and label texts of
neighbours.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.blocks import BoundedMatrix
from longtail.nn.dropout import ByteDropout


class EmbeddingBlock(BoundedMatrix):
    """E(a) = a + s R dropout(ReLU(a)): R has spectral norm 1, the scale s is trained. At the start R = I and s = 1.

    A zero vector stays zero. As s is free, the norm of the added part is bounded by |s| ||a||, not by ||a||;
    `clamp_scale` keeps s within -1..1. Paper: ECLARE Sec. 3.1, Fig. 2 (s is its lambda).
    """

    def __init__(
        self, width: int, rng: np.random.Generator, *, dropout: float = 0.2, clamp_scale: bool = False
    ) -> None:
        super().__init__(torch.eye(width), rng, mode="normalise")
        self.scale = nn.Parameter(torch.ones(1))
        self.clamp_scale = clamp_scale
        self.dropout = ByteDropout(dropout)

    def effective_scale(self) -> Tensor:
        return self.scale.clamp(-1, 1) if self.clamp_scale else self.scale

    def forward(self, a_BD: Tensor) -> Tensor:
        return a_BD + self.effective_scale() * nn.functional.linear(self.dropout(torch.relu(a_BD)), self.bounded())


class DocumentBlock(nn.Module):
    """x = dropout(ReLU(E(a))): the document side of an `EmbeddingBlock`. Paper: ECLARE Sec. 3.1."""

    def __init__(
        self, width: int, rng: np.random.Generator, *, dropout: float = 0.2, clamp_scale: bool = False
    ) -> None:
        super().__init__()
        self.block = EmbeddingBlock(width, rng, dropout=dropout, clamp_scale=clamp_scale)
        self.dropout = ByteDropout(dropout)

    def forward(self, a_BD: Tensor) -> Tensor:
        x_BD: Tensor = self.dropout(torch.relu(self.block(a_BD)))
        return x_BD
