"""Labels by their clusters: one linear classifier per cluster, the best clusters' labels are the shortlist.

Paper: ECLARE Sec. 3.4 (meta-labels and the shortlister).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from longtail.errors import ConfigError
from longtail.kernels.arrays import frozen
from longtail.persistence import State
from longtail.search.game import Game, per_label, rank_labels
from longtail.search.index import ExactIndex, IndexBuilder
from longtail.search.packed import PackedIndex, Packer
from longtail.types import F32, I32, I64, Csr, Shortlister, TopK

# Exact: all clusters are scored, in blocks. A GPU index comes in here too.
dot_index: IndexBuilder = partial(ExactIndex.build, similarity="dot")


def default_beam(n_clusters: int, n_labels: int) -> int:
    """Clusters to look into so that about 480 labels come, and at least 10. Paper: ECLARE Sec. 4 has 120 for 131K
    labels, 498 for 1.3M.
    """
    return max(10, math.ceil(480 * n_clusters / max(n_labels, 1)))


class ClusterBeam(Shortlister):
    """The best clusters of a document, by sigmoid(h . x), after GAME if there is a graph. A shortlister and a part.

    heads: (K, D) float32, or (K, D + 1) with a bias as the last number; or packed, the biases being its offsets.
    clusters: (L,) int32, the cluster of each label, -1 for a label that is never found.
    graph: (K, K) CSR of `cluster_graph`, or None for no GAME. beam: clusters per document, before and after GAME.
    make_index: how plain heads are searched; saved, it is exact search.
    """

    KIND = "cluster-beam"

    def __init__(
        self,
        heads: F32 | PackedIndex,
        clusters: I32,
        graph: Csr | None = None,
        *,
        beam: int,
        game_mix: float = 1.0,
        game_transpose: bool = False,
        make_index: IndexBuilder = dot_index,
    ) -> None:
        if beam < 1:
            raise ConfigError(f"a beam of {beam} clusters asked for", "use at least 1")
        if clusters.max(initial=-1) >= len(heads) or clusters.min(initial=0) < -1:
            raise ValueError(f"clusters {clusters.min()}..{clusters.max()} of {len(heads)}")
        if graph is not None and graph.shape != (len(heads), len(heads)):
            raise ValueError(f"a graph of shape {graph.shape} over {len(heads)} clusters")
        self.heads, self.clusters, self.graph, self.beam = heads, frozen(clusters), graph, beam
        self.game_mix, self.game_transpose = game_mix, game_transpose
        self.index = heads if isinstance(heads, PackedIndex) else make_index(heads)
        self._game = None if graph is None else Game(graph, game_mix, game_transpose)
        self._members = _members(clusters, len(heads))

    def packed(self, packer: Packer, width: int) -> ClusterBeam:
        """The same clusters with their heads in fewer bytes.  width: D; a bias, where there is one, is kept whole."""
        if isinstance(self.heads, PackedIndex):
            raise ConfigError("the model is packed already", "pack the run or bundle that it was made from")
        heads = packer.index(ExactIndex.build(self.heads, "dot"), last_whole=self.heads.shape[1] > width)
        return ClusterBeam(
            heads, self.clusters, self.graph, beam=self.beam, game_mix=self.game_mix, game_transpose=self.game_transpose
        )

    @property
    def _width(self) -> int:
        """Numbers of a head, its bias included."""
        if isinstance(self.heads, PackedIndex):
            return self.heads.rows.shape[1] + (self.heads.offsets is not None)
        return self.heads.shape[1]

    @property
    def n_clusters(self) -> int:
        return len(self.heads)

    @property
    def largest_cluster(self) -> int:
        """Labels of the cluster that has most."""
        return int(self._members.shape[1])

    def select(self, x_BD: F32) -> tuple[I32, F32]:
        """The best clusters (B, beam), best first, -1 where there are fewer, and their scores p (B, beam), 0 there."""
        from scipy.special import expit

        beam = min(self.beam, self.n_clusters)
        if self._width > x_BD.shape[1]:
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

    def state(self) -> State:
        values = {"beam": self.beam, "game_mix": self.game_mix, "game_transpose": self.game_transpose}
        arrays: dict[str, Any] = (
            {"clusters": self.clusters} if self.graph is None else {"clusters": self.clusters, "graph": self.graph}
        )
        if isinstance(self.heads, PackedIndex):
            return State(values, arrays, {"heads": self.heads})
        return State(values, {"heads": self.heads, **arrays})

    @classmethod
    def from_state(cls, state: State) -> ClusterBeam:
        arrays, packed = state.arrays, state.parts.get("heads")
        if packed is not None and not isinstance(packed, PackedIndex):
            raise ValueError("the heads of clusters are no packed index")
        return cls(
            arrays["heads"] if packed is None else packed,
            arrays["clusters"],
            arrays.get("graph"),
            **state.values,
            make_index=lambda heads: ExactIndex(heads, "dot"),
        )


def _members(clusters: I32, n_clusters: int) -> I32:
    """(K + 1, largest) int32: the labels of each cluster, ascending, -1 where it has no more; the last row is all
    -1.
    """
    sizes = np.bincount(clusters[clusters >= 0], minlength=n_clusters)
    members = np.full((n_clusters + 1, int(sizes.max(initial=0))), TopK.PAD, dtype=np.int32)
    order = np.argsort(clusters, kind="stable")[np.count_nonzero(clusters < 0) :]
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members[clusters[order], place] = order
    return members
