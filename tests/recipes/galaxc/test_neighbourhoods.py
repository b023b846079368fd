"""The GPU's way of sampling, run on a CPU, draws what the compiled kernels draw."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from longtail.recipes.galaxc.graph import Fanout, HiddenEdges, JointGraph
from longtail.recipes.galaxc.network import Neighbourhoods, Roots
from longtail.types import F32, I32

pytestmark = pytest.mark.usefixtures("one_thread")

FANOUTS = {
    "padded": Fanout((4, 3, 2)),
    "unpadded": Fanout((4, 3, 2), pad=False),
    "mean": Fanout((2, 5, 3), mean=True),
    "one hop": Fanout((3,)),
}


def world(seed: int, n: int = 40) -> tuple[JointGraph, F32]:
    """Degrees from none to many."""
    rng = np.random.default_rng(seed)
    lists = [
        rng.permutation(np.setdiff1d(np.arange(n), [node]))[: rng.choice([0, 1, 2, 3, 5, 20])] for node in range(n)
    ]
    starts = np.cumsum([0, *map(len, lists)])
    return JointGraph(starts, np.concatenate(lists).astype(np.int32), np.zeros(0, np.int32), n), rng.standard_normal(
        (n, 6)
    ).astype(np.float32)


def some_hidden(nodes: I32, rng: np.random.Generator, n: int = 40) -> HiddenEdges:
    """Of every node none to many others, and of one nothing."""
    lists = [rng.permutation(n)[: rng.choice([0, 1, 2, 8, 20])].astype(np.int32) for _ in nodes]
    own = nodes.astype(np.int64)
    own[0] = -1
    return HiddenEdges(own, np.cumsum([0, *map(len, lists)]), np.concatenate(lists))


def both(graph: JointGraph, vectors: F32, fanout: Fanout) -> tuple[Neighbourhoods, Neighbourhoods]:
    return Neighbourhoods(graph, vectors, fanout), Neighbourhoods(graph, vectors, fanout, by_kernel=False)


@pytest.mark.parametrize("fanout", FANOUTS.values(), ids=FANOUTS)
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, 2**40 + 17])
def test_both_ways_sum_the_same_paths(fanout: Fanout, seed: int) -> None:
    graph, vectors = world(seed % 97)
    kernels, gathers = both(graph, vectors, fanout)
    rng = np.random.default_rng(seed % 89)
    nodes = rng.integers(0, 40, 50).astype(np.int32)
    links = rng.integers(-1, 40, (50, 4)).astype(np.int32)
    links[3] = -1
    links[5, 0] = nodes[5]  # a path that begins at the document's own node, as of one that is a label
    unseen = some_hidden(nodes, rng)
    for roots in (
        Roots(nodes, seed),
        Roots(nodes, seed, links),
        Roots(nodes, seed, links, rng.random(50) < 0.5),
        Roots(nodes, seed, links, unseen=unseen),
        Roots(nodes, seed, links, rng.random(50) < 0.5, unseen),
        Roots(nodes, seed, links, np.zeros(50, bool)),
    ):
        np.testing.assert_allclose(kernels.sums(roots), gathers.sums(roots), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("fanout", FANOUTS.values(), ids=FANOUTS)
def test_both_ways_draw_the_same_samples(fanout: Fanout) -> None:
    graph, vectors = world(5)
    kernels, gathers = both(graph, vectors, fanout)
    roots = Roots(np.arange(40, dtype=np.int32), 1234)
    for here, there in zip(kernels.samples(roots, fanout.hops), gathers.samples(roots, fanout.hops), strict=True):
        assert torch.equal(here, there)
    linked = Roots(roots.nodes, 77, np.random.default_rng(0).integers(-1, 40, (40, 3)).astype(np.int32))
    (values, real), owners, weights = kernels.link_samples(linked)
    (values2, real2), owners2, weights2 = gathers.link_samples(linked)
    assert torch.equal(values, values2)
    assert torch.equal(real, real2)
    assert torch.equal(owners, owners2)
    assert torch.equal(weights, weights2)


def test_hidden_documents_are_seen_by_their_links_and_others_by_their_edges() -> None:
    graph, vectors = world(8)
    around = Neighbourhoods(graph, vectors, Fanout((4, 3)))
    nodes, links = np.arange(6, dtype=np.int32), np.arange(24, dtype=np.int32).reshape(6, 4) + 10
    hidden = np.array([True, False, False, True, True, False])
    mixed, own, linked = (
        around.sums(roots) for roots in (Roots(nodes, 3, links, hidden), Roots(nodes, 3), Roots(nodes, 3, links))
    )
    for row in range(6):
        assert torch.equal(mixed[row], (linked if hidden[row] else own)[row])
        assert not torch.equal(own[row], linked[row])


def test_a_document_of_hidden_edges_alone_never_meets_itself() -> None:
    """Its own vector enters once, as itself, however the paths of its links run."""
    graph, _ = world(2)
    around = Neighbourhoods(graph, np.eye(40, dtype=np.float32), Fanout((4, 3, 2)))
    for seed in range(30):
        everyone = np.arange(40, dtype=np.int32)
        links = np.tile(everyone, (40, 1))
        np.fill_diagonal(links, -1)
        edges = HiddenEdges(everyone.astype(np.int64), np.arange(41) * 40, np.tile(everyone, 40))
        roots = Roots(everyone, seed, links, unseen=edges)
        own = around.sums(roots)[torch.arange(40), :, torch.arange(40)]
        assert torch.equal(own[:, 0], torch.ones(40))
        assert not own[:, 1:].any()


def test_a_graph_without_edges() -> None:
    graph = JointGraph(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32), 3)
    for around in both(graph, np.ones((3, 2), np.float32), Fanout((4, 3))):
        sums = around.sums(Roots(np.arange(3, dtype=np.int32), 0))
        assert torch.equal(sums[:, 0], torch.ones(3, 2))
        assert not sums[:, 1:].any()


def test_all_neighbours_are_for_the_cpu_alone() -> None:
    graph, vectors = world(0)
    with pytest.raises(ValueError, match="CPU"):
        Neighbourhoods(graph, vectors, Fanout((1,), full=True), by_kernel=False)
