"""Layers of graph isomorphism networks, and the batch normalisation of graph encoders. Paper: Xu et al., ICLR 2019."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from longtail.models.gin import FrozenGinLayer
from longtail.nn.batches import to_numpy
from longtail.nn.initial import xavier_linear


class BatchNorm(nn.BatchNorm1d):
    """Over all axes but the last. A batch of one has no spread of its own: there the running statistics are used."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if self.training and len(flat) < 2:
            return nn.functional.batch_norm(
                flat, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            ).view(x.shape)
        return super().forward(flat).view(x.shape)

    def folded(self) -> tuple[Tensor, Tensor]:
        """(D,) scale and shift that it is out of training."""
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = self.weight / (self.running_var + self.eps).sqrt()
        return scale, self.bias - self.running_mean * scale


class GinLayer(nn.Module):
    """h = dropout(ReLU(B dropout(ReLU(BN(A a + c))) + d)) with a = (1 + epsilon) own + sum of neighbours.

    epsilon: one number, what it starts from.  learned: whether it is trained.
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        rng: np.random.Generator,
        *,
        epsilon: Tensor,
        learned: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(epsilon, requires_grad=learned)
        self.first = xavier_linear(inputs, width, rng)
        self.norm = BatchNorm(width)
        self.second = xavier_linear(width, width, rng)
        self.dropout = nn.Dropout(dropout)

    def forward(self, own: Tensor, neighbours: Tensor) -> Tensor:
        """own: (..., inputs) vectors of nodes.  neighbours: the sum of their neighbours'.  Gives (..., width)."""
        hidden = self.dropout(torch.relu(self.norm(self.first((1 + self.epsilon) * own + neighbours))))
        return self.dropout(torch.relu(self.second(hidden)))

    def frozen(self) -> FrozenGinLayer:
        """Its twin that predicts without torch."""
        scale, shift = self.norm.folded()
        return FrozenGinLayer(
            float(self.epsilon.detach()),
            to_numpy(scale[:, None] * self.first.weight),
            to_numpy(scale * self.first.bias + shift),
            to_numpy(self.second.weight),
            to_numpy(self.second.bias),
        )
