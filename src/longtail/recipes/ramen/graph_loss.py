"""Graphs as regularisers: an item's vector is pulled to the vectors of its anchors, away from those of others' anchors
in the batch.

    J = w_task L + sum over anchor sets t and sides s of w_ts R_ts
    R_ts   the triplet loss of items of side s (documents or labels) and anchors of t

Paper: RAMEN Sec. 3. The encoder is all that is changed: nothing here is part of a trained model. `Regularisers` has the
terms; `WeightBandit` learns their weights; `GraphLoss` is what a base method is trained with.

Everything random here comes from generators of its own, and a term of weight 0 is not computed: with all weights 0 a
training is that of the base method, bit for bit. (Dropout of anchors shares the base's stream where all texts go
through a transformer in one call; with all weights 0 no anchor does.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from longtail.config import setting
from longtail.graph.anchor_graph import AnchorGraph, Side, drawn, edge_rows, linked, selected
from longtail.kernels.arrays import F64
from longtail.nn.batches import Documents, to_device
from longtail.nn.encoders import Encoder, UnitEncoder, encode_all
from longtail.training.objectives import TextsOfStep, prefixed, triplet_loss
from longtail.types import F32, I64, Batch, Csr

# ---- weights ----

Estimator: TypeAlias = Literal["sign", "gauss_score", "paper_ratio", "pairs"]

# The smallest |z| that `paper_ratio` divides by.
FLOOR = 0.02
# How much of the running mean of rewards is kept at each block.
DECAY = 0.9
TASK = "task"
# Where the number of steps of a block follows from the length of the training.
ENOUGH_BLOCKS, MOST_STEPS = 300, 30


@dataclass(frozen=True)
class BanditConfig:
    enabled: bool = setting(True, "weights of the regularisers are learnt by trial; false: all are `fixed`")
    fixed: float = setting(1.0, "the weight of every regulariser where nothing is tried", low=0)
    initial: float = setting(0.1, "the weight of every regulariser at first", low=0)
    estimator: Estimator = setting(
        "sign",
        "how slopes are found: steps of one size; Gaussian steps; the printed ratio, its divisor kept off 0; steps "
        "forth and back",
    )
    baseline: Literal["ema", "none"] = setting("ema", "ema: rewards count beside their running mean")
    reward: Literal["objective", "task", "heldout"] = setting(
        "objective",
        "what is made small: the weighted sum, the loss of the task alone, or that loss on documents kept apart",
    )
    accumulate: Literal["mean", "sum"] = setting("mean", "how the steps of a block become one reward")
    block: int = setting(30, "steps with the same weights; 0: as few as give 300 blocks in all, at most 30", low=0)
    trials: Literal["added", "scaled"] = setting(
        "added",
        "a trial step is added to a weight, which becomes 0 where it would turn negative; or the weight's logarithm "
        "moves by it, so that a small weight is tried small",
    )
    until: float = setting(1.0, "share of the epochs in which weights are tried; then they stay", low=0, high=1)
    deviation: float = setting(0.1, "size of a trial step", low=1e-6)
    rate: float = setting(0.01, "learning rate of the weights", low=0)
    lowest: float = setting(1e-3, "bound of the weights", low=0)
    highest: float = setting(2.0, "bound of the weights", low=0)
    fix_task_weight: bool = setting(True, "the weight of the task stays 1")
    heldout_share: float = setting(0.05, "reward=heldout: share of the documents kept apart", low=0.001, high=0.5)


def trial_steps(
    shape: int | tuple[int, ...], estimator: Estimator, deviation: float, rng: np.random.Generator, floor: float = FLOOR
) -> F64:
    """z: +-deviation for `sign` and `pairs`, else Gaussian with that deviation; for `paper_ratio` at least `floor`
    from 0.
    """
    if estimator in ("sign", "pairs"):
        return np.where(rng.random(shape) < 0.5, -deviation, deviation)
    z: F64 = rng.standard_normal(shape) * deviation
    return np.where(np.abs(z) < floor, np.copysign(floor, z), z) if estimator == "paper_ratio" else z


def slopes(reward: float | F64, z: F64, estimator: Estimator, deviation: float) -> F64:
    """What one trial says about the slope of the reward."""
    found: F64 = reward * z / deviation**2 if estimator == "gauss_score" else reward / z
    return found


class WeightBandit:
    """The weights of a task and of its regularisers, in the order of `names`; the first is the task's. They are learnt
    by trial: perturb them, train for a block of steps, and step against what that did to a reward.

        z  a random step of every weight;  tried = max(weight + z, 0);  P = what a block of steps with `tried` came to
        weight <- clip(weight - rate * slope, lowest, highest)
        (trials=scaled: tried = weight exp(z), weight <- clip(weight exp(-rate * slope)))
        slope   sign: z = +-deviation, P / z      gauss_score: z ~ N(0, deviation^2), P z / deviation^2
                pairs: a block with z and one with -z, (P - P') / 2z

    Paper: RAMEN Sec. 3 (bandit learning, after Flaxman et al.). Differs:

    - The printed rule divides P by a Gaussian z. That has no variance: 1 / z is unbounded near 0 (claim R11 has
      numbers). The two forms above are unbiased with a finite one. `paper_ratio` is the printed rule with |z| kept
      above 0.02.
    - A running mean of P is subtracted: all weights are perturbed at once, and each would see the noise of the others.
    - A loss that falls while weights are tried looks like a slope to both forms, and the running mean lags behind it:
      where training is short this is most of what moves weights. `pairs` (not in the paper) compares neighbouring
      blocks, between which the loss hardly falls.
    - The objective itself contains weight * R with R >= 0, so on average the printed rule lowers every weight, without
      an end. Hence bounds, and the weight of the task stays 1: only ratios matter to Adam. What remains useful: weights
      of graphs whose loss stays high fall fastest. `reward` offers the loss of the task, in training or on documents
      kept apart, where a weight must earn its place.

    rng_for: a generator of its own for each block, so that a resumed training tries the same.
    `arrays` are all that blocks change, live: a checkpoint saves them, and copies back into them.
    """

    def __init__(
        self, names: Sequence[str], config: BanditConfig, rng_for: Callable[[int], np.random.Generator]
    ) -> None:
        self.names, self.config, self._rng_for = (TASK, *names), config, rng_for
        first = config.initial if config.enabled else config.fixed
        self.weights: F64 = np.array([1.0, *(first for _ in names)])
        self._mean = np.zeros(2)  # of rewards, and of how many blocks
        self._last = np.zeros(1)  # reward
        self.arrays: dict[str, NDArray[Any]] = {"weights": self.weights, "mean": self._mean, "last": self._last}
        self._tries = config.enabled

    @property
    def blocks(self) -> int:
        return int(self._mean[1])

    def steps(self) -> F64:
        """z of the block at work; 0 where a weight does not move."""
        c = self.config
        if not self._tries:
            return np.zeros(len(self.names))
        pairs = c.estimator == "pairs"
        rng = self._rng_for(self.blocks // 2 if pairs else self.blocks)
        z = trial_steps(len(self.names), c.estimator, c.deviation, rng) * (-1 if pairs and self.blocks % 2 else 1)
        return np.where(np.arange(len(z)) == 0, 0.0, z) if c.fix_task_weight else z

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Weights are tried in the first epochs, or in all."""
        self._tries = self.config.enabled and epoch < self.config.until * epochs

    def tried(self) -> F64:
        """The weights of the block at work. Differs: a weight as small as its trial step would turn negative, and push
        items away from their anchors; it becomes 0. On average a weight at its floor is then tried at half of the step:
        `trials=scaled` (not in the paper) has no such bias.
        """
        if self.config.trials == "scaled":
            scaled: F64 = self.weights * np.exp(self.steps())
            return scaled
        return np.maximum(self.weights + self.steps(), 0.0)

    def learn(self, reward: float) -> None:
        """The end of a block. reward: its P."""
        c, z = self.config, self.steps()
        moved, (mean, blocks) = z != 0, self._mean.tolist()
        if c.enabled and (c.estimator != "pairs" or blocks % 2):
            change = c.rate * self._slopes(reward, z[moved])
            if c.trials == "scaled":
                self.weights[moved] *= np.exp(-change)
            else:
                self.weights[moved] -= change
            self.weights[moved] = np.clip(self.weights[moved], c.lowest, c.highest)
        self._mean[:] = (DECAY * mean + (1 - DECAY) * reward if blocks else reward), blocks + 1
        self._last[0] = reward

    def _slopes(self, reward: float, z: F64) -> F64:
        c = self.config
        if c.estimator == "pairs":
            return (reward - self._last[0]) / (2 * z)
        if c.baseline == "none":
            return slopes(reward, z, c.estimator, c.deviation)
        # Before the first block there is no mean: it is compared with itself, and teaches nothing.
        return slopes(reward - (float(self._mean[0]) if self.blocks else reward), z, c.estimator, c.deviation)


# ---- regularisers ----

# Shares of pruned edges beyond which pruning does not do what it is for.
_HARDLY_ANY, _NEARLY_ALL = 0.01, 0.9
# Numbers gathered at a time on each side of a product over edges.
_BLOCK_NUMBERS = 1 << 24


@dataclass(frozen=True)
class RegulariserConfig:
    margin: float = setting(0.3, "by how much an item must be nearer to its anchor than to others", low=0)
    hardest: int = setting(12, "negatives per item at most, the nearest; 0: all of the batch", low=0)
    prune: Literal["offline", "inbatch", "none"] = setting(
        "offline",
        "edges that the encoder finds unlike are left out: by all vectors every few epochs; by those of the batch; "
        "never",
    )
    threshold: float = setting(0.0, "an edge stays if the cosine of its ends is above this", low=-1, high=1)
    warm_up: int = setting(10, "epochs before the first pruning", low=0)
    every: int = setting(5, "epochs between prunings, each from all edges again", low=1)


# The unit vectors of one step by side, with the numbers of the items they belong to.
BatchVectors: TypeAlias = dict[Side, tuple[I64, Tensor]]


@dataclass(frozen=True)
class DrawnAnchors:
    """What a step needs of one set.

    positives: per side (B,) the anchor that was drawn for each item, -1 for none.  asked: sides whose term is wanted.
    pool: (U,) different anchors of these sides, ascending.  seed: of their dropout.
    """

    positives: dict[Side, I64]
    asked: list[Side]
    pool: I64
    seed: int


@dataclass(frozen=True)
class DrawnStep:
    """The anchors of a step, by set; and what the task and every term weigh in it."""

    weights: F64
    sets: list[DrawnAnchors]


class AnchorSet:
    """One set of anchors with its edges to documents and labels.

    graph: all edges, completed; where they weigh different amounts, anchors are drawn by them.  texts: of the M
    anchors.  kept: per side (E,) uint8, what pruning left.
    """

    def __init__(self, graph: AnchorGraph, texts: Documents) -> None:
        self.graph, self.texts = graph, texts
        self.kept = {side: torch.ones(edges.nnz, dtype=torch.uint8) for side, edges in graph.sides.items()}
        self.current = dict(graph.sides)
        self._weighted = any(bool((edges.data != 1).any()) for edges in graph.sides.values())
        self._sums = {side: self._summed(edges) for side, edges in self.current.items()}

    def begin_epoch(self, rng: np.random.Generator) -> None:
        """A new random choice where an item has more anchors than it may keep."""
        for side, edges in self.graph.sides.items():
            self.current[side] = capped(selected(edges, self.kept[side].numpy() > 0), self.graph.most, rng)
            self._sums[side] = self._summed(self.current[side])

    def draw(self, side: Side, rows: I64, rng: np.random.Generator) -> I64:
        """(B,): an anchor of each item, -1 where it has none."""
        edges, sums = self.current[side], self._sums[side]
        return drawn(edges, rows, rng) if sums is None else drawn_by_weight(edges, sums, rows, rng)

    def _summed(self, edges: Csr) -> F64 | None:
        """(E + 1,): sums of the weights of all entries before; None where they are alike."""
        return np.append(0.0, np.cumsum(edges.data, dtype=np.float64)) if self._weighted else None

    def prune(self, vectors: dict[Side, F32], of_anchors: F32, threshold: float) -> dict[Side, tuple[int, int]]:
        """Keep edges whose ends are alike; per side how many stay, and how many there are."""
        for side, edges in self.graph.sides.items():
            kept = edge_cosines(edges, vectors[side], of_anchors) > threshold
            self.kept[side].copy_(torch.from_numpy(kept.astype(np.uint8)))
        return {side: (int(kept.sum()), len(kept)) for side, kept in self.kept.items()}


class Regularisers:
    """The R terms of all anchor sets with their weights.

    rng_for: (name, number) -> generator, e.g. `Run.rng`.  log: writes what happens, e.g. `Run.log`; say: shows what a
        user should know.
    """

    def __init__(
        self,
        sets: Sequence[AnchorSet],
        config: RegulariserConfig,
        bandit: WeightBandit,
        *,
        rng_for: Callable[[str, int], np.random.Generator],
        log: Callable[..., None],
        say: Callable[[str], None],
        device: str = "cpu",
    ) -> None:
        self.sets, self.config, self.bandit = sets, config, bandit
        self._rng_for, self._log, self._say, self._device = rng_for, log, say, device
        self.terms = [(place, side) for place, anchors in enumerate(sets) for side in anchors.graph.sides]
        assert len(bandit.names) == 1 + len(self.terms), "a weight for the task and for each term"
        # Sums over the block at work: the objective, the task and every term; read from the device once per block.
        self._sums = torch.zeros(2 + len(self.terms), dtype=torch.float64, device=device)
        self._count = torch.zeros((), dtype=torch.int64)
        self._in_block = torch.zeros((), dtype=torch.int64)
        self._block = bandit.config.block or MOST_STEPS
        self._in_batch = False

    @property
    def steps(self) -> int:
        """How many were made."""
        return int(self._count)

    def asks(self) -> bool:
        """Whether any term has weight in the block at work."""
        return bool((self.bandit.tried()[1:] > 0).any())

    # ---- between epochs ----

    def begin_epoch(self, epoch: int, epochs: int, encoder: Encoder, documents: Batch, labels: Batch) -> None:
        """documents, labels: the texts of all items.  encoder: of unit vectors."""
        c = self.config
        self.bandit.begin_epoch(epoch, epochs)
        if not self.bandit.config.block and epoch:
            # How long a training is shows in its first epoch.
            self._block = min(max(self.steps * epochs // (epoch * ENOUGH_BLOCKS), 1), MOST_STEPS)
        due = epoch >= c.warm_up and (epoch - c.warm_up) % c.every == 0
        self._in_batch = c.prune == "inbatch" and epoch >= c.warm_up
        if c.prune == "offline" and due:
            self._prune(epoch, encoder, documents, labels)
        rng = self._rng_for("anchors of an epoch", epoch)
        for anchors in self.sets:
            anchors.begin_epoch(rng)

    def _prune(self, epoch: int, encoder: Encoder, documents: Batch, labels: Batch) -> None:
        vectors: dict[Side, F32] = {
            "documents": encode_all(encoder, Documents(documents, self._device), "search"),
            "labels": encode_all(encoder, Documents(labels, self._device), "search"),
        }
        for anchors in self.sets:
            found = anchors.prune(vectors, encode_all(encoder, anchors.texts, "search"), self.config.threshold)
            for side, (kept, edges) in found.items():
                self._log("prune", graph=anchors.graph.name, side=side, epoch=epoch, kept=kept, dropped=edges - kept)
                share = 1 - kept / max(edges, 1)
                if not _HARDLY_ANY <= share <= _NEARLY_ALL:
                    self._say(
                        f"pruning drops {share:.1%} of the {side} edges of '{anchors.graph.name}'; "
                        f"regularise.threshold is {self.config.threshold:g}"
                    )

    # ---- in a step ----

    def draw(self, items: dict[Side, I64], weights: F64 | None = None) -> DrawnStep:
        """Anchors for the items of a step, given by number.  weights: of the task and all terms; None: those of the
        block at work.
        """
        weights = self.bandit.tried() if weights is None else weights
        rng, terms = self._rng_for("anchors", int(self._count)), iter(weights[1:])
        return DrawnStep(
            weights,
            [
                self._draw(anchors, items, [side for side in anchors.graph.sides if next(terms) > 0], rng)
                for anchors in self.sets
            ],
        )

    def _draw(
        self, anchors: AnchorSet, items: dict[Side, I64], asked: list[Side], rng: np.random.Generator
    ) -> DrawnAnchors:
        # Drawn whether wanted or not: a weight does not change what other terms get.
        positives = {side: anchors.draw(side, items[side], rng) for side in anchors.graph.sides}
        seed = int(rng.integers(2**63 - 1))
        pool = np.unique(np.concatenate([np.zeros(0, np.int64), *(positives[side] for side in asked)]))
        return DrawnAnchors(positives, asked, pool[pool >= 0], seed)

    def texts(self, step: DrawnStep) -> list[TextsOfStep]:
        """The anchors whose vectors `objective` needs, a part for each set that has any."""
        return [
            TextsOfStep(anchors.texts, part.pool, part.seed)
            for anchors, part in zip(self.sets, step.sets, strict=True)
            if len(part.pool)
        ]

    def objective(self, task: Tensor, vectors: BatchVectors, step: DrawnStep, of_anchors: Sequence[Tensor]) -> Tensor:
        """J of a step: a scalar that gradients flow through.  of_anchors: the vectors of `texts`."""
        total = task * float(step.weights[0])
        losses = self.losses(vectors, step, of_anchors)
        for weight, loss in zip(step.weights[1:], losses, strict=True):
            if loss is not None:
                total = total + float(weight) * loss
        nothing = torch.zeros_like(task)
        self._sums += (
            torch.stack([total, task, *(nothing if loss is None else loss for loss in losses)]).detach().double()
        )
        return total

    def losses(self, vectors: BatchVectors, step: DrawnStep, of_anchors: Sequence[Tensor]) -> list[Tensor | None]:
        """R of every term, in the order of `terms`; None where it is not wanted, or no item of the batch has an
        anchor.
        """
        found: list[Tensor | None] = []
        encoded = iter(of_anchors)
        for anchors, part in zip(self.sets, step.sets, strict=True):
            z_UD = next(encoded) if len(part.pool) else None
            for side in anchors.graph.sides:
                wanted = side in part.asked and bool((part.positives[side] >= 0).any())
                found.append(self._term(anchors, side, vectors, part, z_UD) if wanted and z_UD is not None else None)
        return found

    def _term(
        self, anchors: AnchorSet, side: Side, vectors: BatchVectors, part: DrawnAnchors, of_anchors: Tensor
    ) -> Tensor:
        """Differs: an edge that was pruned is no positive, and no negative either: it may be right."""
        (numbers, of_items), positives, pool = vectors[side], part.positives[side], part.pool
        negative = to_device(~linked(anchors.graph.sides[side], numbers, pool), of_items.device)
        place = to_device(np.where(positives >= 0, np.searchsorted(pool, positives), -1), of_items.device)
        similarity = of_items @ of_anchors.T
        if self._in_batch:
            alike = similarity.detach().gather(1, place.clamp(min=0)[:, None])[:, 0] > self.config.threshold
            place = torch.where(alike, place, -1)
        return triplet_loss(similarity, place, negative, margin=self.config.margin, hardest=self.config.hardest)

    def end_step(self, heldout_loss: Callable[[], float] | None = None) -> None:
        """After the update. At the end of a block the weights learn from it, and it is logged, with a loss of 0 for
        what was not computed.

        heldout_loss: of the task on documents kept apart, where the reward is that.
        """
        self._count += 1
        self._in_block += 1
        block = int(self._in_block)
        if block < self._block:
            return
        self._in_block.zero_()
        c, names = self.bandit.config, self.bandit.names
        weights, tried, sums = self.bandit.weights.tolist(), self.bandit.tried().tolist(), self._sums.tolist()
        self._sums.zero_()
        seen = sums[0 if c.reward == "objective" else 1] / (block if c.accumulate == "mean" else 1)
        if c.reward == "heldout":
            assert heldout_loss is not None, "a base that keeps no documents apart is refused"
            reward = heldout_loss()
        else:
            reward = seen
        self.bandit.learn(reward)
        means = [value / block for value in sums[1:]]
        by_name = {
            what: dict(zip(names, values, strict=True))
            for what, values in (("weights", weights), ("tried", tried), ("losses", means))
        }
        self._log("bandit", block=self.bandit.blocks, reward=reward, **by_name)

    def state(self) -> dict[str, Tensor]:
        """Live tensors: everything that steps and epochs change."""
        kept = {f"kept.{place}.{side}": self.sets[place].kept[side] for place, side in self.terms}
        bandit = prefixed("bandit", {name: torch.from_numpy(array) for name, array in self.bandit.arrays.items()})
        return kept | bandit | {"sums": self._sums, "count": self._count, "in_block": self._in_block}


def term_names(graphs: Sequence[AnchorGraph]) -> list[str]:
    """A name for each term of the regularisers, e.g. ``lexical:labels``."""
    return [f"{graph.name}:{side}" for graph in graphs for side in graph.sides]


# ---- what a base is trained with ----


class GraphLoss:
    """The terms of regularisers beside the loss of a base method: an `ExtraLoss`.

    encoder: the one that is trained; vectors without unit length are scaled to it for these terms alone, as a margin
        between cosines needs.
    documents, labels: their texts.  targets: (N, L) CSR. Where the base does not read label texts in a step, each
        document brings one of its labels, drawn by a generator of its own.
    """

    def __init__(
        self,
        regularisers: Regularisers,
        encoder: Encoder,
        documents: Batch,
        labels: Batch,
        targets: Csr,
        *,
        rng_for: Callable[[str, int], np.random.Generator],
        device: str = "cpu",
    ) -> None:
        self.regularisers, self.documents, self.labels, self.targets = regularisers, documents, labels, targets
        self._rng_for, self._device = rng_for, device
        self._scaled = not encoder.unit
        self.encoder = UnitEncoder(encoder) if self._scaled else encoder

    @property
    def heldout_share(self) -> float:
        c = self.regularisers.bandit.config
        return c.heldout_share if c.enabled and c.reward == "heldout" else 0.0

    def begins(self, epoch: int, epochs: int) -> bool:
        self.regularisers.begin_epoch(epoch, epochs, self.encoder, self.documents, self.labels)
        return True

    def ended(self, epoch: int, epochs: int) -> None:
        """Nothing to do."""

    def step(self, rows: I64, labels: I64 | None = None) -> GraphStep:
        own = self._labels_of(rows) if labels is None else []
        if labels is None:
            labels = own[0].rows if own else np.zeros(0, np.int64)
        anchors = self.regularisers.draw({"documents": rows, "labels": labels})
        return GraphStep(self, anchors, rows, labels, own)

    def _labels_of(self, rows: I64) -> list[TextsOfStep]:
        """One label of each document, where any term asks for them."""
        if all(side != "labels" for _, side in self.regularisers.terms) or not self.regularisers.asks():
            return []
        rng = self._rng_for("labels of regularisers", self.regularisers.steps)
        chosen = np.unique(drawn(self.targets, rows, rng))
        return [TextsOfStep(self._label_texts, chosen[chosen >= 0], int(rng.integers(2**63 - 1)))]

    @cached_property
    def _label_texts(self) -> Documents:
        return Documents(self.labels, self._device)

    def scaled(self, vectors: Tensor) -> Tensor:
        return normalize(vectors, dim=1) if self._scaled else vectors

    def after_step(self, heldout_loss: Callable[[], float] | None = None) -> None:
        self.regularisers.end_step(heldout_loss)

    def state(self) -> dict[str, Tensor]:
        return self.regularisers.state()


@dataclass(frozen=True)
class GraphStep:
    """One step of a `GraphLoss`.

    rows, labels: numbers of the documents and labels.  label_texts: of these labels, where the base has no vectors of
        them; else nothing.
    """

    owner: GraphLoss
    anchors: DrawnStep
    rows: I64
    labels: I64
    label_texts: list[TextsOfStep]

    @property
    def texts(self) -> list[TextsOfStep]:
        return [*self.label_texts, *self.owner.regularisers.texts(self.anchors)]

    def total(self, loss: Tensor, of_documents: Tensor, of_labels: Tensor | None, of_texts: Sequence[Tensor]) -> Tensor:
        """J. Its gradient is that of the weighted terms alone where `loss` has none."""
        documents, *texts = (self.owner.scaled(vectors) for vectors in (of_documents, *of_texts))
        if of_labels is not None:
            labels = self.owner.scaled(of_labels)
        else:
            labels = texts.pop(0) if self.label_texts else documents[:0]
        vectors: BatchVectors = {"documents": (self.rows, documents), "labels": (self.labels, labels)}
        return self.owner.regularisers.objective(loss, vectors, self.anchors, texts)


def given_shares(given: AnchorGraph, completed: AnchorGraph) -> dict[Side, float]:
    """Of the anchors that are drawn for items of each side, the share that was given and not completed."""
    shares: dict[Side, float] = {}
    for side, edges in completed.sides.items():
        of_given = np.asarray(edges.multiply(given.sides[side]).sum(axis=1)).ravel()
        of_all = np.asarray(edges.sum(axis=1)).ravel()
        shares[side] = round(float((of_given[of_all > 0] / of_all[of_all > 0]).mean()), 4) if of_all.any() else 0.0
    return shares


def drawn_by_weight(edges: Csr, sums: F64, rows: I64, rng: np.random.Generator) -> I64:
    """(B,): a random column of each of `rows`, with a chance by its weight, -1 where a row is empty.

    sums: (E + 1,), of the weights of all entries before.
    """
    begin, end = (np.asarray(edges.indptr, dtype=np.int64)[rows + add] for add in (0, 1))
    # Drawn for empty rows too, so that how much of the generator is used does not depend on the graph.
    place = np.searchsorted(sums, sums[begin] + rng.random(len(rows)) * (sums[end] - sums[begin]), side="right") - 1
    if not len(edges.indices):
        return np.full(len(rows), -1, dtype=np.int64)
    inside = np.clip(place, begin, np.maximum(end - 1, begin))
    columns = np.asarray(edges.indices, dtype=np.int64)[np.minimum(inside, len(edges.indices) - 1)]
    return np.where(end > begin, columns, -1)


def capped(edges: Csr, most: int, rng: np.random.Generator) -> Csr:
    """At most `most` entries per row, a random choice by their weights where there are more (each waits for a time
    that is the shorter the more it weighs, and the first ones stay).
    """
    rows = edge_rows(edges)
    order = np.lexsort((-np.log1p(-rng.random(len(rows))) / np.asarray(edges.data), rows))
    kept = np.zeros(len(rows), dtype=np.bool_)
    kept[order] = np.arange(len(rows)) - np.asarray(edges.indptr)[rows] < most
    return selected(edges, kept)


def edge_cosines(edges: Csr, of_rows: F32, of_columns: F32) -> F32:
    """(E,): the dot product of the unit vectors at both ends of every entry.  of_rows: (rows, D); of_columns:
    (columns, D).
    """
    rows, columns = edge_rows(edges), np.asarray(edges.indices)
    cosines = np.empty(len(rows), dtype=np.float32)
    block = max(_BLOCK_NUMBERS // max(of_rows.shape[1], 1), 1)
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        cosines[part] = np.einsum("ed,ed->e", of_rows[rows[part]], of_columns[columns[part]])
    return cosines
