"""Random walks from labels through documents to labels, and row-wise work on CSR arrays that scipy has not."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from longtail.kernels.basics import add, below, clear, draw, key_of, offer, slot_of, table
from longtail.kernels.compiled import compiled, prange
from longtail.types import F32, I32, I64


@compiled(parallel=True)
def largest_of_rows(
    indptr: I64, indices: I32, data: F32, own: I64, new_indptr: I64, new_indices: I32, new_data: F32
) -> None:
    """Copy the largest entries of each row, as many as `new_indptr` leaves room for, in no order; that in column
    own[row] first.
    """
    for r in prange(len(indptr) - 1):
        row = np.int64(r)
        start, size = new_indptr[row], new_indptr[row + 1] - new_indptr[row]
        ids, scores = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.float32)
        found = 0
        for entry in range(indptr[row], indptr[row + 1]):
            # The heap carries the entry's place instead of its column: the same order, as columns are sorted.
            value = np.inf if indices[entry] == own[row] else data[entry]
            found = offer(ids, scores, found, entry - indptr[row], value)
        for i in range(size):
            entry = indptr[row] + ids[i]
            new_indices[start + i] = indices[entry]
            new_data[start + i] = data[entry]


# The documents of labels and the labels of documents: pointers and numbers of both.
Links: TypeAlias = tuple[I64, I32, I64, I32]


@compiled()
def _step(start: int, here: int, step: int, key: np.uint64, links: Links, restart: np.uint64) -> tuple[int, int]:
    """Step number `step` of a walk that stands at label `here`: the document passed and the label reached. `restart`
    is a share of 2^32.
    """
    label_ptr, label_docs, doc_ptr, doc_labels = links
    bits = draw(key, 2 * step)
    if (bits & np.uint64(0xFFFFFFFF)) < restart:
        here = start
    doc = label_docs[label_ptr[here] + below(bits, label_ptr[here + 1] - label_ptr[here])]
    return doc, doc_labels[doc_ptr[doc] + below(draw(key, 2 * step + 1), doc_ptr[doc + 1] - doc_ptr[doc])]


@compiled()
def walk_steps(start: int, seed: np.uint64, links: Links, restart: np.uint64, steps: I32) -> None:
    """Write the documents and labels of the walk from one label into `steps` (length, 2); the same walk that
    `walk_block` tallies.
    """
    key, here = key_of(seed, start), start
    for step in range(len(steps)):
        doc, here = _step(start, here, step, key, links, restart)
        steps[step, 0], steps[step, 1] = doc, here


@compiled()
def _keep_most_visited(start: int, keys: I32, counts: F32, used: I64, size: int, ids: I32, kept: F32) -> int:
    """The most visited labels into `ids` and `kept`, in no order. The start always stays: it stands for the label
    itself.
    """
    found = 0
    for i in range(size):
        label = keys[used[i]]
        found = offer(ids, kept, found, label, np.inf if label == start else counts[used[i]])
    for i in range(found):
        kept[i] = counts[slot_of(keys, ids[i])]
    return found


@compiled(parallel=True)
def walk_block(
    first: int,
    seed: np.uint64,
    links: Links,
    length: int,
    restart: np.uint64,
    tasks: int,
    ids: I32,
    counts: F32,
    sizes: I64,
) -> None:
    """Walks from labels first, first + 1, ... (as many as `ids` has rows); the work is cut into `tasks` pieces."""
    label_ptr, labels = links[0], np.int64(len(sizes))
    for task in prange(tasks):
        keys, values, used = table(min(length, len(label_ptr) - 1))
        for row in range(labels * np.int64(task) // tasks, labels * (np.int64(task) + 1) // tasks):
            start = first + row
            if label_ptr[start] == label_ptr[start + 1]:
                sizes[row] = 0
                continue
            key, here, size = key_of(seed, start), start, 0
            for step in range(length):
                _, here = _step(start, here, step, key, links, restart)
                size = add(keys, values, used, size, here, 1.0)
            sizes[row] = _keep_most_visited(start, keys, values, used, size, ids[row], counts[row])
            clear(keys, used, size)
