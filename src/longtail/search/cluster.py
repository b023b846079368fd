"""Groups of similar labels: balanced clusters for the surrogate task, plain k-means, and centres for k-means into many
clusters.

Rows are CSR (words) or dense; both are clustered by cosine. First and nearest centres go by Euclidean distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import ConfigError
from longtail.graph.ops import prune_rows, unit_rows
from longtail.kernels.arrays import csr, frozen, new_seed, pieces
from longtail.kernels.threads import threads_for
from longtail.types import F32, I32, Csr

# A split ends when the mean cosine to the own centre grows by less than this.
_TOLERANCE = 1e-4
_MAX_ROUNDS = 50
_TASKS_PER_THREAD = 4
_SMOOTHED_ROWS = 2048  # summed up at a time
# The first centres are chosen in at most so many draws, several at a time where there are more clusters.
_MOST_DRAWS = 1000
# Distances held at once.
_BLOCK_DISTANCES = 1 << 23


def label_centroids(x: Csr | F32, y: Csr) -> Any:
    """The normalised sum of each label's documents: (L, V) CSR if `x` is, else (L, D) float32. Paper: Astec Sec. 4,
    Module I.

    x: (N, V) CSR or (N, D) dense; y: (N, L) CSR. A label without documents gets a zero row.
    """
    return unit_rows(y.T.tocsr() @ x)


def smooth(centroids: Csr | F32, correlation: Csr, *, keep: int | None = None) -> Any:
    """Centroids averaged over correlated labels: unit rows of C U. Paper: Astec Sec. 4, Module I, ECLARE Sec. 3.3
    (graph-augmented).

    correlation: (L, L) CSR, e.g. a random-walk graph with its diagonal ensured and rows scaled to sum one.
    keep: of sparse rows, only the largest entries of each, before and after: a few frequent labels make the rows long.
    Rows are pruned block by block: all sums at once would take as many numbers as labels x neighbours x `keep`.
    """
    if keep is None or isinstance(centroids, np.ndarray):
        return unit_rows(correlation @ centroids)
    from scipy.sparse import vstack

    short = prune_rows(centroids, keep)
    blocks = range(0, max(correlation.shape[0], 1), _SMOOTHED_ROWS)
    return unit_rows(
        vstack(
            [prune_rows((correlation[first : first + _SMOOTHED_ROWS] @ short).tocsr(), keep) for first in blocks],
            format="csr",
        )
    )


# Labels that a cluster has at least, where nobody asked for a number of clusters.
LABELS_PER_CLUSTER = 4
ASTEC_CLUSTERS = 2**16


def cluster_count(
    n_labels: int, asked: int = 0, *, labels_per_cluster: int = LABELS_PER_CLUSTER, at_most: int = ASTEC_CLUSTERS
) -> int:
    """As many as were asked for; by default a power of two that leaves about `labels_per_cluster` labels (up to twice
    that) in each cluster, at least 1 cluster.

    Differs: Astec uses 2^16 for every data set; for small ones that would be one cluster per label.
    """
    if asked > max(n_labels, 1):
        raise ConfigError(
            f"{asked} clusters asked for, and {n_labels} labels have training documents",
            f"use at most {2 ** int(math.log2(max(n_labels, 1)))}, or 0 for as many as suit the data",
        )
    if asked:
        return asked
    return 2 ** int(math.log2(max(min(n_labels / labels_per_cluster, at_most), 1)))


def balanced_clusters(rows: Csr | F32, n_clusters: int, rng: np.random.Generator) -> I32:
    """The cluster number of every row, (L,) int32 in 0..n-1, by repeated balanced 2-means. Paper: Astec Sec. 4,
    Module I.

    rows: (L, V) CSR or (L, D) dense, any length; zero rows fill up the halves.
    n_clusters: a power of two; fewer come out (the largest power of two) where there are fewer rows.
    Sizes of clusters differ by at most one. Numbers follow the tree: 2c and 2c + 1 were split from the same node.
    """
    if n_clusters < 1 or n_clusters & (n_clusters - 1):
        raise ConfigError(
            f"{n_clusters} clusters asked for, expected a power of two",
            f"use {2 ** round(math.log2(max(n_clusters, 1)))}",
        )
    return even_clusters(rows, 2 ** int(math.log2(min(n_clusters, max(int(rows.shape[0]), 1)))), rng)


def even_clusters(rows: Csr | F32, n_clusters: int, rng: np.random.Generator) -> I32:
    """As `balanced_clusters`, for any number of clusters up to the number of rows: a node that becomes an odd number
    is split unevenly.

    (L,) int32 in 0..n-1; sizes of clusters differ by at most one, none is empty.
    """
    n_rows = int(rows.shape[0])
    if not 1 <= n_clusters <= max(n_rows, 1):
        raise ConfigError(f"{n_clusters} clusters of {n_rows} rows asked for", f"use 1 to {max(n_rows, 1)}")
    table = _UnitRows(rows)
    order, bounds, leaves = np.arange(n_rows), np.array([0, n_rows]), np.array([n_clusters])
    while leaves.max() > 1:
        # Each node knows into how many clusters it will fall; rows that are left over go to both halves alike.
        first_leaves = (leaves + 1) // 2
        size, left_over = np.divmod(np.diff(bounds), leaves)
        firsts = size * first_leaves - (-left_over * first_leaves // leaves)
        order = table.split(order, bounds, firsts, rng).order
        leaves = np.stack([first_leaves, leaves - first_leaves], axis=1).ravel()
        bounds = np.append(np.stack([bounds[:-1], bounds[:-1] + firsts], axis=1).ravel()[leaves > 0], n_rows)
        leaves = leaves[leaves > 0]
    clusters = np.empty(n_rows, dtype=np.int32)
    clusters[order] = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    return clusters


def meta_labels(y: Csr, clusters: I32, n_clusters: int) -> Csr:
    """Which clusters a document has a label in: (N, n_clusters) CSR float32 of ones. Paper: Astec Sec. 4, Module I."""
    n_labels = len(clusters)
    members = csr(np.ones(n_labels, np.float32), clusters, np.arange(n_labels + 1), (n_labels, n_clusters))
    targets = (y.astype(np.float32) @ members).tocsr()
    targets.sort_indices()
    targets.data[:] = 1.0
    return targets


def spherical_kmeans(
    vectors: F32, n_centres: int, rng: np.random.Generator, *, max_rounds: int = 25, sample: int = 256
) -> F32:
    """Unit centres of dense vectors by cosine (k-means++, then Lloyd): (c, D) float32, c <= n_centres.

    Fewer centres come out where vectors repeat. At most `sample` vectors per centre are looked at; zero vectors never.
    """
    points = unit_rows(vectors[np.any(vectors != 0, axis=1)])
    if len(points) > sample * n_centres:
        points = points[np.sort(rng.choice(len(points), sample * n_centres, replace=False))]
    centres = _plus_plus(points, n_centres, rng)
    best = -np.inf
    for _ in range(max_rounds):
        owner, similarity = _nearest(points, centres)
        if similarity - best < _TOLERANCE:
            break
        best = similarity
        groups = csr(np.ones(len(points), np.float32), owner, np.arange(len(points) + 1), (len(points), len(centres)))
        sums = groups.T.tocsr() @ points
        centres = unit_rows(sums[np.any(sums != 0, axis=1)])
    return centres


def _plus_plus(points: F32, n_centres: int, rng: np.random.Generator) -> F32:
    """k-means++: each next centre is a point, with probability by its distance (1 - cosine) to the nearest chosen
    one.
    """
    if len(points) == 0 or n_centres < 1:
        return np.zeros((0, points.shape[1]), dtype=np.float32)
    chosen = [int(rng.integers(len(points)))]
    distance = np.full(len(points), np.inf)
    while len(chosen) < n_centres:
        distance = np.minimum(distance, 1.0 - points @ points[chosen[-1]])
        # Below 1e-6 it is rounding: the point is already a centre.
        weight = np.cumsum(np.where(distance > 1e-6, distance, 0.0))
        if weight[-1] <= 0:
            break
        chosen.append(int(np.searchsorted(weight, rng.random() * weight[-1], side="right")))
    return points[chosen]


def _nearest(points: F32, centres: F32, block: int = 16384) -> tuple[I32, float]:
    """The nearest centre of each point, and the mean cosine to it."""
    owner, total = np.zeros(len(points), dtype=np.int32), 0.0
    for start in range(0, len(points), block):
        cosines = points[start : start + block] @ centres.T
        owner[start : start + block] = np.argmax(cosines, axis=1)
        total += float(cosines.max(axis=1).sum(dtype=np.float64))
    return owner, total / max(len(points), 1)


@dataclass(frozen=True)
class _Level:
    """Rows in their new order, each node's first half before its second; objectives (nodes, rounds) and rounds per
    node.
    """

    order: NDArray[np.int64]
    traces: NDArray[np.float64]
    rounds: NDArray[np.int64]


class _UnitRows:
    """Rows of unit length in the form that the kernels take."""

    def __init__(self, rows: Csr | F32) -> None:
        units = unit_rows(rows)
        self.columns = int(units.shape[1])
        if isinstance(units, np.ndarray):
            self.indptr, self.indices, self.data = None, None, frozen(units.ravel())
            self.alive = np.any(units != 0, axis=1)
        else:
            self.indptr, self.indices, self.data = pieces(units)
            self.alive = np.asarray(units.multiply(units).sum(axis=1) > 0)

    def split(
        self, order: NDArray[np.int64], bounds: NDArray[np.int64], firsts: NDArray[np.int64], rng: np.random.Generator
    ) -> _Level:
        """Every node in two, `firsts` rows of each in its first half."""
        from numba import get_num_threads

        from longtail.search.kernels.cluster import split_level

        nodes = len(bounds) - 1
        level = _Level(np.empty_like(order), np.zeros((nodes, _MAX_ROUNDS)), np.zeros(nodes, dtype=np.int64))
        with threads_for(len(order)):
            split_level(
                self.indptr,
                self.indices,
                self.data,
                self.columns,
                self.alive,
                order,
                bounds,
                firsts,
                new_seed(rng),
                _TOLERANCE,
                min(nodes, get_num_threads() * _TASKS_PER_THREAD),
                level.order,
                level.traces,
                level.rounds,
            )
        return level


# ---- many centres, by Euclidean distance ----


def first_centres(rows: F32, n_clusters: int, rng: np.random.Generator) -> F32:
    """(n_clusters, D): k-means++. Rows by the chance of their squared distance to the nearest centre chosen before.

    Above a thousand clusters several rows are drawn at a time: nearly as good, and products of matrices in place of
    vectors.
    """
    each = -(-n_clusters // _MOST_DRAWS)
    chosen = [int(rng.integers(len(rows)))]
    squares = np.einsum("nd,nd->n", rows, rows)
    distance = np.full(len(rows), np.inf, dtype=np.float32)
    while len(chosen) < n_clusters:
        new = rows[chosen[-each:]]
        distance = np.minimum(distance, _squared_distances(rows, squares, new).min(axis=1))
        distance[chosen[-each:]] = 0
        chosen += _draw(distance, min(each, n_clusters - len(chosen)), chosen, rng)
    return rows[chosen].copy()


def _draw(distance: F32, count: int, chosen: list[int], rng: np.random.Generator) -> list[int]:
    """`count` different rows by the chance of their distance; any that are left where too few have one."""
    weights = distance.astype(np.float64)
    possible = int(np.count_nonzero(weights))
    drawn: list[int] = []
    if possible:
        drawn = rng.choice(len(weights), min(count, possible), replace=False, p=weights / weights.sum()).tolist()
    if len(drawn) < count:
        rest = np.setdiff1d(np.arange(len(weights)), np.array([*chosen, *drawn], dtype=np.int64))
        drawn += rng.choice(rest, count - len(drawn), replace=False).tolist()
    return drawn


def nearest_centres(rows: F32, centres: F32) -> tuple[I32, F32]:
    """The nearest centre of every row, ties to the lower number, and the squared distance to it."""
    owners, distances = np.empty(len(rows), dtype=np.int32), np.empty(len(rows), dtype=np.float32)
    block = max(1, _BLOCK_DISTANCES // len(centres))
    for start in range(0, len(rows), block):
        part = rows[start : start + block]
        found = _squared_distances(part, np.einsum("nd,nd->n", part, part), centres)
        owners[start : start + block] = np.argmin(found, axis=1)
        distances[start : start + block] = np.take_along_axis(
            found, owners[start : start + block, None].astype(np.int64), axis=1
        )[:, 0]
    return owners, distances


def _squared_distances(rows: F32, squares: F32, centres: F32) -> F32:
    """(n, c) float32, at least 0. squares: (n,) squared lengths of the rows."""
    found = rows @ centres.T
    found *= -2
    found += np.einsum("kd,kd->k", centres, centres)
    found += squares[:, None]
    return np.maximum(found, 0, out=found)
