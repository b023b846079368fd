"""The mix of components: by a naive loop over labels, its weights, and that they can be learnt."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from longtail.recipes.eclare.network import AttentionMix
from longtail.recipes.eclare.settings import MixMode
from longtail.training.objectives import ModelAdam

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS, WIDTH = 7, 5


def parts_of(components: int, seed: int = 0) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.standard_normal((LABELS, WIDTH), dtype=np.float32)) for _ in range(components)]


@pytest.mark.parametrize("components", [2, 3, 4])
@pytest.mark.parametrize("sigmoid", [True, False])
def test_attention_by_a_loop_over_labels(components: int, sigmoid: bool) -> None:
    mix = AttentionMix(components, WIDTH, np.random.default_rng(1), sigmoid=sigmoid).eval()
    parts = parts_of(components)
    transform, attend = mix.transform.frozen_weight().numpy(), mix.attend.frozen_weight().numpy()
    assert np.linalg.norm(transform, 2) == pytest.approx(1, rel=1e-5)
    assert np.linalg.norm(attend, 2) == pytest.approx(1, rel=1e-5)
    rows, weights = (tensor.detach().numpy() for tensor in mix(parts))
    for label in range(LABELS):
        turned = [transform @ np.maximum(part[label].numpy(), 0) for part in parts]
        if sigmoid:
            turned = [1 / (1 + np.exp(-t)) for t in turned]
        exponents = np.exp(attend @ np.concatenate(turned))
        alpha = exponents / exponents.sum()
        np.testing.assert_allclose(weights[label], alpha, rtol=1e-4)
        np.testing.assert_allclose(
            rows[label],
            sum(a * part[label].numpy() for a, part in zip(alpha, parts, strict=True)),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.claim("E17")
@pytest.mark.parametrize("components", [1, 2, 3, 4])
@pytest.mark.parametrize("training", [True, False])
def test_weights_of_attention_sum_to_one(components: int, training: bool) -> None:
    mix = AttentionMix(components, WIDTH, np.random.default_rng(1)).train(training)
    rows, weights = mix(parts_of(components))
    assert rows.shape == (LABELS, WIDTH)
    assert weights.shape == (LABELS, components)
    assert (weights > 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(LABELS))


def test_attention_differs_from_label_to_label_and_shared_weights_do_not() -> None:
    parts = parts_of(3)
    assert AttentionMix(3, WIDTH, np.random.default_rng(1)).eval()(parts)[1].std(0).max() > 1e-3
    shared = AttentionMix(3, WIDTH, np.random.default_rng(1), mode="shared")(parts)[1]
    assert torch.equal(shared, shared[:1].expand(LABELS, -1))


@pytest.mark.parametrize(("mode", "factor"), [("sum", 1.0), ("mean", 1 / 3), ("shared", 0.5)])
def test_equal_weights(mode: MixMode, factor: float) -> None:
    parts = parts_of(3)
    rows, weights = AttentionMix(3, WIDTH, np.random.default_rng(1), mode=mode)(parts)
    torch.testing.assert_close(rows, factor * (parts[0] + parts[1] + parts[2]))
    torch.testing.assert_close(weights, torch.full((LABELS, 3), factor))


def test_only_attention_and_shared_weights_have_parameters() -> None:
    counts = {
        mode: sum(p.numel() for p in AttentionMix(3, WIDTH, np.random.default_rng(1), mode=mode).parameters())
        for mode in ("attention", "shared", "sum")
    }
    assert counts == {"attention": WIDTH**2 + 3 * 3 * WIDTH, "shared": 3, "sum": 0}


@pytest.mark.parametrize("mode", ["attention", "shared"])
def test_the_useful_component_gains_weight(mode: MixMode) -> None:
    torch.manual_seed(0)
    mix, parts = AttentionMix(3, WIDTH, np.random.default_rng(1), mode=mode), parts_of(3)
    adam = ModelAdam(mix)
    before = mix.eval()(parts)[1].mean(0)
    mix.train()
    for _ in range(60):
        torch.autograd.backward(((mix(parts)[0] - parts[1]) ** 2).sum())
        adam.step(0.05)
    gain = mix.eval()(parts)[1].mean(0) - before
    assert gain[1] > 0.2
    assert gain[0] < 0
    assert gain[2] < 0


def test_a_wrong_number_of_components_is_refused() -> None:
    with pytest.raises(ValueError, match="2 components for a mix of 3"):
        AttentionMix(3, WIDTH, np.random.default_rng(1))(parts_of(2))
