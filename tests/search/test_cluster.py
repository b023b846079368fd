"""Balanced clusters on planted groups, dense against sparse, and on awkward inputs."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from longtail.errors import ConfigError
from longtail.graph.ops import ensure_diagonal, random_walk_graph, scale_rows_to_sum_one, unit_rows
from longtail.search import cluster
from longtail.search.cluster import (
    balanced_clusters,
    cluster_count,
    label_centroids,
    meta_labels,
    smooth,
    spherical_kmeans,
)
from longtail.types import F32, Csr


def balanced_halves(rows: Csr | F32, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """One split: whether each row is in the second (smaller or equal) half, and the mean cosine to the own centre per
    round.
    """
    n_rows = int(rows.shape[0])
    half = (n_rows + 1) // 2
    level = cluster._UnitRows(rows).split(np.arange(n_rows), np.array([0, n_rows]), np.array([half]), rng)
    second = np.zeros(n_rows, dtype=np.bool_)
    second[level.order[half:]] = True
    return second, level.traces[0, : level.rounds[0]]


def sparse_rows(n: int, columns: int, seed: int, share: float = 0.1) -> Csr:
    rng = np.random.default_rng(seed)
    return csr_array((rng.random((n, columns)) * (rng.random((n, columns)) < share)).astype(np.float32))


def planted_groups(groups: int, per_group: int, seed: int, noise: float = 0.1) -> tuple[F32, NDArray[np.int64]]:
    """Rows around orthogonal directions, shuffled; and the group of each."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(groups), per_group))
    return (np.eye(groups, groups + 4)[group] + noise * rng.random((len(group), groups + 4))).astype(np.float32), group


@pytest.mark.claim("A4")
@given(n=st.integers(1, 90), height=st.integers(0, 6), seed=st.integers(0, 99), dense=st.booleans())
@settings(deadline=None, max_examples=100)
def test_sizes_are_balanced_and_every_label_has_one_cluster(n: int, height: int, seed: int, dense: bool) -> None:
    rows = sparse_rows(n, 12, seed, share=0.2)
    clusters = balanced_clusters(rows.toarray() if dense else rows, 2**height, np.random.default_rng(seed))
    count = min(2**height, 2 ** int(np.log2(n)))
    assert clusters.shape == (n,)
    sizes = np.bincount(clusters)
    assert len(sizes) == count
    assert sizes.min() >= n // count
    assert sizes.max() <= -(-n // count)
    while (
        len(sizes) > 1
    ):  # every split of the tree: the halves of a node differ by at most one, the first is not smaller
        halves = sizes.reshape(-1, 2)
        assert np.isin(halves[:, 0] - halves[:, 1], (0, 1)).all()
        sizes = halves.sum(axis=1)


@pytest.mark.claim("A5")
@given(n=st.integers(3, 120), seed=st.integers(0, 999), dense=st.booleans())
@settings(deadline=None, max_examples=100)
def test_objective_never_falls_and_is_what_it_says(n: int, seed: int, dense: bool) -> None:
    rows = sparse_rows(n, 15, seed, share=0.3)
    second, objectives = balanced_halves(rows.toarray() if dense else rows, np.random.default_rng(seed))
    assert (np.diff(objectives) >= -1e-12).all()
    units = unit_rows(rows.toarray())
    lengths = [np.linalg.norm(units[half].sum(axis=0, dtype=np.float64)) for half in (second, ~second)]
    if len(objectives):
        assert objectives[-1] == pytest.approx(sum(lengths) / n, abs=1e-6)


def test_a_split_ends_at_a_fixed_point() -> None:
    """One more round by plain numpy must not find a better assignment of more than the tolerance."""
    units = unit_rows(sparse_rows(200, 30, 5).toarray())
    second, objectives = balanced_halves(units, np.random.default_rng(0))
    centres = unit_rows(np.stack([units[~second].sum(axis=0), units[second].sum(axis=0)]))
    gap = units @ centres[0] - units @ centres[1]
    again = np.ones(200, dtype=bool)
    again[np.argsort(-gap, kind="stable")[:100]] = False
    better = sum(np.linalg.norm(units[half].sum(axis=0)) for half in (again, ~again)) / 200
    assert better - objectives[-1] < 1e-4
    assert len(objectives) > 1


@pytest.mark.parametrize("dense", [True, False])
def test_planted_groups_are_found(dense: bool) -> None:
    rows, group = planted_groups(8, 16, 0)
    clusters = balanced_clusters(rows if dense else csr_array(rows), 8, np.random.default_rng(0))
    pure = sum(np.bincount(group[clusters == c]).max() for c in range(8)) / len(group)
    assert pure > 0.8  # 2-means is greedy: one early split may cut a group


def test_two_planted_groups_are_found_exactly() -> None:
    rows, group = planted_groups(2, 50, 1)
    for seed in range(5):
        second, _ = balanced_halves(rows, np.random.default_rng(seed))
        assert len(np.unique(group[second])) == 1


def test_seeds_are_different_directions() -> None:
    """Two equal seeds would leave the few odd rows, which stand at both ends, where they are."""
    rows = np.tile(np.array([1, 0], dtype=np.float32), (62, 1))
    rows[[0, 61]] = [0, 1]
    for seed in range(10):
        second, _ = balanced_halves(rows, np.random.default_rng(seed))
        assert second[0] == second[61]


def test_zero_rows_are_no_seeds() -> None:
    rows = np.zeros((30, 2), dtype=np.float32)
    rows[:2] = np.eye(2)
    for seed in range(10):
        second, _ = balanced_halves(csr_array(rows), np.random.default_rng(seed))
        assert second[0] != second[1]


def test_dense_and_sparse_agree_and_threads_do_not_matter() -> None:
    rows = sparse_rows(300, 40, 7)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        one = balanced_clusters(rows, 32, np.random.default_rng(3))
        numba.set_num_threads(before)
        many = balanced_clusters(rows, 32, np.random.default_rng(3))
    finally:
        numba.set_num_threads(before)
    assert np.array_equal(one, many)
    assert np.array_equal(one, balanced_clusters(rows.toarray(), 32, np.random.default_rng(3)))
    assert not np.array_equal(one, balanced_clusters(rows, 32, np.random.default_rng(4)))


def test_scale_of_a_row_does_not_matter() -> None:
    rows = sparse_rows(60, 20, 1).toarray()
    scaled = rows * np.random.default_rng(0).choice([0.5, 2.0, 8.0], (60, 1)).astype(np.float32)
    assert np.array_equal(
        balanced_clusters(rows, 8, np.random.default_rng(0)), balanced_clusters(scaled, 8, np.random.default_rng(0))
    )


def test_zero_and_equal_rows_fill_up() -> None:
    rows, group = planted_groups(2, 20, 2)
    padded = np.concatenate([rows, np.zeros((41, rows.shape[1]), np.float32)])
    second, _ = balanced_halves(padded, np.random.default_rng(0))
    assert second.sum() == 40
    assert (
        len(np.unique(group[second[:40]])) == len(np.unique(group[~second[:40]])) == 1
    )  # zeros did not part the groups
    for same in (np.zeros((9, 3), np.float32), np.ones((9, 3), np.float32)):
        assert np.bincount(balanced_clusters(same, 4, np.random.default_rng(0))).tolist() == [3, 2, 2, 2]
        assert np.bincount(balanced_clusters(csr_array(same), 4, np.random.default_rng(0))).tolist() == [3, 2, 2, 2]


@pytest.mark.parametrize("n_clusters", [0, 3, -4])
def test_refuses_other_than_powers_of_two(n_clusters: int) -> None:
    with pytest.raises(ConfigError, match="power of two"):
        balanced_clusters(np.ones((5, 2), np.float32), n_clusters, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("labels", "expected"), [(1, 1), (7, 1), (8, 2), (3993, 512), (24_764, 4096), (131_073, 2**15), (3_000_000, 2**16)]
)
def test_cluster_count(labels: int, expected: int) -> None:
    assert cluster_count(labels) == expected


def correlated_labels(seed: int, groups: int = 16, per_group: int = 8) -> tuple[Csr, Csr]:
    """Labels of a group share documents, but have no word in common; which a walk can see and plain centroids
    cannot.
    """
    rng = np.random.default_rng(seed)
    n_labels = groups * per_group
    targets, words = np.zeros((900, n_labels), np.float32), np.zeros((900, 3 * n_labels + 40), np.float32)
    for document in range(900):
        group = rng.integers(groups)
        own = group * per_group + rng.choice(per_group, 2, replace=False)
        targets[document, own] = 1
        # The text tells of one of the two labels only, in one of its three words, and much noise.
        words[document, 3 * own[0] + rng.integers(3)] = 1
        words[document, 3 * n_labels + rng.integers(0, 40, 6)] = 0.5
    return csr_array(words), csr_array(targets)


@pytest.mark.claim("A5")
def test_smoothed_centroids_keep_co_occurring_labels_together() -> None:
    def within(clusters: NDArray[np.int32], y: Csr) -> float:
        together = (y.T @ y).toarray()
        np.fill_diagonal(together, 0)
        return float(together[clusters[:, None] == clusters[None]].sum() / together.sum())

    gains = []
    for seed in range(3):
        x, y = correlated_labels(seed)
        plain = label_centroids(x, y)
        walked = random_walk_graph(y, length=400, restart=0.8, rng=np.random.default_rng(seed), top_k=10)
        smoothed = smooth(plain, scale_rows_to_sum_one(ensure_diagonal(walked)), keep=64)
        gains.append(
            within(balanced_clusters(smoothed, 16, np.random.default_rng(seed)), y)
            - within(balanced_clusters(plain, 16, np.random.default_rng(seed)), y)
        )
    assert min(gains) > 0


def test_centroids_are_normalised_sums_of_documents() -> None:
    x, y = (
        sparse_rows(30, 10, 0, share=0.4),
        csr_array((np.random.default_rng(1).random((30, 6)) < 0.2).astype(np.float32)),
    )
    y = csr_array(np.concatenate([y.toarray(), np.zeros((30, 1), np.float32)], axis=1))  # label 6 has no document
    expected = np.zeros((7, 10))
    for label in range(6):
        expected[label] = x.toarray()[y.toarray()[:, label] > 0].sum(axis=0)
        expected[label] /= np.linalg.norm(expected[label])
    sparse, dense = label_centroids(x, y), label_centroids(x.toarray(), y)
    assert np.allclose(sparse.toarray(), expected, atol=1e-6)
    assert np.allclose(dense, expected, atol=1e-6)
    assert sparse.dtype == dense.dtype == np.float32


def test_smooth_is_the_product_with_the_graph() -> None:
    rows, graph = (
        unit_rows(sparse_rows(9, 12, 0, share=0.5)),
        csr_array(np.random.default_rng(0).random((9, 9)).astype(np.float32)),
    )
    expected = unit_rows(graph.toarray() @ rows.toarray())
    assert np.allclose(smooth(rows, graph).toarray(), expected, atol=1e-6)
    assert np.allclose(smooth(rows.toarray(), graph, keep=2), expected, atol=1e-6)
    pruned = smooth(rows, graph, keep=2)
    assert (np.diff(pruned.indptr) == 2).all()
    assert np.allclose(np.linalg.norm(pruned.toarray(), axis=1), 1)


def test_smoothing_in_blocks_of_rows_is_smoothing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, graph = sparse_rows(23, 40, 0, share=0.3), sparse_rows(23, 23, 1, share=0.3)
    at_once = smooth(rows, graph, keep=4).toarray()
    monkeypatch.setattr("longtail.search.cluster._SMOOTHED_ROWS", 5)
    assert np.array_equal(smooth(rows, graph, keep=4).toarray(), at_once)


def test_meta_labels() -> None:
    y = csr_array(np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]], dtype=np.float32))
    targets = meta_labels(y, np.array([1, 1, 0, 2], dtype=np.int32), 4)
    assert targets.toarray().tolist() == [[0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    assert targets.dtype == np.float32


def test_kmeans_finds_planted_modes() -> None:
    rows, group = planted_groups(5, 40, 3)
    centres = spherical_kmeans(
        np.concatenate([rows * 3, np.zeros((7, rows.shape[1]), np.float32)]), 5, np.random.default_rng(0)
    )
    assert centres.shape == (5, rows.shape[1])
    assert np.allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-5)
    nearest = np.argmax(unit_rows(rows) @ centres.T, axis=1)
    assert all(len(np.unique(nearest[group == g])) == 1 for g in range(5))
    assert len(np.unique(nearest)) == 5


def test_kmeans_gives_fewer_centres_where_points_repeat() -> None:
    directions = np.random.default_rng(0).random((3, 7)).astype(np.float32)
    points = np.concatenate([directions * scale for scale in (0.1, 1, 3, 7, 0)])  # equal but for rounding
    for seed in range(5):
        assert len(spherical_kmeans(points, 10, np.random.default_rng(seed))) == 3
    assert spherical_kmeans(np.zeros((3, 4), np.float32), 2, np.random.default_rng(0)).shape == (0, 4)


def test_kmeans_samples_large_inputs() -> None:
    points = np.random.default_rng(0).random((500, 6)).astype(np.float32)
    few = spherical_kmeans(points, 3, np.random.default_rng(0), sample=10)
    assert few.shape == (3, 6)
    assert not np.allclose(few, spherical_kmeans(points, 3, np.random.default_rng(0)))
