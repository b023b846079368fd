"""Labels by their clusters: one linear classifier per cluster, the best clusters' labels are the shortlist.

Paper: ECLARE Sec. 3.4 (meta-labels and the shortlister).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from longtail.errors import ConfigError
from longtail.kernels.arrays import freeze
from longtail.persistence import DataPart
from longtail.search.game import Game, per_label, rank_labels
from longtail.search.index import ExactIndex
from longtail.search.packed import PackedIndex, Packer
from longtail.types import F32, I32, I64, Csr, Shortlister, TopK

# Exact: all clusters are scored, in blocks. A GPU index comes in here too.
HeadIndex: TypeAlias = ExactIndex | PackedIndex
dot_index: Callable[[F32], HeadIndex] = partial(ExactIndex.build, similarity="dot")


# About so many labels a beam shall hold, and so many clusters at least.
BEAM_LABELS, LEAST_BEAM = 480, 10


def default_beam(n_clusters: int, n_labels: int) -> int:
    """Clusters to look into. Paper: ECLARE Sec. 4 has 120 for 131K labels, 498 for 1.3M."""
    return max(LEAST_BEAM, math.ceil(BEAM_LABELS * n_clusters / max(n_labels, 1)))


@dataclass(frozen=True)
class ClusterBeam(DataPart, Shortlister):
    """The best clusters of a document, by sigmoid(h . x), after GAME if there is a graph. A shortlister and a part.

    index: over the heads h (K, D), or (K, D + 1) with a bias as the last number, by their dot product.
    clusters: (L,) int32, the cluster of each label, -1 for a label that is never found.
    graph: (K, K) CSR of `cluster_graph`, or None for no GAME. beam: clusters per document, before and after GAME.
    """

    KIND = "cluster-beam"

    index: HeadIndex
    clusters: I32
    graph: Csr | None = None
    beam: int = field(kw_only=True)
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
        if not isinstance(self.index, ExactIndex):
            raise ConfigError("the model is packed already", "pack the run or bundle that it was made from")
        return replace(self, index=packer.index(self.index, last_whole=self.index.width > width))

    @property
    def heads(self) -> F32:
        """(K, D) or (K, D + 1) float32."""
        return self.index.vectors if isinstance(self.index, ExactIndex) else self.index.vectors()

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
