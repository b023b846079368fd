"""Rows made of words: their values and gradients against plain dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array

from longtail.nn.row_tables import RowTable
from longtail.recipes.direct.objective import TextRows

pytestmark = pytest.mark.usefixtures("one_thread")


def case() -> tuple[TextRows, torch.Tensor]:
    """6 labels over 9 tokens, of which two occur in no text; the dense Z beside it."""
    rng = np.random.default_rng(0)
    texts = csr_array(random_array((6, 9), density=0.4, rng=rng, dtype=np.float32))
    texts = csr_array(texts.multiply(np.array([1, 1, 0, 1, 1, 1, 1, 0, 1], dtype=np.float32)))
    texts.eliminate_zeros()
    return TextRows(RowTable.random(9, 4, rng), texts), torch.from_numpy(texts.toarray())


def test_rows_are_texts() -> None:
    rows, texts = case()
    torch.testing.assert_close(rows(), texts @ rows.table.weight.detach())
    assert not rows().requires_grad


def test_gradients_reach_tokens_and_the_gain() -> None:
    rows, texts = case()
    wanted = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    rows()
    found = torch.zeros(9, 4)
    found[rows.tokens] = rows.gradient(wanted)
    torch.testing.assert_close(found, texts.T @ wanted)
    assert rows.gain.grad is not None
    torch.testing.assert_close(rows.gain.grad[0], (texts @ rows.table.weight.detach() * wanted).sum())


def test_only_tokens_of_texts_are_named() -> None:
    rows, texts = case()
    assert rows.tokens.tolist() == torch.nonzero(texts.sum(0))[:, 0].tolist()
    assert len(rows.tokens) < 9


def test_a_map_turns_texts_and_learns() -> None:
    """Against torch's own gradients."""
    rng = np.random.default_rng(0)
    sparse = csr_array(random_array((6, 9), density=0.4, rng=rng, dtype=np.float32))
    rows, texts = TextRows(RowTable.random(9, 4, rng), sparse, mapped=True), torch.from_numpy(sparse.toarray())
    assert rows.map is not None
    torch.testing.assert_close(rows(), texts @ rows.table.weight.detach())
    with torch.no_grad():
        rows.map.add_(torch.randn(4, 4, generator=torch.Generator().manual_seed(2)), alpha=0.3)
        rows.gain.fill_(1.5)
    wanted = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    table, turn, gain = (
        tensor.detach().clone().requires_grad_() for tensor in (rows.table.weight, rows.map, rows.gain)
    )
    expected = gain[0] * texts @ table @ turn
    torch.autograd.backward(expected, wanted)
    torch.testing.assert_close(rows(), expected.detach())
    found = torch.zeros(9, 4)
    found[rows.tokens] = rows.gradient(wanted)
    for ours, theirs in ((found, table.grad), (rows.map.grad, turn.grad), (rows.gain.grad, gain.grad)):
        assert ours is not None
        assert theirs is not None
        torch.testing.assert_close(ours, theirs)


def test_products_with_the_map_in_bf16_are_close() -> None:
    rng = np.random.default_rng(0)
    sparse = csr_array(random_array((20, 30), density=0.4, rng=rng, dtype=np.float32))
    table = RowTable.random(30, 16, rng)
    exact, rounded = (TextRows(table, sparse, mapped=True, compute=kind) for kind in (torch.float32, torch.bfloat16))
    assert exact.map is not None
    assert rounded.map is not None
    wanted = torch.randn(20, 16, generator=torch.Generator().manual_seed(1))
    for ours, theirs in (
        (rounded(), exact()),
        (rounded.gradient(wanted), exact.gradient(wanted)),
        (rounded.map.grad, exact.map.grad),
    ):
        assert ours is not None
        assert theirs is not None
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02 * float(theirs.abs().max()))
        assert not torch.equal(ours, theirs)
