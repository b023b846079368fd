"""Drawing and striking out negative labels, one document per piece of work.

Forbidden labels (a document's positives and masked pairs) are rows of a CSR array with sorted columns. Lists are (B,
m) int32, with -1 where there is no label. Random numbers are keyed by (seed, place in the batch).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.basics import below, draw, key_of, offer, room, slot_of, unit
from longtail.kernels.compiled import compiled, prange
from longtail.types import F32, I32, I64

F64 = NDArray[np.float64]

# Draws per wanted label before giving up: with very uneven weights the same few labels come again and again.
_PATIENCE = 32


@compiled()
def is_forbidden(ptr: I64, labels: I32, row: int, label: int | np.int64) -> bool:
    low, high = ptr[row], ptr[row + 1]
    while low < high:
        middle = (low + high) // 2
        if labels[middle] < label:
            low = middle + 1
        else:
            high = middle
    return low < ptr[row + 1] and labels[low] == label


@compiled()
def _taken(others: I32, more: int) -> I32:
    """A hash set (see `longtail.kernels.basics`) of the labels in a list, with room for some more."""
    keys = np.full(room(len(others) + more), -1, dtype=np.int32)
    for label in others:
        if label >= 0:
            keys[slot_of(keys, label)] = label
    return keys


@compiled(parallel=True)
def strike_out(found: I32, rows: I64, ptr: I64, labels: I32, out: I32) -> None:
    """The first labels of each list that are not forbidden for the document rows[b], as many as `out` has room for."""
    for b in prange(len(found)):
        document = np.int64(b)
        size = 0
        for label in found[document]:
            if label >= 0 and size < out.shape[1] and not is_forbidden(ptr, labels, rows[document], label):
                out[document, size] = label
                size += 1
        out[document, size:] = -1


@compiled(parallel=True)
def sample_pool(
    pool: I32, weights: F32, rows: I64, seed: np.uint64, ptr: I64, labels: I32, avoid: I32, out: I32
) -> None:
    """Random labels of a pool that are not forbidden for rows[b] nor in avoid[b]; all such where `out` has room for
    the pool.

    Without replacement, with probability by weight (Efraimidis, Spirakis 2006); empty `weights` mean equal ones.
    """
    for b in prange(len(rows)):
        document = np.int64(b)
        key, taken = key_of(seed, document), _taken(avoid[document], 0)
        races = np.empty(out.shape[1], dtype=np.float32)
        size = 0
        for place in range(len(pool)):
            label, weight = pool[place], float(weights[place]) if len(weights) > 0 else 1.0
            if (
                weight <= 0.0
                or taken[slot_of(taken, label)] == label
                or is_forbidden(ptr, labels, rows[document], label)
            ):
                continue
            if len(pool) <= out.shape[1]:
                out[document, size] = label
                size += 1
            else:
                luck = 1.0 - unit(draw(key, place))
                size = offer(out[document], races, size, label, math.log(luck) / weight if len(weights) > 0 else luck)
        out[document, size:] = -1


@compiled(parallel=True)
def sample_all(
    n_labels: int, keep: F32, other: I32, rows: I64, seed: np.uint64, ptr: I64, labels: I32, avoid: I32, out: I32
) -> None:
    """Random labels of all without replacement, by drawing and rejecting: fast where few are wanted of many.

    keep, other: an alias table (`alias_table`), or empty for equal weights.
    """
    for b in prange(len(rows)):
        document = np.int64(b)
        key, wanted = key_of(seed, document), out.shape[1]
        taken = _taken(avoid[document], wanted)
        size = 0
        for attempt in range(_PATIENCE * wanted):
            if size == wanted:
                break
            label = below(draw(key, 2 * attempt), n_labels)
            if len(keep) > 0 and unit(draw(key, 2 * attempt + 1)) >= keep[label]:
                label = np.int64(other[label])
            slot = slot_of(taken, label)
            if taken[slot] < 0 and not is_forbidden(ptr, labels, rows[document], label):
                taken[slot] = label
                out[document, size] = label
                size += 1
        out[document, size:] = -1


@compiled()
def alias_table(weights: F64, keep: F32, other: I32) -> None:
    """Walker's table: pick a label evenly, keep it with probability `keep`, else take `other`. Weights must not all
    be zero.
    """
    n = len(weights)
    share = weights * (n / weights.sum())
    small, large = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    smalls, larges = 0, 0
    for label in range(n):
        keep[label] = 1.0
        other[label] = label
        if share[label] < 1.0:
            small[smalls] = label
            smalls += 1
        else:
            large[larges] = label
            larges += 1
    while smalls > 0 and larges > 0:
        smalls -= 1
        poor, rich = small[smalls], large[larges - 1]
        keep[poor] = share[poor]
        other[poor] = rich
        share[rich] -= 1.0 - share[poor]
        if share[rich] < 1.0:
            larges -= 1
            small[smalls] = rich
            smalls += 1


@compiled(parallel=True)
def join(
    ptr: I64,
    positives: I32,
    negatives: I32,
    most: int,
    seed: np.uint64,
    ids: I32,
    targets: F32,
    mask: NDArray[np.bool_],
) -> None:
    """Per document up to `most` of its positives (a random choice where it has more), then its negatives, then
    padding.
    """
    for b in prange(len(negatives)):
        document = np.int64(b)
        key, start, end = key_of(seed, document), ptr[document], ptr[document + 1]
        chosen, races = (
            np.empty(min(most, end - start), dtype=np.int32),
            np.empty(min(most, end - start), dtype=np.float32),
        )
        size = 0
        for entry in range(start, end):
            size = offer(chosen, races, size, positives[entry], unit(draw(key, entry - start)))
        ids[document, :size] = chosen
        targets[document, :size] = 1.0
        for label in negatives[document]:
            if label >= 0:
                ids[document, size] = label
                size += 1
        mask[document, :size] = True
