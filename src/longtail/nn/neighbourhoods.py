"""A joint graph and the vectors of its nodes where training happens: sampled neighbours by compiled kernels on a CPU,
by gathers on a GPU.

Both draw the same samples for the same seed, so a batch looks alike wherever it is trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longtail.graph.fanout import Fanout, Paths
from longtail.graph.joint_graph import JointGraph
from longtail.nn.batches import sent, to_tensor
from longtail.types import F32, I32, I64, BoolArray

_GAMMA, _MIX_1, _MIX_2 = (
    np.int64(np.uint64(bits).astype(np.int64)) for bits in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


@dataclass(frozen=True)
class Roots:
    """What embeddings are asked for: nodes by their own edges, or (with `links`) as if they were documents outside of
    the graph.

    nodes: (B,) int32.  links: (B, m) int32, -1 where there are fewer.  seed: names the samples.
    hidden: (B,) bool, with `links`: whose own edges are not seen; all by default.
    """

    nodes: I32
    seed: int
    links: I32 | None = None
    hidden: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    def rows(self, index: slice) -> Roots:
        return Roots(
            self.nodes[index],
            self.seed,
            None if self.links is None else self.links[index],
            None if self.hidden is None else self.hidden[index],
        )

    def parts(self) -> list[tuple[Roots, I64]]:
        """Roots that are all of one kind, with their places; none is empty (unless all are)."""
        if self.links is None or self.hidden is None or self.hidden.all():
            return [(Roots(self.nodes, self.seed, self.links), np.arange(len(self)))]
        seen, unseen = np.flatnonzero(~self.hidden), np.flatnonzero(self.hidden)
        own = (Roots(self.nodes[seen], self.seed), seen)
        return [own, (Roots(self.nodes[unseen], self.seed, self.links[unseen]), unseen)] if len(unseen) else [own]


class Neighbourhoods:
    """Gives encoders what they read of a node's surroundings. Vectors of nodes are never trained."""

    def __init__(
        self,
        graph: JointGraph,
        vectors: F32,
        fanout: Fanout,
        device: torch.device | str = "cpu",
        *,
        by_kernel: bool | None = None,
    ) -> None:
        """by_kernel: False takes torch's way on a CPU too (the test of the GPU's)."""
        self.device, self.fanout = torch.device(device), fanout
        self.paths = Paths(graph, vectors, fanout)
        self.by_kernel = (self.device.type == "cpu") if by_kernel is None else by_kernel
        if not self.by_kernel:
            if fanout.full:
                raise ValueError("all neighbours are summed by the CPU's code only")
            self._vectors = to_tensor(np.asarray(vectors), device)
            self._starts, self._neighbours = to_tensor(graph.starts, device), to_tensor(graph.neighbours, device)

    @property
    def width(self) -> int:
        return int(self.paths.vectors.shape[1])

    # ---- sums along paths ----

    def sums(self, roots: Roots) -> Tensor:
        """(B, 2^K, D): see `graph.fanout.Paths`."""
        return self.joined([(self._sums(part), places) for part, places in roots.parts()])

    def joined(self, parts: list[tuple[Tensor, I64]]) -> Tensor:
        """Results of `Roots.parts`, each row in its place."""
        if len(parts) == 1:
            return parts[0][0]
        order = np.argsort(np.concatenate([places for _, places in parts]), kind="stable")
        return torch.cat([values for values, _ in parts])[sent(order, self.device)]

    def _sums(self, roots: Roots) -> Tensor:
        if not self.by_kernel:
            return self._sums_by_torch(roots)
        if roots.links is None:
            return torch.from_numpy(self.paths.of_nodes(roots.nodes, roots.seed))
        own = self.paths.vectors[roots.nodes]
        return torch.from_numpy(
            self.paths.of_linked(own, roots.links, roots.seed, exclude=roots.nodes.astype(np.int64))
        )

    def _sums_by_torch(self, roots: Roots) -> Tensor:
        hops = self.fanout.hops
        if roots.links is None:
            values, real = self.tree(roots, hops)
            return self._reduced(values, real, hops)
        (values, real), owners, weights = self.link_trees(roots)
        beyond = self._reduced(values, real, hops - 1)
        total = beyond.new_zeros(len(roots), *beyond.shape[1:]).index_add_(0, owners, beyond)
        own = self._vectors[sent(roots.nodes.astype(np.int64), self.device)]
        pieces = [own[:, None]] + [total[:, : 1 << hop] * weights[:, hop, None, None] for hop in range(hops)]
        return torch.cat(pieces, dim=1)

    def _reduced(self, values: Tensor, real: Tensor, hops: int) -> Tensor:
        """Trees (B, 1 + F_hops, ..., 1 + F_1, D) summed hop by hop to (B, 2^hops, D)."""
        sums, there = values[..., None, :] * real[..., None, None], real
        for _ in range(hops):
            # The axes left are (B, ..., neighbours of this hop, kinds, D).
            others = sums[..., 1:, :, :].sum(dim=-3)
            if self.fanout.mean:
                others = others / there[..., 1:].sum(dim=-1).clamp(min=1)[..., None, None]
            sums, there = torch.cat([sums[..., 0, :, :], others], dim=-2), there[..., 0]
        return sums

    # ---- trees ----

    def tree(self, roots: Roots, hops: int) -> tuple[Tensor, Tensor]:
        """(B, 1 + F_hops, ..., 1 + F_1, D) vectors of computation trees by own edges, and where there is a node."""
        return self._tree(roots.nodes, hops, roots.seed, None)

    def link_trees(self, roots: Roots, mean: bool | None = None) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
        """Trees of K - 1 hops of all links of all roots, (M,) the root of each, and (B, K) what a link of each root
        counts at each hop.

        mean: see `Fanout.link_weights`.
        """
        assert roots.links is not None
        real = roots.links >= 0
        owners = np.repeat(np.arange(len(roots)), real.sum(axis=1))
        trees = self._tree(roots.links[real], self.fanout.hops - 1, roots.seed, roots.nodes[owners].astype(np.int64))
        return trees, sent(owners, self.device), sent(self.fanout.link_weights(real.sum(axis=1), mean), self.device)

    def own(self, roots: Roots) -> Tensor:
        """(B, D): the vectors of the roots themselves."""
        if self.by_kernel:
            return torch.from_numpy(self.paths.vectors[roots.nodes])
        return self._vectors[sent(roots.nodes.astype(np.int64), self.device)]

    def _tree(self, nodes: I32, hops: int, seed: int, exclude: I64 | None) -> tuple[Tensor, Tensor]:
        if self.by_kernel:
            ids = self.paths.tree(nodes, hops, seed, exclude)
            return torch.from_numpy(
                np.where(ids[..., None] >= 0, self.paths.vectors[ids], np.float32(0))
            ), torch.from_numpy(ids >= 0)
        at = self._tree_by_torch(nodes, hops, seed, exclude)
        return self._vectors[at.clamp(min=0)] * (at >= 0)[..., None], at >= 0

    def _tree_by_torch(self, nodes: I32, hops: int, seed: int, exclude: I64 | None) -> Tensor:
        at = sent(nodes.astype(np.int64), self.device)
        without = None if exclude is None else sent(exclude, self.device)
        for hop in range(hops, 0, -1):
            hidden = None if without is None else without.view(-1, *(1,) * (at.dim() - 1)).expand(at.shape)
            at = torch.cat([at[..., None], self.sampled(at, hop, seed, hidden)], dim=-1)
        return at

    def sampled(self, nodes: Tensor, hop: int, seed: int, exclude: Tensor | None = None) -> Tensor:
        """(..., F_hop): neighbours of `nodes` (...) int64, -1 where there are none: what `fanout_kernels.sample`
        draws, by torch.
        """
        size = self.fanout.sizes[hop - 1]
        node = nodes.clamp(min=0)
        low = self._starts[node]
        degree = self._starts[node + 1] - low
        first = _below(_draw(_key_of(seed, node), hop), degree)
        steps = torch.arange(size if exclude is None else 2 * size, device=self.device)
        turn = (first[..., None] + steps) % degree.clamp(min=1)[..., None]
        there = ((degree > 0) & (nodes >= 0))[..., None] & (
            torch.tensor(self.fanout.pad, device=self.device) | (steps < degree[..., None])
        )
        found = (
            self._neighbours[(low[..., None] + turn).clamp(max=max(len(self._neighbours) - 1, 0))].long()
            if len(self._neighbours)
            else turn
        )
        if exclude is None:
            return torch.where(there, found, -1)
        there &= found != exclude[..., None]
        # The first `size` that are left keep their order: each goes to the place that counts those before it; the
        # rest, and what was struck out, to one more place that is cut off.
        place = torch.where(there, there.cumsum(dim=-1) - 1, size).clamp(max=size)
        kept = torch.full((*nodes.shape, size + 1), -1, dtype=torch.int64, device=self.device)
        return kept.scatter_(-1, place, found)[..., :size]


# ---- the random numbers of `graph.random_kernels`, in wrapping signed arithmetic ----


def _shifted(bits: Tensor, by: int) -> Tensor:
    """A logical shift to the right."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _mixed(bits: Tensor) -> Tensor:
    bits = (bits ^ _shifted(bits, 30)) * int(_MIX_1)
    bits = (bits ^ _shifted(bits, 27)) * int(_MIX_2)
    return bits ^ _shifted(bits, 31)


def _key_of(seed: int, item: Tensor) -> Tensor:
    return _mixed(_mixed(item * int(_GAMMA) + 1) + int(np.uint64(seed).astype(np.int64)))


def _draw(key: Tensor, counter: int) -> Tensor:
    with np.errstate(over="ignore"):
        offset = np.uint64(counter + 1) * np.uint64(0x9E3779B97F4A7C15)
    return _mixed(key + int(offset.astype(np.int64)))


def _below(bits: Tensor, n: Tensor) -> Tensor:
    return _shifted(_shifted(bits, 32) * n, 32)
