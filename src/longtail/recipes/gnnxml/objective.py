"""Training of the two-branch matcher: samplers, the balance between branches, the mixed loss, and when to stop.

Paper: GNN-XML Sec. 3.1, Eq. 6 and 7, after BBN (Zhou et al., CVPR 2020); Sec. 4.2 (RAdam).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.kernels.arrays import canonical
from longtail.nn.batches import DeviceCsr
from longtail.recipes.gnnxml.network import ALPHA_AT_INFERENCE, CONVENTIONAL, REBALANCE, BilateralGin, DeviceGraphs
from longtail.recipes.gnnxml.settings import Balance
from longtail.training.objectives import prefixed, trained_state
from longtail.types import I64, Csr


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
    ) -> None:
        self.model, self.graphs, self.sampler = model.to(graphs.device).train(), graphs, sampler
        self.targets = DeviceCsr(targets, graphs.device)
        self.train, self.validation = train, validation
        self.balance, self.patience, self.fewest_epochs, self.alpha = balance, patience, fewest_epochs, 1.0
        self.positive_weight = positive_weight(targets[train]) if weigh_positives else 1.0
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
        loss = self.validation_loss() if len(self.validation) else 0.0
        if len(self.validation) and loss >= float(self.progress[0]):
            self.progress[1] += 1
            return
        self.progress[0], self.progress[1] = loss, 0
        for name, value in trained_state(self.model).items():
            self.best[name].copy_(value)

    @torch.no_grad()
    def validation_loss(self, block: int = 1024) -> float:
        """Mean cross-entropy of the network as it predicts, over the documents held out."""
        self.model.eval()
        total = 0.0
        for start in range(0, len(self.validation), block):
            rows = self.validation[start : start + block]
            vectors = self.model.represent(self.graphs.rows(rows), self.model.names)
            total += float(self._cross_entropy(self.model.logits(vectors, ALPHA_AT_INFERENCE), rows)) * len(rows)
        self.model.train()
        return total / len(self.validation)

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
