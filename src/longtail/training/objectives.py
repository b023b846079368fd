"""What one training step does, for the two ways to learn: over all targets, and over each document's own candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.classifiers import OneVsAll
from longtail.nn.encoded import Encoded, Encoder
from longtail.nn.losses import full_bce
from longtail.nn.restricted import RestrictedTrainer
from longtail.training.optimisers import ModelAdam
from longtail.types import I64, Candidates


class Objective(Protocol):
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


class AllTargets:
    """Binary cross-entropy over all targets (clusters, or labels where they are few), in blocks.

    targets: (N, L) CSR rows beside the documents; the classifier has L rows and is updated whole in every step.
    """

    def __init__(self, encoder: Encoder, classifier: OneVsAll, documents: Documents, targets: DeviceCsr) -> None:
        if len(documents) != len(targets) or targets.columns != classifier.labels:
            raise ValueError(f"{len(documents)} documents and {classifier.labels} classifiers for targets of shape {len(targets)} x {targets.columns}")
        self.encoder, self.classifier, self.documents, self.targets = encoder, classifier, documents, targets
        self.model = nn.ModuleDict({"encoder": encoder, "classifier": classifier}).train()
        self.adam = ModelAdam(self.model)
        self.compute = products_type(documents.device)

    @property
    def size(self) -> int:
        return len(self.documents)

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        z_BD = training_vectors(self.encoder, self.documents, rows)
        loss = full_bce(self.classifier.inputs(z_BD), self.classifier.rows, self.targets.rows(rows), compute=self.compute)
        torch.autograd.backward(loss)
        self.adam.step(rate)
        return loss.detach()

    def state(self) -> dict[str, Tensor]:
        return trained_state(self.model) | prefixed("adam", self.adam.state())


class OwnCandidates:
    """Binary cross-entropy over the candidates of each document; only classifier rows that a batch names are updated.

    candidates: gives the labels of a step, e.g. the positives, hard negatives and a few random ones.
    """

    def __init__(
        self,
        encoder: Encoder,
        trainer: RestrictedTrainer,
        documents: Documents,
        candidates: Callable[[I64, np.random.Generator], Candidates],
    ) -> None:
        self.encoder, self.trainer, self.documents, self.candidates = encoder.train(), trainer, documents, candidates
        self.adam = ModelAdam(encoder)

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
        own = {"classifier.rows": self.trainer.classifier.rows.detach()} | prefixed("classifier.adam", self.trainer.adam.state())
        return prefixed("encoder", trained_state(self.encoder)) | prefixed("adam", self.adam.state()) | own


def training_vectors(encoder: Encoder, documents: Documents, rows: I64) -> Tensor:
    """(B, D) float32 vectors that classifiers read; products inside in bf16 on a GPU."""
    with torch.autocast(documents.device.type, dtype=torch.bfloat16, enabled=documents.device.type == "cuda"):
        encoded: Encoded = encoder(documents.rows(rows))
    return encoded.score.float()


def products_type(device: torch.device) -> torch.dtype:
    """The type of big matrix products: bf16 on a GPU, float32 on a CPU."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def trained_state(model: nn.Module) -> dict[str, Tensor]:
    """Parameters that are trained, and buffers: what a step may change. Frozen parameters are given anew on resuming."""
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return trained | dict(model.named_buffers())


def prefixed(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in state.items()}
