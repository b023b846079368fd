"""A step against all labels: against autograd over dense matrices, and what masking, trust and rare looks at texts
do.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from torch import nn

from longtail.nn.batches import Documents
from longtail.nn.encoders import BagEncoder
from longtail.nn.row_tables import RowTable
from longtail.recipes.direct.objective import AllLabels, TextRows, marked_targets, thinned
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

DOCUMENTS, WORDS, LABELS, WIDTH = 8, 12, 6, 4


def sparse(rows: int, columns: int, seed: int, density: float = 0.4) -> csr_array:
    return csr_array(random_array((rows, columns), density=density, rng=np.random.default_rng(seed), dtype=np.float32))


def objective(
    *,
    masked: csr_array | None = None,
    text_every: int = 1,
    trust: float = 0.5,
    text: bool = True,
    long_steps: bool = False,
) -> AllLabels:
    encoder = BagEncoder(RowTable.random(WORDS, WIDTH, np.random.default_rng(3)), dropout=0.0)
    texts = TextRows(encoder.table, sparse(LABELS, WORDS, 1)) if text else None
    targets = sparse(DOCUMENTS, LABELS, 4)
    targets.data[:] = 1
    truth = marked_targets(targets, masked, "cpu")
    start = torch.randn(LABELS, WIDTH, generator=torch.Generator().manual_seed(5))
    documents = Documents(Batch(sparse=sparse(DOCUMENTS, WORDS, 6, 0.6)))
    return AllLabels(
        encoder,
        texts,
        torch.full((LABELS, 1), trust),
        torch.tensor(-1.0),
        documents,
        truth,
        start=start,
        text_every=text_every,
        compute=torch.float32,
        long_steps=long_steps,
    )


def token_vectors(model: AllLabels) -> torch.Tensor:
    assert isinstance(model.encoder, BagEncoder)
    return model.encoder.table.weight.detach().clone()


def dense_loss(
    model: AllLabels,
    rows: np.ndarray,
    free: torch.Tensor,
    table: torch.Tensor,
    masked: csr_array | None = None,
) -> torch.Tensor:
    """The same loss from dense matrices: mean over documents of the sum over labels."""
    documents = torch.from_numpy(sparse(DOCUMENTS, WORDS, 6, 0.6).toarray())[rows]
    targets = torch.from_numpy((sparse(DOCUMENTS, LABELS, 4).toarray() > 0).astype(np.float32))[rows]
    texts = torch.from_numpy(sparse(LABELS, WORDS, 1).toarray())
    weights = texts @ table + 0.5 * free[:, :WIDTH]
    scores = torch.relu(documents @ table) @ weights.T + free[:, WIDTH]
    losses = nn.functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    if masked is not None:
        losses = losses * torch.from_numpy(1 - masked.toarray())[rows]
    return losses.sum() / len(rows)


def test_loss_is_that_of_dense_matrices_and_masked_pairs_do_not_count() -> None:
    rows = np.array([0, 3, 5])
    masked = csr_array((np.ones(2, np.float32), ([0, 5], [1, 2])), shape=(DOCUMENTS, LABELS))
    masked = csr_array(masked.multiply(sparse(DOCUMENTS, LABELS, 4).toarray() == 0))
    masked.eliminate_zeros()
    assert masked.nnz
    for hidden in (None, masked):
        model = objective(masked=hidden)
        free, table = model.rows.free.rows.clone(), token_vectors(model)
        loss = model.step(rows, np.random.default_rng(0), 0.0)
        torch.testing.assert_close(loss, dense_loss(model, rows, free, table, hidden))


def test_step_goes_downhill_along_the_dense_gradient() -> None:
    """Adam's first step moves each number by the rate against the sign of its gradient."""
    model, rows = objective(), np.arange(DOCUMENTS)
    free = model.rows.free.rows.clone().requires_grad_()
    table = token_vectors(model).requires_grad_()
    torch.autograd.backward(dense_loss(model, rows, free, table))
    before = free.detach().clone()
    model.step(rows, np.random.default_rng(0), 1e-3)
    assert free.grad is not None
    moved, clear = model.rows.free.rows - before, free.grad.abs() > 1e-5
    torch.testing.assert_close(moved[clear], -1e-3 * free.grad.sign()[clear], atol=1e-5, rtol=0)


def test_training_lowers_the_loss_with_rare_looks_at_texts() -> None:
    for every in (1, 4):
        model, rows = objective(text_every=every), np.arange(DOCUMENTS)
        losses = [float(model.step(rows, np.random.default_rng(0), 0.02)) for _ in range(60)]
        assert losses[-1] < 0.5 * losses[0]


def test_how_often_texts_are_looked_at_does_not_change_how_far_gains_go_with_long_steps() -> None:
    """The first step of Adam is as long as the rate. n steps in random directions go as far as one of root n."""

    def squared_per_step(every: int, long_steps: bool) -> float:
        model = objective(text_every=every, long_steps=long_steps)
        assert model.texts is not None
        before = {name: p.detach().clone() for name, p in model.adam.dense.items() if name.startswith("texts.")}
        assert before
        for _ in range(every):
            model.step(np.arange(DOCUMENTS), np.random.default_rng(0), 1e-4)
        moved = torch.cat([(model.adam.dense[name].detach() - was).flatten() for name, was in before.items()])
        return float(moved.square().max()) / every

    for every in (4, 9):
        assert squared_per_step(every, True) == pytest.approx(1e-8, rel=0.02)
        assert squared_per_step(every, False) == pytest.approx(1e-8 / every, rel=0.02)
    assert squared_per_step(1, True) == squared_per_step(1, False) == pytest.approx(1e-8, rel=0.02)


def test_texts_are_looked_at_every_few_steps_only() -> None:
    model, rows, looks = objective(text_every=3), np.arange(DOCUMENTS), []
    assert model.texts is not None
    forward = model.texts.forward
    model.texts.forward = lambda: looks.append(1) or forward()  # type: ignore[method-assign,func-returns-value]
    for _ in range(7):
        model.step(rows, np.random.default_rng(0), 0.01)
    assert len(looks) == 3


def test_without_trust_free_vectors_stay_and_count_nothing() -> None:
    model, rows = objective(trust=0.0), np.arange(DOCUMENTS)
    before = model.rows.free.rows.clone()
    model.step(rows, np.random.default_rng(0), 0.01)
    assert torch.equal(model.rows.free.rows[:, :WIDTH], before[:, :WIDTH])
    assert not torch.equal(model.rows.free.rows[:, WIDTH], before[:, WIDTH])  # biases learn all the same
    assert model.texts is not None
    final = model.final_rows()
    assert final is not None
    torch.testing.assert_close(final[:, :WIDTH], model.texts())


def test_state_holds_all_that_steps_change() -> None:
    """After copying the state into a new objective, both go on alike."""
    rows = np.arange(DOCUMENTS)
    first, second = objective(text_every=3), objective(text_every=3)
    for _ in range(4):
        first.step(rows, np.random.default_rng(0), 0.01)
    for name, value in first.state().items():
        second.state()[name].copy_(value)
    for _ in range(4):
        assert torch.equal(
            first.step(rows, np.random.default_rng(0), 0.01), second.step(rows, np.random.default_rng(0), 0.01)
        )
    mine, wanted = second.final_rows(), first.final_rows()
    assert mine is not None
    assert wanted is not None
    assert torch.equal(mine, wanted)


def test_rows_of_free_vectors_alone() -> None:
    model = objective(text=False, trust=1.0)
    torch.testing.assert_close(model.final_rows(), model.rows.free.rows)
    assert "text" not in model.state()


def test_thinned_drops_features_and_keeps_their_sum_on_average() -> None:
    batch = Documents(Batch(sparse=csr_array(np.ones((1, 10_000), np.float32)))).rows(np.array([0]))
    torch.manual_seed(0)
    weights = thinned(batch, 0.3).need_sparse().weights
    assert sorted(set(weights.tolist())) == pytest.approx([0.0, 1 / 0.7])
    assert float(weights.mean()) == pytest.approx(1, abs=0.03)
    assert thinned(batch, 0.0) is batch
