"""A tree of linear classifiers over clusters of labels, Parabel-like (Prabhu et al., WWW 2018).

Labels are split by balanced 2-means of their centroids until a leaf has at most `leaf_size`. A document's probability
of a label is the product of probabilities along the way from the root: exp(-max(0, 1 - score)^2) of each classifier if
trained by the squared hinge (as in Parabel's released code), sigmoid(score) if by the logistic loss. Beam search
follows the best nodes.

Paper: Astec Sec. 5 (Parabel on frozen features), ECLARE Sec. 5 (GAME applied to Parabel).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from longtail.config import section, setting
from longtail.declared import Between, Shaped
from longtail.errors import ConfigError
from longtail.kernels.arrays import freeze, frozen, pieces
from longtail.persistence import DataPart
from longtail.search.cluster import balanced_clusters, label_centroids, meta_labels
from longtail.search.linear import LinearConfig, SparseWeights, check_starts, fit_linear, read_only
from longtail.search.shortlist import per_label, rank_labels
from longtail.types import F32, I32, I64, Batch, Csr, Ranker, TopK

# Documents ranked at once: bounds the table of label scores (documents x beam x leaf_size).
_BLOCK = 1024


@dataclass(frozen=True)
class TreeConfig:
    """How labels are grouped, told apart and searched."""

    leaf_size: int = setting(100, "labels per leaf, at most", low=2)
    beam: int = setting(10, "nodes of a level that prediction follows", low=1)
    linear: LinearConfig = section(LinearConfig, "the classifiers of nodes and labels")


class DenseWeights(NamedTuple):
    """Classifiers of dense documents. rows: (J, D); starts, bias: as in `SparseWeights`."""

    width: Annotated[int, Between(0)]
    starts: Annotated[I64, Shaped("parents", points_into="classifiers")]
    bias: Annotated[F32, Shaped("classifiers")]
    rows: Annotated[F32, Shaped("classifiers", "width")]

    def check(self) -> None:
        if self.rows.shape != (len(self.bias), self.width):
            raise ValueError(
                f"weights of shape {self.rows.shape} for {len(self.bias)} classifiers of width {self.width}"
            )


@dataclass(frozen=True)
class ClusterTree(DataPart, Ranker):
    """A ranker over sparse or dense documents, whichever it was fitted on.

    labels: (P,) int32, the labels that have documents, leaf after leaf; others are never predicted.
    """

    KIND = "cluster-tree"

    config: TreeConfig
    n_labels: Annotated[int, Between(0)]
    labels: Annotated[I32, Shaped("listed", numbers_of="n_labels")]
    weights: SparseWeights | DenseWeights

    def __post_init__(self) -> None:
        """Kernels trust these numbers."""
        freeze(self, "labels")
        object.__setattr__(self, "weights", read_only(self.weights))
        for name, array in self.weights._asdict().items():
            if isinstance(array, np.ndarray) and array.ndim != (2 if name == "rows" else 1):
                raise ValueError(f"{name}: an array of {array.ndim} dimensions")
        _check_tree(self.weights.starts, len(self.labels), len(self.weights.bias))
        self.weights.check()
        if np.any(self.labels < 0) or np.any(self.labels >= self.n_labels):
            raise ValueError(f"label numbers outside 0..{self.n_labels - 1}")

    @classmethod
    def fit(
        cls, x: Csr | F32, y: Csr, config: TreeConfig, rng: np.random.Generator, *, clusters: I32 | None = None
    ) -> ClusterTree:
        """Train a tree. x: (N, V) CSR or (N, D) dense; y: (N, L) CSR.

        clusters: (L,) leaf of every label in place of balanced 2-means; 2c and 2c + 1 are siblings. Any number of
            labels per leaf.
        """
        present = np.flatnonzero(np.bincount(y.indices, minlength=y.shape[1]) > 0)
        targets = y.tocsc()[:, present].tocsr()
        if clusters is None:
            leaf_of = balanced_clusters(label_centroids(x, targets), leaf_count(len(present), config.leaf_size), rng)
        else:
            leaf_of = clusters[present].astype(np.int32)
        if np.any(leaf_of < 0):
            raise ValueError("a label that has documents has no cluster")
        starts = _starts(leaf_of)
        order = np.lexsort((present, leaf_of))
        # Every node is a group: the documents with a label below it. Its children's documents are their positives.
        nodes = _node_documents(targets, leaf_of, len(starts) // 2)
        positives = _stacked([nodes[1:], targets.T.tocsr()[order]])
        parents = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        rows = fit_linear(x, positives, nodes, parents, config.linear, rng)
        dense = isinstance(rows.weights, np.ndarray)
        weights = (
            DenseWeights(int(x.shape[1]), starts, rows.bias, rows.weights) if dense else SparseWeights.of(rows, starts)
        )
        return cls(config, int(y.shape[1]), present[order].astype(np.int32), weights)

    @property
    def n_leaves(self) -> int:
        return len(self.weights.starts) // 2

    @property
    def largest_leaf(self) -> int:
        """Labels of the leaf that has most."""
        return int(np.diff(self.weights.starts[self.n_leaves - 1 :]).max())

    @property
    def clusters(self) -> I32:
        """(L,) int32: the leaf of every label, -1 for a label without documents."""
        leaf_of = np.full(self.n_labels, -1, dtype=np.int32)
        leaf_of[self.labels] = np.repeat(
            np.arange(self.n_leaves, dtype=np.int32), np.diff(self.weights.starts[self.n_leaves - 1 :])
        )
        return leaf_of

    def rank(self, batch: Batch, k: int) -> TopK:
        """The `k` most probable labels in the leaves that the beam reaches; padded where these have fewer."""
        return self.rank_in(batch, self.leaf_scores(batch), k)

    def rank_in(self, batch: Batch, leaves: TopK, k: int) -> TopK:
        """The `k` best labels of given leaves, by the leaf's score times the probability in the leaf; e.g. of
        re-scored leaves.
        """
        top = TopK.padding(len(batch), min(k, self.n_labels))
        of_leaf = np.where(leaves.ids >= 0, leaves.scores, np.float32(0))
        for start in range(0, len(batch), _BLOCK):
            part = slice(start, start + _BLOCK)
            labels, scores = self.label_scores(batch.rows(part), leaves.ids[part])
            rank_labels(labels, scores * per_label(of_leaf[part], labels), TopK(top.ids[part], top.scores[part]))
        return top

    def leaf_scores(self, batch: Batch, beam: int | None = None) -> TopK:
        """The leaves that the beam reaches, with their probabilities: (B, min(beam, n_leaves)). ids are leaves here."""
        from longtail.recipes.astec.kernels import find_leaves

        found = TopK.padding(len(batch), min(beam or self.config.beam, self.n_leaves))
        find_leaves(*self._against(batch), self.weights, self._logistic, found.ids, found.scores)
        return found

    def label_scores(self, batch: Batch, leaves: I32) -> tuple[I32, F32]:
        """All labels of each document's leaves (B, m) and their probabilities given the leaf; PAD and 0 where a leaf
        is short.

        Both are (B, m * largest_leaf): the labels of a document's leaf number i start at i * largest_leaf.
        """
        from longtail.recipes.astec.kernels import score_labels

        if leaves.size and not TopK.PAD <= leaves.min() <= leaves.max() < self.n_leaves:
            raise ValueError(f"leaves {leaves.min()}..{leaves.max()} of a tree of {self.n_leaves}")
        shape = (len(batch), leaves.shape[1] * self.largest_leaf)
        ids, probabilities = np.full(shape, TopK.PAD, dtype=np.int32), np.zeros(shape, dtype=np.float32)
        score_labels(
            *self._against(batch), self.weights, self._logistic, self.labels, frozen(leaves), ids, probabilities
        )
        return ids, probabilities

    @property
    def _logistic(self) -> bool:
        return self.config.linear.loss == "logistic"

    def _against(self, batch: Batch) -> tuple[Any, Any, F32, Any]:
        """The documents as kernels take them, and the rows of dense classifiers."""
        if isinstance(self.weights, SparseWeights):
            if batch.sparse is None or batch.sparse.shape[1] != self.weights.width:
                raise ConfigError(
                    f"this model reads sparse features of its own vocabulary of {self.weights.width}",
                    "let the bundle's featurizer make the batch",
                )
            return *pieces(batch.sparse.astype(np.float32, copy=False)), None
        if batch.dense is None or batch.dense.shape[1] != self.weights.width:
            raise ConfigError(
                f"this model reads dense vectors of width {self.weights.width}",
                "give vectors made in the same way as those of training",
            )
        return None, None, frozen(batch.dense.astype(np.float32, copy=False).ravel()), self.weights.rows


def leaf_count(n_labels: int, leaf_size: int) -> int:
    """The smallest power of two of balanced leaves that hold at most `leaf_size` labels each."""
    return 2 ** math.ceil(math.log2(max(n_labels / leaf_size, 1)))


def _starts(leaf_of: I32) -> I64:
    """Where the children of each parent start (see `SparseWeights`), for as many leaves as make a full tree."""
    n_leaves = 2 ** math.ceil(math.log2(int(leaf_of.max(initial=0)) + 1))
    ends = 2 * (n_leaves - 1) + np.cumsum(np.bincount(leaf_of, minlength=n_leaves))
    return np.append(2 * np.arange(n_leaves), ends)


def _node_documents(targets: Csr, leaf_of: I32, n_leaves: int) -> Csr:
    """(2n - 1, N) CSR: which documents have a label below each node, root first."""
    depth = int(math.log2(n_leaves))
    return _stacked(
        [meta_labels(targets, leaf_of >> (depth - level), 2**level).T.tocsr() for level in range(depth + 1)]
    )


def _stacked(blocks: list[Csr]) -> Csr:
    from scipy.sparse import vstack

    return vstack(blocks, format="csr")


def _check_tree(starts: I64, n_labels: int, n_classifiers: int) -> None:
    n_leaves = len(starts) // 2
    if (
        len(starts) % 2
        or n_leaves < 1
        or n_leaves & (n_leaves - 1)
        or np.any(starts[:n_leaves] != 2 * np.arange(n_leaves))
    ):
        raise ValueError("the nodes do not make a binary tree")
    if n_classifiers != n_labels + 2 * (n_leaves - 1):
        raise ValueError(f"{n_classifiers} classifiers for {n_labels} labels in {n_leaves} leaves")
    check_starts(starts, len(starts) - 1, n_classifiers)
