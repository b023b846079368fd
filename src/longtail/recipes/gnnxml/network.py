"""Graphs of documents as tensors: flat, taken by document without a Python loop, with sums along edges and over
graphs.

Graph isomorphism networks over keyword graphs, in two branches. Paper: GNN-XML Sec. 3.1, Eq. 4 to 6.

    h^k_v = MLP^k((1 + eps^k) h^{k-1}_v + sum over neighbours u of h^{k-1}_u),   MLP = Linear, BatchNorm, ReLU,
    Linear, ReLU
    h_G   = BatchNorm(concat over k = 0..J of the sum over vertices of h^k_v)
    g     = sigmoid(alpha W_c h^c_G + (1 - alpha) W_r h^r_G)

The conventional branch (c) sees documents as they come, the re-balance branch (r) those of rare labels more often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import Bags, to_device, to_numpy, to_tensor
from longtail.nn.initial import xavier_linear
from longtail.nn.rows import bag_sums
from longtail.recipes.gnnxml.encoder import FrozenBranch, FrozenGin, FrozenLayer
from longtail.recipes.gnnxml.keygraph import KeyGraphs, taken
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
        vertex_starts, vertices = taken(g.vertex_starts, index)
        sentence_starts, sentences = taken(g.sentence_starts, index)
        edge_starts, edges = taken(g.edge_starts, vertices)
        attach_starts, attached = taken(g.attach_starts, vertices)
        sizes = np.diff(vertex_starts)
        first_vertex, first_sentence = np.repeat(vertex_starts[:-1], sizes), np.repeat(sentence_starts[:-1], sizes)
        edges_at, attached_at = self._there(edges), self._there(attached)
        neighbours = self.neighbours[edges_at] + self._there(
            np.repeat(first_vertex, np.diff(edge_starts)).astype(np.int32)
        )
        of_vertices = self.attached[attached_at] + self._there(
            np.repeat(first_sentence, np.diff(attach_starts)).astype(np.int32)
        )
        ones = torch.ones(len(of_vertices), device=self.device)
        features = bag_sums(
            self.sentences[self._there(sentences)].float(), Bags(self._there(attach_starts), of_vertices, ones)
        )
        members = Bags(
            self._there(vertex_starts),
            torch.arange(len(vertices), dtype=torch.int32, device=self.device),
            torch.ones(len(vertices), device=self.device),
        )
        return GraphBatch(features, Bags(self._there(edge_starts), neighbours, self.weights[edges_at]), members)

    def _there(self, array: Any) -> Tensor:
        return to_device(array, self.device)


def neighbour_sums(h_VD: Tensor, edges: Bags) -> Tensor:
    """(V, D): the weighted sum over the neighbours of each vertex. Edges stand in both directions, so the gradient is
    the same sum.
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


Share: TypeAlias = Literal["none", "all_but_last", "all"]
Branches: TypeAlias = Literal["both", "conventional", "rebalance"]
Readout: TypeAlias = Literal["sum", "mean"]

CONVENTIONAL, REBALANCE = "conventional", "rebalance"
# Paper: GNN-XML Sec. 3.1: both branches count the same when the network is asked.
ALPHA_AT_INFERENCE = 0.5


class Norm(nn.BatchNorm1d):
    """Batch normalisation that takes its running statistics where a batch has fewer than two rows."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) < 2:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        return super().forward(x)

    def folded(self) -> tuple[F32, F32]:
        """(D,) scale and shift that it is out of training."""
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = self.weight / torch.sqrt(self.running_var + self.eps)
        return to_numpy(scale), to_numpy(self.bias - self.running_mean * scale)


class GinLayer(nn.Module):
    """One step of message passing. learned: whether eps is trained; it starts at 0, where the paper leaves it."""

    def __init__(self, inputs: int, width: int, rng: np.random.Generator, *, learned: bool = False) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()), requires_grad=learned)
        self.first, self.norm, self.second = (
            xavier_linear(inputs, width, rng),
            Norm(width),
            xavier_linear(width, width, rng),
        )

    def forward(self, h_VD: Tensor, batch: GraphBatch) -> Tensor:
        gathered = (1 + self.eps) * h_VD + neighbour_sums(h_VD, batch.edges)
        return torch.relu(self.second(torch.relu(self.norm(self.first(gathered)))))

    def frozen(self) -> FrozenLayer:
        scale, shift = self.norm.folded()
        first = to_numpy(self.first.weight) * scale[:, None]
        first_bias = to_numpy(self.first.bias) * scale + shift
        return FrozenLayer(
            float(self.eps.detach()), first, first_bias, to_numpy(self.second.weight), to_numpy(self.second.bias)
        )


class Branch(nn.Module):
    """What one branch has of its own: its last layers, the normalisation of h_G, and a classifier per cluster."""

    def __init__(
        self,
        layers: list[GinLayer],
        width: int,
        clusters: int,
        rng: np.random.Generator,
        dropout: float,
        norm: Norm | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm if norm is not None else Norm(width)
        self.dropout = nn.Dropout(dropout)
        self.head = xavier_linear(width, clusters, rng)

    def forward(self, h_BD: Tensor) -> Tensor:
        """(B, K): scores of the clusters."""
        return self.head(self.dropout(h_BD))

    def frozen(self) -> FrozenBranch:
        return FrozenBranch(_frozen_layers(self.layers), *self.norm.folded())


class BilateralGin(nn.Module):
    """The matcher: from keyword graphs to the clusters of labels that a document has.

    layers: J. Without layers h_G is the sum of the vertices' features. concat: h_G joins all layers, else it is the
        last one alone.
    share: what branches have in common: nothing, all layers but the last (BBN's way), or all of them.
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
                GinLayer(sizes[number], sizes[number + 1], rng, learned=learned_eps) for number in range(first, last)
            ]

        self.common = nn.ModuleList(new_layers(0, shared))
        names = [CONVENTIONAL, REBALANCE] if branches == "both" else [branches]
        norm = Norm(self.width) if share == "all" and branches == "both" else None
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
            h = layer(h, batch)
            common.append(self._read(h, batch))
        return {name: self._own(h, common, batch, self.branches[name]) for name in names}

    def logits(self, vectors: dict[str, Tensor], alpha: float) -> Tensor:
        """(B, K): alpha W_c h^c + (1 - alpha) W_r h^r; of one branch alone its own."""
        found = {name: self.branches[name](h) for name, h in vectors.items()}
        if len(found) == 1:
            return next(iter(found.values()))
        return alpha * found[CONVENTIONAL] + (1 - alpha) * found[REBALANCE]

    def forward(self, batch: GraphBatch) -> Tensor:
        """(B, K) logits as the trained network gives them: the same documents to both branches, which count the
        same.
        """
        return self.logits(self.represent(batch, self.names), ALPHA_AT_INFERENCE)

    def frozen(self, *, weighted: bool = False) -> FrozenGin:
        """Its twin in numpy, without the heads. weighted: whether it was trained on weighted edges."""
        branches: dict[str, Any] = dict(self.branches.items())
        twins = {name: branch.frozen() for name, branch in branches.items()}
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
            h = layer(h, batch)
            parts.append(self._read(h, batch))
        return branch.norm(torch.cat(parts, dim=1) if self.concat else parts[-1])

    def _read(self, h_VD: Tensor, batch: GraphBatch) -> Tensor:
        sums = graph_sums(h_VD, batch.members)
        return sums / batch.sizes.clamp(min=1)[:, None] if self.readout == "mean" else sums


def _frozen_layers(layers: Any) -> tuple[FrozenLayer, ...]:
    return tuple(layer.frozen() for layer in layers)
