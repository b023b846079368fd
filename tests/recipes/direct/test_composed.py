"""Rows of text and free vectors: the kernels of a CPU against plain torch, bit by bit."""

from __future__ import annotations

import pytest
import torch

from longtail.nn.row_tables import AdamFactors
from longtail.recipes.direct.objective import ComposedRows, ComposedRowsOnCpu, composed_rows

pytestmark = pytest.mark.usefixtures("one_thread")

FACTORS = AdamFactors.of(3, 0.01, (0.9, 0.999), 1e-8)


def pair(labels: int, width: int, text: bool) -> tuple[ComposedRows, ComposedRowsOnCpu]:
    g = torch.Generator().manual_seed(labels)
    free, trust, words = (
        torch.randn(labels, width + 1, generator=g),
        torch.rand(labels, 1, generator=g),
        torch.randn(labels, width, generator=g),
    )
    plain, fast = ComposedRows(free.clone(), trust, text=text), ComposedRowsOnCpu(free.clone(), trust, text=text)
    for rows in (plain, fast):
        if rows.text is not None:
            rows.text.copy_(words)
    return plain, fast


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize(("labels", "width"), [(1, 3), (8, 15), (301, 17)])
def test_kernels_make_the_rows_that_torch_makes(labels: int, width: int, text: bool) -> None:
    plain, fast = pair(labels, width, text)
    wanted, found = plain.table(), fast.table()
    assert torch.equal(found.block(0, labels, torch.bfloat16), wanted.block(0, labels, torch.bfloat16))
    ids = torch.tensor([labels - 1, 0])
    assert torch.equal(found.picked(ids, torch.bfloat16), wanted.picked(ids, torch.bfloat16))
    assert found.labels == wanted.labels == labels
    assert torch.equal(fast.rows(), plain.rows())


@pytest.mark.parametrize("text", [True, False])
def test_kernels_learn_as_torch_does(text: bool) -> None:
    """A block in the middle: other rows stay as they are."""
    labels, width, start, count = 301, 17, 128, 128
    plain, fast = pair(labels, width, text)
    gradient = torch.randn(count + 8, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    before = plain.free.rows.clone()
    for rows in (plain, fast):
        for _ in range(2):
            rows.learn(start, count, gradient, 0.25, FACTORS)
    assert torch.equal(fast.free.rows[:start], before[:start])
    assert torch.equal(fast.free.rows[start + count :], before[start + count :])
    assert not torch.equal(fast.free.rows[start : start + count], before[start : start + count])
    for found, wanted in zip(fast.free.state().values(), plain.free.state().values(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)
    if text:
        assert fast.text_gradient is not None
        assert plain.text_gradient is not None
        assert torch.equal(fast.text_gradient, plain.text_gradient)
        assert fast.text_gradient[start : start + count].any()
    else:
        assert fast.text_gradient is None


def test_kernels_are_for_bf16_on_a_cpu() -> None:
    free, trust = torch.zeros(4, 3), torch.ones(4, 1)
    assert isinstance(composed_rows(free, trust, text=True, compute=torch.bfloat16), ComposedRowsOnCpu)
    assert not isinstance(composed_rows(free, trust, text=True, compute=torch.float32), ComposedRowsOnCpu)
