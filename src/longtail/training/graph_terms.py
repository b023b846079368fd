"""Graphs beside a loss over targets: for methods that do not compare documents with label texts while they train
their encoder (ECLARE, `direct`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor
from torch.nn.functional import normalize

from longtail.errors import DataError
from longtail.graph.anchor_graph import Side
from longtail.graph.edges import drawn
from longtail.nn.batches import Documents
from longtail.nn.encoded import Encoder
from longtail.nn.unit_encoder import UnitEncoder
from longtail.training.objectives import prefixed
from longtail.training.prepare import TrainingSet
from longtail.training.regularisers import BatchVectors, Regularisers
from longtail.training.run import Run
from longtail.training.step_texts import Wanted, vectors_together
from longtail.types import I64, Csr


class GraphTerms:
    """The R terms of regularisers, for an objective that calls `term` in each step. A `Watch`.

    encoder: the one that is trained; what it gives is scaled to unit length for these terms alone (spec 04, A-04.12).
        labels: their texts.
    targets: (N, L) CSR: each document brings one of its labels, drawn by a generator of its own: with all weights 0
        nothing changes.
    """

    def __init__(
        self,
        regularisers: Regularisers,
        encoder: Encoder,
        documents: Documents,
        labels: Documents,
        targets: Csr,
        rng_for: Callable[[str, int], np.random.Generator],
    ) -> None:
        self.regularisers, self.documents, self.labels, self.targets, self._rng_for = (
            regularisers,
            documents,
            labels,
            targets,
            rng_for,
        )
        self.encoder = UnitEncoder(encoder)
        self._sides = {side for _, side in regularisers.terms}

    def begins(self, epoch: int, epochs: int) -> bool:
        self.regularisers.begin_epoch(epoch, self.encoder, self.documents, self.labels)
        return True

    def ended(self, epoch: int, epochs: int) -> None:
        """Nothing to do."""

    def term(self, rows: I64, x_BD: Tensor, loss: Tensor) -> Tensor:
        """A scalar whose gradient is that of the weighted terms.  x_BD: what the encoder gave for the documents at
        `rows`; loss: of the task.
        """
        items: dict[Side, tuple[I64, Tensor]] = {"documents": (rows, normalize(x_BD, dim=1))}
        if "labels" in self._sides and bool((self.regularisers.bandit.tried()[1:] > 0).any()):
            rng = self._rng_for("labels of regularisers", self.regularisers.steps)
            chosen = np.unique(drawn(self.targets, rows, rng))
            chosen = chosen[chosen >= 0]
            items["labels"] = (
                chosen,
                vectors_together(self.encoder, [Wanted(self.labels, chosen, int(rng.integers(2**63 - 1)))])[0],
            )
        elif "labels" in self._sides:
            items["labels"] = np.zeros(0, np.int64), x_BD.new_zeros((0, x_BD.shape[1]))
        return self.regularisers.objective_of(loss.detach().float(), self.encoder, BatchVectors(items))

    def after_step(self) -> None:
        self.regularisers.end_step(_no_heldout)

    def state(self) -> dict[str, Tensor]:
        return prefixed("regularisers", self.regularisers.state())


def graph_terms(regularisers: Regularisers, encoder: Encoder, data: TrainingSet, run: Run) -> GraphTerms:
    """The terms of a recipe's training: its documents, its label texts and one label of each document."""
    if data.label_texts is None:
        raise DataError(
            "graphs train the encoder with label texts, but no label has one",
            "add a title to the labels, or train the base method alone",
        )
    return GraphTerms(
        regularisers,
        encoder,
        Documents(data.documents, run.device),
        Documents(data.label_texts, run.device),
        data.targets,
        run.rng,
    )


def _no_heldout() -> float:
    raise AssertionError("recipes refuse bandit.reward=heldout where no documents are kept apart")
