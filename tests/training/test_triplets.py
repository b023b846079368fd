"""The hinge loss of triplets against its definition in loops, and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtail.nn.batches import Bags
from longtail.nn.full import LossKind, full_gradients, full_loss
from longtail.training.objectives import triplet_loss


def example(seed: int, items: int = 6, others: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Cosines of random unit vectors, a positive for some items, and random negatives that are never the positive."""
    rng = np.random.default_rng(seed)
    x, a = (
        torch.nn.functional.normalize(torch.from_numpy(rng.standard_normal((n, 4))), dim=1) for n in (items, others)
    )
    positive = torch.from_numpy(rng.integers(-1, others, size=items))
    negative = torch.from_numpy(rng.random((items, others)) < 0.7)
    negative[torch.arange(items), positive.clamp(min=0)] = False
    return x @ a.T, positive, negative


def by_loops(similarity: Tensor, positive: Tensor, negative: Tensor, margin: float, hardest: int) -> float:
    rows = []
    for i, p in enumerate(positive.tolist()):
        if p >= 0:
            wrong = sorted(
                (float(similarity[i, n]) for n in range(similarity.shape[1]) if negative[i, n]), reverse=True
            )
            excess = [s - float(similarity[i, p]) + margin for s in (wrong[:hardest] if hardest else wrong)]
            violations = [value for value in excess if value > 0]
            rows.append(sum(violations) / len(violations) if violations else 0.0)
    return sum(rows) / len(rows) if rows else 0.0


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.5]), st.sampled_from([0, 1, 3, 50]))
def test_it_is_the_mean_over_items_of_the_mean_over_violations(seed: int, margin: float, hardest: int) -> None:
    similarity, positive, negative = example(seed)
    assert float(triplet_loss(similarity, positive, negative, margin=margin, hardest=hardest)) == pytest.approx(
        by_loops(similarity, positive, negative, margin, hardest), abs=1e-12
    )


@pytest.mark.claim("R4")
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 2]))
def test_it_is_zero_exactly_where_all_margins_are_kept(seed: int, hardest: int) -> None:
    similarity, positive, negative = example(seed)
    s_positive = similarity.gather(1, positive.clamp(min=0)[:, None])
    gaps = torch.where(negative & (positive >= 0)[:, None], s_positive - similarity, torch.inf)
    nearest = float(gaps.min())
    if not np.isfinite(nearest):
        assert float(triplet_loss(similarity, positive, negative, margin=2.0, hardest=hardest)) == 0, (
            "no triplets, no loss"
        )
        return
    assert float(triplet_loss(similarity, positive, negative, margin=nearest - 1e-9, hardest=hardest)) == 0
    assert float(triplet_loss(similarity, positive, negative, margin=nearest + 1e-9, hardest=hardest)) > 0
    assert (float(triplet_loss(similarity, positive, negative, margin=0.3, hardest=hardest)) == 0) == (nearest >= 0.3)


@pytest.mark.claim("R4")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 3]))
def test_its_gradient_is_that_of_finite_differences(seed: int, hardest: int) -> None:
    similarity, positive, negative = example(seed)
    similarity.requires_grad_()
    torch.autograd.backward(triplet_loss(similarity, positive, negative, margin=0.3, hardest=hardest))
    assert similarity.grad is not None
    step = 1e-7
    for i in range(similarity.shape[0]):
        for j in range(similarity.shape[1]):
            ends = []
            for sign in (1, -1):
                moved = similarity.detach().clone()
                moved[i, j] += sign * step
                ends.append(float(triplet_loss(moved, positive, negative, margin=0.3, hardest=hardest)))
            assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(float(similarity.grad[i, j]), abs=1e-5)


@pytest.mark.claim("R5")
def test_items_without_a_positive_change_nothing() -> None:
    similarity, positive, negative = example(3, items=10)
    positive[4:] = -1
    positive[:4] = torch.tensor([0, 1, 2, 3])
    negative[torch.arange(4), positive[:4]] = False
    similarity.requires_grad_()
    loss = triplet_loss(similarity, positive, negative, margin=0.3)
    torch.autograd.backward(loss)
    assert similarity.grad is not None
    assert float(loss.detach()) == pytest.approx(
        float(triplet_loss(similarity[:4].detach(), positive[:4], negative[:4], margin=0.3))
    )
    assert not similarity.grad[4:].any()
    assert similarity.grad[:4].any()


def test_nothing_to_compare_is_no_loss() -> None:
    nothing = torch.zeros(3, 2)
    assert float(triplet_loss(nothing, torch.full((3,), -1), torch.ones(3, 2, dtype=torch.bool), margin=0.3)) == 0
    assert (
        float(triplet_loss(nothing, torch.zeros(3, dtype=torch.int64), torch.zeros(3, 2, dtype=torch.bool), margin=0.3))
        == 0
    )


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_gradients_flow_through_the_loss_against_all_rows(loss: LossKind) -> None:
    rng = np.random.default_rng(0)
    x, rows = (torch.from_numpy(rng.standard_normal((n, 5)).astype(np.float32)) for n in (4, 7))
    targets = Bags(torch.tensor([0, 1, 3, 3, 4]), torch.tensor([2, 0, 5, 6], dtype=torch.int32), torch.ones(4))
    masked = Bags(torch.tensor([0, 1, 1, 1, 1]), torch.tensor([4], dtype=torch.int32), torch.ones(1))
    one, other = x.clone().requires_grad_(), rows.clone().requires_grad_()
    value = full_loss(one * 2, other, targets, masked=masked, loss=loss)
    torch.autograd.backward(3 * value)
    expected, to_x, to_rows = full_gradients(2 * x, rows, targets, masked=masked, loss=loss, mean_over="documents")
    assert float(value.detach()) == pytest.approx(float(expected))
    assert one.grad is not None
    assert other.grad is not None
    torch.testing.assert_close(one.grad, 6 * to_x)
    torch.testing.assert_close(other.grad, 3 * to_rows)
