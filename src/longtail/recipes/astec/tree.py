"""GAME put on a ranker that was trained without it. Paper: ECLARE Sec. 4 (GAME on Parabel and AttentionXML).

A cluster tree on top of a frozen encoder. Paper: Astec Sec. 5 (Parabel on the features of stage I).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from longtail.models.encoders import FrozenEncoder, Refinement
from longtail.persistence import Part, State
from longtail.search.game import Game, GameSettings, cluster_graph, per_label, rank_labels
from longtail.search.packed import Packer
from longtail.search.tree import ClusterTree
from longtail.types import F32, I32, Batch, Csr, Ranker, TopK

# Documents ranked at once: bounds the table of label scores.
_BLOCK = 1024


@runtime_checkable
class FindsClusters(Part, Protocol):
    """A ranker that finds leaves (clusters) of labels first, and scores the labels inside them: `ClusterTree`, for
    one.
    """

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


class Gamed(Ranker):
    """p = G_M p~ among the base's leaves, then s = G (r p) among the labels in the best of them, with the base's r
    given the leaf.

    As many leaves are looked into as the base finds. leaf_graph: (n, n) CSR; label_graph: (L, L) CSR.

    Differs: ECLARE multiplies by p after spreading r. There r is a probability in itself, here only within a leaf:
    labels of different leaves compare by r p alone. On a validation slice of debian-related, a tree on TF-IDF with
    P@1 37.2 and PSP@5 15.9 comes to 37.5 and 16.4 in this form (mix 0.5), to 37.0 and 15.9 in the other.
    """

    KIND = "gamed"

    def __init__(
        self, base: FindsClusters, leaf_graph: Csr, label_graph: Csr, mix: float = 1.0, transpose: bool = False
    ) -> None:
        for name, graph, size in (("leaves", leaf_graph, base.n_leaves), ("labels", label_graph, base.n_labels)):
            if graph.shape != (size, size):
                raise ValueError(f"a graph of shape {graph.shape} over {size} {name}")
        self.base, self.n_labels = base, base.n_labels
        self._leaves, self._labels = Game(leaf_graph, mix, transpose), Game(label_graph, mix, transpose)

    @classmethod
    def build(cls, base: FindsClusters, graph: Csr, settings: GameSettings) -> Gamed:
        """graph: (L, L), see `longtail.graph.label_graph`."""
        return cls(
            base,
            cluster_graph(graph, base.clusters, base.n_leaves, settings.clusters),
            graph,
            settings.mix,
            settings.transpose,
        )

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

    def state(self) -> State:
        values = {"mix": self._labels.mix, "transpose": self._labels.transpose}
        return State(values, {"leaf_graph": self._leaves.graph, "label_graph": self._labels.graph}, {"base": self.base})

    @classmethod
    def from_state(cls, state: State) -> Gamed:
        base = state.parts["base"]
        if not isinstance(base, FindsClusters):
            raise ValueError("GAME needs a ranker that finds clusters")
        return cls(base, state.arrays["leaf_graph"], state.arrays["label_graph"], **state.values)


@dataclass(frozen=True)
class EncodedTree(Ranker):
    """encode -> (refine) -> rank with a tree that was fitted on such vectors. A `Ranker` and a part."""

    KIND = "encoded-tree"

    encoder: FrozenEncoder
    refinement: Refinement | None
    tree: ClusterTree | Gamed

    def rank(self, batch: Batch, k: int) -> TopK:
        return self.tree.rank(Batch(dense=self.encode(batch)), k)

    def encode(self, batch: Batch) -> F32:
        """(B, D): what the tree reads."""
        vectors = self.encoder.encode(batch)
        return vectors if self.refinement is None else self.refinement.apply(vectors)

    def packed(self, packer: Packer) -> EncodedTree:
        return replace(self, encoder=self.encoder.packed(packer))

    def state(self) -> State:
        return State(parts={"encoder": self.encoder, "refinement": self.refinement, "tree": self.tree})

    @classmethod
    def from_state(cls, state: State) -> EncodedTree:
        parts: Any = state.parts
        return cls(parts["encoder"], parts["refinement"], parts["tree"])
