"""Candidates by their first numbers, as bytes: of all rows, or of the leaves whose centres are best; and a whole look
at them.

Candidates are many, and their order does not matter; a heap of them would cost more than the products. So they are
put down in a pool as they come, if they beat a threshold. Of all rows, or of the centres of leaves, a thousand tell
the threshold beforehand (`promising`). A pool that is full is cut to its better half, the worst of which is the
threshold from then on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.basics import better_half, offer
from longtail.kernels.compiled import compiled, prange
from longtail.kernels.products import as_float, fetch_rows
from longtail.search.kernels.packed import BLOCKS, LOWEST, TILE, ByteRows, Rounded, look, lowest
from longtail.search.packed import LANES
from longtail.types import F32, I32, I64

# How many candidates before its turn a row is asked for.
_AHEAD = 4
# Rows that stay near while all queries pass: 64 kB at 128 numbers.
BLOCK = 512
# At most so many groups of rows that candidates are sorted into: their counts stay in the second cache.
_BUCKETS = 1 << 15
_LOWER = (1 << 32) - 1


@compiled()
def _put_down(
    values: F32,
    words: NDArray[np.uint64],
    q: int,
    first: int,
    begin: int,
    end: int,
    ids: I32,
    scores: F32,
    pool: Any,
    size: int,
    threshold: np.float32,
) -> tuple[int, np.float32]:
    """Put down those of the rows begin..end that a bit in words[q] is set for; values[q] and words[q] begin with row
    `first`.

    ids[pool], scores[pool]: the pool, whose better half is kept when it is full; the worst of it is the threshold
    from then on.
    """
    room = ids.shape[1]
    for word in range((end - first + 63) // 64):
        bits = words[q, word]
        while bits:
            at = 64 * word + np.int64(lowest(bits))
            bits &= bits - np.uint64(1)
            if begin <= first + at < end and values[q, at] > threshold:
                ids[pool, size], scores[pool, size] = first + at, values[q, at]
                size += 1
                if size == room:
                    size = room // 2
                    threshold = better_half(ids[pool], scores[pool], room, size)
    return size, threshold


@compiled()
def _room() -> Any:
    """For what `look` tells of a block of rows: values, bits, and these in words of 64."""
    bits = np.zeros((TILE, BLOCK // LANES), np.uint16)
    return np.empty((TILE, BLOCK), np.float32), bits, bits.view(np.uint64)


@compiled(parallel=True)
def promising(scouts: ByteRows, queries: Rounded, best: I32, best_scores: F32, thresholds: F32) -> None:
    """thresholds[b]: the k-th best score among a few rows, evenly taken. best, best_scores: (B, k) room."""
    k, documents, rows = best.shape[1], len(thresholds), len(scouts[1])
    for unsigned in prange((documents + TILE - 1) // TILE):
        tile: Any = np.int64(unsigned) * TILE
        end: Any = min(tile + TILE, documents)
        values, bits, _ = _room()
        sizes = np.zeros(TILE, np.int64)
        for first in range(0, rows, BLOCK):
            blocks = min(BLOCK, rows - first) // LANES
            look(scouts, first // LANES, blocks, queries, tile, thresholds, values, bits)
            for query in range(tile, end):
                size = sizes[query - tile]
                for i in range(blocks * LANES):
                    value = values[query - tile, i]
                    # What fills the last block has no value.
                    if value > LOWEST and (size < k or value > best_scores[query, 0]):
                        size = offer(best[query], best_scores[query], size, first + i, value)
                sizes[query - tile] = size
        for query in range(tile, end):
            thresholds[query] = best_scores[query, 0] if sizes[query - tile] == k else LOWEST


@compiled(parallel=True)
def collect_all(
    table: ByteRows, queries: Rounded, thresholds: F32, workers: int, ids: I32, scores: F32, sizes: I64
) -> None:
    """Pools (B, m) with the rows that beat the threshold of each query (the better half of them, where they are too
    many).

    thresholds: (B,), changed.
    """
    n, documents = len(table[1]), len(ids)
    tiles = (documents + TILE - 1) // TILE
    for unsigned in prange(workers):
        worker = np.int64(unsigned)
        begin = worker * tiles // workers * TILE
        end: Any = min(documents, (worker + 1) * tiles // workers * TILE)
        values, bits, words = _room()
        for first in range(0, n, BLOCK):
            stop = min(first + BLOCK, n)
            for tile in range(begin, end, TILE):
                look(table, first // LANES, (stop - first) // LANES, queries, tile, thresholds, values, bits)
                for query in range(tile, min(tile + TILE, end)):
                    size, threshold, q = sizes[query], thresholds[query], query - tile
                    sizes[query], thresholds[query] = _put_down(
                        values, words, q, first, first, stop, ids, scores, query, size, threshold
                    )


@compiled(parallel=True)
def collect_from_leaves(
    table: ByteRows,
    centres: ByteRows,
    leaf_ptr: I64,
    queries: Rounded,
    thresholds: F32,
    workers: int,
    leaves: I32,
    leaf_scores: F32,
    ids: I32,
    scores: F32,
    sizes: I64,
) -> None:
    """As `collect_all`, among the rows of the leaves whose centres beat the thresholds (B,).

    leaf_ptr: (leaves + 1,) the rows of each.  leaves, leaf_scores: (B, m) room for the leaves.
    """
    for unsigned in prange(workers):
        worker = np.int64(unsigned)
        values, bits, words = _room()
        for b in range(worker, len(ids), workers):
            bits[:] = 0
            own = slice(b, b + 1)
            query, threshold = (queries[0][own], queries[1][own], queries[2][own], queries[3][own]), thresholds[own]
            found = 0
            for first in range(0, len(centres[1]), BLOCK):
                stop = min(first + BLOCK, len(centres[1]))
                look(centres, first // LANES, (stop - first) // LANES, query, 0, threshold, values, bits)
                stop = min(stop, len(leaf_ptr) - 1)
                found, threshold[0] = _put_down(
                    values, words, 0, first, first, stop, leaves, leaf_scores, b, found, threshold[0]
                )
            size, threshold[0] = 0, LOWEST
            for place in range(found):
                if place + 1 < found:
                    ahead = leaves[b, place + 1]
                    fetch_rows(table[0], leaf_ptr[ahead] // LANES, (leaf_ptr[ahead + 1] + LANES - 1) // LANES)
                start, end = leaf_ptr[leaves[b, place]], leaf_ptr[leaves[b, place] + 1]
                for first in range(start // LANES * LANES, end, BLOCK):
                    stop = min(first + BLOCK, end)
                    blocks = (stop - first + LANES - 1) // LANES
                    look(table, first // LANES, blocks, query, 0, threshold, values, bits)
                    bits[0, blocks : (blocks + BLOCKS - 1) // BLOCKS * BLOCKS] = 0  # of what was looked at before
                    size, threshold[0] = _put_down(
                        values, words, 0, first, start, stop, ids, scores, b, size, threshold[0]
                    )
            sizes[b] = size


@compiled(parallel=True)
def cut(pool_ids: I32, pool_scores: F32, pool_sizes: I64, keep: int) -> None:
    """The `keep` best of each pool (B, m) come first, and are all that is left of it."""
    for unsigned in prange(len(pool_sizes)):
        b = np.int64(unsigned)
        if pool_sizes[b] > keep:
            better_half(pool_ids[b], pool_scores[b], pool_sizes[b], keep)
            pool_sizes[b] = keep


@compiled()
def by_row(pool_ids: I32, pool_sizes: I64, n: int) -> I64:
    """All candidates (b in the upper half of a number, the place in pool b in the lower), by their rows of n; rows
    that share a bucket as they come.
    """
    shift, buckets = 0, min(_BUCKETS, pool_sizes.sum())
    while n >> shift > buckets:
        shift += 1
    starts = np.zeros((n >> shift) + 2, np.int64)
    for b in range(len(pool_sizes)):
        for place in range(pool_sizes[b]):
            starts[(pool_ids[b, place] >> shift) + 1] += 1
    for bucket in range(1, len(starts)):
        starts[bucket] += starts[bucket - 1]
    order = np.empty(starts[-1], np.int64)
    for b in range(len(pool_sizes)):
        for place in range(pool_sizes[b]):
            bucket = pool_ids[b, place] >> shift
            order[starts[bucket]] = np.int64(b) << 32 | place
            starts[bucket] += 1
    return order


@compiled(parallel=True, fastmath=True)
def score_whole(
    values: NDArray[Any],
    scales: F32,
    offsets: F32,
    queries: F32,
    lasts: F32,
    pool_ids: I32,
    order: I64,
    workers: int,
    pool_scores: F32,
) -> None:
    """Whole products of the candidates in `order`: what `products.product` gives, whose arrays take as long to
    hand over as a row to multiply.
    """
    for unsigned in prange(workers):
        worker = np.int64(unsigned)
        begin, end = worker * len(order) // workers, (worker + 1) * len(order) // workers
        for at in range(begin, end):
            if at + _AHEAD < end:
                soon = pool_ids[order[at + _AHEAD] >> 32, order[at + _AHEAD] & _LOWER]
                fetch_rows(values, soon, soon + 1)
            b, place = order[at] >> 32, order[at] & _LOWER
            row, total = pool_ids[b, place], np.float32(0.0)
            for d in range(queries.shape[1]):
                total += as_float(values[row, d]) * queries[b, d]
            if len(scales):
                total *= scales[row]
            pool_scores[b, place] = total + offsets[row] * lasts[b] if len(offsets) else total


@compiled(parallel=True)
def best_of_pools(
    pool_ids: I32, pool_scores: F32, pool_sizes: I64, numbers: I32, ids: I32, scores: F32, sizes: I64
) -> None:
    """The best k of each pool (B, m), as heaps (B, k) of what the rows stand for. numbers: (n,) what each row stands
    for, or none: itself.
    """
    for unsigned in prange(len(pool_sizes)):
        b = np.int64(unsigned)
        size, k = 0, ids.shape[1]
        for place in range(pool_sizes[b]):
            row, value = pool_ids[b, place], pool_scores[b, place]
            if size < k or value >= scores[b, 0]:
                size = offer(ids[b], scores[b], size, numbers[row] if len(numbers) else row, value)
        sizes[b] = size
