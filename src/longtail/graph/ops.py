"""Algebra on sparse label graphs: CSR in, CSR out; the input is never changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import ConfigError
from longtail.kernels.arrays import canonical, csr, pieces
from longtail.kernels.threads import threads_for
from longtail.types import F32, Csr


def scale_rows_to_sum_one(graph: Csr) -> Csr:
    """Every row divided by the sum of its absolute values (l1); empty rows stay empty."""
    graph = canonical(graph)
    return _scaled(graph, _inverse(abs(graph).sum(axis=1)), None)


def scale_both_sides(graph: Csr) -> Csr:
    """A^-1/2 G B^-1/2 with A, B the row and column sums of a non-negative G. Paper: ECLARE Sec. 3.2.

    The largest singular value of the result is 1. A row or column without entries stays so.
    """
    graph = canonical(graph)
    return _scaled(graph, np.sqrt(_inverse(graph.sum(axis=1))), np.sqrt(_inverse(graph.sum(axis=0))))


def unit_rows(rows: Csr | F32) -> Any:
    """Rows divided by their length (l2), float32, sparse or dense as they came; zero rows stay zero."""
    if isinstance(rows, np.ndarray):
        squares = np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
        # Computed in double precision piece by piece: a float64 copy of all rows could be the largest thing in memory.
        return np.multiply(
            rows, np.sqrt(_inverse(squares))[:, None], out=np.empty(rows.shape, np.float32), casting="unsafe"
        )
    rows = canonical(rows.astype(np.float32))
    return _scaled(rows, np.sqrt(_inverse(rows.multiply(rows).sum(axis=1))), None)


def prune_rows(graph: Csr, k: int, *, keep_diagonal: bool = False, first_row: int = 0) -> Csr:
    """The k largest entries of each row, ties by column number. `keep_diagonal`: an existing diagonal entry is one of
    them.

    first_row: for a block of rows of a larger graph, the number of its first: the diagonal starts in that column.
    """
    if k < 1:
        raise ConfigError(f"k is {k}, expected at least 1", "keep at least one entry per row")
    from longtail.graph.kernels import largest_of_rows

    graph = canonical(graph)
    lengths = np.minimum(np.diff(graph.indptr), k)
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    own = first_row + np.arange(len(lengths)) if keep_diagonal else np.full(len(lengths), -1, np.int64)
    with threads_for(len(lengths)):
        largest_of_rows(*pieces(graph.astype(np.float32, copy=False)), own, indptr, indices, data)
    pruned = csr(data, indices, indptr, graph.shape)
    pruned.sort_indices()
    return pruned


def ensure_diagonal(graph: Csr, at_least: float = 1.0) -> Csr:
    """Raise every diagonal entry to `at_least`, so that each label is its own neighbour."""
    from scipy.sparse import diags_array

    missing = np.maximum(at_least - graph.diagonal(), 0.0).astype(graph.dtype)
    raised = (graph + diags_array(missing, format="csr")).tocsr()
    raised.eliminate_zeros()
    raised.sort_indices()
    return raised


def _inverse(sums: NDArray[np.floating]) -> NDArray[np.float64]:
    sums = np.asarray(sums, dtype=np.float64)
    return np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)


def _scaled(graph: Csr, by_row: NDArray[np.float64], by_column: NDArray[np.float64] | None) -> Csr:
    """A canonical matrix with entry (r, c) times by_row[r] times by_column[c]; shares the positions of the entries."""
    factor = np.repeat(by_row, np.diff(graph.indptr))
    if by_column is not None:
        factor *= by_column[graph.indices]
    return csr((graph.data * factor).astype(graph.dtype), graph.indices, graph.indptr, graph.shape)
