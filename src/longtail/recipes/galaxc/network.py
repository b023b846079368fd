"""The network of GalaXC in torch: several views of a node, each over a wider neighbourhood (and GraphSAGE and GIN in
their place); and what turns views of documents into scores of labels, classifiers with attention or the likeness of
embeddings.

Encoders read the neighbourhoods of a joint graph, sampled by compiled kernels on a CPU and by gathers on a GPU. Both
draw the same samples for the same seed, so a batch looks alike wherever it is trained. All documents of a step meet the
same labels, so a head gives both sides of one product. Shapes: B documents, U labels, K hops (or views) of D numbers,
C = 2^K kinds of paths (`longtail.recipes.galaxc.graph.Paths`), and E numbers that both sides of a product have: K D (D
where views are averaged), one more with a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.declared import Shaped
from longtail.graph.ops import unit_rows
from longtail.models.rankers import Classifier
from longtail.nn.batches import Bags, to_device, to_numpy, to_tensor
from longtail.nn.blocks import BatchNorm, GinLayer, uniform, xavier_linear
from longtail.nn.row_tables import RowTable
from longtail.persistence import DataPart
from longtail.recipes.galaxc.graph import Fanout, HiddenEdges, JointGraph, Paths, convolutions
from longtail.recipes.galaxc.ranker import (
    Averaged,
    FrozenGraphEncoder,
    FrozenHops,
    FrozenMessages,
    FrozenSageLayer,
    root_of,
)
from longtail.recipes.galaxc.settings import AttentionKind, HopsConfig
from longtail.training.fit import restore_tensors, saved_tensors
from longtail.types import F32, I32, I64, BoolArray

_GAMMA, _MIX_1, _MIX_2 = (
    np.int64(np.uint64(bits).astype(np.int64)) for bits in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


@dataclass(frozen=True)
class Roots:
    """What embeddings are asked for: nodes by their own edges, or (with `links`) as documents outside of the graph.

    nodes: (B,) int32.  seed: names the samples.  links: (B, m) int32, -1 where there are fewer.
    hidden: (B,) bool, with `links`: whose own edges are not seen; all by default.
    unseen: with `links`: edges that paths of hidden ones do not take; none by default.
    """

    nodes: I32
    seed: int
    links: I32 | None = None
    hidden: BoolArray | None = None
    unseen: HiddenEdges | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    def rows(self, index: slice) -> Roots:
        return self._at(np.arange(len(self))[index], self.hidden is not None)

    def parts(self) -> list[tuple[Roots, I64]]:
        """Roots that are all of one kind, with their places; none is empty (unless all are)."""
        everyone = np.arange(len(self))
        if self.links is None or self.hidden is None or self.hidden.all():
            return [(self._at(everyone), everyone)]
        seen, unseen = np.flatnonzero(~self.hidden), np.flatnonzero(self.hidden)
        own = (Roots(self.nodes[seen], self.seed), seen)
        return [own, (self._at(unseen), unseen)] if len(unseen) else [own]

    def _at(self, places: I64, with_hidden: bool = False) -> Roots:
        return Roots(
            self.nodes[places],
            self.seed,
            None if self.links is None else self.links[places],
            self.hidden[places] if with_hidden and self.hidden is not None else None,
            None if self.unseen is None else self.unseen.rows(places),
        )


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
        """(B, 2^K, D): see `Paths`."""
        return self.joined([(self._sums(part), places) for part, places in roots.parts()])

    def joined(self, parts: list[tuple[Tensor, I64]]) -> Tensor:
        """Results of `Roots.parts`, each row in its place."""
        if len(parts) == 1:
            return parts[0][0]
        order = np.argsort(np.concatenate([places for _, places in parts]), kind="stable")
        return torch.cat([values for values, _ in parts])[to_device(order, self.device)]

    def _sums(self, roots: Roots) -> Tensor:
        if not self.by_kernel:
            return self._sums_by_torch(roots)
        if roots.links is None:
            return torch.from_numpy(self.paths.of_nodes(roots.nodes, roots.seed))
        own = self.paths.vectors[roots.nodes]
        return torch.from_numpy(self.paths.of_linked(own, roots.links, roots.seed, roots.unseen))

    def _sums_by_torch(self, roots: Roots) -> Tensor:
        hops = self.fanout.hops
        if roots.links is None:
            values, real = self.samples(roots, hops)
            return self._reduced(values, real, hops)
        (values, real), owners, weights = self.link_samples(roots)
        beyond = self._reduced(values, real, hops - 1)
        total = beyond.new_zeros(len(roots), *beyond.shape[1:]).index_add_(0, owners, beyond)
        pieces = [self.own(roots)[:, None]] + [
            total[:, : 1 << hop] * weights[:, hop, None, None] for hop in range(hops)
        ]
        return torch.cat(pieces, dim=1)

    def _reduced(self, values: Tensor, real: Tensor, hops: int) -> Tensor:
        """Samples (B, 1 + F_hops, ..., 1 + F_1, D) summed hop by hop to (B, 2^hops, D)."""
        sums, there = values[..., None, :] * real[..., None, None], real
        for _ in range(hops):
            # The axes left are (B, ..., neighbours of this hop, kinds, D).
            others = sums[..., 1:, :, :].sum(dim=-3)
            if self.fanout.mean:
                others = others / there[..., 1:].sum(dim=-1).clamp(min=1)[..., None, None]
            sums, there = torch.cat([sums[..., 0, :, :], others], dim=-2), there[..., 0]
        return sums

    # ---- samples ----

    def samples(self, roots: Roots, hops: int) -> tuple[Tensor, Tensor]:
        """(B, 1 + F_hops, ..., 1 + F_1, D) vectors of sampled nodes by own edges, and where there is a node."""
        return self._samples(roots.nodes, hops, roots.seed, None)

    def link_samples(self, roots: Roots, mean: bool | None = None) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
        """Samples of K - 1 hops of all links of all roots, (M,) the root of each, and (B, K) what a link of each root
        counts at each hop.

        mean: see `Fanout.link_weights`.
        """
        assert roots.links is not None
        real = roots.links >= 0
        owners = np.repeat(np.arange(len(roots)), real.sum(axis=1))
        unseen = None if roots.unseen is None else roots.unseen.rows(owners)
        samples = self._samples(roots.links[real], self.fanout.hops - 1, roots.seed, unseen)
        return (
            samples,
            to_device(owners, self.device),
            to_device(self.fanout.link_weights(real.sum(axis=1), mean), self.device),
        )

    def own(self, roots: Roots) -> Tensor:
        """(B, D): the vectors of the roots themselves."""
        if self.by_kernel:
            return torch.from_numpy(self.paths.vectors[roots.nodes])
        return self._vectors[to_device(roots.nodes.astype(np.int64), self.device)]

    def _samples(self, nodes: I32, hops: int, seed: int, hidden: HiddenEdges | None) -> tuple[Tensor, Tensor]:
        if self.by_kernel:
            ids = self.paths.samples(nodes, hops, seed, hidden)
            return torch.from_numpy(
                np.where(ids[..., None] >= 0, self.paths.vectors[ids], np.float32(0))
            ), torch.from_numpy(ids >= 0)
        at = self._samples_by_torch(nodes, hops, seed, hidden)
        return self._vectors[at.clamp(min=0)] * (at >= 0)[..., None], at >= 0

    def _samples_by_torch(self, nodes: I32, hops: int, seed: int, hidden: HiddenEdges | None) -> Tensor:
        at = to_device(nodes.astype(np.int64), self.device)
        own, labels = (None, None) if hidden is None else self._padded(hidden)
        for hop in range(hops, 0, -1):
            if own is None or labels is None:
                further = self._window(at, hop, seed)
            else:
                middle = (1,) * (at.dim() - 1)
                further = self.sampled(
                    at, hop, seed, own.view(-1, *middle).expand(at.shape), labels.view(len(labels), *middle, -1)
                )
            at = torch.cat([at[..., None], further], dim=-1)
        return at

    def _padded(self, hidden: HiddenEdges) -> tuple[Tensor, Tensor]:
        """(B,) the nodes and (B, H) their hidden labels, -2 where there are fewer: no node has that number."""
        counts = np.diff(hidden.starts)
        labels = np.full((len(hidden), max(int(counts.max(initial=0)), 1)), -2, dtype=np.int64)
        labels[np.arange(labels.shape[1]) < counts[:, None]] = hidden.labels
        return to_device(hidden.nodes, self.device), to_device(labels, self.device)

    def sampled(self, nodes: Tensor, hop: int, seed: int, own: Tensor, hidden: Tensor) -> Tensor:
        """(..., F_hop): neighbours of `nodes` (...) int64, -1 where there are none: what the kernel `sample` draws.

        own: (...), hidden: (..., H), -2 as padding: edges between `own` and `hidden` are passed over.
        """
        beside = (nodes != own) & (own >= 0) & (nodes[..., None] == hidden).any(dim=-1)
        found = self._window(nodes, hop, seed, 2, lambda seen: beside[..., None] & (seen == own[..., None]))
        at_own = (nodes == own) & (own >= 0)
        if bool(at_own.any()):
            # Few paths come back to the document itself: only these are compared with all that is hidden.
            unseen = hidden.expand(*nodes.shape, -1)[at_own]
            found[at_own] = self._window(
                nodes[at_own],
                hop,
                seed,
                1 + int(hidden.shape[-1]),
                lambda seen: (seen[..., None] == unseen[:, None]).any(dim=-1),
            )
        return found

    def _window(
        self, nodes: Tensor, hop: int, seed: int, rounds: int = 1, struck: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """(..., F_hop): a window of each node's list, which goes round.

        struck: which of the neighbours (..., steps) are passed over; of any `rounds` in a row one at least is not.
        """
        size = self.fanout.sizes[hop - 1]
        node = nodes.clamp(min=0)
        low = self._starts[node]
        degree = self._starts[node + 1] - low
        first = _below(_draw(_key_of(seed, node), hop), degree)
        steps = torch.arange(rounds * size, device=self.device)
        turn = (first[..., None] + steps) % degree.clamp(min=1)[..., None]
        there = ((degree > 0) & (nodes >= 0))[..., None] & (
            torch.tensor(self.fanout.pad, device=self.device) | (steps < degree[..., None])
        )
        found = (
            self._neighbours[(low[..., None] + turn).clamp(max=max(len(self._neighbours) - 1, 0))].long()
            if len(self._neighbours)
            else turn
        )
        if struck is None:
            return torch.where(there, found, -1)
        there &= ~struck(found)
        # The first `size` that are left keep their order: each goes to the place that counts those before it; the
        # rest, and what was struck out, to one more place that is cut off.
        place = torch.where(there, there.cumsum(dim=-1) - 1, size).clamp(max=size)
        kept = torch.full((*nodes.shape, size + 1), -1, dtype=torch.int64, device=self.device)
        return kept.scatter_(-1, place, found)[..., :size]


# ---- the random numbers of `longtail.kernels.basics`, in wrapping signed arithmetic ----


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


# ---- encoders ----


class GraphEncoder(nn.Module):
    """Nodes in, (B, views, D) out. `fixed` once its parameters and statistics must not change any more."""

    width: int
    views: int
    fixed: bool = False

    def forward(self, around: Neighbourhoods, roots: Roots) -> Tensor:
        raise NotImplementedError

    def frozen(self, space: Averaged = "transformed", *, balanced: bool = False) -> FrozenGraphEncoder:
        """What predicts without torch. space, balanced: see `FrozenHops`."""
        raise NotImplementedError

    def freeze(self) -> None:
        """No parameter and no running statistic changes any more; dropout stays. Paper: GalaXC Sec. 4.1, Module III."""
        self.fixed = True
        self.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> GraphEncoder:
        super().train(mode)
        if self.fixed:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.eval()
        return self


@torch.no_grad()
def encoded_blocks(
    encoder: GraphEncoder, around: Neighbourhoods, roots: Roots, *, block: int = 1024
) -> Iterator[Tensor]:
    """(b, K, D): all views of `block` roots after the other, without dropout; the encoder's mode is put back."""
    was_training = encoder.training
    encoder.eval()
    try:
        for start in range(0, len(roots), block):
            yield encoder(around, roots.rows(slice(start, start + block)))
    finally:
        encoder.train(was_training)


class HopTransform(nn.Module):
    """h = dropout(ReLU(a)); v = h + dropout(ReLU(BN(R h + b))), R = I at the start. `pre_relu` False: h = a.

    Paper: GalaXC Sec. 4 (Fig. 1); the order is that of the released code, which the paper leaves open.
    """

    def __init__(self, width: int, *, dropout: float = 0.5, pre_relu: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, device="meta")
        self.linear.weight = nn.Parameter(torch.eye(width))
        self.linear.bias = nn.Parameter(torch.zeros(width))
        self.norm = BatchNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.pre_relu = pre_relu

    def forward(self, a_BD: Tensor) -> Tensor:
        h_BD: Tensor = self.dropout(torch.relu(a_BD)) if self.pre_relu else a_BD
        return h_BD + self.dropout(torch.relu(self.norm(self.linear(h_BD))))

    def frozen_affine(self) -> tuple[Tensor, Tensor]:
        """(D, D) and (D,): the linear layer with the batch norm folded in, as prediction uses it."""
        scale, shift = self.norm.folded()
        return scale[:, None] * self.linear.weight, scale * self.linear.bias + shift


class HopEncoder(GraphEncoder):
    """v^k = T_k(a^k) with a^k = (1 + eps_k) a^(k-1) + sum of neighbours' a^(k-1), nothing non-linear between hops.

    All views are given back: (B, K, D). eps starts in [0, 1). Paper: GalaXC Sec. 4.
    """

    def __init__(
        self, hops: int, width: int, rng: np.random.Generator, *, dropout: float = 0.5, pre_relu: bool = True
    ) -> None:
        super().__init__()
        self.width, self.views = width, hops
        self.epsilon = nn.Parameter(torch.from_numpy(rng.random(hops, dtype=np.float32)))
        self.transforms = nn.ModuleList(HopTransform(width, dropout=dropout, pre_relu=pre_relu) for _ in range(hops))

    def forward(self, around: Neighbourhoods, roots: Roots) -> Tensor:
        return self.transformed(self.convolved(around.sums(roots)))

    def frozen(self, space: Averaged = "transformed", *, balanced: bool = False) -> FrozenHops:
        transforms: list[Any] = list(self.transforms)
        folded = [transform.frozen_affine() for transform in transforms]
        weight, bias = (np.stack([to_numpy(pair[side]) for pair in folded]) for side in (0, 1))
        return FrozenHops(to_numpy(self.epsilon), weight, bias, transforms[0].pre_relu, space, balanced)

    def convolved(self, sums_BCD: Tensor) -> Tensor:
        """(B, K, D): a^1, ..., a^K, in float32 under autocast too: sums over many neighbours would lose the small
        ones in bf16.
        """
        return torch.stack(list(convolutions(sums_BCD, self.epsilon)), dim=1)

    def transformed(self, a_BKD: Tensor) -> Tensor:
        return torch.stack([transform(a_BKD[:, hop]) for hop, transform in enumerate(self.transforms)], dim=1)


class SageLayer(nn.Module):
    """h = dropout(ReLU(W [own; mean of neighbours] + b)). Paper: GraphSAGE, as in GalaXC Table 7.

    signed: without the ReLU, for embeddings of either sign.
    """

    def __init__(self, width: int, rng: np.random.Generator, *, dropout: float = 0.5, signed: bool = False) -> None:
        super().__init__()
        self.linear = xavier_linear(2 * width, width, rng)
        self.dropout = nn.Dropout(dropout)
        self.signed = signed

    def forward(self, own: Tensor, neighbours: Tensor) -> Tensor:
        mixed: Tensor = self.linear(torch.cat([own, neighbours], dim=-1))
        return mixed if self.signed else self.dropout(torch.relu(mixed))

    def frozen(self) -> FrozenSageLayer:
        """Its twin that predicts without torch."""
        return FrozenSageLayer(to_numpy(self.linear.weight), to_numpy(self.linear.bias), self.signed)


class MessageEncoder(GraphEncoder):
    """h^k = layer_k(h^(k-1) of the node, h^(k-1) of its sampled neighbours), h^0 the vectors of nodes: a non-linearity
    at every hop, what GalaXC's encoder is compared with. Gives the last hop alone, (B, 1, D).

    mean: neighbours come averaged, else summed.
    """

    views = 1

    def __init__(self, layers: Sequence[SageLayer | GinLayer], width: int, *, mean: bool) -> None:
        super().__init__()
        self.layers, self.width, self.mean = nn.ModuleList(layers), width, mean

    def forward(self, around: Neighbourhoods, roots: Roots) -> Tensor:
        return around.joined([(self._of_one_kind(around, part), places) for part, places in roots.parts()])

    def frozen(self, space: Averaged = "transformed", *, balanced: bool = False) -> FrozenMessages:
        layers: list[Any] = list(self.layers)
        return FrozenMessages(tuple(layer.frozen() for layer in layers), self.mean)

    def _of_one_kind(self, around: Neighbourhoods, roots: Roots) -> Tensor:
        if roots.links is None:
            return self.levels(*around.samples(roots, len(self.layers)), len(self.layers))[-1][:, None]
        (values, real), owners, weights = around.link_samples(roots, self.mean)
        h_BD, theirs = around.own(roots), self.levels(values, real, len(self.layers) - 1)
        for hop, layer in enumerate(self.layers):
            message = (
                h_BD.new_zeros(h_BD.shape).index_add_(0, owners, theirs[hop].to(h_BD.dtype)) * weights[:, hop, None]
            )
            h_BD = layer(h_BD, message.to(h_BD.dtype))
        return h_BD[:, None]

    def levels(self, values: Tensor, real: Tensor, hops: int) -> list[Tensor]:
        """h^0, ..., h^hops of the nodes that samples are around: each (B, D)."""
        found = [root_of(values)]
        for hop in range(hops):
            others, there = values[..., 1:, :], real[..., 1:, None]
            message = (others * there).sum(dim=-2)
            if self.mean:
                message = message / there.sum(dim=-2).clamp(min=1)
            values, real = self.layers[hop](values[..., 0, :], message), real[..., 0]
            found.append(root_of(values))
        return found


def sage_encoder(
    hops: int, width: int, rng: np.random.Generator, *, dropout: float = 0.5, signed: bool = False
) -> MessageEncoder:
    """signed: embeddings of either sign, for link prediction by their cosine."""
    layers = [SageLayer(width, rng, dropout=dropout, signed=signed and hop == hops - 1) for hop in range(hops)]
    return MessageEncoder(layers, width, mean=True)


def gin_encoder(hops: int, width: int, rng: np.random.Generator, *, dropout: float = 0.5) -> MessageEncoder:
    """Paper: GIN, as in GalaXC Table 7."""

    def layer() -> GinLayer:
        epsilon = torch.from_numpy(rng.random(1, dtype=np.float32))
        return GinLayer(width, width, rng, epsilon=epsilon, dropout=dropout)

    return MessageEncoder([layer() for _ in range(hops)], width, mean=False)


# ---- heads ----


class SharedHead(nn.Module):
    """K views of documents, and numbers of labels, as two sides of one product. Attention weights are its `logits`."""

    labels: int

    def inputs(self, x_BKD: Tensor) -> Tensor:
        """(B, E)"""
        raise NotImplementedError

    def rows(self, labels_U: Tensor, seed: int) -> Tensor:
        """(U, E) of different labels, (U,) int32. seed: names samples, for heads that look at neighbourhoods."""
        raise NotImplementedError

    def frozen(self, label_views: Callable[[], F32]) -> tuple[Classifier, F32 | None]:
        """Classifiers, and (L, K) what each view counts for each label (None: all alike), for prediction.

        label_views: gives (L, K, D), the views of all labels, for heads without a classifier per label.
        """
        raise NotImplementedError


class LabelAttention(SharedHead):
    """s_l = w_l . sum_k alpha_lk x^k + b_l with alpha_l = softmax(e_l).

    label: e of its own per label; global: one for all; none: alpha = 1 / K.
    As one product: documents are [x^1; ...; x^K] and label l is [alpha_l1 w_l; ...; alpha_lK w_l] (`inputs`, `rows`).
    w (and b) start in +-1/sqrt(D), e from N(0, spread^2); the paper's spread is 1.
    Paper: GalaXC Sec. 4 (label-wise attention) and 4.1 (initialisation).
    """

    def __init__(
        self,
        labels: int,
        views: int,
        width: int,
        rng: np.random.Generator,
        *,
        attention: AttentionKind = "label",
        spread: float = 1.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.labels, self.views, self.width, self.has_bias = labels, views, width, bias
        self.attention: AttentionKind = attention if views > 1 else "none"
        self.weights = RowTable(uniform((labels, width + bias), width**-0.5, rng))
        if self.attention == "label":
            self.logits: nn.Module = RowTable(
                torch.from_numpy(rng.standard_normal((labels, views), dtype=np.float32)).mul_(spread)
            )
        elif self.attention == "global":
            self.logits = _Shared(torch.from_numpy(rng.standard_normal(views, dtype=np.float32)).mul_(spread))
        else:
            self.logits = nn.Identity()

    def inputs(self, x_BKD: Tensor) -> Tensor:
        """(B, E): documents as `rows` want them."""
        z = x_BKD.mean(dim=1) if self.attention == "none" else x_BKD.flatten(1)
        return torch.cat([z, z.new_ones(len(z), 1)], dim=1) if self.has_bias else z

    def rows(self, labels_U: Tensor, seed: int = 0) -> Tensor:
        """(U, E): the classifiers of different labels, (U,) int32. seed: not used."""
        bags = Bags.of_rows(labels_U)
        weights: Tensor = self.weights(bags)
        rows = weights[:, : self.width]
        if self.attention != "none":
            logits = self.logits(bags)
            rows = (torch.softmax(logits, dim=1)[:, :, None] * rows[:, None]).flatten(1)
        return torch.cat([rows, weights[:, self.width :]], dim=1) if self.has_bias else rows

    @torch.no_grad()
    def read(self, blocks: Iterable[Tensor], labels: I64) -> tuple[Tensor, Tensor]:
        """(B, D): what a label, one per document, reads of a document's views; and these labels as a tensor.

        blocks: the views (b, K, D) of documents, block after block.
        """
        alphas, labels_B = self.alphas(), to_tensor(labels, self.weights.weight.device)
        x_BD, done = alphas.new_empty(len(labels), self.width), 0
        for x_bKD in blocks:
            part = slice(done, done + len(x_bKD))
            x_BD[part] = (alphas[labels_B[part]][:, :, None] * x_bKD.float()).sum(dim=1)
            done = part.stop
        return x_BD, labels_B

    @torch.no_grad()
    def start_from(
        self, rows_LD: Tensor, right: tuple[Tensor, Tensor], wrong: tuple[Tensor, Tensor], scores: tuple[float, float]
    ) -> None:
        """Let classifiers start as a cosine to what they are made for: w_l = g unit(rows_l), and one bias for all.

        right, wrong: documents (B, D) with a label (B,) each that they have, and any label; from `read`.
        scores: what the mean scores of both shall be; g and the bias follow.
        """
        assert self.has_bias, "a cosine is rarely negative: without a bias every label would seem right"
        unit = nn.functional.normalize(rows_LD, dim=1)
        means = [(unit[labels] * x).sum(dim=1).mean() for x, labels in (right, wrong)]
        # Where right labels are no nearer than any others there is nothing to start from but their direction.
        g = (scores[0] - scores[1]) / (means[0] - means[1]).clamp(min=1e-3)
        self.weights.weight[:, : self.width] = g * unit
        self.weights.weight[:, self.width] = scores[0] - g * means[0]

    @torch.no_grad()
    def alphas(self) -> Tensor:
        """(L, K): what each view counts for each label; rows sum to one."""
        if self.attention == "none":
            return self.weights.weight.new_full((self.labels, self.views), 1 / self.views)
        logits = self.logits.weight
        assert isinstance(logits, Tensor)
        return torch.softmax(logits, dim=-1).expand(self.labels, -1)

    def frozen(self, label_views: Callable[[], F32]) -> tuple[Classifier, F32 | None]:
        weights = to_numpy(self.weights.weight)
        bias = np.ascontiguousarray(weights[:, self.width]) if self.has_bias else None
        classifier = Classifier(np.ascontiguousarray(weights[:, : self.width]), bias)
        return classifier, None if self.attention == "none" else to_numpy(self.alphas())


class _Shared(nn.Module):
    """One row for every label that is asked for."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(values)

    def forward(self, bags: Bags) -> Tensor:
        return self.weight.expand(len(bags), -1)


class LinkHead(SharedHead):
    """score = scale * cosine + shift, both trained, between the embeddings that one encoder gives of documents and
    labels: what classifiers are compared with. There is no parameter per label.

    Paper: GalaXC Sec. 3 (link prediction, Table 1).
    """

    def __init__(self, encoder: GraphEncoder, around: Neighbourhoods, labels: int) -> None:
        super().__init__()
        self.encoder, self.around, self.labels = encoder, around, labels
        self.scale, self.shift = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-5.0))

    def inputs(self, x_BKD: Tensor) -> Tensor:
        """(B, D + 1)"""
        unit = nn.functional.normalize(x_BKD.mean(dim=1), dim=1)
        return torch.cat([unit * self.scale, unit.new_ones(len(unit), 1)], dim=1)

    def rows(self, labels_U: Tensor, seed: int) -> Tensor:
        """(U, D + 1): label l is node l."""
        z_UKD: Tensor = self.encoder(self.around, Roots(labels_U.cpu().numpy().astype(np.int32), seed))
        unit = nn.functional.normalize(z_UKD.float().mean(dim=1), dim=1)
        return torch.cat([unit, self.shift.expand(len(unit), 1)], dim=1)

    def frozen(self, label_views: Callable[[], F32]) -> tuple[Classifier, F32 | None]:
        # What the head was trained on is the mean of what classifiers read, whatever the shortlist is looked up by.
        return Classifier(unit_rows(label_views().mean(axis=1))), None


# ---- the whole ----


class Modules(NamedTuple):
    """What is trained, and the neighbourhoods that it reads."""

    encoder: GraphEncoder
    head: SharedHead
    around: Neighbourhoods

    @property
    def trained(self) -> nn.Module:
        return nn.ModuleDict({"encoder": self.encoder, "head": self.head})


def new_encoder(c: HopsConfig, width: int, rng: np.random.Generator, *, signed: bool) -> GraphEncoder:
    """The encoder that the settings name, untrained. signed: see `sage_encoder`."""
    hops = len(c.fanouts)
    if c.encoder == "galaxc":
        return HopEncoder(hops, width, rng, dropout=c.dropout, pre_relu=c.pre_relu)
    if c.encoder == "gin":
        return gin_encoder(hops, width, rng, dropout=c.dropout)
    return sage_encoder(hops, width, rng, dropout=c.dropout, signed=signed)


@dataclass(frozen=True)
class Network(DataPart):
    """What stage I leaves behind: trained tensors of encoder and head, by name."""

    KIND = "galaxc-network"

    tensors: Mapping[str, Annotated[NDArray[Any], Shaped(plain=True)]]

    @classmethod
    def of(cls, modules: Modules) -> Network:
        return cls(saved_tensors(modules.trained))

    def restore(self, modules: Modules) -> None:
        restore_tensors(modules.trained, self.tensors)
