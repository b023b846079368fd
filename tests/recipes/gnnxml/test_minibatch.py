"""Mini-batch k-means: planted clusters, no empty ones, and the running mean of its centres."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import ConfigError
from longtail.recipes.gnnxml import label_clusters
from longtail.recipes.gnnxml.label_clusters import minibatch_kmeans
from longtail.search import cluster
from longtail.search.cluster import first_centres, nearest_centres
from longtail.types import F32


def planted(clusters: int, each: int, seed: int = 0) -> tuple[F32, F32]:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((clusters, 10)).astype(np.float32) * 10
    return np.repeat(centres, each, axis=0) + 0.1 * rng.standard_normal((clusters * each, 10)).astype(
        np.float32
    ), centres


@pytest.mark.parametrize("batch", [30, 10_000])
def test_planted_clusters_are_found(batch: int) -> None:
    rows, _ = planted(12, 20)
    found = minibatch_kmeans(rows, 12, np.random.default_rng(1), batch=batch).reshape(12, 20)
    assert (found == found[:, :1]).all()
    assert len(np.unique(found[:, 0])) == 12


def test_many_centres_are_drawn_several_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_MOST_DRAWS", 5)
    rows, _ = planted(20, 3)
    assert len(np.unique(first_centres(rows, 20, np.random.default_rng(0)), axis=0)) == 20
    assert np.bincount(minibatch_kmeans(rows, 20, np.random.default_rng(0))).min() >= 1


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_no_cluster_is_empty_also_of_equal_rows(rows: int, clusters: int, distinct: int) -> None:
    data = np.repeat(
        np.random.default_rng(rows).standard_normal((distinct, 3)).astype(np.float32), -(-rows // distinct), axis=0
    )[:rows]
    clusters = min(clusters, rows)
    found = minibatch_kmeans(data, clusters, np.random.default_rng(0), batch=8, rounds=3)
    assert found.dtype == np.int32
    assert (np.bincount(found, minlength=clusters) > 0).all()
    assert len(np.bincount(found)) == clusters


def test_nearest_by_plain_distances_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows, centres = rng.standard_normal((50, 4)).astype(np.float32), rng.standard_normal((7, 4)).astype(np.float32)
    expected = ((rows[:, None] - centres) ** 2).sum(axis=2)
    monkeypatch.setattr(cluster, "_BLOCK_DISTANCES", 70)
    owners, distances = nearest_centres(rows, centres)
    np.testing.assert_array_equal(owners, expected.argmin(axis=1))
    np.testing.assert_allclose(distances, expected.min(axis=1), atol=1e-4)


def test_a_centre_is_the_mean_of_the_rows_it_has_seen() -> None:
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((60, 3)).astype(np.float32)
    centres, seen, told = rows[:2].copy(), np.zeros(2), [np.zeros((0, 3)), np.zeros((0, 3))]
    for start in range(0, 60, 20):
        part = rows[start : start + 20]
        owners = nearest_centres(part, centres)[0]
        label_clusters._move(centres, seen, part, owners)
        told = [np.concatenate([before, part[owners == k]]) for k, before in enumerate(told)]
        np.testing.assert_allclose(centres, [mine.mean(axis=0) for mine in told], atol=1e-5)


def test_the_same_seed_gives_the_same_clusters_and_nonsense_is_refused() -> None:
    rows = np.random.default_rng(5).standard_normal((200, 5)).astype(np.float32)
    one, again, other = (minibatch_kmeans(rows, 9, np.random.default_rng(seed), batch=50) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    for count in (0, 201):
        with pytest.raises(ConfigError, match=f"{count} clusters of 200 rows"):
            minibatch_kmeans(rows, count, np.random.default_rng(0))
