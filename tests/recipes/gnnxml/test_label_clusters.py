"""Clusters of labels by the ways that the settings name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.recipes.gnnxml.label_clusters import automatic_count, dense_rows, joined_features, label_clusters
from longtail.recipes.gnnxml.settings import ClusterConfig
from longtail.search.cluster import label_centroids

# 24 labels in 6 families of 4; labels of a family share documents, and label 24 has none.
FAMILIES, SIZE = 6, 4


def world(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    targets = np.zeros((240, FAMILIES * SIZE + 1), dtype=np.float32)
    for document in range(240):
        family = document % FAMILIES
        targets[document, family * SIZE + rng.choice(SIZE, 3, replace=False)] = 1
    targets = targets[rng.permutation(240)]
    noise = rng.standard_normal((FAMILIES * SIZE + 1, 8)).astype(np.float32)
    return csr_array(targets), unit_rows(noise)


def agreement(clusters: Any) -> float:
    """Share of pairs of a family that are in one cluster."""
    family = clusters[: FAMILIES * SIZE].reshape(FAMILIES, SIZE)
    return float(np.mean([family[:, i] == family[:, j] for i in range(SIZE) for j in range(i)]))


def test_the_filter_finds_families_in_noise() -> None:
    """Features are noise: only co-occurrence tells families apart, so k-means without the filter cannot."""
    targets, noise = world()
    config = ClusterConfig(count=FAMILIES, weight=0.9, order=20)
    by_graph = label_clusters(noise, targets, config, np.random.default_rng(0))
    plain = label_clusters(noise, targets, replace(config, partition="kmeans"), np.random.default_rng(0))
    assert agreement(by_graph) == 1
    assert agreement(plain) < 0.5
    assert by_graph[-1] == plain[-1] == -1, "a label without documents has no cluster"
    sampled = label_clusters(noise, targets, replace(config, sample=400), np.random.default_rng(0))
    assert agreement(sampled) > 0.7


@pytest.mark.parametrize("partition", ["graph", "kmeans", "random", "even"])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_partition_numbers_all_clusters(partition: Any, sparse: bool) -> None:
    targets, noise = world()
    features = csr_array(np.abs(noise)) if sparse else noise
    clusters = label_clusters(features, targets, ClusterConfig(partition=partition, count=5), np.random.default_rng(1))
    assert clusters.dtype == np.int32
    sizes = np.bincount(clusters[:-1], minlength=5)
    assert len(sizes) == 5
    assert sizes.min() > 0
    if partition in ("random", "even"):
        assert sizes.max() - sizes.min() <= 1


def test_order_zero_is_plain_kmeans() -> None:
    targets, noise = world()
    config = ClusterConfig(count=5)
    found = [
        label_clusters(noise, targets, c, np.random.default_rng(2))
        for c in (replace(config, order=0), replace(config, partition="kmeans"))
    ]
    np.testing.assert_array_equal(found[0], found[1])


def test_more_clusters_than_labels_are_refused() -> None:
    targets, noise = world()
    with pytest.raises(ConfigError, match="count is 25, but only 24"):
        label_clusters(noise, targets, ClusterConfig(count=25), np.random.default_rng(0))


def test_counts() -> None:
    assert [automatic_count(n) for n in (1, 12, 3_993, 30_938, 501_008)] == [1, 3, 66, 515, 8350]


def test_wide_sparse_rows_are_projected_and_cosines_stay() -> None:
    rng = np.random.default_rng(3)
    rows = csr_array((rng.random((40, 9000)) < 0.01).astype(np.float32))
    exact, found = unit_rows(rows).toarray(), unit_rows(dense_rows(rows, rng))
    assert found.shape == (40, 1024)
    assert np.abs(exact @ exact.T - found @ found.T).max() < 0.15
    np.testing.assert_array_equal(dense_rows(rows[:, :100], rng), rows[:, :100].toarray())


def test_documents_and_texts_count_the_same() -> None:
    documents = label_centroids(np.eye(3, dtype=np.float32), csr_array(np.eye(3, dtype=np.float32)))
    joined = joined_features(documents, np.array([[1, 0], [0, 2], [0, 0]], np.float32))
    np.testing.assert_allclose(np.linalg.norm(joined, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose((joined[:2, :3] ** 2).sum(axis=1), 0.5, atol=1e-6)
