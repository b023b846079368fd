"""Label-wise attention: the efficient product against mixing per label."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtail.nn.row_tables import RowTable
from longtail.recipes.galaxc.network import LabelAttention
from longtail.recipes.galaxc.settings import AttentionKind

pytestmark = pytest.mark.usefixtures("one_thread")


def head(
    attention: AttentionKind = "label",
    bias: bool = False,
    labels: int = 6,
    views: int = 3,
    width: int = 4,
    seed: int = 0,
) -> LabelAttention:
    return LabelAttention(labels, views, width, np.random.default_rng(seed), attention=attention, bias=bias)


def all_scores(made: LabelAttention, x: Tensor) -> Tensor:
    return made.inputs(x) @ made.rows(torch.arange(made.labels, dtype=torch.int32)).T


@pytest.mark.claim("G4")
@settings(max_examples=40, deadline=None)
@given(
    views=st.integers(2, 5),
    width=st.integers(1, 9),
    labels=st.integers(1, 8),
    seed=st.integers(0, 10**6),
    bias=st.booleans(),
    kind=st.sampled_from(["label", "global"]),
)
def test_the_efficient_product_is_mixing_per_label(
    views: int, width: int, labels: int, seed: int, bias: bool, kind: AttentionKind
) -> None:
    made = head(kind, bias, labels, views, width, seed)
    x = torch.randn(7, views, width, generator=torch.Generator().manual_seed(seed))
    weights, alphas = made.weights.weight.detach(), made.alphas()
    expected = torch.empty(7, labels)
    for document in range(7):
        for label in range(labels):
            mixed = sum(alphas[label, view] * x[document, view] for view in range(views))
            expected[document, label] = weights[label, :width] @ mixed + (weights[label, width] if bias else 0)
    torch.testing.assert_close(all_scores(made, x).detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.claim("G3")
def test_attention_is_a_softmax_and_equal_logits_are_the_mean_of_hops() -> None:
    made, x = head(), torch.randn(5, 3, 4)
    logits = made.logits.weight
    assert isinstance(logits, Tensor)
    by_hand = np.exp(logits.detach().numpy()) / np.exp(logits.detach().numpy()).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(made.alphas().numpy(), by_hand, rtol=1e-6)
    np.testing.assert_allclose(made.alphas().sum(dim=1).numpy(), 1, rtol=1e-6)
    with torch.no_grad():
        logits.copy_(torch.arange(6.0)[:, None].expand(-1, 3))
    plain = head("none")
    with torch.no_grad():
        plain.weights.weight.copy_(made.weights.weight)
    torch.testing.assert_close(all_scores(made, x), all_scores(plain, x), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(plain.alphas().numpy(), 1 / 3)


def test_one_set_of_weights_for_all_labels() -> None:
    made = head("global")
    assert (made.alphas() == made.alphas()[0]).all()
    torch.autograd.backward(all_scores(made, torch.randn(2, 3, 4)).sum())
    gradient = made.logits.weight.grad
    assert isinstance(gradient, Tensor)
    assert gradient.shape == (3,)


def test_only_labels_that_are_asked_for_get_gradients() -> None:
    made = head()
    labels = torch.tensor([1, 4], dtype=torch.int32)
    torch.autograd.backward((made.inputs(torch.randn(3, 3, 4)) @ made.rows(labels).T).sum())
    for table in (made.weights, made.logits):
        assert isinstance(table, RowTable)
        pending = table.take_gradient()
        assert pending is not None
        bags, gradient = pending
        assert bags.ids.tolist() == [1, 4]
        assert gradient.abs().min() > 0


def test_how_it_starts() -> None:
    made = head(labels=500, width=64, bias=True)
    weights = made.weights.weight.detach()
    assert weights.shape == (500, 65)
    assert float(weights.abs().max()) <= 64**-0.5
    assert float(weights.abs().mean()) == pytest.approx(64**-0.5 / 2, rel=0.02)
    logits = made.logits.weight
    assert isinstance(logits, Tensor)
    assert float(logits.detach().std()) == pytest.approx(1, rel=0.1)


def test_one_view_needs_no_attention() -> None:
    made = head("label", views=1)
    assert made.attention == "none"
    assert made.inputs(torch.ones(2, 1, 4)).shape == (2, 4)


def test_classifiers_can_start_as_a_cosine() -> None:
    """One length for all, and mean scores of right and of any labels as asked for."""
    made = head(bias=True, labels=40, width=16)
    generator = torch.Generator().manual_seed(1)
    views = torch.randn(40, 3, 16, generator=generator)
    labels = np.arange(40)
    rows, everyone = made.read(iter([views[:25], views[25:]]), labels)
    torch.testing.assert_close(rows, (made.alphas()[:, :, None] * views).sum(dim=1))
    documents = views + 0.3 * torch.randn(40, 3, 16, generator=generator)
    others = np.roll(labels, 7)
    right, wrong = made.read([documents], labels), made.read([documents], others)
    made.start_from(rows, right, wrong, (3.0, -1.0))
    weights = made.weights.weight.detach()
    assert float(weights[:, :16].norm(dim=1).std()) < 1e-5
    torch.testing.assert_close(
        torch.nn.functional.normalize(weights[:, :16], dim=1), torch.nn.functional.normalize(rows, dim=1)
    )
    scores = all_scores(made, documents).detach()
    assert float(scores[everyone, everyone].mean()) == pytest.approx(3, abs=1e-3)
    assert float(scores[everyone, torch.from_numpy(others)].mean()) == pytest.approx(-1, abs=1e-3)


def test_views_may_start_alike() -> None:
    for kind in ("label", "global"):
        made = LabelAttention(5, 3, 4, np.random.default_rng(0), attention=kind, spread=0.0)
        np.testing.assert_allclose(made.alphas().numpy(), 1 / 3)
