"""GNN-XML at work, without torch: keyword graph -> vectors -> best clusters -> their labels by gate x ranker.

Rankers are linear classifiers, one per label, trained on the documents of its cluster. A label's negatives are the
documents with another label of its cluster (teacher forcing) and those for which the matcher finds the cluster wrongly.
Documents come as words (CSR), as dense vectors, or as both side by side; weights of words are kept by cluster and word,
so that a document reads only what its own words weigh. Paper: GNN-XML Sec. 3.1 (end) and Eq. 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from longtail.declared import Between, Shaped, Sized
from longtail.errors import ConfigError
from longtail.explanation import Cause, Reasons
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import csr, freeze, frozen, pieces, taken_runs
from longtail.kernels.threads import threads_for
from longtail.models.analysis import Look, cluster_pictures
from longtail.models.encoders import FrozenGinLayer
from longtail.models.rankers import Classifier, best, sigmoid
from longtail.persistence import DataPart
from longtail.picture import Picture
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.search.cluster import meta_labels
from longtail.search.index import ExactIndex, check_width
from longtail.search.linear import LinearConfig, LinearRows, SparseWeights, fit_linear, read_only
from longtail.types import F32, I32, I64, Batch, Context, Csr, Ranker, TopK

# Documents ranked at once, and documents whose vertices are held at once.
_BLOCK, _GRAPHS = 1024, 512

RankerReads: TypeAlias = Literal["both", "tfidf", "graph"]

# ---- labels of a cluster ----


@dataclass(frozen=True)
class Clusters(DataPart):
    """What stage I leaves behind. clusters: (L,), -1 for labels without documents."""

    KIND = "gnnxml-clusters"

    clusters: Annotated[I32, Shaped("labels", plain=True)]

    @property
    def count(self) -> int:
        return int(self.clusters.max(initial=-1)) + 1

    def targets(self, labels: Csr) -> Csr:
        """(N, K) CSR: the clusters of each document."""
        present = self.clusters >= 0
        return meta_labels(labels.tocsc()[:, present].tocsr(), self.clusters[present], self.count)

    def sums(self, of_labels: Csr) -> Csr:
        """(N, K) CSR: sums of what labels have (N, L), by cluster."""
        from scipy.sparse import coo_array

        present = np.flatnonzero(self.clusters >= 0)
        ones = np.ones(len(present), np.float32)
        shape = (len(self.clusters), self.count)
        return (of_labels @ coo_array((ones, (present, self.clusters[present])), shape=shape).tocsr()).tocsr()


@dataclass(frozen=True)
class RankerInput:
    """Documents as rankers read them: (N, V) CSR float32, (N, D) float32, or both."""

    words: Csr | None = None
    vectors: F32 | None = None


@dataclass(frozen=True)
class ClusterRankers(DataPart):
    """The classifiers of P labels in K clusters, logistic.

    labels: (P,) int32, cluster after cluster; starts: (K + 1,) int64, where each cluster's begin. bias: (P,).
    words: weights of words by cluster, or None; rows: (P, D) weights of dense vectors, or None.
    """

    KIND = "cluster-rankers"

    n_labels: Annotated[int, Between(0)]
    labels: Annotated[I32, Shaped("classifiers", numbers_of="n_labels")]
    starts: Annotated[I64, Shaped("clusters", points_into="classifiers")]
    bias: Annotated[F32, Shaped("classifiers")]
    words: SparseWeights | None
    rows: Annotated[F32, Shaped("classifiers", "_")] | None

    def __post_init__(self) -> None:
        """Kernels trust these numbers."""
        starts = self.starts
        if starts[0] != 0 or starts[-1] != len(self.labels) or np.any(np.diff(starts) < 0):
            raise ValueError("clusters do not fit their labels")
        if len(self.bias) != len(self.labels):
            raise ValueError(f"{len(self.bias)} biases for {len(self.labels)} labels")
        if np.any(self.labels < 0) or np.any(self.labels >= self.n_labels):
            raise ValueError(f"label numbers outside 0..{self.n_labels - 1}")
        if self.words is None and self.rows is None:
            raise ValueError("rankers that weigh neither words nor vectors")
        if self.rows is not None and len(self.rows) != len(self.labels):
            raise ValueError(f"{len(self.rows)} rows of weights for {len(self.labels)} labels")
        if self.words is not None:
            if not np.array_equal(self.words.starts, starts) or len(self.words.bias) != len(self.labels):
                raise ValueError("weights of words do not fit the clusters")
            self.words.check()
            object.__setattr__(self, "words", read_only(self.words))
        freeze(self, "labels", "starts", "bias", "rows")

    @classmethod
    def fit(
        cls,
        x: RankerInput,
        targets: Csr,
        clusters: I32,
        found: Csr,
        masked: I64,
        config: LinearConfig,
        rng: np.random.Generator,
        *,
        rarity: float = 0.0,
    ) -> ClusterRankers:
        """Train all classifiers.

        targets: (N, L) CSR.  clusters: (L,), -1 for labels without documents.
        found: (N, K) CSR, the clusters that the matcher finds.
        masked: (P, 2) (document, label) pairs that are neither positives nor negatives.
        rarity: the log-odds of a label rise by this x ln(n_max / n) afterwards.
        """
        if config.loss != "logistic":
            raise ConfigError(
                f"rankers are logistic, but their loss is '{config.loss}'",
                "use loss=logistic: scores of clusters and labels are multiplied",
            )
        n_labels, n_clusters = int(targets.shape[1]), int(clusters.max(initial=-1)) + 1
        labels: I32 = np.argsort(clusters, kind="stable")[np.count_nonzero(clusters < 0) :].astype(np.int32)
        documents, tail = (x.vectors, None) if x.words is None else (x.words, x.vectors)
        solved = fit_linear(
            documents,
            targets.T.tocsr()[labels],
            cluster_documents(targets, clusters, found),
            clusters[labels],
            config,
            rng,
            tail=tail,
            left_out=pairs_by_label(masked, targets)[labels],
        )
        if rarity:
            counts = np.maximum(np.bincount(targets.indices, minlength=n_labels)[labels], 1)
            rise = rarity * np.log(counts.max(initial=1) / counts)
            solved = replace(solved, bias=(solved.bias + rise).astype(np.float32))
        starts = np.append(0, np.cumsum(np.bincount(clusters[labels], minlength=n_clusters))).astype(np.int64)
        return cls.of(solved, n_labels, labels, starts)

    @classmethod
    def of(cls, solved: LinearRows, n_labels: int, labels: I32, starts: I64) -> ClusterRankers:
        """Trained classifiers as they are kept. Those of `labels`, in that order."""
        if isinstance(solved.weights, np.ndarray):
            return cls(n_labels, labels, starts, solved.bias, None, solved.weights)
        return cls(n_labels, labels, starts, solved.bias, SparseWeights.of(solved, starts), solved.tail)

    @property
    def n_clusters(self) -> int:
        return len(self.starts) - 1

    @property
    def clusters(self) -> I32:
        """(L,) int32: the cluster of every label, -1 for none."""
        owner = np.full(self.n_labels, -1, dtype=np.int32)
        owner[self.labels] = np.repeat(np.arange(self.n_clusters, dtype=np.int32), np.diff(self.starts))
        return owner

    @cached_property
    def _place(self) -> I64:
        """(L,): where the classifier of every label stands; -1 for none."""
        place = np.full(self.n_labels, -1, dtype=np.int64)
        place[self.labels] = np.arange(len(self.labels))
        return place

    def shares(self, x: RankerInput, ids: I32) -> tuple[F32, F32, F32]:
        """What each entry of the documents' words (E, C), their vectors and the bias (B, C) add to the log-odds of
        labels (B, C); 0 at padding.
        """
        starts, columns, values = pieces(x.words)
        shares = np.zeros((len(columns), ids.shape[1]), dtype=np.float32)
        vectors, bias = np.zeros(ids.shape, dtype=np.float32), np.zeros(ids.shape, dtype=np.float32)
        for document, place in np.argwhere(ids >= 0).tolist():
            at = int(self._place[ids[document, place]])
            entries = slice(int(starts[document]), int(starts[document + 1]))
            if self.words is not None:
                shares[entries, place] = values[entries] * self._word_weights(at, columns[entries])
            if self.rows is not None and x.vectors is not None:
                vectors[document, place] = self.rows[at] @ x.vectors[document]
            bias[document, place] = self.bias[at]
        return shares, vectors, bias

    def _word_weights(self, at: int, columns: I32) -> F32:
        """The weights of words in classifier number `at`."""
        weights = self.words
        assert weights is not None, "asked only where words are weighed"
        cluster = int(np.searchsorted(self.starts, at, side="right")) - 1
        low, high = int(weights.word_starts[cluster]), int(weights.word_starts[cluster + 1])
        own, found = np.int32(at - self.starts[cluster]), np.zeros(len(columns), dtype=np.float32)
        _, here, there = np.intersect1d(columns, weights.words[low:high], assume_unique=True, return_indices=True)
        pointers, entries = taken_runs(weights.entry_starts, low + there)
        mine = weights.children[entries] == own
        np.add.at(found, np.repeat(here, np.diff(pointers))[mine], weights.values[entries][mine])
        return found

    def rank(self, x: RankerInput, clusters: I32, gates: F32, top: TopK) -> None:
        """The best labels of each document's clusters (B, m) by gate x probability, into `top`, which is padding on
        entry.
        """
        from longtail.recipes.gnnxml.kernels import rank_members

        if (self.words is None) != (x.words is None) or (self.rows is None) != (x.vectors is None):
            raise ValueError("documents do not come as those of training did")
        if x.words is not None and self.words is not None and x.words.shape[1] != self.words.width:
            raise ConfigError(
                f"this model reads sparse features of its own vocabulary of {self.words.width}",
                "let the bundle's featurizer make the batch",
            )
        if x.vectors is not None and self.rows is not None:
            check_width(x.vectors, self.rows.shape[1])
        words: tuple[Any, Any, Any] = (
            (None, None, None) if x.words is None else pieces(x.words.astype(np.float32, copy=False))
        )
        vectors = None if x.vectors is None else frozen(x.vectors.astype(np.float32, copy=False))
        against = (*words, self.words, vectors, self.rows, self.starts, self.bias, self.labels)
        with threads_for(len(clusters), each=4):
            rank_members(*against, frozen(clusters), frozen(gates), top.ids, top.scores)


def cluster_documents(targets: Csr, clusters: I32, found: Csr) -> Csr:
    """(K, N) CSR: the documents that the rankers of each cluster are trained on, those with a label of it and those
    where it is found.
    """
    return (Clusters(clusters).targets(targets) + found.astype(np.float32)).T.tocsr()


def pairs_by_label(pairs: I64, targets: Csr) -> Csr:
    """(L, N) CSR of (document, label) pairs; repeated ones count once."""
    from scipy.sparse import coo_array

    n_documents, n_labels = (int(n) for n in targets.shape)
    return coo_array(
        (np.ones(len(pairs), np.float32), (pairs[:, 1], pairs[:, 0])), shape=(n_labels, n_documents)
    ).tocsr()


# ---- documents as vectors ----


@dataclass(frozen=True)
class FrozenBranch:
    """A branch's own layers, and the scale and shift that normalise its h_G."""

    layers: tuple[FrozenGinLayer, ...]
    scale: Annotated[F32, Shaped("width")]
    shift: Annotated[F32, Shaped("width")]


@dataclass(frozen=True)
class FrozenGin(DataPart):
    """Keyword graphs in, h_G of every branch out: the twin of `BilateralGin` without torch.

    common: layers that branches share.  concat: h_G joins all layers, else it is the last one alone.
    mean: h_G is a mean over vertices, else a sum.  weighted: neighbours count by the number of shared sentences.
    unit: the sum of each layer is brought to unit length.
    """

    KIND = "frozen-gin"

    common: tuple[FrozenGinLayer, ...]
    branches: Mapping[str, FrozenBranch]
    concat: bool = True
    mean: bool = False
    weighted: bool = False
    unit: bool | None = None

    def __post_init__(self) -> None:
        """Layers take what those before them give, and branches scale as many numbers as are read."""
        for name, branch in self.branches.items():
            layers = [*self.common, *branch.layers]
            widths = [layer.first.shape[1] for layer in layers[:1]] + [layer.width for layer in layers]
            if [layer.first.shape[1] for layer in layers] != widths[:-1]:
                raise ValueError(f"layers of the branch '{name}' have the widths {widths}")
            if layers and len(branch.scale) != (sum(widths) if self.concat else widths[-1]):
                raise ValueError(f"the branch '{name}' scales {len(branch.scale)} numbers of {widths}")

    def represent(self, batch: Batch) -> dict[str, F32]:
        """h_G by branch: (B, D)."""
        graphs = batch.graphs
        if not isinstance(graphs, KeyGraphs):
            raise ConfigError("this model reads keyword graphs", "let the bundle's featurizer make the batch")
        blocks = [
            self._block(graphs.rows(slice(start, start + _GRAPHS))) for start in range(0, max(len(graphs), 1), _GRAPHS)
        ]
        return {name: np.concatenate([block[name] for block in blocks]) for name in self.branches}

    def _block(self, graphs: KeyGraphs) -> dict[str, F32]:
        adjacency, h = graphs.adjacency(self.weighted), graphs.vertices()
        branch = next(iter(self.branches.values()))
        layers = (*self.common, *branch.layers)
        check_width(h, layers[0].first.shape[1] if layers else len(branch.scale))
        members = self._members(graphs)
        read = [self._read(members, h)]
        for layer in self.common:
            h = layer.apply(h, adjacency @ h)
            read.append(self._read(members, h))
        return {name: self._own(h, read, adjacency, members, branch) for name, branch in self.branches.items()}

    def _own(self, h: F32, read: list[F32], adjacency: Csr, members: Csr, branch: FrozenBranch) -> F32:
        parts = list(read)
        for layer in branch.layers:
            h = layer.apply(h, adjacency @ h)
            parts.append(self._read(members, h))
        joined_parts: F32 = np.concatenate(parts, axis=1) if self.concat else parts[-1]
        return joined_parts * branch.scale + branch.shift

    def _read(self, members: Csr, h: F32) -> F32:
        """(B, D): what is read of the vertices of each document."""
        found: F32 = members @ h
        return unit_rows(found) if self.unit else found

    def _members(self, graphs: KeyGraphs) -> Csr:
        """(B, V): which vertices a document has, summed or averaged."""
        sizes, n = np.diff(graphs.vertex_starts), graphs.n_vertices
        values = np.repeat(1 / np.maximum(sizes, 1) if self.mean else np.ones(len(sizes)), sizes).astype(np.float32)
        return csr(values, np.arange(n), graphs.vertex_starts, (len(graphs), n))


def joined(vectors: Mapping[str, F32]) -> F32:
    """(B, branches x D + 1): vectors of all branches side by side, in the order of their names, and a constant 1: what
    the clusters' classifiers read.
    """
    parts = [vectors[name] for name in sorted(vectors)]
    ones = np.ones((len(parts[0]), 1), dtype=np.float32)
    return np.ascontiguousarray(np.concatenate([*parts, ones], axis=1))


def ranker_vectors(vectors: Mapping[str, F32]) -> F32:
    """(B, D): the mean of the branches' h_G, of unit length: what rankers read of the graph."""
    return unit_rows(np.mean([vectors[name] for name in sorted(vectors)], axis=0, dtype=np.float32))


@dataclass(frozen=True)
class Matcher(DataPart):
    """What stage II leaves behind: the network, its heads, and for every training document its vector and the
    clusters that it finds.

    heads: (K, branches x D + 1).  vectors: (N, D).  found: (N, m), best first.
    """

    KIND = "gnnxml-matcher"

    encoder: FrozenGin
    heads: Annotated[F32, Shaped("clusters", "_")]
    vectors: Annotated[F32, Shaped("documents", "_")]
    found: Annotated[I32, Shaped("documents", "_", numbers_of="clusters", least=-1)]

    def found_clusters(self) -> Csr:
        """(N, K) CSR of ones."""
        (n, each), ids = self.found.shape, np.asarray(self.found).ravel()
        return csr(np.ones(len(ids), np.float32), ids, np.arange(n + 1) * each, (n, len(self.heads)))


# ---- the model ----


@dataclass(frozen=True)
class Gating:
    """What is made of the log-odds of clusters. gate = sigmoid(scale x log-odds)^power.

    reach: labels that the clusters which are looked into hold at least; 0: the number of clusters decides.
    """

    power: float = 1.0
    scale: float = 1.0
    reach: Annotated[int, Between(0)] = 0

    def __post_init__(self) -> None:
        if not (0 <= self.power < np.inf and 0 < self.scale < np.inf and self.reach >= 0):
            raise ValueError(
                f"gates to the power of {self.power}, scaled by {self.scale}, reaching {self.reach} labels"
            )

    def gates(self, log_odds: F32) -> F32:
        found: F32 = sigmoid(np.float32(self.scale) * log_odds) ** np.float32(self.power)
        return found

    def looked_into(self, ids: I32, sizes: I64) -> I32:
        """Clusters (B, m), best first, without those that come after enough labels.  sizes: (K,) labels of each."""
        if not self.reach:
            return ids
        held = np.where(ids >= 0, sizes[np.maximum(ids, 0)], 0)
        before = np.cumsum(held, axis=1) - held
        return np.where(before < self.reach, ids, np.int32(TopK.PAD))


@dataclass(frozen=True)
class KeygraphModel(DataPart, Ranker):
    """score_l = g_c(l) x sigmoid(theta_l . phi(x)) for labels of the `beam` best clusters; other labels are never
    predicted.

    g = sigmoid(heads . h_G): gates of the clusters, not a distribution over them. Paper: GNN-XML Sec. 3, Eq. 2 and 3.
    Differs: Eq. 2 is a mixture, but its gates are independent sigmoids; dividing them by their sum could change no
    list.

    heads: an index over (K, branches x D + 1) rows, one per cluster.  reads: what rankers read; graph_weight: length
    of h_G in it.  gating: where gates are not plain (see `Gating`).
    """

    KIND = "keygraph-model"

    encoder: FrozenGin
    heads: Annotated[ExactIndex, Sized(len="clusters")]
    rankers: Annotated[ClusterRankers, Sized(n_clusters="clusters")]
    beam: Annotated[int, Between(1)]
    reads: RankerReads = "both"
    graph_weight: float = 1.0
    gating: Gating | None = None

    def __post_init__(self) -> None:
        if (self.reads == "graph") != (self.rankers.words is None) or (self.reads == "tfidf") != (
            self.rankers.rows is None
        ):
            raise ValueError(f"rankers are to read '{self.reads}', and weigh something else")

    @property
    def n_labels(self) -> int:
        return self.rankers.n_labels

    def rank(self, batch: Batch, k: int) -> TopK:
        top = TopK.padding(len(batch), min(k, self.n_labels))
        for start in range(0, len(batch), _BLOCK):
            part = slice(start, start + _BLOCK)
            rows = batch.rows(part)
            vectors = self.encoder.represent(rows)
            found = self.best_clusters(rows, vectors)
            gates = np.where(found.ids >= 0, found.scores, np.float32(0))
            self.rankers.rank(
                self._ranker_input(rows, vectors), found.ids, gates, TopK(top.ids[part], top.scores[part])
            )
        return top

    def _ranker_input(self, batch: Batch, vectors: dict[str, F32]) -> RankerInput:
        scaled = None if self.reads == "tfidf" else np.float32(self.graph_weight) * ranker_vectors(vectors)
        return RankerInput(None if self.reads == "graph" else batch.sparse, scaled)

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """The words that the label's ranker weighs, the document's keyword graph as a whole, and the gate."""
        if self.rankers.words is None:
            return None
        vectors = self.encoder.represent(batch)
        found = self.best_clusters(batch, vectors)
        clusters = np.where(ids >= 0, self.rankers.clusters[np.maximum(ids, 0)], np.int32(TopK.PAD))
        gates, inside = found.looked_up(clusters)
        x = self._ranker_input(batch, vectors)
        assert x.words is not None, "rankers that weigh words read them"
        shares, graph, bias = self.rankers.shares(x, np.where(inside, ids, np.int32(TopK.PAD)))
        owners = np.repeat(np.arange(len(batch)), np.diff(x.words.indptr))
        totals = graph + bias
        np.add.at(totals, owners, shares)
        return Reasons(
            scores=np.where(inside, gates * sigmoid(totals), 0).astype(np.float32),
            totals=totals,
            shares=shares,
            bias=bias,
            formula="score = cluster x sigmoid(total)",
            found=inside,
            terms={"cluster": gates},
            others={}
            if x.vectors is None
            else {
                (document, place): [Cause("graph", -1, "keyword graph", float(graph[document, place]))]
                for document, place in np.argwhere(inside).tolist()
            },
            note="" if x.vectors is None else "which keywords made the keyword graph is not kept",
        )

    def pictures(self, look: Look) -> list[Picture]:
        """How good the clusters of labels are."""
        return cluster_pictures(self.rankers.clusters, look)

    def best_clusters(self, batch: Batch, vectors: dict[str, F32] | None = None) -> TopK:
        """The best clusters and their gates: (B, beam). vectors: h_G of the documents, where they are known already."""
        read = joined(self.encoder.represent(batch) if vectors is None else vectors)
        ids = self.heads.query(read, min(self.beam, self.rankers.n_clusters)).ids
        # Of a document without a known word nothing can be said; any order would be made up.
        ids = np.where(batch.is_empty()[:, None], np.int32(TopK.PAD), ids)
        # Scored again one by one, as products over a batch round differently from batch to batch; and put in order by
        # the raw score: clusters whose gate rounds to 1 keep theirs.
        found = best(ids, Classifier(np.asarray(self.heads.vectors)).scores(read, ids), ids.shape[1])
        gating = self.gating or Gating()
        ids = gating.looked_into(found.ids, np.diff(self.rankers.starts))
        return TopK(ids, np.where(ids >= 0, gating.gates(found.scores), -np.inf).astype(np.float32))
