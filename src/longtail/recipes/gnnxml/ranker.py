"""GNN-XML at work, without torch: keyword graph -> vectors -> best clusters -> their labels by gate x ranker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.models.encoders import FrozenGinLayer
from longtail.models.rankers import Classifier, best, sigmoid
from longtail.persistence import DataPart
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.label_classifiers import ClusterRankers, RankerInput
from longtail.search.index import ExactIndex
from longtail.types import F32, I32, Batch, Csr, Ranker, TopK

# Documents ranked at once, and documents whose vertices are held at once.
_BLOCK, _GRAPHS = 1024, 512

RankerReads: TypeAlias = Literal["both", "tfidf", "graph"]


@dataclass(frozen=True)
class FrozenBranch:
    """A branch's own layers, and the scale and shift that normalise its h_G."""

    layers: tuple[FrozenGinLayer, ...]
    scale: F32
    shift: F32


@dataclass(frozen=True)
class FrozenGin(DataPart):
    """Keyword graphs in, h_G of every branch out: the twin of `BilateralGin` without torch.

    common: layers that branches share.  concat: h_G joins all layers, else it is the last one alone.
    mean: h_G is a mean over vertices, else a sum.  weighted: neighbours count by the number of shared sentences.
    """

    KIND = "frozen-gin"

    common: tuple[FrozenGinLayer, ...]
    branches: Mapping[str, FrozenBranch]
    concat: bool = True
    mean: bool = False
    weighted: bool = False

    def represent(self, batch: Batch) -> dict[str, F32]:
        """h_G by branch: (B, D)."""
        graphs = batch.graphs
        if not isinstance(graphs, KeyGraphs):
            raise ConfigError("this model reads keyword graphs", "let the bundle's featurizer make the batch")
        blocks = [
            self._block(graphs.rows(slice(start, start + _GRAPHS))) for start in range(0, max(len(graphs), 1), _GRAPHS)
        ]
        return {name: np.concatenate([block[name] for block in blocks]) for name in self.branches}

    def encode(self, batch: Batch) -> F32:
        """(B, branches x D + 1): h_G of all branches side by side and a constant 1, what the clusters' classifiers
        read.
        """
        return joined(self.represent(batch))

    def _block(self, graphs: KeyGraphs) -> dict[str, F32]:
        adjacency, h = graphs.adjacency(self.weighted), graphs.vertices()
        members = self._members(graphs)
        read = [members @ h]
        for layer in self.common:
            h = layer.apply(h, adjacency @ h)
            read.append(members @ h)
        return {name: self._own(h, read, adjacency, members, branch) for name, branch in self.branches.items()}

    def _own(self, h: F32, read: list[F32], adjacency: Csr, members: Csr, branch: FrozenBranch) -> F32:
        parts = list(read)
        for layer in branch.layers:
            h = layer.apply(h, adjacency @ h)
            parts.append(members @ h)
        joined_parts: F32 = np.concatenate(parts, axis=1) if self.concat else parts[-1]
        return joined_parts * branch.scale + branch.shift

    def _members(self, graphs: KeyGraphs) -> Csr:
        """(B, V): which vertices a document has, summed or averaged."""
        from scipy.sparse import csr_array

        sizes = np.diff(graphs.vertex_starts)
        values = np.repeat(1 / np.maximum(sizes, 1) if self.mean else np.ones(len(sizes)), sizes).astype(np.float32)
        return csr_array(
            (values, np.arange(graphs.n_vertices), graphs.vertex_starts), shape=(len(graphs), graphs.n_vertices)
        )


def joined(vectors: Mapping[str, F32]) -> F32:
    """Vectors of all branches side by side, in the order of their names, and a constant 1."""
    parts = [vectors[name] for name in sorted(vectors)]
    ones = np.ones((len(parts[0]), 1), dtype=np.float32)
    return np.ascontiguousarray(np.concatenate([*parts, ones], axis=1))


def ranker_vectors(vectors: Mapping[str, F32]) -> F32:
    """(B, D): the mean of the branches' h_G, of unit length: what rankers read of the graph."""
    return unit_rows(np.mean([vectors[name] for name in sorted(vectors)], axis=0, dtype=np.float32))


@dataclass(frozen=True)
class KeygraphModel(DataPart, Ranker):
    """score_l = g_c(l) x sigmoid(theta_l . phi(x)) for labels of the `beam` best clusters; other labels are never
    predicted.

    g = sigmoid(heads . h_G): gates of the clusters, not a distribution over them. Paper: GNN-XML Sec. 3, Eq. 2 and 3.
    Differs: Eq. 2 is a mixture, but its gates are independent sigmoids; dividing them by their sum could change no
    list.

    heads: an index over (K, branches x D + 1) rows, one per cluster.  reads: what rankers read; graph_weight: length
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
