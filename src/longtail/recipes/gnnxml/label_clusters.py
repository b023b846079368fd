"""Labels in clusters of any size, for a matcher to find: by features that a graph filter smoothed, by features alone,
or by chance. Paper: GNN-XML Sec. 3.2; its ablation (Fig. 4) compares the three.

The filter smooths features over labels that occur together: a low-pass filter on the graph of conditional
co-occurrence.

    P_ij = documents with i and j / documents with i          B_ij = [P_ij >= threshold], i != j
    A_ij = weight B_ij / sum_j B_ij,  A_ii = 1 - weight       a label without an edge has A_ii = 1
    A <- (A + A^T) / 2,  D = diag(A 1),  S = D^-1/2 A D^-1/2,  L_s = I - S
    filtered = (I - L_s / 2)^order Z = (I / 2 + S / 2)^order Z

Paper: GNN-XML Sec. 3.2, Eq. 8 and 9.
Differs: Eq. 8 as printed weighs every pair of labels; edges are those of B. A label without edges would divide by zero.
Differs: A is symmetrised. As printed it is not symmetric, the eigenvalues of L_s are complex, and there is no
low-pass filter to speak of; `directed` keeps it as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from longtail.declared import Shaped
from longtail.errors import ConfigError
from longtail.graph.ops import scale_both_sides, unit_rows
from longtail.kernels.arrays import canonical, csr
from longtail.persistence import DataPart
from longtail.picture import Picture
from longtail.recipes.gnnxml.ranker import Clusters
from longtail.recipes.gnnxml.settings import ClusterConfig
from longtail.search.cluster import even_clusters, first_centres, nearest_centres
from longtail.types import F32, I32, I64, Csr

# ---- the filter ----

# Labels whose co-occurrences are counted at once, before weak ones are dropped.
_COUNT_BLOCK = 20_000
# Columns of the features that are filtered at once: bounds the memory beside input and output.
_FILTER_COLUMNS = 64


def correlation_graph(targets: Csr, threshold: float = 0.4, weight: float = 0.2) -> Csr:
    """A, before it is symmetrised: (L, L) CSR float64, rows sum to one. targets: (N, L) CSR of training labels."""
    n_labels = int(targets.shape[1])
    ones = canonical(targets).astype(np.float64)
    ones.data[:] = 1.0
    by_label = ones.T.tocsr()
    counts = np.maximum(np.diff(by_label.indptr), 1)
    rows, columns = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first in range(0, n_labels, _COUNT_BLOCK):
        both = (by_label[first : first + _COUNT_BLOCK] @ ones).tocsr()
        label = first + np.repeat(np.arange(both.shape[0]), np.diff(both.indptr))
        strong = (both.data / counts[label] >= threshold) & (both.indices != label)
        rows.append(label[strong])
        columns.append(both.indices[strong].astype(np.int64))
    return _reweighted(np.concatenate(rows), np.concatenate(columns), n_labels, weight)


def _reweighted(rows: I64, columns: I64, n_labels: int, weight: float) -> Csr:
    """`weight` shared among the edges of each label, the rest for itself; all of it where a label has no edge."""
    from scipy.sparse import coo_array

    degrees = np.bincount(rows, minlength=n_labels)
    itself = np.arange(n_labels)
    values = np.concatenate([weight / degrees[rows], np.where(degrees > 0, 1.0 - weight, 1.0)])
    return canonical(
        coo_array((values, (np.append(rows, itself), np.append(columns, itself))), shape=(n_labels, n_labels)).tocsr()
    )


def spread_matrix(graph: Csr, directed: bool = False) -> Csr:
    """S: the symmetrised and scaled graph, its eigenvalues within -1..1.

    directed: the graph as it is; its rows sum to one.
    """
    if directed:
        return graph
    return scale_both_sides(((graph + graph.T) / 2).tocsr())


def low_pass(features: Any, spread: Csr, order: int) -> Any:
    """(I / 2 + S / 2)^order Z, one factor at a time: (L, D) dense or CSR as `features` came, in its type.

    Costs edges x order x D; no power of S is ever made.
    """
    if hasattr(features, "indptr"):
        matrix = spread.astype(features.dtype)
        for _ in range(order):
            features = ((features + matrix @ features) / 2).tocsr()
        return features
    matrix, filtered = spread.astype(features.dtype), np.empty(features.shape, dtype=features.dtype)
    for first in range(0, features.shape[1], _FILTER_COLUMNS):
        block = np.ascontiguousarray(features[:, first : first + _FILTER_COLUMNS])
        for _ in range(order):
            block = (block + matrix @ block) / 2
        filtered[:, first : first + _FILTER_COLUMNS] = block
    return filtered


def sampled_low_pass(
    features: NDArray[Any], spread: Csr, order: int, sample: int, rng: np.random.Generator, *, batch: int = 4096
) -> NDArray[Any]:
    """An unbiased estimate of `low_pass`, a batch of labels at a time, for graphs of too many edges.

    Of the columns of S, `sample` are drawn anew for every order, with chances by their squared length, and weighed by
    1 / (sample x chance), so the mean over draws is S Z. A batch touches batch + order x sample rows.
    Paper: GNN-XML Sec. 3.3, after FastGCN.
    """
    if sample < 1:
        raise ConfigError(
            f"a sample of {sample} columns asked for", "sample at least one, or filter exactly (sample 0)"
        )
    n_labels = int(features.shape[0])
    squares = np.bincount(spread.indices, weights=spread.data.astype(np.float64) ** 2, minlength=n_labels)
    chance = squares / squares.sum()
    filtered = np.empty(features.shape, dtype=features.dtype)
    for first in range(0, n_labels, batch):
        labels = np.arange(first, min(first + batch, n_labels))
        factors = [_drawn(chance, sample, rng) for _ in range(order)]
        filtered[labels] = _estimated(features, spread, labels, factors)
    return filtered


def _drawn(chance: NDArray[np.float64], sample: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(L,) by what each column is multiplied: how often it was drawn / (sample x chance)."""
    cumulative = np.cumsum(chance)
    drawn = np.searchsorted(cumulative, rng.random(sample) * cumulative[-1], side="right")
    times = np.bincount(np.minimum(drawn, len(chance) - 1), minlength=len(chance))
    return np.divide(times, sample * chance, out=np.zeros(len(chance)), where=times > 0)


def _estimated(features: NDArray[Any], spread: Csr, labels: I64, factors: list[NDArray[np.float64]]) -> NDArray[Any]:
    """The filter of these labels, with column u of S times factors[o][u] at order o, from the last to the first."""
    if not factors:
        return features[labels]
    rows = spread[labels]
    factor = factors[0][rows.indices]
    kept = factor > 0
    ends = np.append(0, np.cumsum(kept))[rows.indptr]
    needed, places = np.unique(np.concatenate([labels, rows.indices[kept]]), return_inverse=True)
    below = _estimated(features, spread, needed, factors[1:])
    sampled = csr(
        (rows.data[kept] * factor[kept]).astype(features.dtype), places[len(labels) :], ends, (len(labels), len(needed))
    )
    return (below[places[: len(labels)]] + sampled @ below) / 2


# ---- clusters ----

# Sparse features of more columns are projected to so many by chance: cosines change by about 1 / sqrt(1024).
_PROJECTED_WIDTH, _MOST_COLUMNS = 1024, 4096

# Paper: GNN-XML Sec. 4.4 (the best number of clusters is about a 60th of the labels).
_LABELS_PER_CLUSTER = 60


def automatic_count(n_labels: int) -> int:
    """Clusters by default. Differs: of few labels a 60th would leave a handful of clusters, which say nothing."""
    return max(n_labels // _LABELS_PER_CLUSTER, math.isqrt(n_labels), 1)


def label_clusters(features: Csr | F32, targets: Csr, config: ClusterConfig, rng: np.random.Generator) -> I32:
    """The cluster of every label, (L,) int32, numbered from 0 without gaps; -1 for a label without documents.

    features: (L, V) CSR or (L, D) dense; targets: (N, L) CSR of training labels.
    """
    n_labels = int(targets.shape[1])
    present = np.flatnonzero(np.bincount(targets.indices, minlength=n_labels) > 0)
    count = config.count or automatic_count(len(present))
    if count > len(present):
        raise ConfigError(
            f"clusters.count is {count}, but only {len(present)} labels have a training document",
            "use fewer clusters, or 0 for a default",
        )
    clusters = np.full(n_labels, -1, dtype=np.int32)
    if config.partition == "random":
        clusters[present] = rng.permutation(len(present)) % count
        return clusters
    chosen = features[present]
    if config.partition != "kmeans" and config.order:
        chosen = filtered(chosen, targets.tocsc()[:, present].tocsr(), config, rng)
    if config.partition == "even":
        clusters[present] = even_clusters(chosen, count, rng)
    else:
        clusters[present] = minibatch_kmeans(
            dense_rows(chosen, rng), count, rng, batch=config.batch, rounds=config.rounds
        )
    return clusters


def filtered(features: Any, targets: Csr, config: ClusterConfig, rng: np.random.Generator) -> Any:
    """The features of labels that all have documents, smoothed over labels that occur together."""
    spread = spread_matrix(correlation_graph(targets, config.threshold, config.weight), config.directed)
    if config.sample and not hasattr(features, "indptr"):
        return sampled_low_pass(features, spread, config.order, config.sample, rng)
    return low_pass(features, spread, config.order)


def dense_rows(rows: Csr | F32, rng: np.random.Generator) -> F32:
    """Rows as k-means takes them. Wide sparse ones are projected by random signs: inner products stay, on average."""
    if isinstance(rows, np.ndarray):
        return np.ascontiguousarray(rows, dtype=np.float32)
    if rows.shape[1] <= _MOST_COLUMNS:
        return np.ascontiguousarray(rows.toarray(), dtype=np.float32)
    signs = rng.integers(0, 2, (rows.shape[1], _PROJECTED_WIDTH), dtype=np.int8).astype(np.float32) * 2 - 1
    return np.ascontiguousarray(rows.astype(np.float32) @ (signs / np.float32(math.sqrt(_PROJECTED_WIDTH))))


def joined_features(documents: F32, texts: F32) -> F32:
    """Unit rows of both side by side, of unit length together: a label's documents and its name weigh the same."""
    joined: F32 = unit_rows(np.concatenate([unit_rows(documents), unit_rows(texts)], axis=1))
    return joined


# ---- what clusters do for rare labels ----

# Documents above which a label or cluster counts as frequent. Paper: Fig. 1 has 1.51% of labels and 75.8% of clusters
# on Wiki10-31K.
FREQUENT = 100


@dataclass(frozen=True)
class FrequencyCurves(DataPart):
    """How clusters ease the long tail: frequencies of labels and of clusters side by side, as data of a plot. Left in
    RUN/analysis. Paper: GNN-XML Fig. 1.

    labels, clusters: training documents of each label that has any, and of each cluster, most frequent first.
    sizes: labels of each cluster, in the order of `clusters`.
    words: words per document, in the order of the documents; may be empty.
    """

    KIND = "frequency-curves"

    labels: Annotated[I64, Shaped("labels", plain=True)]
    clusters: Annotated[I64, Shaped("clusters", plain=True)]
    sizes: Annotated[I64, Shaped("clusters", plain=True)]
    words: Annotated[I32, Shaped("documents", plain=True)]

    @classmethod
    def of(cls, targets: Csr, clusters: I32, words: I32) -> FrequencyCurves:
        """targets: (N, L) CSR. clusters: (L,), -1 for labels without documents."""
        counts = np.bincount(targets.indices, minlength=targets.shape[1])
        by_cluster, sizes = cluster_frequencies(targets, clusters)
        order = np.argsort(-by_cluster, kind="stable")
        return cls(np.sort(counts[counts > 0])[::-1].astype(np.int64), by_cluster[order], sizes[order], words)

    def frequent_shares(self, above: int = FREQUENT) -> tuple[float, float]:
        """Percent of labels and of clusters with more than `above` documents."""
        return 100 * float(np.mean(self.labels > above)), 100 * float(np.mean(self.clusters > above))

    def pictures(self) -> list[Picture]:
        """Paper: GNN-XML Fig. 1."""
        places = np.linspace(0, 1, 101)
        series = {
            name: values[((len(values) - 1) * places).astype(np.int64)].astype(float).tolist()
            for name, values in (("labels", self.labels), ("clusters of labels", self.clusters))
            if len(values)
        }
        return [
            Picture(
                "How clusters ease the long tail",
                "Training documents of labels and of clusters, from the most frequent to the rarest. Most labels have "
                "few documents; most clusters should have many.",
                "lines",
                (100 * places).tolist(),
                series,
                x_label="percent of labels, of clusters",
                y_label="training documents",
                log_y=True,
            )
        ]


def cluster_frequencies(targets: Csr, clusters: I32) -> tuple[I64, I64]:
    """(K,) documents with a label of each cluster, and (K,) labels of each."""
    of_documents = Clusters(clusters).targets(targets)
    documents = np.bincount(of_documents.indices, minlength=of_documents.shape[1]).astype(np.int64)
    return documents, np.bincount(clusters[clusters >= 0], minlength=len(documents)).astype(np.int64)


# ---- mini-batch k-means ----

# Rows that the first centres are chosen from, per cluster.
_DRAWN_PER_CENTRE = 3


def minibatch_kmeans(
    rows: F32, n_clusters: int, rng: np.random.Generator, *, batch: int = 10_000, rounds: int = 100
) -> I32:
    """The cluster of every row, (n,) int32 in 0..n_clusters-1, by Euclidean distance; no cluster is empty where rows
    differ enough. Paper: GNN-XML Sec. 3.2, after Sculley (WWW 2010).

    Each round moves the centres towards a batch of rows, a centre by 1 / (rows it has seen) for each of them, so it
    stays their mean.
    """
    if not 1 <= n_clusters <= max(len(rows), 1):
        raise ConfigError(f"{n_clusters} clusters of {len(rows)} rows asked for", f"use 1 to {max(len(rows), 1)}")
    if not len(rows):
        return np.zeros(0, dtype=np.int32)
    chosen = rng.permutation(len(rows))[: max(_DRAWN_PER_CENTRE * n_clusters, batch)]
    centres = first_centres(rows[np.sort(chosen)], n_clusters, rng)
    seen = np.zeros(n_clusters)
    order = np.zeros(0, dtype=np.int64)
    for _ in range(rounds):
        if len(order) < min(batch, len(rows)):
            order = rng.permutation(len(rows))
        drawn, order = rows[np.sort(order[:batch])], order[batch:]
        _move(centres, seen, drawn, nearest_centres(drawn, centres)[0])
    owners, distances = nearest_centres(rows, centres)
    return _without_empty(owners, distances, n_clusters)


def _move(centres: F32, seen: NDArray[np.float64], rows: F32, owners: I32) -> None:
    """Centres become the mean of all rows they have seen."""
    counts = np.bincount(owners, minlength=len(centres))
    members = csr(np.ones(len(rows), np.float32), owners, np.arange(len(rows) + 1), (len(rows), len(centres)))
    touched: I64 = np.flatnonzero(counts)
    sums = (members.T.tocsr() @ rows)[touched]
    seen[touched] += counts[touched]
    share = (counts[touched] / seen[touched]).astype(np.float32)[:, None]
    centres[touched] += share * (sums / counts[touched].astype(np.float32)[:, None] - centres[touched])


def _without_empty(owners: I32, distances: F32, n_clusters: int) -> I32:
    """Every empty cluster gets the row that is farthest from its centre, of those that do not leave another cluster
    empty.
    """
    sizes = np.bincount(owners, minlength=n_clusters)
    empty = np.flatnonzero(sizes == 0)[::-1].tolist()
    for row in np.argsort(-distances, kind="stable").tolist():
        if not empty:
            break
        if sizes[owners[row]] > 1:
            sizes[owners[row]] -= 1
            owners[row] = empty.pop()
            sizes[owners[row]] = 1
    return owners
