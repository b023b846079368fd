"""Many rows times one matrix: by our own kernels where there are many rows, by BLAS where there are few."""

from __future__ import annotations

import numpy as np

from longtail.graph.threads import threads_for
from longtail.types import F32

# From so many rows on, and for columns in multiples of so many (`matrix_kernels.COLUMNS`), our own kernels are as
# fast as BLAS.
_MANY, _COLUMNS = 16, 32


def product(rows: F32, matrix: F32) -> F32:
    """(B, E): rows (B, D) @ matrix (D, E), contiguous."""
    return _by_kernel(rows, matrix, residual=False) if _ours(rows, matrix) else rows @ matrix


def with_residual(rows: F32, matrix: F32) -> F32:
    """(B, D): rows + ReLU(rows @ matrix), matrix (D, D), contiguous."""
    return _by_kernel(rows, matrix, residual=True) if _ours(rows, matrix) else rows + np.maximum(rows @ matrix, 0)


def _by_kernel(rows: F32, matrix: F32, *, residual: bool) -> F32:
    from numba import get_num_threads

    from longtail.search.matrix_kernels import multiply

    found = np.empty((len(rows), matrix.shape[1]), np.float32)
    with threads_for(len(rows)):
        multiply(np.ascontiguousarray(rows), matrix, found, residual, get_num_threads())
    return found


def ours_for_many(matrix: F32) -> bool:
    """Whether our own kernels multiply many rows (16 or more) with a square matrix, or its transpose."""
    return matrix.shape[1] % _COLUMNS == 0 and matrix.dtype == np.float32


def _ours(rows: F32, matrix: F32) -> bool:
    return len(rows) >= _MANY and rows.dtype == np.float32 and ours_for_many(matrix)
