"""Many binary linear classifiers at once, each trained within its own group of documents.

A cluster tree, one ranker per label inside its cluster (Paper: GNN-XML Sec. 3.4), one-vs-all (DiSMEC: one group that
holds all documents) and one-vs-hard-negatives (Slice: a group per label) are all this, with other groups.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from longtail.config import setting
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


class Objective(NamedTuple):
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
    objective = Objective(
        config.loss == "logistic", float(config.bias), float(config.cost), float(config.tolerance), config.rounds
    )
    if isinstance(x, np.ndarray):
        return _fit_dense(x, problems, objective, new_seed(rng))
    return _fit_sparse(x, tail, problems, objective, float(config.prune), new_seed(rng))


def _fit_sparse(
    x: Csr, tail: F32 | None, problems: Problems, objective: Objective, prune: float, seed: np.uint64
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


def _fit_dense(x: F32, problems: Problems, objective: Objective, seed: np.uint64) -> LinearRows:
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
