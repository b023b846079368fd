"""What ECLARE's stages compute outside of networks, and leave behind. Needs torch only where it trains.

The label graph, and what is done with it: clusters of labels by centroids that their neighbours complete, shortlists
by GAME among clusters, and negatives that are near a document's labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from longtail.declared import Shaped, Sized
from longtail.errors import ConfigError
from longtail.graph.label_graph import head_labels
from longtail.graph.ops import prune_rows, scale_rows_to_sum_one
from longtail.kernels.arrays import csr
from longtail.metrics.label_groups import Bins, equal_count
from longtail.models.encoders import FrozenSum, Refinement
from longtail.persistence import DataPart
from longtail.picture import Picture
from longtail.recipes.eclare.settings import EclareClassifyConfig, EclareStages
from longtail.search.cluster import even_clusters, smooth
from longtail.search.negatives import Negatives, RandomNegatives, ShortlistNegatives, forbidden_pairs
from longtail.search.shortlist import ClusterBeam
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I32, I64, BoolArray, Csr, TopK


@dataclass(frozen=True)
class EclareSurrogate(DataPart):
    """Of stage I.

    encoder: a = E x.  vectors: (N, D), a of all training documents.  clusters: (L,) the cluster of every label.
    graph: (L, L) CSR, the label graph; one entry per row, on the diagonal, where there is none.
    network: trained tensors of the document block and of the clusters' classifiers, by name; stage II goes on from
        them.
    """

    KIND = "eclare-surrogate"

    encoder: Annotated[FrozenSum, Sized(width="width")]
    vectors: Annotated[F32, Shaped("documents", "width")]
    clusters: Annotated[I32, Shaped("labels", plain=True)]
    graph: Annotated[Csr, Shaped("labels", "labels")]
    network: Mapping[str, Annotated[NDArray[Any], Shaped(plain=True)]]


@dataclass(frozen=True)
class EclareShortlists(DataPart):
    """Of stage II: the clusters with their classifiers, the document block they read, and hard negatives."""

    KIND = "eclare-shortlists"

    beam: ClusterBeam
    document_map: Refinement
    negatives: ShortlistNegatives | None


@dataclass(frozen=True)
class ConvolvedTexts(DataPart):
    """Of stage III: G^k E Z for k = 0, 1, ..., each (L, D)."""

    KIND = "eclare-texts"

    orders: tuple[Annotated[F32, Shaped("labels", "width")], ...]


@dataclass(frozen=True)
class LabelComponents(DataPart):
    """Of stage IV, for analyses and never in a bundle: what classifiers are made of, label by label.

    names: of the J components.  weights, lengths: (L, J), of each component of each label.
    counts: (L,) training documents.
    """

    KIND = "label-components"

    names: tuple[str, ...]
    weights: Annotated[F32, Shaped("labels", "components")]
    lengths: Annotated[F32, Shaped("labels", "components")]
    counts: Annotated[I64, Shaped("labels", plain=True)]

    def __post_init__(self) -> None:
        shape = len(self.counts), len(self.names)
        if self.weights.shape != shape or self.lengths.shape != shape:
            raise ValueError(f"weights {self.weights.shape} and lengths {self.lengths.shape} of {shape} components")

    def dominance(self, binned: Callable[[I64], Bins] = equal_count) -> tuple[Bins, NDArray[np.float64]]:
        """Bins of labels by frequency, head first, and (Q, J) the mean of weight x length in each; nan where a bin is
        empty.

        Paper: ECLARE Fig. 9 (which shows rare labels first).
        """
        bins = binned(self.counts)
        strength = self.weights.astype(np.float64) * self.lengths
        sums = np.stack(
            [np.bincount(bins.bin_of_label, weights=column, minlength=len(bins)) for column in strength.T], axis=1
        )
        sizes = bins.n_labels[:, None].astype(np.float64)
        return bins, np.divide(sums, sizes, out=np.full_like(sums, np.nan), where=sizes > 0)

    def pictures(self) -> list[Picture]:
        """Paper: ECLARE Fig. 9."""
        bins, strength = self.dominance()
        return [
            Picture(
                "What label classifiers are made of",
                "The share of each component in the classifiers: text of the label, its neighbours in the graph, and a "
                "free vector of its own. Rare labels should live on text and neighbours, frequent ones on what they "
                "have learnt.",
                "stacked",
                list(bins.names),
                dict(zip(self.names, (100 * strength / strength.sum(axis=1, keepdims=True)).T.tolist(), strict=True)),
                x_label="labels by frequency, in bins of as many labels",
                y_label="percent of weight x length",
            )
        ]


# Labels kept of a walk from step to step, for each that is asked for: without a cut the lists grow tenfold with every
# step.
_KEPT = 4


def build_graph(data: TrainingSet, config: EclareStages, run: Run) -> Csr:
    """(L, L): the label graph, the identity where nothing needs one. Paper: ECLARE Sec. 3.2."""
    chosen = config.graph
    if "given" in chosen.source and not data.label_graphs():
        run.note(
            f"label graph: the data holds none (graph.source={chosen.source}); walks through documents take its place"
        )
        chosen = replace(chosen, source="walk")
    if not config.uses_graph():
        chosen = replace(chosen, source="none")
    if chosen.text_cosine and data.label_words() is None:
        run.note("label graph: no edge is left out for its texts (graph.text_cosine), as labels have none")
    graph = data.label_graph(chosen, run.rng("graph"))
    if chosen.source != "none" and not has_edges(graph):
        run.note("label graph: no two labels belong together; clusters, classifiers and scores do without it")
    return graph


def has_edges(graph: Csr) -> bool:
    """Whether some label has a neighbour other than itself."""
    return bool(graph.nnz > np.count_nonzero(graph.diagonal()))


def clustered(
    documents: Csr | F32, data: TrainingSet, graph: Csr, config: EclareStages, rng: np.random.Generator
) -> I32:
    """(L,): the cluster of every label, with the help of the graph if `surrogate.augmented`. Paper: ECLARE Sec. 3.6."""
    heads = head_labels(data.targets, config.graph.head_documents)
    if not config.surrogate.augmented:
        n, heads = data.n_labels, np.zeros_like(heads)
        graph = csr(np.ones(n, np.float32), np.arange(n, dtype=np.int32), np.arange(n + 1), (n, n))
    return augmented_clusters(documents, data.targets, graph, heads, config.n_clusters(data.n_labels), rng)


def augmented_clusters(
    documents: Csr | F32,
    targets: Csr,
    graph: Csr,
    heads: BoolArray,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    keep: int = 128,
) -> I32:
    """The cluster of every label: (L,) int32 in 0..n_clusters-1, none empty; sizes differ by at most one among tails
    and among heads.

    documents: (N, V) CSR or (N, D) dense; targets: (N, L); graph: (L, L) and heads: (L,), see
        `longtail.graph.label_graph`.
    keep: of sparse centroids, the words kept of each.

    Sums of documents are added up along the graph, so that a label without documents gets them from its neighbours; a
    label that has none either way goes to the smallest cluster. Frequent neighbours count more: sums are not scaled
    to unit length before they are added. Tails have the first clusters, heads the last: about as many as their share
    of labels.

    Paper: ECLARE Sec. 3.6, with c-hat_l = sum over j of G_lj c_j (the printed c_l would change nothing).
    Differs: of a sparse centroid 128 words are kept, in place of the released code's 1000.
    """
    n_labels = len(heads)
    if not 1 <= n_clusters <= n_labels:
        raise ConfigError(f"{n_clusters} clusters of {n_labels} labels asked for", f"use 1 to {n_labels}")
    centroids = smooth(targets.T.tocsr() @ documents, graph, keep=keep)
    groups = [np.flatnonzero(~heads), np.flatnonzero(heads)]
    shares = [n_clusters - _head_clusters(heads, n_clusters), _head_clusters(heads, n_clusters)]
    if 0 in shares:
        groups, shares = [np.arange(n_labels)], [n_clusters]
    clusters, first = np.empty(n_labels, np.int32), 0
    for labels, share in zip(groups, shares, strict=True):
        clusters[labels] = first + _clusters(centroids[labels], share, rng)
        first += share
    return clusters


def _head_clusters(heads: BoolArray, n_clusters: int) -> int:
    """How many clusters the heads get: their share of labels, at least one if any; both sides can fill theirs."""
    n_heads, n_labels = int(heads.sum()), len(heads)
    if n_heads == 0 or n_clusters == 1:
        return 0
    if n_heads == n_labels:
        return n_clusters
    share = max(1, round(n_clusters * n_heads / n_labels))
    return int(np.clip(share, max(1, n_clusters - (n_labels - n_heads)), min(n_heads, n_clusters - 1)))


def _clusters(centroids: Csr | F32, n_clusters: int, rng: np.random.Generator) -> I32:
    """Clusters of the rows that hold something; the others are dealt out, first to whatever cluster is smallest."""
    n_rows = int(centroids.shape[0])
    alive = _not_empty(centroids)
    clusters, sizes = np.empty(n_rows, np.int32), np.zeros(n_clusters, np.int64)
    if len(alive):
        clusters[alive] = even_clusters(centroids[alive], min(n_clusters, len(alive)), rng)
        sizes = np.bincount(clusters[alive], minlength=n_clusters)
    rest = np.setdiff1d(np.arange(n_rows), alive)
    clusters[rest] = _smallest_first(sizes, len(rest))
    return clusters


def _smallest_first(sizes: I64, count: int) -> I32:
    """Clusters of `count` more members, each put where fewest are; sizes before differ by at most one or are 0."""
    # Filling up to a common height: place h of cluster c is free if h >= sizes[c].
    height = int(sizes.max(initial=0)) + -(-count // max(len(sizes), 1)) + 1
    free = np.arange(height)[:, None] >= sizes
    return np.nonzero(free)[1][:count].astype(np.int32)


def _not_empty(rows: Any) -> I64:
    if isinstance(rows, np.ndarray):
        return np.flatnonzero(np.any(rows != 0, axis=1))
    return np.flatnonzero(np.diff(rows.indptr) > 0)


def best_clusters(heads: F32, clusters: I32, graph: Csr, config: EclareStages, run: Run) -> ClusterBeam:
    """The shortlister: the best clusters after GAME. Paper: ECLARE Sec. 3.4."""
    from longtail.training.indices import cluster_beam  # needs torch

    spread, beam = graph if uses_game(config, graph) else None, config.beam_size(len(clusters))
    return cluster_beam(heads, clusters, spread, config.game, beam=beam, device=run.device)


def uses_game(config: EclareStages, graph: Csr) -> bool:
    return config.game.enabled and has_edges(graph)


def hard_negatives(
    data: TrainingSet, beam: ClusterBeam, vectors: F32, graph: Csr, config: EclareClassifyConfig
) -> ShortlistNegatives | None:
    """Of every document, where the settings want any.  vectors: (N, D), what the clusters' classifiers read."""
    forbidden, count = forbidden_pairs(data.targets, data.masked), negative_count(beam, config)
    if config.negatives == "shortlist":
        return ShortlistNegatives.mine(beam, vectors, forbidden, count)
    if config.negatives == "ppr":
        return ShortlistNegatives.from_rankings(PersonalisedPageRank(data.targets, graph).rank, forbidden, count)
    return None


def negative_count(beam: ClusterBeam, config: EclareClassifyConfig) -> int:
    return min(config.count or beam.beam * beam.largest_cluster, len(beam.clusters))


def step_negatives(data: TrainingSet, shortlists: EclareShortlists, config: EclareClassifyConfig) -> Negatives:
    """Of a step: hard ones (or as many uniform ones), and random extras."""
    forbidden = forbidden_pairs(data.targets, data.masked)
    if shortlists.negatives is None:
        return RandomNegatives(forbidden, negative_count(shortlists.beam, config))
    return shortlists.negatives.with_random(forbidden, config.random)


class PersonalisedPageRank:
    """Labels near a document's own: walks along the graph that begin at its labels (each alike) and go back there with
    chance `teleport`. Paper: ECLARE Sec. 4 (ECLARE-PPR).

    targets: (N, L) CSR.  graph: (L, L) CSR, not negative; its rows are scaled to sum one.
    steps: walks are followed so far; 0.8^20 is 1%.
    """

    def __init__(self, targets: Csr, graph: Csr, *, teleport: float = 0.2, steps: int = 20) -> None:
        self.starts, self.graph = scale_rows_to_sum_one(targets.astype(np.float32)), scale_rows_to_sum_one(graph)
        self.teleport, self.steps = teleport, steps

    def rank(self, rows: I64, k: int) -> TopK:
        """The `k` labels in which walks of the documents at `rows` are most often, the documents' own among them."""
        walks = self.starts[rows]
        found = self.teleport * walks
        for _ in range(self.steps):
            walks = prune_rows((1 - self.teleport) * (walks @ self.graph), _KEPT * k)
            found = found + self.teleport * walks
        best = prune_rows(found.tocsr(), k)
        top = TopK.padding(len(rows), k)
        real = np.arange(k) < np.diff(best.indptr)[:, None]
        top.ids[real], top.scores[real] = best.indices, best.data
        # Columns ascend, so a stable sort by score leaves ties in the order of labels.
        order = np.argsort(-top.scores, axis=1, kind="stable")
        return TopK(np.take_along_axis(top.ids, order, axis=1), np.take_along_axis(top.scores, order, axis=1))
