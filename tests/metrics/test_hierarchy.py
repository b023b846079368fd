"""Hierarchical precision, recall and F: examples worked out by hand, and what must always hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset, Graph
from longtail.evaluation import HIERARCHY, Yardstick
from longtail.metrics import hierarchical, with_broader
from longtail.report import table
from longtail.types import Csr, TopK

# animal (0) <- dog (1) <- spaniel (2), dog (1) <- terrier (3); animal (0) <- cat (4); stone (5)
EDGES = [(1, 0), (2, 1), (3, 1), (4, 0)]


def square(edges: list[tuple[int, int]], size: int = 6) -> Csr:
    array = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return csr_array((np.ones(len(array), np.float32), (array[:, 0], array[:, 1])), shape=(size, size))


def lists(*rows: list[int]) -> TopK:
    width = max(map(len, rows))
    ids = np.array([[*row, *[-1] * (width - len(row))] for row in rows], dtype=np.int32)
    return TopK(ids, np.where(ids >= 0, 1.0, -np.inf).astype(np.float32))


def truth(*rows: list[int], size: int = 6) -> Csr:
    dense = np.zeros((len(rows), size), np.float32)
    for row, labels in enumerate(rows):
        dense[row, labels] = 1
    return csr_array(dense)


def test_a_label_brings_all_that_is_broader() -> None:
    found = with_broader(square(EDGES), np.array([2, 4, 5, 0]))
    assert [found[[row]].indices.tolist() for row in range(4)] == [[0, 1, 2], [0, 4], [5], [0]]


def test_circles_and_two_ways_up_do_no_harm() -> None:
    assert sorted(with_broader(square([(0, 1), (1, 2), (2, 0)]), np.array([0])).indices.tolist()) == [0, 1, 2]
    two_ways = with_broader(square([(0, 1), (0, 2), (1, 3), (2, 3)]), np.array([0]))
    assert two_ways.toarray().tolist() == [[1, 1, 1, 1, 0, 0]]


def test_a_sibling_shares_what_is_above_both() -> None:
    """terrier = {terrier, dog, animal} for spaniel = {spaniel, dog, animal}: two of three both ways."""
    found = hierarchical(lists([3]), truth([2]), square(EDGES), (1,)).values()
    assert found == {"hP@1": pytest.approx(200 / 3), "hR@1": pytest.approx(200 / 3), "hF@1": pytest.approx(200 / 3)}


def test_too_broad_is_precise_and_too_narrow_is_complete() -> None:
    broad = hierarchical(lists([1]), truth([2]), square(EDGES), (1,)).values()
    assert broad == {"hP@1": 100.0, "hR@1": pytest.approx(200 / 3), "hF@1": pytest.approx(80.0)}
    narrow = hierarchical(lists([2]), truth([1]), square(EDGES), (1,)).values()
    assert narrow == {"hP@1": pytest.approx(200 / 3), "hR@1": 100.0, "hF@1": pytest.approx(80.0)}


def test_sums_over_documents_and_places() -> None:
    """Two documents, by hand: {2} got 3, then 5; {4, 5} got 4, then nothing.

    @1: shared 2 + 2, said 3 + 2, right 3 + 3.  @2: the first says 5 as well: said 4 + 2.
    """
    found = hierarchical(lists([3, 5], [4]), truth([2], [4, 5]), square(EDGES), (1, 2)).values()
    assert found["hP@1"] == pytest.approx(100 * 4 / 5)
    assert found["hR@1"] == pytest.approx(100 * 4 / 6)
    assert found["hF@1"] == pytest.approx(100 * 2 * 4 / (5 + 6))
    assert found["hP@2"] == pytest.approx(100 * 4 / 6)
    assert found["hR@2"] == pytest.approx(100 * 4 / 6)


def test_without_edges_they_are_precision_and_recall_of_sets() -> None:
    found = hierarchical(lists([2, 3], [1, 0]), truth([2, 4], [5]), square([]), (2,)).values()
    assert found == {
        "hP@2": pytest.approx(25.0),
        "hR@2": pytest.approx(100 / 3),
        "hF@2": pytest.approx(200 / 7),
    }


def brute(top: list[list[int]], right: list[set[int]], edges: list[tuple[int, int]], k: int) -> tuple[float, float]:
    def wide(labels: set[int]) -> set[int]:
        while True:
            more = labels | {above for below, above in edges if below in labels}
            if more == labels:
                return labels
            labels = more

    pairs = [(wide(set(said[:k])), wide(labels)) for said, labels in zip(top, right, strict=True)]
    shared = sum(len(a & b) for a, b in pairs)
    said, true = sum(len(a) for a, _ in pairs), sum(len(b) for _, b in pairs)
    return 100 * shared / said if said else 0.0, 100 * shared / true if true else 0.0


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_as_counted_with_sets(data: st.DataObject) -> None:
    size = 7
    label = st.integers(0, size - 1)
    edges = data.draw(st.lists(st.tuples(label, label).filter(lambda edge: edge[0] != edge[1]), max_size=12))
    documents = data.draw(st.integers(1, 4))
    top = [data.draw(st.lists(label, unique=True, min_size=1, max_size=3)) for _ in range(documents)]
    right = [data.draw(st.sets(label, max_size=3)) for _ in range(documents)]
    found = hierarchical(lists(*top), truth(*map(list, right), size=size), square(list(set(edges)), size), (2,))
    precision, recall = brute(top, right, edges, 2)
    assert found.values()["hP@2"] == pytest.approx(precision)
    assert found.values()["hR@2"] == pytest.approx(recall)


def test_evaluation_has_them_where_the_data_has_a_hierarchy(planted: Dataset) -> None:
    from dataclasses import replace

    yardstick = Yardstick.of(planted)
    top = lists(*[[0, 1, 2]] * len(planted.need_test()))
    assert not [name for name in yardstick.score(top) if name.startswith("h")]
    above = Graph(HIERARCHY, label_label=square([(number, 0) for number in range(1, 12)], 12))
    scores = Yardstick.of(replace(planted, graphs={HIERARCHY: above})).score(top)
    assert scores["hP@1"] > scores["P@1"]
    assert {f"h{name}@{k}" for name in "PRF" for k in (1, 3, 5)} <= scores.keys()
    assert "hF@5" in table({"model": scores})
