"""The label graph of conditional co-occurrence and its low-pass filter: an example by hand, the spectrum, sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.errors import ConfigError
from longtail.recipes.gnnxml.label_clusters import correlation_graph, low_pass, sampled_low_pass, spread_matrix

# Label sets {0, 1}, {0, 1}, {0}, {2}, {2, 1}; label 3 has no document and is dropped.
EXAMPLE = csr_array(np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 1]], dtype=np.float32))

label_sets = st.integers(0, 2**32 - 1).map(lambda seed: random_targets(seed))


def random_targets(seed: int, documents: int = 30, labels: int = 12) -> Any:
    rng = np.random.default_rng(seed)
    chance = rng.uniform(0.02, 0.4, labels)
    return csr_array((rng.random((documents, labels)) < chance).astype(np.float32))


def features(seed: int, labels: int = 12, width: int = 5) -> Any:
    return np.random.default_rng(seed).standard_normal((labels, width))


def dense_spread(targets: Any, threshold: float = 0.4, weight: float = 0.2) -> Any:
    """S by the formulas of the paper, with loops."""
    y = targets.toarray()
    labels = y.shape[1]
    a = np.zeros((labels, labels))
    for i in range(labels):
        edges = [
            j
            for j in range(labels)
            if j != i and y[:, i].sum() and (y[:, i] @ y[:, j]) / y[:, i].sum() >= threshold and y[:, i] @ y[:, j] > 0
        ]
        a[i, edges] = weight / max(len(edges), 1)
        a[i, i] = 1 - weight if edges else 1
    a = (a + a.T) / 2
    d = a.sum(axis=1)
    return a / np.sqrt(d[:, None] * d)


# ---- N1 ----


@pytest.mark.claim("N1")
def test_the_example_by_hand() -> None:
    a = correlation_graph(EXAMPLE, 0.4, 0.2)
    np.testing.assert_allclose(a.toarray(), [[0.8, 0.2, 0], [0.2, 0.8, 0], [0, 0.2, 0.8]], atol=1e-12)
    np.testing.assert_allclose(a.sum(axis=1), 1, atol=1e-12)
    symmetric = np.array([[0.8, 0.2, 0], [0.2, 0.8, 0.1], [0, 0.1, 0.8]])
    degrees = np.array([1, 1.1, 0.9])
    np.testing.assert_allclose(((a + a.T) / 2).toarray(), symmetric, atol=1e-12)
    np.testing.assert_allclose(((a + a.T) / 2).sum(axis=1), degrees, atol=1e-12)
    s = spread_matrix(a)
    np.testing.assert_allclose(s.toarray(), symmetric / np.sqrt(degrees[:, None] * degrees), atol=1e-12)
    fixed = np.sqrt(degrees)[:, None] * np.ones((1, 2))
    np.testing.assert_allclose(low_pass(fixed, s, 3), fixed, atol=1e-12)
    z = features(0, 3)
    np.testing.assert_array_equal(low_pass(z, s, 0), z)


def test_a_label_that_stands_alone_keeps_its_features() -> None:
    targets = csr_array(np.array([[1, 1, 0, 0], [0, 0, 1, 0]], dtype=np.float32))
    a = correlation_graph(targets)
    np.testing.assert_allclose(a.toarray()[2:], [[0, 0, 1, 0], [0, 0, 0, 1]])
    z = features(1, 4)
    np.testing.assert_allclose(low_pass(z, spread_matrix(a), 3)[2:], z[2:])


def test_thresholds_count_shares_not_numbers() -> None:
    a = correlation_graph(EXAMPLE, 0.6).toarray()
    assert a[0, 1] > 0, "label 1 is in two thirds of label 0's documents"
    assert a[2, 1] == 0, "and in half of label 2's"


def test_blocks_of_labels_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = random_targets(5)
    whole = correlation_graph(targets).toarray()
    monkeypatch.setattr("longtail.recipes.gnnxml.label_clusters._COUNT_BLOCK", 5)
    np.testing.assert_array_equal(correlation_graph(targets).toarray(), whole)
    z = features(2, width=150)
    np.testing.assert_allclose(
        low_pass(z, spread_matrix(correlation_graph(targets)), 2)[:, :70],
        low_pass(z[:, :70], spread_matrix(csr_array(whole)), 2),
    )


# ---- N2, N3 ----


@pytest.mark.claim("N2")
@given(label_sets, st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_the_filter_is_low_pass(targets: Any, order: int) -> None:
    s = spread_matrix(correlation_graph(targets, 0.3)).toarray()
    laplacian = np.eye(len(s)) - s
    np.testing.assert_allclose(laplacian, laplacian.T, atol=1e-12)
    values, vectors = np.linalg.eigh(laplacian)
    assert values.min() >= -1e-8
    assert values.max() <= 2 + 1e-8
    response = (1 - values / 2) ** order
    assert (np.diff(response) <= 1e-8).all(), "higher frequencies pass less"
    filtered = low_pass(vectors.copy(), csr_array(s), order)
    np.testing.assert_allclose(filtered, vectors * response, atol=1e-8)
    z = features(order)
    assert np.linalg.norm(low_pass(z, csr_array(s), order)) <= np.linalg.norm(z) + 1e-8
    if order == 0:
        np.testing.assert_array_equal(low_pass(z, csr_array(s), 0), z)


@pytest.mark.claim("N3")
@given(label_sets, st.integers(0, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_one_factor_at_a_time_is_the_power_of_the_matrix(targets: Any, order: int, sparse: bool) -> None:
    z = features(3)
    expected = np.linalg.matrix_power((np.eye(12) + dense_spread(targets)) / 2, order) @ z
    found = low_pass(csr_array(z) if sparse else z, spread_matrix(correlation_graph(targets)), order)
    np.testing.assert_allclose(found.toarray() if sparse else found, expected, atol=1e-6)


def test_directed_leaves_the_graph_as_it_is() -> None:
    a = correlation_graph(EXAMPLE)
    z = features(4, 3)
    np.testing.assert_allclose(low_pass(z, spread_matrix(a, directed=True), 1), (z + a.toarray() @ z) / 2)


def test_single_precision_stays_single() -> None:
    z = features(6).astype(np.float32)
    s = spread_matrix(correlation_graph(random_targets(6)))
    assert low_pass(z, s, 3).dtype == np.float32
    assert sampled_low_pass(z, s, 2, 4, np.random.default_rng(0)).dtype == np.float32


# ---- N4 ----


@pytest.mark.claim("N4")
@pytest.mark.parametrize("order", [1, 2])
def test_the_sampled_filter_is_unbiased(order: int) -> None:
    targets, z = random_targets(7), features(7)
    s = spread_matrix(correlation_graph(targets, 0.2))
    assert s.nnz > 30
    rng = np.random.default_rng(8)
    draws = np.array([sampled_low_pass(z, s, order, 6, rng, batch=5) for _ in range(1000)])
    error = np.abs(draws.mean(axis=0) - low_pass(z, s, order))
    assert (error <= 3.5 * draws.std(axis=0) / np.sqrt(len(draws)) + 1e-12).all(), (
        "60 numbers within their standard errors"
    )


@pytest.mark.claim("N4")
def test_its_error_falls_with_the_root_of_the_sample() -> None:
    targets, z = random_targets(7), features(7)
    s = spread_matrix(correlation_graph(targets, 0.2))
    exact, rng = low_pass(z, s, 1), np.random.default_rng(9)
    errors = [
        np.sqrt(np.mean([(sampled_low_pass(z, s, 1, sample, rng) - exact) ** 2 for _ in range(400)]))
        for sample in (4, 16, 64)
    ]
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.15)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.15)


def test_a_sample_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="sample of 0"):
        sampled_low_pass(features(0, 3), spread_matrix(correlation_graph(EXAMPLE)), 1, 0, np.random.default_rng(0))
