"""Sums per label without an array of all labels: an open-addressed hash table that one task owns and clears.

keys: (2^m) int32, -1 where free; values: (2^m) float32; used: slots taken, in order of arrival. The table must be
created (`table`) for at least twice the number of different labels.
"""

from __future__ import annotations

import numpy as np

from longtail.kernels.compiled import compiled
from longtail.types import F32, I32, I64

_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@compiled()
def room(entries: int | np.int64) -> int:
    """Slots for a table of up to `entries` different labels: a power of two, at most half of it taken."""
    slots = 4
    while slots < 2 * entries:
        slots *= 2
    return slots


@compiled()
def table(entries: int | np.int64) -> tuple[I32, F32, I64]:
    """keys, values and used of an empty table for up to `entries` different labels."""
    slots = room(entries)
    return np.full(slots, -1, dtype=np.int32), np.zeros(slots, dtype=np.float32), np.zeros(slots, dtype=np.int64)


@compiled()
def slot_of(keys: I32, label: int | np.int64) -> np.int64:
    """The slot that holds `label`, or the free one where it belongs."""
    last = np.int64(len(keys) - 1)
    slot = np.int64((np.uint64(label) * _SPREAD) >> np.uint64(33)) & last
    while keys[slot] >= 0 and keys[slot] != label:
        slot = (slot + 1) & last
    return slot


@compiled()
def add(keys: I32, values: F32, used: I64, size: int, label: int, amount: float) -> int:
    """Add `amount` to the sum of `label`; returns the number of different labels so far."""
    slot = slot_of(keys, label)
    if keys[slot] < 0:
        keys[slot] = label
        values[slot] = 0.0
        used[size] = slot
        size += 1
    values[slot] += amount
    return size


@compiled()
def clear(keys: I32, used: I64, size: int) -> None:
    for i in range(size):
        keys[used[i]] = -1
