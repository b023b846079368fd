"""The path of data: which stages run, what a stage returns is what goes on, and what is refused at the start."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail import pipeline
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, RunError
from longtail.persistence import StringTable
from longtail.recipes import make_recipe
from longtail.recipes.tiny import Tiny, TinyConfig
from longtail.search.nearest import NearestDocuments
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.progress import SilentDisplay
from longtail.training.run import Run


class Heard(SilentDisplay):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_stages_that_a_recipe_lacks_are_passed_over_in_silence(planted: Dataset, tmp_path: Path) -> None:
    display = Heard()
    pipeline.train(planted, tmp_path / "run", "tiny", display=display)
    assert [text for text in display.said if text.startswith("stage")] == ["stage 0_prepare", "stage 4_classify"]
    assert sorted(path.name for path in (tmp_path / "run" / "stages").iterdir()) == ["0_prepare", "4_classify"]


@pytest.fixture(scope="module")
def with_label_texts(planted: Dataset) -> TrainingSet:
    return prepare(planted, make_recipe("eclare").config.features)


@pytest.mark.parametrize(
    ("command", "stages"),
    [
        ("tiny", ""),
        ("direct", ""),
        ("astec", "surrogate shortlist"),
        ("astec classify.learner=surrogate", "surrogate shortlist"),
        ("astec classify.learner=parabel", "surrogate"),
        ("astec reranker.enabled=true", "surrogate shortlist"),
        ("eclare", "surrogate shortlist transfer"),
        ("eclare composition.text=false transfer.start=random", "surrogate shortlist transfer"),
        ("eclare composition.text=false composition.graph=none", "surrogate shortlist transfer"),
        ("eclare composition.text=false composition.graph=none transfer.start=random", "surrogate shortlist"),
        ("galaxc", "surrogate shortlist"),
        ("gnnxml", "surrogate shortlist"),
        ("ance", "surrogate"),
        ("dexml", "surrogate"),
        ("ngame", "surrogate shortlist"),
        ("siamese", "surrogate shortlist"),
        ("ramen base=direct", ""),
        ("ramen base=ance", "surrogate"),
        ("ramen base=ngame", "surrogate shortlist"),
        ("ramen base=eclare", "surrogate shortlist transfer"),
    ],
)
def test_which_stages_recipes_have(command: str, stages: str, with_label_texts: TrainingSet) -> None:
    name, *settings = command.split()
    assert make_recipe(name, assignments=settings).defined_stages(with_label_texts) == set(stages.split())


def test_without_label_texts_eclare_has_nothing_to_transfer(with_label_texts: TrainingSet) -> None:
    without = replace(with_label_texts, label_texts=None)
    assert make_recipe("eclare").defined_stages(without) == {"surrogate", "shortlist"}


def test_dense_retrieval_announces_no_stage_of_its_own_for_shortlists(planted: Dataset, tmp_path: Path) -> None:
    display = Heard()
    settings = {"encoder": {"width": 4}, "train": {"epochs": 1}}
    pipeline.train(planted, tmp_path / "run", "ance", settings=settings, display=display, device="cpu")
    said = [text for text in display.said if text.startswith("stage")]
    assert said == ["stage 0_prepare", "stage 1_surrogate", "stage 4_classify"]
    assert not (tmp_path / "run" / "stages" / "2_shortlist").exists()


class TwoSteps(Tiny):
    """A stage before the last one, whose result must reach it."""

    NAME = "two-steps"

    def transfer(self, data: TrainingSet, surrogate: Any, shortlister: Any, run: Run) -> StringTable:
        assert surrogate is None
        assert shortlister is None
        return StringTable.of(["handed on"])

    def classify(self, data: TrainingSet, surrogate: Any, shortlister: Any, model: Any, run: Run) -> NearestDocuments:
        assert list(model) == ["handed on"]
        return super().classify(data, surrogate, shortlister, model, run)


def test_the_bundle_holds_what_the_last_stage_returned(planted: Dataset, tmp_path: Path) -> None:
    model = pipeline.train(planted, tmp_path / "run", TwoSteps(TinyConfig()))
    stage, ranker = tmp_path / "run" / "stages" / "4_classify", tmp_path / "run" / "bundle" / "ranker"
    files = sorted(path.relative_to(stage) for path in stage.rglob("*") if path.is_file())
    assert files
    for name in files:
        assert (ranker / name).samefile(stage / name), "linked, not written twice"
    assert isinstance(model.bundle.ranker, NearestDocuments)
    documents = planted.need_test().documents
    again = pipeline.train(planted, tmp_path / "again", "tiny")
    np.testing.assert_array_equal(model.rank(documents, 5).ids, again.rank(documents, 5).ids)


class NoRanker(Tiny):
    NAME = "no-ranker"

    def classify(self, data: TrainingSet, surrogate: Any, shortlister: Any, model: Any, run: Run) -> Any:
        return StringTable.of(["a part, but no ranker"])


def test_a_last_stage_that_gives_no_ranker_is_refused(planted: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'no-ranker' gave a StringTable") as caught:
        pipeline.train(planted, tmp_path / "run", NoRanker(TinyConfig()))
    assert "longtail.types.Ranker" in caught.value.hint
    assert not (tmp_path / "run" / "bundle").exists()


def test_only_the_last_result_has_a_folder(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run", {}) as run:
        first = run.stage("one", lambda: StringTable.of(["a"]))
        second = run.stage("two", lambda: StringTable.of(["b"]))
        assert run.folder_of(second) == tmp_path / "run" / "stages" / "two"
        with pytest.raises(AssertionError):
            run.folder_of(first)


def test_what_cannot_be_is_refused_before_anything_is_written(planted: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="device 'tpu'"):
        pipeline.train(planted, tmp_path / "run", "tiny", device="tpu")
    with pytest.raises(ConfigError, match="already made"):
        pipeline.train(planted, tmp_path / "run", Tiny(TinyConfig()), settings={"classify": {"neighbours": 3}})
    assert not (tmp_path / "run").exists()


def test_a_bundle_without_its_manifest_is_said_before_the_work(planted: Dataset, tmp_path: Path) -> None:
    pipeline.train(planted, tmp_path / "r", "tiny")
    shutil.rmtree(tmp_path / "r" / "stages")
    (tmp_path / "r" / "bundle" / "manifest.json").unlink()
    with pytest.raises(RunError, match=r"manifest\.json: the file is missing"):
        pipeline.train(planted, tmp_path / "r", "tiny")
    assert not (tmp_path / "r" / "stages").exists()


def test_languages_without_spaces() -> None:
    """As docs/data-formats.md says: Japanese as it is, Thai by character n-grams."""
    names = ["bees", "roses", "railways"]
    labels = [[name] for name in names for _ in range(2)]
    texts = ["庭で蜜蜂を飼う", "蜜蜂と巣箱", "薔薇の剪定", "野の薔薇", "鉄道の歴史", "蒸気鉄道"]
    japanese = pipeline.train(texts, recipe="tiny", labels=labels)
    assert [found[0].label for found in japanese.predict(["蜜蜂の本", "薔薇園", "森の鉄道"], k=1)] == names
    texts = ["การเลี้ยงผึ้งในสวน", "น้ำผึ้งและรังผึ้ง", "การตัดแต่งกุหลาบ", "กุหลาบป่า", "ประวัติรถไฟ", "รถไฟไอน้ำ"]
    asked = ["หนังสือผึ้ง", "สวนกุหลาบ", "สถานีรถไฟ"]
    assert pipeline.train(texts, recipe="tiny", labels=labels).predict(asked, k=1) == [[], [], []]
    thai = pipeline.train(texts, recipe="tiny", labels=labels, settings={"features": {"subwords": "chars"}})
    assert [found[0].label for found in thai.predict(asked, k=1)] == names
    assert make_recipe("direct").config.features.subwords == "chars"
