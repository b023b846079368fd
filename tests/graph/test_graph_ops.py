"""Sparse algebra against the dense one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from longtail.errors import ConfigError
from longtail.graph.ops import (
    ensure_diagonal,
    prune_rows,
    random_walk_graph,
    scale_both_sides,
    scale_rows_to_sum_one,
    unit_rows,
)
from longtail.types import F32

squares = st.integers(1, 7).flatmap(
    lambda n: arrays(np.float32, (n, n), elements=st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0]))
)


@given(squares)
@settings(deadline=None, max_examples=50)
def test_rows_sum_to_one_or_stay_empty(dense: F32) -> None:
    scaled = scale_rows_to_sum_one(csr_array(dense)).toarray()
    sums = dense.sum(axis=1, keepdims=True)
    assert np.allclose(scaled, np.divide(dense, sums, out=np.zeros_like(dense), where=sums > 0))


@given(squares)
@settings(deadline=None, max_examples=50)
def test_unit_rows_dense_and_sparse(dense: F32) -> None:
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    expected = np.divide(dense, lengths, out=np.zeros_like(dense), where=lengths > 0)
    assert np.allclose(unit_rows(dense), expected)
    assert np.allclose(unit_rows(csr_array(dense)).toarray(), expected)
    assert unit_rows(dense.astype(np.float64)).dtype == np.float32


@pytest.mark.claim("E3")
@pytest.mark.parametrize("seed", range(5))
def test_both_sides_gives_spectral_norm_one(seed: int) -> None:
    y = csr_array((np.random.default_rng(seed).random((40, 20)) < 0.1).astype(np.float64))
    walked = ensure_diagonal(
        random_walk_graph(y, length=50, restart=0.8, rng=np.random.default_rng(seed)).astype(np.float64)
    )
    graph = scale_both_sides(walked).toarray()
    assert np.linalg.svd(graph, compute_uv=False)[0] == pytest.approx(1, abs=1e-8)
    assert (graph >= 0).all()
    assert (graph.diagonal() > 0).all()


@pytest.mark.claim("E4")
def test_both_sides_favours_the_rare() -> None:
    """Label 0 visits labels 1 and 2 equally often; label 1 is visited 10 times in all, label 2 100 times."""
    counts = np.array([[5.0, 5.0, 5.0], [0.0, 5.0, 0.0], [0.0, 0.0, 95.0]])
    graph = scale_both_sides(csr_array(counts)).toarray()
    assert graph[0, 1] / graph[0, 2] == pytest.approx(np.sqrt(10), abs=1e-9)


@given(squares, st.integers(1, 8), st.booleans())
@settings(deadline=None, max_examples=100)
def test_prune_keeps_the_largest(dense: F32, k: int, keep_diagonal: bool) -> None:
    pruned = prune_rows(csr_array(dense), k, keep_diagonal=keep_diagonal).toarray()
    for row, values in enumerate(dense):
        importance = values.copy()
        if keep_diagonal and values[row]:
            importance[row] = np.inf
        expected = np.zeros_like(values)
        kept = np.lexsort((np.arange(len(values)), -importance))[:k]
        expected[kept] = values[kept]
        assert np.array_equal(pruned[row], expected)


def test_prune_works_on_rectangles_and_refuses_zero() -> None:
    assert prune_rows(csr_array(np.array([[3, 1, 2]], dtype=np.float32)), 2).toarray().tolist() == [[3, 0, 2]]
    with pytest.raises(ConfigError):
        prune_rows(csr_array((2, 2), dtype=np.float32), 0)


@given(squares)
@settings(deadline=None, max_examples=50)
def test_diagonal_is_raised_and_nothing_else(dense: F32) -> None:
    raised = ensure_diagonal(csr_array(dense), 2.0)
    expected = dense.copy()
    np.fill_diagonal(expected, np.maximum(dense.diagonal(), 2.0))
    assert np.array_equal(raised.toarray(), expected)
    assert raised.has_sorted_indices


def test_operand_with_unsorted_columns_is_neither_harmed_nor_misread() -> None:
    """scipy sorts operands in place; arrays taken out before that would no longer fit each other."""
    dense = np.array([[0, 3, 4], [8, 0, 6]], dtype=np.float32)
    unsorted = csr_array(
        (np.array([4, 3, 6, 8], np.float32), np.array([2, 1, 2, 0]), np.array([0, 2, 4])), shape=(2, 3)
    )
    assert np.allclose(unit_rows(unsorted).toarray(), dense / np.array([[5], [10]]))
    assert np.allclose(scale_rows_to_sum_one(unsorted).toarray(), dense / np.array([[7], [14]]))
    assert prune_rows(unsorted, 1).toarray().tolist() == [[0, 0, 4], [8, 0, 0]]
    assert np.array_equal(unsorted.toarray(), dense)
