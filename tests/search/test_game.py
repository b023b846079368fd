"""GAME against dense products, as an identity, and under another numbering of labels."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from longtail.errors import ConfigError
from longtail.search.shortlist import Game, cluster_graph
from longtail.types import F32, I32, Csr, TopK

Dense = NDArray[np.float64]


def random_graph(rng: np.random.Generator, nodes: int) -> Csr:
    """Not symmetric; values that float32 holds exactly, so that sums in any order agree."""
    return csr_array(((rng.random((nodes, nodes)) < 0.3) * rng.integers(1, 8, (nodes, nodes)) / 8).astype(np.float32))


def random_finds(rng: np.random.Generator, documents: int, nodes: int, places: int) -> tuple[I32, F32, Dense]:
    """Found nodes with padding anywhere, their scores, and the same as dense rows."""
    ids, scores = np.full((documents, places), -1, np.int32), np.zeros((documents, places), np.float32)
    dense = np.zeros((documents, nodes))
    for row in range(documents):
        count = int(rng.integers(0, min(nodes, places) + 1))
        at, chosen = rng.permutation(places)[:count], rng.permutation(nodes)[:count]
        ids[row, at], scores[row, at] = chosen, rng.integers(1, 16, count) / 16
        dense[row, chosen] = scores[row, at]
    return ids, scores, dense


def expected_rows(dense: Dense, graph: Dense, mix: float, transpose: bool) -> Dense:
    spread = dense @ graph if transpose else dense @ graph.T  # rows of p = G p~
    return mix * spread + (1 - mix) * dense


# ---- spreading ----


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
@settings(deadline=None, max_examples=80)
def test_spread_scores_are_the_dense_product(seed: int, mix: float, transpose: bool) -> None:
    rng = np.random.default_rng(seed)
    nodes, places, keep = (int(n) for n in rng.integers(1, 12, 3))
    graph, (ids, scores, dense) = random_graph(rng, nodes), random_finds(rng, 7, nodes, places)
    top = Game(graph, mix, transpose).spread(ids, scores, keep)
    assert top.ids.shape == (7, keep)
    wanted = expected_rows(dense, graph.toarray().astype(float), mix, transpose)
    for row, values in enumerate(wanted):
        order = [node for node in np.lexsort((np.arange(nodes), -values)).tolist() if values[node] > 0][:keep]
        assert top.ids[row].tolist() == order + [-1] * (keep - len(order))
        np.testing.assert_allclose(top.scores[row, : len(order)], values[order], rtol=1e-6)
        assert np.isneginf(top.scores[row, len(order) :]).all()


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
@settings(deadline=None, max_examples=80)
def test_within_a_list_only_its_own_nodes_give_and_get(seed: int, mix: float, transpose: bool) -> None:
    rng = np.random.default_rng(seed)
    nodes, places = int(rng.integers(1, 12)), int(rng.integers(0, 12))
    graph, (ids, scores, dense) = random_graph(rng, nodes), random_finds(rng, 7, nodes, places)
    game = Game(graph, mix, transpose)
    found = game.within(ids, scores)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longtail.search.shortlist._TABLE", 0)
        np.testing.assert_array_equal(
            game.within(ids, scores), found, err_msg="through a hash table per row, as in large graphs"
        )
    wanted = expected_rows(dense, graph.toarray().astype(float), mix, transpose)
    assert found.shape == ids.shape
    np.testing.assert_allclose(
        found, np.where(ids >= 0, np.take_along_axis(wanted, np.maximum(ids, 0).astype(np.int64), axis=1), 0), atol=1e-6
    )


@pytest.mark.claim("E6")
@given(st.integers(0, 10_000), st.sampled_from([0.3, 1.0]), st.booleans())
@settings(deadline=None, max_examples=40)
def test_along_the_identity_nothing_changes(seed: int, mix: float, transpose: bool) -> None:
    rng = np.random.default_rng(seed)
    ids, scores, dense = random_finds(rng, 6, 9, 7)
    game = Game(eye_array(9, format="csr", dtype=np.float32), mix, transpose)
    np.testing.assert_allclose(game.within(ids, scores), scores, rtol=1e-7, atol=1e-9)
    top = game.spread(ids, scores, 9)
    for row in range(6):
        kept = {int(node): score for node, score in zip(top.ids[row], top.scores[row], strict=True) if node >= 0}
        assert kept.keys() == set(np.flatnonzero(dense[row]).tolist())
        assert all(kept[node] == pytest.approx(dense[row, node], abs=1e-7) for node in kept)


@pytest.mark.claim("E6")
@given(st.integers(0, 10_000), st.sampled_from([0.5, 1.0]), st.booleans())
@settings(deadline=None, max_examples=40)
def test_another_numbering_changes_names_only(seed: int, mix: float, transpose: bool) -> None:
    rng = np.random.default_rng(seed)
    graph, (ids, scores, _) = random_graph(rng, 10), random_finds(rng, 6, 10, 8)
    new = rng.permutation(10).astype(np.int32)  # new number of each node
    renamed = csr_array(graph.toarray()[np.ix_(np.argsort(new), np.argsort(new))])
    renamed_ids = np.where(ids >= 0, new[ids], -1).astype(np.int32)
    np.testing.assert_allclose(
        Game(renamed, mix, transpose).within(renamed_ids, scores),
        Game(graph, mix, transpose).within(ids, scores),
        atol=1e-9,
    )
    before, after = (
        Game(graph, mix, transpose).spread(ids, scores, 10),
        Game(renamed, mix, transpose).spread(renamed_ids, scores, 10),
    )
    for row in range(6):
        assert as_scores(after, row) == {int(new[node]): score for node, score in as_scores(before, row).items()}


def as_scores(top: TopK, row: int) -> dict[int, float]:
    return {int(node): float(score) for node, score in zip(top.ids[row], top.scores[row], strict=True) if node >= 0}


# ---- the graph of clusters ----


@pytest.mark.claim("E6")
@given(st.integers(0, 10_000), st.sampled_from(["mean", "both"]))
@settings(deadline=None, max_examples=50)
def test_edges_of_clusters_join_those_of_their_labels(seed: int, scale: Any) -> None:
    rng = np.random.default_rng(seed)
    graph = csr_array(rng.random((11, 11)) * (rng.random((11, 11)) < 0.4))
    clusters = rng.integers(-1, 4, 11).astype(np.int32)
    members = (clusters[:, None] == np.arange(4)).astype(np.float64)
    if scale == "mean":
        members /= np.maximum(members.sum(axis=0), 1)
    expected = members.T @ graph.toarray() @ members
    if scale == "both":
        rows, columns = (np.sqrt(np.maximum(expected.sum(axis=axis), 1e-300)) for axis in (1, 0))
        expected = np.where(expected > 0, expected / rows[:, None] / columns, 0)
    found = cluster_graph(graph, clusters, 4, scale)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6, atol=1e-9)
    assert found.shape == (4, 4)
    assert found.dtype == np.float32
    assert found.has_sorted_indices


def test_balanced_clusters_of_single_labels_stay_as_they_are() -> None:
    found = cluster_graph(eye_array(6, format="csr"), np.array([0, 0, 1, 1, 2, 2], np.int32), 3)
    np.testing.assert_allclose(found.toarray(), np.eye(3) / 2)  # smaller, but all alike
    np.testing.assert_allclose(
        cluster_graph(eye_array(6, format="csr"), np.array([0, 0, 1, 1, 2, 2], np.int32), 3, "both").toarray(),
        np.eye(3),
    )


# ---- borders ----


def test_threads_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    graph, (ids, scores, _) = random_graph(rng, 50), random_finds(rng, 200, 50, 20)
    scores *= np.float32(0.1)  # no longer exact: the order of sums would show
    game, before, answers = Game(graph), numba.get_num_threads(), []
    try:
        for threads in (1, before):
            numba.set_num_threads(threads)
            answers.append((game.spread(ids, scores, 15), game.within(ids, scores)))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(answers[0][0].ids, answers[1][0].ids)
    np.testing.assert_array_equal(answers[0][0].scores, answers[1][0].scores)
    np.testing.assert_array_equal(answers[0][1], answers[1][1])


def test_no_documents_and_no_finds() -> None:
    game = Game(random_graph(np.random.default_rng(0), 4))
    assert game.spread(np.zeros((0, 3), np.int32), np.zeros((0, 3), np.float32), 2).ids.shape == (0, 2)
    assert game.within(np.zeros((2, 0), np.int32), np.zeros((2, 0), np.float32)).shape == (2, 0)
    assert (game.spread(np.full((2, 3), -1, np.int32), np.zeros((2, 3), np.float32), 2).ids == -1).all()


@pytest.mark.parametrize("mix", [-0.1, 1.1])
def test_refuses_a_mix_out_of_bounds(mix: float) -> None:
    with pytest.raises(ConfigError, match="0 to 1"):
        Game(eye_array(2, format="csr"), mix)
