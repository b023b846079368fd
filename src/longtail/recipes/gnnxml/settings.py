"""Settings of GNN-XML: the paper's ablations, and every number of its stages that can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from longtail.config import section, setting
from longtail.recipes.base import TUNABLE_FEATURES, EnsembleConfig
from longtail.recipes.gnnxml.features import GraphFeaturesConfig
from longtail.recipes.gnnxml.ranker import RankerReads
from longtail.search.linear import LinearConfig
from longtail.training import ADAPTS

# Settings of the paper's ablations (Fig. 3 and 4).
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "v1": ("matcher.layers=0", "matcher.branches=conventional"),
    "v2": ("matcher.branches=conventional", "matcher.concat=false"),
    "v3": ("matcher.concat=false",),
    "v4": (),
    "random": ("clusters.partition=random",),
    "k-means": ("clusters.partition=kmeans",),
    "tf-idf": ("clusters.features=tfidf",),
}

Share: TypeAlias = Literal["none", "all_but_last", "all"]
Branches: TypeAlias = Literal["both", "conventional", "rebalance"]
Readout: TypeAlias = Literal["sum", "mean", "unit"]
Balance: TypeAlias = Literal["parabolic", "linear", "cosine", "constant", "reversed"]


@dataclass(frozen=True)
class ClusterConfig:
    """How labels are grouped."""

    partition: Literal["graph", "kmeans", "random", "even"] = setting(
        "graph",
        "graph: k-means of filtered features; kmeans: of plain ones; random: by chance; even: filtered, in clusters "
        "of equal size",
    )
    count: int = setting(0, "clusters; 0: a 60th of the labels, at least the root of their number", low=0)
    features: Literal["documents", "tfidf", "label_text", "both"] = setting(
        "documents",
        "features of a label: the sentence vectors of its documents, their TF-IDF rows, the vector of its own text, "
        "or documents and own text",
    )
    threshold: float = setting(
        0.4,
        "labels i and j are joined if so large a share of the documents with i has j (the paper's rho)",
        low=0.0,
        high=1.0,
    )
    weight: float = setting(
        0.2, "share of a label's features that comes from its neighbours (the paper's tau)", low=0.0, high=1.0
    )
    order: int = setting(3, "how often the filter is applied", low=0, high=100)
    directed: bool = setting(False, "leave the graph unsymmetrised, as the paper prints it")
    sample: int = setting(
        0, "columns of the graph that each step of the filter samples, for very many labels; 0: all of them", low=0
    )
    batch: int = setting(10_000, "labels per round of k-means", low=1)
    rounds: int = setting(100, "rounds of k-means", low=1)


@dataclass(frozen=True)
class MatcherConfig:
    layers: int = setting(2, "steps of message passing; 0: the sum of the vertices' features", low=0, high=10)
    width: int = setting(256, "numbers per vertex after a step", low=2)
    concat: bool = setting(True, "the document's vector joins all layers, not the last alone")
    readout: Readout = setting(
        "sum",
        "vertices of a document are summed, averaged, or summed and brought to unit length, layer by layer: sums are "
        "the longer the longer a document is",
    )
    weighted: bool = setting(False, "neighbours count by the number of sentences they share")
    learned_eps: bool = setting(False, "train the weight of a vertex itself beside its neighbours")
    branches: Branches = setting("both", "documents as they come, those of rare labels, or both")
    share: Share = setting("all_but_last", "layers that both branches have in common")
    balance: Balance = setting("parabolic", "how the weight moves from the conventional branch to the other")
    reverse_by: Literal["label", "cluster"] = setting(
        "label", "what the second branch draws documents by: rare labels or rare clusters"
    )
    weigh_positives: bool = setting(
        True, "a cluster that a document has counts more than one it has not, up to 10 times"
    )
    dropout: float = setting(
        0.5, "share of the document vector's numbers that is dropped in training", low=0, high=0.99
    )
    epochs: int = setting(30, "passes over the documents", low=0)
    rate: float = setting(0.01, "learning rate of RAdam", low=0)
    warm_up: float = setting(0.1, "share of the training during which the rate rises", low=0, high=1)
    rate_end: float = setting(0.1, "what is left of the rate at the end", low=0, high=1)
    batch: int = setting(128, f"pairs of documents per step; {ADAPTS}", low=1)
    validation: float = setting(
        0.05, "share of documents held out to choose the best epoch; 0: the last", low=0, high=0.5
    )
    patience: int = setting(10, "epochs without a better loss on these before training stops", low=1)
    fewest: float = setting(0.7, "share of the epochs before which none is the best", low=0, high=1)
    best_by: Literal["loss", "rare"] = setting(
        "loss",
        "what the best epoch is chosen by: the loss of clusters; or how much of the labels is in the clusters that are "
        "looked into, rare labels counting more, as in PSP",
    )


@dataclass(frozen=True)
class RankerConfig:
    reads: RankerReads = setting("tfidf", "features: TF-IDF rows, the matcher's vectors, or both")
    graph_weight: float = setting(1.0, "length of the matcher's vector beside the TF-IDF row's of 1", low=0)
    mistakes: int = setting(
        15,
        "clusters that the matcher finds first for a document: it is a negative of their labels too; best as many "
        "as are looked into; 0: none",
        low=0,
    )
    beam: int = setting(0, "clusters that are looked into; 0: log2 of the number of labels", low=0)
    reach: int = setting(
        0,
        "labels that are looked at: clusters are looked into, best first, until they hold so many, whatever their "
        "number and sizes; 0: as many clusters as `beam` says",
        low=0,
    )
    cluster_power: float = setting(
        0.5,
        "what the gate of a cluster counts in a score: gate^this x probability; 1: the paper's; 0: not at all",
        low=0,
    )
    logit_scale: float = setting(
        1.0, "log-odds of clusters are multiplied by this; 0.5: as flat as those that two branches share", low=0.01
    )
    rarity: float = setting(
        0.0,
        "log-odds of a label rise by this x ln(n_max / n), n its documents: rare labels come first more often",
        low=0,
    )
    linear: LinearConfig = section(LinearConfig, "the logistic regressions", loss="logistic", cost=100.0, prune=0.1)


@dataclass(frozen=True)
class GnnXmlConfig:
    features: GraphFeaturesConfig = section(
        GraphFeaturesConfig, "which texts are read, and how they become numbers and graphs", source="text", pairs=False
    )
    clusters: ClusterConfig = section(ClusterConfig, "stage I")
    matcher: MatcherConfig = section(MatcherConfig, "stage II")
    rankers: RankerConfig = section(RankerConfig, "stage IV")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")


# What is worth trying (`longtail tune`).
TUNABLE: Mapping[str, tuple[Any, ...]] = {
    **TUNABLE_FEATURES,
    "clusters.weight": (0.0, 0.2, 0.5),
    "matcher.width": (128, 256, 512),
    "matcher.rate": (0.003, 0.01, 0.03),
    "matcher.dropout": (0.2, 0.5),
    "rankers.linear.cost": (1.0, 10.0, 100.0),
}
