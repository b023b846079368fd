"""Algebra on sparse label graphs, and random walks through the documents that labels share: CSR in, CSR out; the input
is never changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import ConfigError
from longtail.kernels.arrays import canonical, csr, csr_of_rows, new_seed, pieces
from longtail.kernels.threads import threads_for
from longtail.types import F32, I32, Csr


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


# Entries of a block of walks that is held before it is packed (8 bytes each).
_BLOCK_ENTRIES = 8_000_000
# Pieces of work per thread: more even the load, each costs a small table.
_TASKS_PER_THREAD = 8
# Above this the dense matrices of the exact expectation are too big.
_EXACT_LABELS = 5000


def random_walk_graph(
    y: Csr, *, length: int, restart: float, rng: np.random.Generator, top_k: int | None = None
) -> Csr:
    """Visits of labels by a random walk from every label: (L, L) CSR float32 of counts, columns sorted.

    y: (N, L) CSR, documents x labels; only which entries exist matters (no explicit zeros).
    A step: with probability `restart` go back to the start; then to a random document of the label; then to a random
    label of that document, which is counted. A row sums to `length`, or is empty for a label without documents.
    top_k: keep the most visited labels of a row (ties by number); the label itself, if visited, is always among them.

    Paper: ECLARE Sec. 3.2 (length 400, restart 0.8); Astec Sec. 4, Module I (length 50, restart 0.2, top 10, from the
    released code). To keep walks off head labels, remove their columns' entries from `y`: their rows come out empty
    (see `ensure_diagonal`). The result depends on the generator only, not on the number of threads.
    """
    _check(length, restart)
    if top_k is not None and top_k < 1:
        raise ConfigError(f"top_k is {top_k}, expected at least 1", "keep at least one label per row, or None for all")
    from numba import get_num_threads
    from scipy.sparse import vstack

    from longtail.graph.kernels import walk_block

    n_labels, links = int(y.shape[1]), (*pieces(y.T.tocsr())[:2], *pieces(y)[:2])
    seed, threshold = new_seed(rng), _share(restart)
    width = max(min(length, n_labels, top_k or length), 1)
    block = max(_BLOCK_ENTRIES // width, 1)
    found = []
    for first in range(0, max(n_labels, 1), block):
        rows = min(block, n_labels - first)
        ids, counts, sizes = (
            np.empty((rows, width), np.int32),
            np.empty((rows, width), np.float32),
            np.empty(rows, np.int64),
        )
        with threads_for(rows):
            tasks = get_num_threads() * _TASKS_PER_THREAD
            walk_block(first, seed, links, length, threshold, tasks, ids, counts, sizes)
        found.append(csr_of_rows(ids, counts, sizes, n_labels))
    return vstack(found, format="csr")


def random_walk(y: Csr, label: int, *, length: int, restart: float, rng: np.random.Generator) -> I32:
    """The walk from one label, step by step: (length, 2) int32 of (document, label reached); empty for a label
    without documents.

    With an equal generator this is the walk whose visits `random_walk_graph` counts for the label.
    """
    _check(length, restart)
    n_labels = int(y.shape[1])
    if not 0 <= label < n_labels:
        raise ConfigError(
            f"a walk from label {label} of {n_labels} asked for", f"use a number from 0 to {n_labels - 1}"
        )
    from longtail.graph.kernels import walk_steps

    links = *pieces(y.T.tocsr())[:2], *pieces(y)[:2]
    steps = np.empty((length if links[0][label] < links[0][label + 1] else 0, 2), np.int32)
    walk_steps(label, new_seed(rng), links, _share(restart), steps)
    return steps


def expected_walk_graph(y: Csr, *, length: int, restart: float) -> Csr:
    """What `random_walk_graph` counts on average, without `top_k`: (L, L) CSR float32. Dense inside, for few labels.

    With P the label -> document -> label transition, the position after step t is R_1 = P, R_t = r P + (1 - r)
    R_{t-1} P.
    """
    from scipy.sparse import csr_array, diags_array

    _check(length, restart)
    n_labels = int(y.shape[1])
    if n_labels > _EXACT_LABELS:
        raise ConfigError(
            f"the exact walk needs dense {n_labels} x {n_labels} matrices",
            f"use the random walk above {_EXACT_LABELS} labels",
        )
    ones = csr_array((np.ones(y.nnz), y.indices, y.indptr), shape=y.shape)
    per_label, per_document = np.maximum(ones.sum(axis=0), 1), np.maximum(ones.sum(axis=1), 1)
    step = (diags_array(1 / per_label) @ ones.T @ diags_array(1 / per_document) @ ones).toarray()
    position, total = step.copy(), step.copy()
    for _ in range(length - 1):
        position = restart * step + (1 - restart) * position @ step
        total += position
    return csr_array(total.astype(np.float32))


def _share(restart: float) -> np.uint64:
    """A chance as kernels compare it: in parts of 2^32."""
    return np.uint64(round(restart * 2**32))


def _check(length: int, restart: float) -> None:
    if length < 1:
        raise ConfigError(f"the walk length is {length}, expected at least 1", "use 50 (Astec) or 400 (ECLARE)")
    if not 0 <= restart <= 1:
        raise ConfigError(f"the restart probability is {restart}, expected 0 to 1", "use 0.2 (Astec) or 0.8 (ECLARE)")
