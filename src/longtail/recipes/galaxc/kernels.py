"""Sampling neighbours, summing vectors along paths, and scoring labels that weigh several views of a document.

A sample is a pure function of (seed, node, hop): the same for any batch and any number of threads. `Neighbourhoods` in
`network.py` draws the same samples on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.basics import below, draw, key_of
from longtail.kernels.compiled import compiled, prange
from longtail.kernels.products import as_float
from longtail.types import F32, I32, I64


@compiled()
def holds(values: I32, value: int) -> bool:
    """Whether a short list holds a number."""
    for place in range(len(values)):  # noqa: SIM110 - a loop is what is compiled
        if values[place] == value:
            return True
    return False


@compiled()
def sample(
    starts: I64,
    neighbours: I32,
    node: int,
    hop: int,
    seed: np.uint64,
    own: int,
    hidden: I32,
    pad: bool,
    found: I32,
) -> int:
    """Neighbours of a node into `found`, as many as it has room for; returns how many there are.

    A window of the node's list that starts anywhere and goes round: with `pad` again and again, so that `found` is
    full unless nothing is left to see. Edges between the node `own` and the labels `hidden` are passed over. Of any
    ``1 + h`` neighbours in a row, h of a list being hidden, one at least is seen (if any is), so ``1 + h`` times as
    many steps as there is room are enough.
    """
    low, degree = starts[node], starts[node + 1] - starts[node]
    if degree == 0:
        return 0
    at_own = node == own
    beside = own >= 0 and not at_own and holds(hidden, node)
    most = len(found) * (1 + (len(hidden) if at_own else 1 if beside else 0))
    first = below(draw(key_of(seed, node), hop), degree)
    size = 0
    for step in range(most if pad else min(most, degree)):
        neighbour = neighbours[low + (first + step) % degree]
        if (beside and neighbour == own) or (at_own and holds(hidden, neighbour)):
            continue
        found[size] = neighbour
        size += 1
        if size == len(found):
            break
    return size


@compiled()
def grow(
    starts: I64,
    neighbours: I32,
    node: int,
    hops: int,
    fanouts: I64,
    seed: np.uint64,
    own: int,
    hidden: I32,
    pad: bool,
    found: I32,
    nodes: I32,
    taken: I32,
    parents: I32,
) -> int:
    """All paths from a node that go on to a neighbour, or stay, at each of hops `hops`, ..., 1; returns their number.

    nodes: where each path ends.  taken: bit k - 1 is set where hop k went to a neighbour.  parents: how many
    neighbours the last nodes of the path had to share its weight with (their product).
    """
    nodes[0], taken[0], parents[0] = node, 0, 1
    size = 1
    for hop in range(hops, 0, -1):
        before = size
        for path in range(before):
            count = sample(starts, neighbours, nodes[path], hop, seed, own, hidden, pad, found[: fanouts[hop - 1]])
            for place in range(count):
                nodes[size], parents[size] = found[place], parents[path] * count
                taken[size] = taken[path] | (1 << (hop - 1))
                size += 1
    return size


@compiled(parallel=True)
def add_paths(
    starts: I64,
    neighbours: I32,
    vectors: F32,
    root_ptr: I64,
    roots: I32,
    hops: int,
    fanouts: I64,
    seed: np.uint64,
    own: I64,
    hidden_ptr: I64,
    hidden: I32,
    pad: bool,
    mean: bool,
    sums: F32,
) -> None:
    """sums[b, c] += the vectors at the ends of all paths from the roots of b whose hops to a neighbour are the bits
    of c.

    sums: (B, 2^hops, D). own, hidden_ptr, hidden: edges that paths of b do not take, as in
        `longtail.recipes.galaxc.graph.HiddenEdges`. mean: neighbours share a weight of 1.
    """
    room = 1
    for hop in range(hops):
        room *= 1 + fanouts[hop]
    widest = fanouts.max() if len(fanouts) > 0 else 0
    for unsigned in prange(len(root_ptr) - 1):
        b = np.int64(unsigned)
        nodes, taken = np.empty(room, np.int32), np.empty(room, np.int32)
        parents, found = np.empty(room, np.int32), np.empty(widest, np.int32)
        for root in range(root_ptr[b], root_ptr[b + 1]):
            size = grow(
                starts,
                neighbours,
                roots[root],
                hops,
                fanouts,
                seed,
                own[b],
                hidden[hidden_ptr[b] : hidden_ptr[b + 1]],
                pad,
                found,
                nodes,
                taken,
                parents,
            )
            for path in range(size):
                out, vector = sums[b, taken[path]], vectors[nodes[path]]
                weight = np.float32(1.0 / parents[path]) if mean else np.float32(1.0)
                for d in range(len(vector)):
                    out[d] += weight * vector[d]


@compiled(parallel=True)
def fill_samples(
    starts: I64,
    neighbours: I32,
    roots: I32,
    hops: int,
    fanouts: I64,
    seed: np.uint64,
    own: I64,
    hidden_ptr: I64,
    hidden: I32,
    pad: bool,
    samples: I32,
) -> None:
    """samples: (B, (1 + F_hops) ... (1 + F_1)), sampled neighbours, theirs, and so on, -1 where there is none; a node's
    first neighbour is itself. own, hidden_ptr, hidden: as in `add_paths`.
    """
    widest = fanouts.max() if len(fanouts) > 0 else 0
    for unsigned in prange(len(roots)):
        b = np.int64(unsigned)
        nodes, found = samples[b], np.empty(widest, np.int32)
        unseen = hidden[hidden_ptr[b] : hidden_ptr[b + 1]]
        stride = np.int64(len(nodes))
        nodes[0] = roots[b]
        for hop in range(hops, 0, -1):
            fan = fanouts[hop - 1]
            step = stride // (1 + fan)
            for parent in range(0, len(nodes), stride):
                node = nodes[parent]
                count = 0
                if node >= 0:
                    count = sample(starts, neighbours, node, hop, seed, own[b], unseen, pad, found[:fan])
                for place in range(fan):
                    nodes[parent + (1 + place) * step] = found[place] if place < count else -1
            stride = step


@compiled(parallel=True)
def link_by_anchors(
    ptr: I64, anchors: I32, member_ptr: I64, members: I32, exclude: I64, keys: I64, seed: np.uint64, found: I32
) -> None:
    """For every row of anchors, in their order, the nodes that have them, until `found` (B, m) is full; -1 where
    there are fewer.

    exclude: (B,) a node left out, -1 for none. Lists of members are begun at a place that depends on (seed, keys[b],
        anchor).
    """
    for unsigned in prange(len(found)):
        b = np.int64(unsigned)
        size, room = 0, found.shape[1]
        for at in range(ptr[b], ptr[b + 1]):
            anchor = int(anchors[at])
            low, count = member_ptr[anchor], member_ptr[anchor + 1] - member_ptr[anchor]
            first = below(draw(key_of(seed, keys[b]), anchor), count) if count > 0 else np.int64(0)
            for step in range(count):
                if size == room:
                    break
                node = members[low + (first + step) % count]
                known = node == exclude[b]
                for place in range(size):
                    known = known or found[b, place] == node
                if not known:
                    found[b, size] = node
                    size += 1
        found[b, size:] = -1


@compiled(parallel=True, fastmath=True)
def score_views(views: F32, rows: NDArray[Any], scales: F32, alphas: F32, ids: I32, out: F32) -> None:
    """out[b, c] = sum over k of alphas[l, k] (views[b, k] . rows[l]) for l = ids[b, c], 0 at padding.

    views: (B, K, D); rows, scales: (L, D) stored; alphas: (L, K); ids, out: (B, C). fastmath: see
    `longtail.kernels.products`.
    """
    for unsigned in prange(len(ids)):
        row = np.int64(unsigned)
        for place in range(ids.shape[1]):
            label = ids[row, place]
            total = np.float32(0.0)
            if label >= 0:
                for view in range(views.shape[1]):
                    dot = np.float32(0.0)
                    for d in range(views.shape[2]):
                        dot += views[row, view, d] * as_float(rows[label, d])
                    total += alphas[label, view] * dot
            out[row, place] = total * scales[label] if label >= 0 and len(scales) else total
