"""How arrays are handed to kernels: read-only, so that arrays in memory and memory-mapped ones share one machine
code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.types import I32, I64, Csr


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous read-only view (numba compiles anew for every mix of writable and read-only arguments)."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


class Pieces(NamedTuple):
    """A CSR array as its three arrays, with the types that kernels are compiled for (scipy's own vary)."""

    indptr: I64
    indices: I32
    data: NDArray[Any]


def canonical(matrix: Csr) -> Csr:
    """The matrix with sorted columns and no duplicates: itself, or a copy. Arrays must not be taken out of any other.

    Many of scipy's operations sort their operand in place, and would do so under the hands of whoever holds its arrays.
    """
    if matrix.has_canonical_format:
        return matrix
    matrix = matrix.copy()
    matrix.sum_duplicates()
    return matrix


def pieces(matrix: Csr) -> Pieces:
    matrix = canonical(matrix)
    return Pieces(
        frozen(matrix.indptr.astype(np.int64, copy=False)),
        frozen(matrix.indices.astype(np.int32, copy=False)),
        frozen(matrix.data),
    )


def csr(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]) -> Csr:
    from scipy.sparse import csr_array

    return csr_array((data, indices, indptr), shape=shape)


def csr_of_rows(ids: I32, values: NDArray[Any], sizes: I64, columns: int) -> Csr:
    """A CSR array from padded rows: row r holds the first ``sizes[r]`` entries of ``ids[r]`` and ``values[r]``, in
    any order.
    """
    real = np.arange(ids.shape[1]) < sizes[:, None]
    indptr = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=indptr[1:])
    matrix = csr(values[real], ids[real], indptr, (len(sizes), columns))
    matrix.sort_indices()
    return matrix


def new_seed(rng: np.random.Generator) -> np.uint64:
    """The seed of a kernel's counter-based random numbers, drawn from the caller's generator."""
    return rng.integers(0, 2**64, dtype=np.uint64)
