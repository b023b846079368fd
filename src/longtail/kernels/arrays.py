"""Arrays as kernels take them, and two products that several rooms need.

Arrays are handed to kernels read-only, so that arrays in memory and memory-mapped ones share one machine code.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from longtail.types import F32, I32, I64, Csr


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous read-only view (numba compiles anew for every mix of writable and read-only arguments)."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def freeze(part: Any, *names: str) -> None:
    """Arrays of a frozen dataclass become read-only; what is None stays None."""
    for name in names:
        if (array := getattr(part, name)) is not None:
            object.__setattr__(part, name, frozen(array))


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


def run_starts(lengths: Any) -> I64:
    """(n + 1,): where each of n runs begins, and the last ends.  lengths: (n,)."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def taken_runs(starts: I64, index: I64) -> tuple[I64, I64]:
    """The runs number `index` of what `starts` points into: new pointers, and the positions of all their entries."""
    lengths = starts[index + 1] - starts[index]
    pointers = run_starts(lengths)
    return pointers, np.arange(pointers[-1]) + np.repeat(starts[index] - pointers[:-1], lengths)


def csr_of_rows(ids: I32, values: NDArray[Any], sizes: I64, columns: int) -> Csr:
    """A CSR array from padded rows: row r holds the first ``sizes[r]`` entries of both, in any order."""
    real = np.arange(ids.shape[1]) < sizes[:, None]
    matrix = csr(values[real], ids[real], run_starts(sizes), (len(sizes), columns))
    matrix.sort_indices()
    return matrix


def new_seed(rng: np.random.Generator) -> np.uint64:
    """The seed of a kernel's counter-based random numbers, drawn from the caller's generator."""
    return rng.integers(0, 2**64, dtype=np.uint64)


F64: TypeAlias = NDArray[np.float64]


def steady_product(rows: F32, weight: F64) -> F32:
    """(..., E): rows (..., D) @ weight.T, weight (E, D).

    In double precision: products of fewer or more rows add up in another order, and what float32 loses by that
    differs from batch to batch, up to the fifth digit of a final score. It takes two to four times as long; gathering
    neighbours takes longer still.
    """
    flat = rows.reshape(-1, rows.shape[-1]).astype(np.float64)
    return (flat @ weight.T).astype(np.float32).reshape(*rows.shape[:-1], len(weight))


# Columns beyond the wanted ones that the iteration carries along: they make the last wanted ones accurate.
_SPARE = 8


def right_singular_vectors(documents: Csr, rank: int, rng: np.random.Generator, rounds: int = 4) -> F32:
    """(V, rank) float32, orthonormal columns, for (N, V) CSR; by randomised subspace iteration. rank <= min(N, V)."""
    vocabulary = documents.shape[1]
    basis = rng.standard_normal((vocabulary, min(rank + _SPARE, vocabulary))).astype(np.float32)
    for _ in range(rounds):
        basis, _ = np.linalg.qr(documents.T @ (documents @ basis))
    _, _, rotation = np.linalg.svd(documents @ basis, full_matrices=False)
    return (basis @ rotation[:rank].T).astype(np.float32)
