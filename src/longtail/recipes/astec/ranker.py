"""A cluster tree on top of a frozen encoder (Paper: Astec Sec. 5, Parabel on the features of stage I), and GAME put on
a tree that was trained without it (Paper: ECLARE Sec. 4, GAME on Parabel and AttentionXML).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from longtail.models.encoders import FrozenEncoder, Refinement
from longtail.persistence import DataPart, Part
from longtail.search.linear import ClusterTree
from longtail.search.packed import Packer
from longtail.search.shortlist import Game, GameSettings, cluster_graph, per_label, rank_labels
from longtail.types import F32, I32, Batch, Csr, Ranker, TopK

# Documents ranked at once: bounds the table of label scores.
_BLOCK = 1024


@runtime_checkable
class FindsClusters(Part, Protocol):
    """A ranker that finds leaves (clusters) of labels first and scores the labels inside them, like `ClusterTree`."""

    @property
    def n_labels(self) -> int: ...

    @property
    def n_leaves(self) -> int: ...

    @property
    def clusters(self) -> I32:
        """(L,) the leaf of every label, -1 for none."""
        ...

    def leaf_scores(self, batch: Batch) -> TopK:
        """(B, m): the best leaves and their probabilities."""
        ...

    def label_scores(self, batch: Batch, leaves: I32) -> tuple[I32, F32]:
        """(B, m * size): all labels of given leaves (B, m), leaf after leaf, and their probabilities given the leaf;
        -1 and 0 as padding.
        """
        ...


@dataclass(frozen=True)
class SpreadTree(DataPart, Ranker):
    """A tree whose scores are spread along the label graph (GAME): p = G_M p~ among the base's leaves, then
    s = G (r p) among the labels in the best of them, with the base's r given the leaf.

    As many leaves are looked into as the base finds. leaf_graph: (n, n) CSR; label_graph: (L, L) CSR.

    Differs: ECLARE multiplies by p after spreading r; here r is a probability within a leaf only, so r p is spread.
    """

    KIND = "spread-tree"

    base: FindsClusters
    leaf_graph: Csr
    label_graph: Csr
    mix: float = 1.0
    transpose: bool = False
    _leaves: Game = field(init=False, repr=False, compare=False)
    _labels: Game = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base = self.base
        for name, graph, size in (
            ("leaves", self.leaf_graph, base.n_leaves),
            ("labels", self.label_graph, base.n_labels),
        ):
            if graph.shape != (size, size):
                raise ValueError(f"a graph of shape {graph.shape} over {size} {name}")
            object.__setattr__(self, f"_{name}", Game(graph, self.mix, self.transpose))

    @classmethod
    def build(cls, base: FindsClusters, graph: Csr, settings: GameSettings) -> SpreadTree:
        """graph: (L, L), see `longtail.graph.label_graph`."""
        leaf_graph = cluster_graph(graph, base.clusters, base.n_leaves, settings.clusters)
        return cls(base, leaf_graph, graph, settings.mix, settings.transpose)

    @property
    def n_labels(self) -> int:
        return self.base.n_labels

    @property
    def clusters(self) -> I32:
        """(L,) the base's leaf of every label, -1 for none."""
        return self.base.clusters

    def leaf_scores(self, batch: Batch) -> TopK:
        """The best leaves after GAME."""
        found = self.base.leaf_scores(batch)
        return self._leaves.spread(found.ids, np.where(found.ids >= 0, found.scores, np.float32(0)), found.k)

    def rank(self, batch: Batch, k: int) -> TopK:
        top = TopK.padding(len(batch), min(k, self.n_labels))
        for start in range(0, len(batch), _BLOCK):
            part = slice(start, start + _BLOCK)
            leaves = self.leaf_scores(batch.rows(part))
            labels, r = self.base.label_scores(batch.rows(part), leaves.ids)
            p = per_label(np.where(leaves.ids >= 0, leaves.scores, np.float32(0)), labels)
            rank_labels(labels, self._labels.within(labels, r * p), TopK(top.ids[part], top.scores[part]))
        return top


@dataclass(frozen=True)
class EncodedTree(DataPart, Ranker):
    """encode -> (refine) -> rank with a tree that was fitted on such vectors. A `Ranker` and a part."""

    KIND = "encoded-tree"

    encoder: FrozenEncoder
    refinement: Refinement | None
    tree: ClusterTree | SpreadTree

    def rank(self, batch: Batch, k: int) -> TopK:
        return self.tree.rank(Batch(dense=self.encode(batch)), k)

    def encode(self, batch: Batch) -> F32:
        """(B, D): what the tree reads."""
        vectors = self.encoder.encode(batch)
        return vectors if self.refinement is None else self.refinement.apply(vectors)

    def document_encoder(self) -> FrozenEncoder:
        return self.encoder

    def packed(self, packer: Packer) -> EncodedTree:
        return replace(self, encoder=self.encoder.packed(packer))
