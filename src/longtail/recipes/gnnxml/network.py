"""Graph isomorphism networks over keyword graphs, in two branches. Paper: GNN-XML Sec. 3.1, Eq. 4 to 6.

    h^k_v = MLP^k((1 + eps^k) h^{k-1}_v + sum over neighbours u of h^{k-1}_u)
            MLP = Linear, BatchNorm, ReLU, Linear, ReLU
    h_G   = BatchNorm(concat over k = 0..J of the sum over vertices of h^k_v)
    g     = sigmoid(alpha W_c h^c_G + (1 - alpha) W_r h^r_G)

The conventional branch (c) sees documents as they come, the re-balance branch (r) those of rare labels more often.
Graphs of documents are flat tensors, taken by document without a Python loop.

And their training: samplers, the balance between branches, the mixed loss, and when to stop. Paper: Eq. 6 and 7, after
BBN (Zhou et al., CVPR 2020); Sec. 4.2 (RAdam).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.kernels.arrays import canonical, taken_runs
from longtail.models.encoders import FrozenGinLayer
from longtail.nn.batches import Bags, DeviceCsr, to_device, to_numpy, to_tensor
from longtail.nn.blocks import BatchNorm, GinLayer, xavier_linear
from longtail.nn.row_tables import bag_sums
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.ranker import FrozenBranch, FrozenGin
from longtail.recipes.gnnxml.settings import Balance, Branches, Readout, Share
from longtail.training.objectives import prefixed, trained_state
from longtail.types import F32, I64, Csr

# ---- graphs on a device ----


@dataclass(frozen=True)
class GraphBatch:
    """The graphs of B documents, their vertices one after the other.

    vertices: (V, D) their features.  edges: a bag of neighbours (numbers of vertices in the batch) per vertex.
    members: a bag of vertices per document.
    """

    vertices: Tensor
    edges: Bags
    members: Bags

    @property
    def sizes(self) -> Tensor:
        """(B,) int64: vertices per document."""
        return self.members.starts.diff()


class DeviceGraphs:
    """Keyword graphs whose entries live on a device. Pointers stay in numpy: sizes are then known without asking a GPU.

    weighted: neighbours count by the number of shared sentences, not once each.
    """

    def __init__(self, graphs: KeyGraphs, device: torch.device | str = "cpu", *, weighted: bool = False) -> None:
        self.device = torch.device(device)
        self.graphs = graphs
        self.neighbours = to_tensor(graphs.neighbours, device)
        self.weights = to_tensor(graphs.weights if weighted else np.ones(len(graphs.neighbours), np.float32), device)
        self.attached = to_tensor(graphs.attached, device)
        self.sentences = to_tensor(graphs.sentences, device)

    def __len__(self) -> int:
        return len(self.graphs)

    def rows(self, index: I64) -> GraphBatch:
        """The graphs of the documents at `index`, in that order; a document may come twice."""
        g = self.graphs
        vertex_starts, vertices = taken_runs(g.vertex_starts, index)
        sentence_starts, sentences = taken_runs(g.sentence_starts, index)
        edge_starts, edges = taken_runs(g.edge_starts, vertices)
        attach_starts, attached = taken_runs(g.attach_starts, vertices)
        sizes = np.diff(vertex_starts)
        first_vertex, first_sentence = np.repeat(vertex_starts[:-1], sizes), np.repeat(sentence_starts[:-1], sizes)
        edges_at, attached_at = self._to_device(edges), self._to_device(attached)
        neighbours = self.neighbours[edges_at] + self._to_device(
            np.repeat(first_vertex, np.diff(edge_starts)).astype(np.int32)
        )
        of_vertices = self.attached[attached_at] + self._to_device(
            np.repeat(first_sentence, np.diff(attach_starts)).astype(np.int32)
        )
        ones = torch.ones(len(of_vertices), device=self.device)
        features = bag_sums(
            self.sentences[self._to_device(sentences)].float(), Bags(self._to_device(attach_starts), of_vertices, ones)
        )
        members = Bags(
            self._to_device(vertex_starts),
            torch.arange(len(vertices), dtype=torch.int32, device=self.device),
            torch.ones(len(vertices), device=self.device),
        )
        return GraphBatch(features, Bags(self._to_device(edge_starts), neighbours, self.weights[edges_at]), members)

    def _to_device(self, array: Any) -> Tensor:
        return to_device(array, self.device)


class _NeighbourSum(torch.autograd.Function):
    """Sums of bags; `back` gives the gradient of the rows from that of the sums."""

    @staticmethod
    def forward(ctx: Any, h_VD: Tensor, bags: Bags, back: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.back = back
        return bag_sums(h_VD.contiguous(), bags)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradients[0]), None, None


_bag_sum = cast(Callable[..., Tensor], _NeighbourSum.apply)


def neighbour_sums(h_VD: Tensor, edges: Bags) -> Tensor:
    """(V, D): the weighted sum over the neighbours of each vertex.

    Edges stand in both directions, so the gradient is the same sum.
    """
    return _bag_sum(h_VD, edges, lambda gradient: bag_sums(gradient.contiguous(), edges))


def graph_sums(h_VD: Tensor, members: Bags) -> Tensor:
    """(B, D): the sum over the vertices of each document; zero where it has none."""
    return _bag_sum(h_VD, members, lambda gradient: gradient[members.owners])


# ---- the network ----

CONVENTIONAL, REBALANCE = "conventional", "rebalance"
# Paper: GNN-XML Sec. 3.1: both branches count the same when the network is asked.
ALPHA_AT_INFERENCE = 0.5


class Branch(nn.Module):
    """What one branch has of its own: its last layers, the normalisation of h_G, and a classifier per cluster."""

    def __init__(
        self,
        layers: list[GinLayer],
        width: int,
        clusters: int,
        rng: np.random.Generator,
        dropout: float,
        norm: BatchNorm | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm if norm is not None else BatchNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.head = xavier_linear(width, clusters, rng)

    def forward(self, h_BD: Tensor) -> Tensor:
        """(B, K): scores of the clusters."""
        return self.head(self.dropout(h_BD))


class BilateralGin(nn.Module):
    """The matcher: from keyword graphs to the clusters of labels that a document has.

    layers: J. Without layers h_G is the sum of the vertices' features.
    concat: h_G joins all layers, else it is the last one alone.
    share: what branches have in common: nothing, all layers but the last (BBN's way), or all of them.
    learned_eps: whether eps is trained; it starts at 0, where the paper leaves it.
    """

    def __init__(
        self,
        inputs: int,
        clusters: int,
        rng: np.random.Generator,
        *,
        width: int = 256,
        layers: int = 2,
        concat: bool = True,
        branches: Branches = "both",
        share: Share = "all_but_last",
        readout: Readout = "sum",
        dropout: float = 0.0,
        learned_eps: bool = False,
    ) -> None:
        super().__init__()
        self.concat, self.readout, self.clusters = concat, readout, clusters
        sizes = [inputs, *[width] * layers]
        self.width = sum(sizes) if concat else sizes[-1]
        shared = {"none": 0, "all_but_last": max(layers - 1, 0), "all": layers}[share] if branches == "both" else 0

        def new_layers(first: int, last: int) -> list[GinLayer]:
            return [
                GinLayer(sizes[number], sizes[number + 1], rng, epsilon=torch.zeros(()), learned=learned_eps)
                for number in range(first, last)
            ]

        self.common = nn.ModuleList(new_layers(0, shared))
        names = [CONVENTIONAL, REBALANCE] if branches == "both" else [branches]
        norm = BatchNorm(self.width) if share == "all" and branches == "both" else None
        self.branches = nn.ModuleDict(
            {name: Branch(new_layers(shared, layers), self.width, clusters, rng, dropout, norm) for name in names}
        )

    @property
    def names(self) -> list[str]:
        """The branches there are."""
        return list(self.branches)

    def represent(self, batch: GraphBatch, names: list[str]) -> dict[str, Tensor]:
        """h_G of each branch in `names`: (B, width). What they share is computed once."""
        h, common = batch.vertices, [self._read(batch.vertices, batch)]
        for layer in self.common:
            h = layer(h, neighbour_sums(h, batch.edges))
            common.append(self._read(h, batch))
        return {name: self._own(h, common, batch, self.branches[name]) for name in names}

    def logits(self, vectors: dict[str, Tensor], alpha: float) -> Tensor:
        """(B, K): alpha W_c h^c + (1 - alpha) W_r h^r; of one branch alone its own."""
        found = {name: self.branches[name](h) for name, h in vectors.items()}
        if len(found) == 1:
            return next(iter(found.values()))
        return alpha * found[CONVENTIONAL] + (1 - alpha) * found[REBALANCE]

    def forward(self, batch: GraphBatch) -> Tensor:
        """(B, K) logits as the trained network gives them: both branches see the same documents and count the same."""
        return self.logits(self.represent(batch, self.names), ALPHA_AT_INFERENCE)

    def frozen(self, *, weighted: bool = False) -> FrozenGin:
        """Its twin in numpy, without the heads. weighted: whether it was trained on weighted edges."""
        branches: dict[str, Any] = dict(self.branches.items())
        twins = {
            name: FrozenBranch(_frozen_layers(branch.layers), *map(to_numpy, branch.norm.folded()))
            for name, branch in branches.items()
        }
        unit = True if self.readout == "unit" else None
        return FrozenGin(_frozen_layers(self.common), twins, self.concat, self.readout == "mean", weighted, unit)

    def frozen_heads(self) -> F32:
        """(K, branches x D + 1): one row per cluster, to be multiplied with what `FrozenGin.encode` gives."""
        branches: dict[str, Any] = dict(self.branches.items())
        of_one = {CONVENTIONAL: ALPHA_AT_INFERENCE, REBALANCE: 1 - ALPHA_AT_INFERENCE}
        alpha = {name: of_one[name] if len(branches) == 2 else 1.0 for name in branches}
        weights = [alpha[name] * to_numpy(branches[name].head.weight) for name in sorted(branches)]
        bias = np.sum([alpha[name] * to_numpy(branch.head.bias) for name, branch in branches.items()], axis=0)
        return np.concatenate([*weights, bias[:, None]], axis=1).astype(np.float32)

    def _own(self, h: Tensor, read: list[Tensor], batch: GraphBatch, branch: Any) -> Tensor:
        parts = list(read)
        for layer in branch.layers:
            h = layer(h, neighbour_sums(h, batch.edges))
            parts.append(self._read(h, batch))
        return branch.norm(torch.cat(parts, dim=1) if self.concat else parts[-1])

    def _read(self, h_VD: Tensor, batch: GraphBatch) -> Tensor:
        sums = graph_sums(h_VD, batch.members)
        if self.readout == "unit":
            return nn.functional.normalize(sums, dim=1)
        return sums / batch.sizes.clamp(min=1)[:, None] if self.readout == "mean" else sums


def _frozen_layers(layers: Any) -> tuple[FrozenGinLayer, ...]:
    return tuple(layer.frozen() for layer in layers)


# ---- training ----


class ModelRAdam:
    """RAdam (Liu et al., ICLR 2020) at its original settings on all parameters of `model` that want gradients.

    `state` gives live tensors under stable names; copying saved values into them restores the optimiser.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._radam = torch.optim.RAdam(list(self.parameters.values()))
        # torch makes this at the first step; made now, a checkpoint has something to be copied into.
        for p in self.parameters.values():
            self._radam.state[p] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }

    def step(self, rate: float) -> None:
        """Apply and clear the gradients that a backward pass left."""
        self._radam.param_groups[0]["lr"] = rate
        self._radam.step()
        self._radam.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}.{moment}": value
            for name, p in self.parameters.items()
            for moment, value in self._radam.state[p].items()
        }


# A positive counts no more than so many negatives.
_MOST_POSITIVE_WEIGHT = 10.0

BALANCES: Mapping[Balance, Callable[[float], float]] = {
    "parabolic": lambda progress: 1 - progress**2,
    "linear": lambda progress: 1 - progress,
    "cosine": lambda progress: math.cos(progress * math.pi / 2),
    "constant": lambda progress: 0.5,
    "reversed": lambda progress: progress**2,
}


def balance_at(kind: Balance, epoch: int, epochs: int) -> float:
    """alpha in `epoch` (from 0) of `epochs`: the weight of the conventional branch. Paper: 1 - (t / t_max)^2."""
    return BALANCES[kind](epoch / epochs)


class ReversedSampler:
    """Documents of rare labels more often: a label with chance by n_max / n_l, then any of its documents, with
    replacement.

    targets: (N, L) CSR; labels without a document are never drawn. With clusters in place of labels it balances
    clusters.
    """

    def __init__(self, targets: Csr) -> None:
        by_label = canonical(targets.T.tocsr())
        self.starts, self.documents = by_label.indptr.astype(np.int64), by_label.indices.astype(np.int64)
        self.counts = np.diff(self.starts)
        if not self.counts.any():
            raise ValueError("no label has a document")
        self._cumulative = np.cumsum(self.chances())

    def chances(self) -> NDArray[np.float64]:
        """(L,) the chance of each label."""
        weights = np.divide(self.counts.max(), self.counts, out=np.zeros(len(self.counts)), where=self.counts > 0)
        return weights / weights.sum()

    def draw_labels(self, size: int, rng: np.random.Generator) -> I64:
        drawn = np.searchsorted(self._cumulative, rng.random(size) * self._cumulative[-1], side="right")
        return np.minimum(drawn, np.flatnonzero(self.counts)[-1])

    def draw(self, size: int, rng: np.random.Generator) -> I64:
        """(size,) documents."""
        labels = self.draw_labels(size, rng)
        return self.documents[self.starts[labels] + (rng.random(size) * self.counts[labels]).astype(np.int64)]


class Bilateral:
    """The matcher with its data: a `TrainingObjective` and a `Watch` of `fit`.

    targets: (N, K) CSR, the clusters of each document.
    train, validation: rows of the documents; with none to validate on the last epoch stays.
    sampler: draws from positions in `train`.
    fewest_epochs: no epoch before these is taken for the best, nor is there a stop.
    worth: (N, K) CSR and a number of clusters: the best epoch is the one whose so many best clusters hold most of what
        documents' clusters are worth; None: the one of the least loss.
    """

    def __init__(
        self,
        model: BilateralGin,
        graphs: DeviceGraphs,
        targets: Csr,
        train: I64,
        validation: I64,
        sampler: ReversedSampler,
        *,
        balance: Balance = "parabolic",
        weigh_positives: bool = True,
        patience: int = 10,
        fewest_epochs: int = 0,
        worth: tuple[Csr, int] | None = None,
    ) -> None:
        self.model, self.graphs, self.sampler = model.to(graphs.device).train(), graphs, sampler
        self.targets = DeviceCsr(targets, graphs.device)
        self.train, self.validation = train, validation
        self.balance, self.patience, self.fewest_epochs, self.alpha = balance, patience, fewest_epochs, 1.0
        self.positive_weight = positive_weight(targets[train]) if weigh_positives else 1.0
        self._worth = None if worth is None else (DeviceCsr(worth[0], graphs.device), min(worth[1], worth[0].shape[1]))
        self.optimiser = ModelRAdam(model)
        self.best = {name: value.clone() for name, value in trained_state(model).items()}
        # Best validation loss so far, epochs since then.
        self.progress = torch.tensor([math.inf, 0.0], dtype=torch.float64)

    @property
    def size(self) -> int:
        return len(self.train)

    # ---- steps ----

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        loss = self.loss(self.train[rows], self.train[self.sampler.draw(len(rows), rng)], self.alpha)
        torch.autograd.backward(loss)
        self.optimiser.step(rate)
        return loss.detach()

    def loss(self, conventional: I64, rebalance: I64, alpha: float) -> Tensor:
        """alpha E(g, g^c) + (1 - alpha) E(g, g^r) of pairs of documents, their scores mixed by alpha. Of one branch
        alone its own loss.
        """
        pairs = {CONVENTIONAL: (conventional, alpha), REBALANCE: (rebalance, 1 - alpha)}
        pairs = {
            name: pairs[name] if len(self.model.names) == 2 else (pairs[name][0], 1.0) for name in self.model.names
        }
        vectors = {
            name: self.model.represent(self.graphs.rows(documents), [name])[name]
            for name, (documents, _) in pairs.items()
        }
        logits = self.model.logits(vectors, alpha)
        return torch.stack(
            [weight * self._cross_entropy(logits, documents) for documents, weight in pairs.values()]
        ).sum()

    def _cross_entropy(self, logits_BK: Tensor, documents: I64) -> Tensor:
        bags = self.targets.rows(documents)
        g_BK = torch.zeros_like(logits_BK)
        g_BK[bags.owners, bags.ids.long()] = 1
        weight = torch.tensor(self.positive_weight, device=logits_BK.device)
        return nn.functional.binary_cross_entropy_with_logits(logits_BK, g_BK, pos_weight=weight)

    # ---- epochs ----

    def begins(self, epoch: int, epochs: int) -> bool:
        """Set the balance for this epoch; whether to go on with it."""
        self.alpha = balance_at(self.balance, epoch, epochs)
        return not len(self.validation) or float(self.progress[1]) < self.patience

    def ended(self, epoch: int, epochs: int) -> None:
        """Keep the network if it is the best so far on the documents held out."""
        if epoch + 1 < min(self.fewest_epochs, epochs):
            return
        loss = 0.0
        if len(self.validation):
            loss = self.validation_loss() if self._worth is None else self.missed_worth()
        if len(self.validation) and loss >= float(self.progress[0]):
            self.progress[1] += 1
            return
        self.progress[0], self.progress[1] = loss, 0
        for name, value in trained_state(self.model).items():
            self.best[name].copy_(value)

    def validation_loss(self, block: int = 1024) -> float:
        """Mean cross-entropy of the network as it predicts, over the documents held out."""
        return sum(
            float(self._cross_entropy(logits, rows)) * len(rows) for rows, logits in self._predicted(block)
        ) / len(self.validation)

    def missed_worth(self, block: int = 1024) -> float:
        """Share of the worth of clusters of the documents held out that is not in the best clusters of each."""
        assert self._worth is not None, "asked only where clusters are worth something"
        worth, beam = self._worth
        found = whole = 0.0
        for rows, logits in self._predicted(block):
            bags = worth.rows(rows)
            w_BK = torch.zeros_like(logits)
            w_BK[bags.owners, bags.ids.long()] = bags.weights
            whole += float(w_BK.sum())
            found += float(w_BK.gather(1, logits.topk(beam, dim=1).indices).sum())
        return 1 - found / max(whole, 1e-9)

    def _predicted(self, block: int) -> Iterator[tuple[I64, Tensor]]:
        """Documents held out and their (B, K) logits, as the network predicts; it is in training again afterwards."""
        self.model.eval()
        for start in range(0, len(self.validation), block):
            rows = self.validation[start : start + block]
            with torch.no_grad():
                vectors = self.model.represent(self.graphs.rows(rows), self.model.names)
                logits = self.model.logits(vectors, ALPHA_AT_INFERENCE)
            yield rows, logits
        self.model.train()

    @torch.no_grad()
    def take_best(self) -> None:
        """Put the best network back."""
        for name, value in trained_state(self.model).items():
            value.copy_(self.best[name])

    def state(self) -> dict[str, Tensor]:
        return (
            trained_state(self.model)
            | prefixed("radam", self.optimiser.state())
            | prefixed("best", self.best)
            | {"progress": self.progress}
        )


def positive_weight(targets: Csr) -> float:
    """min(10, (1 - p) / p) with p the share of positives; at least 1."""
    share = targets.nnz / max(targets.shape[0] * targets.shape[1], 1)
    return max(1.0, min(_MOST_POSITIVE_WEIGHT, (1 - share) / share)) if share > 0 else 1.0
