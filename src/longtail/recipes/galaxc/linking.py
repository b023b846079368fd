"""How new documents come into a graph of training documents and labels. The graph is only read, never changed.

Paper: GalaXC Sec. 4 (cold- and warm-start prediction pipeline).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.models.encoders import FrozenEncoder
from longtail.models.rankers import Classifier, best
from longtail.persistence import DataPart, StringTable
from longtail.recipes.galaxc.graph import AnchorLinks, Fanout, JointGraph, Paths
from longtail.search.index import ExactIndex, Index
from longtail.types import F32, I32, I64, Batch, Context, Csr, TopK

# More nodes than needed are looked up and compared again one by one: products over a batch round differently from
# batch to batch.
_SPARE = 4


@dataclass(frozen=True)
class Anchors(DataPart):
    """Metadata that links documents to nodes.  uids: M anchors.  members: (M, n) CSR, the nodes that have each."""

    KIND = "graph-anchors"

    uids: StringTable
    members: Csr


@dataclass(frozen=True)
class Shape:
    """What is done to encoded texts before they are initial vectors.

    unit: they are scaled to unit length.
    centre: (D,) what all have in common, which is taken away: the mean of training documents (of unit length, if
        `unit`), or None. A text without a known word stays a zero vector.
    """

    unit: bool = True
    centre: F32 | None = None

    def apply(self, vectors: F32) -> F32:
        shaped = unit_rows(vectors) if self.unit else vectors
        if self.centre is None:
            return shaped
        shaped = np.where(np.any(vectors != 0, axis=1)[:, None], shaped - self.centre, np.float32(0)).astype(np.float32)
        return unit_rows(shaped) if self.unit else shaped


@dataclass(frozen=True, kw_only=True)
class GraphSpace(DataPart):
    """A joint graph with the initial vectors of its nodes, and how documents are linked to it.

    encoder, shape: give a document's initial vector.  vectors: (n, D), of nodes.
    linker: an index over these vectors. It finds the `links` nearest nodes of a document; those with a cosine of 0 or
        less are no neighbours. None where it is exact and vectors are of unit length: they are all that it needs.
    test_identity: a document with the vector of a label takes that label's neighbours for its own (released code).
    beside: links that are given (known labels, anchors) count as much as the nearest nodes. Otherwise they take their
        place, as in the paper: then a document of one known label is four times this label, and little is left of its
        text.
    """

    KIND = "graph-space"

    encoder: FrozenEncoder
    graph: JointGraph
    vectors: F32
    linker: Index | None
    fanout: Fanout
    links: int = 4
    shape: Shape = Shape()
    test_identity: bool = False
    anchors: Anchors | None = None
    beside: bool = True
    paths: Paths = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.linker, ExactIndex) and self.shape.unit:
            object.__setattr__(self, "linker", None)  # it holds the same vectors once more
        if self.linker is None and not self.shape.unit:
            raise ValueError("vectors of any length need a linker")
        object.__setattr__(self, "paths", Paths(self.graph, self.vectors, self.fanout))

    def initial(self, batch: Batch) -> F32:
        """(B, D): x^0."""
        return self.shape.apply(self.encoder.encode(batch))

    # ---- links ----

    def linked(self, vectors: F32, context: Context) -> I32:
        """(B, m) the nodes that documents are linked to, -1 where there are fewer: known labels, else nodes with the
        same anchors; the nearest.
        """
        near = self.nearest(vectors).ids
        if self.test_identity:
            near = self._with_twins(vectors, near)
        return self.joined(self.given(len(vectors), context), near)

    def joined(self, given: I32, near: I32) -> I32:
        """Given links beside the nearest nodes, or in their place."""
        return balanced(given, near) if self.beside else preferred(given, near)

    def given(self, documents: int, context: Context) -> I32:
        """(B, m) links by known labels or, where there are none, by anchors; -1 where there is neither."""
        links = np.full((documents, 1), TopK.PAD, dtype=np.int32)
        if context.anchors is not None:
            if self.anchors is None:
                raise ConfigError(
                    "this model knows no anchors",
                    "train with graph.auxiliary=test (or train) on data with a graph of anchors",
                )
            links = AnchorLinks(self.anchors.members).links(context.anchors, self.links)
        return links if context.labels is None else preferred(rows_of(context.labels), links)

    def nearest(self, vectors: F32, exclude: I64 | None = None, linker: Index | None = None) -> TopK:
        """(B, links) nodes by cosine.

        exclude: (B,) a node that is passed over, -1 for none.  linker: another index over the same vectors, which may
        live on a GPU.
        """
        index = next(one for one in (linker, self.linker, ExactIndex(self.vectors, "cosine")) if one is not None)
        found = index.query(vectors, min(self.links + _SPARE, len(self.graph)))
        ids = found.ids if exclude is None else np.where(found.ids == exclude[:, None], np.int32(TopK.PAD), found.ids)
        return best(ids, self._cosines(vectors, ids), self.links)

    def _cosines(self, vectors: F32, ids: I32) -> F32:
        """(B, C), each by itself, so that a document's neighbours do not depend on its batch; -inf if not above 0.

        Where vectors are not of unit length, that of the document itself is left out: it does not change the order.
        """
        dots = Classifier(self.vectors).scores(vectors, ids)
        if self.shape.unit:
            cosines = dots
        else:
            lengths = self._lengths(ids)
            cosines = np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)
        return np.where((ids >= 0) & (cosines > 0), cosines, -np.inf).astype(np.float32)

    def _lengths(self, ids: I32) -> F32:
        used, places = np.unique(ids, return_inverse=True)
        lengths: F32 = np.linalg.norm(self.vectors[used], axis=1)
        return lengths[places].reshape(ids.shape)

    def _with_twins(self, vectors: F32, links: I32) -> I32:
        """Documents whose nearest node is a label with exactly their vector get that label's neighbours, if it has
        any.
        """
        first, graph = links[:, 0], self.graph
        twins = np.flatnonzero((first >= 0) & (first < graph.n_labels) & np.all(self.vectors[first] == vectors, axis=1))
        own = [graph.neighbours[graph.starts[node] : graph.starts[node + 1]] for node in first[twins].tolist()]
        wide = np.full((len(links), max([links.shape[1], *map(len, own)])), TopK.PAD, dtype=np.int32)
        wide[:, : links.shape[1]] = links
        for row, neighbours in zip(twins.tolist(), own, strict=True):
            if len(neighbours):
                wide[row] = TopK.PAD
                wide[row, : len(neighbours)] = neighbours
        return wide

    # ---- documents that see each other ----

    def with_documents(self, vectors: F32, context: Context) -> Paths:
        """A graph with all documents, each linked as the context says or else to its nearest nodes and documents."""
        nearest, n = self.nearest(vectors), len(self.graph)
        others = ExactIndex.build(vectors).query(vectors, self.links + 1)
        itself = others.ids == np.arange(len(vectors))[:, None]
        among = np.where(itself | (others.ids < 0) | (others.scores <= 0), TopK.PAD, others.ids + n).astype(np.int32)
        lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        scores = np.concatenate([nearest.scores / lengths, others.scores], axis=1)
        links = self.joined(
            self.given(len(vectors), context),
            best(np.concatenate([nearest.ids, among], axis=1), scores, self.links).ids,
        )
        return Paths(self.graph.with_nodes(links), np.concatenate([self.vectors, vectors]), self.fanout)


def rows_of(labels: Csr) -> I32:
    """(B, m): the columns of a CSR array, -1 where a row has fewer. Label l is node l."""
    counts = np.diff(labels.indptr)
    rows = np.full((labels.shape[0], max(int(counts.max(initial=0)), 1)), TopK.PAD, dtype=np.int32)
    rows[np.arange(rows.shape[1]) < counts[:, None]] = labels.indices
    return rows


def preferred(first: I32, otherwise: I32) -> I32:
    """Rows of `first` where they hold anything, else those of `otherwise`."""
    width = max(first.shape[1], otherwise.shape[1])

    def wide(links: I32) -> I32:
        return np.pad(links, ((0, 0), (0, width - links.shape[1])), constant_values=TopK.PAD)

    return np.where(np.any(first >= 0, axis=1)[:, None], wide(first), wide(otherwise)).astype(np.int32)


def balanced(first: I32, second: I32) -> I32:
    """Both sides of every row in turn, each repeated to as many as the longer one has, so that they count the same.

    Nodes of the graph itself sample windows of such rows: in turn, every window of two or more holds both sides.
    """
    counts = [(side >= 0).sum(axis=1, keepdims=True) for side in (first, second)]
    place = np.arange(max(first.shape[1], second.shape[1]))
    wanted = np.maximum(*counts)
    rows = [
        np.where(
            (place < wanted) & (count > 0),
            np.take_along_axis(side, place % np.maximum(count, 1), axis=1),
            np.int32(TopK.PAD),
        )
        for side, count in zip((first, second), counts, strict=True)
    ]
    found = np.stack(rows, axis=2).reshape(len(first), -1)
    order = np.argsort(found < 0, axis=1, kind="stable")
    width = max(int((found >= 0).sum(axis=1).max(initial=0)), 1)
    return np.take_along_axis(found, order, axis=1)[:, :width].astype(np.int32)
