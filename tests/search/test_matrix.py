"""Rows times a matrix: our own kernels give what BLAS gives, whatever the batch and the threads."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from longtail.search.packed import product, with_residual
from longtail.types import F32


def numbers(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("documents", [0, 1, 15, 16, 37, 200])
@pytest.mark.parametrize(("depth", "width"), [(5, 32), (64, 64), (96, 128), (10, 33)])
def test_products_are_those_of_numpy(documents: int, depth: int, width: int) -> None:
    rows, matrix = numbers(documents, depth), numbers(depth, width, seed=1)
    np.testing.assert_allclose(product(rows, matrix), rows @ matrix, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("documents", [1, 16, 45])
@pytest.mark.parametrize("width", [32, 33, 96])
def test_the_residual_is_what_is_positive(documents: int, width: int) -> None:
    rows, matrix = numbers(documents, width), numbers(width, width, seed=1)
    np.testing.assert_allclose(with_residual(rows, matrix), rows + np.maximum(rows @ matrix, 0), rtol=1e-4, atol=1e-4)


def test_rows_that_are_not_contiguous_are_read_right() -> None:
    rows, matrix = numbers(40, 65)[:, :64], numbers(64, 32, seed=1)
    np.testing.assert_allclose(product(rows, matrix), rows @ matrix, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        with_residual(rows[:, :32], matrix[:32]),
        rows[:, :32] + np.maximum(rows[:, :32] @ matrix[:32], 0),
        rtol=1e-4,
        atol=1e-4,
    )


def test_threads_and_other_rows_change_nothing() -> None:
    rows, matrix = numbers(130, 64), numbers(64, 64, seed=1)
    whole = product(rows, matrix), with_residual(rows, matrix)
    np.testing.assert_array_equal(product(rows[3:90], matrix), whole[0][3:90])
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        np.testing.assert_array_equal(product(rows, matrix), whole[0])
        np.testing.assert_array_equal(with_residual(rows, matrix), whole[1])
    finally:
        numba.set_num_threads(before)
