"""What kernels of several rooms are made of: the k best of a stream, sums per label, and random numbers."""

from __future__ import annotations

import numpy as np

from longtail.kernels.compiled import compiled
from longtail.types import F32, I32, I64

# ---- the k best of a stream of (id, score) by score, ties by id: a bounded heap with the worst kept at its root ----

# From so many on they are sorted as numbers in place of being taken from a heap one by one.
MANY_KEPT = 32


@compiled()
def ranks_before(score: float, id: int, other_score: float, other_id: int) -> bool:
    return score > other_score or (score == other_score and id < other_id)


@compiled()
def _sink(ids: I32, scores: F32, size: int, id: int, score: float) -> None:
    """Put an entry at the root of a heap of `size` entries and let it sink to its place."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and ranks_before(scores[child], ids[child], scores[child + 1], ids[child + 1]):
            child += 1
        if not ranks_before(score, id, scores[child], ids[child]):
            break
        ids[place], scores[place] = ids[child], scores[child]
        place = child
    ids[place], scores[place] = id, score


@compiled()
def offer(ids: I32, scores: F32, size: int, id: int, score: float) -> int:
    """Offer an entry to the heap in the arrays (their length is k); returns how many entries the heap holds now."""
    if size < len(ids):
        place = size
        while place > 0:
            parent = (place - 1) // 2
            if not ranks_before(scores[parent], ids[parent], score, id):
                break
            ids[place], scores[place] = ids[parent], scores[parent]
            place = parent
        ids[place], scores[place] = id, score
        return size + 1
    if size > 0 and ranks_before(score, id, scores[0], ids[0]):
        _sink(ids, scores, size, id, score)
    return size


@compiled()
def ranked_numbers(ids: I32, scores: F32) -> I64:
    """(id, score) as numbers, the lower the better: the bits of the score above, turned so that they fall as it rises,
    and the id below. Sorting or splitting them is one comparison for each step, where a heap takes two and a jump.
    """
    kept = scores + np.float32(0.0)  # -0 becomes 0; a copy, whose bits can be looked at
    bits, numbers = kept.view(np.int32), np.empty(len(ids), dtype=np.int64)
    for i in range(len(ids)):
        rising = np.int64(bits[i])
        if rising < 0:
            rising ^= np.int64(0x7FFFFFFF)
        numbers[i] = (~rising << np.int64(32)) | np.int64(ids[i])
    return numbers


@compiled()
def as_entries(numbers: I64, ids: I32, scores: F32) -> None:
    """What `ranked_numbers` were made of, in their order."""
    bits = np.empty(len(numbers), dtype=np.int32)
    for i in range(len(numbers)):
        rising = ~(numbers[i] >> np.int64(32))
        bits[i] = rising ^ np.int64(0x7FFFFFFF) if rising < 0 else rising
        ids[i] = numbers[i] & np.int64(0xFFFFFFFF)
    scores[: len(numbers)] = bits.view(np.float32)


@compiled()
def settle(ids: I32, scores: F32, size: int) -> None:
    """Turn the heap into a list, best first."""
    if size > MANY_KEPT:
        numbers = ranked_numbers(ids[:size], scores[:size])
        numbers.sort()
        as_entries(numbers, ids, scores)
        return
    while size > 1:
        size -= 1
        last_id, last_score = ids[size], scores[size]
        ids[size], scores[size] = ids[0], scores[0]
        _sink(ids, scores, size, last_id, last_score)


@compiled()
def better_half(ids: I32, scores: F32, size: int, keep: int) -> np.float32:
    """Bring the `keep` highest of the first `size` scores to the front, in any order, with ids; returns the lowest."""
    low, high = 0, size - 1
    while low < high:
        pivot = scores[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while scores[i] > pivot:
                i += 1
            while scores[j] < pivot:
                j -= 1
            if i <= j:
                scores[i], scores[j] = scores[j], scores[i]
                ids[i], ids[j] = ids[j], ids[i]
                i += 1
                j -= 1
        if keep - 1 <= j:
            high = j
        elif keep - 1 >= i:
            low = i
        else:
            break
    return scores[keep - 1]


# ---- random numbers as a pure function of (key, counter): the same for any number of threads, in any order ----
#
# SplitMix64 (Steele, Lea, Flood 2014). A key names the stream, e.g. one per label; the counter numbers its draws.

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@compiled()
def mixed(bits: np.uint64) -> np.uint64:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


@compiled()
def key_of(seed: np.uint64, item: int | np.int64) -> np.uint64:
    """The stream of one item (label, document, node)."""
    return mixed(seed + mixed(np.uint64(item) * _GAMMA + np.uint64(1)))


@compiled()
def draw(key: np.uint64, counter: int) -> np.uint64:
    """64 random bits: number `counter` of the stream `key`."""
    return mixed(key + np.uint64(counter + 1) * _GAMMA)


@compiled()
def below(bits: np.uint64, n: int) -> np.int64:
    """A number in 0..n-1 from the upper 32 bits (n < 2^32; uneven by less than n / 2^32)."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@compiled()
def unit(bits: np.uint64) -> float:
    """A number in [0, 1) from the upper 53 bits."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


# ---- sums per label without an array of all labels: an open-addressed hash table that one task owns and clears ----
#
# keys: (2^m) int32, -1 where free; values: (2^m) float32; used: slots taken, in order of arrival. The table must be
# created (`table`) for at least twice the number of different labels.


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
    slot = np.int64((np.uint64(label) * _GAMMA) >> np.uint64(33)) & last
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
