"""Graph encoders with a non-linearity at every hop: what GalaXC's encoder is compared with. Only the last hop is
given back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.hop_encoder import BatchNorm, GraphEncoder
from longtail.nn.initial import xavier_linear
from longtail.nn.neighbourhoods import Neighbourhoods, Roots


class MessageLayer(nn.Module):
    """One hop. mean: whether neighbours come averaged or summed."""

    mean: bool

    def forward(self, own: Tensor, neighbours: Tensor) -> Tensor:
        raise NotImplementedError


class SageLayer(MessageLayer):
    """h = dropout(ReLU(W [own; mean of neighbours] + b)). Paper: GraphSAGE, as in GalaXC Table 7. `last`: without
    ReLU, for embeddings of either sign.
    """

    mean = True

    def __init__(self, width: int, rng: np.random.Generator, *, dropout: float = 0.5, last: bool = False) -> None:
        super().__init__()
        self.linear = xavier_linear(2 * width, width, rng)
        self.dropout = nn.Dropout(dropout)
        self.last = last

    def forward(self, own: Tensor, neighbours: Tensor) -> Tensor:
        mixed: Tensor = self.linear(torch.cat([own, neighbours], dim=-1))
        return mixed if self.last else self.dropout(torch.relu(mixed))


class GinLayer(MessageLayer):
    """h = dropout(ReLU(B dropout(ReLU(BN(A a + c))) + d)) with a = (1 + eps) own + sum of neighbours. Paper: GIN, as
    in GalaXC Table 7.
    """

    mean = False

    def __init__(self, width: int, rng: np.random.Generator, *, dropout: float = 0.5) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.from_numpy(rng.random(1, dtype=np.float32)))
        self.first, self.norm, self.second = (
            xavier_linear(width, width, rng),
            BatchNorm(width),
            xavier_linear(width, width, rng),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, own: Tensor, neighbours: Tensor) -> Tensor:
        hidden = self.dropout(torch.relu(self.norm(self.first((1 + self.epsilon) * own + neighbours))))
        return self.dropout(torch.relu(self.second(hidden)))


class MessageEncoder(GraphEncoder):
    """h^k = layer_k(h^(k-1) of the node, h^(k-1) of its sampled neighbours), h^0 the vectors of nodes. Gives (B, 1,
    D).
    """

    views = 1

    def __init__(self, layers: Sequence[MessageLayer], width: int) -> None:
        super().__init__()
        self.layers, self.width = nn.ModuleList(layers), width

    def forward(self, around: Neighbourhoods, roots: Roots) -> Tensor:
        return around.joined([(self._of_one_kind(around, part), places) for part, places in roots.parts()])

    def _of_one_kind(self, around: Neighbourhoods, roots: Roots) -> Tensor:
        if roots.links is None:
            return self.levels(*around.tree(roots, len(self.layers)), len(self.layers))[-1][:, None]
        (values, real), owners, weights = around.link_trees(roots, self.mean)
        h_BD, theirs = around.own(roots), self.levels(values, real, len(self.layers) - 1)
        for hop, layer in enumerate(self.layers):
            message = (
                h_BD.new_zeros(h_BD.shape).index_add_(0, owners, theirs[hop].to(h_BD.dtype)) * weights[:, hop, None]
            )
            h_BD = layer(h_BD, message.to(h_BD.dtype))
        return h_BD[:, None]

    @property
    def mean(self) -> bool:
        return any(isinstance(layer, MessageLayer) and layer.mean for layer in self.layers)

    def levels(self, values: Tensor, real: Tensor, hops: int) -> list[Tensor]:
        """h^0, ..., h^hops of the roots of computation trees: each (B, D)."""
        found = [_root(values)]
        for hop in range(hops):
            others, there = values[..., 1:, :], real[..., 1:, None]
            message = (others * there).sum(dim=-2)
            if self.mean:
                message = message / there.sum(dim=-2).clamp(min=1)
            values, real = self.layers[hop](values[..., 0, :], message), real[..., 0]
            found.append(_root(values))
        return found


def sage_encoder(
    hops: int, width: int, rng: np.random.Generator, *, dropout: float = 0.5, signed: bool = False
) -> MessageEncoder:
    """signed: embeddings of either sign, for link prediction by their cosine."""
    return MessageEncoder(
        [SageLayer(width, rng, dropout=dropout, last=signed and hop == hops - 1) for hop in range(hops)], width
    )


def gin_encoder(hops: int, width: int, rng: np.random.Generator, *, dropout: float = 0.5) -> MessageEncoder:
    return MessageEncoder([GinLayer(width, rng, dropout=dropout) for _ in range(hops)], width)


def _root(values: Tensor) -> Tensor:
    """(B, D) of (B, ..., D): a tree's first entry is its root."""
    while values.dim() > 2:
        values = values[:, 0]
    return values
