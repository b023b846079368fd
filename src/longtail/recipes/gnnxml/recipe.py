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

Every ablation of the paper is a setting: see `VARIANTS` in `settings.py`. It is made for long texts
(`features.fields=title,content`); titles have windows of words in place of sentences.

Differs: sentences are encoded by an SVD of the documents' TF-IDF rows; the paper's BERT cannot be had offline
(`features.keygraph.encoder` takes other encoders).
Differs: keywords come from TextRank alone; a recogniser of named entities is a setting, as no model is at hand offline.
Differs, where the paper's text is silent (its supplement is missing): layers, width, normalisation and dropout of the
network, what the branches share, the bias of heads, the weight of positives, thresholds of the label graph, the
number of clusters that are looked into, the features and the cost of rankers. The docstrings of the parts say what
was chosen; defaults are common ones, or were chosen on a slice of the training documents of debian-related.
Differs: a score takes the root of the cluster's gate (`rankers.cluster_power`): the network is surer of its clusters
than it is right.
Differs: the best epoch is looked for in the last 30% of epochs only: the paper's patience could stop before rare
labels had their turn.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from longtail.errors import ConfigError
from longtail.metrics.scores import DEFAULT, inverse_propensities
from longtail.recipes.base import Recipe
from longtail.recipes.gnnxml.features import trust_folder
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.label_clusters import FrequencyCurves, joined_features, label_clusters
from longtail.recipes.gnnxml.network import Bilateral, BilateralGin, DeviceGraphs, ReversedSampler
from longtail.recipes.gnnxml.ranker import (
    ClusterRankers,
    Clusters,
    Gating,
    KeygraphModel,
    Matcher,
    RankerInput,
    joined,
    ranker_vectors,
)
from longtail.recipes.gnnxml.settings import TUNABLE, GnnXmlConfig
from longtail.search.cluster import label_centroids
from longtail.search.index import ExactIndex
from longtail.training.fit import WarmUp, fit_stage
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I64, Csr

# Fewer documents held out than this say nothing about when to stop.
_FEWEST_TO_VALIDATE = 20


class GnnXml(Recipe):
    NAME = "gnnxml"
    CONFIG = GnnXmlConfig
    TUNABLE = TUNABLE

    def __init__(self, config: GnnXmlConfig) -> None:
        self.config: GnnXmlConfig = config
        trust_folder(config.features.keygraph.model)

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

    # ---- I. Paper: Sec. 3.2 ----

    def surrogate(self, data: TrainingSet, run: Run) -> Clusters:
        """Clusters of labels; nothing is trained."""
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

    # ---- II. Paper: Sec. 3.1 ----

    def shortlist(self, data: TrainingSet, surrogate: Clusters, run: Run) -> Matcher:
        """The two-branch network that finds clusters."""
        model = self.trained_network(data, surrogate, run)
        encoder = model.eval().frozen(weighted=self.config.matcher.weighted)
        heads, vectors = model.frozen_heads(), encoder.represent(data.documents)
        mistakes = min(self.config.rankers.mistakes, surrogate.count)
        found = ExactIndex.build(heads, "dot").query(joined(vectors), mistakes)
        return Matcher(encoder, heads, ranker_vectors(vectors), found.ids)

    def trained_network(self, data: TrainingSet, surrogate: Clusters, run: Run) -> BilateralGin:
        """Both branches, trained by a loss whose weight moves from the first to the second; the best epoch."""
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
            worth=None if c.best_by == "loss" else self.worth(data, surrogate),
        )
        schedule = WarmUp(c.rate, c.warm_up, c.rate_end)
        fit_stage(objective, run, "matcher", epochs=c.epochs, batch=c.batch, schedule=schedule, watch=objective)
        objective.take_best()
        return model

    def worth(self, data: TrainingSet, surrogate: Clusters) -> tuple[Csr, int]:
        """(N, K) CSR: what the labels of a document that a cluster holds are worth in PSP; and how many clusters are
        looked into, on average where labels are counted.
        """
        inverse = inverse_propensities(data.label_counts(), data.n_documents, DEFAULT.a, DEFAULT.b)
        weighed = data.targets.multiply(inverse[None, :].astype(np.float32)).tocsr()
        reach = math.ceil(self.config.rankers.reach * surrogate.count / data.n_labels)
        return surrogate.sums(weighed), reach or self.beam(data, surrogate.count)

    def held_out(self, documents: int, run: Run) -> tuple[I64, I64]:
        """Rows to train on, and rows to choose the best epoch by; none of these where they would be too few."""
        count = int(self.config.matcher.validation * documents)
        order = run.rng("validation").permutation(documents)
        count = count if count >= _FEWEST_TO_VALIDATE else 0
        return np.sort(order[count:]), np.sort(order[:count])

    # ---- IV. Paper: Sec. 3.1 (end) and 4.2 (LIBLINEAR) ----

    def classify(
        self, data: TrainingSet, surrogate: Clusters, shortlister: Matcher, model: None, run: Run
    ) -> KeygraphModel:
        """One logistic regression per label inside its cluster."""
        c = self.config.rankers
        scale = np.float32(c.graph_weight)
        x = RankerInput(
            None if c.reads == "graph" else data.documents.sparse,
            None if c.reads == "tfidf" else scale * np.asarray(shortlister.vectors),
        )
        found, rng = shortlister.found_clusters(), run.rng("rankers")
        rankers = ClusterRankers.fit(
            x, data.targets, surrogate.clusters, found, data.masked, c.linear, rng, rarity=c.rarity
        )
        heads = ExactIndex.build(np.asarray(shortlister.heads), "dot")
        beam = self.beam(data, surrogate.count)
        gating = Gating(c.cluster_power, c.logit_scale, c.reach)
        plain = None if gating == Gating() else gating
        return KeygraphModel(shortlister.encoder, heads, rankers, beam, c.reads, c.graph_weight, plain)

    def beam(self, data: TrainingSet, n_clusters: int) -> int:
        """Clusters that a document is looked up in, at most: which of them hold enough labels shows when it is."""
        if self.config.rankers.reach:
            return n_clusters
        return min(self.config.rankers.beam or max(1, math.ceil(math.log2(max(data.n_labels, 2)))), n_clusters)


def graphs_of(data: TrainingSet) -> KeyGraphs:
    graphs = data.documents.graphs
    assert isinstance(graphs, KeyGraphs), "the features of this recipe hold keyword graphs"
    return graphs
