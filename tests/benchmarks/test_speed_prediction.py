"""Cases of `benchmarks.speed` about data and prediction, beside their oracles."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.speed.__main__ import main
from benchmarks.speed.cases import direct_parts, explaining, features, profile, transformer
from benchmarks.speed.cases.prediction import BATCH, K, measured, plain_path, synthetic, texts_for
from tests.benchmarks.conftest import Measure
from tests.checkpoints import write_checkpoint
from tests.conftest import ANIMALS

from longtail.errors import MissingExtra
from longtail.models.transformer import read_checkpoint
from longtail.predictor import Predictor
from longtail.search.packed import Packer
from longtail.types import F32, Batch


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> list[Path]:
    return synthetic(300, 64, tmp_path_factory.mktemp("synthetic"))


@pytest.mark.parametrize("which", [0, 1, 2], ids=["float32", "float16", "int8"])
@pytest.mark.parametrize("documents", [1, 40])
def test_fast_and_plain_paths_agree(bundles: list[Path], which: int, documents: int) -> None:
    """The plain path is the oracle of the fast one: the same labels, whole or packed, alone or in a batch."""
    model = Predictor.open(bundles[which])
    plain = plain_path(model)
    assert plain is not None
    batch = model.bundle.featurizer.batch_of_texts(texts_for(model, "", documents))
    ours, theirs = model.bundle.ranker.rank(batch, K), plain(batch)
    np.testing.assert_allclose(ours.scores, theirs.scores, atol=1e-5)
    # Scores that differ by rounding only may change places.
    distinct = np.abs(np.diff(theirs.scores, axis=1, append=-1)) > 1e-5
    distinct[:, 1:] &= distinct[:, :-1]
    assert distinct.mean() > 0.9
    np.testing.assert_array_equal(ours.ids[distinct], theirs.ids[distinct])


def test_what_is_measured(bundles: list[Path]) -> None:
    found = measured(str(bundles[2]), "", documents=5, batches=1)
    assert found["labels"] == 300
    assert found["bytes"] < sum(path.stat().st_size for path in bundles[2].rglob("*") if path.is_file())
    for name in ("single", f"batch_of_{BATCH}"):
        assert 0 < found[name]["least_ms"] <= found[name]["p50_ms"] <= found[name]["p99_ms"]
        assert found[name]["times_faster_than_plain"] == pytest.approx(
            found[name]["plain_p50_ms"] / found[name]["p50_ms"]
        )
    assert found["floor"]["bytes_of_rows"] == 300 * 64
    assert found["stages_single_ms"].keys() == {"features", "bag", "residual", "search", "names"}


def test_models_are_asked_with_one_thread_and_with_all(bundles: list[Path], record_of: Measure) -> None:
    record = record_of("prediction", "--model", bundles[2], "--documents", 3, "--batches", 1)
    assert record["command"].split()[4:6] == ["--model", "RUN/synthetic-300-int8"]
    assert record["numbers"]["synthetic-300-int8"]["threads_1"]["labels"] == 300
    with pytest.raises(SystemExit, match="give --model RUN"):
        main(["prediction"])


SAMPLES = """main (a.py:1);asked (a.py:2);search (b.py:7) 6
main (a.py:1);import (c.py:1) 50
main (a.py:1);asked (a.py:2);x (d.py:1);search (b.py:7) 3
main (a.py:1);asked (a.py:2) 1
main (a.py:1);masked (e.py:2) 7
"""


def test_samples_count_by_the_line_at_work_and_only_while_asked() -> None:
    assert profile.shares(SAMPLES) == {"search (b.py:7)": 90.0, "asked (a.py:2)": 10.0}


def test_the_profile_of_a_watched_process(
    record_of: Measure, tiny_run: Path, planted_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of py-spy: runs what it is given to watch, and reports the samples above."""
    spy = tmp_path / "py-spy"
    spy.write_text(f'''#!/bin/sh\nshift 6\nprintf "%s" "{SAMPLES}" > "$1"\nshift 2\nexec "$@"\n''')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(profile, "BATCH", 8)
    numbers = record_of("profile", planted_folder, "--model", tiny_run, "--seconds", 0.05)["numbers"]
    assert numbers.keys() == {"alone", "in batches of 8"}
    for found in numbers.values():
        assert found["microseconds"] > 0
        assert found["percent"] == profile.shares(SAMPLES)


def test_encoders_are_compared_with_the_first(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_checkpoint(tmp_path / "c", [f"w{n}" for n in range(9)]))
    tokens = np.random.default_rng(0).integers(0, 12, (6, 5)).astype(np.int32)
    frozen = checkpoint.frozen
    encoders = {
        "torch": transformer.by_torch(checkpoint),
        "numpy": transformer.by_numpy(frozen),
        "int8": transformer.by_numpy(frozen.packed(Packer("int8"))),
    }
    seen: list[Any] = []

    def score(documents: F32, labels: F32) -> dict[str, float]:
        seen.append((documents.shape, labels.shape))
        return {"P@1": 1.0}

    found = transformer.compared(encoders, Batch(tokens=tokens), Batch(tokens=tokens[:3]), score)
    assert seen == [((6, 16), (3, 16))] * 3
    assert found["torch"]["largest_difference"] == 0
    assert found["numpy"]["largest_difference"] < 1e-5
    assert 1e-4 < found["int8"]["largest_difference"] < 0.5
    assert found["int8"]["smallest_cosine"] < 1


def test_transformers_by_torch_numpy_and_onnxruntime(record_of: Measure, planted_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    checkpoint = write_checkpoint(tmp_path / "c", ANIMALS, layers=1)
    record = record_of("transformer", planted_folder, "--checkpoint", checkpoint, "--documents", 10)
    assert record["numbers"].keys() == {"torch", "numpy", "onnxruntime", "onnxruntime int8"}
    assert record["numbers"]["onnxruntime"]["largest_difference"] < 1e-4
    assert record["config"]["checkpoint"] == "c"


def test_without_onnxruntime_it_does_not_run(monkeypatch: pytest.MonkeyPatch, planted_folder: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="onnxruntime"):
        main(["transformer", str(planted_folder)])


def test_tiny_beside_scikit_learn_and_starting(record_of: Measure, planted_folder: Path) -> None:
    numbers = record_of("ground-floor", planted_folder, "--rounds", 1)["numbers"]
    assert numbers["documents"] == 30
    assert numbers["tiny_over_sklearn_product"] > 0
    assert min(numbers["import_s"], numbers["open_bundle_s"]) > 0


def test_features_beside_plain_parsing(
    record_of: Measure, planted_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tokenizers")
    monkeypatch.setattr(features, "MOST_TIMES", 0)
    record = record_of("features", planted_folder, "--repeats", 1, status=1)
    assert "more than 0 times as long" in capsys.readouterr().err
    assert record["numbers"].keys() >= {"ratio", "ours", "plain", *features.VARIANTS} - {"words_pairs"}
    assert record["numbers"]["ours"]["titles"] == 120
    assert record["data_hash"] == record["numbers"]["ours"]["digest"]


def test_metrics_beside_a_naive_loop(record_of: Measure) -> None:
    sizes = ["--documents", 200, "--labels", 300, "--predictions", 10, "--checked", 20, "--repeats", 1]
    numbers = record_of("metrics", *sizes, "--resamples", 5)["numbers"]
    assert numbers["largest_difference_to_naive_loop"] < 1e-9
    assert numbers["naive_loop_documents_checked"] == 20
    assert min(value for name, value in numbers.items() if name.endswith("_s")) > 0


def test_an_ensemble_beside_its_members(record_of: Measure) -> None:
    numbers = record_of("ensemble", "--labels", 40, "--documents", 3, "--words", 50, "--repeats", 1)["numbers"]
    assert set(numbers["times_one_member"]) == {"as deep", "asked for k labels"}
    assert min(numbers["milliseconds"].values()) > 0


def test_explaining_is_measured_beside_predicting(bundles: list[Path], record_of: Measure) -> None:
    record = record_of("explaining", "--model", bundles[2], "--documents", 3, "--batches", 1)
    found = record["numbers"]["synthetic-300-int8"]["threads_1"]
    assert found["method"] == "exact"
    assert found["extra_predictions_per_text"] == 0
    assert found["words_per_text"] > 1
    for how in ("single", "batch_of_512"):
        times = found[how]
        assert times["times_a_prediction"] == pytest.approx(times["explain_p50_ms"] / times["predict_p50_ms"])
    with pytest.raises(SystemExit, match="give --model RUN"):
        main(["explaining"])


def test_an_explanation_that_costs_too_much_is_a_problem() -> None:
    fast, slow = {"times_a_prediction": 4.9}, {"times_a_prediction": 5.2}
    found = {"labels": 5000, "method": "exact", "single": fast, "batch_of_512": slow}
    assert explaining.too_slow({"m": {"threads_1": found}}) == (
        "more than 5 predictions: m, threads_1, batch_of_512: 5.2 predictions"
    )
    for other in ({"method": "occlusion"}, {"labels": 4999}):
        assert explaining.too_slow({"m": {"threads_1": {**found, **other}}}) == ""
    assert explaining.too_slow({"m": {"threads_1": {**found, "batch_of_512": fast}}}) == ""


def test_parts_of_direct_are_asked_in_turns(
    record_of: Measure, planted_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "wordllama" else find(name, *rest)
    )
    monkeypatch.setattr(direct_parts, "TURNS", {1: 3, 8: 2})
    checkpoint = write_checkpoint(tmp_path / "c", list(ANIMALS))
    settings = ("--set", "encoder.width=16")
    record = record_of("direct-parts", planted_folder, "--checkpoint", checkpoint, "--index", "exact", *settings)
    numbers = record["numbers"]
    assert list(numbers["left out"]) == ["static"]
    of_view = {f"{view}, {part}" for view in ("no view", "transformer") for part in ("memory", "no memory")}
    asked = of_view | {f"{view}, memory, three as one" for view in ("no view", "transformer")}
    assert set(numbers["bytes"]) == set(numbers["threads_1"]["8 at once"]) == asked
    for found in numbers["threads_1"].values():
        assert found[direct_parts.BASE]["ratio"] == 1
        assert all(one["milliseconds"] > 0 for one in found.values())
    sizes = {name: one["bytes"] for name, one in numbers["bytes"].items()}
    assert sizes["no view, memory"] > sizes[direct_parts.BASE]
    assert sizes["transformer, memory"] > sizes["no view, memory"]
