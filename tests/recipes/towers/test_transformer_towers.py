"""Dual encoders over a pretrained transformer: one setting, every base, and RAMEN."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.checkpoints import write_checkpoint
from tests.conftest import ANIMALS
from tests.test_cli import fails

import longtail
from longtail.cli import main
from longtail.data.dataset import Dataset
from longtail.errors import DataError
from longtail.evaluation import evaluate
from longtail.features.pieces import TokenizerPieces, read_tokenizer
from longtail.models.encoders import FrozenUnit
from longtail.models.transformer import FrozenTransformer, read_checkpoint
from longtail.recipes import make_recipe
from longtail.training.prepare import prepare

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = [
    "features.length=10",
    "encoder.rate=0.01",
    "train.epochs=8",
    "train.refresh=2",
    "classify.epochs=3",
    "classify.count=4",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [*ANIMALS, "the", "noise", *(f"##{n}" for n in range(50))]
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "c", words, layers=1, dropout=0.1, common=0.05)


def settings(folder: Path, *more: str) -> list[str]:
    return [f"features.checkpoint={folder}", *QUICK, *more]


@pytest.mark.parametrize("base", ["ance", "ngame", "dexml", "siamese"])
def test_every_base_and_ramen_over_it_take_a_transformer(
    base: str, folder: Path, planted_with_graphs: Dataset, tmp_path: Path
) -> None:
    # The logistic loss looks at cosines themselves, not at their differences: it needs more steps.
    plain = make_recipe(base, assignments=settings(folder, *(["train.epochs=30"] if base == "siamese" else [])))
    predictor = longtail.train(planted_with_graphs, tmp_path / "plain", plain, device="cpu")
    untrained = make_recipe(base, assignments=settings(folder, "train.epochs=0", "classify.epochs=0"))
    before = evaluate(
        longtail.train(planted_with_graphs, tmp_path / "untrained", untrained, device="cpu"), planted_with_graphs
    )["P@1"]
    after = evaluate(predictor, planted_with_graphs)["P@1"]
    assert after > max(80, before + 40), "it learns"
    assert isinstance(predictor.bundle.featurizer, TokenizerPieces)
    ranker: Any = predictor.bundle.ranker
    encoder = ranker.encoder
    assert isinstance(encoder, FrozenUnit)
    assert isinstance(encoder.encoder, FrozenTransformer)
    with_graphs = make_recipe(
        "ramen",
        assignments=settings(folder, f"base={base}", "bandit.block=5", "regularise.warm_up=1", "train.epochs=2"),
    )
    other = longtail.train(planted_with_graphs, tmp_path / "ramen", with_graphs, device="cpu")
    assert {p.relative_to(tmp_path / "plain") for p in (tmp_path / "plain" / "bundle").rglob("*")} == {
        p.relative_to(tmp_path / "ramen") for p in (tmp_path / "ramen" / "bundle").rglob("*")
    }
    assert other.predict(["a cat", "", "zzz"])[1] == [], "of an empty text nothing can be said"


@pytest.mark.claim("R2")
def test_without_weight_graphs_change_nothing(folder: Path, planted_with_graphs: Dataset, tmp_path: Path) -> None:
    """No anchor goes through the encoder, and so dropout is the base's: bit for bit the base's model."""
    short = ("train.epochs=2", "train.refresh=1")
    longtail.train(
        planted_with_graphs,
        tmp_path / "plain",
        make_recipe("ance", assignments=settings(folder, *short)),
        device="cpu",
    )
    silent = settings(folder, *short, "base=ance", "bandit.enabled=false", "bandit.fixed=0", "regularise.warm_up=1")
    longtail.train(planted_with_graphs, tmp_path / "ramen", make_recipe("ramen", assignments=silent), device="cpu")
    first, second = (
        (tmp_path / run / "bundle" / "ranker" / "index" / "arrays.safetensors").read_bytes()
        for run in ("plain", "ramen")
    )
    assert first == second


def test_memory_counts_the_transformer(folder: Path, planted: Dataset) -> None:
    made, plain = (make_recipe("ance", assignments=each) for each in (settings(folder), QUICK))
    ready = prepare(planted, made.config.features)
    assert made.memory(ready) - plain.memory(ready) == 12 * (folder / "model.safetensors").stat().st_size


def test_data_that_cannot_be_read_is_refused(folder: Path, planted: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no config"):
        longtail.train(
            planted,
            tmp_path / "run",
            make_recipe("ance", assignments=["features.checkpoint=nowhere"]),
            device="cpu",
        )


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_it_can_be_packed(dtype: Any, folder: Path, planted: Dataset, tmp_path: Path) -> None:
    longtail.train(
        planted,
        tmp_path / "run",
        make_recipe("dexml", assignments=settings(folder, "encoder.rate=0.01")),
        device="cpu",
    )
    report = longtail.pack(tmp_path / "run", tmp_path / "packed", dtype, data=planted)
    before, after = report.sizes["ranker/encoder"]
    assert after < (0.7 if dtype == "float16" else 0.5) * before
    first, second = report.accuracy["P@1"]
    assert abs(first - second) < 10


def test_it_can_be_exported(
    folder: Path, planted: Dataset, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor = longtail.train(
        planted,
        tmp_path / "run",
        make_recipe("dexml", assignments=settings(folder, "train.epochs=1")),
        device="cpu",
    )
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "tokenizer.json").read_text() == read_tokenizer(folder)
    assert "exists already" in fails(capsys, "export", str(tmp_path / "run"), str(tmp_path / "out"))[0]
    assert "no transformer" in fails(capsys, "export", str(tiny_run), str(tmp_path / "other"))[0]
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "encoder.onnx"), providers=["CPUExecutionProvider"])
    batch = predictor.bundle.featurizer.batch_of_texts(["a cat", "the dog noise1"])
    assert batch.tokens is not None
    given = {"tokens": np.maximum(batch.tokens, 0).astype(np.int64), "there": (batch.tokens >= 0).astype(np.float32)}
    ranker: Any = predictor.bundle.ranker
    encoder = ranker.encoder
    np.testing.assert_allclose(session.run(["vectors"], given)[0], encoder.encode(batch), atol=1e-5)


def test_half_of_the_bytes_give_the_same_checkpoint(folder: Path, tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "scripts" / "half_checkpoint.py"
    subprocess.run([sys.executable, str(script), str(folder), str(tmp_path / "half")], check=True, capture_output=True)
    whole, half = (read_checkpoint(place).frozen.weights for place in (folder, tmp_path / "half"))
    np.testing.assert_allclose(half["words"], whole["words"], atol=2e-3)
    assert (tmp_path / "half" / "model.safetensors").stat().st_size < 0.7 * (
        folder / "model.safetensors"
    ).stat().st_size
    assert read_tokenizer(tmp_path / "half") == read_tokenizer(folder)
    again = subprocess.run(
        [sys.executable, str(script), "nowhere", str(tmp_path / "other")], check=False, capture_output=True, text=True
    )
    assert (again.returncode, again.stderr.split(":")[0]) == (1, "error")


def test_prediction_needs_no_torch_and_no_checkpoint(folder: Path, planted: Dataset, tmp_path: Path) -> None:
    predictor = longtail.train(
        planted, tmp_path / "run", make_recipe("ance", assignments=settings(folder, "train.epochs=1")), device="cpu"
    )
    found = predictor.predict(["a cat"], k=2)[0]
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from longtail.predictor import Predictor\n"
        f"print([(p.label, p.score) for p in Predictor.open({str(tmp_path / 'run')!r}).predict(['a cat'], k=2)[0]])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    labels = [p.label for p in found]
    assert all(label in done.stdout for label in labels)
    np.testing.assert_allclose(
        [score for _, score in ast.literal_eval(done.stdout)], [p.score for p in found], atol=1e-5
    )
