"""GNN-XML: keyword graphs, clusters of labels by a graph filter, two branches for rare labels (Paper: Zong, Sun,
NeurIPS 2020).

    features  a document is a graph of its keywords, whose vertices carry vectors of the sentences they occur in
    I     labels are clustered: features of their documents, smoothed over labels that occur together, mini-batch
          k-means
    II    a graph isomorphism network of two branches learns which clusters a document has: one branch sees documents
          as they come, the other those of rare labels more often; the weight moves from the first to the second in
          the course of training
    III   nothing to transfer
    IV    one logistic regression per label, among the documents of its cluster and those that stage II takes for such
    then  score = gate of the cluster x probability of the label, inside the best clusters

Every ablation of the paper is a setting: see `VARIANTS`. It is made for long texts (`features.fields=title,content`);
titles have windows of words in place of sentences.

Differs: sentences are encoded by an SVD of the documents' TF-IDF rows; the paper's BERT cannot be had offline
(`features.keygraph.encoder` takes other encoders).
Differs: keywords come from TextRank alone; a recogniser of named entities is a setting, as no model is at hand offline.
Differs, where the paper's text is silent (its supplement is missing): layers, width, normalisation and dropout of the
network, what the branches share, the bias of heads, the weight of positives, thresholds of the label graph, the
number of clusters that are looked into, the features and the cost of rankers. The docstrings of the parts say what
was chosen; defaults are the spec's, or were chosen on a slice of the training documents of debian-related.
Differs: the best epoch is looked for in the last 30% of epochs only: the paper's patience could stop before rare
    labels had their turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from longtail.config import section, setting
from longtail.errors import ConfigError
from longtail.kernels.arrays import csr
from longtail.persistence import State
from longtail.recipes.base import EnsembleConfig, Recipe
from longtail.recipes.gnnxml.clusters import ClusterConfig, joined_features, label_clusters
from longtail.recipes.gnnxml.encoder import FrozenGin, joined, ranker_vectors
from longtail.recipes.gnnxml.features import GraphFeaturesConfig
from longtail.recipes.gnnxml.frequency import FrequencyCurves
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.network import BilateralGin, Branches, DeviceGraphs, Readout, Share
from longtail.recipes.gnnxml.objective import Balance, Bilateral, ReversedSampler
from longtail.recipes.gnnxml.ranker import KeygraphModel, RankerReads
from longtail.recipes.gnnxml.rankers import ClusterRankers, RankerInput
from longtail.search.cluster import label_centroids, meta_labels
from longtail.search.index import ExactIndex
from longtail.search.linear import LinearConfig
from longtail.training.fit import WarmUp, fit_stage
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I32, I64, Csr

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

# Fewer documents held out than this say nothing about when to stop.
_FEWEST_TO_VALIDATE = 20


@dataclass(frozen=True)
class MatcherConfig:
    layers: int = setting(2, "steps of message passing; 0: the sum of the vertices' features", low=0, high=10)
    width: int = setting(256, "numbers per vertex after a step", low=2)
    concat: bool = setting(True, "the document's vector joins all layers, not the last alone")
    readout: Readout = setting("sum", "vertices of a document are summed, or averaged")
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
    batch: int = setting(
        128, "pairs of documents per step; adapts to small and large data, an epoch has 64 to 512 steps", low=1
    )
    validation: float = setting(
        0.05, "share of documents held out to choose the best epoch; 0: the last", low=0, high=0.5
    )
    patience: int = setting(10, "epochs without a better loss on these before training stops", low=1)
    fewest: float = setting(0.7, "share of the epochs before which none is the best", low=0, high=1)


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
    linear: LinearConfig = section(LinearConfig, "the logistic regressions", loss="logistic", cost=100.0, prune=0.1)


@dataclass(frozen=True)
class GnnXmlConfig:
    features: GraphFeaturesConfig = section(
        GraphFeaturesConfig, "which texts are read, and how they become numbers and graphs", source="text"
    )
    clusters: ClusterConfig = section(ClusterConfig, "stage I")
    matcher: MatcherConfig = section(MatcherConfig, "stage II")
    rankers: RankerConfig = section(RankerConfig, "stage IV")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")


@dataclass(frozen=True)
class Clusters:
    """What stage I leaves behind. clusters: (L,), -1 for labels without documents."""

    KIND = "gnnxml-clusters"

    clusters: I32

    @property
    def count(self) -> int:
        return int(self.clusters.max(initial=-1)) + 1

    def targets(self, labels: Csr) -> Csr:
        """(N, K) CSR: the clusters of each document."""
        present = self.clusters >= 0
        return meta_labels(labels.tocsc()[:, present].tocsr(), self.clusters[present], self.count)

    def state(self) -> State:
        return State(arrays={"clusters": self.clusters})

    @classmethod
    def from_state(cls, state: State) -> Clusters:
        return cls(state.arrays["clusters"])


@dataclass(frozen=True)
class Matcher:
    """What stage II leaves behind: the network, its heads, and for every training document its vector and the
    clusters that it finds.

    heads: (K, branches x D + 1). vectors: (N, D). found: (N, m), best first.
    """

    KIND = "gnnxml-matcher"

    encoder: FrozenGin
    heads: F32
    vectors: F32
    found: I32

    def found_clusters(self) -> Csr:
        """(N, K) CSR of ones."""
        n, found = self.found.shape
        return csr(
            np.ones(n * found, np.float32),
            np.asarray(self.found).ravel(),
            np.arange(n + 1) * found,
            (n, len(self.heads)),
        )

    def state(self) -> State:
        return State(
            arrays={"heads": self.heads, "vectors": self.vectors, "found": self.found}, parts={"encoder": self.encoder}
        )

    @classmethod
    def from_state(cls, state: State) -> Matcher:
        encoder: Any = state.parts["encoder"]
        return cls(encoder, **state.arrays)


class GnnXml(Recipe):
    NAME = "gnnxml"
    CONFIG = GnnXmlConfig

    def __init__(self, config: GnnXmlConfig) -> None:
        self.config: GnnXmlConfig = config

    def memory(self, data: TrainingSet) -> int:
        """Graphs twice, label features, vectors of documents, and the rows of rankers while they are solved."""
        graphs, c = graphs_of(data), self.config
        entries = graphs.sentences.nbytes + graphs.neighbours.nbytes + graphs.weights.nbytes + graphs.attached.nbytes
        width = graphs.width + c.matcher.layers * c.matcher.width
        words = 0 if data.documents.sparse is None else data.documents.sparse.nnz
        return (
            2 * entries
            + 3 * 4 * graphs.width * data.n_labels
            + 4 * width * (3 * data.n_documents + data.n_labels)
            + 4 * 8 * words
            + 2**28
        )

    # ---- I ----

    def surrogate(self, data: TrainingSet, run: Run) -> Clusters:
        """Clusters of labels; nothing is trained. Paper: GNN-XML Sec. 3.2."""
        clusters = label_clusters(self.label_features(data), data.targets, self.config.clusters, run.rng("clusters"))
        curves = FrequencyCurves.of(data.targets, clusters, np.asarray(graphs_of(data).words))
        of_labels, of_clusters = curves.frequent_shares()
        run.leave("frequencies", curves)
        run.log(
            "clusters",
            count=len(curves.clusters),
            largest=int(curves.sizes.max(initial=0)),
            frequent_labels=of_labels,
            frequent_clusters=of_clusters,
        )
        return Clusters(clusters)

    def label_features(self, data: TrainingSet) -> Any:
        """(L, D) or (L, V): what labels are clustered by."""
        kind = self.config.clusters.features
        if kind == "tfidf":
            return label_centroids(data.documents.sparse, data.targets)
        by_documents: F32 = label_centroids(graphs_of(data).mean_sentences(), data.targets)
        if kind == "documents":
            return by_documents
        if data.label_texts is None or data.label_texts.dense is None:
            raise ConfigError(
                f"clusters.features is '{kind}', but labels have no text",
                "use clusters.features=documents, or add label texts",
            )
        texts = np.asarray(data.label_texts.dense)
        return texts if kind == "label_text" else joined_features(by_documents, texts)

    # ---- II ----

    def shortlist(self, data: TrainingSet, surrogate: Clusters, run: Run) -> Matcher:
        """The two-branch network that finds clusters. Paper: GNN-XML Sec. 3.1."""
        c, graphs = self.config.matcher, graphs_of(data)
        model = BilateralGin(
            graphs.width,
            surrogate.count,
            run.rng("matcher"),
            width=c.width,
            layers=c.layers,
            concat=c.concat,
            branches=c.branches,
            share=c.share,
            readout=c.readout,
            dropout=c.dropout,
            learned_eps=c.learned_eps,
        )
        targets = surrogate.targets(data.targets)
        train, validation = self.held_out(data.n_documents, run)
        objective = Bilateral(
            model,
            DeviceGraphs(graphs, run.device, weighted=c.weighted),
            targets,
            train,
            validation,
            ReversedSampler((data.targets if c.reverse_by == "label" else targets)[train]),
            balance=c.balance,
            weigh_positives=c.weigh_positives,
            patience=c.patience,
            fewest_epochs=math.ceil(c.fewest * c.epochs),
        )
        fit_stage(
            objective,
            run,
            "matcher",
            epochs=c.epochs,
            batch=c.batch,
            schedule=WarmUp(c.rate, c.warm_up, c.rate_end),
            watch=objective,
        )
        objective.take_best()
        encoder, heads = model.eval().frozen(weighted=c.weighted), model.frozen_heads()
        vectors = encoder.represent(data.documents)
        found = ExactIndex.build(heads, "dot").query(
            joined(vectors), min(self.config.rankers.mistakes, surrogate.count)
        )
        return Matcher(encoder, heads, ranker_vectors(vectors), found.ids)

    def held_out(self, documents: int, run: Run) -> tuple[I64, I64]:
        """Rows to train on, and rows to choose the best epoch by; none of these where they would be too few."""
        count = int(self.config.matcher.validation * documents)
        order = run.rng("validation").permutation(documents)
        count = count if count >= _FEWEST_TO_VALIDATE else 0
        return np.sort(order[count:]), np.sort(order[:count])

    def beam(self, data: TrainingSet, n_clusters: int) -> int:
        """Clusters that a document is looked up in."""
        return min(self.config.rankers.beam or max(1, math.ceil(math.log2(max(data.n_labels, 2)))), n_clusters)

    # ---- III ----

    def transfer(self, data: TrainingSet, surrogate: Clusters, shortlister: Matcher, run: Run) -> None:
        """Nothing: rankers read the matcher's vectors as they are."""

    # ---- IV ----

    def classify(
        self, data: TrainingSet, surrogate: Clusters, shortlister: Matcher, model: None, run: Run
    ) -> KeygraphModel:
        """One logistic regression per label inside its cluster. Paper: GNN-XML Sec. 3.1 (end) and 4.2 (LIBLINEAR)."""
        c = self.config.rankers
        scale = np.float32(c.graph_weight)
        x = RankerInput(
            None if c.reads == "graph" else data.documents.sparse,
            None if c.reads == "tfidf" else scale * np.asarray(shortlister.vectors),
        )
        found, rng = shortlister.found_clusters(), run.rng("rankers")
        rankers = ClusterRankers.fit(x, data.targets, surrogate.clusters, found, data.masked, c.linear, rng)
        heads = ExactIndex.build(np.asarray(shortlister.heads), "dot")
        return KeygraphModel(
            shortlister.encoder, heads, rankers, self.beam(data, surrogate.count), c.reads, c.graph_weight
        )


def graphs_of(data: TrainingSet) -> KeyGraphs:
    graphs = data.documents.graphs
    assert isinstance(graphs, KeyGraphs), "the features of this recipe hold keyword graphs"
    return graphs
