"""Promising labels for a document vector: by the labels' centroids, or by clusters of labels, whose scores may be
spread along the label graph (GAME).

All have ``query(vectors, k, exclude=None) -> TopK``. `exclude` (B,) int64 holds, for queries that are training
documents, their row number (-1 for others): a document must not vote for its own labels.

GAME spreads scores of clusters or labels, so that what occurs with a find is found too. It knows nothing of how the
scores came about, so it serves any ranker that finds clusters first and scores the labels inside them
(`recipes.astec.ranker.SpreadTree`). Paper: ECLARE Sec. 3.4 and 3.5 (graph assisted multi-label expansion).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Literal, Protocol, TypeAlias

import numpy as np

from longtail.config import setting
from longtail.declared import Between, Shaped, Sized
from longtail.errors import ConfigError
from longtail.graph.ops import scale_both_sides
from longtail.kernels.arrays import Pieces, csr, freeze, frozen, pieces, taken_runs
from longtail.kernels.threads import threads_for
from longtail.persistence import DataPart
from longtail.search.cluster import label_centroids, spherical_kmeans
from longtail.search.index import ExactIndex, Heaps, Index, IndexBuilder, build_index
from longtail.search.joined import JoinedIndex
from longtail.search.packed import PackedIndex, Packer
from longtail.types import F32, I32, I64, Csr, Shortlister, TopK

# ---- GAME ----

# Up to so many nodes a table of all of them, which each thread clears once, is faster than a hash table per document:
# it stays in the second cache, and has at most so many nodes for each find.
_TABLE, _NODES_PER_FIND = 1 << 18, 64

ClusterScale: TypeAlias = Literal["mean", "both"]


@dataclass(frozen=True)
class GameSettings:
    enabled: bool = setting(
        True,
        "spread scores along the label graph: of clusters where labels are looked for, of labels in the final score",
    )
    mix: float = setting(
        1.0,
        "weight of the spread scores; the rest stays with the scores as they were (1: the paper, 0.5: its released "
        "code)",
        low=0,
        high=1,
    )
    transpose: bool = setting(
        False, "spread along edges from what was found, in place of gathering along edges to it (the released code)"
    )
    clusters: ClusterScale = setting(
        "mean", "edges between clusters: mean over their labels (the paper), or sums scaled as the label graph is"
    )


def cluster_graph(graph: Csr, clusters: I32, n_clusters: int, scale: ClusterScale = "mean") -> Csr:
    """M^T G M: (K, K) CSR float32, the graph of labels as one of clusters. graph: (L, L); clusters: (L,), -1 for none.

    mean: the columns of M sum to one, so an edge is the mean over all pairs of labels of two clusters. Scores shrink
    by the size of clusters; where clusters are balanced this changes neither order nor ratios.
    both: M holds ones, and the sums are scaled by the roots of row and column sums: scores keep their size, as mixing
        needs.

    Paper: ECLARE Sec. 3.4.
    """
    members = np.flatnonzero(clusters >= 0)
    sizes = np.bincount(clusters[members], minlength=n_clusters)
    shares = 1 / sizes[clusters[members]] if scale == "mean" else np.ones(len(members))
    starts = np.zeros(len(clusters) + 1, np.int64)
    np.cumsum(clusters >= 0, out=starts[1:])
    membership = csr(shares, clusters[members], starts, (len(clusters), n_clusters))
    joined = (membership.T.tocsr() @ graph.astype(np.float64) @ membership).tocsr()
    joined = scale_both_sides(joined) if scale == "both" else joined
    joined.sort_indices()
    return joined.astype(np.float32)


class Game:
    """A graph ready to spread scores along: (n, n) CSR over clusters or labels, with p = G p~ (or G^T p~ if
    transposed).

    mix: p = mix x G p~ + (1 - mix) x p~ over the union of both. 1 is the paper's form, 0.5 that of its released code.
    """

    def __init__(self, graph: Csr, mix: float = 1.0, transpose: bool = False) -> None:
        if not 0 <= mix <= 1:
            raise ConfigError(
                f"the mix is {mix}, expected 0 to 1",
                "1 takes the spread scores alone, 0.5 as much of the scores before",
            )
        self.graph, self.mix, self.transpose = graph, mix, transpose

    # Row m of G lists from whom m gets; to whom n gives is column n. Each is made when it is first needed: mostly one
    # is.

    @cached_property
    def _gets(self) -> Pieces:
        return pieces((self.graph.T.tocsr() if self.transpose else self.graph).astype(np.float32, copy=False))

    @cached_property
    def _gives(self) -> Pieces:
        return pieces((self.graph if self.transpose else self.graph.T.tocsr()).astype(np.float32, copy=False))

    def spread(self, ids: I32, scores: F32, keep: int) -> TopK:
        """The `keep` nodes with the highest scores after spreading, whether they were found before or not; ties by
        number.

        ids, scores: (B, m), -1 where there is none; a score counts 0 for all that are not listed.
        """
        from numba import get_num_threads

        from longtail.search.kernels.shortlist import spread

        answer = Heaps(len(ids), keep)
        with threads_for(len(ids)):
            spread(
                frozen(ids),
                frozen(scores),
                *self._gives,
                np.float32(self.mix),
                get_num_threads(),
                *answer.arrays,
            )
        return answer.ranked()

    def given_to(self, rows: I64, nodes: I32, ids: I32, scores: F32) -> tuple[I64, I32, F32]:
        """Where scores in `within` (ids, scores: (B, m)) come from, for P pairs of a row and a node that is listed in
        it: pairs (their number, increasing), givers and amounts. What a node keeps of its own is given by itself.
        """
        starts, givers, weights = self._gets
        pointers, edges = taken_runs(starts, nodes.astype(np.int64))
        pairs = np.concatenate([np.repeat(np.arange(len(rows)), np.diff(pointers)), np.arange(len(rows))])
        given_by = np.concatenate([givers[edges], nodes])
        factors = np.concatenate(
            [np.float32(self.mix) * weights[edges], np.full(len(nodes), 1 - self.mix, dtype=np.float32)]
        )
        # Every listed node by row and number, to be found by bisection; padding comes before all nodes of its row.
        width = np.int64(self.graph.shape[0] + 1)
        codes = (np.arange(len(ids), dtype=np.int64)[:, None] * width + ids + 1).ravel()
        order = np.argsort(codes, kind="stable")
        wanted = rows[pairs] * width + given_by + 1
        at = order[np.minimum(np.searchsorted(codes, wanted, sorter=order), len(order) - 1)]
        there = np.flatnonzero((codes[at] == wanted) & (factors != 0))
        there = there[np.argsort(pairs[there], kind="stable")]
        return pairs[there], given_by[there], factors[there] * scores.ravel()[at[there]]

    def within(self, ids: I32, scores: F32) -> F32:
        """(B, m): scores after spreading among the listed nodes alone; nothing reaches others. 0 at padding. ids of a
        row differ.
        """
        from numba import get_num_threads

        from longtail.search.kernels.shortlist import gather, gather_through_table

        found = np.empty(ids.shape, np.float32)
        arrays = frozen(ids), frozen(scores), *self._gets, np.float32(self.mix)
        with threads_for(len(ids), each=8):
            threads = get_num_threads()
            if self.graph.shape[0] <= min(_TABLE, _NODES_PER_FIND * ids.size // threads):
                gather_through_table(*arrays, threads, found)
            else:
                gather(*arrays, found)
        return found


def per_label(p: F32, labels: I32) -> F32:
    """The scores p (B, m) of clusters for each of their labels (B, m * size), which stand cluster after cluster."""
    return np.repeat(p, labels.shape[1] // max(p.shape[1], 1), axis=1)


def rank_labels(labels: I32, scores: F32, top: TopK) -> None:
    """The best of each document's labels (B, n), those that are no padding, into `top`, which is padding on entry."""
    from longtail.search.kernels.shortlist import best_listed

    with threads_for(len(labels)):
        best_listed(labels, scores, top.ids, top.scores)


# ---- votes, and two lists as one ----


def voted(nearest: TopK, labels: Pieces, k: int, *, voters: int, exclude: I64 | None = None) -> TopK:
    """The best `k` labels by votes: each of the first `voters` items found gives its cosine, if above 0, to each of
    its labels; the largest sum of a query counts 1. Paper: Astec Sec. 4, Module II (ANNS^x).

    nearest: (B, m) items.  labels: those of every item, as the pieces of a CSR array.
    exclude: (B,) an item without a vote, -1 for none.
    """
    from longtail.search.kernels.shortlist import vote

    queries = len(nearest.ids)
    answer = Heaps(queries, k)
    without = np.full(queries, -1, dtype=np.int64) if exclude is None else exclude
    with threads_for(queries):
        vote(nearest.ids, nearest.scores, without, voters, labels.indptr, labels.indices, *answer.arrays)
    return answer.ranked()


def merged(first: TopK, second: TopK, k: int, *, weight: float, reserved: float) -> TopK:
    """The best `k` labels of two lists by (1 - weight) x first + weight x second; one that is in one of them only
    takes 0 from the other. Of the k places the share `reserved` is for labels that only the second has.
    """
    from longtail.search.kernels.shortlist import merge

    answer = Heaps(len(first.ids), k)
    with threads_for(len(first.ids)):
        merge(first.ids, first.scores, second.ids, second.scores, weight, int(reserved * k), *answer.arrays)
    return answer.ranked()


# ---- labels by vectors ----


class Labels(Protocol):
    """What every shortlister here offers (a `longtail.types.Shortlister` that can leave a training document out)."""

    def query(self, vectors: F32, k: int, exclude: I64 | None = None) -> TopK: ...

    def packed(self, packer: Packer, width: int) -> Labels: ...


@dataclass(frozen=True)
class LabelIndex(DataPart, Shortlister):
    """Labels by the cosine of their centroid, or of the nearest of several. Paper: Astec Sec. 4, Module II and App.
    A.4 (ANNS^mu).

    owners: (rows of the index,) int32, ascending: the label of each centroid. Labels without documents are never found.
    """

    KIND = "label-index"

    index: Annotated[Index, Sized(len="centroids")]
    owners: Annotated[I32, Shaped("centroids", numbers_of="_")]

    def __post_init__(self) -> None:
        if len(self.index) != len(self.owners):
            raise ValueError(f"{len(self.index)} centroids for {len(self.owners)} owners")
        freeze(self, "owners")

    @cached_property
    def n_labels(self) -> int:
        """One more than the largest number of a label that it may find."""
        return int(self.owners.max(initial=-1)) + 1

    @cached_property
    def _repeats(self) -> int:
        return len(self.owners) - len(np.unique(self.owners))

    @classmethod
    def build(
        cls,
        vectors: F32,
        y: Csr,
        *,
        make_index: IndexBuilder = build_index,
        head_centres: int = 1,
        head_documents: int = 7500,
        rng: np.random.Generator | None = None,
    ) -> LabelIndex:
        """vectors: (N, D) of the training documents; y: (N, L).

        Labels with at least `head_documents` documents get `head_centres` k-means centres (`rng`) beside their mean.
        """
        centroids = label_centroids(vectors, y)
        owners = np.flatnonzero(np.any(centroids != 0, axis=1))
        rows = [centroids[owners]]
        if head_centres > 1:
            if rng is None:
                raise ValueError("k-means needs a generator")
            documents = y.T.tocsr()
            for label in np.flatnonzero(np.diff(documents.indptr) >= max(head_documents, head_centres)):
                own = documents.indices[documents.indptr[label] : documents.indptr[label + 1]]
                rows.append(spherical_kmeans(vectors[np.sort(own)], head_centres, rng))
                owners = np.append(owners, np.full(len(rows[-1]), label))
        # Ascending owners make the index, which breaks ties by row, break them by label.
        order = np.argsort(owners, kind="stable")
        return cls(make_index(np.concatenate(rows)[order]), owners[order].astype(np.int32))

    def query(self, vectors: F32, k: int, exclude: I64 | None = None) -> TopK:
        """`exclude` changes nothing: a centroid stands for all documents of its label."""
        if not self._repeats:
            rows = self.index.query(vectors, k)
            # One more owner at the end, for padding: -1 means the last.
            return TopK(np.append(self.owners, np.int32(TopK.PAD))[rows.ids], rows.scores)
        enough = min(len(self.index), k + self._repeats)
        ask = min(enough, 2 * k)
        answer = self._by_label(vectors, k, ask)
        short = np.flatnonzero(np.any(answer.ids == TopK.PAD, axis=1))
        while len(short) and ask < enough:
            ask = min(enough, 2 * ask)
            more = self._by_label(vectors[short], k, ask)
            answer.ids[short], answer.scores[short] = more.ids, more.scores
            short = short[np.any(more.ids == TopK.PAD, axis=1)]
        return answer

    def _by_label(self, vectors: F32, k: int, ask: int) -> TopK:
        from longtail.search.kernels.shortlist import best_row_per_label

        rows, answer = self.index.query(vectors, ask), Heaps(len(vectors), k)
        with threads_for(len(vectors)):
            best_row_per_label(rows.ids, rows.scores, self.owners, *answer.arrays)
        return answer.ranked()

    def packed(self, packer: Packer, width: int) -> LabelIndex:
        return LabelIndex(self.index.packed(packer), self.owners)

    def with_added(self, vectors: F32, first: int) -> LabelIndex:
        """More labels, numbered from `first` on, with a vector each; one that is zero is never found."""
        there = np.flatnonzero(np.any(vectors != 0, axis=1)).astype(np.int32)
        return LabelIndex(JoinedIndex.of(self.index, vectors[there]), np.append(self.owners, there + np.int32(first)))


# ---- labels by their clusters ----

# Exact: all clusters are scored, in blocks. A GPU index comes in here too.
HeadIndex: TypeAlias = ExactIndex | PackedIndex
dot_index: Callable[[F32], HeadIndex] = partial(ExactIndex.build, similarity="dot")


@dataclass(frozen=True)
class ClusterBeam(DataPart, Shortlister):
    """The best clusters of a document, by sigmoid(h . x), after GAME if there is a graph. A shortlister and a part.
    Paper: ECLARE Sec. 3.4 (meta-labels and the shortlister).

    index: over the heads h (K, D), or (K, D + 1) with a bias as the last number, by their dot product.
    clusters: (L,) int32, the cluster of each label, -1 for a label that is never found.
    graph: (K, K) CSR of `cluster_graph`, or None for no GAME. beam: clusters per document, before and after GAME.
    """

    KIND = "cluster-beam"

    index: Annotated[HeadIndex, Sized(len="heads")]
    clusters: Annotated[I32, Shaped("labels", numbers_of="heads", least=-1)]
    graph: Annotated[Csr, Shaped("heads", "heads")] | None = None
    beam: Annotated[int, Between(1)] = field(kw_only=True)
    game_mix: float = field(default=1.0, kw_only=True)
    game_transpose: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        n_clusters = len(self.index)
        if self.beam < 1:
            raise ConfigError(f"a beam of {self.beam} clusters asked for", "use at least 1")
        if self.clusters.max(initial=-1) >= n_clusters or self.clusters.min(initial=0) < -1:
            raise ValueError(f"clusters {self.clusters.min()}..{self.clusters.max()} of {n_clusters}")
        if self.graph is not None and self.graph.shape != (n_clusters, n_clusters):
            raise ValueError(f"a graph of shape {self.graph.shape} over {n_clusters} clusters")
        freeze(self, "clusters")

    @classmethod
    def of(
        cls,
        heads: F32,
        clusters: I32,
        graph: Csr | None = None,
        *,
        beam: int,
        game_mix: float = 1.0,
        game_transpose: bool = False,
        make_index: Callable[[F32], HeadIndex] = dot_index,
    ) -> ClusterBeam:
        """heads: (K, D) or (K, D + 1) float32. make_index: what searches them, by their dot product."""
        return cls(make_index(heads), clusters, graph, beam=beam, game_mix=game_mix, game_transpose=game_transpose)

    def packed(self, packer: Packer, width: int) -> ClusterBeam:
        """The same clusters with their heads in fewer bytes.  width: D; a bias, where there is one, is kept whole."""
        return replace(self, index=packer.index(self.index, last_whole=self.index.width > width))

    @property
    def heads(self) -> F32:
        """(K, D) or (K, D + 1) float32."""
        return self.index.read()

    @cached_property
    def _game(self) -> Game | None:
        return None if self.graph is None else Game(self.graph, self.game_mix, self.game_transpose)

    @cached_property
    def _members(self) -> I32:
        """(K + 1, largest) int32: the labels of each cluster, ascending, -1 where it has no more; the last row is all
        -1.
        """
        sizes = np.bincount(self.clusters[self.clusters >= 0], minlength=self.n_clusters)
        members = np.full((self.n_clusters + 1, int(sizes.max(initial=0))), TopK.PAD, dtype=np.int32)
        order = np.argsort(self.clusters, kind="stable")[np.count_nonzero(self.clusters < 0) :]
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        members[self.clusters[order], place] = order
        return members

    def with_added(self, clusters: I32) -> ClusterBeam:
        """More labels, in these clusters."""
        return replace(self, clusters=np.concatenate([self.clusters, clusters]))

    @property
    def n_labels(self) -> int:
        return len(self.clusters)

    @property
    def n_clusters(self) -> int:
        return len(self.index)

    @property
    def largest_cluster(self) -> int:
        """Labels of the cluster that has most."""
        return int(self._members.shape[1])

    def select(self, x_BD: F32) -> tuple[I32, F32]:
        """The best clusters (B, beam), best first, -1 where there are fewer, and their scores p (B, beam), 0 there."""
        from scipy.special import expit

        beam = min(self.beam, self.n_clusters)
        if self.index.width > x_BD.shape[1]:
            x_BD = np.concatenate([x_BD, np.ones((len(x_BD), 1), np.float32)], axis=1)
        # Chosen by the raw score: clusters whose sigmoid rounds to 1 keep their order.
        found = self.index.query(x_BD, beam)
        p = expit(found.scores)
        if self._game is None:
            return found.ids, p
        spread = self._game.spread(found.ids, p, beam)
        return spread.ids, np.where(spread.ids >= 0, spread.scores, np.float32(0))

    def labels_of(self, cluster_ids: I32) -> I32:
        """(B, m * largest_cluster): the labels of given clusters (B, m), -1 where a cluster is short or missing.

        Those of a document's cluster number i start at i * largest_cluster.
        """
        # One more row at the end, for padding: -1 means the last.
        return self._members[cluster_ids].reshape(len(cluster_ids), cluster_ids.shape[1] * self.largest_cluster)

    def query(self, vectors: F32, k: int, exclude: I64 | None = None) -> TopK:
        """The labels of the best clusters, by the score of their cluster; fewer than `k` where these hold fewer.

        `exclude` changes nothing: a cluster stands for all documents of its labels.
        """
        clusters, p = self.select(vectors)
        labels, top = self.labels_of(clusters), TopK.padding(len(vectors), k)
        rank_labels(labels, per_label(p, labels), top)
        return top
