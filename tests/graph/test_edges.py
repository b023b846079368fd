"""Neighbour lists: naive loops say what they must do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.graph.anchor_graph import drawn, linked, of_ones, selected
from longtail.recipes.ramen.graph_loss import capped, edge_cosines


def random_edges(rng: np.random.Generator, rows: int, columns: int, share: float) -> Any:
    return csr_array((rng.random((rows, columns)) < share).astype(np.float32))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_linked_is_the_dense_lookup(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    edges = random_edges(rng, 6, 9, share)
    rows, columns = rng.integers(6, size=7), np.unique(rng.integers(9, size=5))
    np.testing.assert_array_equal(linked(edges, rows, columns), edges.toarray()[rows][:, columns] > 0)
    assert linked(edges, rows, np.zeros(0, np.int64)).shape == (7, 0)


def test_drawn_gives_every_neighbour_equally_often_and_nothing_else() -> None:
    edges = csr_array(np.array([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], np.float32))
    rows = np.repeat([0, 1, 2], 6000)
    found = drawn(edges, rows, np.random.default_rng(0))
    assert (found[rows == 1] == -1).all()
    assert (found[rows == 2] == 0).all()
    values, counts = np.unique(found[rows == 0], return_counts=True)
    assert values.tolist() == [1, 3, 4]
    assert counts.min() > 1800
    assert drawn(csr_array((3, 4)), rows, np.random.default_rng(0)).max() == -1


def test_how_much_is_drawn_does_not_depend_on_the_graph() -> None:
    one, other = np.random.default_rng(1), np.random.default_rng(1)
    drawn(csr_array((3, 4)), np.arange(3), one)
    drawn(csr_array(np.ones((3, 4))), np.arange(3), other)
    assert one.random() == other.random()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_capped_keeps_a_random_part_of_long_rows_only(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    edges = random_edges(rng, 8, 9, 0.5)
    kept = capped(edges, most, rng)
    np.testing.assert_array_equal(np.diff(kept.indptr), np.minimum(np.diff(edges.indptr), most))
    assert (kept.toarray() <= edges.toarray()).all()


def test_capped_does_not_always_take_the_same() -> None:
    edges = csr_array(np.ones((1, 50), np.float32))
    first, second = (set(capped(edges, 5, np.random.default_rng(seed)).indices.tolist()) for seed in (0, 1))
    assert first != second


def test_selected_and_of_ones() -> None:
    edges = csr_array((np.array([2.0, 0.0, 3.0]), np.array([1, 2, 0]), np.array([0, 2, 3])), shape=(2, 3))
    np.testing.assert_array_equal(of_ones(edges).toarray(), [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(selected(edges, np.array([False, False, True])).toarray(), [[0, 0, 0], [3, 0, 0]])


@pytest.mark.parametrize("block", [1, 1 << 24])
def test_cosines_of_edges(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.recipes.ramen.graph_loss._BLOCK_NUMBERS", block)
    rng = np.random.default_rng(0)
    edges = random_edges(rng, 5, 7, 0.5)
    items, anchors = rng.standard_normal((5, 3)).astype(np.float32), rng.standard_normal((7, 3)).astype(np.float32)
    dense = (items @ anchors.T)[edges.toarray() > 0]
    np.testing.assert_allclose(edge_cosines(edges, items, anchors), dense, rtol=1e-5)
