"""Dual coordinate descent for binary linear classifiers, as in LIBLINEAR (Hsieh et al. 2008; Yu, Huang, Lin 2011).

Rows are CSR (`indptr`, `indices`, `data`) or, with ``indptr = indices = None``, dense ones, one after the other in `data`;
numba compiles each case on its own. `w` is float64 and one longer than a row: its last number belongs to a constant feature
of value `bias`. `place` says where in the matrix each document of a problem stands; `signs` are +1 and -1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.compiled import compiled
from longtail.graph.arrays import Pieces
from longtail.graph.random_kernels import below, draw, key_of
from longtail.search.linear import Objective, Problems
from longtail.types import F32, I32, I64

F64 = NDArray[np.float64]

# The dual variable that a document starts with under the logistic loss, as a logit: next to zero, where easy ones stay.
_FIRST_LOGIT = -18.0
_NEWTON_STEPS = 50


@compiled(fastmath=True)
def _dot(indptr: Any, indices: Any, data: F32, tail: Any, row: int, w: F64, bias: float) -> float:
    """fastmath keeps several partial sums of a dense row; their order is fixed at compile time, so results are repeatable."""
    width = len(w) - 1
    total = bias * w[width]
    if indptr is None:
        for column in range(width):
            total += data[row * width + column] * w[column]
    else:
        for entry in range(indptr[row], indptr[row + 1]):
            total += data[entry] * w[indices[entry]]
    if tail is not None:
        first = width - tail.shape[1]
        for column in range(tail.shape[1]):
            total += tail[row, column] * w[first + column]
    return total


@compiled()
def _add(indptr: Any, indices: Any, data: F32, tail: Any, row: int, factor: float, w: F64, bias: float) -> None:
    """w += factor * row."""
    width = len(w) - 1
    w[width] += factor * bias
    if indptr is None:
        for column in range(width):
            w[column] += factor * data[row * width + column]
    else:
        for entry in range(indptr[row], indptr[row + 1]):
            w[indices[entry]] += factor * data[entry]
    if tail is not None:
        first = width - tail.shape[1]
        for column in range(tail.shape[1]):
            w[first + column] += factor * tail[row, column]


@compiled()
def _squares(indptr: Any, indices: Any, data: F32, tail: Any, place: I64, width: int, bias: float) -> F64:
    """Squared length of each document's row, the constant feature included."""
    squares = np.full(len(place), bias * bias)
    for i in range(len(place)):
        if indptr is None:
            for column in range(width):
                squares[i] += np.float64(data[place[i] * width + column]) ** 2
        else:
            for entry in range(indptr[place[i]], indptr[place[i] + 1]):
                squares[i] += np.float64(data[entry]) ** 2
        if tail is not None:
            for column in range(tail.shape[1]):
                squares[i] += np.float64(tail[place[i], column]) ** 2
    return squares


@compiled()
def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


@compiled()
def _shuffle(order: I64, size: int, key: np.uint64, counter: int) -> int:
    """Permute the first `size` entries; returns the number of random numbers drawn so far."""
    for i in range(size - 1, 0, -1):
        j = below(draw(key, counter), i + 1)
        order[i], order[j] = order[j], order[i]
        counter += 1
    return counter


@compiled()
def _squared_hinge(
    indptr: Any, indices: Any, data: F32, tail: Any, place: I64, signs: F64, squares: F64, objective: Objective, key: np.uint64, dual: F64, w: F64
) -> int:  # fmt: skip
    """Minimise |w|^2 / 2 + cost * sum of max(0, 1 - sign * w.x)^2; returns the rounds used. On entry w = sum of dual * sign * x.

    A document at dual 0 whose gradient exceeds all others of the last round is left out until the rest is solved (shrinking).
    """
    order, bias, ridge = np.flatnonzero(signs), objective.bias, 0.5 / objective.cost
    n = len(order)
    active, counter, used, limit = n, 0, 0, np.inf
    while used < objective.rounds:
        counter = _shuffle(order, active, key, counter)
        highest, lowest, at = -np.inf, np.inf, 0
        while at < active:
            i = order[at]
            gradient = signs[i] * _dot(indptr, indices, data, tail, place[i], w, bias) - 1.0 + ridge * dual[i]
            if dual[i] == 0.0 and gradient > limit:
                active -= 1
                order[at], order[active] = order[active], order[at]
                continue
            at += 1
            projected = min(gradient, 0.0) if dual[i] == 0.0 else gradient
            highest, lowest = max(highest, projected), min(lowest, projected)
            if projected != 0.0:
                moved = max(dual[i] - gradient / (squares[i] + ridge), 0.0)
                _add(indptr, indices, data, tail, place[i], (moved - dual[i]) * signs[i], w, bias)
                dual[i] = moved
        used += 1
        if highest - lowest > objective.tolerance:
            limit = highest if highest > 0.0 else np.inf
        elif active == n:
            break
        else:
            active, limit = n, np.inf
    return used


@compiled()
def _new_logit(old: float, margin: float, scale: float, tolerance: float) -> float:
    """The root t of t + margin + scale * (sigmoid(t) - sigmoid(old)), by Newton's method inside a bracket."""
    share = _sigmoid(old)
    low, high = -margin - scale * (1.0 - share), -margin + scale * share
    t = min(max(old, low), high)
    for _ in range(_NEWTON_STEPS):
        s = _sigmoid(t)
        value = t + margin + scale * (s - share)
        if abs(value) < tolerance:
            break
        if value > 0.0:
            high = t
        else:
            low = t
        t -= value / (1.0 + scale * s * (1.0 - s))
        if not low < t < high:
            t = 0.5 * (low + high)
    return t


@compiled()
def _logistic(
    indptr: Any, indices: Any, data: F32, tail: Any, place: I64, signs: F64, squares: F64, objective: Objective, key: np.uint64, logits: F64, w: F64
) -> int:  # fmt: skip
    """Minimise |w|^2 / 2 + cost * sum of log(1 + exp(-sign * w.x)); returns the rounds used.

    A dual variable is cost * sigmoid(logit), so it stays inside (0, cost) by itself and nothing is lost near either end. At
    the solution logit = -margin. On entry w = sum of dual * sign * x.
    """
    bias, cost, close = objective.bias, objective.cost, 0.1 * objective.tolerance
    order = np.flatnonzero(signs)
    counter, used = 0, 0
    while used < objective.rounds:
        counter = _shuffle(order, len(order), key, counter)
        largest = 0.0
        for i in order:
            margin = signs[i] * _dot(indptr, indices, data, tail, place[i], w, bias)
            gradient = abs(logits[i] + margin)
            largest = max(largest, gradient)
            if gradient > close:
                moved = _new_logit(logits[i], margin, squares[i] * cost, close)
                _add(indptr, indices, data, tail, place[i], cost * (_sigmoid(moved) - _sigmoid(logits[i])) * signs[i], w, bias)
                logits[i] = moved
        used += 1
        if largest <= objective.tolerance:
            break
    return used


@compiled()
def _solve(
    indptr: Any, indices: Any, data: F32, tail: Any, place: I64, signs: F64, squares: F64, objective: Objective, key: np.uint64, warm: bool, w: F64
) -> int:  # fmt: skip
    """Solve one problem; returns the rounds used. On entry `w` is zero, or with `warm` a guess, which is replaced.

    Dual variables are what the optimality conditions make of the guess's margins: at the solution they are those of the
    solution, so a good guess is a good start, and any guess is a valid one.
    """
    logistic, bias, cost = objective.logistic, objective.bias, objective.cost
    dual = np.full(len(place), _FIRST_LOGIT if logistic else 0.0)
    if warm:
        for i in range(len(place)):
            margin = signs[i] * _dot(indptr, indices, data, tail, place[i], w, bias)
            dual[i] = -margin if logistic else 2.0 * cost * max(0.0, 1.0 - margin)
        w[:] = 0.0
    if warm or logistic:
        for i in range(len(place)):
            _add(indptr, indices, data, tail, place[i], (cost * _sigmoid(dual[i]) if logistic else dual[i]) * signs[i], w, bias)
    if logistic:
        return _logistic(indptr, indices, data, tail, place, signs, squares, objective, key, dual, w)
    return _squared_hinge(indptr, indices, data, tail, place, signs, squares, objective, key, dual, w)


@compiled()
def _mark(members: I32, problem: int, problems: Problems, signs: F64) -> bool:
    """signs[i] = +1 if members[i] is a positive of the problem, 0 if it is left out, else -1. False if a positive is no member."""
    positives = problems.positive_rows[problems.positive_starts[problem] : problems.positive_starts[problem + 1]]
    left_out = problems.left_out_rows[problems.left_out_starts[problem] : problems.left_out_starts[problem + 1]]
    at, out = 0, 0
    for i in range(len(members)):
        while out < len(left_out) and left_out[out] < members[i]:
            out += 1
        if at < len(positives) and positives[at] == members[i]:
            signs[i] = 1.0
            at += 1
        else:
            signs[i] = 0.0 if out < len(left_out) and left_out[out] == members[i] else -1.0
    return at == len(positives)


@compiled()
def _tails_of(tail: Any, members: I32) -> Any:
    """Dense columns of these rows, side by side in memory."""
    if tail is None:
        return None
    rows = np.empty((len(members), tail.shape[1]), dtype=np.float32)
    for i in range(len(members)):
        rows[i] = tail[members[i]]
    return rows


@compiled()
def _columns_of(indptr: I64, indices: I32, members: I32, local: I32) -> I32:
    """The columns that occur in these rows, sorted; local[column] becomes its place among them (-1 elsewhere, as on entry)."""
    entries = 0
    for member in members:
        entries += indptr[member + 1] - indptr[member]
    found = np.empty(min(entries, len(local)), dtype=np.int32)
    count = 0
    for member in members:
        for entry in range(indptr[member], indptr[member + 1]):
            if local[indices[entry]] < 0:
                local[indices[entry]] = 0
                found[count] = indices[entry]
                count += 1
    columns = np.sort(found[:count])
    for i in range(count):
        local[columns[i]] = i
    return columns


@compiled()
def _rows_of(indptr: I64, indices: I32, data: F32, members: I32, local: I32) -> tuple[I64, I32, F32]:
    """These rows as a CSR matrix of their own, with local columns: a problem's weights then fit into the cache."""
    starts = np.zeros(len(members) + 1, dtype=np.int64)
    for i in range(len(members)):
        starts[i + 1] = starts[i] + indptr[members[i] + 1] - indptr[members[i]]
    columns, values = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
    for i in range(len(members)):
        first = indptr[members[i]]
        for at in range(starts[i], starts[i + 1]):
            columns[at] = local[indices[first + at - starts[i]]]
            values[at] = data[first + at - starts[i]]
    return starts, columns, values


@compiled()
def _room_for(array: Any, needed: int) -> Any:
    """The array, or a copy with at least twice the room."""
    if needed <= len(array):
        return array
    grown = np.empty(max(needed, 2 * len(array)), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


@compiled()
def solve_sparse(
    job: I64, problems: Problems, rows: Pieces, tail: Any, n_columns: int, start: Any, start_bias: Any, start_tail: Any, objective: Objective, prune: float,
    seed: np.uint64, out_bias: F32, out_rounds: I32, out_tail: Any,
) -> tuple[bool, I64, I32, F32]:  # fmt: skip
    """Solve the problems of a job on sparse rows. start: `Pieces` of the weights to start from, or None. tail: (N, E) dense columns, or None.

    Returns whether all positives were in their groups, and the weights of |w| > prune: how many per problem, columns, values.
    """
    sizes = np.zeros(len(job), dtype=np.int64)
    columns, values, filled = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.float32), 0
    local = np.full(n_columns, -1, dtype=np.int32)
    at = 0
    while at < len(job):
        group = problems.group_of[job[at]]
        members = problems.group_rows[problems.group_starts[group] : problems.group_starts[group + 1]]
        own = _columns_of(rows.indptr, rows.indices, members, local)
        indptr, indices, data = _rows_of(rows.indptr, rows.indices, rows.data, members, local)
        tails = _tails_of(tail, members)
        width = len(own) + (0 if tail is None else tail.shape[1])
        place, signs, w = np.arange(len(members)), np.empty(len(members)), np.empty(width + 1)
        squares = _squares(indptr, indices, data, tails, place, len(own), objective.bias)
        while at < len(job) and problems.group_of[job[at]] == group:
            problem = job[at]
            if not _mark(members, problem, problems, signs):
                return False, sizes, columns, values
            w[:] = 0.0
            if start is not None:
                for entry in range(start.indptr[problem], start.indptr[problem + 1]):
                    if local[start.indices[entry]] >= 0:
                        w[local[start.indices[entry]]] = start.data[entry]
                if start_tail is not None:
                    w[len(own) : width] = start_tail[problem]
                w[width] = start_bias[problem] / objective.bias if objective.bias > 0.0 else 0.0
            out_rounds[problem] = _solve(indptr, indices, data, tails, place, signs, squares, objective, key_of(seed, problem), start is not None, w)
            out_bias[problem] = w[width] * objective.bias
            if out_tail is not None:
                out_tail[problem] = w[len(own) : width]
            columns, values = _room_for(columns, filled + len(own)), _room_for(values, filled + len(own))
            before = filled
            for column in range(len(own)):
                if abs(w[column]) > prune:
                    columns[filled], values[filled] = own[column], w[column]
                    filled += 1
            sizes[at] = filled - before
            at += 1
        for column in own:
            local[column] = -1
    return True, sizes, columns[:filled].copy(), values[:filled].copy()


@compiled()
def solve_dense(
    job: I64, problems: Problems, data: F32, start: Any, start_bias: Any, objective: Objective, seed: np.uint64, out: F32, out_bias: F32, out_rounds: I32
) -> bool:
    """Solve the problems of a job on dense rows, into rows of `out`; returns whether all positives were in their groups."""
    width = out.shape[1]
    w = np.empty(width + 1)
    at = 0
    while at < len(job):
        group = problems.group_of[job[at]]
        members = problems.group_rows[problems.group_starts[group] : problems.group_starts[group + 1]]
        place, signs = members.astype(np.int64), np.empty(len(members))
        squares = _squares(None, None, data, None, place, width, objective.bias)
        while at < len(job) and problems.group_of[job[at]] == group:
            problem = job[at]
            if not _mark(members, problem, problems, signs):
                return False
            w[:] = 0.0
            if start is not None:
                w[:width] = start[problem]
                w[width] = start_bias[problem] / objective.bias if objective.bias > 0.0 else 0.0
            out_rounds[problem] = _solve(None, None, data, None, place, signs, squares, objective, key_of(seed, problem), start is not None, w)
            out[problem] = w[:width]
            out_bias[problem] = w[width] * objective.bias
            at += 1
    return True
