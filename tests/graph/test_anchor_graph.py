"""Anchor graphs on planted data whose completion, noise and sizes are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

from longtail.data.dataset import Dataset, Graph, Items
from longtail.errors import ConfigError
from longtail.graph.anchor_graph import AnchorGraph, Side, anchor_graphs, of_ones

GROUPS, ANCHORS = 4, 4  # groups of items, and anchors of each


def grouped(each: int = 30, seed: int = 0) -> AnchorGraph:
    """Items of a group are linked to two of its four anchors; labels to one. Groups share nothing."""
    rng = np.random.default_rng(seed)

    def side(links: int) -> object:
        blocks = [np.zeros((each, ANCHORS), np.float32) for _ in range(GROUPS)]
        for block in blocks:
            for row in block:
                row[rng.permutation(ANCHORS)[:links]] = 1
        return of_ones(csr_array(block_diag(blocks)))

    return AnchorGraph("g", {"documents": side(2), "labels": side(1)})


def crossing(graph: AnchorGraph, side: Side) -> int:
    """Edges that lead out of an item's group."""
    edges = graph.sides[side].tocoo()
    each = edges.shape[0] // GROUPS
    return int((edges.row // each != edges.col // ANCHORS).sum())


def test_completion_finds_the_anchors_of_the_group_and_no_others() -> None:
    graph = grouped()
    assert graph.most == 4
    whole = graph.completed(length=400, restart=0.8, top=10, rng=np.random.default_rng(0))
    for side in ("documents", "labels"):
        assert crossing(whole, side) == 0
        assert (whole.sides[side].toarray() >= graph.sides[side].toarray()).all(), "own edges stay"
        assert (np.diff(whole.sides[side].indptr) == ANCHORS).all()
        assert set(whole.sides[side].data.tolist()) == {1.0}


def test_completion_keeps_the_nearest_anchors_where_there_are_many() -> None:
    """A chain of anchors: the nearest ones of an item are its own and their neighbours."""
    n = 64
    chain = csr_array(np.eye(n, dtype=np.float32) + np.eye(n, k=1, dtype=np.float32))
    graph = AnchorGraph("chain", {"documents": chain})
    assert graph.most == 6
    whole = graph.completed(length=2000, restart=0.8, top=10, rng=np.random.default_rng(0)).sides["documents"]
    far = np.abs(whole.tocoo().row - whole.tocoo().col)
    assert np.diff(whole.indptr).max() <= 6 + 2
    assert far.max() <= 4
    assert whole.nnz > 1.5 * chain.nnz


def test_completion_of_nothing_is_nothing() -> None:
    empty = AnchorGraph("g", {"documents": csr_array((3, 5), dtype=np.float32)})
    assert empty.completed(length=10, restart=0.8, top=3, rng=np.random.default_rng(0)).edges == 0


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_noise_replaces_its_share_and_says_which(rate: float) -> None:
    graph = grouped(each=200)
    noisy, injected = graph.noisy(rate, np.random.default_rng(0))
    for side in ("documents", "labels"):
        edges, before, new = noisy.sides[side], graph.sides[side], injected[side]
        assert (new.multiply(before)).nnz == 0, "an edge that was there is no noise"
        np.testing.assert_array_equal((edges.toarray() > before.toarray()), new.toarray() > 0)
        # A random anchor is by chance one of the item's own, or one that came already.
        assert new.nnz == pytest.approx(rate * before.nnz, rel=0.25, abs=1)
        assert edges.nnz <= before.nnz
    if rate:
        assert crossing(noisy, "documents") > 0.6 * rate * graph.sides["documents"].nnz
    else:
        assert noisy.edges == graph.edges


def test_subsampling_and_dropping() -> None:
    graph = grouped(each=50)
    half = graph.subsampled(0.5, np.random.default_rng(0))
    for side in ("documents", "labels"):
        assert half.sides[side].nnz == graph.sides[side].nnz // 2
        assert (half.sides[side].toarray() <= graph.sides[side].toarray()).all()
    assert list(graph.without("labels").sides) == ["documents"]
    known = np.arange(GROUPS * ANCHORS) % 2 == 0
    among = graph.among(known)
    assert among.n_anchors == graph.n_anchors
    assert not among.sides["documents"].toarray()[:, ~known].any()
    np.testing.assert_array_equal(among.sides["labels"].toarray()[:, known], graph.sides["labels"].toarray()[:, known])
    for wrong in (-0.1, 1.1):
        with pytest.raises(ConfigError, match="number from 0 to 1"):
            graph.subsampled(wrong, np.random.default_rng(0))
        with pytest.raises(ConfigError, match="number from 0 to 1"):
            graph.noisy(wrong, np.random.default_rng(0))


def test_any_number_of_anchor_sets_is_taken_and_other_graphs_are_left() -> None:
    anchors, edges = Items(["a", "b"], {"title": ["x", "y"]}), csr_array(np.array([[0, 5.0], [2, 0]]))
    nothing = csr_array((2, 2))
    graphs = {
        "both": Graph("both", anchors, edges, edges),
        "documents": Graph("documents", anchors, edges),
        "labels": Graph("labels", anchors, None, edges),
        "one empty": Graph("one empty", anchors, nothing, edges),
        "no edges": Graph("no edges", anchors, nothing, nothing),
        "between labels": Graph("between labels", label_label=edges),
    }
    found = {graph.name: list(graph.sides) for graph in anchor_graphs(graphs)}
    assert found == {
        "both": ["documents", "labels"],
        "documents": ["documents"],
        "labels": ["labels"],
        "one empty": ["labels"],
    }
    assert anchor_graphs(graphs)[0].sides["documents"].data.tolist() == [1, 1]


@pytest.mark.claim("R19")
def test_held_out_documents_leave_every_graph_and_preparation_brings_none_back(planted: Dataset) -> None:
    """Every training document is an anchor, too: of those held out neither node nor edge may be left, completed or
    not.
    """
    documents = planted.train.documents
    n = len(documents)
    everything = csr_array(np.ones((n, n), np.float32))
    of_labels = csr_array(np.ones((len(planted.labels), n), np.float32))
    by_uid = Graph("uid", Items(list(documents.uids), {"title": [""] * n}), everything, of_labels)
    titles = [f"  {text.upper()} " for text in documents.fields["title"]]
    by_title = Graph("title", Items([f"a{number}" for number in range(n)], {"title": titles}), everything, of_labels)
    held = replace(planted, graphs={"uid": by_uid, "title": by_title}).hold_out(0.25, 3)
    out = held.need_test().documents
    anchors: dict[str, Items] = {}
    for name, graph in held.graphs.items():
        assert graph.anchors is not None
        assert graph.documents is not None
        anchors[name] = graph.anchors
        assert not set(graph.anchors.uids) & set(out.uids)
        assert len(graph.anchors) <= len(held.train)
        assert graph.documents.shape == (len(held.train), len(graph.anchors))
    left = {title.strip().lower() for title in anchors["title"].fields["title"]}
    assert not left & {title.lower() for title in out.fields["title"]}
    for ready in anchor_graphs(held.graphs):
        whole = ready.completed(length=50, restart=0.8, top=5, rng=np.random.default_rng(0))
        assert whole.n_anchors == len(anchors[ready.name])
