"""Graph isomorphism networks over keyword graphs, in two branches. Paper: GNN-XML Sec. 3.1, Eq. 4 to 6.

    h^k_v = MLP^k((1 + eps^k) h^{k-1}_v + sum over neighbours u of h^{k-1}_u)
            MLP = Linear, BatchNorm, ReLU, Linear, ReLU
    h_G   = BatchNorm(concat over k = 0..J of the sum over vertices of h^k_v)
    g     = sigmoid(alpha W_c h^c_G + (1 - alpha) W_r h^r_G)

The conventional branch (c) sees documents as they come, the re-balance branch (r) those of rare labels more often.
Graphs of documents are flat tensors, taken by document without a Python loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from longtail.kernels.arrays import taken_runs
from longtail.models.encoders import FrozenGinLayer
from longtail.nn.batches import Bags, to_device, to_numpy, to_tensor
from longtail.nn.blocks import BatchNorm, GinLayer, xavier_linear
from longtail.nn.row_tables import bag_sums
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.ranker import FrozenBranch, FrozenGin
from longtail.recipes.gnnxml.settings import Branches, Readout, Share
from longtail.types import F32, I64


@dataclass(frozen=True)
class GraphBatch:
    """The graphs of B documents, their vertices one after the other.

    vertices: (V, D) their features.  edges: a bag of neighbours (numbers of vertices in the batch) per vertex.
    members: a bag of vertices per document.
    """

    vertices: Tensor
    edges: Bags
    members: Bags

    def __len__(self) -> int:
        return len(self.members)

    @property
    def sizes(self) -> Tensor:
        """(B,) int64: vertices per document."""
        return self.members.starts.diff()


class DeviceGraphs:
    """Keyword graphs whose entries live on a device. Pointers stay in numpy: sizes are then known without asking a GPU.

    weighted: neighbours count by the number of shared sentences, not once each.
    """

    def __init__(self, graphs: KeyGraphs, device: torch.device | str = "cpu", *, weighted: bool = False) -> None:
        self.device = torch.device(device)
        self.graphs = graphs
        self.neighbours = to_tensor(graphs.neighbours, device)
        self.weights = to_tensor(graphs.weights if weighted else np.ones(len(graphs.neighbours), np.float32), device)
        self.attached = to_tensor(graphs.attached, device)
        self.sentences = to_tensor(graphs.sentences, device)

    def __len__(self) -> int:
        return len(self.graphs)

    def rows(self, index: I64) -> GraphBatch:
        """The graphs of the documents at `index`, in that order; a document may come twice."""
        g = self.graphs
        vertex_starts, vertices = taken_runs(g.vertex_starts, index)
        sentence_starts, sentences = taken_runs(g.sentence_starts, index)
        edge_starts, edges = taken_runs(g.edge_starts, vertices)
        attach_starts, attached = taken_runs(g.attach_starts, vertices)
        sizes = np.diff(vertex_starts)
        first_vertex, first_sentence = np.repeat(vertex_starts[:-1], sizes), np.repeat(sentence_starts[:-1], sizes)
        edges_at, attached_at = self._sent(edges), self._sent(attached)
        neighbours = self.neighbours[edges_at] + self._sent(
            np.repeat(first_vertex, np.diff(edge_starts)).astype(np.int32)
        )
        of_vertices = self.attached[attached_at] + self._sent(
            np.repeat(first_sentence, np.diff(attach_starts)).astype(np.int32)
        )
        ones = torch.ones(len(of_vertices), device=self.device)
        features = bag_sums(
            self.sentences[self._sent(sentences)].float(), Bags(self._sent(attach_starts), of_vertices, ones)
        )
        members = Bags(
            self._sent(vertex_starts),
            torch.arange(len(vertices), dtype=torch.int32, device=self.device),
            torch.ones(len(vertices), device=self.device),
        )
        return GraphBatch(features, Bags(self._sent(edge_starts), neighbours, self.weights[edges_at]), members)

    def _sent(self, array: Any) -> Tensor:
        return to_device(array, self.device)


def neighbour_sums(h_VD: Tensor, edges: Bags) -> Tensor:
    """(V, D): the weighted sum over the neighbours of each vertex.

    Edges stand in both directions, so the gradient is the same sum.
    """
    return cast(Callable[..., Tensor], _NeighbourSum.apply)(h_VD, edges)


class _NeighbourSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h_VD: Tensor, edges: Bags) -> Tensor:
        ctx.edges = edges
        return bag_sums(h_VD.contiguous(), edges)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return bag_sums(gradients[0].contiguous(), ctx.edges), None


def graph_sums(h_VD: Tensor, members: Bags) -> Tensor:
    """(B, D): the sum over the vertices of each document; zero where it has none."""
    return cast(Callable[..., Tensor], _GraphSum.apply)(h_VD, members)


class _GraphSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h_VD: Tensor, members: Bags) -> Tensor:
        ctx.members = members
        return bag_sums(h_VD.contiguous(), members)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.members.owners], None


CONVENTIONAL, REBALANCE = "conventional", "rebalance"
# Paper: GNN-XML Sec. 3.1: both branches count the same when the network is asked.
ALPHA_AT_INFERENCE = 0.5


class Branch(nn.Module):
    """What one branch has of its own: its last layers, the normalisation of h_G, and a classifier per cluster."""

    def __init__(
        self,
        layers: list[GinLayer],
        width: int,
        clusters: int,
        rng: np.random.Generator,
        dropout: float,
        norm: BatchNorm | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm if norm is not None else BatchNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.head = xavier_linear(width, clusters, rng)

    def forward(self, h_BD: Tensor) -> Tensor:
        """(B, K): scores of the clusters."""
        return self.head(self.dropout(h_BD))


class BilateralGin(nn.Module):
    """The matcher: from keyword graphs to the clusters of labels that a document has.

    layers: J. Without layers h_G is the sum of the vertices' features.
    concat: h_G joins all layers, else it is the last one alone.
    share: what branches have in common: nothing, all layers but the last (BBN's way), or all of them.
    learned_eps: whether eps is trained; it starts at 0, where the paper leaves it.
    """

    def __init__(
        self,
        inputs: int,
        clusters: int,
        rng: np.random.Generator,
        *,
        width: int = 256,
        layers: int = 2,
        concat: bool = True,
        branches: Branches = "both",
        share: Share = "all_but_last",
        readout: Readout = "sum",
        dropout: float = 0.0,
        learned_eps: bool = False,
    ) -> None:
        super().__init__()
        self.concat, self.readout, self.clusters = concat, readout, clusters
        sizes = [inputs, *[width] * layers]
        self.width = sum(sizes) if concat else sizes[-1]
        shared = {"none": 0, "all_but_last": max(layers - 1, 0), "all": layers}[share] if branches == "both" else 0

        def new_layers(first: int, last: int) -> list[GinLayer]:
            return [
                GinLayer(sizes[number], sizes[number + 1], rng, epsilon=torch.zeros(()), learned=learned_eps)
                for number in range(first, last)
            ]

        self.common = nn.ModuleList(new_layers(0, shared))
        names = [CONVENTIONAL, REBALANCE] if branches == "both" else [branches]
        norm = BatchNorm(self.width) if share == "all" and branches == "both" else None
        self.branches = nn.ModuleDict(
            {name: Branch(new_layers(shared, layers), self.width, clusters, rng, dropout, norm) for name in names}
        )

    @property
    def names(self) -> list[str]:
        """The branches there are."""
        return list(self.branches)

    def represent(self, batch: GraphBatch, names: list[str]) -> dict[str, Tensor]:
        """h_G of each branch in `names`: (B, width). What they share is computed once."""
        h, common = batch.vertices, [self._read(batch.vertices, batch)]
        for layer in self.common:
            h = layer(h, neighbour_sums(h, batch.edges))
            common.append(self._read(h, batch))
        return {name: self._own(h, common, batch, self.branches[name]) for name in names}

    def logits(self, vectors: dict[str, Tensor], alpha: float) -> Tensor:
        """(B, K): alpha W_c h^c + (1 - alpha) W_r h^r; of one branch alone its own."""
        found = {name: self.branches[name](h) for name, h in vectors.items()}
        if len(found) == 1:
            return next(iter(found.values()))
        return alpha * found[CONVENTIONAL] + (1 - alpha) * found[REBALANCE]

    def forward(self, batch: GraphBatch) -> Tensor:
        """(B, K) logits as the trained network gives them: both branches see the same documents and count the same."""
        return self.logits(self.represent(batch, self.names), ALPHA_AT_INFERENCE)

    def frozen(self, *, weighted: bool = False) -> FrozenGin:
        """Its twin in numpy, without the heads. weighted: whether it was trained on weighted edges."""
        branches: dict[str, Any] = dict(self.branches.items())
        twins = {
            name: FrozenBranch(_frozen_layers(branch.layers), *map(to_numpy, branch.norm.folded()))
            for name, branch in branches.items()
        }
        return FrozenGin(_frozen_layers(self.common), twins, self.concat, self.readout == "mean", weighted)

    def frozen_heads(self) -> F32:
        """(K, branches x D + 1): one row per cluster, to be multiplied with what `FrozenGin.encode` gives."""
        branches: dict[str, Any] = dict(self.branches.items())
        of_one = {CONVENTIONAL: ALPHA_AT_INFERENCE, REBALANCE: 1 - ALPHA_AT_INFERENCE}
        alpha = {name: of_one[name] if len(branches) == 2 else 1.0 for name in branches}
        weights = [alpha[name] * to_numpy(branches[name].head.weight) for name in sorted(branches)]
        bias = np.sum([alpha[name] * to_numpy(branch.head.bias) for name, branch in branches.items()], axis=0)
        return np.concatenate([*weights, bias[:, None]], axis=1).astype(np.float32)

    def _own(self, h: Tensor, read: list[Tensor], batch: GraphBatch, branch: Any) -> Tensor:
        parts = list(read)
        for layer in branch.layers:
            h = layer(h, neighbour_sums(h, batch.edges))
            parts.append(self._read(h, batch))
        return branch.norm(torch.cat(parts, dim=1) if self.concat else parts[-1])

    def _read(self, h_VD: Tensor, batch: GraphBatch) -> Tensor:
        sums = graph_sums(h_VD, batch.members)
        return sums / batch.sizes.clamp(min=1)[:, None] if self.readout == "mean" else sums


def _frozen_layers(layers: Any) -> tuple[FrozenGinLayer, ...]:
    return tuple(layer.frozen() for layer in layers)
