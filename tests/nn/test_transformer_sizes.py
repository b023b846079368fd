"""The sizes of passes on a GPU, tried on the CPU: more texts and tokens than there are change nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.checkpoints import write_checkpoint
from tests.nn.dense_oracles import tensor_batch

from longtail.models.transformer import read_checkpoint
from longtail.nn import transformer as module
from longtail.nn.transformer import Transformer, attention_mask, even_sizes
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_sizes_are_even_on_a_gpu_and_exact_on_a_cpu() -> None:
    rows = np.array([5, 2, 9])
    padded, width = even_sizes(rows, 13, GPU)
    assert padded.tolist() == [5, 2] + [9] * 62
    assert width == 16
    assert even_sizes(padded, 16, GPU)[0].tolist() == padded.tolist(), "even already"
    same, width = even_sizes(rows, 13, CPU)
    assert (same.tolist(), width) == ([5, 2, 9], 13)


def test_even_sizes_change_neither_vectors_nor_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Transformer(read_checkpoint(write_checkpoint(tmp_path / "c", [f"w{n}" for n in range(20)])))
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 20, (37, 13)).astype(np.int32)
    tokens[np.arange(13)[None, :] >= rng.integers(0, 14, 37)[:, None]] = -1
    batch = tensor_batch(Batch(tokens=tokens))
    factors = torch.from_numpy(rng.standard_normal((37, encoder.width)).astype(np.float32))
    found = []
    for multiples in ((1, 1), (16, 8)):
        monkeypatch.setitem(module._MULTIPLES, "cpu", multiples)
        vectors = encoder(batch).score
        found.append([vectors.detach(), *torch.autograd.grad((vectors * factors).sum(), list(encoder.parameters()))])
    for exact, even in zip(*found, strict=True):
        torch.testing.assert_close(even, exact, atol=2e-4, rtol=1e-3)


def test_the_mask_has_the_type_of_the_products() -> None:
    there = torch.tensor([[True, True, False]])
    assert attention_mask(there).tolist() == [[[[0.0, 0.0, float("-inf")]]]]
    assert attention_mask(there).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attention_mask(there).dtype == torch.bfloat16
