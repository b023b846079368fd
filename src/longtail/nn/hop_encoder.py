"""Several views of a node, each over a wider neighbourhood. Shapes: K hops, C = 2^K kinds of paths (`graph.fanout`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from longtail.graph.fanout import convolutions
from longtail.nn.neighbourhoods import Neighbourhoods, Roots


class GraphEncoder(nn.Module):
    """Nodes in, (B, views, D) out. `frozen` once its parameters and statistics must not change any more."""

    width: int
    views: int
    frozen: bool = False

    def forward(self, around: Neighbourhoods, roots: Roots) -> Tensor:
        raise NotImplementedError

    def freeze(self) -> None:
        """No parameter and no running statistic changes from now on; dropout stays. Paper: GalaXC Sec. 4.1, Module
        III.
        """
        self.frozen = True
        self.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> GraphEncoder:
        super().train(mode)
        if self.frozen:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.eval()
        return self


@torch.no_grad()
def encoded_blocks(
    encoder: GraphEncoder, around: Neighbourhoods, roots: Roots, *, block: int = 1024
) -> Iterator[Tensor]:
    """(b, K, D): all views of `block` roots after the other, without dropout. The encoder's mode is put back at the
    end.
    """
    was_training = encoder.training
    encoder.eval()
    try:
        for start in range(0, len(roots), block):
            yield encoder(around, roots.rows(slice(start, start + block)))
    finally:
        encoder.train(was_training)


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


class HopTransform(nn.Module):
    """h = dropout(ReLU(a)); v = h + dropout(ReLU(BN(R h + b))), R = I at the start. `pre_relu` False: h = a.

    Paper: GalaXC Sec. 4 (Fig. 1); the order is that of the released code, which the paper leaves open.
    """

    def __init__(self, width: int, *, dropout: float = 0.5, pre_relu: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, device="meta")
        self.linear.weight = nn.Parameter(torch.eye(width))
        self.linear.bias = nn.Parameter(torch.zeros(width))
        self.norm = BatchNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.pre_relu = pre_relu

    def forward(self, a_BD: Tensor) -> Tensor:
        h_BD: Tensor = self.dropout(torch.relu(a_BD)) if self.pre_relu else a_BD
        return h_BD + self.dropout(torch.relu(self.norm(self.linear(h_BD))))

    def frozen_affine(self) -> tuple[Tensor, Tensor]:
        """(D, D) and (D,): the linear layer with the batch norm folded in, as prediction uses it."""
        scale, shift = self.norm.folded()
        return scale[:, None] * self.linear.weight, scale * self.linear.bias + shift


class HopEncoder(GraphEncoder):
    """v^k = T_k(a^k) with a^k = (1 + eps_k) a^(k-1) + sum of neighbours' a^(k-1), nothing non-linear between hops.
    Paper: GalaXC Sec. 4.

    All views are given back: (B, K, D). eps starts in [0, 1).
    """

    def __init__(
        self, hops: int, width: int, rng: np.random.Generator, *, dropout: float = 0.5, pre_relu: bool = True
    ) -> None:
        super().__init__()
        self.width, self.views = width, hops
        self.epsilon = nn.Parameter(torch.from_numpy(rng.random(hops, dtype=np.float32)))
        self.transforms = nn.ModuleList(HopTransform(width, dropout=dropout, pre_relu=pre_relu) for _ in range(hops))

    def forward(self, around: Neighbourhoods, roots: Roots) -> Tensor:
        return self.transformed(self.convolved(around.sums(roots)))

    def convolved(self, sums_BCD: Tensor) -> Tensor:
        """(B, K, D): a^1, ..., a^K, in float32 under autocast too: sums over many neighbours would lose the small
        ones in bf16.
        """
        return torch.stack(list(convolutions(sums_BCD, self.epsilon)), dim=1)

    def transformed(self, a_BKD: Tensor) -> Tensor:
        return torch.stack([transform(a_BKD[:, hop]) for hop, transform in enumerate(self.transforms)], dim=1)
