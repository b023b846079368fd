"""Documents and labels as one graph, and its neighbourhoods. No torch: prediction and training on a CPU use this code.

A document is a neighbour of its labels, and a label of its documents. Node l is label l; documents come after the
labels. A training document that *is* a label has no node of its own. Neighbours of a node stand in a random order that
is part of the graph, so that any window of the list is a sample (`Fanout`).

Vectors of nodes are summed along sampled paths. The weighted-sum convolution a^k = (1 + eps_k) a^(k-1) + sum of
neighbours' a^(k-1) has nothing between hops that is not linear, so a^k is a sum over *paths*: at each hop a path stays
(and takes the factor 1 + eps) or goes on to a neighbour. Sums of vectors over paths of one kind, 2^K of them, do not
depend on what is trained (`Paths`); `convolutions` puts them together.

New documents are linked to nodes (`GraphSpace`); the graph is only read, never changed. Paper: GalaXC Sec. 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from longtail.declared import Between, Shaped, Sized
from longtail.errors import ConfigError
from longtail.graph.ops import prune_rows, unit_rows
from longtail.kernels.arrays import canonical, csr, freeze, frozen, new_seed, pieces, run_starts, taken_runs
from longtail.kernels.threads import threads_for
from longtail.models.encoders import FrozenEncoder, inverse
from longtail.models.rankers import Classifier, best
from longtail.persistence import DataPart, StringTable
from longtail.search.index import ExactIndex, Index
from longtail.types import F32, I32, I64, Batch, Context, Csr, TopK


@dataclass(frozen=True)
class JointGraph(DataPart):
    """n nodes, L of them labels. Nothing here is ever changed: prediction only reads.

    starts: (n + 1,) int64; neighbours: (E,) int32. Node v has neighbours[starts[v] : starts[v + 1]], all different,
        never itself.
    nodes: (N,) int32, the node of every training document.
    """

    KIND = "joint-graph"

    starts: Annotated[I64, Shaped("nodes_in_all", points_into="edges")]
    neighbours: Annotated[I32, Shaped("edges", numbers_of="nodes_in_all")]
    nodes: Annotated[I32, Shaped("documents", numbers_of="nodes_in_all")]
    n_labels: Annotated[int, Between(0)]

    def __post_init__(self) -> None:
        freeze(self, "starts", "neighbours", "nodes")
        ends = self.starts
        fits = len(ends) > 0 and ends[0] == 0 and ends[-1] == len(self.neighbours) and not np.any(np.diff(ends) < 0)
        if not fits or self.n_labels > len(self):
            raise ValueError("the row pointers of a joint graph do not fit")
        for ids in (self.neighbours, self.nodes):
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(self):
                raise ValueError(f"a joint graph of {len(self)} nodes names others")

    def __len__(self) -> int:
        """Number of nodes: N + L less the training documents that are labels."""
        return len(self.starts) - 1

    @property
    def degrees(self) -> I64:
        """(n,) neighbours of each node; 0 for an isolated one."""
        return np.diff(self.starts)

    def matrix(self) -> Csr:
        """(n, n) CSR of ones: row v has the neighbours of v."""
        ones = np.ones(len(self.neighbours), np.float32)
        matrix = csr(ones, np.array(self.neighbours), np.array(self.starts), (len(self), len(self)))
        matrix.sort_indices()
        return matrix

    def with_nodes(self, links: I32) -> JointGraph:
        """A new graph with more nodes at the end: row b of `links` (B, m; -1: none) has the neighbours of node n + b,
        which may be new ones.

        Old nodes do not see the new ones.
        """
        real = links >= 0
        ends = int(self.starts[-1]) + np.cumsum(real.sum(axis=1), dtype=np.int64)
        return JointGraph(
            np.concatenate([self.starts, ends]),
            np.concatenate([self.neighbours, links[real].astype(np.int32)]),
            self.nodes,
            self.n_labels,
        )


def document_nodes(n_documents: int, n_labels: int, same: I64) -> I32:
    """(N,) the node of every document.

    same: (P, 2) pairs of a document and the label that it is; of several labels the first counts.
    """
    nodes = np.full(n_documents, n_labels, dtype=np.int64)
    np.minimum.at(nodes, same[:, 0], same[:, 1])
    own = nodes == n_labels
    nodes[own] = n_labels + np.arange(int(own.sum()))
    return nodes.astype(np.int32)


def joint_graph(
    targets: Csr, nodes: I32, rng: np.random.Generator, *, extra: Sequence[Csr] = (), limited: Csr | None = None
) -> JointGraph:
    """The graph of training documents and labels.

    targets: (N, L) CSR.  nodes: from `document_nodes`.
    extra: (n, n) CSR each, more neighbours of the row's node; the other direction must be listed if it is meant.
        Paper: GalaXC Sec. 5.1 (Aux-Train).
    limited: (L, n) CSR from `nearest_documents`: what labels with a row there see in place of all their documents;
        documents still see such labels.
    """
    n_labels = int(targets.shape[1])
    n = int(max(nodes.max(initial=-1) + 1, n_labels))
    pairs = canonical(targets)
    documents = np.repeat(nodes, np.diff(pairs.indptr)).astype(np.int64)
    labels = pairs.indices.astype(np.int64)
    sees = np.ones(len(labels), dtype=bool) if limited is None else np.diff(limited.indptr)[labels] == 0
    sources, ends = [documents, labels[sees]], [labels, documents[sees]]
    for matrix in (*extra, *(() if limited is None else (limited,))):
        sources.append(np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr)))
        ends.append(matrix.indices.astype(np.int64))
    source, end = np.concatenate(sources), np.concatenate(ends)
    # No repetitions and no loops; each node's in a random order.
    codes = np.unique(source[source != end] * n + end[source != end])
    source, end = codes // n, codes % n
    order = np.lexsort((rng.random(len(codes)), source))
    starts = run_starts(np.bincount(source, minlength=n))
    return JointGraph(starts, end[order].astype(np.int32), nodes, n_labels)


def labels_of_nodes(targets: Csr, nodes: I32, n: int) -> Csr:
    """(n, L) CSR of ones: the labels that each node has (those of its documents) or is. targets: (N, L) CSR."""
    from scipy.sparse import csr_array

    n_labels = int(targets.shape[1])
    pairs = canonical(targets)
    owners = np.concatenate([np.repeat(nodes, np.diff(pairs.indptr)), np.arange(n_labels)])
    labels = np.concatenate([pairs.indices, np.arange(n_labels)])
    matrix = csr_array((np.ones(len(labels), np.float32), (owners, labels)), shape=(n, n_labels))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def nearest_documents(targets: Csr, nodes: I32, vectors: F32, *, threshold: int, keep: int) -> Csr:
    """(L, n) CSR: for labels of more than `threshold` documents the `keep` nodes among these that are nearest by
    cosine; other rows are empty. Paper: GalaXC Sec. 5 (hyper-parameters, LF-AmazonTitles-1.3M).

    vectors: (n, D), of nodes.
    """
    by_label = canonical(targets.T.tocsr())
    heads = np.flatnonzero(np.diff(by_label.indptr) > threshold)
    unit = unit_rows(vectors)
    starts = np.zeros(by_label.shape[0] + 1, dtype=np.int64)
    starts[heads + 1] = np.minimum(keep, np.diff(by_label.indptr)[heads])
    np.cumsum(starts, out=starts)
    found = np.empty(int(starts[-1]), dtype=np.int32)
    for label in heads.tolist():
        documents = nodes[by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]]
        similarity = unit[documents] @ unit[label]
        found[starts[label] : starts[label + 1]] = documents[np.lexsort((documents, -similarity))[:keep]]
    matrix = csr(np.ones(len(found), np.float32), found, starts, (by_label.shape[0], len(vectors)))
    matrix.sum_duplicates()
    return matrix


# ---- anchors ----


@dataclass(frozen=True)
class Anchors(DataPart):
    """Metadata that links documents to nodes: a category, a dependency or a related search that they share. Nodes of
    the rarest anchor come first. Paper: GalaXC Sec. 5.1 (auxiliary information).

    uids: M anchors.  members: (M, n) CSR, the nodes that have each. Anchors that the training data did not have link to
        nothing.
    Differs: the paper ranks related searches by their click-through rate; given metadata has no rates, and a rare
    anchor says more than a frequent one.
    """

    KIND = "graph-anchors"

    uids: Annotated[StringTable, Sized(len="anchors")]
    members: Annotated[Csr, Shaped("anchors", "nodes")]

    @property
    def n_nodes(self) -> int:
        return int(self.members.shape[1])

    def edges(self, most: int, rng: np.random.Generator) -> Csr:
        """(n, n) CSR: up to `most` neighbours of every node, from anywhere in the list of an anchor with more."""
        anchors = canonical(self.members.T.tocsr())
        itself = np.arange(anchors.shape[0], dtype=np.int64)
        links = self._links(anchors, itself, itself, most, new_seed(rng))
        real = links >= 0
        starts = run_starts(real.sum(axis=1))
        matrix = csr(np.ones(starts[-1], np.float32), links[real], starts, (len(links), len(links)))
        matrix.sort_indices()
        return matrix

    def linked(self, anchors: Csr, most: int) -> I32:
        """(B, most) nodes for documents outside of the graph, best first, -1 where there are fewer. anchors: (B, M)."""
        nothing = np.full(anchors.shape[0], -1, dtype=np.int64)
        return self._links(canonical(anchors), nothing, np.zeros(anchors.shape[0], np.int64), most, np.uint64(0))

    def _links(self, anchors: Csr, exclude: I64, keys: I64, most: int, seed: np.uint64) -> I32:
        from longtail.recipes.galaxc.kernels import link_by_anchors

        starts, nodes, _ = pieces(self.members)
        owners = np.repeat(np.arange(anchors.shape[0]), np.diff(anchors.indptr))
        rarest_first = np.lexsort((anchors.indices, np.diff(starts)[anchors.indices], owners))
        ordered = anchors.indices[rarest_first].astype(np.int32)
        found = np.empty((anchors.shape[0], most), dtype=np.int32)
        with threads_for(len(found)):
            link_by_anchors(anchors.indptr.astype(np.int64), ordered, starts, nodes, exclude, keys, seed, found)
        return found


def strongest(graph: Csr, most: int, n: int) -> Csr:
    """(n, n) CSR: the `most` heaviest neighbours of every label in a given (L, L) graph, as extra edges."""
    graph = canonical(graph.copy())
    graph.setdiag(0)
    graph.eliminate_zeros()
    kept = prune_rows(graph, most)
    starts = np.concatenate([kept.indptr, np.full(n - kept.shape[0], kept.indptr[-1], dtype=kept.indptr.dtype)])
    return csr(kept.data, kept.indices, starts, (n, n))


@dataclass(frozen=True)
class Fanout:
    """How neighbours are taken.

    sizes: neighbours per hop, that of hop 1 (next to the vectors) first.
    pad: a node with fewer neighbours gives them again and again; without it they are summed once each.
    mean: neighbours are averaged, not summed.
    full: all neighbours, once each, whatever `sizes` says; an introduced document's too.
    """

    sizes: tuple[Annotated[int, Between(0, 1 << 20)], ...]
    pad: bool = True
    mean: bool = False
    full: bool = False

    @property
    def hops(self) -> int:
        return len(self.sizes)

    def link_weights(self, counts: I64, mean: bool | None = None) -> F32:
        """(B, K): what each link of an introduced document counts at each hop, given how many links it has.

        All links are used and scaled to what a sample would sum to: `sizes[k - 1]` terms, or without `pad` at most as
        many as there are.
        mean: other than the fan-out says, for encoders that always average.
        """
        each = np.maximum(counts, 1)[:, None].astype(np.float32)
        sizes = np.array(self.sizes, dtype=np.float32)[None, :]
        if self.mean if mean is None else mean:
            return np.repeat(np.float32(1) / each, self.hops, axis=1)
        if self.full:
            return np.ones((len(counts), self.hops), dtype=np.float32)
        shares: F32 = sizes / each if self.pad else np.minimum(sizes / each, np.float32(1))
        return shares


@dataclass(frozen=True)
class HiddenEdges:
    """Edges that B roots do not see, in neither direction: those of node `nodes[b]` with the labels
    ``labels[starts[b] : starts[b + 1]]``.

    nodes: (B,), -1 for a root that hides nothing.  starts: (B + 1,).
    """

    nodes: I64
    starts: I64
    labels: I32

    @classmethod
    def of_targets(cls, targets: Csr, nodes: I32) -> HiddenEdges:
        """The labels of every document, whose node is `nodes[document]`; other edges of that node stay."""
        starts, labels, _ = pieces(targets)
        return cls(nodes.astype(np.int64), starts, labels)

    @classmethod
    def nothing(cls, roots: int) -> HiddenEdges:
        return cls(np.full(roots, -1, dtype=np.int64), np.zeros(roots + 1, dtype=np.int64), np.zeros(0, np.int32))

    def __len__(self) -> int:
        return len(self.nodes)

    def rows(self, rows: I64) -> HiddenEdges:
        starts, at = taken_runs(self.starts, rows)
        return HiddenEdges(self.nodes[rows], starts, self.labels[at])

    def arrays(self) -> tuple[I64, I64, I32]:
        """As kernels take them."""
        return (
            frozen(self.nodes.astype(np.int64, copy=False)),
            frozen(self.starts.astype(np.int64, copy=False)),
            frozen(self.labels.astype(np.int32, copy=False)),
        )


class Paths:
    """Vectors of nodes, summed along paths of a graph.

    vectors: (n, D) float32, of the nodes.
    """

    def __init__(self, graph: JointGraph, vectors: F32, fanout: Fanout) -> None:
        if len(graph) != len(vectors):
            raise ValueError(f"{len(vectors)} vectors for {len(graph)} nodes")
        self.graph, self.vectors, self.fanout = graph, frozen(vectors), fanout

    def of_nodes(self, nodes: I32, seed: int, hidden: HiddenEdges | None = None) -> F32:
        """(B, 2^K, D): entry c sums over paths whose hops to a neighbour are the bits of c (bit 0 is hop 1); entry 0
        is the node itself.
        """
        return self._sums(np.arange(len(nodes) + 1), nodes, self.fanout.hops, seed, hidden)

    def of_linked(self, vectors: F32, links: I32, seed: int, hidden: HiddenEdges | None = None) -> F32:
        """(B, 2^K, D): the same for documents that are not in the graph, or whose own edges shall not be seen.

        vectors: (B, D).  links: (B, m) their neighbours, -1 where there are fewer.
        hidden: what their paths do not take.
        """
        hops, real = self.fanout.hops, links >= 0
        counts = real.sum(axis=1)
        beyond = self._sums(run_starts(counts), links[real], hops - 1, seed, hidden)
        weights = self.fanout.link_weights(counts)
        sums = np.empty((len(links), 1 << hops, vectors.shape[1]), dtype=np.float32)
        sums[:, 0] = vectors
        for hop in range(hops):
            # Paths that leave the document at this hop go on as paths of its neighbours over the hops before it.
            np.multiply(beyond[:, : 1 << hop], weights[:, hop, None, None], out=sums[:, 1 << hop : 2 << hop])
        return sums

    def samples(self, nodes: I32, hops: int, seed: int, hidden: HiddenEdges | None = None) -> I32:
        """(B, 1 + F_hops, ..., 1 + F_1): sampled neighbours, theirs, and so on, -1 where there is none; index 0 of
        each axis is the node itself.
        """
        from longtail.recipes.galaxc.kernels import fill_samples

        if self.fanout.full:
            raise ValueError("samples of all neighbours have no shape")
        shape = tuple(1 + size for size in reversed(self.fanout.sizes[:hops]))
        samples = np.empty((len(nodes), int(np.prod(shape, dtype=np.int64))), dtype=np.int32)
        with threads_for(len(nodes)):
            fill_samples(
                self.graph.starts,
                self.graph.neighbours,
                frozen(nodes),
                hops,
                self._sizes,
                np.uint64(seed),
                *(hidden or HiddenEdges.nothing(len(nodes))).arrays(),
                self.fanout.pad,
                samples,
            )
        return samples.reshape(len(nodes), *shape)

    @cached_property
    def _sizes(self) -> I64:
        return frozen(np.array(self.fanout.sizes, dtype=np.int64))

    def _sums(self, root_ptr: I64, roots: I32, hops: int, seed: int, hidden: HiddenEdges | None) -> F32:
        from longtail.recipes.galaxc.kernels import add_paths

        n = len(root_ptr) - 1
        sums = np.zeros((n, 1 << hops, self.vectors.shape[1]), dtype=np.float32)
        if self.fanout.full:
            self._add_full(root_ptr, roots, hops, hidden, sums)
            return sums
        with threads_for(n, each=8):
            add_paths(
                self.graph.starts,
                self.graph.neighbours,
                self.vectors,
                frozen(root_ptr.astype(np.int64)),
                frozen(roots),
                hops,
                self._sizes,
                np.uint64(seed),
                *(hidden or HiddenEdges.nothing(n)).arrays(),
                self.fanout.pad,
                self.fanout.mean,
                sums,
            )
        return sums

    def _add_full(self, root_ptr: I64, roots: I32, hops: int, hidden: HiddenEdges | None, sums: F32) -> None:
        if hidden is not None and np.any(hidden.nodes >= 0):
            raise ValueError("edges can be hidden from samples only")
        owners = np.repeat(np.arange(len(root_ptr) - 1), np.diff(root_ptr))
        for kind in range(1 << hops):
            np.add.at(sums[:, kind], owners, self._powers[kind.bit_count()][roots])

    @cached_property
    def _powers(self) -> list[F32]:
        """A^j V for j = 0..K: with all neighbours a path's kind matters only by how many hops it takes."""
        from longtail.graph.ops import scale_rows_to_sum_one

        matrix = scale_rows_to_sum_one(self.graph.matrix()) if self.fanout.mean else self.graph.matrix()
        powers = [self.vectors]
        for _ in range(self.fanout.hops):
            powers.append(np.asarray(matrix @ powers[-1], dtype=np.float32))
        return powers


def convolutions(sums: Any, epsilons: Iterable[Any]) -> Iterator[Any]:
    """a^1, ..., a^K, (B, D) each, from sums along paths (B, 2^K, D); arrays of numpy or tensors.

    Bit 0 of a kind is the first hop: kinds 2j and 2j + 1 differ in that hop alone, which stays (1 + eps) or goes to a
    neighbour.
    """
    for epsilon in epsilons:
        sums = (1 + epsilon) * sums[:, 0::2] + sums[:, 1::2]
        yield sums[:, 0]


# More nodes than needed are looked up and compared again one by one: products over a batch round differently from
# batch to batch.
_SPARE = 4
# Neighbours of its own node that a document is linked to beside the nearest, at most: a label may have thousands.
_MOST_NEIGHBOURS = 32


@dataclass(frozen=True)
class Shape:
    """What is done to encoded texts before they are initial vectors.

    unit: they are scaled to unit length.
    centre: (D,) what all have in common, which is taken away: the mean of training documents (of unit length, if
        `unit`), or None. A text without a known word stays a zero vector.
    """

    unit: bool = True
    centre: Annotated[F32, Shaped("width")] | None = None

    @property
    def width(self) -> int | None:
        return None if self.centre is None else len(self.centre)

    def apply(self, vectors: F32) -> F32:
        shaped = unit_rows(vectors) if self.unit else vectors
        if self.centre is None:
            return shaped
        shaped = np.where(np.any(vectors != 0, axis=1)[:, None], shaped - self.centre, np.float32(0)).astype(np.float32)
        return unit_rows(shaped) if self.unit else shaped

    def pulled(self, vectors: F32, directions: F32) -> tuple[F32, F32]:
        """Directions (B, C, D) whose products with `vectors` are those of ``apply(vectors)`` with `directions`, but
        for a constant (B, C). Lengths are taken as they are here.
        """
        shaped = unit_rows(vectors) if self.unit else vectors
        constant: F32 = np.zeros(directions.shape[:2], dtype=np.float32)
        if self.centre is not None:
            known = np.any(vectors != 0, axis=1)[:, None]
            if self.unit:
                moved = np.where(known, shaped - self.centre, np.float32(0))
                directions = directions * inverse(np.linalg.norm(moved, axis=1))[:, None, None]
            constant = np.where(known, -(directions @ self.centre), np.float32(0))
        if self.unit:
            directions = directions * inverse(np.linalg.norm(vectors, axis=1))[:, None, None]
        return directions, constant


@dataclass(frozen=True, kw_only=True)
class GraphSpace(DataPart):
    """A joint graph with the initial vectors of its nodes, and how documents are linked to it.

    encoder, shape: give a document's initial vector.  vectors: (n, D), of nodes.
    linker: an index over these vectors. It finds the `links` nearest nodes of a document; those with a cosine of 0 or
        less are no neighbours. None where it is exact and vectors are of unit length: they are all that it needs.
    test_identity: a document with the vector of a label has that label's neighbours beside the nearest nodes (released
        code).
    beside: links that are given (known labels, anchors) count as much as the nearest nodes. Otherwise they take their
        place, as in the paper: then a document of one known label is four times this label, and little is left of its
        text.
    """

    KIND = "graph-space"

    encoder: Annotated[FrozenEncoder, Sized(width="width")]
    graph: Annotated[JointGraph, Sized(len="nodes")]
    vectors: Annotated[F32, Shaped("nodes", "width")]
    linker: Annotated[Index, Sized(len="nodes", width="width")] | None
    fanout: Fanout
    links: Annotated[int, Between(1, 1 << 20)] = 4
    shape: Annotated[Shape, Sized(width="width")] = Shape()
    test_identity: bool = False
    anchors: Annotated[Anchors, Sized(n_nodes="nodes")] | None = None
    beside: bool = True
    paths: Paths = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.linker, ExactIndex) and self.shape.unit:
            object.__setattr__(self, "linker", None)  # it holds the same vectors once more
        if self.linker is None and not self.shape.unit:
            raise ValueError("vectors of any length need a linker")
        object.__setattr__(self, "paths", Paths(self.graph, self.vectors, self.fanout))

    @property
    def n_labels(self) -> int:
        return self.graph.n_labels

    @property
    def n_nodes(self) -> int:
        return len(self.graph)

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def hops(self) -> int:
        return self.fanout.hops

    def initial(self, batch: Batch) -> F32:
        """(B, D): x^0."""
        return self.shape.apply(self.encoder.encode(batch))

    def shares(self, batch: Batch, directions: F32) -> tuple[F32, F32] | None:
        """As `FrozenEncoder.shares`, of initial vectors."""
        directions, constant = self.shape.pulled(self.encoder.encode(batch), directions)
        found = self.encoder.shares(batch, directions)
        return None if found is None else (found[0], found[1] + constant)

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
            links = self.anchors.linked(context.anchors, self.links)
        return links if context.labels is None else preferred(rows_of(context.labels), links)

    def nearest(self, vectors: F32, exclude: I64 | None = None, linker: Index | None = None, count: int = 0) -> TopK:
        """(B, links) nodes by cosine.

        exclude: (B,) a node that is passed over, -1 for none.  linker: another index over the same vectors, which may
        live on a GPU.  count: so many in place of `links`.
        """
        count = count or self.links
        index = next(one for one in (linker, self.linker, ExactIndex(self.vectors, "cosine")) if one is not None)
        found = index.query(vectors, min(count + _SPARE, len(self.graph)))
        ids = found.ids if exclude is None else np.where(found.ids == exclude[:, None], np.int32(TopK.PAD), found.ids)
        return best(ids, self._cosines(vectors, ids), count)

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
        """Documents whose nearest node is a label with exactly their vector are linked to that label's neighbours, too,
        as the label itself is: they are one node.
        """
        first = links[:, 0]
        is_label = (first >= 0) & (first < self.graph.n_labels) & np.all(self.vectors[first] == vectors, axis=1)
        return added(links, self._neighbours(np.where(is_label, first, np.int32(TopK.PAD))))

    def _neighbours(self, nodes: I32, hidden: HiddenEdges | None = None) -> I32:
        """(B, m): neighbours of nodes (-1: none), those of hidden edges left out; some of them where they are many."""
        graph, (hidden_starts, hidden_labels) = self.graph, (np.zeros(len(nodes) + 1, np.int64), np.zeros(0, np.int32))
        if hidden is not None:
            hidden_starts, hidden_labels = hidden.starts, hidden.labels
        rows = np.flatnonzero(nodes >= 0)
        starts, at = taken_runs(graph.starts, nodes[rows].astype(np.int64))
        owners, ends = np.repeat(rows, np.diff(starts)), graph.neighbours[at]
        unseen = np.repeat(np.arange(len(nodes)), np.diff(hidden_starts)) * np.int64(len(graph)) + hidden_labels
        seen = ~np.isin(owners * np.int64(len(graph)) + ends, unseen)
        owners, ends = owners[seen], ends[seen]
        places = np.arange(len(owners)) - run_starts(np.bincount(owners, minlength=len(nodes)))[owners]
        # Neighbours stand in a random order: the first of them are a sample.
        kept = places < (len(graph) if self.fanout.full else _MOST_NEIGHBOURS)
        found = np.full((len(nodes), int(places[kept].max(initial=0)) + 1), TopK.PAD, dtype=np.int32)
        found[owners[kept], places[kept]] = ends[kept]
        return found

    # ---- training documents as new ones ----

    def as_new(self, nodes: I32, hidden: HiddenEdges, linker: Index | None = None) -> I32:
        """(B, m): what training documents are linked to as if they were new, -1 where there are fewer: the nearest
        nodes, and what their own nodes are joined to by other edges than those to their labels.

        A document that is a label finds this label among the nearest, as a new one would, and through it the label's
        documents (with `test_identity` it has them as its own neighbours, as a new one would). Any other document is
        not linked to its own node.
        hidden: the edges to their labels.  linker: as in `nearest`.
        """
        is_label = nodes < self.n_labels
        itself = np.where(is_label, np.int64(TopK.PAD), nodes.astype(np.int64))
        near = self.nearest(self.vectors[nodes], exclude=itself, linker=linker).ids
        own = np.where(is_label & (not self.test_identity), np.int32(TopK.PAD), nodes)
        return added(near, self._neighbours(own, hidden))

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


def added(first: I32, more: I32) -> I32:
    """(B, m): rows of both, `first` before `more`, none twice; -1 at the end where a row has fewer."""
    repeated = np.any(more[:, :, None] == first[:, None, :], axis=2)
    return packed_left(np.concatenate([first, np.where(repeated, np.int32(TopK.PAD), more)], axis=1))


def packed_left(rows: I32) -> I32:
    """What a row holds moved to its beginning, in the same order; as wide as the longest, one column at least."""
    order = np.argsort(rows < 0, axis=1, kind="stable")
    width = max(int((rows >= 0).sum(axis=1).max(initial=0)), 1)
    return np.take_along_axis(rows, order, axis=1)[:, :width].astype(np.int32)


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
    return packed_left(np.stack(rows, axis=2).reshape(len(first), -1))
