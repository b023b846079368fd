"""Clusters by graph-augmented centroids: every label once, no cluster empty, heads apart, and neighbours together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from longtail.errors import ConfigError
from longtail.graph.label_graph import LabelGraphConfig, head_labels, label_graph
from longtail.metrics import lmi
from longtail.recipes.eclare.stages import augmented_clusters
from longtail.search.cluster import balanced_clusters, even_clusters


def identity(labels: int) -> Any:
    return csr_array(np.eye(labels, dtype=np.float32))


# ---- any number of clusters ----


@given(st.integers(0, 10_000), st.integers(1, 60), st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_number_of_clusters_comes_out_balanced(seed: int, n_rows: int, dense: bool) -> None:
    rng = np.random.default_rng(seed)
    n_clusters = int(rng.integers(1, n_rows + 1))
    rows: Any = random_array((n_rows, 12), density=0.3, rng=rng, dtype=np.float32).tocsr()
    clusters = even_clusters(rows.toarray() if dense else rows, n_clusters, rng)
    sizes = np.bincount(clusters, minlength=n_clusters)
    assert len(sizes) == n_clusters
    assert sizes.max() - sizes.min() <= 1


def test_a_power_of_two_is_the_balanced_tree() -> None:
    rows = np.random.default_rng(0).random((53, 6)).astype(np.float32)
    np.testing.assert_array_equal(
        even_clusters(rows, 16, np.random.default_rng(1)), balanced_clusters(rows, 16, np.random.default_rng(1))
    )


def test_three_groups_are_found_as_three_clusters() -> None:
    """An odd number splits one to two: 2-means must cut between groups, not through one."""
    rng, groups = np.random.default_rng(2), np.arange(60) % 3
    rows = np.eye(3, dtype=np.float32)[groups] + 0.05 * rng.random((60, 3)).astype(np.float32)
    clusters = even_clusters(rows, 3, rng)
    assert all(len(np.unique(clusters[groups == group])) == 1 for group in range(3))


@pytest.mark.parametrize("n_clusters", [0, 6])
def test_too_many_clusters_are_an_error(n_clusters: int) -> None:
    with pytest.raises(ConfigError, match="1 to 5"):
        even_clusters(np.ones((5, 2), np.float32), n_clusters, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="1 to 5"):
        augmented_clusters(
            np.ones((1, 2), np.float32),
            csr_array((1, 5)),
            identity(5),
            np.zeros(5, bool),
            n_clusters,
            np.random.default_rng(0),
        )


# ---- every label in one cluster, none empty ----


@given(
    st.integers(0, 10_000),
    st.integers(1, 30),
    st.booleans(),
    st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
@settings(deadline=None, max_examples=80)
def test_every_label_has_a_cluster_and_every_cluster_a_label(
    seed: int, labels: int, dense: bool, head_share: float, empty_share: float
) -> None:
    rng = np.random.default_rng(seed)
    n_clusters = int(rng.integers(1, labels + 1))
    heads = rng.random(labels) < head_share
    targets = csr_array(((rng.random((25, labels)) < 0.2) * (rng.random(labels) >= empty_share)).astype(np.float32))
    documents: Any = random_array((25, 10), density=0.3, rng=rng, dtype=np.float32).tocsr()
    clusters = augmented_clusters(
        documents.toarray() if dense else documents, targets, identity(labels), heads, n_clusters, rng
    )
    assert clusters.dtype == np.int32
    assert np.array_equal(np.unique(clusters), np.arange(n_clusters))
    for group in (heads, ~heads):
        sizes = np.bincount(clusters[group])
        if n_clusters > 1 and group.any():
            assert not np.isin(clusters[group], clusters[~group]).any(), "heads and tails share no cluster"
            assert np.ptp(sizes[sizes > 0]) <= 1


def test_heads_get_their_share_of_clusters_and_the_last_numbers() -> None:
    rng = np.random.default_rng(0)
    documents, targets = (
        rng.random((50, 6)).astype(np.float32),
        csr_array((rng.random((50, 40)) < 0.3).astype(np.float32)),
    )
    for n_heads, expected in ((0, 0), (1, 1), (4, 2), (20, 8), (40, 16)):
        heads = np.arange(40) < n_heads
        clusters = augmented_clusters(documents, targets, identity(40), heads, 16, np.random.default_rng(1))
        assert len(np.unique(clusters[heads])) == expected
        assert (clusters[heads] >= 16 - expected).all()


# ---- the graph at work ----


def test_a_label_without_documents_goes_where_its_neighbour_goes() -> None:
    """Two topics; label 4 has no document and hangs on label 0 in the graph, label 5 on label 3."""
    documents = np.repeat(np.eye(2, dtype=np.float32), 4, axis=0)
    targets = np.zeros((8, 6), np.float32)
    targets[:4, :2], targets[4:, 2:4] = 1, 1
    graph = np.eye(6, dtype=np.float32)
    graph[4, 0] = graph[5, 3] = 0.5
    clusters = augmented_clusters(
        documents, csr_array(targets), csr_array(graph), np.zeros(6, bool), 2, np.random.default_rng(0)
    )
    assert clusters[0] == clusters[1] == clusters[4] != clusters[2]
    assert clusters[2] == clusters[3] == clusters[5]


@pytest.mark.parametrize("dense", [False, True])
def test_centroids_are_summed_over_the_graph(dense: bool) -> None:
    rng = np.random.default_rng(3)
    documents, targets = rng.random((40, 9)).astype(np.float32), (rng.random((40, 24)) < 0.15).astype(np.float32)
    graph = ((rng.random((24, 24)) < 0.2) * rng.random((24, 24)) + np.eye(24)).astype(np.float32)
    augmented = graph @ (targets.T @ documents)
    expected = even_clusters(augmented, 6, np.random.default_rng(0))
    given_documents = documents if dense else csr_array(documents)
    found = augmented_clusters(
        given_documents, csr_array(targets), csr_array(graph), np.zeros(24, bool), 6, np.random.default_rng(0)
    )
    np.testing.assert_array_equal(found, expected)


def test_the_graph_completes_what_missing_labels_hide() -> None:
    """Pairs of labels belong together, but each of their documents keeps only one of them, with few and varied words:
    E5 in small.
    """
    rng = np.random.default_rng(0)
    pairs, per_pair = 64, 6
    documents, truth = (
        np.zeros((pairs * per_pair, pairs * 8), np.float32),
        np.zeros((pairs * per_pair, 2 * pairs), np.float32),
    )
    for row in range(len(documents)):
        pair = row % pairs
        documents[row, pair * 8 + rng.integers(8, size=2)] = 1
        truth[row, [2 * pair, 2 * pair + 1]] = 1
    observed = truth * (rng.random(truth.shape) < 0.6)
    targets = csr_array(observed.astype(np.float32))
    heads = head_labels(targets, 100)
    graph = label_graph(targets, LabelGraphConfig(head_documents=100), rng)
    with_graph, without = (
        augmented_clusters(csr_array(documents), targets, g, heads, pairs, np.random.default_rng(1))
        for g in (graph, identity(2 * pairs))
    )
    shuffled = rng.permutation(with_graph)
    losses = [lmi(csr_array(truth), clusters).nats for clusters in (with_graph, without, shuffled)]
    assert losses[0] < losses[1] < losses[2]
