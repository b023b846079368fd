"""GAME: scores of clusters or labels spread along the label graph, so that what occurs with a find is found too.

Paper: ECLARE Sec. 3.4 and 3.5 (graph assisted multi-label expansion). It knows nothing of how the scores came about,
so it serves any ranker that finds clusters first and scores the labels inside them (`recipes.astec.ranker.SpreadTree`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from longtail.config import setting
from longtail.errors import ConfigError
from longtail.graph.ops import scale_both_sides
from longtail.kernels.arrays import Pieces, csr, frozen, pieces
from longtail.kernels.threads import threads_for
from longtail.search.index import Heaps
from longtail.types import F32, I32, Csr, TopK

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

        from longtail.search.kernels.game import spread

        answer = Heaps(len(ids), keep)
        with threads_for(len(ids)):
            spread(
                frozen(ids),
                frozen(scores),
                *self._gives,
                np.float32(self.mix),
                get_num_threads(),
                answer.ids,
                answer.scores,
                answer.sizes,
            )
        return answer.ranked()

    def within(self, ids: I32, scores: F32) -> F32:
        """(B, m): scores after spreading among the listed nodes alone; nothing reaches others. 0 at padding. ids of a
        row differ.
        """
        from numba import get_num_threads

        from longtail.search.kernels.game import gather, gather_through_table

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
