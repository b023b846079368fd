"""Clusters of labels by centroids that their neighbours in the label graph complete. Paper: ECLARE Sec. 3.6 (graph
augmented centroids).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.errors import ConfigError
from longtail.search.cluster import even_clusters, smooth
from longtail.types import F32, I32, I64, BoolArray, Csr


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
    keep: of sparse centroids, the words kept of each. Differs: the released code keeps 1000; with 128 the clusters
    lose 0.2 points more information on debian-related, half of what another seed changes, in 40% of the time.

    Sums of documents are added up along the graph, so that a label without documents gets them from its neighbours; a
    label that has none either way goes to the smallest cluster. Tails have the first clusters, heads the last: about
    as many as their share of labels.

    Paper: ECLARE Sec. 3.6, with c-hat_l = sum over j of G_lj c_j (the printed c_l would change nothing). Frequent
    neighbours count more, as sums are not scaled to unit length before they are added; scaled ones lose more
    information (`lmi`) on wordnet-related (14.4% against 12.9%) and debian-related (10.3% against 10.0%).
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
    """How many clusters the heads get: their share of labels, at least one if there are heads; both sides can fill
    theirs.
    """
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
    """Clusters of `count` more members, each put where fewest are; sizes of the clusters before differ by at most one
    or are 0.
    """
    # Filling up to a common height: place h of cluster c is free if h >= sizes[c].
    height = int(sizes.max(initial=0)) + -(-count // max(len(sizes), 1)) + 1
    free = np.arange(height)[:, None] >= sizes
    return np.nonzero(free)[1][:count].astype(np.int32)


def _not_empty(rows: Any) -> I64:
    if isinstance(rows, np.ndarray):
        return np.flatnonzero(np.any(rows != 0, axis=1))
    return np.flatnonzero(np.diff(rows.indptr) > 0)
