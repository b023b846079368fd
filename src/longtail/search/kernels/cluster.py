"""Balanced 2-means: all nodes of a level of the tree are split in parallel, each by one task.

Rows are CSR (`indptr`, `indices`, `data`) or, with ``indptr = indices = None``, dense ones, one after the other in
`data`; numba compiles each case on its own. A node's two centres are kept as unnormalised float64 sums (columns, 2),
zero between nodes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.basics import below, draw, key_of, unit
from longtail.kernels.compiled import compiled, prange
from longtail.types import F32, I64

F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

PLUS, MINUS = 0, 1


@compiled()
def _dots(indptr: Any, indices: Any, data: F32, row: int, sums: F64) -> tuple[float, float]:
    """The row's inner products with both sums."""
    plus, minus = 0.0, 0.0
    if indptr is None:
        for column in range(len(sums)):
            plus += data[row * len(sums) + column] * sums[column, PLUS]
            minus += data[row * len(sums) + column] * sums[column, MINUS]
    else:
        for entry in range(indptr[row], indptr[row + 1]):
            plus += data[entry] * sums[indices[entry], PLUS]
            minus += data[entry] * sums[indices[entry], MINUS]
    return plus, minus


@compiled()
def _add(indptr: Any, indices: Any, data: F32, row: int, factor: float, sums: F64, side: int) -> float:
    """Add `factor` times the row to the sum of a side; returns by how much the squared length of that sum grows."""
    growth = 0.0
    if indptr is None:
        for column in range(len(sums)):
            value = factor * data[row * len(sums) + column]
            growth += value * (2.0 * sums[column, side] + value)
            sums[column, side] += value
    else:
        for entry in range(indptr[row], indptr[row + 1]):
            value = factor * data[entry]
            growth += value * (2.0 * sums[indices[entry], side] + value)
            sums[indices[entry], side] += value
    return growth


@compiled()
def _forget(indptr: Any, indices: Any, members: I64, sums: F64) -> None:
    """Set what the members touch in the sums back to zero (everything, if dense)."""
    if indptr is None:
        sums[:] = 0.0
    else:
        for row in members:
            for entry in range(indptr[row], indptr[row + 1]):
                sums[indices[entry], PLUS] = 0.0
                sums[indices[entry], MINUS] = 0.0


@compiled()
def _nth_alive(alive: Bools, members: I64, n: np.int64) -> int:
    """Which member is number `n` of those that are not zero."""
    for i in range(len(members)):
        if alive[members[i]]:
            if n == 0:
                return i
            n -= 1
    return -1


@compiled()
def _seed(indptr: Any, indices: Any, data: F32, alive: Bools, members: I64, key: np.uint64, sums: F64) -> bool:
    """2-means++: a random member, and a second with probability by 1 - cosine to it. False where all members look the
    same.
    """
    living = 0
    for i in range(len(members)):
        living += alive[members[i]]
    if living < 2:
        return False
    first = members[_nth_alive(alive, members, below(draw(key, 0), living))]
    _add(indptr, indices, data, first, 1.0, sums, PLUS)
    distance = np.zeros(len(members))
    total = 0.0
    for i in range(len(members)):
        if alive[members[i]]:
            # Below 1e-6 it is rounding: the same direction.
            apart = 1.0 - _dots(indptr, indices, data, members[i], sums)[0]
            distance[i] = apart if apart > 1e-6 else 0.0
            total += distance[i]
    if total == 0.0:
        _forget(indptr, indices, members, sums)
        return False
    target, second = unit(draw(key, 1)) * total, -1
    for i in range(len(members)):
        if distance[i] > 0.0:
            second = i
            target -= distance[i]
            if target < 0.0:
                break
    _add(indptr, indices, data, members[second], 1.0, sums, MINUS)
    return True


@compiled()
def _split(
    indptr: Any,
    indices: Any,
    data: F32,
    alive: Bools,
    members: I64,
    half: int,
    key: np.uint64,
    tolerance: float,
    sums: F64,
    minus: Bools,
    trace: F64,
) -> int:
    """Assign `half` members to the first part and the others to the second (`minus`); returns the number of rounds,
    with objectives in `trace`.

    The objective is the mean cosine to the own centre, which is (|sum of +| + |sum of -|) / n as centres are
    normalised sums.
    """
    n = len(members)
    for i in range(n):
        minus[i] = i >= half
    if n < 3 or half == n or not _seed(indptr, indices, data, alive, members, key, sums):
        return 0
    squared = np.ones(2)
    gap = np.zeros(n)
    rounds = 0
    while rounds < len(trace):
        for i in range(n):
            plus_dot, minus_dot = _dots(indptr, indices, data, members[i], sums)
            gap[i] = (minus_dot / math.sqrt(squared[MINUS]) if squared[MINUS] > 0.0 else 0.0) - (
                plus_dot / math.sqrt(squared[PLUS]) if squared[PLUS] > 0.0 else 0.0
            )
        order = np.argsort(gap, kind="mergesort")
        if rounds == 0:
            # The seeds have done their work: from here on the sums are those of the halves.
            _forget(indptr, indices, members, sums)
            squared[:] = 0.0
        for rank in range(n):
            i = order[rank]
            to_minus = rank >= half
            if rounds == 0 or minus[i] != to_minus:
                squared[int(to_minus)] += _add(indptr, indices, data, members[i], 1.0, sums, int(to_minus))
                if rounds > 0:
                    squared[1 - int(to_minus)] += _add(indptr, indices, data, members[i], -1.0, sums, 1 - int(to_minus))
                minus[i] = to_minus
        trace[rounds] = (math.sqrt(max(squared[PLUS], 0.0)) + math.sqrt(max(squared[MINUS], 0.0))) / n
        rounds += 1
        if rounds > 1 and trace[rounds - 1] - trace[rounds - 2] < tolerance:
            break
    _forget(indptr, indices, members, sums)
    return rounds


@compiled(parallel=True)
def split_level(
    indptr: Any,
    indices: Any,
    data: F32,
    columns: int,
    alive: Bools,
    order: I64,
    bounds: I64,
    firsts: I64,
    seed: np.uint64,
    tolerance: float,
    tasks: int,
    halves: I64,
    traces: F64,
    rounds: I64,
) -> None:
    """Split every node of a level. Node j owns ``order[bounds[j]:bounds[j + 1]]``; `halves` gets the same members,
    the `firsts[j]` of + before -.

    Within a half the order of members is kept, so that ties always go by row number.
    """
    nodes = np.int64(len(bounds) - 1)
    for task in prange(tasks):
        sums = np.zeros((columns, 2))
        for node in range(nodes * np.int64(task) // tasks, nodes * (np.int64(task) + 1) // tasks):
            members = order[bounds[node] : bounds[node + 1]]
            minus = np.zeros(len(members), dtype=np.bool_)
            rounds[node] = _split(
                indptr,
                indices,
                data,
                alive,
                members,
                firsts[node],
                key_of(seed, node),
                tolerance,
                sums,
                minus,
                traces[node],
            )
            plus_at, minus_at = bounds[node], bounds[node] + firsts[node]
            for i in range(len(members)):
                if minus[i]:
                    halves[minus_at] = members[i]
                    minus_at += 1
                else:
                    halves[plus_at] = members[i]
                    plus_at += 1
