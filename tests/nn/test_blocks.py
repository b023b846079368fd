"""The residual block: its spectral bound, its gradient, and the drift that the bound promises."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from longtail.nn.blocks import BoundMode, FullyConnected, Residual, SpectralBound
from longtail.training.objectives import ModelAdam

CASES = 2000


def norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix.detach().double(), ord=2))


def random_matrix(width: int, rng: np.random.Generator, scale: float = 1.0) -> Tensor:
    return torch.from_numpy(rng.standard_normal((width, width)) * scale).float()


@cache
def shared_residual(width: int) -> Residual:
    return Residual(width, np.random.default_rng(0), dropout=0.0).double().eval()


def random_residual(width: int, bound: float, rng: np.random.Generator) -> Residual:
    """A block whose matrix is random and too large, so that the bound is at work. Not in training, float64."""
    block = shared_residual(width)
    block.spectral.bound = bound
    with torch.no_grad():
        block.weight.copy_(random_matrix(width, rng, scale=2.0))
    return block


@pytest.mark.claim("F18")
@pytest.mark.parametrize("width", [8, 64, 300])
@pytest.mark.parametrize("bound", [0.3, 1.0])
@pytest.mark.parametrize("mode", ["project", "normalise"])
def test_power_iteration_keeps_the_bound(width: int, bound: float, mode: BoundMode) -> None:
    rng = np.random.default_rng(width)
    weight = random_matrix(width, rng)
    spectral = SpectralBound(weight, rng, bound=bound, mode=mode)
    for _ in range(400):
        bounded = spectral(weight)
    assert norm(bounded) <= bound * (1 + 1e-3)
    assert norm(bounded) >= bound * (1 - 1e-3)
    assert norm(spectral.exact(weight)) == pytest.approx(bound, rel=1e-6)


@pytest.mark.claim("F18")
@pytest.mark.parametrize("mode", ["project", "normalise"])
def test_gradient_flows_through_the_norm_with_singular_vectors_constant(mode: BoundMode) -> None:
    rng = np.random.default_rng(0)
    weight = random_matrix(8, rng).double().requires_grad_()
    spectral = SpectralBound(weight.detach(), rng, bound=0.7, mode=mode)
    probe = random_matrix(8, rng).double()
    right = torch.nn.functional.normalize(weight.detach().T @ spectral.left, dim=0)
    torch.autograd.backward((spectral(weight) * probe).sum())
    norm_estimate = spectral.left @ weight.detach() @ right
    by_scaling = probe / norm_estimate
    by_norm = (probe * weight.detach()).sum() / norm_estimate**2 * torch.outer(spectral.left, right)
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, 0.7 * (by_scaling - by_norm))


def test_project_leaves_a_small_matrix_alone_and_normalise_does_not() -> None:
    rng = np.random.default_rng(1)
    small = torch.eye(5) * 0.5
    assert torch.equal(SpectralBound(small, rng).exact(small), small)
    assert torch.equal(SpectralBound(small, rng)(small), small)
    torch.testing.assert_close(SpectralBound(small, rng, mode="normalise").exact(small), torch.eye(5))


def test_off_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    large = torch.eye(5) * 3
    spectral = SpectralBound(large, rng, mode="off")
    assert torch.equal(spectral(large), large)
    assert torch.equal(spectral.exact(large), large)


def test_a_zero_matrix_stays_zero() -> None:
    zero = torch.zeros(4, 4)
    for mode in ("project", "normalise"):
        assert torch.equal(SpectralBound(zero, np.random.default_rng(0), mode=mode).exact(zero), zero)


def test_estimate_warms_up_and_persists() -> None:
    """Estimates improve from call to call because the vector stays; the first one already follows 20 iterations."""
    rng = np.random.default_rng(3)
    weight = torch.eye(300) + random_matrix(300, rng, scale=0.02)
    spectral = SpectralBound(weight, rng)
    first, true = float(spectral.left @ weight @ spectral.iterate(weight)), norm(weight)
    assert first >= 0.93 * true
    for _ in range(80):
        right = spectral.iterate(weight)
    assert float(spectral.left @ weight @ right) >= max(first, 0.98 * true)


def test_two_forward_passes_before_one_backward() -> None:
    """The persistent vector changes in place between them; the first pass must not notice."""
    block = Residual(6, np.random.default_rng(0), dropout=0.0)
    with torch.no_grad():
        block.weight.mul_(1.5)
    torch.autograd.backward((block(torch.ones(2, 6)) + block(torch.rand(2, 6))).sum())
    assert block.weight.grad is not None


def test_frozen_weight_follows_the_parameter() -> None:
    block = Residual(4, np.random.default_rng(0), dropout=0.0)
    before = block.frozen_weight()
    torch.autograd.backward(block(torch.rand(3, 4)).sum())
    ModelAdam(block).step(0.1)
    assert not torch.equal(block.frozen_weight(), before)
    assert norm(block.frozen_weight()) <= 1 + 1e-6


@pytest.mark.claim("A1")
def test_drift_is_bounded() -> None:
    rng = np.random.default_rng(11)
    for _ in range(CASES):
        width, bound = int(rng.integers(2, 33)), float(rng.uniform(0.05, 1.0))
        block = random_residual(width, bound, rng)
        v = torch.from_numpy(np.maximum(rng.standard_normal((3, width)), 0))
        drift = (block(v) - v).norm(dim=1)
        assert torch.all(drift <= bound * v.norm(dim=1) + 1e-6)


def test_drift_is_not_bounded_without_the_bound() -> None:
    block = Residual(8, np.random.default_rng(0), dropout=0.0, mode="off").eval()
    with torch.no_grad():
        block.weight.mul_(5)
    v = torch.rand(3, 8)
    assert torch.all((block(v) - v).norm(dim=1) > v.norm(dim=1))


def cosine_bounds_broken(rng: np.random.Generator, *, signed: bool) -> int:
    """Cases of Theorem 1(b) that fail: cos(v, centroid) / (1 + e) <= cos(x, centroid) <= cos(v, centroid) + e."""
    broken = 0
    for _ in range(CASES):
        width, p, bound = int(rng.integers(2, 33)), int(rng.integers(1, 9)), float(rng.uniform(0.01, 1.0))
        block = random_residual(width, bound, rng)
        v = torch.from_numpy(rng.standard_normal((p, width)))
        v = v if signed else v.clamp(min=0)
        x = block(v).detach()
        before = torch.nn.functional.cosine_similarity(v[:1], v.mean(0, keepdim=True))
        after = torch.nn.functional.cosine_similarity(x[:1], x.mean(0, keepdim=True))
        epsilon = (1 + bound * p**0.5) ** 2 - 1
        broken += bool(after < before / (1 + epsilon) - 1e-6) or bool(after > before + epsilon + 1e-6)
    return broken


@pytest.mark.claim("A2")
def test_cosines_to_centroids_are_bounded() -> None:
    assert cosine_bounds_broken(np.random.default_rng(5), signed=False) == 0


@pytest.mark.claim("A2n")
def test_cosines_are_not_bounded_for_signed_vectors() -> None:
    assert cosine_bounds_broken(np.random.default_rng(5), signed=True) > 0.05 * CASES


@pytest.mark.claim("A3")
def test_at_the_start_the_block_doubles_its_input() -> None:
    rng = np.random.default_rng(2)
    block = Residual(300, rng).eval()
    v = torch.from_numpy(np.maximum(rng.standard_normal((50, 300)), 0)).float()
    x = block(v)
    assert torch.equal(x, 2 * v)
    unit_v, unit_x = (torch.nn.functional.normalize(a) for a in (v, x))
    assert torch.equal(
        (unit_v @ unit_v.T).argsort(descending=True, stable=True),
        (unit_x @ unit_x.T).argsort(descending=True, stable=True),
    )


def test_dropout_falls_on_the_residual_only() -> None:
    block = Residual(50, np.random.default_rng(0), dropout=0.5)
    torch.manual_seed(0)
    v = torch.ones(1, 50)
    added = block(v) - v
    assert set(added.flatten().round(decimals=4).tolist()) == {0.0, 2.0}


def test_fully_connected_has_no_residual() -> None:
    block = FullyConnected(4).eval()
    v = torch.rand(2, 4)
    assert torch.equal(block(v), v)
    assert torch.equal(block(-v), torch.zeros(2, 4))
    assert np.array_equal(block.frozen().weight, np.eye(4))
