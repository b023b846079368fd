"""Lists of neighbours as CSR arrays: drawing from them, cutting them, and asking whether pairs are linked. Only which
entries exist matters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.graph.arrays import csr
from longtail.types import F32, I64, BoolArray, Csr

# Numbers gathered at a time on each side of a product over edges.
_BLOCK_NUMBERS = 1 << 24


def edge_rows(edges: Csr) -> I64:
    """(E,): the row of every entry."""
    return np.repeat(np.arange(edges.shape[0], dtype=np.int64), np.diff(edges.indptr))


def of_ones(edges: Csr) -> Csr:
    """The same entries, sorted, each once and with the value 1."""
    found = edges.astype(np.float32)
    found.eliminate_zeros()
    found.sum_duplicates()
    found.data[:] = 1
    return found


def selected(edges: Csr, kept: BoolArray) -> Csr:
    """The entries where `kept` (E,) is True; rows and columns keep their numbers."""
    counts = np.bincount(edge_rows(edges)[kept], minlength=edges.shape[0])
    indptr = np.append(0, np.cumsum(counts)).astype(np.int64)
    return csr(np.asarray(edges.data)[kept], np.asarray(edges.indices)[kept], indptr, edges.shape)


def capped(edges: Csr, most: int, rng: np.random.Generator) -> Csr:
    """At most `most` entries per row, a random choice where there are more."""
    rows = edge_rows(edges)
    order = np.lexsort((rng.random(len(rows)), rows))
    kept = np.zeros(len(rows), dtype=np.bool_)
    kept[order] = np.arange(len(rows)) - np.asarray(edges.indptr)[rows] < most
    return selected(edges, kept)


def drawn(edges: Csr, rows: I64, rng: np.random.Generator) -> I64:
    """(B,): a random column of each of `rows`, -1 where a row is empty."""
    begin = np.asarray(edges.indptr, dtype=np.int64)[rows]
    lengths = np.asarray(edges.indptr, dtype=np.int64)[rows + 1] - begin
    # Drawn for empty rows too, so that how much of the generator is used does not depend on the graph.
    place = begin + np.minimum((rng.random(len(rows)) * lengths).astype(np.int64), np.maximum(lengths - 1, 0))
    if not len(edges.indices):
        return np.full(len(rows), -1, dtype=np.int64)
    return np.where(
        lengths > 0, np.asarray(edges.indices, dtype=np.int64)[np.minimum(place, len(edges.indices) - 1)], -1
    )


def linked(edges: Csr, rows: I64, columns: I64) -> BoolArray:
    """(B, U): whether row b and column u are linked.  columns: different, ascending."""
    found = np.zeros((len(rows), len(columns)), dtype=np.bool_)
    if not len(columns):
        return found
    begin = np.asarray(edges.indptr, dtype=np.int64)[rows]
    lengths = np.asarray(edges.indptr, dtype=np.int64)[rows + 1] - begin
    owners = np.repeat(np.arange(len(rows)), lengths)
    ends = np.cumsum(lengths)
    entries = np.asarray(edges.indices)[np.arange(len(owners)) + np.repeat(begin - (ends - lengths), lengths)]
    place = np.minimum(np.searchsorted(columns, entries), len(columns) - 1)
    here = columns[place] == entries
    found[owners[here], place[here]] = True
    return found


def edge_cosines(edges: Csr, of_rows: F32, of_columns: F32) -> NDArray[np.float32]:
    """(E,): the dot product of the unit vectors at both ends of every entry.  of_rows: (rows, D); of_columns:
    (columns, D).
    """
    rows, columns = edge_rows(edges), np.asarray(edges.indices)
    cosines = np.empty(len(rows), dtype=np.float32)
    block = max(_BLOCK_NUMBERS // max(of_rows.shape[1], 1), 1)
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        cosines[part] = np.einsum("ed,ed->e", of_rows[rows[part]], of_columns[columns[part]])
    return cosines
