"""Loss of mutual information against its definition as a sum of divergences, and on planted clusterings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.metrics import cluster_listing, lmi


def divergences(y: np.ndarray, clusters: np.ndarray) -> float:
    """Sum over clusters c and their labels l of p(l) KL(p(document | l) || p(document | c))."""
    joint, loss = y / y.sum(), 0.0
    for cluster in np.unique(clusters[clusters >= 0]):
        inside = [label for label in np.flatnonzero(clusters == cluster) if joint[:, label].sum() > 0]
        whole = sum((joint[:, label] for label in inside), np.zeros(len(y)))
        for label in inside:
            own = joint[:, label] / joint[:, label].sum()
            loss += joint[:, label].sum() * sum(
                p * math.log(p / q) for p, q in zip(own, whole / whole.sum(), strict=True) if p > 0
            )
    return loss


@pytest.mark.claim("E5u")
def test_labels_that_share_documents_lose_nothing_together_and_ln_2_apart() -> None:
    y = csr_array(np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]], dtype=np.float32))
    assert lmi(y, np.array([0, 0, 1, 1], np.int32)).nats == pytest.approx(0, abs=1e-9)
    crossing = lmi(y, np.array([0, 1, 0, 1], np.int32))
    assert crossing.nats == pytest.approx(math.log(2), abs=1e-9)
    assert crossing.percent == pytest.approx(100, abs=1e-9)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(deadline=None, max_examples=60)
def test_it_is_the_sum_of_divergences(seed: int, n_clusters: int) -> None:
    rng = np.random.default_rng(seed)
    y = (rng.random((9, 7)) < 0.4) * rng.integers(1, 4, (9, 7)).astype(np.float64)
    y[0, 0], y[:, 6] = 1, 0
    clusters = rng.integers(0, n_clusters, 7).astype(np.int32)
    clusters[6] = -1
    assert lmi(csr_array(y), clusters).nats == pytest.approx(divergences(y, clusters), abs=1e-9)


def test_every_label_alone_loses_nothing_and_one_cluster_loses_all() -> None:
    y = csr_array((np.random.default_rng(0).random((30, 8)) < 0.3).astype(np.float32))
    assert lmi(y, np.arange(8, dtype=np.int32)).nats == pytest.approx(0, abs=1e-12)
    together = lmi(y, np.zeros(8, np.int32))
    assert together.percent == pytest.approx(100)
    assert together.nats == pytest.approx(divergences(y.toarray().astype(np.float64), np.zeros(8)), abs=1e-9)


def test_borders() -> None:
    nothing = csr_array((3, 2), dtype=np.float32)
    assert lmi(nothing, np.array([-1, -1], np.int32)) == (0, 0)
    with pytest.raises(ValueError, match="no cluster"):
        lmi(csr_array(np.eye(2, dtype=np.float32)), np.array([0, -1], np.int32))


def test_listing() -> None:
    clusters = np.array([1, 0, 1, -1], np.int32)
    assert cluster_listing(clusters, ["a", "b", "c", "d"], [1, 0, 5]) == {1: ["a", "c"], 0: ["b"], 5: []}
