"""Frozen graph encoders: what those of `longtail.recipes.galaxc.network` become for prediction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import F64, steady_product
from longtail.persistence import Part, State
from longtail.recipes.galaxc.graph import Paths, convolutions
from longtail.types import F32, I32, I64

Averaged = Literal["transformed", "convolved"]


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
class FrozenHops:
    """v^k = h + ReLU(R_k h + b_k), h = ReLU(a^k), with batch norm folded into R and b.  epsilons: (K,); weight: (K,
    D, D); bias: (K, D).

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

    def state(self) -> State:
        values = {"pre_relu": self.pre_relu, "space": self.space, "balanced": self.balanced}
        return State(values, {"epsilons": self.epsilons, "weight": self.weight, "bias": self.bias})

    @classmethod
    def from_state(cls, state: State) -> FrozenHops:
        return cls(**state.arrays, **state.values)


@dataclass(frozen=True)
class FrozenMessages:
    """GraphSAGE or GIN, the last hop alone. One dictionary of arrays per hop; see `network` for what they mean.

    sage: weight (D, 2 D), bias (D,); `signed`: the last hop without ReLU.
    gin: epsilon (1,), first (D, D), first_bias (D,) with batch norm folded in, second (D, D), second_bias (D,).
    """

    KIND = "frozen-messages"

    kind: Literal["sage", "gin"]
    layers: tuple[dict[str, F32], ...]
    signed: bool = False

    @property
    def views(self) -> int:
        return 1

    def of_nodes(self, paths: Paths, nodes: I32, seed: int) -> Views:
        last = self._levels(paths, paths.tree(nodes, len(self.layers), seed))[-1]
        return Views(last, last[:, None])

    def of_linked(self, paths: Paths, vectors: F32, links: I32, seed: int, exclude: I64 | None = None) -> Views:
        real = links >= 0
        owners = np.repeat(np.arange(len(links)), real.sum(axis=1))
        theirs = self._levels(
            paths, paths.tree(links[real], len(self.layers) - 1, seed, None if exclude is None else exclude[owners])
        )
        weights = paths.fanout.link_weights(real.sum(axis=1), mean=self.kind == "sage")
        h: F32 = vectors
        for hop in range(len(self.layers)):
            received: F32 = np.zeros(h.shape, dtype=np.float32)
            np.add.at(received, owners, theirs[hop])
            h = self._layer(hop, h, received * weights[:, hop, None])
        return Views(h, h[:, None])

    def _levels(self, paths: Paths, tree: I32) -> list[F32]:
        """h^0, h^1, ... of the roots of computation trees."""
        real = tree >= 0
        values: F32 = np.where(real[..., None], paths.vectors[tree], np.float32(0))
        found = [_root(values)]
        for hop in range(tree.ndim - 1):
            there = real[..., 1:, None]
            message: F32 = (values[..., 1:, :] * there).sum(axis=-2)
            if self.kind == "sage":
                message = message / np.maximum(there.sum(axis=-2), 1).astype(np.float32)
            values = self._layer(hop, values[..., 0, :], message)
            real = real[..., 0]
            found.append(_root(values))
        return found

    def _layer(self, hop: int, own: F32, message: F32) -> F32:
        a, w = self.layers[hop], self._weights[hop]
        if self.kind == "gin":
            hidden = np.maximum(steady_product((1 + a["epsilon"]) * own + message, w["first"]) + a["first_bias"], 0)
            return np.maximum(steady_product(hidden, w["second"]) + a["second_bias"], 0)
        mixed: F32 = steady_product(np.concatenate([own, message], axis=-1), w["weight"]) + a["bias"]
        return mixed if self.signed and hop == len(self.layers) - 1 else np.maximum(mixed, 0)

    @cached_property
    def _weights(self) -> list[dict[str, F64]]:
        return [
            {name: array.astype(np.float64) for name, array in layer.items() if array.ndim == 2}
            for layer in self.layers
        ]

    def state(self) -> State:
        arrays = {f"{name}{hop}": array for hop, layer in enumerate(self.layers) for name, array in layer.items()}
        return State(
            {"kind": self.kind, "signed": self.signed, "names": [sorted(layer) for layer in self.layers]}, arrays
        )

    @classmethod
    def from_state(cls, state: State) -> FrozenMessages:
        values: Any = state.values
        layers = tuple(
            {name: state.arrays[f"{name}{hop}"] for name in names} for hop, names in enumerate(values["names"])
        )
        return cls(values["kind"], layers, values["signed"])


def _root(values: F32) -> F32:
    """(B, D) of (B, ..., D): a tree's first entry is its root."""
    while values.ndim > 2:
        values = values[:, 0]
    return values
