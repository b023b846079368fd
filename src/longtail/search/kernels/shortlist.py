"""From similarities to ranked labels: the best k per query, the best row per label.

Each query is one piece of work with a table of its own size (never of all labels), so results do not depend on threads.
Lists (B, m) are best first, padded with -1. Outputs are heaps for `rank`. Ties go by number. Then scores spread along a
sparse graph, document by document; at the end votes of neighbours, and the merge of two lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.basics import (
    MANY_KEPT,
    add,
    as_entries,
    offer,
    ranked_numbers,
    ranks_before,
    settle,
    slot_of,
    table,
)
from longtail.kernels.compiled import compiled, prange
from longtail.kernels.products import fetch_entry
from longtail.types import F32, I32, I64


@compiled(parallel=True)
def keep_best(similarities: F32, first: int, ids: I32, scores: F32, sizes: I64) -> None:
    """Offer the similarities (B, n) of items first, first + 1, ... to each query's heap of k; items must come in
    order.
    """
    for b in prange(len(similarities)):
        query = np.int64(b)
        size, k = sizes[query], ids.shape[1]
        start, items = 0, similarities.shape[1]
        if size == 0 and MANY_KEPT < k < items:
            # A heap is dear while most entries are new to it: the best of a few times as many are found by splitting.
            # Worst first is a heap.
            start = min(items, 8 * k)
            numbers = ranked_numbers(np.arange(first, first + start).astype(np.int32), similarities[query, :start])
            kept = np.partition(numbers, k - 1)[:k]
            kept.sort()
            as_entries(kept[::-1], ids[query], scores[query])
            size = k
        for item in range(start, items):
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


@compiled(parallel=True)
def best_row_per_label(rows: I32, similarities: F32, owners: I32, ids: I32, scores: F32, sizes: I64) -> None:
    """The labels that own the rows, each by its most similar row."""
    for b in prange(len(rows)):
        query = np.int64(b)
        keys, values, used = table(rows.shape[1])
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
def best_listed(ids: I32, scores: F32, best: I32, best_scores: F32) -> None:
    """The best entries of each row that are no padding, ties by id; (B, k) results are padding on entry."""
    for unsigned in prange(len(ids)):
        row: Any = np.int64(unsigned)
        size = 0
        for at in range(ids.shape[1]):
            if ids[row, at] >= 0:
                size = offer(best[row], best_scores[row], size, ids[row, at], scores[row, at])
        settle(best[row], best_scores[row], size)


@compiled(parallel=True)
def mean_of_lists(ids: I32, scores: F32, lists: int, best: I32, best_scores: F32) -> None:
    """The best labels by the mean of their scores in `lists` lists, which lie side by side in each row; a label counts
    0 in a list that lacks it. (B, k) results are padding on entry.
    """
    for unsigned in prange(len(ids)):
        row: Any = np.int64(unsigned)
        keys, sums, used = table(ids.shape[1])
        labels = 0
        for at in range(ids.shape[1]):
            if ids[row, at] >= 0:
                labels = add(keys, sums, used, labels, ids[row, at], scores[row, at])
        found, means = np.empty(labels, dtype=np.int32), np.empty(labels, dtype=np.float32)
        for i in range(labels):
            found[i], means[i] = keys[used[i]], sums[used[i]] / np.float32(lists)
        numbers = ranked_numbers(found, means)
        numbers.sort()
        as_entries(numbers[: best.shape[1]], best[row], best_scores[row])


@compiled(inline=True)
def _add(node: int, amount: float, row: int, sums: F32, owners: I64, touched: I32, size: int) -> int:
    """Add to the sum of a node for one row; returns how many nodes the row has touched. What is left of earlier rows
    counts as 0.
    """
    if owners[node] != row:
        owners[node] = row
        sums[node] = 0.0
        touched[size] = node
        size += 1
    sums[node] += amount
    return size


@compiled(parallel=True)
def spread(
    found: I32,
    values: F32,
    out_ptr: I64,
    out_nodes: I32,
    out_weights: F32,
    mix: np.float32,
    tasks: int,
    ids: I32,
    scores: F32,
    sizes: I64,
) -> None:
    """Every found node (B, m), -1 where none, gives mix x weight x value along its edges and keeps (1 - mix) x value;
    the best k sums.

    out_ptr, out_nodes, out_weights: the edges along which a node gives (CSR). Results are heaps for
    `rank`. The rows are cut into `tasks` pieces of work, each with a table of all nodes.
    """
    rows, nodes = np.int64(len(found)), len(out_ptr) - 1
    for task in prange(tasks):
        sums, owners = np.empty(nodes, dtype=np.float32), np.full(nodes, -1, dtype=np.int64)
        touched = np.empty(nodes, dtype=np.int32)
        for row in range(rows * np.int64(task) // tasks, rows * (np.int64(task) + 1) // tasks):
            reached = 0
            for place in range(found.shape[1]):
                node, value = found[row, place], values[row, place]
                if node >= 0:
                    if mix < 1.0:
                        reached = _add(node, (np.float32(1.0) - mix) * value, row, sums, owners, touched, reached)
                    if mix > 0.0:
                        for entry in range(out_ptr[node], out_ptr[node + 1]):
                            reached = _add(
                                out_nodes[entry], mix * out_weights[entry] * value, row, sums, owners, touched, reached
                            )
            size, row_ids, row_scores = 0, ids[row], scores[row]
            for i in range(reached):
                size = offer(row_ids, row_scores, size, touched[i], sums[touched[i]])
            sizes[row] = size


@compiled(parallel=True)
def gather(found: I32, values: F32, in_ptr: I64, in_nodes: I32, in_weights: F32, mix: np.float32, scores: F32) -> None:
    """What each found node (B, m) gets from the found nodes of its row alone: mix x sum of weight x value + (1 - mix)
    x own value.

    in_ptr, in_nodes, in_weights: the edges along which a node gets (CSR). 0 where there is no node. Nodes of a row
        are different.
    """
    for b in prange(len(found)):
        row = np.int64(b)
        keys, sums, used = table(found.shape[1])
        size = 0
        for place in range(found.shape[1]):
            if found[row, place] >= 0:
                size = add(keys, sums, used, size, found[row, place], values[row, place])
        for place in range(found.shape[1]):
            node = found[row, place]
            total = np.float32(0.0)
            if node >= 0:
                for entry in range(in_ptr[node], in_ptr[node + 1]):
                    slot = slot_of(keys, in_nodes[entry])
                    if keys[slot] >= 0:
                        total += in_weights[entry] * sums[slot]
                total = mix * total + (np.float32(1.0) - mix) * values[row, place]
            scores[row, place] = total


@compiled(parallel=True)
def gather_through_table(
    found: I32, values: F32, in_ptr: I64, in_nodes: I32, in_weights: F32, mix: np.float32, tasks: int, scores: F32
) -> None:
    """What `gather` does, with a table of all nodes per task: 0 for those that a row has not found. The rows are cut
    into `tasks` pieces of work.

    Edges lie anywhere in the graph, so those of all nodes are asked for before the first is used.
    """
    rows = np.int64(len(found))
    for task in prange(tasks):
        value_of = np.zeros(len(in_ptr) - 1, dtype=np.float32)
        for row in range(rows * np.int64(task) // tasks, rows * (np.int64(task) + 1) // tasks):
            for place in range(found.shape[1]):
                if found[row, place] >= 0:
                    value_of[found[row, place]] = values[row, place]
                    fetch_entry(in_ptr, found[row, place])
            for place in range(found.shape[1]):
                if found[row, place] >= 0:
                    fetch_entry(in_nodes, in_ptr[found[row, place]])
                    fetch_entry(in_weights, in_ptr[found[row, place]])
            for place in range(found.shape[1]):
                node = found[row, place]
                total = np.float32(0.0)
                if node >= 0:
                    for entry in range(in_ptr[node], in_ptr[node + 1]):
                        total += in_weights[entry] * value_of[in_nodes[entry]]
                    total = mix * total + (np.float32(1.0) - mix) * values[row, place]
                scores[row, place] = total
            for place in range(found.shape[1]):
                if found[row, place] >= 0:
                    value_of[found[row, place]] = 0.0


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
        keys, values, used = table(ballots)
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
        keys, values, used = table(first_ids.shape[1] + second_ids.shape[1])
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
