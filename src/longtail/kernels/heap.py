"""The k best of a stream of (id, score), ordered by score, ties by id: a bounded heap with the worst kept at its
root.
"""

from __future__ import annotations

import numpy as np

from longtail.kernels.compiled import compiled
from longtail.types import F32, I32


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
def settle(ids: I32, scores: F32, size: int) -> None:
    """Turn the heap into a list, best first."""
    while size > 1:
        size -= 1
        last_id, last_score = ids[size], scores[size]
        ids[size], scores[size] = ids[0], scores[0]
        _sink(ids, scores, size, last_id, last_score)


@compiled()
def better_half(ids: I32, scores: F32, size: int, keep: int) -> np.float32:
    """Bring the `keep` highest of the first `size` scores to the front, with their ids, in any order; returns the
    lowest of them.
    """
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
