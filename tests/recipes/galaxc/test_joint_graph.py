"""The joint graph: which nodes and edges there are, against plain sets of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.persistence import StringTable, load_part, save_part
from longtail.recipes.galaxc.graph import (
    Anchors,
    JointGraph,
    document_nodes,
    joint_graph,
    nearest_documents,
    strongest,
)

NOBODY = np.zeros((0, 2), dtype=np.int64)


def matrix(rows: list[list[int]], columns: int) -> Any:
    ends = np.cumsum([0, *map(len, rows)])
    indices = np.array([column for row in rows for column in row], dtype=np.int32)
    return csr_array((np.ones(len(indices), np.float32), indices, ends), shape=(len(rows), columns))


def graph_of(rows: list[list[int]], labels: int, same: Any = NOBODY, seed: int = 0, **more: Any) -> JointGraph:
    targets = matrix(rows, labels)
    return joint_graph(
        targets, document_nodes(len(rows), labels, np.asarray(same)), np.random.default_rng(seed), **more
    )


def neighbours(graph: JointGraph, node: int) -> list[int]:
    return sorted(graph.neighbours[graph.starts[node] : graph.starts[node + 1]].tolist())


def test_a_document_that_is_a_label_is_one_node() -> None:
    """Three documents, two labels; document 1 is label 0, so there are 3 + 2 - 1 nodes, and its edges are the
    label's.
    """
    graph = graph_of([[0], [1], [0, 1]], 2, [[1, 0]])
    assert len(graph) == 4
    assert graph.nodes.tolist() == [2, 0, 3]
    assert neighbours(graph, 0) == [1, 2, 3], "its documents 0 and 2, and its own label 1"
    assert neighbours(graph, 1) == [0, 3]
    assert neighbours(graph, 2) == [0]


def test_two_documents_may_be_one_label_and_one_document_two() -> None:
    nodes = document_nodes(4, 5, np.array([[0, 3], [2, 3], [3, 4], [3, 1]]))
    assert nodes.tolist() == [3, 5, 3, 1], "of several labels the first"
    assert len(graph_of([[0], [1], [0], [2]], 5, [[0, 3], [2, 3], [3, 4], [3, 1]])) == 4 + 5 - 3


def test_a_document_that_is_its_own_label_has_no_edge_to_itself() -> None:
    graph = graph_of([[0, 1]], 2, [[0, 0]])
    assert neighbours(graph, 0) == [1]
    assert neighbours(graph, 1) == [0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_edges_are_the_pairs_in_both_directions(data: st.DataObject) -> None:
    n, labels = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    rows = [sorted(data.draw(st.sets(st.integers(0, labels - 1), max_size=labels))) for _ in range(n)]
    same = sorted(data.draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, labels - 1)), max_size=3)))
    pairs = np.array(same, dtype=np.int64).reshape(-1, 2)
    graph = graph_of(rows, labels, pairs)
    assert len(graph) == n + labels - len(set(pairs[:, 0].tolist()))
    expected = {(int(graph.nodes[row]), label) for row, own in enumerate(rows) for label in own}
    both = {(a, b) for pair in expected for a, b in (pair, pair[::-1]) if a != b}
    found = [(node, other) for node in range(len(graph)) for other in neighbours(graph, node)]
    assert len(found) == len(set(found))
    assert set(found) == both
    np.testing.assert_array_equal(
        graph.matrix().toarray() > 0,
        np.isin(np.arange(len(graph) ** 2), [a * len(graph) + b for a, b in both]).reshape(len(graph), -1),
    )


def test_the_seed_orders_neighbours_and_changes_nothing_else() -> None:
    rows = [[0], [0], [0], [0], [0], [0], [0], [0]]
    one, same, other = graph_of(rows, 1, seed=1), graph_of(rows, 1, seed=1), graph_of(rows, 1, seed=2)
    np.testing.assert_array_equal(one.neighbours, same.neighbours)
    assert one.neighbours.tolist() != other.neighbours.tolist()
    assert neighbours(one, 0) == neighbours(other, 0) == list(range(1, 9))
    assert one.neighbours.tolist()[:8] != list(range(1, 9)), (
        "a window of the list is a sample, so it must not go by number"
    )


def test_labels_and_documents_without_edges_are_nodes() -> None:
    graph = graph_of([[0], []], 3)
    assert len(graph) == 5
    assert graph.degrees.tolist() == [1, 0, 0, 1, 0]


def test_extra_edges_join_and_do_not_repeat() -> None:
    extra = matrix([[], [], [3], [2, 0]], 4)  # 3 -> 0 is there already
    graph = graph_of([[0], [0]], 2, extra=[extra])
    assert neighbours(graph, 2) == [0, 3]
    assert neighbours(graph, 3) == [0, 2]


def test_nothing_can_be_changed() -> None:
    graph = graph_of([[0], [1]], 2)
    for array in (graph.starts, graph.neighbours, graph.nodes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_new_nodes_see_and_are_not_seen() -> None:
    graph = graph_of([[0], [1]], 2)
    before = graph.neighbours.copy()
    grown = graph.with_nodes(np.array([[0, 3, -1], [5, 4, 1]], dtype=np.int32))
    assert len(grown) == 6
    assert neighbours(grown, 4) == [0, 3]
    assert neighbours(grown, 5) == [1, 4, 5]
    assert [neighbours(grown, node) for node in range(4)] == [neighbours(graph, node) for node in range(4)]
    np.testing.assert_array_equal(graph.neighbours, before)


def test_a_graph_is_saved_and_a_broken_one_refused(tmp_path: Any) -> None:
    graph = graph_of([[0], [0, 1]], 2)
    save_part(graph, tmp_path / "graph")
    again = load_part(tmp_path / "graph")
    np.testing.assert_array_equal(again.neighbours, graph.neighbours)
    assert (len(again), again.n_labels, again.nodes.tolist()) == (4, 2, [2, 3])
    for starts, ends in (([0, 2, 1], [0]), ([0, 1, 2], [0, 9]), ([0, 1, 2], [0, -1]), ([1, 1, 1], [0])):
        with pytest.raises(ValueError):
            JointGraph(np.array(starts), np.array(ends, dtype=np.int32), np.zeros(0, np.int32), 1)


# ---- limits for frequent labels ----


def test_frequent_labels_see_their_nearest_documents_only() -> None:
    rng = np.random.default_rng(0)
    rows = [[0, 1] if row % 2 else [0] for row in range(12)]
    vectors = rng.standard_normal((14, 5)).astype(np.float32)
    targets, nodes = matrix(rows, 2), document_nodes(12, 2, NOBODY)
    limited = nearest_documents(targets, nodes, vectors, threshold=6, keep=3)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    nearest = sorted(range(2, 14), key=lambda node: -float(unit[node] @ unit[0]))[:3]
    graph = graph_of(rows, 2, limited=limited)
    assert neighbours(graph, 0) == sorted(nearest)
    assert neighbours(graph, 1) == list(range(3, 14, 2)), "six documents are not more than six"
    assert all(0 in neighbours(graph, node) for node in range(2, 14)), "documents keep their edges"


def test_no_label_is_frequent_enough() -> None:
    limited = nearest_documents(
        matrix([[0], [0]], 1), np.array([1, 2], np.int32), np.ones((3, 2), np.float32), threshold=2, keep=1
    )
    assert limited.nnz == 0
    assert neighbours(graph_of([[0], [0]], 1, limited=limited), 0) == [1, 2]


# ---- anchors ----

# Anchor 0 is rare, 1 has three nodes, 2 everyone, 3 nobody.
MEMBERS = matrix([[4, 0], [1, 2, 4], [0, 1, 2, 3, 4, 5], []], 6)


def anchored(members: Any) -> Anchors:
    return Anchors(StringTable.of([f"anchor {number}" for number in range(members.shape[0])]), members)


def test_nodes_of_the_rarest_anchor_come_first() -> None:
    links = anchored(MEMBERS).linked(matrix([[2, 0], [1], [3], []], 4), 4)
    assert sorted(links[0, :2].tolist()) == [0, 4]
    assert set(links[0].tolist()) < set(range(6))
    assert len(set(links[0].tolist())) == 4
    assert sorted(links[1].tolist()) == [-1, 1, 2, 4]
    assert links[2].tolist() == links[3].tolist() == [-1] * 4


def test_links_of_a_document_do_not_depend_on_its_batch() -> None:
    anchors = matrix([[2], [1, 2], [0, 2], [2]], 4)
    whole = anchored(MEMBERS).linked(anchors, 3)
    for row in range(4):
        np.testing.assert_array_equal(anchored(MEMBERS).linked(anchors[[row]], 3)[0], whole[row])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_edges_by_anchors_are_capped_shared_and_rarest_first(data: st.DataObject) -> None:
    n, anchors, most = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    members = [sorted(data.draw(st.sets(st.integers(0, n - 1)))) for _ in range(anchors)]
    edges = anchored(matrix(members, n)).edges(most, np.random.default_rng(0))
    for node in range(n):
        own = [set(anchor) for anchor in members if node in anchor]
        found = set(edges[[node]].indices.tolist())
        possible = set().union(*own) - {node}
        assert found <= possible
        assert len(found) == min(most, len(possible))
        rarest = min(own, key=len, default=set()) - {node}
        if len(rarest) <= most and sum(len(other) == len(min(own, key=len, default=set())) for other in own) == 1:
            assert rarest <= found


def test_members_of_a_large_anchor_are_not_all_linked_to_the_same_few() -> None:
    edges = anchored(matrix([list(range(200))], 200)).edges(2, np.random.default_rng(0))
    assert len(np.unique(edges.indices)) > 100


def test_the_heaviest_neighbours_of_a_given_label_graph() -> None:
    given = csr_array(np.array([[9, 3, 2, 1], [0, 0, 5, 0], [0, 0, 7, 0], [1, 2, 3, 4]], dtype=np.float32))
    kept = strongest(given, 2, 6)
    assert kept.shape == (6, 6)
    assert [kept[[row]].indices.tolist() for row in range(6)] == [[1, 2], [2], [], [1, 2], [], []]
    assert given[0, 0] == 9, "the given graph stays as it is"
