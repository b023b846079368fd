"""A pretrained transformer as the encoder of Astec's stage I: training, its own rate, prediction without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.checkpoints import write_checkpoint

import longtail
from longtail import pipeline
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError
from longtail.models.encoders import FrozenBag, FrozenRectified
from longtail.models.transformer import read_checkpoint
from longtail.nn.batches import Documents
from longtail.nn.encoders import RectifiedEncoder, encode_all
from longtail.nn.transformer import Transformer
from longtail.persistence import load_part
from longtail.predictor import Predictor
from longtail.recipes import make_recipe
from longtail.training.run import Run
from longtail.training.surrogate import Surrogate, new_encoder
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = [f"w{n}" for n in range(24)]
SMALL = ("surrogate.epochs=1", "classify.epochs=1", "features.length=8", "reranker.epochs=1", "reranker.enabled=true")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", WORDS, common=0.1)


@pytest.fixture(scope="module")
def data() -> Dataset:
    rng = np.random.default_rng(0)
    labels = [[f"l{n % 8}"] for n in range(64)]
    texts = [" ".join([f"w{n % 8}", *(f"w{word}" for word in rng.integers(8, 24, 3))]) for n in range(64)]
    return Dataset.from_texts(texts, labels, test_texts=texts[:4], test_labels=labels[:4])


@pytest.fixture(scope="module")
def folder(checkpoint: Path, data: Dataset, tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    out = tmp_path_factory.mktemp("runs") / "astec"
    recipe = make_recipe("astec", assignments=[*SMALL, f"features.checkpoint={checkpoint}"])
    longtail.train(data, out, recipe, device="cpu")
    return out


def test_the_encoder_is_the_transformer_under_a_relu(folder: Path, checkpoint: Path) -> None:
    ranker: Any = Predictor.open(folder).bundle.ranker
    base = ranker.base
    assert isinstance(base.encoder, FrozenRectified)
    inner: Any = base.encoder.encoder
    trained, start = inner.weights, read_checkpoint(checkpoint).frozen.weights
    assert trained.keys() == start.keys()
    moved = max(float(np.abs(np.asarray(trained[name], np.float32) - start[name]).max()) for name in start)
    # Adam moves a number by about its rate in every step: 64 documents are 8 steps of the transformer's own rate.
    assert 0 < moved < 8 * 0.0002 * 1.5
    assert base.classifier.rows.shape[1] == base.encoder.width == 16
    assert isinstance(ranker.encoder, FrozenBag), "the re-ranker reads words"


def test_it_predicts_what_it_was_asked_in_training(folder: Path, data: Dataset) -> None:
    """Vectors of stage I are those of prediction; v is not negative."""
    model = Predictor.open(folder)
    ranker: Any = model.bundle.ranker
    surrogate: Surrogate = load_part(folder / "stages" / "1_surrogate")
    batch = model.bundle.featurizer.batch(data.train.documents)
    found = ranker.base.encoder.encode(batch)
    assert (found >= 0).all()
    assert (found > 0).any()
    np.testing.assert_allclose(found, surrogate.vectors, rtol=1e-4, atol=1e-5)
    assert len(model.predict(["w1 w9"], k=3)[0]) == 3


def test_the_forward_pass_is_the_oracle(checkpoint: Path) -> None:
    encoder = RectifiedEncoder(Transformer(read_checkpoint(checkpoint)), dropout=0.5)
    tokens = np.array([[2, 5, 6, 3], [2, 9, 3, -1], [-1, -1, -1, -1]], np.int32)
    batch = Batch(tokens=tokens)
    plain = encode_all(Transformer(read_checkpoint(checkpoint)), Documents(batch, "cpu"), "search")
    np.testing.assert_allclose(encoder.frozen().encode(batch), np.maximum(plain, 0), rtol=1e-4, atol=1e-5)
    assert (plain < 0).any()
    frozen = encoder.frozen()
    assert frozen.rectified(True) is frozen
    assert frozen.rectified(False) is frozen.encoder
    encoder.train()
    torch.manual_seed(0)
    seen = encoder(Documents(batch, "cpu").rows(np.arange(3)))
    assert not torch.equal(seen.search, seen.score), "dropout is for what is scored"


def test_a_transformer_needs_a_checkpoint(data: Dataset, tmp_path: Path) -> None:
    made = make_recipe("astec", assignments=["surrogate.encoder=transformer"])
    with pytest.raises(ConfigError, match="no checkpoint"):
        longtail.train(data, tmp_path / "run", made, device="cpu")


def test_words_beside_a_checkpoint_that_is_not_asked_for(checkpoint: Path, data: Dataset, tmp_path: Path) -> None:
    recipe = make_recipe("astec", assignments=[f"features.checkpoint={checkpoint}", "surrogate.encoder=bag"])
    with Run.open(tmp_path / "run", {}, seed=0, device="cpu") as run:
        ready = pipeline.prepared(recipe, data, run)
        made = new_encoder(ready, recipe.config.surrogate, run.rng("encoder"), str(checkpoint))
    assert not isinstance(made, RectifiedEncoder)
