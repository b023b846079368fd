"""Adam's update is written once for numba, once for Triton and once for torch: all against the formula in numpy.

Every way to reach one of them gets the same gradients. Kernels of a GPU run in Triton's interpreter where it is
installed without one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.nn.batches import Bags, has_triton
from longtail.nn.full import Float32Table
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import AdamFactors, OneVsAll, RowAdam, adam_by_torch
from longtail.recipes.direct.objective import ComposedRows, ComposedRowsOnCpu
from longtail.training.objectives import ModelAdam
from longtail.types import Candidates

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are defined
DEVICE = "cuda" if ON_GPU else "cpu"
ROWS, WIDTH, STEPS, RATE, BETAS, EPSILON = 40, 17, 3, 0.01, (0.9, 0.999), 1e-8

F64 = NDArray[np.float64]


def start() -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal((ROWS, WIDTH), dtype=np.float32))


def gradient(step: int) -> Tensor:
    """Numbers that bf16 holds exactly: some ways take gradients in it."""
    numbers = np.random.default_rng(step).standard_normal((ROWS, WIDTH), dtype=np.float32)
    return torch.from_numpy(numbers).bfloat16().float()


def by_the_formula(gradient_of: Callable[[int, F64], F64]) -> F64:
    """Kingma and Ba 2015, Algorithm 1.  gradient_of: (step, values) -> gradient."""
    values, m, v = start().double().numpy(), np.zeros((ROWS, WIDTH)), np.zeros((ROWS, WIDTH))
    for t in range(1, STEPS + 1):
        g = gradient_of(t, values)
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
        values = values - RATE * (m / (1 - BETAS[0] ** t)) / (np.sqrt(v / (1 - BETAS[1] ** t)) + EPSILON)
    return values


def factors(step: int) -> AdamFactors:
    return AdamFactors.of(step, RATE, BETAS, EPSILON)


def torch_expression() -> Tensor:
    values, first, second = start(), torch.zeros(ROWS, WIDTH), torch.zeros(ROWS, WIDTH)
    for step in range(1, STEPS + 1):
        adam_by_torch(values, first, second, gradient(step), factors(step))
    return values


def given_rows(adam: RowAdam) -> Tensor:
    for step in range(1, STEPS + 1):
        adam.update_rows(torch.arange(ROWS, device=adam.table.device), gradient(step).to(adam.table), RATE)
    return adam.table


def rows_of_bags(adam: RowAdam) -> Tensor:
    for step in range(1, STEPS + 1):
        bags = Bags(torch.arange(ROWS + 1), torch.arange(ROWS, dtype=torch.int32), torch.ones(ROWS))
        adam.step(bags, gradient(step), RATE)
    return adam.table


def block(table: Float32Table) -> Tensor:
    for step in range(1, STEPS + 1):
        table.update(0, ROWS, gradient(step).to(table.rows.device) * 2, 0.5, factors(step))
    return table.rows


def composed(kind: type[ComposedRows]) -> Tensor:
    """The last column is the bias; labels trust their free vectors in full."""
    rows = kind(start(), torch.ones(ROWS, 1), text=False)
    for step in range(1, STEPS + 1):
        rows.learn(0, ROWS, gradient(step).bfloat16() * 2, 0.5, factors(step))
    return rows.free.rows


def triton_rows() -> Tensor:
    adam = RowAdam(start().to(DEVICE), reference=True)
    adam.by_triton = True
    return given_rows(adam)


by_triton = [pytest.mark.gpu, pytest.mark.skipif(not has_triton(), reason="Triton is not installed")]
WAYS: dict[str, tuple[Callable[[], Tensor], Any]] = {
    "torch": (torch_expression, ()),
    "rows, torch": (lambda: given_rows(RowAdam(start(), reference=True)), ()),
    "rows, numba": (lambda: given_rows(RowAdam(start())), ()),
    "bags, numba": (lambda: rows_of_bags(RowAdam(start())), ()),
    "full, numba": (lambda: block(Float32Table(start())), ()),
    "composed, torch's way": (lambda: composed(ComposedRows), ()),
    "composed, numba": (lambda: composed(ComposedRowsOnCpu), ()),
    "rows, Triton": (triton_rows, by_triton),
    "full, Triton": (lambda: block(Float32Table(start().to(DEVICE), kernels=True)), by_triton),
}


@pytest.mark.parametrize("way", [pytest.param(way, marks=marks, id=name) for name, (way, marks) in WAYS.items()])
def test_every_way_is_the_formula(way: Callable[[], Tensor]) -> None:
    wanted = by_the_formula(lambda step, _: gradient(step).double().numpy())
    np.testing.assert_allclose(way().cpu().numpy(), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("reference", [False, True])
def test_the_step_on_candidates_is_the_formula(reference: bool) -> None:
    """All labels are candidates of all documents, so that the gradient is known."""
    rng, documents = np.random.default_rng(7), 8
    z = rng.standard_normal((documents, WIDTH), dtype=np.float32)
    targets = (rng.random((documents, ROWS)) < 0.2).astype(np.float32)
    classifier = OneVsAll(ROWS, WIDTH, rng)
    classifier.rows.data.copy_(start())
    trainer = RestrictedTrainer(classifier, adam=RowAdam(classifier.rows, reference=reference))
    ids = np.tile(np.arange(ROWS, dtype=np.int32), (documents, 1))
    for _ in range(STEPS):
        trainer.step(torch.from_numpy(z), Candidates(ids, targets, ids >= 0), RATE)

    def gradient_of(_: int, values: F64) -> F64:
        chances = 1 / (1 + np.exp(-z.astype(np.float64) @ values.T))
        return (chances - targets).T @ z / targets.size

    np.testing.assert_allclose(classifier.rows.detach().numpy(), by_the_formula(gradient_of), rtol=1e-4, atol=1e-5)


class Dense(nn.Module):
    """Parameters of several shapes; `slow` learns at another rate, `resting` has a gradient only in some steps."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        for name, shape in {"weight": (33, 17), "bias": (17,), "slow": (5, 3), "resting": (4,)}.items():
            numbers = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
            self.register_parameter(name, nn.Parameter(numbers.to(DEVICE)))


@pytest.mark.gpu
def test_dense_parameters_learn_as_by_torchs_optimiser() -> None:
    """To the last bit, moments and counts included; `ModelAdam` calls the operation of `fused=True` by itself."""
    ours, theirs = Dense(), Dense()
    adam = ModelAdam(ours, {"slow": 0.3})
    named = dict(theirs.named_parameters())
    groups = [[p for name, p in named.items() if name != "slow"], [named["slow"]]]
    wanted = torch.optim.Adam([{"params": group} for group in groups], fused=True)
    for step in range(7):
        rng, rate = np.random.default_rng(step), 0.01 / (step + 1)
        for name, p in named.items():
            numbers = torch.from_numpy(rng.standard_normal(p.shape, dtype=np.float32)).to(DEVICE) * 10.0**-step
            given = None if name == "resting" and step % 3 != 1 else numbers
            p.grad, ours.get_parameter(name).grad = given, None if given is None else given.clone()
        for group, factor in zip(wanted.param_groups, (1.0, 0.3), strict=True):
            group["lr"] = rate * factor
        wanted.step()
        adam.step(rate)
        assert all(p.grad is None for p in ours.parameters())
    state = adam.state()
    for name, p in named.items():
        assert torch.equal(ours.get_parameter(name), p), name
        for moment, value in wanted.state[p].items():
            assert torch.equal(state[f"{name}.{moment}"], value), (name, moment)
