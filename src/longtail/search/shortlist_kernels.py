"""From nearest rows to ranked labels: best row per label, votes of documents, and the merge of two lists.

Each query is one piece of work with a table of its own size (never of all labels), so results do not depend on threads.
Lists (B, m) are best first, padded with -1. Outputs are heaps for `index_kernels.rank`.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import compiled, prange
from longtail.graph.ranking_kernels import offer, ranks_before
from longtail.graph.tally_kernels import add, room
from longtail.types import F32, I32, I64


@compiled(parallel=True)
def best_row_per_label(rows: I32, similarities: F32, owners: I32, ids: I32, scores: F32, sizes: I64) -> None:
    """The labels that own the rows, each by its most similar row."""
    for b in prange(len(rows)):
        query = np.int64(b)
        slots = room(rows.shape[1])
        keys, values, used = (
            np.full(slots, -1, dtype=np.int32),
            np.zeros(slots, dtype=np.float32),
            np.zeros(slots, dtype=np.int64),
        )
        labels, size = 0, 0
        for place in range(rows.shape[1]):
            if rows[query, place] < 0:
                break
            label = owners[rows[query, place]]
            seen = labels
            labels = add(keys, values, used, labels, label, 1.0)
            if labels > seen:
                size = offer(ids[query], scores[query], size, label, similarities[query, place])
        sizes[query] = size


@compiled(parallel=True)
def vote(
    neighbours: I32,
    cosines: F32,
    exclude: I64,
    most: int,
    label_ptr: I64,
    labels: I32,
    ids: I32,
    scores: F32,
    sizes: I64,
) -> None:
    """Each of the first `most` neighbours other than `exclude` (B,) gives its cosine, if above zero, to each of its
    labels.

    A label's score is its sum divided by the largest sum of the query.
    """
    for b in prange(len(neighbours)):
        query = np.int64(b)
        voters, ballots = 0, 0
        chosen = np.empty(most, dtype=np.int64)
        for place in range(neighbours.shape[1]):
            document = neighbours[query, place]
            if document < 0 or voters == most or cosines[query, place] <= 0.0:
                break
            if document != exclude[query]:
                chosen[voters] = place
                voters += 1
                ballots += label_ptr[document + 1] - label_ptr[document]
        slots = room(ballots)
        keys, values, used = (
            np.full(slots, -1, dtype=np.int32),
            np.zeros(slots, dtype=np.float32),
            np.zeros(slots, dtype=np.int64),
        )
        found = 0
        for voter in range(voters):
            document = neighbours[query, chosen[voter]]
            for entry in range(label_ptr[document], label_ptr[document + 1]):
                found = add(keys, values, used, found, labels[entry], cosines[query, chosen[voter]])
        largest = np.float32(0.0)
        for i in range(found):
            largest = max(largest, values[used[i]])
        size = 0
        for i in range(found):
            size = offer(ids[query], scores[query], size, keys[used[i]], values[used[i]] / largest)
        sizes[query] = size


@compiled(parallel=True)
def merge(
    first_ids: I32,
    first_scores: F32,
    second_ids: I32,
    second_scores: F32,
    weight: float,
    reserved: int,
    ids: I32,
    scores: F32,
    sizes: I64,
) -> None:
    """(1 - weight) x first + weight x second, a label that is in one list only taking 0 from the other; the best k.

    Up to `reserved` of the k places go to the best labels that only the second list has.
    """
    k = ids.shape[1]
    for b in prange(len(first_ids)):
        query = np.int64(b)
        slots = room(first_ids.shape[1] + second_ids.shape[1])
        keys, values, used = (
            np.full(slots, -1, dtype=np.int32),
            np.zeros(slots, dtype=np.float32),
            np.zeros(slots, dtype=np.int64),
        )
        both = 0
        for place in range(first_ids.shape[1]):
            if first_ids[query, place] >= 0:
                both = add(
                    keys, values, used, both, first_ids[query, place], (1.0 - weight) * first_scores[query, place]
                )
        in_first = both
        for place in range(second_ids.shape[1]):
            if second_ids[query, place] >= 0:
                both = add(keys, values, used, both, second_ids[query, place], weight * second_scores[query, place])

        own = min(reserved, both - in_first)
        own_ids, own_scores = np.empty(own, dtype=np.int32), np.empty(own, dtype=np.float32)
        taken = 0
        for i in range(in_first, both):
            taken = offer(own_ids, own_scores, taken, keys[used[i]], values[used[i]])
        rest_ids, rest_scores = np.empty(k - own, dtype=np.int32), np.empty(k - own, dtype=np.float32)
        rest = 0
        for i in range(both):
            label, score = keys[used[i]], values[used[i]]
            if i < in_first or own == 0 or ranks_before(own_scores[0], own_ids[0], score, label):
                rest = offer(rest_ids, rest_scores, rest, label, score)
        size = 0
        for i in range(taken):
            size = offer(ids[query], scores[query], size, own_ids[i], own_scores[i])
        for i in range(rest):
            size = offer(ids[query], scores[query], size, rest_ids[i], rest_scores[i])
        sizes[query] = size
