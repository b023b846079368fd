"""The vectors of several sets of texts at once: the same as one by one, in one call where the encoder asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.checkpoints import write_checkpoint

from longtail.models.transformer import read_checkpoint
from longtail.nn.batches import Documents
from longtail.nn.encoders import GivenVectors, UnitEncoder
from longtail.nn.transformer import Transformer
from longtail.training.objectives import TextsOfStep, training_vectors, vectors_together
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")


def sequences(count: int, width: int, rng: np.random.Generator) -> Documents:
    """Texts of 0 to `width` tokens."""
    tokens = rng.integers(0, 20, (count, width)).astype(np.int32)
    tokens[np.arange(width)[None, :] >= rng.integers(0, width + 1, count)[:, None]] = -1
    return Documents(Batch(tokens=tokens))


def calls_of(encoder: Any) -> list[Any]:
    calls: list[Any] = []
    encoder.register_forward_pre_hook(lambda _, inputs: calls.append(inputs[0]))
    return calls


def test_a_transformer_gets_all_texts_in_one_call(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    encoder = UnitEncoder(
        Transformer(read_checkpoint(write_checkpoint(tmp_path / "c", [f"w{n}" for n in range(20)])))
    ).eval()
    wanted = [
        TextsOfStep(sequences(30, 12, rng), rng.permutation(30)[:9]),
        TextsOfStep(sequences(40, 7, rng), np.arange(5, 25)),
        TextsOfStep(sequences(9, 12, rng), np.arange(3), 7),
    ]
    expected = [training_vectors(encoder, each.texts, each.rows) for each in wanted]
    calls = calls_of(encoder)
    found = vectors_together(encoder, wanted)
    assert len(calls) == 1
    for vectors, alone in zip(found, expected, strict=True):
        torch.testing.assert_close(vectors, alone, atol=1e-5, rtol=0)
    # The gradient of the weights, too: nothing is lost between the sets.
    names = dict(encoder.named_parameters())
    together, apart = (
        torch.autograd.grad([(n + 1) * v[:, 0].sum() for n, v in enumerate(sets)], list(names.values()))
        for sets in (found, expected)
    )
    for name, one, other in zip(names, together, apart, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3, msg=name)


def test_other_encoders_get_them_one_by_one_with_streams_of_their_own() -> None:
    rng = np.random.default_rng(0)
    first, second = (Documents(Batch(dense=rng.standard_normal((6, 8)).astype(np.float32))) for _ in range(2))
    dropout: Any = torch.nn.Dropout(0.5)
    encoder = UnitEncoder(GivenVectors(8), dropout).train()
    calls = calls_of(encoder)
    torch.manual_seed(3)
    alone = training_vectors(encoder, first, np.arange(6))
    state = torch.get_rng_state()
    torch.manual_seed(3)
    x, z = vectors_together(encoder, [TextsOfStep(first, np.arange(6)), TextsOfStep(second, np.arange(4), seed=5)])
    assert len(calls) == 3
    assert torch.equal(x, alone)
    assert torch.equal(torch.get_rng_state(), state), "what has a seed leaves the common stream as it was"
    (again,) = vectors_together(encoder, [TextsOfStep(second, np.arange(4), seed=5)])
    assert torch.equal(z, again)
