"""Dual coordinate descent for binary linear classifiers, as in LIBLINEAR (Hsieh et al. 2008; Yu, Huang, Lin 2011).

A row has sparse columns (CSR) and then dense ones; dense documents have no sparse ones, and others often no dense ones
(loops over nothing: one machine code for all of them). `w` is float64 and one longer than a row: its last number
belongs to a constant feature of value `bias`; problems that are solved side by side have a column of it each. `signs`
are +1 and -1.

A sparse feature that only one document of a group has gets the weight dual * sign * value, whatever else happens.
Such features are left out of rows and weights: all that they do is to add dual * `alone` to the document's margin,
`alone` being their squared length.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.arrays import Pieces
from longtail.kernels.basics import below, draw, key_of
from longtail.kernels.compiled import compiled
from longtail.search.linear import LinearObjective, Problems
from longtail.types import F32, I32, I64

F64 = NDArray[np.float64]

# The dual variable that a document starts with under the logistic loss, as a logit: next to zero, where easy ones stay.
_FIRST_LOGIT = -18.0
_NEWTON_STEPS = 50
# Logistic problems of one group that are solved side by side: a row of their weights is two lines of the cache.
_SIDE_BY_SIDE = 16


class GroupRows(NamedTuple):
    """The documents of a group. Row i has the sparse columns of row i, and the dense ones of row ``place[i]`` of
    `tail` (N, E): these are not moved.
    """

    indptr: I64
    indices: I32
    data: F32
    tail: F32
    place: I32


@compiled(fastmath=True)
def _dot(rows: GroupRows, i: Any, w: F64, bias: float) -> float:
    """fastmath keeps several partial sums of a dense row; their order is fixed at compile time."""
    width, place, dense = len(w) - 1, rows.place[i], rows.tail.shape[1]
    total = bias * w[width]
    for entry in range(rows.indptr[i], rows.indptr[i + 1]):
        total += rows.data[entry] * w[rows.indices[entry]]
    for column in range(dense):
        total += rows.tail[place, column] * w[width - dense + column]
    return total


@compiled()
def _add(rows: GroupRows, i: Any, factor: float, w: F64, bias: float) -> None:
    """w += factor * row."""
    width, place, dense = len(w) - 1, rows.place[i], rows.tail.shape[1]
    w[width] += factor * bias
    for entry in range(rows.indptr[i], rows.indptr[i + 1]):
        w[rows.indices[entry]] += factor * rows.data[entry]
    for column in range(dense):
        w[width - dense + column] += factor * rows.tail[place, column]


@compiled(fastmath=True)
def _dots(rows: GroupRows, i: Any, w: F64, bias: float, out: F64) -> None:
    """out[k] = row . w[:, k]. With one problem `_dot` is faster: its sum stays in a register."""
    width, place, dense = len(w) - 1, rows.place[i], rows.tail.shape[1]
    for k in range(len(out)):
        out[k] = bias * w[width, k]
    for entry in range(rows.indptr[i], rows.indptr[i + 1]):
        value, weights = np.float64(rows.data[entry]), w[rows.indices[entry]]
        for k in range(len(out)):
            out[k] += value * weights[k]
    for column in range(dense):
        value, weights = np.float64(rows.tail[place, column]), w[width - dense + column]
        for k in range(len(out)):
            out[k] += value * weights[k]


@compiled()
def _adds(rows: GroupRows, i: Any, factors: F64, w: F64, bias: float) -> None:
    """w[:, k] += factors[k] * row."""
    width, place, dense = len(w) - 1, rows.place[i], rows.tail.shape[1]
    for k in range(len(factors)):
        w[width, k] += factors[k] * bias
    for entry in range(rows.indptr[i], rows.indptr[i + 1]):
        value, weights = np.float64(rows.data[entry]), w[rows.indices[entry]]
        for k in range(len(factors)):
            weights[k] += factors[k] * value
    for column in range(dense):
        value, weights = np.float64(rows.tail[place, column]), w[width - dense + column]
        for k in range(len(factors)):
            weights[k] += factors[k] * value


@compiled()
def _squares(rows: GroupRows, bias: float) -> F64:
    """Squared length of each document's row, the constant feature included."""
    squares = np.full(len(rows.place), bias * bias)
    for i in range(len(rows.place)):
        for entry in range(rows.indptr[i], rows.indptr[i + 1]):
            squares[i] += np.float64(rows.data[entry]) ** 2
        for column in range(rows.tail.shape[1]):
            squares[i] += np.float64(rows.tail[rows.place[i], column]) ** 2
    return squares


@compiled()
def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


@compiled()
def _sigmoids(x: F64) -> F64:
    found = np.empty_like(x)
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            found[i, k] = _sigmoid(x[i, k])
    return found


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
    rows: GroupRows,
    signs: F64,
    squares: F64,
    alone: F64,
    objective: LinearObjective,
    key: np.uint64,
    dual: F64,
    w: F64,
) -> int:
    """Minimise |w|^2 / 2 + cost * sum of max(0, 1 - sign * w.x)^2; returns the rounds used.

    On entry w = sum of dual * sign * x. A document at dual 0 whose gradient exceeds all others of the last round is
    left out until the rest is solved (shrinking).
    """
    order, bias, ridge = np.flatnonzero(signs), objective.bias, 0.5 / objective.cost
    n = len(order)
    active, counter, used, limit = n, 0, 0, np.inf
    while used < objective.rounds:
        counter = _shuffle(order, active, key, counter)
        highest, lowest, at = -np.inf, np.inf, 0
        while at < active:
            i = order[at]
            gradient = signs[i] * _dot(rows, i, w, bias) - 1.0 + (alone[i] + ridge) * dual[i]
            if dual[i] == 0.0 and gradient > limit:
                active -= 1
                order[at], order[active] = order[active], order[at]
                continue
            at += 1
            projected = min(gradient, 0.0) if dual[i] == 0.0 else gradient
            highest, lowest = max(highest, projected), min(lowest, projected)
            if projected != 0.0:
                moved = max(dual[i] - gradient / (squares[i] + ridge), 0.0)
                _add(rows, i, (moved - dual[i]) * signs[i], w, bias)
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
def _new_logit(old: float, share: float, margin: float, scale: float, tolerance: float) -> tuple[float, float]:
    """The root t of t + margin + scale * (sigmoid(t) - share) with its sigmoid, by Newton's method inside a bracket.

    share: sigmoid(old).
    """
    low, high = -margin - scale * (1.0 - share), -margin + scale * share
    t, s = old, share
    if not low <= t <= high:
        t = min(max(t, low), high)
        s = _sigmoid(t)
    for _ in range(_NEWTON_STEPS):
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
        s = _sigmoid(t)
    return t, s


@compiled()
def _logistic(
    rows: GroupRows,
    signs: F64,
    squares: F64,
    alone: F64,
    objective: LinearObjective,
    key: np.uint64,
    logits: F64,
    w: F64,
    used: I32,
) -> None:
    """Minimise |w|^2 / 2 + cost * sum of log(1 + exp(-sign * w.x)) for several problems on the same documents.

    signs and logits are (documents, problems), w is (columns + 1, problems); used: the rounds of each. A dual variable
    is cost * sigmoid(logit), so it stays inside (0, cost) by itself and nothing is lost near either end. At the
    solution logit = -margin. On entry w = sum of dual * sign * x.

    A row is read once for all problems, and what is read of w lies side by side: with one problem at a time most of
    the time goes into fetching single numbers. A problem that is solved is left alone while the others go on.
    """
    bias, cost, close = objective.bias, objective.cost, 0.1 * objective.tolerance
    order, problems = np.arange(len(rows.place)), w.shape[1]
    shares = _sigmoids(logits)
    margins, steps, largest = np.empty(problems), np.empty(problems), np.empty(problems)
    done = np.zeros(problems, dtype=np.bool_)
    used[:] = 0
    counter = 0
    while not np.all(done):
        counter = _shuffle(order, len(order), key, counter)
        largest[:] = 0.0
        for i in order:
            _dots(rows, i, w, bias, margins)
            moves = False
            for k in range(problems):
                steps[k] = 0.0
                sign = signs[i, k]
                if done[k] or sign == 0.0:
                    continue
                margin = sign * margins[k] + alone[i] * cost * shares[i, k]
                gradient = abs(logits[i, k] + margin)
                largest[k] = max(largest[k], gradient)
                if gradient > close:
                    moved, share = _new_logit(logits[i, k], shares[i, k], margin, squares[i] * cost, close)
                    steps[k] = cost * (share - shares[i, k]) * sign
                    logits[i, k], shares[i, k] = moved, share
                    moves = True
            if moves:
                _adds(rows, i, steps, w, bias)
        for k in range(problems):
            if not done[k]:
                used[k] += 1
                done[k] = largest[k] <= objective.tolerance or used[k] == objective.rounds


@compiled()
def _solve(
    rows: GroupRows,
    signs: F64,
    squares: F64,
    alone: F64,
    objective: LinearObjective,
    key: np.uint64,
    w: F64,
    used: I32,
) -> F64:
    """Solve problems side by side; signs: (documents, problems); w: zero on entry. Returns dual * sign of documents."""
    logistic, bias, cost = objective.logistic, objective.bias, objective.cost
    dual = np.full(signs.shape, _FIRST_LOGIT if logistic else 0.0)
    if logistic:
        of_row = np.empty(signs.shape[1])
        for i in range(len(rows.place)):
            for k in range(len(of_row)):
                of_row[k] = cost * _sigmoid(dual[i, k]) * signs[i, k]
            _adds(rows, i, of_row, w, bias)
        _logistic(rows, signs, squares, alone, objective, key, dual, w, used)
        dual = cost * _sigmoids(dual)
    else:
        used[0] = _squared_hinge(rows, signs.ravel(), squares, alone, objective, key, dual.ravel(), w.ravel())
    return dual * signs


@compiled()
def _together(job: I64, at: int, group_of: I64, logistic: bool) -> int:
    """How many problems from place `at` of the job are solved side by side: those of one group."""
    most = min(len(job) - at, _SIDE_BY_SIDE if logistic else 1)
    count = 1
    while count < most and group_of[job[at + count]] == group_of[job[at]]:
        count += 1
    return count


@compiled()
def _mark(members: I32, problem: int, problems: Problems, signs: F64) -> bool:
    """signs[i] = +1 for a positive of the problem, 0 for one left out, else -1. False if a positive is no member."""
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
def _columns_of(indptr: I64, indices: I32, members: I32, local: I32) -> tuple[I32, int]:
    """The columns that occur in these rows, sorted, and how many of them occur in several.

    local[column] (-1 on entry) becomes its place among those; where only row i has the column, -2 - i.
    """
    entries = 0
    for member in members:
        entries += indptr[member + 1] - indptr[member]
    found = np.empty(min(entries, len(local)), dtype=np.int32)
    count = 0
    for i in range(len(members)):
        for entry in range(indptr[members[i]], indptr[members[i] + 1]):
            column = indices[entry]
            if local[column] == -1:
                local[column] = -2 - i
                found[count] = column
                count += 1
            else:
                local[column] = 0
    columns, shared = np.sort(found[:count]), 0
    for column in columns:
        if local[column] == 0:
            local[column] = shared
            shared += 1
    return columns, shared


@compiled()
def _rows_of(indptr: I64, indices: I32, data: F32, members: I32, local: I32, alone: F64) -> tuple[I64, I32, F32]:
    """These rows as a CSR matrix of the columns that several have, with local numbers: weights then fit into the cache.

    alone[i], 0 on entry, becomes the squared length of what only row i has.
    """
    entries = 0
    for member in members:
        entries += indptr[member + 1] - indptr[member]
    starts, columns, values = (
        np.zeros(len(members) + 1, dtype=np.int64),
        np.empty(entries, dtype=np.int32),
        np.empty(entries, dtype=np.float32),
    )
    filled = 0
    for i in range(len(members)):
        for entry in range(indptr[members[i]], indptr[members[i] + 1]):
            column = local[indices[entry]]
            if column < 0:
                alone[i] += np.float64(data[entry]) ** 2
            else:
                columns[filled], values[filled] = column, data[entry]
                filled += 1
        starts[i + 1] = filled
    return starts, columns[:filled], values[:filled]


@compiled()
def _single_values(indptr: I64, indices: I32, data: F32, members: I32, local: I32, columns: I32) -> F64:
    """The value of each column that one row alone has; 0 of the others."""
    values = np.zeros(len(columns))
    for member in members:
        for entry in range(indptr[member], indptr[member + 1]):
            if local[indices[entry]] < -1:
                values[np.searchsorted(columns, indices[entry])] = data[entry]
    return values


@compiled()
def _room_for(array: Any, needed: int) -> Any:
    """The array, or a copy with at least twice the room."""
    if needed <= len(array):
        return array
    grown = np.empty(max(needed, 2 * len(array)), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


@compiled()
def solve(
    job: I64,
    problems: Problems,
    words: Pieces,
    tail: F32,
    n_columns: int,
    objective: LinearObjective,
    prune: float,
    seed: np.uint64,
    out_bias: F32,
    out_rounds: I32,
    out_tail: F32,
) -> tuple[bool, I64, I32, F32]:
    """Solve the problems of a job.  words: (N, V), the sparse columns; tail: (N, E), the dense ones.

    Returns whether all positives were in their groups, and the weights of |w| > prune: numbers per problem, columns,
    values.
    """
    sizes = np.zeros(len(job), dtype=np.int64)
    columns, values, filled = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.float32), 0
    local = np.full(n_columns, -1, dtype=np.int32)
    at = 0
    while at < len(job):
        group = problems.group_of[job[at]]
        members = problems.group_rows[problems.group_starts[group] : problems.group_starts[group + 1]]
        own, shared = _columns_of(words.indptr, words.indices, members, local)
        alone = np.zeros(len(members))
        indptr, indices, data = _rows_of(words.indptr, words.indices, words.data, members, local, alone)
        single = _single_values(words.indptr, words.indices, words.data, members, local, own)
        rows, width = GroupRows(indptr, indices, data, tail, members), shared + tail.shape[1]
        squares = _squares(rows, objective.bias) + alone
        while at < len(job) and problems.group_of[job[at]] == group:
            count = _together(job, at, problems.group_of, objective.logistic)
            signs, w, used = (
                np.empty((len(members), count)),
                np.zeros((width + 1, count)),
                np.zeros(count, dtype=np.int32),
            )
            for k in range(count):
                if not _mark(members, job[at + k], problems, signs[:, k]):
                    return False, sizes, columns, values
            key = key_of(seed, job[at])
            factors = _solve(rows, signs, squares, alone, objective, key, w, used)
            for k in range(count):
                problem = job[at + k]
                out_rounds[problem], out_bias[problem] = used[k], w[width, k] * objective.bias
                for column in range(tail.shape[1]):
                    out_tail[problem, column] = w[shared + column, k]
                columns, values = _room_for(columns, filled + len(own)), _room_for(values, filled + len(own))
                before = filled
                for column in range(len(own)):
                    where = local[own[column]]
                    weight = w[where, k] if where >= 0 else factors[-2 - where, k] * single[column]
                    if abs(weight) > prune:
                        columns[filled], values[filled] = own[column], weight
                        filled += 1
                sizes[at + k] = filled - before
            at += count
        for column in own:
            local[column] = -1
    return True, sizes, columns[:filled].copy(), values[:filled].copy()
