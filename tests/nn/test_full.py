"""The all-negatives engine against dense losses in float64, torch's Adam, and itself in other precisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.speed.engine_oracle import dense_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch import Tensor

from longtail.nn.batches import Bags, DeviceCsr
from longtail.nn.full import BLOCK_SCORES, FixedTable, FullRows, LossKind, Pairs, Sweep, by_gradient, full_gradients


@pytest.fixture(autouse=True)
def _many_blocks() -> Iterator[None]:
    """Blocks are whole multiples of 128 labels; tests have more labels than that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BLOCK_SCORES, "cpu", 1)
        yield


class Case:
    """A random batch: x (B, D), rows (L, D), soft targets, masked pairs, weights of labels."""

    def __init__(
        self,
        seed: int,
        documents: int = 9,
        labels: int = 300,
        width: int = 7,
        spread: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.x, self.rows = (
            torch.from_numpy(rng.standard_normal((n, width)) * spread).to(dtype) for n in (documents, labels)
        )
        chances = rng.random((documents, labels))
        self.positive = np.where(chances < 0.05, rng.choice([1, 0.25], (documents, labels)), 0)
        self.hidden = (chances > 0.05) & (chances < 0.1)
        self.weights = torch.from_numpy(rng.integers(1, 5, labels)).to(dtype)

    @property
    def targets(self) -> Bags:
        return bags(self.positive)

    @property
    def masked(self) -> Bags:
        return bags(self.hidden)

    def dense(self, loss: LossKind, x: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        targets, hidden = torch.from_numpy(self.positive), torch.from_numpy(self.hidden)
        return dense_loss(
            self.x if x is None else x, self.rows if rows is None else rows, targets, hidden, self.weights, loss
        )


def bags(matrix: Any) -> Bags:
    return DeviceCsr(csr_array(matrix.astype(np.float32))).rows(np.arange(len(matrix)))


both_losses = pytest.mark.parametrize("loss", ["bce", "softmax"])


@both_losses
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    documents=st.integers(1, 9),
    labels=st.integers(1, 400),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_loss_and_gradients_equal_the_dense_ones(
    loss: LossKind, seed: int, documents: int, labels: int, spread: float
) -> None:
    case = Case(seed, documents, labels, spread=spread)
    x, rows = case.x.requires_grad_(), case.rows.requires_grad_()
    dense = case.dense(loss, x, rows)
    wanted = dense, *torch.autograd.grad(dense, (x, rows))
    got = full_gradients(
        x, rows, case.targets, masked=case.masked, weights=case.weights, loss=loss, compute=torch.float64
    )
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_marked_pairs_are_targets_or_hidden(share: float) -> None:
    """Hidden as a whole, or in part: the rest counts as a negative."""
    case = Case(0)
    x, rows = case.x.requires_grad_(), case.rows.requires_grad_()
    targets, hidden = torch.from_numpy(case.positive), torch.from_numpy(case.hidden)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(x @ rows.T, targets, reduction="none")
    whole = torch.where(hidden, (1 - share) * losses, losses).sum() / len(x)
    wanted = torch.autograd.grad(whole, (x, rows))
    found = torch.empty_like(rows)

    def receive(start: int, count: int, gradient: Tensor, scale: float) -> None:
        found[start : start + count] = gradient[:count] * scale

    both = bags(np.where(case.hidden, -share, case.positive))
    sweeper = Sweep(x.device, mean_over="documents", compute=torch.float64)
    loss, of_x = sweeper(x.detach(), FixedTable(rows), Pairs.marked(both, None), by_gradient(receive))
    assert float(loss) == pytest.approx(float(whole.detach()), rel=1e-5)
    torch.testing.assert_close((of_x, found), wanted, check_dtype=False, rtol=1e-5, atol=1e-9)


@both_losses
def test_the_mean_over_documents_is_that_over_entries_times_labels(loss: LossKind) -> None:
    case = Case(0)
    options: dict[str, Any] = {"loss": loss, "masked": case.masked, "compute": torch.float64}
    by_entry = full_gradients(case.x, case.rows, case.targets, **options)
    for a, b in zip(
        by_entry, full_gradients(case.x, case.rows, case.targets, mean_over="documents", **options), strict=True
    ):
        torch.testing.assert_close(a * len(case.rows), b)


@both_losses
def test_documents_without_positives_and_without_negatives(loss: LossKind) -> None:
    case = Case(1, documents=3, labels=200)
    case.positive[0], case.hidden[0] = 0, False
    case.positive[1], case.hidden[1] = 1, False
    case.positive[2], case.hidden[2] = 0, True
    got = full_gradients(case.x, case.rows, case.targets, masked=case.masked, loss=loss, compute=torch.float64)
    assert all(bool(tensor.isfinite().all()) for tensor in got)
    assert not got[1][2].any()
    if loss == "softmax":
        assert not got[1][:2].any()
        assert float(got[0]) == 0


@both_losses
def test_steps_equal_autograd_and_torch_adam(loss: LossKind) -> None:
    case = Case(2)
    case.weights = torch.ones_like(case.weights)
    rows = case.rows.clone()
    full = FullRows(rows, loss=loss, compute=torch.float64, betas=(0.8, 0.95), epsilon=1e-6)
    parameter = torch.nn.Parameter(case.rows.clone())
    adam = torch.optim.Adam([parameter], betas=(0.8, 0.95), eps=1e-6)
    for step in range(4):
        rate = 0.05 / (step + 1)
        x = case.x.clone().requires_grad_()
        dense = case.dense(loss, x, parameter)
        torch.autograd.backward(dense)
        adam.param_groups[0]["lr"] = rate
        adam.step()
        adam.zero_grad()
        mean, gradient = full.step(case.x, case.targets, rate, case.masked)
        torch.testing.assert_close(mean, dense.detach())
        torch.testing.assert_close(gradient, x.grad)
        torch.testing.assert_close(full.rows, parameter.detach())
    assert full.rows.data_ptr() == rows.data_ptr(), "rows are updated in place"


def test_bf16_products_are_close() -> None:
    case = Case(4, width=20, dtype=torch.float32)
    exact, rough = (
        full_gradients(case.x, case.rows, case.targets, compute=kind) for kind in (torch.float32, torch.bfloat16)
    )
    for a, b in zip(exact, rough, strict=True):
        assert float((a - b).norm() / a.norm()) < 0.02


def test_state_is_everything() -> None:
    case = Case(5, dtype=torch.float32)
    first, second = (FullRows(case.rows.clone()) for _ in range(2))
    for _ in range(3):
        first.step(case.x, case.targets, 0.1)
    for name, value in second.state().items():
        value.copy_(first.state()[name])
    for full in (first, second):
        full.step(case.x, case.targets, 0.1)
    for name, value in first.state().items():
        assert torch.equal(value, second.state()[name]), name


def test_kernels_without_bf16_are_refused() -> None:
    with pytest.raises(ValueError, match="float32"):
        FullRows(torch.zeros(4, 2), variant="triton")
