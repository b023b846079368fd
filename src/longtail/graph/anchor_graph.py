"""Metadata as links from documents and labels to anchors, made ready for training: completed by walks, cut, spoilt on
purpose.

Links are lists of neighbours as CSR arrays: the functions of the first half draw from them, cut them, and say whether
pairs are linked. Only which entries exist matters there.

No function here looks at test documents: the readers of data sets drop anchors that are test documents, and nothing
after that adds one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from longtail.data.dataset import Graph
from longtail.errors import ConfigError
from longtail.graph.ops import prune_rows, random_walk_graph, scale_rows_to_sum_one
from longtail.kernels.arrays import canonical, csr
from longtail.types import I64, BoolArray, Csr


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


Side: TypeAlias = Literal["documents", "labels"]

# Rows of a completion that exist at a time before they are cut to their largest entries.
_COMPLETED_ROWS = 20_000


@dataclass(frozen=True)
class AnchorGraph:
    """Items linked to the anchors of one set.  sides: (items, M) CSR of ones for documents, labels or both; M is the
    same. A graph that was completed `by_visits` has weights in place of ones.
    """

    name: str
    sides: Mapping[Side, Csr]

    @property
    def n_anchors(self) -> int:
        return int(next(iter(self.sides.values())).shape[1])

    @property
    def edges(self) -> int:
        return sum(int(side.nnz) for side in self.sides.values())

    @property
    def most(self) -> int:
        """Anchors that an item may keep: log2 M, rounded up. Paper: RAMEN App. (complexity)."""
        return max(math.ceil(math.log2(max(self.n_anchors, 2))), 1)

    def changed(self, change: Callable[[Csr], Csr]) -> AnchorGraph:
        return replace(self, sides={side: change(edges) for side, edges in self.sides.items()})

    def without(self, side: Side) -> AnchorGraph:
        return replace(self, sides={name: edges for name, edges in self.sides.items() if name != side})

    def among(self, anchors: BoolArray) -> AnchorGraph:
        """Edges to the anchors where (M,) `anchors` is True; the others keep their numbers, and have no edge."""
        return self.changed(lambda edges: selected(edges, anchors[edges.indices]))

    def completed(
        self, *, length: int, restart: float, top: int, rng: np.random.Generator, by_visits: bool = False
    ) -> AnchorGraph:
        """With the anchors that walks find near an item's own: the `most` largest of E Q per item, and its own.

        Q: visits of anchors by a walk from every anchor through the items of both sides, the `top` of each row, rows
            summing to one.
        by_visits: edges weigh what of E Q is theirs, and those that were given 1 more. An item's visits sum to no more
            than the number of its given edges, so these have at least half of the weight.
        Paper: RAMEN App. (a walk with restart on each anchor, 400 hops, restart 0.8). Differs: the paper names
        neither the graph that is walked nor what becomes of the visits; this is one reading of it.
        """
        from scipy.sparse import vstack

        if not self.edges:
            return self
        items = vstack(list(self.sides.values()), format="csr")
        near = scale_rows_to_sum_one(random_walk_graph(items, length=length, restart=restart, rng=rng, top_k=top))

        def with_near(edges: Csr) -> Csr:
            blocks = [edges[start : start + _COMPLETED_ROWS] for start in range(0, edges.shape[0], _COMPLETED_ROWS)]
            found = vstack([prune_rows((block @ near).tocsr(), self.most) for block in blocks], format="csr")
            both = (found + edges).tocsr()
            return canonical(both) if by_visits else of_ones(both)

        return self.changed(with_near)

    def noisy(self, rate: float, rng: np.random.Generator) -> tuple[AnchorGraph, Mapping[Side, Csr]]:
        """A share `rate` of the edges leads to a random anchor instead; and which of the edges are such, of those
        that were none before.
        """
        _check_share("noise", rate)
        sides, injected = {}, {}
        for name, edges in self.sides.items():
            moved = np.zeros(edges.nnz, dtype=np.bool_)
            moved[rng.permutation(edges.nnz)[: round(rate * edges.nnz)]] = True
            columns = np.where(moved, rng.integers(self.n_anchors, size=edges.nnz), edges.indices)
            sides[name] = _linked(edge_rows(edges), columns, edges)
            new = _linked(edge_rows(edges)[moved], columns[moved], edges)
            injected[name] = of_ones((new - new.multiply(edges)).tocsr())
        return replace(self, sides=sides), injected

    def subsampled(self, share: float, rng: np.random.Generator) -> AnchorGraph:
        """A random `share` of the edges of each side. Paper: RAMEN Table 7 (volume of metadata)."""
        _check_share("share of edges", share)

        def thinned(edges: Csr) -> Csr:
            kept = np.zeros(edges.nnz, dtype=np.bool_)
            kept[rng.permutation(edges.nnz)[: round(share * edges.nnz)]] = True
            return selected(edges, kept)

        return self.changed(thinned)


def anchor_graphs(graphs: Mapping[str, Graph]) -> list[AnchorGraph]:
    """The given graphs that link documents or labels to anchors; label-label graphs have none, and one without edges
    says nothing.
    """
    found = []
    for name, graph in graphs.items():
        given: dict[Side, Csr | None] = {"documents": graph.documents, "labels": graph.labels}
        sides = {side: of_ones(edges) for side, edges in given.items() if edges is not None and edges.nnz}
        if graph.anchors is not None and sides:
            found.append(AnchorGraph(name, sides))
    return found


def _linked(rows: np.ndarray, columns: np.ndarray, like: Csr) -> Csr:
    from scipy.sparse import csr_array

    return of_ones(csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=like.shape))


def _check_share(what: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"a {what} of {share:g}", "use a number from 0 to 1")
