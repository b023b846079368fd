"""The transformer on a GPU: the vectors of its frozen twin, and steps that go down in bf16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.checkpoints import write_checkpoint
from tests.conftest import ANIMALS

import longtail
from longtail.data.dataset import Dataset
from longtail.evaluation import evaluate
from longtail.models.transformer import FrozenTransformer, Pretrained, read_checkpoint
from longtail.nn.batches import Documents
from longtail.nn.encoders import encode_all
from longtail.nn.transformer import Transformer
from longtail.recipes import make_recipe
from longtail.training.objectives import training_vectors
from longtail.training.prepare import prepare
from longtail.training.progress import SilentDisplay
from longtail.training.run import Run
from longtail.types import Batch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [*ANIMALS, "the", "noise", *(f"##{n}" for n in range(50))]
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "c", words, width=64, heads=4)


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Pretrained:
    return read_checkpoint(folder)


def texts(count: int) -> Batch:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 60, (count, 32)).astype(np.int32)
    tokens[np.arange(32)[None, :] >= rng.integers(0, 33, count)[:, None]] = -1
    return Batch(tokens=tokens)


def test_vectors_are_those_of_the_frozen_twin(checkpoint: Pretrained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrozenTransformer, "_session", None)
    batch, encoder = texts(700), Transformer(checkpoint).cuda()
    expected = checkpoint.frozen.encode(batch)
    np.testing.assert_allclose(encode_all(encoder, Documents(batch, "cuda"), "search"), expected, atol=1e-3)
    # In bf16, as in training: near, and without tokens still nothing.
    rounded = training_vectors(encoder.eval(), Documents(batch, "cuda"), np.arange(700)).detach().cpu().numpy()
    np.testing.assert_allclose(rounded, expected, atol=0.15)
    assert not rounded[batch.is_empty()].any()


def test_attention_needs_no_plan_for_a_new_number_of_texts(checkpoint: Pretrained) -> None:
    encoder = Transformer(checkpoint).cuda()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.autograd.backward(training_vectors(encoder, Documents(texts(300), "cuda"), np.arange(300)).sum())
    names = {event.key for event in profile.key_averages()}
    assert any("scaled_dot_product" in name for name in names)
    assert not any("cudnn_attention" in name for name in names)


def test_steps_do_not_wait_for_the_gpu(folder: Path, planted_with_graphs: Dataset, tmp_path: Path) -> None:
    recipe: Any = make_recipe("ramen", assignments=[f"features.checkpoint={folder}", "features.length=10"])
    ready = prepare(planted_with_graphs, recipe.config.features)
    run = Run(tmp_path, seed=0, device="cuda", display=SilentDisplay())
    objective = recipe.base.objective(ready, run)
    objective.begins(0, 1)
    rng = np.random.default_rng(0)
    objective.step(np.arange(objective.size), rng, 1e-4)
    torch.cuda.set_sync_debug_mode("error")
    try:
        objective.step(np.arange(objective.size), rng, 1e-4)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("recipe", ["ance", "ramen"])
def test_training_learns(recipe: str, folder: Path, planted_with_graphs: Dataset, tmp_path: Path) -> None:
    settings = [f"features.checkpoint={folder}", "features.length=10", "encoder.rate=0.003", "train.epochs=12"]
    model = longtail.train(
        planted_with_graphs, tmp_path / "run", make_recipe(recipe, assignments=settings), device="cuda"
    )
    assert evaluate(model, planted_with_graphs)["P@1"] > 60
