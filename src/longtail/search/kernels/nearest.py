"""Kernels of `search.nearest`: sparse cosine over an inverted index, then a vote. One document at a time, one thread
each.

The words of a query are taken from rare to frequent. Once the best rows found so far are further ahead than all words
that are left could lift an unseen row, the long lists of frequent words need not be read: rows that are still in the
race are compared with the whole query by their own few words (MaxScore; Turtle and Flood 1995). The answer is exact.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from longtail.kernels.basics import offer, settle
from longtail.kernels.compiled import compiled, prange
from longtail.types import F32, I32, I64

Pointers: TypeAlias = tuple[I64, I32]  # (starts, numbers)
Lists: TypeAlias = tuple[I64, I32, F32]  # (starts, numbers, values): a CSR array
Room: TypeAlias = tuple[F32, I32, F32, F32, I32]  # (similarity (N,), touched (N,), weight of each word (V,), keys, ids)

# Sums in another order differ in their last digits; comparisons that decide what is left out allow for it.
SLACK = np.float32(1.0001)


@compiled()
def at_least(similarity: F32, touched: I32, n_touched: int, keys: F32, ids: I32) -> np.float32:
    """The last of the best similarities among the touched rows that the heap has room for; 0 where there are fewer."""
    size = 0
    for position in range(n_touched):
        row = touched[position]
        size = offer(ids, keys, size, row, similarity[row])
    return keys[0] if size == len(keys) else np.float32(0.0)


@compiled()
def nearest_rows(
    columns: I32,
    values: F32,
    postings: Lists,
    rows: Lists,
    heaviest: F32,
    prune: bool,
    room: Room,
    neighbours: int,
) -> int:
    """The rows with the highest dot product with one sparse query, best first, in room.keys and room.ids; gives how
    many.

    heaviest: (V,) the largest value in each list of postings; bounds what a word can add. prune: values are not
        negative.
    """
    posting_start, posting_rows, posting_values = postings
    row_start, row_columns, row_values = rows
    similarity, touched, weight_of, keys, ids = room
    n_words = len(columns)
    lengths = np.empty(n_words, dtype=np.int64)
    for position in range(n_words):
        lengths[position] = posting_start[columns[position] + 1] - posting_start[columns[position]]
        weight_of[columns[position]] = values[position]
    order = np.argsort(lengths, kind="mergesort")
    left = np.float32(0.0)
    for position in range(n_words):
        left += values[position] * heaviest[columns[position]]
    n_touched, needed = 0, np.float32(0.0)
    for word in order:
        # Looking at all touched rows pays only if the list ahead is longer.
        if prune and n_touched >= neighbours and lengths[word] > n_touched:
            needed = at_least(similarity, touched, n_touched, keys, ids)
            if needed > left * SLACK:
                break
        column, value = columns[word], values[word]
        for at in range(posting_start[column], posting_start[column + 1]):
            row = posting_rows[at]
            # With negative or vanishing values a sum can return to zero and its row be listed twice: stay inside the
            # list.
            if similarity[row] == 0.0 and n_touched < len(touched):
                touched[n_touched] = row
                n_touched += 1
            similarity[row] += value * posting_values[at]
        left -= value * heaviest[column]
    else:
        left = np.float32(0.0)
        needed = at_least(similarity, touched, n_touched, keys, ids)
    size = 0
    for position in range(n_touched):
        row = touched[position]
        found, similarity[row] = similarity[row], 0.0
        if found > 0.0 and (found + left) * SLACK >= needed:
            exact: Any = np.float32(0.0)
            for at in range(row_start[row], row_start[row + 1]):
                exact += weight_of[row_columns[at]] * row_values[at]
            if exact > 0.0:
                size = offer(ids, keys, size, row, exact)
    for position in range(n_words):
        weight_of[columns[position]] = 0.0
    settle(ids, keys, size)
    return size


@compiled()
def vote(
    neighbour_similarity: F32,
    neighbour_rows: I32,
    n_neighbours: int,
    power: float,
    targets: Pointers,
    votes: F32,
    touched: I32,
    out_ids: I32,
    out_scores: F32,
) -> None:
    """Neighbours vote for their labels with similarity ** power; a score is a label's share of the whole vote."""
    target_start, target_labels = targets
    total = np.float32(0.0)
    n_touched = 0
    for position in range(n_neighbours):
        weight = np.float32(neighbour_similarity[position] ** power)
        if weight <= 0.0:
            continue
        total += weight
        row = neighbour_rows[position]
        for at in range(target_start[row], target_start[row + 1]):
            label = target_labels[at]
            if votes[label] == 0.0:
                touched[n_touched] = label
                n_touched += 1
            votes[label] += weight
    size = 0
    for position in range(n_touched):
        label = touched[position]
        size = offer(out_ids, out_scores, size, label, votes[label] / total)
        votes[label] = 0.0
    settle(out_ids, out_scores, size)


@compiled(parallel=True)
def rank_sparse(
    queries: Lists,
    postings: Lists,
    rows: Lists,
    heaviest: F32,
    prune: bool,
    targets: Pointers,
    n_labels: int,
    neighbours: int,
    power: float,
    out_ids: I32,
    out_scores: F32,
    n_workers: int,
) -> None:
    """Neighbours and vote for every query. Each worker owns its accumulators and takes every n-th query.

    queries: (B, V), rows: (N, V) and postings: (V, N) as (starts, columns, values); targets: (starts, labels).
    """
    query_start, query_columns, query_values = queries
    n_queries, n_rows = len(query_start) - 1, len(targets[0]) - 1
    for worker in prange(n_workers):
        similarity = np.zeros(n_rows, dtype=np.float32)
        touched_rows = np.empty(n_rows, dtype=np.int32)
        weight_of = np.zeros(len(heaviest), dtype=np.float32)
        votes = np.zeros(n_labels, dtype=np.float32)
        touched_labels = np.empty(n_labels, dtype=np.int32)
        keys = np.empty(neighbours, dtype=np.float32)
        ids = np.empty(neighbours, dtype=np.int32)
        room = (similarity, touched_rows, weight_of, keys, ids)
        for query in range(np.int64(worker), n_queries, n_workers):
            words = slice(query_start[query], query_start[query + 1])
            found = nearest_rows(
                query_columns[words], query_values[words], postings, rows, heaviest, prune, room, neighbours
            )
            vote(keys, ids, found, power, targets, votes, touched_labels, out_ids[query], out_scores[query])


@compiled(parallel=True)
def neighbours_of(
    queries: Lists,
    postings: Lists,
    rows: Lists,
    heaviest: F32,
    prune: bool,
    ids: I32,
    similarities: F32,
    n_workers: int,
) -> None:
    """The rows that vote for every query in `rank_sparse`, best first, and their similarities: (B, neighbours), which
    are -1 and 0 on entry.
    """
    query_start, query_columns, query_values = queries
    n_queries, n_rows = len(query_start) - 1, len(rows[0]) - 1
    for worker in prange(n_workers):
        similarity = np.zeros(n_rows, dtype=np.float32)
        touched = np.empty(n_rows, dtype=np.int32)
        weight_of = np.zeros(len(heaviest), dtype=np.float32)
        for query in range(np.int64(worker), n_queries, n_workers):
            words = slice(query_start[query], query_start[query + 1])
            keys, found = np.empty(ids.shape[1], dtype=np.float32), np.empty(ids.shape[1], dtype=np.int32)
            room = (similarity, touched, weight_of, keys, found)
            size = nearest_rows(
                query_columns[words], query_values[words], postings, rows, heaviest, prune, room, ids.shape[1]
            )
            ids[query, :size], similarities[query, :size] = found[:size], keys[:size]


@compiled(parallel=True)
def vote_all(
    neighbour_ids: I32,
    neighbour_scores: F32,
    targets: Pointers,
    n_labels: int,
    power: float,
    out_ids: I32,
    out_scores: F32,
    n_workers: int,
) -> None:
    """The vote alone, for neighbours that were found by other means (ids padded with -1)."""
    for worker in prange(n_workers):
        votes = np.zeros(n_labels, dtype=np.float32)
        touched = np.empty(n_labels, dtype=np.int32)
        for query in range(np.int64(worker), len(neighbour_ids), n_workers):
            found = 0
            while found < neighbour_ids.shape[1] and neighbour_ids[query, found] >= 0:
                found += 1
            scores, ids = neighbour_scores[query], neighbour_ids[query]
            vote(scores, ids, found, power, targets, votes, touched, out_ids[query], out_scores[query])
