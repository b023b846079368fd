"""Rows that are the sum of text and a trusted free vector, on a CPU: made, and taught, in one pass over memory each;
and votes of training documents at prediction.

bf16 numbers are handed over as their 16 bits; a float32 with the same upper half is the same number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled, prange
from longtail.nn.kernels import adam_row
from longtail.search.kernels.nearest import Lists, Pointers, nearest_rows
from longtail.types import F32, I32

# Rows that a thread takes at a time, with one scratch row.
_CHUNK = 64


@compiled(inline=True)
def _bits(value: Any) -> Any:
    """float32 -> the nearest bf16, ties to even, as torch rounds."""
    bits = np.float32(value).view(np.uint32)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@compiled(inline=True)
def _number(bits: Any) -> Any:
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@compiled(parallel=True)
def composed_bits(
    out: NDArray[np.uint16], free: NDArray[np.float32], trust: NDArray[np.float32], text: NDArray[np.float32]
) -> None:
    """out[:, :D + 1] = (trust * free + text, bias) as bf16.

    free: (L, D + 1).  trust: (L, 1).  text: (L, D), or (0, D) for none.
    """
    width = free.shape[1] - 1
    for index in prange(free.shape[0]):
        n = np.int64(index)
        for d in range(width):
            value = free[n, d] * trust[n, 0]
            out[n, d] = _bits(value + text[n, d]) if text.shape[0] else _bits(value)
        out[n, width] = _bits(free[n, width])


@compiled(parallel=True)
def learn_composed(
    free: NDArray[np.float32],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
    gradient: NDArray[np.uint16],
    scale: np.float32,
    trust: NDArray[np.float32],
    text_gradient: NDArray[np.float32],
    factors: NDArray[np.float32],
) -> None:
    """Adam on free vectors, and the gradient of texts summed up.

    gradient: bf16 of the shape of `free` or larger, to be multiplied by `scale`.
    """
    width = free.shape[1] - 1
    for chunk in prange((free.shape[0] + _CHUNK - 1) // _CHUNK):
        start = np.int64(chunk) * _CHUNK
        own = np.empty(width + 1, dtype=np.float32)
        for n in range(start, min(start + _CHUNK, free.shape[0])):
            for d in range(width):
                value = _number(gradient[n, d]) * scale
                if text_gradient.shape[0]:
                    text_gradient[n, d] += value
                own[d] = value * trust[n, 0]
            own[width] = _number(gradient[n, width]) * scale
            adam_row(free[n], first[n], second[n], own, factors)


@compiled(parallel=True)
def votes_for(
    queries: Lists,
    postings: Lists,
    rows: Lists,
    heaviest: F32,
    targets: Pointers,
    rarity: F32,
    neighbours: int,
    ids: I32,
    found: F32,
    n_workers: int,
) -> None:
    """Nearest documents vote for labels with the square of their similarity; `found` (B, k) gets the share that each
    of the labels `ids` has of the whole vote, by its rarity.

    queries: (B, V or more) as (starts, columns, values), columns ascending; those beyond the V words of `postings` are
    not looked at. Others as in `search.kernels.nearest.rank_sparse`.
    """
    query_start, query_columns, query_values = queries
    target_start, target_labels = targets
    n_rows, n_words = len(target_start) - 1, len(heaviest)
    for worker in prange(n_workers):
        similarity = np.zeros(n_rows, dtype=np.float32)
        touched = np.empty(n_rows, dtype=np.int32)
        weight_of = np.zeros(n_words, dtype=np.float32)
        votes = np.zeros(len(rarity), dtype=np.float32)
        keys = np.empty(neighbours, dtype=np.float32)
        documents = np.empty(neighbours, dtype=np.int32)
        room = (similarity, touched, weight_of, keys, documents)
        for query in range(np.int64(worker), len(ids), n_workers):
            first, last = query_start[query], query_start[query + 1]
            while last > first and query_columns[last - 1] >= n_words:
                last -= 1
            near = nearest_rows(
                query_columns[first:last], query_values[first:last], postings, rows, heaviest, True, room, neighbours
            )
            total = np.float32(0.0)
            for position in range(near):
                weight = keys[position] * keys[position]
                total += weight
                row = documents[position]
                for at in range(target_start[row], target_start[row + 1]):
                    votes[target_labels[at]] += weight
            if total > 0.0:
                for place in range(ids.shape[1]):
                    label = ids[query, place]
                    if label >= 0:
                        found[query, place] = rarity[label] * votes[label] / total
            for position in range(near):
                row = documents[position]
                for at in range(target_start[row], target_start[row + 1]):
                    votes[target_labels[at]] = 0.0
