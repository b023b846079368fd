"""Dropout by bytes: the same law as torch's, the same for any number of threads."""

from __future__ import annotations

import pytest
import torch

from longtail.nn.blocks import ByteDropout, random_bytes


def dropped(p: float, x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    result: torch.Tensor = ByteDropout(p).train()(x)
    return result


@pytest.mark.parametrize(("p", "share"), [(0.2, 51 / 256), (0.5, 0.5), (0.99, 253 / 256)])
def test_the_share_is_dropped_and_the_rest_scaled_so_that_the_mean_stays(p: float, share: float) -> None:
    y = dropped(p, torch.ones(1000, 1003))
    assert sorted(set(y.flatten().tolist())) == pytest.approx([0.0, 1 / (1 - share)])
    assert float((y == 0).float().mean()) == pytest.approx(share, abs=2e-3)
    assert float(y.mean()) == pytest.approx(1, abs=0.02)


def test_every_byte_of_a_draw_is_used_and_all_values_occur_alike() -> None:
    torch.manual_seed(0)
    drawn = random_bytes(8 * 100_000).view(-1, 8)
    assert random_bytes(13).shape == (13,)
    for place in range(8):
        counts = torch.bincount(drawn[:, place].int(), minlength=256)
        assert len(counts) == 256
        assert counts.min() > 250
        assert counts.max() < 550


def test_neighbouring_entries_are_dropped_independently() -> None:
    y = (dropped(0.5, torch.ones(2000, 512)) == 0).float()
    both = float((y[:, 1:] * y[:, :-1]).mean())
    assert both == pytest.approx(0.25, abs=2e-3)


def test_the_same_seed_gives_the_same_for_any_number_of_threads() -> None:
    x = torch.randn(300, 70)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = dropped(0.3, x, seed=5)
        torch.set_num_threads(2)
        two = dropped(0.3, x, seed=5)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, two)
    assert not torch.equal(one, dropped(0.3, x, seed=6))


def test_gradients_pass_where_entries_were_kept() -> None:
    x = torch.randn(40, 30, requires_grad=True)
    y = dropped(0.4, x)
    torch.autograd.backward(y.sum())
    assert x.grad is not None
    assert torch.equal(x.grad != 0, y != 0)
    assert torch.allclose(x.grad * x.detach(), y.detach())


def test_out_of_training_and_without_a_share_nothing_changes() -> None:
    x = torch.randn(5, 7)
    assert torch.equal(ByteDropout(0.5).eval()(x), x)
    assert torch.equal(ByteDropout(0.0).train()(x), x)


def test_a_type_stays_what_it_was() -> None:
    assert dropped(0.5, torch.ones(64, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16
