"""The two-branch graph network of GNN-XML, frozen: a forward pass in numpy. Its twin in torch is
`longtail.recipes.gnnxml.network`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import F64, steady_product
from longtail.persistence import State
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.types import F32, Batch, Csr

# Documents whose vertices are held at once.
_BLOCK = 512


@dataclass(frozen=True)
class FrozenLayer:
    """h -> ReLU(B ReLU(A ((1 + eps) h + sum over neighbours) + a) + b), the normalisation inside folded into A and a.

    first: A, (D, D_in); first_bias: a; second: B, (D, D); second_bias: b.
    """

    eps: float
    first: F32
    first_bias: F32
    second: F32
    second_bias: F32

    def apply(self, h_VD: F32, adjacency: Csr) -> F32:
        gathered = np.float32(1 + self.eps) * h_VD + adjacency @ h_VD
        hidden = np.maximum(steady_product(gathered, self._first) + self.first_bias, 0)
        return np.maximum(steady_product(hidden, self._second) + self.second_bias, 0)

    @cached_property
    def _first(self) -> F64:
        return self.first.astype(np.float64)

    @cached_property
    def _second(self) -> F64:
        return self.second.astype(np.float64)


@dataclass(frozen=True)
class FrozenBranch:
    """A branch's own layers, and the scale and shift that normalise its h_G."""

    layers: tuple[FrozenLayer, ...]
    scale: F32
    shift: F32


@dataclass(frozen=True)
class FrozenGin:
    """Keyword graphs in, h_G of every branch out. A part.

    common: layers that branches share. concat: h_G joins all layers, else it is the last one alone. mean: h_G is a
        mean over vertices.
    weighted: neighbours count by the number of shared sentences.
    """

    KIND = "frozen-gin"

    common: tuple[FrozenLayer, ...]
    branches: Mapping[str, FrozenBranch]
    concat: bool = True
    mean: bool = False
    weighted: bool = False

    def represent(self, batch: Batch) -> dict[str, F32]:
        """h_G by branch: (B, D)."""
        graphs = batch.graphs
        if not isinstance(graphs, KeyGraphs):
            raise ConfigError("this model reads keyword graphs", "let the bundle's featurizer make the batch")
        blocks = [
            self._block(graphs.rows(slice(start, start + _BLOCK))) for start in range(0, max(len(graphs), 1), _BLOCK)
        ]
        return {name: np.concatenate([block[name] for block in blocks]) for name in self.branches}

    def encode(self, batch: Batch) -> F32:
        """(B, branches x D + 1): h_G of all branches side by side and a constant 1, what the clusters' classifiers
        read.
        """
        return joined(self.represent(batch))

    def _block(self, graphs: KeyGraphs) -> dict[str, F32]:
        adjacency, h = graphs.adjacency(self.weighted), graphs.vertices()
        members = self._members(graphs)
        read = [members @ h]
        for layer in self.common:
            h = layer.apply(h, adjacency)
            read.append(members @ h)
        return {name: self._own(h, read, adjacency, members, branch) for name, branch in self.branches.items()}

    def _own(self, h: F32, read: list[F32], adjacency: Csr, members: Csr, branch: FrozenBranch) -> F32:
        parts = list(read)
        for layer in branch.layers:
            h = layer.apply(h, adjacency)
            parts.append(members @ h)
        joined_parts: F32 = np.concatenate(parts, axis=1) if self.concat else parts[-1]
        return joined_parts * branch.scale + branch.shift

    def _members(self, graphs: KeyGraphs) -> Csr:
        """(B, V): which vertices a document has, summed or averaged."""
        from scipy.sparse import csr_array

        sizes = np.diff(graphs.vertex_starts)
        values = np.repeat(1 / np.maximum(sizes, 1) if self.mean else np.ones(len(sizes)), sizes).astype(np.float32)
        return csr_array(
            (values, np.arange(graphs.n_vertices), graphs.vertex_starts), shape=(len(graphs), graphs.n_vertices)
        )

    def state(self) -> State:
        arrays: dict[str, Any] = {}
        values: dict[str, Any] = {
            "concat": self.concat,
            "mean": self.mean,
            "weighted": self.weighted,
            "common": _keep("common", self.common, arrays),
        }
        values["branches"] = {}
        for name, branch in self.branches.items():
            values["branches"][name] = _keep(name, branch.layers, arrays)
            arrays |= {f"{name}.scale": branch.scale, f"{name}.shift": branch.shift}
        return State(values, arrays)

    @classmethod
    def from_state(cls, state: State) -> FrozenGin:
        values, arrays = state.values, state.arrays
        branches = {
            name: FrozenBranch(_kept(name, eps, arrays), arrays[f"{name}.scale"], arrays[f"{name}.shift"])
            for name, eps in values["branches"].items()
        }
        return cls(
            _kept("common", values["common"], arrays),
            branches,
            bool(values["concat"]),
            bool(values["mean"]),
            bool(values["weighted"]),
        )


def joined(vectors: Mapping[str, F32]) -> F32:
    """Vectors of all branches side by side, in the order of their names, and a constant 1."""
    parts = [vectors[name] for name in sorted(vectors)]
    ones = np.ones((len(parts[0]), 1), dtype=np.float32)
    return np.ascontiguousarray(np.concatenate([*parts, ones], axis=1))


def ranker_vectors(vectors: Mapping[str, F32]) -> F32:
    """(B, D): the mean of the branches' h_G, of unit length: what rankers read of the graph."""
    return unit_rows(np.mean([vectors[name] for name in sorted(vectors)], axis=0, dtype=np.float32))


_LAYER_ARRAYS = ("first", "first_bias", "second", "second_bias")


def _keep(prefix: str, layers: tuple[FrozenLayer, ...], arrays: dict[str, Any]) -> list[float]:
    for number, layer in enumerate(layers):
        arrays |= {f"{prefix}{number}.{name}": getattr(layer, name) for name in _LAYER_ARRAYS}
    return [layer.eps for layer in layers]


def _kept(prefix: str, eps: list[float], arrays: Mapping[str, Any]) -> tuple[FrozenLayer, ...]:
    return tuple(
        FrozenLayer(float(e), *(arrays[f"{prefix}{number}.{name}"] for name in _LAYER_ARRAYS))
        for number, e in enumerate(eps)
    )
