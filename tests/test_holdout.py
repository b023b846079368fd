"""Training with documents held out: who is on which side, what is measured, and what the bundle keeps of it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import longtail
from longtail.compare import compare
from longtail.data.dataset import Dataset
from longtail.errors import BundleError, ConfigError, DataError, RunError
from longtail.evaluation import evaluate, held_out_data, render_held_out
from longtail.model_report.document import write_report
from longtail.packing import pack
from longtail.predictor import Predictor
from longtail.training.progress import PlainDisplay


@pytest.fixture(scope="module")
def grouped(planted: Dataset) -> Dataset:
    return replace(planted, train=replace(planted.train, groups=[f"shop {i // 5}" for i in range(len(planted.train))]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, grouped: Dataset) -> Path:
    folder = tmp_path_factory.mktemp("holdout") / "run"
    longtail.train(grouped, folder, "tiny", holdout=0.25, group="shop", seed=3)
    return folder


def test_metrics_are_in_the_bundle(run: Path, grouped: Dataset) -> None:
    found = Predictor.open(run).metrics
    assert found is not None
    assert (found["share"], found["seed"], found["group"], found["documents"]) == (0.25, 3, "shop", 30)
    assert found["data_hash"] == grouped.digest
    assert found["propensity"] == {"A": 0.55, "B": 1.5, "family": "default"}
    assert found["scores"]["P@1"] > 80
    assert found["baselines"].keys() == {"most frequent labels", "TF-IDF nearest neighbours"}
    assert found["baselines"]["most frequent labels"]["P@1"] < 50
    assert sum(found["by_frequency"]["P@5"]) == pytest.approx(found["scores"]["P@5"], abs=0.01)
    manifest = json.loads((run / "bundle" / "manifest.json").read_text())
    assert manifest["metrics"] == found
    assert any(name.startswith("holdout/") for name in manifest["files"])


def test_the_model_has_not_seen_what_is_held_out(run: Path, grouped: Dataset) -> None:
    model = Predictor.open(run)
    held = model.bundle.held_out()
    assert held is not None
    assert len(held) == 30
    ranker: object = model.bundle.ranker
    assert ranker.targets.shape[0] == 90  # type: ignore[attr-defined]
    again = held_out_data(model, grouped)
    assert sorted(again.need_test().documents.uids) == sorted(held)
    assert set(again.need_test().groups or ()).isdisjoint(again.train.groups or ())
    scores = evaluate(model, again)
    for name, value in model.metrics["scores"].items():
        assert scores[name] == pytest.approx(value, abs=1e-4), name


def test_the_threshold_that_was_chosen_on_them_is_used_on_other_documents(run: Path, grouped: Dataset) -> None:
    model = Predictor.open(run)
    assert "MicroF1" not in model.metrics["scores"], "it would flatter: the threshold was chosen there"
    found = evaluate(model, grouped)
    assert found["threshold"] == model.metrics["threshold"] > 0
    assert found["MicroF1"] > 70
    assert evaluate(model, grouped, threshold=1e9)["MicroF1"] == 0


def test_two_models_are_compared_on_what_both_held_out(
    run: Path, grouped: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, fewer = replace(grouped, test=None), {"classify.neighbours": 1}
    longtail.train(data, tmp_path / "same", "tiny", holdout=0.25, group="shop", seed=3, settings=fewer)
    result = compare(run, tmp_path / "same", data, resamples=5)
    assert result["n_test"] == 30
    assert result["metrics"]["P@1"]["a"] == evaluate(run, data)["P@1"]
    longtail.train(data, tmp_path / "other", "tiny", holdout=0.2, group="shop", seed=3)
    longtail.train(data, tmp_path / "all", "tiny")
    monkeypatch.setattr("longtail.model_report.document.check_installed", lambda: None)
    for other in ("other", "all"):  # has learnt some of them by heart
        with pytest.raises(BundleError, match="did not hold the same documents out"):
            compare(run, tmp_path / other, data)
        with pytest.raises(BundleError, match="did not hold the same documents out"):
            write_report(run, data, tmp_path / "r.html", against=tmp_path / other)
    assert not (tmp_path / "r.html").exists()


def test_what_is_held_out_is_part_of_what_a_run_is(run: Path, grouped: Dataset) -> None:
    for changed in ({}, {"holdout": 0.2, "group": "shop"}, {"holdout": 0.25}):
        with pytest.raises(RunError, match=r"other settings .*holdout"):
            longtail.train(grouped, run, "tiny", seed=3, **changed)
    other = replace(grouped, train=replace(grouped.train, groups=[str(i % 24) for i in range(120)]))
    with pytest.raises(RunError, match=r"holdout\.documents"):
        longtail.train(other, run, "tiny", seed=3, holdout=0.25, group="shop")
    assert longtail.train(grouped, run, "tiny", seed=3, holdout=0.25, group="shop").metrics


def test_a_packed_model_keeps_what_was_held_out(grouped: Dataset, tmp_path: Path) -> None:
    small = {"encoder": {"width": 16}, "train": {"epochs": 1}}
    model = longtail.train(grouped, tmp_path / "run", "direct", settings=small, holdout=0.1, group="shop")
    pack(tmp_path / "run", tmp_path / "packed")
    packed = Predictor.open(tmp_path / "packed")
    assert packed.metrics == model.metrics
    assert list(packed.bundle.held_out() or ()) == list(model.bundle.held_out() or ())
    assert held_out_data(packed, grouped).need_test().documents.uids


def test_training_says_that_it_does_without_them(
    planted: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = longtail.train(planted, tmp_path / "run", "tiny", holdout=0.1, display=PlainDisplay(sys.stdout))
    assert "12 of 120 documents held out; the model is trained without them" in capsys.readouterr().out
    shown = render_held_out(model.metrics, "tiny")
    assert shown.startswith("12 documents held out of training (share 0.1, seed 0); in percent; PSP with A=0.55 B=1.5")
    assert "most frequent labels" in shown
    assert "\n10-99 " in shown
    assert shown.endswith("The model was trained without these documents.")


def test_equal_trainings_give_equal_bytes(planted: Dataset, tmp_path: Path) -> None:
    for name in "ab":
        longtail.train(planted, tmp_path / name, "tiny", holdout=0.1)
    a, b = ((tmp_path / name / "bundle" / "manifest.json").read_bytes() for name in "ab")
    assert a == b


def test_a_model_of_all_documents_has_none(tiny_run: Path, planted: Dataset) -> None:
    model = Predictor.open(tiny_run)
    assert model.metrics == {}
    assert model.bundle.held_out() is None
    with pytest.raises(BundleError, match="trained on all documents"):
        held_out_data(model, planted)


def test_other_data_is_refused(run: Path, planted: Dataset) -> None:
    with pytest.raises(DataError, match="not the data that the model was trained on: 30 of the 30"):
        held_out_data(Predictor.open(run), replace(planted, digest="0"))


def test_a_forged_bundle_that_does_not_say_its_data_is_refused(run: Path, grouped: Dataset) -> None:
    bundle = Predictor.open(run).bundle
    forged = {name: value for name, value in bundle.manifest.items() if name != "data"}
    with pytest.raises(DataError, match="not the data that the model was trained on"):
        held_out_data(Predictor(replace(bundle, manifest=forged)), replace(grouped, test=None))


def test_a_group_without_a_share_is_refused(planted: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="group 'shop' without holdout"):
        longtail.train(planted, tmp_path / "run", "tiny", group="shop")
    with pytest.raises(ConfigError, match="'shop' is none of the text fields"):
        longtail.train(planted, tmp_path / "run", "tiny", holdout=0.1, group="shop")


def test_labels_of_one_document_each_cannot_be_measured(tmp_path: Path) -> None:
    data = Dataset.from_texts([f"text {i}" for i in range(10)], [[f"label {i}"] for i in range(10)])
    with pytest.raises(ConfigError, match="none of the 2 documents that were held out has a label"):
        longtail.train(data, tmp_path / "run", "tiny", holdout=0.2)


def test_a_column_of_a_table_is_the_group(tmp_path: Path) -> None:
    rows = "".join(f"animal {'cat' if i % 2 else 'dog'} {i},{'cat' if i % 2 else 'dog'},{i // 4}\n" for i in range(24))
    (tmp_path / "t.csv").write_text(f"text,labels,shop\n{rows}")
    model = longtail.train(tmp_path / "t.csv", tmp_path / "run", "tiny", holdout=0.25, group="shop")
    shops = [int(uid.removeprefix("train-")) // 4 for uid in model.bundle.held_out() or ()]
    assert len(shops) == 4
    assert len(set(shops)) == 1
