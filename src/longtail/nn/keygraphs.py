"""Graphs of documents as tensors: flat, taken by document without a Python loop, with sums along edges and over
graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from longtail.features.keygraph import KeyGraphs, taken
from longtail.nn.batches import Bags, sent, to_tensor
from longtail.nn.row_table import bag_sums
from longtail.types import I64


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
        return sent(array, self.device)


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
