"""Sampled neighbourhoods against plain loops, and sums along paths against matrix algebra."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.recipes.galaxc.graph import Fanout, HiddenEdges, JointGraph, Paths, convolutions


def random_graph(n: int, rng: np.random.Generator, mean_degree: float = 3) -> JointGraph:
    """Directed, with isolated nodes."""
    lists = [
        rng.permutation(np.setdiff1d(np.arange(n), [node]))[: min(rng.poisson(mean_degree), n - 1)] for node in range(n)
    ]
    starts = np.cumsum([0, *map(len, lists)])
    return JointGraph(
        starts, np.concatenate([np.zeros(0, np.int32), *lists]).astype(np.int32), np.zeros(0, np.int32), n
    )


def dense(graph: JointGraph) -> Any:
    return graph.matrix().toarray().astype(np.float64)


def convolved(sums: Any, epsilons: Any) -> Any:
    return np.stack(list(convolutions(sums, epsilons)), axis=1)


# ---- G1 ----


@pytest.mark.claim("G1")
@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 12), hops=st.integers(1, 4), seed=st.integers(0, 10**6), full=st.booleans())
def test_with_all_neighbours_a_convolution_is_a_product_of_matrices(n: int, hops: int, seed: int, full: bool) -> None:
    """a^K = prod((1 + eps_k) I + A) a^0, with all neighbours by definition or because fan-outs are large and nothing
    is padded.
    """
    rng = np.random.default_rng(seed)
    graph, vectors, epsilons = random_graph(n, rng), rng.standard_normal((n, 4)).astype(np.float32), rng.random(hops)
    fanout = Fanout((0,) * hops, full=True) if full else Fanout((n,) * hops, pad=False)
    found = convolved(Paths(graph, vectors, fanout).of_nodes(np.arange(n, dtype=np.int32), seed), epsilons)
    expected, adjacency = vectors.astype(np.float64), dense(graph)
    for hop in range(hops):
        expected = (1 + epsilons[hop]) * expected + adjacency @ expected
        np.testing.assert_allclose(
            found[:, hop], expected, rtol=1e-5, atol=1e-5 * max(1, float(np.abs(expected).max()))
        )


def test_means_divide_by_the_number_of_neighbours() -> None:
    rng = np.random.default_rng(0)
    graph, vectors = random_graph(9, rng), rng.standard_normal((9, 3)).astype(np.float32)
    degrees = np.maximum(graph.degrees, 1)[:, None]
    expected = vectors.astype(np.float64)
    for epsilon in (0.2, 0.7):
        expected = (1 + epsilon) * expected + dense(graph) @ expected / degrees
    for fanout in (Fanout((1, 1), mean=True, full=True), Fanout((9, 9), pad=False, mean=True)):
        found = convolved(Paths(graph, vectors, fanout).of_nodes(np.arange(9, dtype=np.int32), 3), np.array([0.2, 0.7]))
        np.testing.assert_allclose(found[:, 1], expected, rtol=1e-5, atol=1e-5)


# ---- G5 ----


def star() -> tuple[JointGraph, Any]:
    """Node 0 has neighbours 1, 2, 3; node 1 has 0; node 4 is isolated. Vectors are unit vectors, so sums count."""
    return JointGraph(np.array([0, 3, 4, 4, 4, 4]), np.array([1, 2, 3, 0], np.int32), np.zeros(0, np.int32), 5), np.eye(
        5, dtype=np.float32
    )


@pytest.mark.claim("G5")
def test_isolated_nodes_contribute_nothing_and_few_neighbours_come_again() -> None:
    graph, vectors = star()
    sums = Paths(graph, vectors, Fanout((4,))).of_nodes(np.arange(5, dtype=np.int32), 11)
    np.testing.assert_array_equal(sums[4], [vectors[4], np.zeros(5)])
    np.testing.assert_array_equal(sums[1, 1], [4, 0, 0, 0, 0])
    assert sorted(sums[0, 1, 1:4].tolist()) == [1, 1, 2], "three neighbours for four places: one comes twice"
    unpadded = Paths(graph, vectors, Fanout((4,), pad=False)).of_nodes(np.arange(5, dtype=np.int32), 11)
    np.testing.assert_array_equal(unpadded[:, 1], dense(graph))


@pytest.mark.claim("G5")
def test_a_document_without_any_neighbour_is_its_own_vector() -> None:
    graph, vectors = star()
    sums = Paths(graph, vectors, Fanout((4, 3))).of_linked(
        np.full((1, 5), 0.5, np.float32), np.array([[-1, -1]], np.int32), 0
    )
    np.testing.assert_array_equal(sums[0, 0], np.full(5, 0.5))
    np.testing.assert_array_equal(sums[0, 1:], np.zeros((3, 5)))


# ---- sampling ----


def test_samples_are_neighbours_all_different_and_evenly_drawn() -> None:
    n = 10
    graph = JointGraph(np.array([0, n, *[n] * n]), np.arange(1, n + 1, dtype=np.int32), np.zeros(0, np.int32), n + 1)
    paths = Paths(graph, np.eye(n + 1, dtype=np.float32), Fanout((3,)))
    counts = np.zeros(n + 1)
    for seed in range(2000):
        drawn = paths.of_nodes(np.zeros(1, np.int32), seed)[0, 1]
        assert set(drawn.tolist()) == {0, 1}
        assert drawn.sum() == 3
        counts += drawn
    np.testing.assert_allclose(counts[1:], 600, atol=6 * np.sqrt(2000 * 0.3 * 0.7))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**63 - 1), pad=st.booleans(), mean=st.booleans())
def test_a_sample_depends_on_neither_batch_nor_threads(seed: int, pad: bool, mean: bool) -> None:
    rng = np.random.default_rng(seed % 1000)
    graph, vectors = random_graph(30, rng), rng.standard_normal((30, 4)).astype(np.float32)
    paths, nodes = Paths(graph, vectors, Fanout((4, 3, 2), pad, mean)), rng.integers(0, 30, 40).astype(np.int32)
    links = rng.integers(-1, 30, (40, 5)).astype(np.int32)
    own = rng.standard_normal((40, 4)).astype(np.float32)
    whole, linked = paths.of_nodes(nodes, seed), paths.of_linked(own, links, seed)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        np.testing.assert_array_equal(paths.of_nodes(nodes, seed), whole)
        np.testing.assert_array_equal(paths.of_linked(own, links, seed), linked)
    finally:
        numba.set_num_threads(before)
    for row in (0, 17, 39):
        np.testing.assert_array_equal(paths.of_nodes(nodes[[row]], seed)[0], whole[row])
        np.testing.assert_array_equal(paths.of_linked(own[[row]], links[[row]], seed)[0], linked[row])


def test_other_seeds_and_other_hops_draw_other_samples() -> None:
    n = 50
    graph = JointGraph(np.array([0, n, *[n] * n]), np.arange(1, n + 1, dtype=np.int32), np.zeros(0, np.int32), n + 1)
    paths = Paths(graph, np.eye(n + 1, dtype=np.float32), Fanout((3, 3)))
    one, other = (paths.of_nodes(np.zeros(1, np.int32), seed)[0] for seed in (1, 2))
    assert one[1].tolist() != other[1].tolist()
    assert one[1].tolist() != one[2].tolist(), "hops 1 and 2 draw for themselves"


def all_edges_of(node: int, n: int) -> HiddenEdges:
    return HiddenEdges(np.array([node]), np.array([0, n]), np.arange(n, dtype=np.int32))


def test_a_node_whose_edges_are_all_hidden_is_never_entered_and_its_place_is_taken() -> None:
    rng = np.random.default_rng(4)
    hidden = all_edges_of(0, 8)
    for fanout in (Fanout((4, 3, 2)), Fanout((4, 3, 2), pad=False)):
        for seed in range(200):
            graph = random_graph(8, rng)
            paths = Paths(graph, np.eye(8, dtype=np.float32), fanout)
            sums = paths.of_linked(np.zeros((1, 8), np.float32), np.array([[1, 2]], np.int32), seed, hidden)
            assert not sums[0, :, 0].any()
            degree = len(set(graph.neighbours[graph.starts[1] : graph.starts[2]].tolist()) - {0})
            alone = paths.of_linked(np.zeros((1, 8), np.float32), np.array([[1]], np.int32), seed, hidden)[0]
            # Hop 2 to node 1 (weight 3), then hop 1 to its neighbours: four terms if it has any but the hidden one.
            assert alone[3].sum() == pytest.approx(
                3 * ((4 if degree else 0) if fanout.pad else min(4, degree)) / (1 if fanout.pad else 3)
            )


def test_the_only_edge_may_be_hidden() -> None:
    graph, vectors = star()
    sums = Paths(graph, vectors, Fanout((4, 3))).of_linked(
        vectors[[0]], np.array([[1]], np.int32), 0, all_edges_of(0, 5)
    )
    assert not sums[0, 3].any()


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 14),
    seed=st.integers(0, 10**6),
    size=st.integers(1, 5),
    pad=st.booleans(),
    unseen=st.sets(st.integers(0, 13), max_size=13),
)
def test_hidden_edges_are_never_taken_and_all_others_are_seen(
    n: int, seed: int, size: int, pad: bool, unseen: set[int]
) -> None:
    """Against plain sets: whatever is hidden, a sample is full (with `pad`) as long as one neighbour is seen."""
    rng = np.random.default_rng(seed)
    graph, own = random_graph(n, rng, mean_degree=n / 2), int(rng.integers(n))
    labels = np.array(sorted(label for label in unseen if label < n and label != own), dtype=np.int32)
    hidden = HiddenEdges(np.full(n, own), np.arange(n + 1) * len(labels), np.tile(labels, n))
    paths = Paths(graph, np.eye(n, dtype=np.float32), Fanout((size,), pad=pad))
    drawn = paths.samples(np.arange(n, dtype=np.int32), 1, seed, hidden)[:, 1:]
    plain = paths.samples(np.arange(n, dtype=np.int32), 1, seed)[:, 1:]
    for node in range(n):
        neighbours = set(graph.neighbours[graph.starts[node] : graph.starts[node + 1]].tolist())
        gone = set(labels.tolist()) if node == own else {own} if node in labels else set()
        found = [neighbour for neighbour in drawn[node].tolist() if neighbour >= 0]
        assert set(found) <= neighbours - gone
        assert len(set(found)) == min(size, len(neighbours - gone))
        assert len(found) == (size if pad and found else len(set(found)))
        if not neighbours & gone:
            assert drawn[node].tolist() == plain[node].tolist(), "nothing hidden here: the same sample"


# ---- introduced documents ----


def test_a_linked_document_is_a_new_node_of_the_graph() -> None:
    """With all neighbours, linking is the same as adding the node; old nodes do not see it."""
    rng = np.random.default_rng(1)
    graph, vectors = random_graph(7, rng), rng.standard_normal((7, 3)).astype(np.float32)
    own, links = rng.standard_normal((2, 3)).astype(np.float32), np.array([[0, 5, -1], [2, 3, 4]], np.int32)
    fanout = Fanout((1, 1, 1), full=True)
    grown = Paths(graph.with_nodes(links), np.concatenate([vectors, own]), fanout).of_nodes(
        np.array([7, 8], np.int32), 0
    )
    np.testing.assert_allclose(Paths(graph, vectors, fanout).of_linked(own, links, 0), grown, rtol=1e-5, atol=1e-5)


def test_all_links_count_scaled_to_the_fan_out() -> None:
    vectors = np.eye(6, dtype=np.float32)
    graph = JointGraph(np.zeros(7, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32), 6)
    links = np.array([[0, 1, 2, 3, 4], [0, -1, -1, -1, -1]], np.int32)
    sums = Paths(graph, vectors, Fanout((4, 3))).of_linked(np.zeros((2, 6), np.float32), links, 0)
    np.testing.assert_allclose(sums[0, 1], [0.8] * 5 + [0], rtol=1e-6)
    np.testing.assert_allclose(sums[0, 2], [0.6] * 5 + [0], rtol=1e-6)
    np.testing.assert_allclose(sums[1, 1:3], [[4, 0, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0]])
    unpadded = Paths(graph, vectors, Fanout((4, 3), pad=False)).of_linked(np.zeros((2, 6), np.float32), links, 0)
    np.testing.assert_allclose(unpadded[1, 1:3], [[1, 0, 0, 0, 0, 0]] * 2)


# ---- samples ----


def test_samples_are_those_of_paths() -> None:
    rng = np.random.default_rng(2)
    graph, vectors = random_graph(12, rng), rng.standard_normal((12, 3)).astype(np.float32)
    paths, nodes = Paths(graph, vectors, Fanout((4, 3, 2))), np.arange(12, dtype=np.int32)
    samples = paths.samples(nodes, 3, 9)
    assert samples.shape == (12, 3, 4, 5)
    np.testing.assert_array_equal(samples[:, 0, 0, 0], nodes)
    values = np.where(samples[..., None] >= 0, vectors[samples], 0)[..., None, :]
    for _ in range(3):
        values = np.concatenate([values[..., 0, :, :], values[..., 1:, :, :].sum(axis=-3)], axis=-2)
    np.testing.assert_allclose(values, paths.of_nodes(nodes, 9), rtol=1e-5, atol=1e-5)


def test_what_has_no_shape_or_no_meaning_is_refused() -> None:
    graph, vectors = star()
    with pytest.raises(ValueError, match="5 nodes"):
        Paths(graph, vectors[:4], Fanout((1,)))
    full = Paths(graph, vectors, Fanout((1,), full=True))
    with pytest.raises(ValueError, match="no shape"):
        full.samples(np.zeros(1, np.int32), 1, 0)
    with pytest.raises(ValueError, match="hidden"):
        full.of_linked(vectors[:1], np.zeros((1, 1), np.int32), 0, all_edges_of(0, 5))
