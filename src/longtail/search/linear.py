"""Linear classifiers: many binary ones at once, each trained within its own group of documents.

A tree of them (`recipes.astec.tree`), one ranker per label inside its cluster (Paper: GNN-XML Sec. 3.4), one-vs-all
(DiSMEC: one group that holds all documents) and one-vs-hard-negatives (Slice: a group per label) are all `fit_linear`,
with other groups.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from longtail.config import setting
from longtail.declared import Between, Shaped
from longtail.kernels.arrays import csr, frozen, new_seed, pieces
from longtail.types import F32, I32, I64, Csr

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
    dense = np.zeros((x.shape[0], 0), np.float32) if tail is None else tail
    if isinstance(x, np.ndarray):
        x, dense = csr(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(len(x) + 1, np.int64), (len(x), 0)), x
        found = _fit(x, dense, problems, objective, float(config.prune), new_seed(rng))
        return LinearRows(found.tail, found.bias, found.rounds)
    found = _fit(x, dense, problems, objective, float(config.prune), new_seed(rng))
    return found if tail is not None else replace(found, tail=None)


def _fit(
    x: Csr, tail: F32, problems: Problems, objective: LinearObjective, prune: float, seed: np.uint64
) -> LinearRows:
    from longtail.search.kernels.linear import solve

    rows, dense, count = (
        pieces(x.astype(np.float32)),
        frozen(tail.astype(np.float32, copy=False)),
        len(problems.group_of),
    )
    bias, rounds = np.zeros(count, dtype=np.float32), np.zeros(count, dtype=np.int32)
    weights = np.zeros((count, dense.shape[1]), dtype=np.float32)

    def solve_job(job: I64) -> tuple[I64, I32, F32]:
        sound, sizes, columns, values = solve(
            job, problems, rows, dense, int(x.shape[1]), objective, prune, seed, bias, rounds, weights
        )
        if not sound:
            raise ValueError("a problem has a positive document that is not in its group")
        return sizes, columns, values

    jobs = _jobs(problems, np.diff(rows.indptr) + dense.shape[1])
    return LinearRows(
        _rows_in_order(jobs, _in_threads(solve_job, jobs), (count, int(x.shape[1]))), bias, rounds, weights
    )


def _jobs(problems: Problems, row_costs: I64) -> list[I64]:
    """Problem numbers in about equal pieces of work, those of a group together.  row_costs: (N,), work per document."""
    if not len(problems.group_of):
        return []
    before = np.append(0, np.cumsum(row_costs[problems.group_rows] + 1))
    costs = np.maximum(before[problems.group_starts[1:]] - before[problems.group_starts[:-1]], 1)
    order = np.argsort(problems.group_of, kind="stable")
    done = np.cumsum(costs[problems.group_of[order]])
    return [frozen(job) for job in np.split(order, np.flatnonzero(np.diff(done * _JOBS // done[-1])) + 1)]


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


# ---- classifiers of groups, as prediction reads them ----


class SparseWeights(NamedTuple):
    """Classifiers of sparse documents, by parent and word: a document reads only what its own words weigh.

    A parent is a cluster, whose children are labels, or a node of a tree. Nodes are numbered as in a heap: inner ones
    0..n-2 (the children of p are nodes 2p + 1 and 2p + 2), then the n leaves, whose children are labels.
    starts: (parents + 1,) int64, the classifiers of p's children are those numbered ``starts[p]:starts[p + 1]``.
    words: for each parent the sorted words that any child weighs, ``word_starts[p]:word_starts[p + 1]``; children,
    values: for each of these words its weights and the children (counted from 0 in each parent) they belong to. bias:
    one per classifier.
    """

    width: Annotated[int, Between(0)]
    starts: Annotated[I64, Shaped("parents", points_into="classifiers")]
    bias: Annotated[F32, Shaped("classifiers")]
    words: Annotated[I32, Shaped("words", numbers_of="width")]
    word_starts: Annotated[I64, Shaped("parents", points_into="words")]
    entry_starts: Annotated[I64, Shaped("words", points_into="entries")]
    children: Annotated[I32, Shaped("entries", numbers_of="classifiers")]
    values: Annotated[F32, Shaped("entries")]

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
        check_starts(self.word_starts, len(self.starts) - 1, len(self.words))
        check_starts(self.entry_starts, len(self.words), len(self.values))
        counts = np.repeat(np.diff(self.starts), np.diff(self.entry_starts[self.word_starts]))
        if len(self.children) != len(self.values) or np.any(self.children < 0) or np.any(self.children >= counts):
            raise ValueError("child numbers outside their parents")
        rising = np.diff(self.words) > 0
        begins = self.word_starts[1:-1]
        rising[begins[(begins > 0) & (begins < len(self.words))] - 1] = True
        if not rising.all():
            raise ValueError("words of a parent are not in order, each once")


def read_only(weights: Any) -> Any:
    """As the arrays of a loaded model are: both run the same machine code."""
    return type(weights)(*(frozen(field) if isinstance(field, np.ndarray) else field for field in weights))


def check_starts(starts: I64, count: int, total: int) -> None:
    if len(starts) != count + 1 or starts[0] != 0 or starts[-1] != total or np.any(np.diff(starts) < 0):
        raise ValueError("pointers of the classifiers do not fit")
