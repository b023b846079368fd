"""Neighbourhoods of a joint graph, summed along sampled paths. No torch: prediction and training on a CPU use the
same code.

The weighted-sum convolution a^k = (1 + eps_k) a^(k-1) + sum of neighbours' a^(k-1) has nothing between hops that is
not linear, so a^k is a sum over *paths*: at each hop a path stays (and takes the factor 1 + eps) or goes on to a
neighbour. Sums of vectors over paths of one kind, 2^K of them, do not depend on what is trained; `convolutions` puts
them together. Paper: GalaXC Sec. 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.graph.arrays import frozen
from longtail.graph.joint_graph import JointGraph
from longtail.graph.threads import threads_for
from longtail.types import F32, I32, I64


@dataclass(frozen=True)
class Fanout:
    """How neighbours are taken.

    sizes: neighbours per hop, that of hop 1 (next to the vectors) first.
    pad: a node with fewer neighbours gives them again and again; without it they are summed once each.
    mean: neighbours are averaged, not summed.
    full: all neighbours, once each, whatever `sizes` says; an introduced document's too.
    """

    sizes: tuple[int, ...]
    pad: bool = True
    mean: bool = False
    full: bool = False

    @property
    def hops(self) -> int:
        return len(self.sizes)

    def link_weights(self, counts: I64, mean: bool | None = None) -> F32:
        """(B, K): what each link of an introduced document counts at each hop, given how many links it has.

        All links are used and scaled to what a sample would sum to: `sizes[k - 1]` terms, or without `pad` at most as
        many as there are.
        mean: other than the fan-out says, for encoders that always average.
        """
        each = np.maximum(counts, 1)[:, None].astype(np.float32)
        sizes = np.array(self.sizes, dtype=np.float32)[None, :]
        if self.mean if mean is None else mean:
            return np.repeat(np.float32(1) / each, self.hops, axis=1)
        if self.full:
            return np.ones((len(counts), self.hops), dtype=np.float32)
        shares: F32 = sizes / each if self.pad else np.minimum(sizes / each, np.float32(1))
        return shares


class Paths:
    """Vectors of nodes, summed along paths of a graph.

    vectors: (n, D) float32, of the nodes.
    """

    def __init__(self, graph: JointGraph, vectors: F32, fanout: Fanout) -> None:
        if len(graph) != len(vectors):
            raise ValueError(f"{len(vectors)} vectors for {len(graph)} nodes")
        self.graph, self.vectors, self.fanout = graph, frozen(vectors), fanout

    def of_nodes(self, nodes: I32, seed: int, exclude: I64 | None = None) -> F32:
        """(B, 2^K, D): entry c sums over paths whose hops to a neighbour are the bits of c (bit 0 is hop 1); entry 0
        is the node itself.
        """
        return self._sums(np.arange(len(nodes) + 1), nodes, self.fanout.hops, seed, exclude)

    def of_linked(self, vectors: F32, links: I32, seed: int, exclude: I64 | None = None) -> F32:
        """(B, 2^K, D): the same for documents that are not in the graph, or whose own edges shall not be seen.

        vectors: (B, D).  links: (B, m) their neighbours, -1 where there are fewer.  exclude: (B,) their own nodes, -1
            where they have none.
        """
        hops, real = self.fanout.hops, links >= 0
        counts = real.sum(axis=1)
        starts = np.zeros(len(links) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        beyond = self._sums(starts, links[real], hops - 1, seed, exclude)
        weights = self.fanout.link_weights(counts)
        sums = np.empty((len(links), 1 << hops, vectors.shape[1]), dtype=np.float32)
        sums[:, 0] = vectors
        for hop in range(hops):
            # Paths that leave the document at this hop go on as paths of its neighbours over the hops before it.
            np.multiply(beyond[:, : 1 << hop], weights[:, hop, None, None], out=sums[:, 1 << hop : 2 << hop])
        return sums

    def tree(self, nodes: I32, hops: int, seed: int, exclude: I64 | None = None) -> I32:
        """(B, 1 + F_hops, ..., 1 + F_1): nodes of computation trees, -1 where there is none; index 0 of each axis is
        the parent itself.
        """
        from longtail.graph.fanout_kernels import fill_trees

        if self.fanout.full:
            raise ValueError("trees of all neighbours have no shape")
        shape = tuple(1 + size for size in reversed(self.fanout.sizes[:hops]))
        trees = np.empty((len(nodes), int(np.prod(shape, dtype=np.int64))), dtype=np.int32)
        with threads_for(len(nodes)):
            fill_trees(
                self.graph.starts,
                self.graph.neighbours,
                frozen(nodes),
                hops,
                self._sizes,
                np.uint64(seed),
                _or_none(exclude, nodes),
                self.fanout.pad,
                trees,
            )
        return trees.reshape(len(nodes), *shape)

    @cached_property
    def _sizes(self) -> I64:
        return frozen(np.array(self.fanout.sizes, dtype=np.int64))

    def _sums(self, root_ptr: I64, roots: I32, hops: int, seed: int, exclude: I64 | None) -> F32:
        from longtail.graph.fanout_kernels import add_paths

        n = len(root_ptr) - 1
        sums = np.zeros((n, 1 << hops, self.vectors.shape[1]), dtype=np.float32)
        if self.fanout.full:
            self._add_full(root_ptr, roots, hops, exclude, sums)
            return sums
        with threads_for(n, each=8):
            add_paths(
                self.graph.starts,
                self.graph.neighbours,
                self.vectors,
                frozen(root_ptr.astype(np.int64)),
                frozen(roots),
                hops,
                self._sizes,
                np.uint64(seed),
                _or_none(exclude, root_ptr[1:]),
                self.fanout.pad,
                self.fanout.mean,
                sums,
            )
        return sums

    def _add_full(self, root_ptr: I64, roots: I32, hops: int, exclude: I64 | None, sums: F32) -> None:
        if exclude is not None and np.any(exclude >= 0):
            raise ValueError("nodes can be excluded from samples only")
        owners = np.repeat(np.arange(len(root_ptr) - 1), np.diff(root_ptr))
        for kind in range(1 << hops):
            np.add.at(sums[:, kind], owners, self._powers[kind.bit_count()][roots])

    @cached_property
    def _powers(self) -> list[F32]:
        """A^j V for j = 0..K: with all neighbours a path's kind matters only by how many hops it takes."""
        from longtail.graph.ops import scale_rows_to_sum_one

        matrix = scale_rows_to_sum_one(self.graph.matrix()) if self.fanout.mean else self.graph.matrix()
        powers = [self.vectors]
        for _ in range(self.fanout.hops):
            powers.append(np.asarray(matrix @ powers[-1], dtype=np.float32))
        return powers


def convolutions(sums: Any, epsilons: Iterable[Any]) -> Iterator[Any]:
    """a^1, ..., a^K, (B, D) each, from sums along paths (B, 2^K, D); arrays of numpy or tensors.

    Bit 0 of a kind is the first hop: kinds 2j and 2j + 1 differ in that hop alone, which stays (1 + eps) or goes to a
    neighbour.
    """
    for epsilon in epsilons:
        sums = (1 + epsilon) * sums[:, 0::2] + sums[:, 1::2]
        yield sums[:, 0]


def _or_none(exclude: I64 | None, like: NDArray[np.integer]) -> I64:
    return frozen(np.full(len(like), -1, dtype=np.int64) if exclude is None else exclude.astype(np.int64))
