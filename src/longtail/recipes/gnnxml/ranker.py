"""GNN-XML at work: keyword graph -> best clusters -> their labels by gate x ranker. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from longtail.models.shortlisted import Classifier, best, sigmoid
from longtail.persistence import State
from longtail.recipes.gnnxml.encoder import FrozenGin, joined, ranker_vectors
from longtail.recipes.gnnxml.rankers import ClusterRankers, RankerInput
from longtail.search.index import ExactIndex
from longtail.types import F32, I32, Batch, Ranker, TopK

# Documents ranked at once.
_BLOCK = 1024

RankerReads: TypeAlias = Literal["both", "tfidf", "graph"]


@dataclass(frozen=True)
class KeygraphModel(Ranker):
    """score_l = g_c(l) x sigmoid(theta_l . phi(x)) for labels of the `beam` best clusters; other labels are never
    predicted.

    g = sigmoid(heads . h_G): gates of the clusters, not a distribution over them. Paper: GNN-XML Sec. 3, Eq. 2 and 3.
    Differs: Eq. 2 is a mixture, but its gates are independent sigmoids; dividing them by their sum could change no
        list.
    heads: an index over (K, branches x D + 1) rows, one per cluster. reads: what rankers read; graph_weight: length
        of h_G in it.
    """

    KIND = "keygraph-model"

    encoder: FrozenGin
    heads: ExactIndex
    rankers: ClusterRankers
    beam: int
    reads: RankerReads = "both"
    graph_weight: float = 1.0

    @property
    def n_labels(self) -> int:
        return self.rankers.n_labels

    @property
    def n_leaves(self) -> int:
        """Clusters, as GAME calls them."""
        return self.rankers.n_clusters

    @property
    def clusters(self) -> I32:
        """(L,) the cluster of every label, -1 for none."""
        return self.rankers.clusters

    def rank(self, batch: Batch, k: int) -> TopK:
        top = TopK.padding(len(batch), min(k, self.n_labels))
        for start in range(0, len(batch), _BLOCK):
            part = slice(start, start + _BLOCK)
            rows = batch.rows(part)
            vectors = self.encoder.represent(rows)
            found = self._best_clusters(rows, vectors)
            gates = np.where(found.ids >= 0, found.scores, np.float32(0))
            self.rankers.rank(
                self._ranker_input(rows, vectors), found.ids, gates, TopK(top.ids[part], top.scores[part])
            )
        return top

    def match(self, batch: Batch) -> F32:
        """(B, K): the gate of every cluster."""
        gates: F32 = sigmoid(self.encoder.encode(batch) @ np.asarray(self.heads.vectors).T).astype(np.float32)
        return gates

    def leaf_scores(self, batch: Batch) -> TopK:
        """The best clusters and their gates: (B, beam). With `label_scores` this is what GAME needs of a ranker."""
        return self._best_clusters(batch, self.encoder.represent(batch))

    def label_scores(self, batch: Batch, leaves: I32) -> tuple[I32, F32]:
        """All labels of given clusters (B, m) and their rankers' probabilities; see `ClusterRankers.label_scores`."""
        return self.rankers.label_scores(self._ranker_input(batch, self.encoder.represent(batch)), leaves)

    def _ranker_input(self, batch: Batch, vectors: dict[str, F32]) -> RankerInput:
        scaled = None if self.reads == "tfidf" else np.float32(self.graph_weight) * ranker_vectors(vectors)
        return RankerInput(None if self.reads == "graph" else batch.sparse, scaled)

    def _best_clusters(self, batch: Batch, vectors: dict[str, F32]) -> TopK:
        read = joined(vectors)
        ids = self.heads.query(read, min(self.beam, self.n_leaves)).ids
        # Of a document without a known word nothing can be said; any order would be made up.
        ids = np.where(batch.is_empty()[:, None], np.int32(TopK.PAD), ids)
        # Scored again one by one, as products over a batch round differently from batch to batch; and put in order by
        # the raw score: clusters whose gate rounds to 1 keep theirs.
        found = best(ids, Classifier(np.asarray(self.heads.vectors)).scores(read, ids), ids.shape[1])
        return TopK(found.ids, np.where(found.ids >= 0, sigmoid(found.scores), -np.inf).astype(np.float32))

    def state(self) -> State:
        parts: dict[str, Any] = {"encoder": self.encoder, "heads": self.heads, "rankers": self.rankers}
        return State({"beam": self.beam, "reads": self.reads, "graph_weight": self.graph_weight}, parts=parts)

    @classmethod
    def from_state(cls, state: State) -> KeygraphModel:
        parts: Any = state.parts
        return cls(parts["encoder"], parts["heads"], parts["rankers"], **state.values)
