"""The restricted step: kernel against torch, torch against dense one-vs-all, and only touched rows change."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nn.dense_oracles import masked_bce
from torch import nn

from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import OneVsAll, RowAdam
from longtail.recipes.eclare.network import CandidateLoss
from longtail.types import Candidates

ALL_THREADS = numba.get_num_threads()


def random_candidates(documents: int, per_document: int, labels: int, rng: np.random.Generator) -> Candidates:
    """Different labels per document, a random number of them real."""
    ids = np.full((documents, per_document), -1, dtype=np.int32)
    for row in ids:
        real = int(rng.integers(0, min(per_document, labels) + 1))
        row[:real] = rng.permutation(labels)[:real]
    targets = ((rng.random(ids.shape) < 0.3) & (ids >= 0)).astype(np.float32)
    return Candidates(ids, targets, ids >= 0)


def trainer(
    labels: int, width: int, *, bias: bool = False, reference: bool = False, dtype: torch.dtype = torch.float32
) -> RestrictedTrainer:
    classifier = OneVsAll(labels, width, np.random.default_rng(9), bias=bias).to(dtype)
    return RestrictedTrainer(classifier, adam=RowAdam(classifier.rows, reference=reference))


def gradient_of_rows(trained: RestrictedTrainer) -> torch.Tensor:
    """After the first step the first moment is (1 - beta1) times the gradient."""
    return trained.adam.first / (1 - trained.adam.betas[0])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    documents=st.integers(1, 9),
    per_document=st.integers(1, 12),
    labels=st.integers(1, 40),
    width=st.integers(1, 40),
    bias=st.booleans(),
)
def test_kernel_equals_torch(seed: int, documents: int, per_document: int, labels: int, width: int, bias: bool) -> None:
    rng = np.random.default_rng(seed)
    fast, oracle = trainer(labels, width, bias=bias), trainer(labels, width, bias=bias, reference=True)
    assert fast.adam.by_kernel
    assert not oracle.adam.by_kernel
    for _ in range(3):
        candidates = random_candidates(documents, per_document, labels, rng)
        z = torch.from_numpy(rng.standard_normal((documents, width), dtype=np.float32)) * 2
        (loss, gradient), (loss_2, gradient_2) = fast.step(z, candidates, 0.01), oracle.step(z, candidates, 0.01)
        torch.testing.assert_close(loss, loss_2, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient, gradient_2, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(fast.adam.first, oracle.adam.first, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(fast.adam.second, oracle.adam.second, rtol=1e-5, atol=1e-5)
        # Adam divides by the size of a gradient, so last bits of a tiny one show; start again from equal rows.
        torch.testing.assert_close(fast.adam.table, oracle.adam.table, rtol=1e-4, atol=1e-4)
        fast.adam.table.copy_(oracle.adam.table)


@pytest.mark.claim("F9")
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_all_labels_as_candidates_equal_dense_one_vs_all(reference: bool, bias: bool) -> None:
    rng = np.random.default_rng(4)
    documents, labels, width = 12, 35, 8
    trained = trainer(labels, width, bias=bias, reference=reference, dtype=torch.float64)
    classifier = trained.classifier
    z = torch.from_numpy(rng.standard_normal((documents, width))).requires_grad_()
    truth = rng.random((documents, labels)) < 0.1
    order = np.stack([rng.permutation(labels) for _ in range(documents)])
    targets = np.take_along_axis(truth, order, axis=1).astype(np.float32)

    dense = nn.functional.binary_cross_entropy_with_logits(
        classifier.inputs(z) @ classifier.rows.T, torch.from_numpy(truth).double()
    )
    grad_z, grad_rows = torch.autograd.grad(dense, (z, classifier.rows))
    loss, gradient = trained.step(
        z, Candidates(order.astype(np.int32), targets, np.ones(order.shape, dtype=bool)), 0.01
    )
    torch.testing.assert_close(loss, dense.detach(), rtol=0, atol=1e-8)
    torch.testing.assert_close(gradient, grad_z, rtol=0, atol=1e-8)
    torch.testing.assert_close(gradient_of_rows(trained), grad_rows, rtol=0, atol=1e-8)


@pytest.mark.claim("F10")
@pytest.mark.parametrize("reference", [False, True])
def test_rows_that_no_document_names_have_no_gradient_and_the_others_step_like_dense_adam(reference: bool) -> None:
    rng = np.random.default_rng(4)
    trained = trainer(50, 8, reference=reference, dtype=torch.float64)
    before = trained.adam.table.clone()
    dense = nn.Parameter(before.clone())
    z = torch.from_numpy(rng.standard_normal((6, 8)))
    candidates = random_candidates(6, 5, 50, rng)

    ids = torch.from_numpy(candidates.ids)
    scores = torch.einsum("bd,bcd->bc", z, dense[ids.clamp(min=0).long()])
    torch.autograd.backward(masked_bce(scores, torch.from_numpy(candidates.targets), ids >= 0))
    torch.optim.Adam([dense], lr=0.01).step()

    trained.step(z, candidates, 0.01)
    named = torch.zeros(50, dtype=torch.bool)
    named[torch.unique(ids[ids >= 0]).long()] = True
    assert 0 < int(named.sum()) < 50
    assert not gradient_of_rows(trained)[~named].any()
    assert torch.equal(trained.adam.table[~named], before[~named])
    torch.testing.assert_close(trained.adam.table[named], dense.detach()[named], rtol=0, atol=1e-7)


@pytest.mark.parametrize("reference", [False, True])
def test_no_real_candidate(reference: bool) -> None:
    trained = trainer(5, 3, reference=reference)
    before = trained.adam.table.clone()
    ids = np.full((2, 4), -1, dtype=np.int32)
    loss, gradient = trained.step(torch.ones(2, 3), Candidates(ids, np.zeros((2, 4), dtype=np.float32), ids >= 0), 0.1)
    assert float(loss) == 0
    assert not gradient.any()
    assert torch.equal(trained.adam.table, before)


@pytest.mark.parametrize("reference", [False, True])
def test_the_mask_decides(reference: bool) -> None:
    """A masked entry counts for nothing, whatever its id says."""
    padded, masked = trainer(5, 3, reference=reference), trainer(5, 3, reference=reference)
    targets, mask = np.array([[1, 0]], dtype=np.float32), np.array([[True, False]])
    loss = padded.step(torch.ones(1, 3), Candidates(np.array([[2, -1]], dtype=np.int32), targets, mask), 0.1)[0]
    assert torch.equal(
        masked.step(torch.ones(1, 3), Candidates(np.array([[2, 4]], dtype=np.int32), targets, mask), 0.1)[0], loss
    )
    assert torch.equal(masked.adam.table, padded.adam.table)


@pytest.mark.parametrize("reference", [False, True])
def test_extreme_scores_stay_finite(reference: bool) -> None:
    trained = trainer(2, 1, reference=reference)
    trained.adam.table.copy_(torch.tensor([[500.0], [-500.0]]))
    ids = np.array([[0, 1]], dtype=np.int32)
    loss, gradient = trained.step(
        torch.ones(1, 1), Candidates(ids, np.array([[0, 1]], dtype=np.float32), ids >= 0), 0.1
    )
    assert float(loss) == pytest.approx(500)
    assert float(gradient) == pytest.approx((500 + 500) / 2)


def test_not_a_number_shows_in_the_loss() -> None:
    trained = trainer(3, 2)
    ids = np.array([[0, 1, 2]], dtype=np.int32)
    loss, _ = trained.step(
        torch.tensor([[float("nan"), 1.0]]), Candidates(ids, np.zeros((1, 3), dtype=np.float32), ids >= 0), 0.1
    )
    assert torch.isnan(loss)


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    steps = [
        (torch.from_numpy(rng.standard_normal((16, 20), dtype=np.float32)), random_candidates(16, 30, 200, rng))
        for _ in range(3)
    ]
    results = []
    for threads in (1, ALL_THREADS):
        numba.set_num_threads(threads)
        trained = trainer(200, 20)
        gradients = [trained.step(z, candidates, 0.01)[1] for z, candidates in steps]
        results.append([trained.adam.table, trained.adam.first, trained.adam.second, *gradients])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


# ---- composed rows ----


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    documents=st.integers(1, 9),
    per_document=st.integers(1, 12),
    labels=st.integers(1, 40),
    width=st.integers(1, 20),
    reference=st.booleans(),
)
def test_loss_of_composed_rows_and_its_gradients(
    seed: int, documents: int, per_document: int, labels: int, width: int, reference: bool
) -> None:
    """Against autograd over rows gathered per document, scaled by a factor so that the backward pass must scale too."""
    rng = np.random.default_rng(seed)
    candidates = random_candidates(documents, per_document, labels, rng)
    loss = CandidateLoss(labels, reference=reference)
    named = loss.named(candidates)
    assert named.labels.tolist() == sorted(set(candidates.ids[candidates.mask].tolist()))
    table = torch.from_numpy(rng.standard_normal((labels, width), dtype=np.float32))
    z = torch.from_numpy(rng.standard_normal((documents, width), dtype=np.float32)).requires_grad_()
    rows = table[torch.from_numpy(named.labels).long()].requires_grad_()
    if not len(named.labels):
        return
    value = loss(z, rows, named)
    gradients = torch.autograd.grad(3 * value, (z, rows))

    ids = torch.from_numpy(candidates.ids)
    places = torch.from_numpy(named.places())
    assert torch.equal(places >= 0, ids >= 0)
    assert torch.equal(torch.from_numpy(named.labels)[places[places >= 0].long()], ids[ids >= 0])
    scores = torch.einsum("bd,bcd->bc", z, rows[places.clamp(min=0).long()])
    expected = masked_bce(scores, torch.from_numpy(candidates.targets), ids >= 0)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    for got, wanted in zip(gradients, torch.autograd.grad(3 * expected, (z, rows)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reference", [False, True])
def test_masked_candidates_name_no_label(reference: bool) -> None:
    loss = CandidateLoss(5, reference=reference)
    targets, mask = np.array([[1, 0]], dtype=np.float32), np.array([[True, False]])
    named = loss.named(Candidates(np.array([[2, 4]], dtype=np.int32), targets, mask))
    assert named.labels.tolist() == [2]
    value = loss(torch.ones(1, 3), torch.zeros(1, 3), named)
    assert float(value) == pytest.approx(np.log(2))


def test_loss_of_composed_rows_does_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    z, candidates = (
        torch.from_numpy(rng.standard_normal((16, 20), dtype=np.float32)),
        random_candidates(16, 30, 200, rng),
    )
    table = torch.from_numpy(rng.standard_normal((200, 20), dtype=np.float32))
    results = []
    for threads in (1, ALL_THREADS):
        numba.set_num_threads(threads)
        loss = CandidateLoss(200)
        named = loss.named(candidates)
        results.append(loss.loss_and_gradients(z, table[torch.from_numpy(named.labels).long()], named))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
