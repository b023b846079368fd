"""What one training step does: over all targets, or over each document's own candidates, for free and for composed
classifier rows; Adam over a model (`ModelAdam`); a loss that may be added (`ExtraLoss`); the loss of triplets; and how
texts of a step become vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import DeviceCsr, Documents, TensorBatch, fastest_products
from longtail.nn.encoders import Encoded, Encoder
from longtail.nn.full import FullRows, full_gradients
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import LabelRows, LightRowAdam, RowAdam, RowTable
from longtail.types import I64, Candidates


class TrainingObjective(Protocol):
    """A model with its data and its optimisers: all that `fit` must know."""

    @property
    def size(self) -> int:
        """Number of documents."""
        ...

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        """Learn from the documents at `rows`; their mean loss, a scalar that may still be under way on a GPU."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Live tensors under stable names: everything that steps change."""
        ...


class Watch(Protocol):
    """Looks on from epoch to epoch.

    What it remembers must be in the objective's state, so that a resumed training goes on alike.
    """

    def begins(self, epoch: int, epochs: int) -> bool:
        """Called before each epoch (from 0); False ends the training here."""
        ...

    def ended(self, epoch: int, epochs: int) -> None:
        """Called after each epoch, before it is saved."""
        ...


@dataclass(frozen=True)
class TextsOfStep:
    """`rows` of `texts`.  seed: their dropout has a stream of its own; None: the common one."""

    texts: Documents
    rows: I64
    seed: int | None = None


class ExtraStep(Protocol):
    """One step of an `ExtraLoss`."""

    @property
    def texts(self) -> Sequence[TextsOfStep]:
        """What must go through the encoder beside the texts of the objective."""
        ...

    def total(self, loss: Tensor, of_documents: Tensor, of_labels: Tensor | None, of_texts: Sequence[Tensor]) -> Tensor:
        """The sum to go down, a scalar: `loss`, the objective's own, with what is added.

        of_documents: (B, D), of_labels: (U, D), vectors of the documents and labels of the step, with their graph.
        of_texts: the vectors of `texts`.
        """
        ...


class ExtraLoss(Watch, Protocol):
    """A loss that an encoder is trained with beside its objective's own, e.g. RAMEN's graphs."""

    @property
    def heldout_share(self) -> float:
        """Of the documents, to be kept apart so that the objective's own loss on them can be asked for; 0: none."""
        ...

    def step(self, rows: I64, labels: I64 | None = None) -> ExtraStep:
        """A step of the documents at `rows`.  labels: (U,) whose vectors the objective will have, if it has any."""
        ...

    def after_step(self, heldout_loss: Callable[[], float] | None = None) -> None:
        """When the parameters were changed.  heldout_loss: the objective's own on the documents kept apart."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Live tensors under stable names: everything that steps and epochs change."""
        ...


def extra_total(extra: ExtraLoss, encoder: Encoder, rows: I64, of_documents: Tensor, loss: Tensor) -> Tensor:
    """Of an extra loss beside one whose gradient is known: a scalar with the gradient of what is added."""
    step = extra.step(rows)
    return step.total(loss.detach().float(), of_documents, None, vectors_together(encoder, step.texts))


class ModelAdam:
    """Adam on all parameters of `model` that want gradients: dense where every batch touches every number; the tables
    (`RowTable`) among its modules by rows.

    factors: multiples of the rate for parameters by the beginning of their names, e.g. ``{"head.logits": 50}``;
    others have 1. light: tables have moments of fewer bytes (`LightRowAdam`). `state` gives live tensors under stable
    names; copying saved values into them restores the optimiser.
    """

    def __init__(self, model: nn.Module, factors: Mapping[str, float] | None = None, *, light: bool = False) -> None:
        self._factors = dict(factors or {})
        self.tables = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, RowTable) and module.weight.requires_grad
        }
        by_row = LightRowAdam if light else RowAdam
        self.by_row = {name: by_row(table.weight) for name, table in self.tables.items()}
        in_tables = {id(table.weight) for table in self.tables.values()}
        self.dense = {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in in_tables}
        self._moments = {
            name: {
                "step": torch.zeros((), dtype=torch.float32, device=p.device),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }
            for name, p in self.dense.items()
        }

    def factor(self, name: str) -> float:
        return next((factor for beginning, factor in self._factors.items() if name.startswith(beginning)), 1.0)

    def step(self, rate: float) -> None:
        """Apply and clear the gradients that backward passes left."""
        self._step_dense(rate)
        for name, table in self.tables.items():
            pending = table.take_gradient()
            if pending is not None:
                self.by_row[name].step(*pending, rate * self.factor(name))

    @torch.no_grad()
    def _step_dense(self, rate: float) -> None:
        """As `torch.optim.Adam(fused=True)`, whose first step takes a second: it imports a compiler."""
        by_kind: dict[tuple[float, torch.dtype], list[tuple[Tensor, ...]]] = {}
        for name, p in self.dense.items():
            if p.grad is not None:
                moments = self._moments[name]
                tensors = (p, p.grad, moments["exp_avg"], moments["exp_avg_sq"], moments["step"])
                by_kind.setdefault((self.factor(name), p.dtype), []).append(tensors)
        for (factor, _), found in by_kind.items():
            parameters, gradients, first, second, steps = (list(part) for part in zip(*found, strict=True))
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                parameters,
                gradients,
                first,
                second,
                [],
                steps,
                lr=rate * factor,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
        for p in self.dense.values():
            p.grad = None

    def dense_state(self, name: str) -> dict[str, Tensor]:
        """Of a dense parameter: its `step`, which counts, and its moments `exp_avg` and `exp_avg_sq`."""
        return self._moments[name]

    def rows_of(self, table: RowTable) -> RowAdam:
        """What updates `table`, one of the tables of the model."""
        return next(self.by_row[name] for name, module in self.tables.items() if module is table)

    def state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for name, moments in self._moments.items():
            state |= {f"{name}.{moment}": value for moment, value in moments.items()}
        for name, adam in self.by_row.items():
            state |= {f"{name}.{moment}": value for moment, value in adam.state().items()}
        return state


class AllTargets:
    """Binary cross-entropy over all targets (clusters, or all labels), in blocks: the mean over all entries, as
    papers print it.

    With many targets that puts gradients near the epsilon of Adam, which then steps less: a brake that helps, and that
    the mean over documents of the sum over targets would not have.

    targets: (N, L) CSR rows beside the documents; the classifier has L rows, free or composed, all of which are used
        in every step.
    masked: (N, L), pairs that are neither right nor wrong.  extra: a loss to be added.
    factors: of rates, as for `ModelAdam`; names begin with ``encoder.`` or ``classifier.``.
    """

    def __init__(
        self,
        encoder: Encoder,
        classifier: LabelRows,
        documents: Documents,
        targets: DeviceCsr,
        masked: DeviceCsr | None = None,
        extra: ExtraLoss | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        if len(documents) != len(targets) or targets.columns != classifier.labels:
            raise ValueError(
                f"{len(documents)} documents and {classifier.labels} classifiers for targets of shape "
                f"{len(targets)} x {targets.columns}"
            )
        self.encoder, self.classifier, self.documents = encoder, classifier, documents
        self.targets, self.masked, self.extra = targets, masked, extra
        self.compute = fastest_products(documents.device)
        free = classifier.free_rows()
        self.free = None if free is None else FullRows(free, compute=self.compute)
        self.model = nn.ModuleDict(
            {"encoder": encoder} if self.free is not None else {"encoder": encoder, "classifier": classifier}
        ).train()
        self.adam = ModelAdam(self.model, factors)

    @property
    def size(self) -> int:
        return len(self.documents)

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        z_BD = training_vectors(self.encoder, self.documents, rows)
        x_BD = self.classifier.inputs(z_BD)
        targets, masked = self.targets.rows(rows), None if self.masked is None else self.masked.rows(rows)
        if self.free is not None:
            loss, gradient_BD = self.free.step(x_BD, targets, rate, masked)
            gradients = [(x_BD, gradient_BD)]
        else:
            rows_LD = self.classifier.all_rows()
            loss, gradient_BD, gradient_LD = full_gradients(x_BD, rows_LD, targets, masked=masked, compute=self.compute)
            gradients = [(x_BD, gradient_BD), (rows_LD, gradient_LD)]
        if self.extra is not None:
            total = extra_total(self.extra, self.encoder, rows, z_BD, loss)
            gradients.append((total, torch.ones_like(total)))
        wanted = [(tensor, gradient) for tensor, gradient in gradients if tensor.requires_grad]
        if wanted:
            torch.autograd.backward([tensor for tensor, _ in wanted], [gradient for _, gradient in wanted])
        self.adam.step(rate)
        if self.extra is not None:
            self.extra.after_step()
        return loss

    def state(self) -> dict[str, Tensor]:
        free = {} if self.free is None else prefixed("classifier", self.free.state())
        extra = {} if self.extra is None else prefixed("extra", self.extra.state())
        return trained_state(self.model) | prefixed("adam", self.adam.state()) | free | extra


class OwnCandidates:
    """Binary cross-entropy over the candidates of each document; only classifier rows that a batch names are updated.

    candidates: gives the labels of a step, e.g. the positives, hard negatives and a few random ones.

    Where the trainer's labels are split over processes, every one of them encodes the whole batch, alike: dropout is
    that of one process, and the encoder learns from the gradient that all labels together give.
    """

    def __init__(
        self,
        encoder: Encoder,
        trainer: RestrictedTrainer,
        documents: Documents,
        candidates: Callable[[I64, np.random.Generator], Candidates],
    ) -> None:
        self.encoder, self.trainer, self.documents, self.candidates = encoder.train(), trainer, documents, candidates
        self.adam, self.shard = ModelAdam(encoder), trainer.shard

    @property
    def size(self) -> int:
        return len(self.documents)

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        z_BD = training_vectors(self.encoder, self.documents, rows)
        loss, gradient_BD = self.trainer.step(z_BD, self.candidates(rows, rng), rate)
        if z_BD.requires_grad:
            torch.autograd.backward(z_BD, gradient_BD)
            self.adam.step(rate)
        return loss

    def state(self) -> dict[str, Tensor]:
        own = {"classifier.rows": self.trainer.classifier.rows.detach()} | prefixed(
            "classifier.adam", self.trainer.adam.state()
        )
        return prefixed("encoder", trained_state(self.encoder)) | prefixed("adam", self.adam.state()) | own

    def split_state(self) -> frozenset[str]:
        return frozenset({"classifier.rows", "classifier.adam.first", "classifier.adam.second"})


def triplet_loss(
    similarity_BU: Tensor, positive_B: Tensor, negative_BU: Tensor, *, margin: float, hardest: int = 0
) -> Tensor:
    """The hinge loss of triplets (item, its positive, a negative), negatives being from the same batch.

    Mean over items with a positive of the mean over their violating triplets of [s_n - s_p + margin]_+; 0 without
    violations.

    similarity_BU: of B items with U others that the batch has brought together.
    positive_B: int64, the place of each item's positive, -1 where it has none: such an item takes no part, and is not
        counted.
    negative_BU: bool, what may serve as a negative. hardest: of these only so many, the most similar; 0: all.

    Paper: RAMEN Sec. 3 (gamma = 0.3). Differs: means in place of sums (the coefficient in front is illegible), so
    that weights of graphs of different density are comparable; an item with many violations does not count more than
    one with few.
    """
    has_positive = positive_B >= 0
    s_positive = similarity_BU.gather(1, positive_B.clamp(min=0)[:, None])
    excess = torch.where(negative_BU & has_positive[:, None], similarity_BU - s_positive + margin, 0)
    if 0 < hardest < excess.shape[1]:
        excess = excess.topk(hardest, dim=1).values
    violations = excess.clamp(min=0)
    by_item = violations.sum(dim=1) / (violations.detach() > 0).sum(dim=1).clamp(min=1)
    return by_item.sum() / has_positive.sum().clamp(min=1)


def training_vectors(encoder: Encoder, documents: Documents, rows: I64) -> Tensor:
    """(B, D) float32 vectors that classifiers read; products inside in bf16 on a GPU."""
    return batch_vectors(encoder, documents.rows(rows), documents.device)


def batch_vectors(encoder: Encoder, batch: TensorBatch, device: torch.device) -> Tensor:
    """`training_vectors` of a batch on this device."""
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        encoded: Encoded = encoder(batch)
    return encoded.score.float()


def vectors_together(encoder: Encoder, texts: Sequence[TextsOfStep]) -> list[Tensor]:
    """(B, D) float32 for each of `texts`.

    Where the encoder asks for it (`Encoder.together`) all go through in one call, and dropout has one stream: seeds
    do not count.
    """
    if not encoder.together or len(texts) < 2:
        return [_vectors(encoder, each) for each in texts]
    batch = TensorBatch.joined([each.texts.rows(each.rows) for each in texts])
    return list(
        batch_vectors(encoder, batch, texts[0].texts.device).split_with_sizes([len(each.rows) for each in texts])
    )


def _vectors(encoder: Encoder, of: TextsOfStep) -> Tensor:
    if of.seed is None:
        return training_vectors(encoder, of.texts, of.rows)
    device = of.texts.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(of.seed)
        return training_vectors(encoder, of.texts, of.rows)


def trained_state(model: nn.Module) -> dict[str, Tensor]:
    """Trained parameters, and buffers: what a step may change. Frozen parameters are given anew on resuming."""
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return trained | dict(model.named_buffers())


def prefixed(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in state.items()}
