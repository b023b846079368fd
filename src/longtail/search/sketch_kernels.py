"""Candidates by their first numbers, as bytes: of all rows, or of the leaves whose centres are best; and a whole look at them.

Candidates are many, and their order does not matter; a heap of them would cost more than the products. So they are put down in a pool
as they come, if they beat a threshold. Of all rows, or of the centres of leaves, a thousand tell the threshold beforehand (`promising`).
A pool that is full is cut to its better half, the worst of which is the threshold from then on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.compiled import compiled, prange
from longtail.graph.ranking_kernels import offer
from longtail.search.byte_kernels import BLOCK, COLUMN, LOWEST, TILE, products, scaled
from longtail.search.fetch_kernels import fetch_rows
from longtail.search.product_kernels import product
from longtail.types import F32, I32, I64

# How many candidates before its turn a row is asked for.
_AHEAD = 4


@compiled()
def better_half(ids: I32, scores: F32, size: int, keep: int) -> np.float32:
    """Bring the `keep` highest of the first `size` scores to the front, with their ids, in any order; returns the lowest of them."""
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


@compiled()
def _collect(values: F32, first: int, count: int, ids: I32, scores: F32, size: int, threshold: np.float32) -> tuple[int, np.float32]:
    """Put down what beats the threshold. ids, scores: the pool, whose better half is kept when it is full."""
    room = len(ids)
    for i in range(count):
        if values[i] > threshold:
            ids[size], scores[size] = first + i, values[i]
            size += 1
            if size == room:
                size = room // 2
                threshold = better_half(ids, scores, room, size)
    return size, threshold


@compiled()
def _best_rows(
    rows: NDArray[np.int8], scales: F32, offsets: F32, totals: F32, query: NDArray[np.uint8], scale: np.float32, last: np.float32, shift: np.float32,
    sums: I32, values: F32, ids: I32, scores: F32,
) -> int:  # fmt: skip
    """The best k rows of one query, as a heap; returns how many."""
    size, k = 0, len(ids)
    for first in range(0, len(rows), BLOCK):
        count = min(BLOCK, len(rows) - first)
        products(rows, first, count, query, 0, sums)
        if scaled(sums[0], scale, scales, last, offsets, shift, totals, first, count, scores[0] if size == k else LOWEST, values):
            for i in range(count):
                if size < k or values[i] > scores[0]:
                    size = offer(ids, scores, size, first + i, values[i])
    return size


@compiled(parallel=True)
def promising(
    scouts: NDArray[np.int8], scales: F32, offsets: F32, totals: F32, queries: NDArray[np.uint8], query_scales: F32, lasts: F32, shifts: F32,
    best: I32, best_scores: F32, thresholds: F32,
) -> None:  # fmt: skip
    """thresholds[b]: the k-th best score among a few rows, evenly taken. best, best_scores: (B, k) room. The rest: as in `collect_all`."""
    for unsigned in prange(len(thresholds)):
        b = np.int64(unsigned)
        sums, values = np.empty((TILE, BLOCK), np.int32), np.empty(BLOCK, np.float32)
        found = _best_rows(scouts, scales, offsets, totals, queries[b : b + 1], query_scales[b], lasts[b], shifts[b], sums, values, best[b], best_scores[b])
        thresholds[b] = best_scores[b, 0] if found == best.shape[1] else LOWEST


@compiled(parallel=True)
def collect_all(
    rows: NDArray[np.int8], scales: F32, offsets: F32, totals: F32, queries: NDArray[np.uint8], query_scales: F32, lasts: F32, shifts: F32,
    thresholds: F32, workers: int, ids: I32, scores: F32, sizes: I64,
) -> None:  # fmt: skip
    """Pools (B, m) with the rows that beat the threshold of each query (the better half of them, where they are too many).

    Tables and queries: as in `byte_kernels.scan_bytes`.  thresholds: (B,), changed.
    """
    n, documents = len(rows), len(ids)
    tiles = (documents + TILE - 1) // TILE
    for unsigned in prange(workers):
        worker = np.int64(unsigned)
        begin = worker * tiles // workers * TILE
        end: Any = min(documents, (worker + 1) * tiles // workers * TILE)
        sums, values = np.empty((TILE, BLOCK), np.int32), np.empty(BLOCK, np.float32)
        for first in range(0, n, BLOCK):
            count = min(BLOCK, n - first)
            for tile in range(begin, end, TILE):
                products(rows, first, count, queries, tile, sums)
                for query in range(tile, min(tile + TILE, end)):
                    scale, last, shift, threshold = query_scales[query], lasts[query], shifts[query], thresholds[query]
                    if scaled(sums[query - tile], scale, scales, last, offsets, shift, totals, first, count, threshold, values):
                        sizes[query], thresholds[query] = _collect(values, first, count, ids[query], scores[query], sizes[query], threshold)


@compiled()
def _promising_leaves(
    centres: NDArray[np.int8], scales: F32, offsets: F32, totals: F32, query: NDArray[np.uint8], scale: np.float32, last: np.float32, shift: np.float32,
    threshold: np.float32, sums: I32, values: F32, leaves: I32, leaf_scores: F32,
) -> int:  # fmt: skip
    """The leaves whose centres beat the threshold, in their order; returns how many."""
    size = 0
    for first in range(0, len(centres), BLOCK):
        count = min(BLOCK, len(centres) - first)
        products(centres, first, count, query, 0, sums)
        if scaled(sums[0], scale, scales, last, offsets, shift, totals, first, count, threshold, values):
            size, threshold = _collect(values, first, count, leaves, leaf_scores, size, threshold)
    return size


@compiled(parallel=True)
def collect_from_leaves(
    rows: NDArray[np.int8], scales: F32, offsets: F32, totals: F32,
    centres: NDArray[np.int8], centre_scales: F32, centre_offsets: F32, centre_totals: F32, leaf_ptr: I64,
    queries: NDArray[np.uint8], query_scales: F32, lasts: F32, shifts: F32, thresholds: F32,
    leaves: I32, leaf_scores: F32, ids: I32, scores: F32, sizes: I64,
) -> None:  # fmt: skip
    """As `collect_all`, among the rows of the leaves whose centres beat the thresholds (B,).

    leaf_ptr: (leaves + 1,) the rows of each.  leaves, leaf_scores: (B, m) room for the leaves.
    """
    for unsigned in prange(len(ids)):
        b = np.int64(unsigned)
        query, sums, values = queries[b : b + 1], np.empty((TILE, BLOCK), np.int32), np.empty(BLOCK, np.float32)
        scale, last, shift = query_scales[b], lasts[b], shifts[b]
        found = _promising_leaves(
            centres, centre_scales, centre_offsets, centre_totals, query, scale, last, shift, thresholds[b], sums, values, leaves[b], leaf_scores[b]
        )
        size, threshold = 0, LOWEST
        for place in range(found):
            if place + 1 < found:
                fetch_rows(rows, leaf_ptr[leaves[b, place + 1]], leaf_ptr[leaves[b, place + 1] + 1])
            start, end = leaf_ptr[leaves[b, place]], leaf_ptr[leaves[b, place] + 1]
            for first in range(start, end, BLOCK):
                count = min(BLOCK, end - first)
                # Whole columns where there are rows: those after the end are multiplied, and not looked at.
                products(rows, first, min((count + COLUMN - 1) // COLUMN * COLUMN, len(rows) - first), query, 0, sums)
                if scaled(sums[0], scale, scales, last, offsets, shift, totals, first, count, threshold, values):
                    size, threshold = _collect(values, first, count, ids[b], scores[b], size, threshold)
        sizes[b] = size


@compiled(parallel=True)
def score_again(
    values: NDArray[Any], scales: F32, offsets: F32, queries: F32, lasts: F32, pool_ids: I32, pool_scores: F32, pool_sizes: I64, keep: int, numbers: I32,
    ids: I32, scores: F32, sizes: I64,
) -> None:  # fmt: skip
    """Of the `keep` best of each pool (B, m) the best k by their whole products, as heaps (B, k) of what the rows stand for.

    values, scales, offsets, queries, lasts: as in `product_kernels.scan`.  numbers: (n,) what each row stands for, or none: itself.
    """
    for unsigned in prange(len(queries)):
        b = np.int64(unsigned)
        size, k = 0, ids.shape[1]
        if pool_sizes[b] > keep:
            better_half(pool_ids[b], pool_scores[b], pool_sizes[b], keep)
        looked_at = min(keep, pool_sizes[b])
        for place in range(looked_at):
            if place + _AHEAD < looked_at:
                fetch_rows(values, pool_ids[b, place + _AHEAD], pool_ids[b, place + _AHEAD] + 1)
            row = pool_ids[b, place]
            value = product(values, scales, offsets, row, queries, lasts, b)
            if size < k or value >= scores[b, 0]:
                size = offer(ids[b], scores[b], size, numbers[row] if len(numbers) else row, value)
        sizes[b] = size
