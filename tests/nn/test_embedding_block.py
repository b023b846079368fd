"""ECLARE's embedding block: its formula, its start, its bound, and that it trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.nn.blocks import EmbeddingBlock
from longtail.recipes.eclare.network import DocumentBlock
from longtail.training.objectives import ModelAdam


def shaken(width: int, seed: int, **options: bool) -> EmbeddingBlock:
    """A block with a random matrix and scale, out of training."""
    rng = np.random.default_rng(seed)
    block = EmbeddingBlock(width, rng, **options).eval()
    with torch.no_grad():
        block.weight.copy_(torch.from_numpy(rng.standard_normal((width, width))))
        block.scale.copy_(torch.from_numpy(rng.standard_normal(1)) * 3)
    return block


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 12), count=st.integers(0, 5), clamp=st.booleans())
def test_formula(seed: int, width: int, count: int, clamp: bool) -> None:
    block = shaken(width, seed, clamp_scale=clamp)
    a = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    weight = block.weight.detach().double().numpy()
    weight = weight / np.linalg.norm(weight, 2)
    scale = float(block.scale.detach())
    scale = min(max(scale, -1.0), 1.0) if clamp else scale
    expected = a + scale * np.maximum(a, 0) @ weight.T
    np.testing.assert_allclose(block(torch.from_numpy(a)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_at_the_start_it_adds_the_positive_part() -> None:
    block = EmbeddingBlock(6, np.random.default_rng(0), dropout=0.0)
    a = torch.randn(4, 6)
    torch.testing.assert_close(block(a), a + a.clamp(min=0))
    torch.testing.assert_close(block.eval()(a), a + a.clamp(min=0))


def test_the_matrix_has_norm_one_however_large_or_small_it_is() -> None:
    block = shaken(9, 0)
    for factor in (0.01, 1.0, 50.0):
        with torch.no_grad():
            block.weight.mul_(factor)
        assert float(torch.linalg.matrix_norm(block.frozen_weight(), ord=2)) == pytest.approx(1, rel=1e-5)


def test_dropout_falls_on_the_added_part_only() -> None:
    torch.manual_seed(0)
    added = EmbeddingBlock(60, np.random.default_rng(0), dropout=0.5)(torch.ones(1, 60)) - 1
    assert set(added.detach().flatten().round(decimals=4).tolist()) == {0.0, 2.0}


def test_matrix_and_scale_are_trained() -> None:
    block = EmbeddingBlock(5, np.random.default_rng(0))
    before = [parameter.detach().clone() for parameter in (block.weight, block.scale)]
    torch.autograd.backward((block(torch.rand(8, 5)) * torch.randn(8, 5)).sum())
    ModelAdam(block).step(0.1)
    assert all(not torch.equal(a, b) for a, b in zip(before, (block.weight, block.scale), strict=True))


def test_a_document_is_not_negative_and_dropout_falls_on_it() -> None:
    torch.manual_seed(0)
    block = DocumentBlock(60, np.random.default_rng(0), dropout=0.5)
    a = torch.randn(3, 60)
    x = block(a)
    assert (x >= 0).all()
    assert ((x == 0) & (a > 0)).any(), "some positive numbers were dropped"
    torch.testing.assert_close(block.eval()(a), 2 * a.clamp(min=0))
