"""Graph encoders for prediction, without torch: what the networks of `longtail.recipes.galaxc.network` become."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import F64, steady_product
from longtail.models.encoders import FrozenGinLayer
from longtail.persistence import DataPart, Part
from longtail.recipes.galaxc.graph import Paths, convolutions
from longtail.types import F32, I32, I64

Averaged: TypeAlias = Literal["transformed", "convolved"]


class Views(NamedTuple):
    """search: (B, D), what a shortlist looks up.  score: (B, K, D), what classifiers read."""

    search: F32
    score: F32


class FrozenGraphEncoder(Part, Protocol):
    """Nodes, or documents linked to nodes, in; K views of each out. Samples are named by `seed`."""

    @property
    def views(self) -> int:
        """K"""
        ...

    def of_nodes(self, paths: Paths, nodes: I32, seed: int) -> Views: ...

    def of_linked(self, paths: Paths, vectors: F32, links: I32, seed: int, exclude: I64 | None = None) -> Views:
        """vectors: (B, D).  links: (B, m), -1 where there are fewer.  exclude: (B,) a node of the graph that each
        document is, -1 for none.
        """
        ...


@dataclass(frozen=True)
class FrozenHops(DataPart):
    """v^k = h + ReLU(R_k h + b_k), h = ReLU(a^k), with batch norm folded into R and b.

    epsilons: (K,).  weight: (K, D, D).  bias: (K, D).
    space: what is averaged over hops for the search: v^k (the paper), or a^k (the released code).
    balanced: every hop is scaled to unit length before; sums over wide neighbourhoods are longer and would drown the
        others.
    """

    KIND = "frozen-hops"

    epsilons: F32
    weight: F32
    bias: F32
    pre_relu: bool = True
    space: Averaged = "transformed"
    balanced: bool = False

    @property
    def views(self) -> int:
        return len(self.epsilons)

    def of_nodes(self, paths: Paths, nodes: I32, seed: int) -> Views:
        return self._views(paths.of_nodes(nodes, seed))

    def of_linked(self, paths: Paths, vectors: F32, links: I32, seed: int, exclude: I64 | None = None) -> Views:
        return self._views(paths.of_linked(vectors, links, seed, exclude))

    def _views(self, sums: F32) -> Views:
        convolved = self.convolved(sums)
        score = self.transformed(convolved)
        averaged = score if self.space == "transformed" else convolved
        if self.balanced:
            averaged = unit_rows(averaged.reshape(-1, averaged.shape[2])).reshape(averaged.shape)
        return Views(averaged.mean(axis=1), score)

    def untransformed(self) -> FrozenHops:
        """An encoder whose views are the convolved vectors themselves: its transformations add nothing."""
        return FrozenHops(self.epsilons, np.zeros_like(self.weight), np.zeros_like(self.bias), pre_relu=False)

    def convolved(self, sums: F32) -> F32:
        """(B, K, D): a^1, ..., a^K from sums along paths (B, 2^K, D)."""
        return np.stack(list(convolutions(sums, self.epsilons)), axis=1)

    def transformed(self, convolved: F32) -> F32:
        """(B, K, D): v^1, ..., v^K."""
        out = np.maximum(convolved, 0) if self.pre_relu else convolved.copy()
        for hop in range(self.views):
            out[:, hop] += np.maximum(steady_product(out[:, hop], self._weight[hop]) + self.bias[hop], 0)
        return out

    @cached_property
    def _weight(self) -> F64:
        return self.weight.astype(np.float64)


@dataclass(frozen=True)
class FrozenSageLayer:
    """h = ReLU(W [own; message] + b).  weight: (D, 2 D).  bias: (D,).  signed: without the ReLU."""

    weight: F32
    bias: F32
    signed: bool = False

    def apply(self, own: F32, message: F32) -> F32:
        mixed: F32 = steady_product(np.concatenate([own, message], axis=-1), self._weight) + self.bias
        return mixed if self.signed else np.maximum(mixed, 0)

    @cached_property
    def _weight(self) -> F64:
        return self.weight.astype(np.float64)


@dataclass(frozen=True)
class FrozenMessages(DataPart):
    """GraphSAGE or GIN: a layer per hop, the last hop alone is the one view.

    mean: messages are means of neighbours (GraphSAGE), else sums (GIN).
    """

    KIND = "frozen-messages"

    layers: tuple[FrozenSageLayer | FrozenGinLayer, ...]
    mean: bool

    @property
    def views(self) -> int:
        return 1

    def of_nodes(self, paths: Paths, nodes: I32, seed: int) -> Views:
        last = self._levels(paths, paths.tree(nodes, len(self.layers), seed))[-1]
        return Views(last, last[:, None])

    def of_linked(self, paths: Paths, vectors: F32, links: I32, seed: int, exclude: I64 | None = None) -> Views:
        real = links >= 0
        owners = np.repeat(np.arange(len(links)), real.sum(axis=1))
        trees = paths.tree(links[real], len(self.layers) - 1, seed, None if exclude is None else exclude[owners])
        weights = paths.fanout.link_weights(real.sum(axis=1), mean=self.mean)
        h: F32 = vectors
        for hop, (layer, theirs) in enumerate(zip(self.layers, self._levels(paths, trees), strict=True)):
            received: F32 = np.zeros(h.shape, dtype=np.float32)
            np.add.at(received, owners, theirs)
            h = layer.apply(h, received * weights[:, hop, None])
        return Views(h, h[:, None])

    def _levels(self, paths: Paths, tree: I32) -> list[F32]:
        """h^0, h^1, ... of the roots of computation trees."""
        real = tree >= 0
        values: F32 = np.where(real[..., None], paths.vectors[tree], np.float32(0))
        found = [_root(values)]
        for layer in self.layers[: tree.ndim - 1]:
            there = real[..., 1:, None]
            message: F32 = (values[..., 1:, :] * there).sum(axis=-2)
            if self.mean:
                message = message / np.maximum(there.sum(axis=-2), 1).astype(np.float32)
            values = layer.apply(values[..., 0, :], message)
            real = real[..., 0]
            found.append(_root(values))
        return found


def _root(values: F32) -> F32:
    """(B, D) of (B, ..., D): a tree's first entry is its root."""
    while values.ndim > 2:
        values = values[:, 0]
    return values
