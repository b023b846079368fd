"""Linear classifiers: many binary ones at once, each trained within its own group of documents; and a tree of them over
clusters of labels, Parabel-like (Prabhu et al., WWW 2018).

A tree, one ranker per label inside its cluster (Paper: GNN-XML Sec. 3.4), one-vs-all (DiSMEC: one group that holds all
documents) and one-vs-hard-negatives (Slice: a group per label) are all `fit_linear`, with other groups.

In a tree labels are split by balanced 2-means of their centroids until a leaf has at most `leaf_size`. A document's
probability of a label is the product of probabilities along the way from the root: exp(-max(0, 1 - score)^2) of each
classifier if trained by the squared hinge (as in Parabel's released code), sigmoid(score) if by the logistic loss. Beam
search follows the best nodes.

Paper: Astec Sec. 5 (Parabel on frozen features), ECLARE Sec. 5 (GAME applied to Parabel).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from longtail.config import section, setting
from longtail.errors import ConfigError
from longtail.kernels.arrays import csr, freeze, frozen, new_seed, pieces
from longtail.persistence import DataPart
from longtail.search.cluster import balanced_clusters, label_centroids, meta_labels
from longtail.search.shortlist import per_label, rank_labels
from longtail.types import F32, I32, I64, Batch, Csr, Ranker, TopK

Found = TypeVar("Found")

# Into how many jobs the work is cut: enough to keep many cores busy, few enough for a job to pay for its start.
_JOBS = 256


@dataclass(frozen=True)
class LinearConfig:
    """What a classifier minimises: |w|^2 / 2 + cost * the loss of each of its documents."""

    loss: Literal["squared_hinge", "logistic"] = setting("squared_hinge", "what a classifier minimises")
    cost: float = setting(
        1.0, "weight of a document's loss beside half the squared length of the weights", low=1e-6, high=1e6
    )
    bias: float = setting(1.0, "value of the constant feature that every document gets; 0: none", low=0.0, high=1e3)
    tolerance: float = setting(0.1, "a classifier is done when no gradient of the dual problem is larger", low=1e-12)
    rounds: int = setting(20, "passes over the documents of a classifier, at most", low=1)
    prune: float = setting(0.1, "weights of sparse features that are closer to 0 than this are dropped", low=0.0)


@dataclass(frozen=True)
class LinearRows:
    """J classifiers: score = weights[j] . x + bias[j].

    weights: (J, V) CSR float32 or (J, D) float32, as the documents were.  bias: (J,) float32.
    rounds: (J,) int32, passes used.
    tail: (J, E) float32, weights of the dense columns that stood beside sparse ones; None without.
    """

    weights: Any
    bias: F32
    rounds: I32
    tail: F32 | None = None


class Problems(NamedTuple):
    """Which documents each problem is about, as kernels take it."""

    group_of: I64
    group_starts: I64
    group_rows: I32
    positive_starts: I64
    positive_rows: I32
    left_out_starts: I64
    left_out_rows: I32


class LinearObjective(NamedTuple):
    """What is minimised and when to stop, as kernels take it."""

    logistic: bool
    bias: float
    cost: float
    tolerance: float
    rounds: int


def fit_linear(
    x: Csr | F32,
    positives: Csr,
    groups: Csr,
    group_of: NDArray[Any],
    config: LinearConfig,
    rng: np.random.Generator,
    *,
    tail: F32 | None = None,
    left_out: Csr | None = None,
) -> LinearRows:
    """J classifiers, each of which separates its positive documents from the others of its group.

    The result does not depend on the number of threads. Dense rows are not pruned: nothing is saved by it.

    x: (N, V) CSR or (N, D) dense.
    groups: (G, N) CSR, whose entries say which documents a group has (values are not read).
    positives: (J, N) CSR, likewise; the positives of problem j must be in group ``group_of[j]``.
    tail: (N, E) dense columns that documents have beside sparse ones.
    left_out: (J, N) CSR, documents that a problem does not look at.
    """
    if positives.shape != (len(group_of), x.shape[0]) or groups.shape[1] != x.shape[0]:
        raise ValueError(
            f"positives {positives.shape}, groups {groups.shape} and group_of ({len(group_of)},) do not fit "
            f"{x.shape[0]} documents"
        )
    if tail is not None and (isinstance(x, np.ndarray) or len(tail) != x.shape[0]):
        raise ValueError(f"dense columns of {len(tail)} documents beside rows of shape {x.shape}, which must be sparse")
    if left_out is not None and left_out.shape != positives.shape:
        raise ValueError(f"documents left out have shape {left_out.shape}, expected {positives.shape}")
    nothing = csr(
        np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(len(group_of) + 1, np.int64), positives.shape
    )
    out = pieces(left_out if left_out is not None else nothing)
    problems = Problems(frozen(group_of.astype(np.int64)), *pieces(groups)[:2], *pieces(positives)[:2], *out[:2])
    objective = LinearObjective(
        config.loss == "logistic", float(config.bias), float(config.cost), float(config.tolerance), config.rounds
    )
    if isinstance(x, np.ndarray):
        return _fit_dense(x, problems, objective, new_seed(rng))
    return _fit_sparse(x, tail, problems, objective, float(config.prune), new_seed(rng))


def _fit_sparse(
    x: Csr, tail: F32 | None, problems: Problems, objective: LinearObjective, prune: float, seed: np.uint64
) -> LinearRows:
    from longtail.search.kernels.linear import solve_sparse

    rows, count = pieces(x.astype(np.float32)), len(problems.group_of)
    bias, rounds = np.zeros(count, dtype=np.float32), np.zeros(count, dtype=np.int32)
    dense, weights = (
        (None, None)
        if tail is None
        else (frozen(tail.astype(np.float32, copy=False)), np.zeros((count, tail.shape[1]), dtype=np.float32))
    )

    def solve(job: I64) -> tuple[I64, I32, F32]:
        sound, sizes, columns, values = solve_sparse(
            job, problems, rows, dense, int(x.shape[1]), objective, prune, seed, bias, rounds, weights
        )
        _check_positives(sound)
        return sizes, columns, values

    jobs = _jobs(problems, np.diff(rows.indptr) + (0 if tail is None else tail.shape[1]))
    return LinearRows(_rows_in_order(jobs, _in_threads(solve, jobs), (count, int(x.shape[1]))), bias, rounds, weights)


def _fit_dense(x: F32, problems: Problems, objective: LinearObjective, seed: np.uint64) -> LinearRows:
    from longtail.search.kernels.linear import solve_dense

    data, count = frozen(x.astype(np.float32, copy=False).ravel()), len(problems.group_of)
    weights = np.zeros((count, x.shape[1]), dtype=np.float32)
    bias, rounds = np.zeros(count, dtype=np.float32), np.zeros(count, dtype=np.int32)

    def solve(job: I64) -> None:
        _check_positives(solve_dense(job, problems, data, objective, seed, weights, bias, rounds))

    _in_threads(solve, _jobs(problems, np.full(len(x), x.shape[1])))
    return LinearRows(weights, bias, rounds)


def _jobs(problems: Problems, row_costs: I64) -> list[I64]:
    """Problem numbers in about equal pieces of work, those of a group together.  row_costs: (N,), work per document."""
    if not len(problems.group_of):
        return []
    before = np.append(0, np.cumsum(row_costs[problems.group_rows] + 1))
    costs = np.maximum(before[problems.group_starts[1:]] - before[problems.group_starts[:-1]], 1)
    order = np.argsort(problems.group_of, kind="stable")
    done = np.cumsum(costs[problems.group_of[order]])
    return [frozen(job) for job in np.split(order, np.flatnonzero(np.diff(done * _JOBS // done[-1])) + 1)]


def _check_positives(sound: bool) -> None:
    if not sound:
        raise ValueError("a problem has a positive document that is not in its group")


def _in_threads(work: Callable[[I64], Found], jobs: list[I64]) -> list[Found]:
    """The results in the order of the jobs, by Python threads (kernels release the GIL): an idle one takes the next."""
    from numba import get_num_threads

    with ThreadPoolExecutor(int(get_num_threads())) as pool:
        return list(pool.map(work, jobs))


def _rows_in_order(jobs: list[I64], found: list[tuple[I64, I32, F32]], shape: tuple[int, int]) -> Csr:
    """A CSR array of the rows that jobs found, each job's problems in its own order."""
    if not jobs:
        return csr(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(shape[0] + 1, np.int64), shape)
    indptr = np.append(0, np.cumsum(np.concatenate([sizes for sizes, _, _ in found])))
    stacked = csr(
        np.concatenate([values for _, _, values in found]),
        np.concatenate([columns for _, columns, _ in found]),
        indptr,
        shape,
    )
    return stacked[np.argsort(np.concatenate(jobs), kind="stable")]


# ---- the tree ----

# Documents ranked at once: bounds the table of label scores (documents x beam x leaf_size).
_BLOCK = 1024


@dataclass(frozen=True)
class TreeConfig:
    """How labels are grouped, told apart and searched."""

    leaf_size: int = setting(100, "labels per leaf, at most", low=2)
    beam: int = setting(10, "nodes of a level that prediction follows", low=1)
    linear: LinearConfig = section(LinearConfig, "the classifiers of nodes and labels")


class SparseWeights(NamedTuple):
    """Classifiers of sparse documents, by parent and word: a document reads only what its own words weigh.

    Parents are numbered as in a heap: inner nodes 0..n-2 (the children of p are nodes 2p + 1 and 2p + 2), then the n
    leaves, whose children are labels. starts: (2n,) int64, the classifiers of p's children are those numbered
    ``starts[p]:starts[p + 1]``.
    words: for each parent the sorted words that any child weighs, ``word_starts[p]:word_starts[p + 1]``; children,
    values: for each of these words its weights and the children (counted from 0 in each parent) they belong to. bias:
    one per classifier.
    """

    width: int
    starts: I64
    bias: F32
    words: I32
    word_starts: I64
    entry_starts: I64
    children: I32
    values: F32

    @classmethod
    def of(cls, rows: LinearRows, starts: I64) -> SparseWeights:
        indptr, columns, values = pieces(rows.weights)
        width = int(rows.weights.shape[1])
        row_of = np.repeat(np.arange(len(rows.bias)), np.diff(indptr))
        parent_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[row_of]
        key = parent_of * width + columns
        order = np.argsort(key, kind="stable")
        distinct, firsts = np.unique(key[order], return_index=True)
        return cls(
            width=width,
            starts=starts,
            bias=rows.bias,
            words=(distinct % max(width, 1)).astype(np.int32),
            word_starts=np.searchsorted(distinct, np.arange(len(starts)) * width).astype(np.int64),
            entry_starts=np.append(firsts, len(key)).astype(np.int64),
            children=(row_of - starts[parent_of])[order].astype(np.int32),
            values=values[order],
        )

    def check(self) -> None:
        """Kernels trust these numbers; raises ValueError where a file holds others."""
        _check_starts(self.word_starts, len(self.starts) - 1, len(self.words))
        _check_starts(self.entry_starts, len(self.words), len(self.values))
        counts = np.repeat(np.diff(self.starts), np.diff(self.entry_starts[self.word_starts]))
        if len(self.children) != len(self.values) or np.any(self.children < 0) or np.any(self.children >= counts):
            raise ValueError("child numbers outside their parents")


class DenseWeights(NamedTuple):
    """Classifiers of dense documents. rows: (J, D); starts, bias: as in `SparseWeights`."""

    width: int
    starts: I64
    bias: F32
    rows: F32

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
    n_labels: int
    labels: I32
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
        from longtail.search.kernels.tree import find_leaves

        found = TopK.padding(len(batch), min(beam or self.config.beam, self.n_leaves))
        find_leaves(*self._against(batch), self.weights, self._logistic, found.ids, found.scores)
        return found

    def label_scores(self, batch: Batch, leaves: I32) -> tuple[I32, F32]:
        """All labels of each document's leaves (B, m) and their probabilities given the leaf; PAD and 0 where a leaf
        is short.

        Both are (B, m * largest_leaf): the labels of a document's leaf number i start at i * largest_leaf.
        """
        from longtail.search.kernels.tree import score_labels

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


def read_only(weights: Any) -> Any:
    """As the arrays of a loaded model are: both run the same machine code."""
    return type(weights)(*(frozen(field) if isinstance(field, np.ndarray) else field for field in weights))


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
    _check_starts(starts, len(starts) - 1, n_classifiers)


def _check_starts(starts: I64, count: int, total: int) -> None:
    if len(starts) != count + 1 or starts[0] != 0 or starts[-1] != total or np.any(np.diff(starts) < 0):
        raise ValueError("pointers of the tree do not fit")
