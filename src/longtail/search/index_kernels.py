"""The best k of many similarities, per query. Ties go by number."""

from __future__ import annotations

import numpy as np

from longtail.compiled import compiled, prange
from longtail.graph.ranking_kernels import offer, settle
from longtail.types import F32, I32, I64


@compiled(parallel=True)
def keep_best(similarities: F32, first: int, ids: I32, scores: F32, sizes: I64) -> None:
    """Offer the similarities (B, n) of items first, first + 1, ... to each query's heap of k; items must come in
    order.
    """
    for b in prange(len(similarities)):
        query = np.int64(b)
        size, k = sizes[query], ids.shape[1]
        for item in range(similarities.shape[1]):
            value = similarities[query, item]
            # An equal one comes later, has a higher number and stays out.
            if size < k or value > scores[query, 0]:
                size = offer(ids[query], scores[query], size, first + item, value)
        sizes[query] = size


@compiled(parallel=True)
def rank(ids: I32, scores: F32, sizes: I64) -> None:
    """Turn heaps into lists, best first, padded with -1 and -inf."""
    for b in prange(len(ids)):
        query = np.int64(b)
        settle(ids[query], scores[query], sizes[query])
        for place in range(sizes[query], ids.shape[1]):
            ids[query, place] = -1
            scores[query, place] = -np.inf


@compiled(parallel=True)
def unfold(found: I64, similarities: F32, group_ptr: I64, group_items: I32, ids: I32, scores: F32, sizes: I64) -> None:
    """Replace each found group (B, m), best first, -1 where none, by the items in it, and keep the best k."""
    for b in prange(len(found)):
        query = np.int64(b)
        size, k = 0, ids.shape[1]
        for place in range(found.shape[1]):
            group, value = found[query, place], similarities[query, place]
            if group < 0 or (size == k and value < scores[query, 0]):
                break
            # The first k items of a group are its lowest numbers: no other can be needed.
            for member in range(group_ptr[group], min(group_ptr[group + 1], group_ptr[group] + k)):
                size = offer(ids[query], scores[query], size, group_items[member], value)
        sizes[query] = size
