"""Scores spread along a sparse graph. Each document is one piece of work, so results do not depend on threads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.basics import add, offer, room, slot_of
from longtail.kernels.compiled import compiled, prange
from longtail.kernels.products import fetch_entry
from longtail.types import F32, I32, I64

F64 = NDArray[np.float64]


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
    `shortlist.rank`. The rows are cut into `tasks` pieces of work, each with a table of all nodes.
    """
    rows, nodes = np.int64(len(found)), len(out_ptr) - 1
    for task in prange(tasks):
        sums, owners, touched = (
            np.empty(nodes, dtype=np.float32),
            np.full(nodes, -1, dtype=np.int64),
            np.empty(nodes, dtype=np.int32),
        )
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
        slots = room(found.shape[1])
        keys, table, used = (
            np.full(slots, -1, dtype=np.int32),
            np.zeros(slots, dtype=np.float32),
            np.zeros(slots, dtype=np.int64),
        )
        size = 0
        for place in range(found.shape[1]):
            if found[row, place] >= 0:
                size = add(keys, table, used, size, found[row, place], values[row, place])
        for place in range(found.shape[1]):
            node = found[row, place]
            total = np.float32(0.0)
            if node >= 0:
                for entry in range(in_ptr[node], in_ptr[node + 1]):
                    slot = slot_of(keys, in_nodes[entry])
                    if keys[slot] >= 0:
                        total += in_weights[entry] * table[slot]
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
        table = np.zeros(len(in_ptr) - 1, dtype=np.float32)
        for row in range(rows * np.int64(task) // tasks, rows * (np.int64(task) + 1) // tasks):
            for place in range(found.shape[1]):
                if found[row, place] >= 0:
                    table[found[row, place]] = values[row, place]
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
                        total += in_weights[entry] * table[in_nodes[entry]]
                    total = mix * total + (np.float32(1.0) - mix) * values[row, place]
                scores[row, place] = total
            for place in range(found.shape[1]):
                if found[row, place] >= 0:
                    table[found[row, place]] = 0.0
