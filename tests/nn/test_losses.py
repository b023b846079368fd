"""Classifier scores and losses against plain dense formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from tests.nn.dense_oracles import masked_bce
from torch import nn

from longtail.nn.batches import DeviceCsr
from longtail.nn.full import BLOCK_SCORES, full_loss
from longtail.nn.row_tables import OneVsAll


def test_xavier_range_and_zero_bias() -> None:
    classifier = OneVsAll(500, 20, np.random.default_rng(0), bias=True)
    limit = math.sqrt(6 / 520)
    weight = classifier.weight.detach()
    assert 0.99 * limit < float(weight.abs().max()) <= limit
    assert abs(float(weight.mean())) < 0.02 * limit
    assert classifier.bias is not None
    assert not classifier.bias.any()
    assert OneVsAll(5, 2, np.random.default_rng(0)).bias is None


@pytest.mark.parametrize("bias", [False, True])
def test_scores_of_candidates_are_entries_of_all_scores(bias: bool) -> None:
    rng = np.random.default_rng(0)
    classifier = OneVsAll(30, 6, rng, bias=bias)
    with torch.no_grad():
        classifier.rows.copy_(torch.from_numpy(rng.standard_normal(tuple(classifier.rows.shape))))
    z = torch.from_numpy(rng.standard_normal((4, 6), dtype=np.float32))
    ids = torch.from_numpy(rng.integers(0, 30, (4, 7)).astype(np.int32))
    ids[1, 3:] = -1
    every = classifier.inputs(z) @ classifier.rows.T
    expected = z @ classifier.weight.T + (classifier.bias if classifier.bias is not None else 0)
    torch.testing.assert_close(every, expected)
    real = ids >= 0
    torch.testing.assert_close(classifier.scores(z, ids)[real], every.gather(1, ids.clamp(min=0).long())[real])


def test_masked_bce_is_the_mean_over_real_entries() -> None:
    scores, targets = torch.tensor([[2.0, -1.0, 700.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    expected = (math.log1p(math.exp(-2)) + math.log1p(math.exp(-1))) / 2
    assert float(masked_bce(scores, targets, torch.tensor([[True, True, False]]))) == pytest.approx(expected)
    assert float(masked_bce(scores, targets, torch.zeros(1, 3, dtype=torch.bool))) == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), documents=st.integers(1, 7), labels=st.integers(1, 40), block=st.integers(1, 60))
def test_loss_over_all_labels_equals_dense_bce(seed: int, documents: int, labels: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    z = torch.from_numpy(rng.standard_normal((documents, 5)) * 3).requires_grad_()
    rows = torch.from_numpy(rng.standard_normal((labels, 5))).requires_grad_()
    targets = (rng.random((documents, labels)) < 0.2) * rng.random((documents, labels))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BLOCK_SCORES, "cpu", block)
        bags = DeviceCsr(csr_array(targets)).rows(np.arange(documents))
        ours = full_loss(z, rows, bags, loss="bce", mean_over="entries", compute=torch.float64)
    # values pass through float32 on the way in
    dense = nn.functional.binary_cross_entropy_with_logits(
        z @ rows.T, torch.from_numpy(targets.astype(np.float32)).double()
    )
    torch.testing.assert_close(ours, dense)
    expected = torch.autograd.grad(dense * 3, (z, rows))
    for got, wanted in zip(torch.autograd.grad(ours * 3, (z, rows)), expected, strict=True):
        torch.testing.assert_close(got, wanted)
