"""Products for search: many rows times one matrix, and rows of bytes in the order in which kernels read them.

Many rows are multiplied by our own kernels, few by BLAS.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.threads import threads_for
from longtail.types import F32, I64

# Rows of a block, numbers of each that stand together, and rows that tables are filled up to a multiple of: as many
# as a word has bits.
LANES, TOGETHER, GROUP = 16, 4, 64
# From so many rows on, and for columns in multiples of so many (`kernels.matrix.COLUMNS`), our own kernels multiply.
_MANY, _COLUMNS = 16, 32


def interleave(rows: NDArray[np.int8]) -> NDArray[np.int8]:
    """(blocks, 16 D) of (n, D) rows, D a multiple of 4, filled up with rows of zeros.

    Sixteen rows stand side by side, four numbers of each in turn.
    """
    n, width = rows.shape
    blocks = -(-n // GROUP) * (GROUP // LANES)
    filled = np.pad(rows, ((0, blocks * LANES - n), (0, 0)))
    found = filled.reshape(blocks, LANES, width // TOGETHER, TOGETHER).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(found).reshape(blocks, LANES * width)


def deinterleave(interleaved: NDArray[np.int8], rows: I64) -> NDArray[np.int8]:
    """(n, D): some rows as they were."""
    width = interleaved.shape[1] // LANES
    by_row = interleaved.reshape(len(interleaved), width // TOGETHER, LANES, TOGETHER)
    return np.ascontiguousarray(by_row[rows // LANES, :, rows % LANES].reshape(len(rows), width))


def product(rows: F32, matrix: F32) -> F32:
    """(B, E): rows (B, D) @ matrix (D, E), contiguous."""
    return _by_kernel(rows, matrix, residual=False) if _ours(rows, matrix) else rows @ matrix


def with_residual(rows: F32, matrix: F32) -> F32:
    """(B, D): rows + ReLU(rows @ matrix), matrix (D, D), contiguous."""
    return _by_kernel(rows, matrix, residual=True) if _ours(rows, matrix) else rows + np.maximum(rows @ matrix, 0)


def _by_kernel(rows: F32, matrix: F32, *, residual: bool) -> F32:
    from numba import get_num_threads

    from longtail.search.kernels.matrix import multiply

    found = np.empty((len(rows), matrix.shape[1]), np.float32)
    with threads_for(len(rows)):
        multiply(np.ascontiguousarray(rows), matrix, found, residual, get_num_threads())
    return found


def ours_for_many(matrix: F32) -> bool:
    """Whether our own kernels multiply many rows (16 or more) with a square matrix, or its transpose."""
    return matrix.shape[1] % _COLUMNS == 0 and matrix.dtype == np.float32


def _ours(rows: F32, matrix: F32) -> bool:
    return len(rows) >= _MANY and rows.dtype == np.float32 and ours_for_many(matrix)
