"""Triton kernels against torch: on a GPU, or where Triton is installed without one, in its interpreter.

TRITON_INTERPRET=1 pytest tests/nn/test_full_triton.py
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.speed.engine_oracle import Problem
from scipy.sparse import csr_array
from torch import Tensor

from longtail.nn.batches import Bags, DeviceCsr, padded
from longtail.nn.full import BLOCK_SCORES, Float32Table, FullRows, LossKind, Variant
from longtail.nn.row_tables import AdamFactors

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined
pytest.importorskip("triton", reason="Triton is not installed")
triton_kernels: Any = pytest.importorskip("longtail.nn.triton_kernels")

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if ON_GPU else "cpu"


@pytest.fixture(autouse=True)
def _many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BLOCK_SCORES, DEVICE, 1)


@pytest.mark.parametrize("loss", ["bce", "softmax"])
@pytest.mark.parametrize("shape", [(5, 300, 20), (130, 257, 70)])
def test_loss_and_gradients_are_the_dense_ones_within_bf16(loss: LossKind, shape: tuple[int, int, int]) -> None:
    errors = Problem(*shape, loss, DEVICE).errors("triton", torch.bfloat16)
    assert not isinstance(errors, str), errors
    assert float(errors[0]) < 1e-5
    assert float(errors[1]) < 8e-3
    assert float(errors[2]) < 8e-3


def test_tiles_give_the_slopes() -> None:
    x, rows = (padded(random((n, 40)), torch.bfloat16, 8) for n in (70, 300))
    slopes = torch.full((len(x), len(rows)), torch.nan, dtype=torch.bfloat16, device=DEVICE)
    loss = triton_kernels.bce_slopes(x, rows, slopes, 67, 297)
    scores = (x.double() @ rows.double().T)[:67, :297]
    # The interpreter cuts to bf16 where a GPU rounds.
    torch.testing.assert_close(slopes[:67, :297].double(), scores.sigmoid(), rtol=5e-3 if ON_GPU else 8e-3, atol=1e-9)
    assert float(loss) == pytest.approx(float(torch.nn.functional.softplus(scores).sum()), rel=1e-5)
    assert bool(slopes.isfinite().all()), "padding is multiplied by zeros"


@pytest.mark.parametrize("shift", [-30.0, 12.0, 40.0])
def test_tiny_chances_and_large_scores_keep_their_loss(shift: float) -> None:
    """Rows that add `shift` to every score: sigmoids of 1e-13 are not 0, losses of large scores are the scores."""
    x, rows = (
        padded(torch.ones((16, 16), device=DEVICE), torch.bfloat16, 8),
        padded(torch.full((128, 16), shift / 16, device=DEVICE), torch.bfloat16, 8),
    )
    slopes = torch.empty((16, 128), dtype=torch.bfloat16, device=DEVICE)
    scores = x.double() @ rows.double().T
    loss = triton_kernels.bce_slopes(x, rows, slopes, 16, 128)
    assert float(loss) == pytest.approx(float(torch.nn.functional.softplus(scores).sum()), rel=1e-4)
    torch.testing.assert_close(slopes.double(), scores.sigmoid(), rtol=1e-2, atol=0)


def test_what_is_not_a_number_is_seen() -> None:
    x, rows = (torch.full((n, 16), torch.nan, dtype=torch.bfloat16, device=DEVICE) for n in (16, 128))
    assert bool(
        triton_kernels.bce_slopes(x, rows, torch.empty((16, 128), dtype=torch.bfloat16, device=DEVICE), 16, 128).isnan()
    )


def test_the_update_in_float32_is_that_of_torch() -> None:
    start, gradient = random((130, 30)), random((136, 32)).bfloat16()
    rows, theirs = start.clone(), torch.nn.Parameter(start.clone())
    ours, adam = Float32Table(rows, kernels=True), torch.optim.Adam([theirs], lr=0.01)
    for step in (1, 2, 3):
        ours.update(0, 130, gradient, 0.5, AdamFactors.of(step, 0.01, (0.9, 0.999), 1e-8))
        theirs.grad = gradient[:130, :30].float() * 0.5
        adam.step()
    torch.testing.assert_close(rows, theirs.detach(), rtol=1e-6, atol=1e-7)


def test_steps_train_as_torch_does() -> None:
    x, rows = random((20, 24)), random((300, 24))
    targets = csr_array((np.random.default_rng(0).random((20, 300)) < 0.02).astype(np.float32))
    bags: Bags = DeviceCsr(targets, DEVICE).rows(np.arange(20))
    variants: tuple[Variant, ...] = ("torch", "triton")
    engines = [
        FullRows(rows.clone(), compute=torch.bfloat16, variant=variant, mean_over="documents") for variant in variants
    ]
    for _ in range(3):
        losses = [engine.step(x, bags, 0.01)[0] for engine in engines]
    assert float(losses[1]) == pytest.approx(float(losses[0]), rel=1e-3)
    moved = (engines[0].rows - rows).norm()
    assert float((engines[0].rows - engines[1].rows).norm() / moved) < 0.02


def random(shape: tuple[int, int]) -> Tensor:
    return torch.from_numpy(np.random.default_rng(shape).standard_normal(shape, dtype=np.float32) / 2).to(DEVICE)
