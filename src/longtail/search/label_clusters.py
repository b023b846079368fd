"""Labels in clusters of any size, for a matcher to find: by features that a graph filter smoothed, by features alone,
or by chance.

Paper: GNN-XML Sec. 3.2; its ablation (Fig. 4) compares the three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from longtail.config import setting
from longtail.errors import ConfigError
from longtail.graph.label_filter import correlation_graph, low_pass, sampled_low_pass, spread_matrix
from longtail.graph.ops import unit_rows
from longtail.search.cluster import even_clusters
from longtail.search.minibatch import minibatch_kmeans
from longtail.types import F32, I32, Csr

# Sparse features of more columns are projected to so many by chance: cosines change by about 1 / sqrt(1024).
_PROJECTED_WIDTH, _MOST_COLUMNS = 1024, 4096

# Paper: GNN-XML Sec. 4.4 (the best number of clusters is about a 60th of the labels).
_LABELS_PER_CLUSTER = 60


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
    """Rows as k-means takes them. Wide sparse ones are projected by random signs, which keeps inner products on
    average.
    """
    if isinstance(rows, np.ndarray):
        return np.ascontiguousarray(rows, dtype=np.float32)
    if rows.shape[1] <= _MOST_COLUMNS:
        return np.ascontiguousarray(rows.toarray(), dtype=np.float32)
    signs = rng.integers(0, 2, (rows.shape[1], _PROJECTED_WIDTH), dtype=np.int8).astype(np.float32) * 2 - 1
    return np.ascontiguousarray(rows.astype(np.float32) @ (signs / np.float32(math.sqrt(_PROJECTED_WIDTH))))


def joined_features(documents: F32, texts: F32) -> F32:
    """Unit rows of both side by side, of unit length together: equal weight for what a label's documents say and what
    its name says.
    """
    joined: F32 = unit_rows(np.concatenate([unit_rows(documents), unit_rows(texts)], axis=1))
    return joined
