"""Mini-batch k-means of many dense rows into many clusters of any size. Paper: GNN-XML Sec. 3.2, after Sculley (WWW
2010).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.errors import ConfigError
from longtail.types import F32, I32, I64

# Rows that the first centres are chosen from, per cluster.
_ROWS_PER_CENTRE = 3
# The first centres are chosen in at most so many draws, several at a time where there are more clusters.
_MOST_DRAWS = 1000
# Distances held at once.
_BLOCK_DISTANCES = 1 << 23


def minibatch_kmeans(
    rows: F32, n_clusters: int, rng: np.random.Generator, *, batch: int = 10_000, rounds: int = 100
) -> I32:
    """The cluster of every row, (n,) int32 in 0..n_clusters-1, by Euclidean distance; no cluster is empty where rows
    differ enough.

    Each round moves the centres towards a batch of rows, a centre by 1 / (rows it has seen) for each of them, so it
    stays their mean.
    """
    if not 1 <= n_clusters <= max(len(rows), 1):
        raise ConfigError(f"{n_clusters} clusters of {len(rows)} rows asked for", f"use 1 to {max(len(rows), 1)}")
    if not len(rows):
        return np.zeros(0, dtype=np.int32)
    chosen = rng.permutation(len(rows))[: max(_ROWS_PER_CENTRE * n_clusters, batch)]
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


def _move(centres: F32, seen: NDArray[np.float64], rows: F32, owners: I32) -> None:
    """Centres become the mean of all rows they have seen."""
    from scipy.sparse import csr_array

    counts = np.bincount(owners, minlength=len(centres))
    members = csr_array(
        (np.ones(len(rows), np.float32), owners, np.arange(len(rows) + 1)), shape=(len(rows), len(centres))
    )
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
