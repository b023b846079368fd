"""One linear classifier per label, trained on the documents of its cluster. Paper: GNN-XML Sec. 3.1 (end) and Eq. 3.

A label's negatives are the documents with another label of its cluster (teacher forcing) and those for which the
matcher finds the cluster wrongly. Documents come as words (CSR), as dense vectors, or as both side by side; weights
of words are kept by cluster and word, so that a document reads only what its own words weigh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from longtail.errors import ConfigError
from longtail.kernels.arrays import freeze, frozen, pieces
from longtail.kernels.threads import threads_for
from longtail.persistence import DataPart
from longtail.search.cluster import meta_labels
from longtail.search.linear import LinearConfig, LinearRows, SparseWeights, fit_linear, read_only
from longtail.types import F32, I32, I64, Csr, TopK


@dataclass(frozen=True)
class RankerInput:
    """Documents as rankers read them: (N, V) CSR float32, (N, D) float32, or both."""

    words: Csr | None = None
    vectors: F32 | None = None

    def __len__(self) -> int:
        rows = self.words if self.words is not None else self.vectors
        assert rows is not None, "rankers read words, vectors or both"
        return int(rows.shape[0])


@dataclass(frozen=True)
class ClusterRankers(DataPart):
    """The classifiers of P labels in K clusters, logistic.

    labels: (P,) int32, cluster after cluster; starts: (K + 1,) int64, where each cluster's begin. bias: (P,).
    words: weights of words by cluster, or None; rows: (P, D) weights of dense vectors, or None.
    """

    KIND = "cluster-rankers"

    n_labels: int
    labels: I32
    starts: I64
    bias: F32
    words: SparseWeights | None
    rows: F32 | None

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
    ) -> ClusterRankers:
        """Train all classifiers.

        targets: (N, L) CSR.  clusters: (L,), -1 for labels without documents.
        found: (N, K) CSR, the clusters that the matcher finds.
        masked: (P, 2) (document, label) pairs that are neither positives nor negatives.
        """
        if config.loss != "logistic":
            raise ConfigError(
                f"rankers are logistic, but their loss is '{config.loss}'",
                "use loss=logistic: scores of clusters and labels are multiplied",
            )
        n_labels, n_clusters = int(targets.shape[1]), int(clusters.max(initial=-1)) + 1
        labels: I32 = np.argsort(clusters, kind="stable")[np.count_nonzero(clusters < 0) :].astype(np.int32)
        documents, tail = (x.vectors, None) if x.words is None else (x.words, x.vectors)
        groups = cluster_documents(targets, clusters, n_clusters, found)
        solved = fit_linear(
            documents,
            targets.T.tocsr()[labels],
            groups,
            clusters[labels],
            config,
            rng,
            tail=tail,
            left_out=pairs_by_label(masked, targets)[labels],
        )
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
    def largest_cluster(self) -> int:
        """Labels of the cluster that has most."""
        return int(np.diff(self.starts).max(initial=0))

    @property
    def clusters(self) -> I32:
        """(L,) int32: the cluster of every label, -1 for none."""
        owner = np.full(self.n_labels, -1, dtype=np.int32)
        owner[self.labels] = np.repeat(np.arange(self.n_clusters, dtype=np.int32), np.diff(self.starts))
        return owner

    def rank(self, x: RankerInput, clusters: I32, gates: F32, top: TopK) -> None:
        """The best labels of each document's clusters (B, m) by gate x probability, into `top`, which is padding on
        entry.
        """
        from longtail.recipes.gnnxml.kernels import rank_members

        with threads_for(len(clusters), each=4):
            rank_members(*self._against(x), self.labels, frozen(clusters), frozen(gates), top.ids, top.scores)

    def label_scores(self, x: RankerInput, clusters: I32) -> tuple[I32, F32]:
        """All labels of each document's clusters (B, m) and their probabilities: (B, m * largest_cluster), -1 and 0
        as padding.
        """
        from longtail.recipes.gnnxml.kernels import score_members

        shape = (len(clusters), clusters.shape[1] * self.largest_cluster)
        ids, probabilities = np.full(shape, TopK.PAD, dtype=np.int32), np.zeros(shape, dtype=np.float32)
        with threads_for(len(clusters), each=4):
            score_members(*self._against(x), self.labels, frozen(clusters), ids, probabilities)
        return ids, probabilities

    def _against(self, x: RankerInput) -> tuple[Any, Any, Any, Any, Any, Any, I64, F32]:
        """Documents and weights as kernels take them; None for what there is not."""
        if (self.words is None) != (x.words is None) or (self.rows is None) != (x.vectors is None):
            raise ValueError("documents do not come as those of training did")
        words = (None, None, None) if x.words is None else pieces(x.words.astype(np.float32, copy=False))
        vectors = None if x.vectors is None else frozen(x.vectors.astype(np.float32, copy=False))
        return *words, self.words, vectors, self.rows, self.starts, self.bias


def cluster_documents(targets: Csr, clusters: I32, n_clusters: int, found: Csr) -> Csr:
    """(K, N) CSR: the documents that the rankers of each cluster are trained on, those with a label of it and those
    where it is found.
    """
    has_cluster = clusters >= 0
    true = meta_labels(targets.tocsc()[:, has_cluster].tocsr(), clusters[has_cluster], n_clusters)
    return (true + found.astype(np.float32)).T.tocsr()


def pairs_by_label(pairs: I64, targets: Csr) -> Csr:
    """(L, N) CSR of (document, label) pairs; repeated ones count once."""
    from scipy.sparse import coo_array

    n_documents, n_labels = (int(n) for n in targets.shape)
    return coo_array(
        (np.ones(len(pairs), np.float32), (pairs[:, 1], pairs[:, 0])), shape=(n_labels, n_documents)
    ).tocsr()
