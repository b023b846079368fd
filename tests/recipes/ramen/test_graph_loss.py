"""The loss of graphs beside one over targets: the gradient is that of the sum, streams stay apart, and a resumed
training goes on alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tests.recipes.ramen.test_regularisers import WIDTH, made, random_graph, unit
from tests.training.test_fit import Memory

from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.encoders import DenseEncoder
from longtail.nn.row_tables import OneVsAll
from longtail.recipes.ramen.graph_loss import GraphLoss
from longtail.training.fit import StepDecay, fit
from longtail.training.objectives import AllTargets, extra_total
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

N, L, M = 20, 7, 9


def objective(weight: float, *, both: bool = True, enabled: bool = False) -> tuple[AllTargets, GraphLoss]:
    rng = np.random.default_rng(5)
    targets = csr_array((rng.random((N, L)) < 0.3).astype(np.float32))
    sides: dict[Any, int] = {"documents": N, "labels": L} if both else {"documents": N}
    regularisers, _ = made(
        [random_graph(rng, sides, M)], [unit(rng, M)], fixed=weight, initial=weight, enabled=enabled, block=2
    )
    documents, labels = Batch(dense=unit(rng, N)), Batch(dense=unit(rng, L))
    encoder = DenseEncoder(WIDTH, np.random.default_rng(1), project_to=WIDTH, dropout=0.3)
    terms = GraphLoss(
        regularisers,
        encoder,
        documents,
        labels,
        targets,
        rng_for=lambda name, number: np.random.default_rng([len(name), number]),
    )
    terms.begins(0, 1)
    return AllTargets(
        encoder, OneVsAll(L, WIDTH, np.random.default_rng(2)), Documents(documents), DeviceCsr(targets), extra=terms
    ), terms


def weights(made: AllTargets) -> Any:
    return {name: p.detach().clone() for name, p in made.model.named_parameters()}


def test_without_weight_nothing_changes_not_even_dropout() -> None:
    found = []
    for weight in (0.0, None, 1.0):
        made, _ = objective(weight or 0.0)
        if weight is None:
            made.extra = None
        torch.manual_seed(3)
        for _ in range(3):
            made.step(np.arange(N), np.random.default_rng(0), 0.01)
        found.append(weights(made))
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name])
    assert any(not torch.equal(value, found[2][name]) for name, value in found[0].items())


@pytest.mark.parametrize("both", [True, False])
def test_the_gradient_is_that_of_the_term(both: bool) -> None:
    made, terms = objective(0.7, both=both)
    made.encoder.eval()
    rows = np.arange(12)
    slopes = []
    for _ in range(2):
        made.encoder.zero_grad()
        x_BD = made.encoder(made.documents.rows(rows)).score
        torch.autograd.backward(extra_total(terms, made.encoder, rows, x_BD, torch.tensor(5.0)))
        slopes.append(next(p.grad for p in made.encoder.parameters() if p.grad is not None).clone())
    torch.testing.assert_close(slopes[0], slopes[1])
    assert slopes[0].abs().sum() > 0
    first = next(made.encoder.parameters())

    def mistake(direction: torch.Tensor, step: float = 2e-4) -> float:
        values = []
        for sign in (-1, 1):
            with torch.no_grad():
                first.add_(sign * step * direction)
                x_BD = made.encoder(made.documents.rows(rows)).score
                values.append(float(extra_total(terms, made.encoder, rows, x_BD, torch.tensor(5.0))))
                first.sub_(sign * step * direction)
        return abs((values[1] - values[0]) / (2 * step) - float((slopes[0] * direction).sum()))

    # The mean is over violating triplets: where their number changes within a step it jumps. Mostly it does not.
    torch.manual_seed(0)
    assert np.median([mistake(torch.randn_like(first)) for _ in range(15)]) < 0.02


def test_a_resumed_training_goes_on_alike() -> None:
    def trained(checkpoint: Memory, epochs: int) -> AllTargets:
        made, terms = objective(0.5, enabled=True)
        rates = StepDecay(0.01)
        fit(
            made,
            epochs=epochs,
            batch_size=5,
            schedule=rates,
            rng_for=lambda epoch: np.random.default_rng(epoch),
            checkpoint=checkpoint,
            watch=terms,
        )
        return made

    whole = trained(Memory(), 4)
    half = Memory()
    trained(half, 2)
    resumed = trained(half, 4)
    for name, value in whole.state().items():
        assert torch.equal(value, resumed.state()[name]), name
    assert float(whole.state()["extra.count"]) == 4 * N / 5
