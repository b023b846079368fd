"""Settings of ECLARE. Every ablation of the paper is one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from longtail.config import section, setting
from longtail.features.settings import FeaturesConfig
from longtail.graph.label_graph import LabelGraphConfig
from longtail.recipes.base import TUNABLE_FEATURES, EnsembleConfig
from longtail.search.cluster import cluster_count
from longtail.search.shortlist import GameSettings
from longtail.training import ADAPTS, KEEPS

# At most the paper's number for large data sets. Below that more than half as many as labels, where the paper has
# 32,768 for 131K (its preset): many small clusters are better than few large ones (docs/experiments.md).
MOST_CLUSTERS, LABELS_PER_CLUSTER = 2**17, 1
# About so many labels a beam shall hold, and so many clusters at least.
BEAM_LABELS, LEAST_BEAM = 480, 10

GraphPart = Literal["gale", "gcn", "lightgcn", "none"]
MixMode = Literal["attention", "shared", "sum", "mean"]

# Documents per step, before they adapt to the data. A step composes the rows of nearly all labels whatever its
# documents are, which on a CPU is most of its time (`benchmarks.speed composed-step`): there steps are as large
# as they may be.
BATCH, CPU_BATCH = 255, 8192


@dataclass(frozen=True)
class CompositionConfig:
    text: bool = setting(True, "a component from the label's own text (LTE)")
    graph: GraphPart = setting(
        "gale",
        "a component from the texts of its neighbours: GALE, a plain graph convolution, a linear one (lightgcn), or "
        "none",
    )
    order: int = setting(1, "how far neighbours are followed; a component for each step of GALE", low=1, high=8)
    free: bool = setting(True, "a component of numbers of the label's own (refinement vector)")
    mix: MixMode = setting(
        "attention", "how components become one row: attention per label, weights shared by all labels, sum or mean"
    )
    bias: bool = setting(
        True,
        "a bias per classifier, which starts at the log-odds of a label (the released code; the paper's formulas "
        "have none)",
    )
    attention_sigmoid: bool = setting(True, "a sigmoid inside the attention (the paper; its released code has none)")
    mix_rate: float = setting(1.0, "the rate of what attention learns, as a multiple of all others'", low=0)
    clamp_scale: bool = setting(False, "keep the trained scale of every embedding block within -1..1")


@dataclass(frozen=True)
class TrainingConfig:
    batch: int = setting(
        0,
        f"documents per step; {ADAPTS}; 0: {BATCH}, on a CPU {CPU_BATCH:,} with rates that grow with its root",
        low=0,
    )
    batch_adapts: bool = setting(True, KEEPS)
    dropout: float = setting(0.2, "share of numbers dropped after each ReLU", low=0, high=0.99)
    halve_after: float = setting(
        0.5, "share of a stage's epochs after which its rate is halved, again and again", low=0.01, high=1
    )


@dataclass(frozen=True)
class EclareSurrogateConfig:
    clusters: int = setting(
        0,
        f"clusters of labels; 0: at least `labels_per_cluster` labels to each, at most {MOST_CLUSTERS} clusters",
        low=0,
    )
    labels_per_cluster: int = setting(
        LABELS_PER_CLUSTER, "clusters=0: labels to each cluster at least; twice as many are half of the clusters", low=1
    )
    augmented: bool = setting(
        True, "complete the centroids of labels along the label graph before clustering, in stages I and II"
    )
    width: int = setting(512, "numbers per document vector", low=2)
    epochs: int = setting(20, "passes over the documents", low=0)
    rate: float = setting(0.002, "learning rate of Adam", low=0)


@dataclass(frozen=True)
class EclareShortlistConfig:
    beam: int = setting(
        0, f"clusters per document; 0: as many as hold about {BEAM_LABELS} labels, at least {LEAST_BEAM}", low=0
    )
    epochs: int = setting(10, "passes over the documents", low=0)
    rate: float = setting(0.002, "learning rate of Adam", low=0)


@dataclass(frozen=True)
class EclareTransferConfig:
    start: Literal["graph", "text", "random"] = setting(
        "graph", "what free vectors start from: neighbours' texts (the paper), the own text (DECAF), or chance"
    )


@dataclass(frozen=True)
class EclareClassifyConfig:
    negatives: Literal["shortlist", "ppr", "uniform", "full"] = setting(
        "shortlist",
        "where negatives come from: labels of the best clusters, personalised PageRank on the label graph, any "
        "labels, or all of them",
    )
    count: int = setting(0, "negatives per document; 0: as many as a shortlist holds", low=0)
    random: int = setting(0, "more negatives, uniform, drawn anew in every epoch", low=0)
    positives: int = setting(100, "labels of a document per step at most", low=1)
    cluster_power: float = setting(
        0.5,
        "what the score of its cluster counts in a label's final score: 1 as much (the paper), 0 nothing",
        low=0,
        high=1,
    )
    epochs: int = setting(10, "passes over the documents", low=0)
    rate: float = setting(0.002, "learning rate of Adam", low=0)


@dataclass(frozen=True)
class EclareStages:
    """All settings but those that every recipe has."""

    graph: LabelGraphConfig = section(LabelGraphConfig, "which labels belong together")
    composition: CompositionConfig = section(CompositionConfig, "what classifiers of clusters and labels are made of")
    surrogate: EclareSurrogateConfig = section(EclareSurrogateConfig, "stage I")
    shortlist: EclareShortlistConfig = section(EclareShortlistConfig, "stage II")
    transfer: EclareTransferConfig = section(EclareTransferConfig, "stage III")
    classify: EclareClassifyConfig = section(EclareClassifyConfig, "stage IV")
    game: GameSettings = section(GameSettings, "scores spread along the label graph", mix=0.5)
    training: TrainingConfig = section(TrainingConfig, "what stages I, II and IV have in common")

    def n_clusters(self, n_labels: int) -> int:
        s = self.surrogate
        return cluster_count(n_labels, s.clusters, labels_per_cluster=s.labels_per_cluster, at_most=MOST_CLUSTERS)

    def beam_size(self, n_labels: int) -> int:
        """Clusters per document."""
        clusters = self.n_clusters(n_labels)
        return min(clusters, self.shortlist.beam or default_beam(clusters, n_labels))

    def uses_text(self) -> bool:
        """Whether texts of labels are of use to their classifiers, as components or as the start of free vectors."""
        return self.composition.text or self.composition.graph != "none" or self.transfer.start != "random"

    def uses_graph(self) -> bool:
        """Whether the label graph is of use anywhere."""
        return (
            self.composition.graph != "none"
            or self.surrogate.augmented
            or self.game.enabled
            or self.transfer.start == "graph"
            or self.classify.negatives == "ppr"
        )


@dataclass(frozen=True)
class EclareConfig(EclareStages):
    features: FeaturesConfig = section(
        FeaturesConfig, "which texts are read, and how they become numbers", subwords="chars"
    )
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")


# What is worth trying (`longtail tune`).
TUNABLE: Mapping[str, tuple[Any, ...]] = {
    **TUNABLE_FEATURES,
    "surrogate.width": (256, 512),
    "surrogate.rate": (0.001, 0.002, 0.005),
    "classify.rate": (0.001, 0.002, 0.005),
    "classify.cluster_power": (0.25, 0.5, 1.0),
    "training.dropout": (0.0, 0.2, 0.5),
    "game.mix": (0.0, 0.5, 1.0),
}


def default_beam(n_clusters: int, n_labels: int) -> int:
    """Clusters to look into. Paper: ECLARE Sec. 4 has 120 for 131K labels, 498 for 1.3M."""
    return max(LEAST_BEAM, math.ceil(BEAM_LABELS * n_clusters / max(n_labels, 1)))
