"""Where Astec looks labels up, and where its negatives come from (Paper: Astec Sec. 4, Module II); and the trees that
can take the place of its classifiers. Predicts without torch.

nearest_labels  label centroids, documents that vote, or both
best_clusters   the clusters of stage I, found by its own heads
EncodedTree     a cluster tree on top of a frozen encoder (Paper: Astec Sec. 5, Parabel on the features of stage I)
SpreadTree      GAME put on a tree that was trained without it (Paper: ECLARE Sec. 4, GAME on Parabel and AttentionXML)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from longtail.graph.label_graph import label_graph
from longtail.models.encoders import FrozenEncoder
from longtail.persistence import DataPart, Part
from longtail.search.index import CENTROIDS, DOCUMENTS
from longtail.search.linear import ClusterTree
from longtail.search.negatives import InBatchNegatives, Negatives, RandomNegatives, ShortlistNegatives
from longtail.search.packed import Packer
from longtail.search.shortlist import (
    ClusterBeam,
    Game,
    GameSettings,
    InstanceVote,
    LabelIndex,
    MergedShortlist,
    cluster_graph,
    per_label,
    rank_labels,
)
from longtail.types import F32, I32, Batch, Csr, Ranker, TopK

if TYPE_CHECKING:
    from longtail.recipes.astec.settings import AstecClassifyConfig, AstecConfig
    from longtail.training.prepare import TrainingSet
    from longtail.training.run import Run
    from longtail.training.surrogate import Surrogate


@dataclass(frozen=True)
class AstecShortlists(DataPart):
    """What stage II leaves behind: the shortlister, and the hard negatives that it found for the training documents."""

    KIND = "astec-shortlists"

    shortlister: Any
    negatives: ShortlistNegatives | None


def nearest_labels(
    vectors: F32, targets: Csr, config: AstecConfig, run: Run
) -> LabelIndex | InstanceVote | MergedShortlist:
    """Label centroids, documents that vote, or both; exact on a GPU, on a CPU by size.  vectors: (N, D), v."""
    from longtail.training.indices import index_on  # needs torch

    c = config.shortlist

    def votes() -> InstanceVote:
        make_index = index_on(run.device, c.index, DOCUMENTS)
        return InstanceVote.build(vectors, targets, neighbours=c.neighbours, make_index=make_index)

    if c.structures == "documents":
        return votes()
    labels = LabelIndex.build(
        vectors,
        targets,
        make_index=index_on(run.device, c.index, CENTROIDS),
        head_centres=c.head_centres,
        head_documents=c.head_labels,
        rng=run.rng("head centres"),
    )
    # Slice looks labels up by their centroids alone.
    alone = c.structures == "labels" or config.classify.learner == "slice"
    return labels if alone else MergedShortlist(labels, votes(), c.gamma, c.reserved)


def best_clusters(surrogate: Surrogate, graph: Csr | None, config: AstecConfig, run: Run) -> ClusterBeam:
    """The clusters of stage I as shortlists of about the size that the settings ask for. graph: of labels, for GAME."""
    from longtail.training.indices import cluster_beam  # needs torch

    heads, clusters = surrogate.heads, surrogate.clusters
    beam = math.ceil(config.shortlist.size * len(heads) / max(int((clusters >= 0).sum()), 1))
    return cluster_beam(heads, clusters, graph, config.game, beam=beam, device=run.device)


def game_graph(data: TrainingSet, config: AstecConfig, run: Run) -> Csr | None:
    """The label graph that GAME spreads scores along, the same whenever it is asked for; None where GAME is off."""
    if not config.game.enabled:
        return None
    return label_graph(data.targets, config.graph, run.rng("label graph"), data.label_graphs())


def sampled_negatives(targets: Csr, forbidden: Csr, config: AstecClassifyConfig) -> Negatives:
    """Negatives that no search finds. Paper: Astec Sec. 5 (ablations of the sampler)."""
    count = min(config.count, int(targets.shape[1]))
    if config.negatives == "inbatch":
        return InBatchNegatives(targets, forbidden, count)
    if config.negatives == "unigram":
        return RandomNegatives.unigram(targets, forbidden, count)
    return RandomNegatives(forbidden, count)


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
    """encode -> rank with a tree that was fitted on such vectors. A `Ranker` and a part."""

    KIND = "encoded-tree"

    encoder: FrozenEncoder
    tree: ClusterTree | SpreadTree

    def rank(self, batch: Batch, k: int) -> TopK:
        return self.tree.rank(Batch(dense=self.encode(batch)), k)

    def encode(self, batch: Batch) -> F32:
        """(B, D): what the tree reads."""
        return self.encoder.encode(batch)

    def document_encoder(self) -> FrozenEncoder:
        return self.encoder

    def packed(self, packer: Packer) -> EncodedTree:
        return replace(self, encoder=self.encoder.packed(packer))
