"""`train --effort`: what is tried, what is taken, and that nothing is tried twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import longtail
from longtail import choosing
from longtail.choosing import Settings, Trials, choose, some_documents, value_of
from longtail.config import from_text
from longtail.data.dataset import Dataset
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import ConfigError
from longtail.persistence import read_json
from longtail.pipeline import check_processes
from longtail.recipes.direct.recipe import Direct
from longtail.recipes.direct.settings import DirectConfig
from longtail.training.progress import SilentDisplay
from longtail.training.run import Run
from longtail.types import TopK

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthesise(SyntheticConfig(documents=900, test_documents=50, labels=150, topics=10), 0).dataset


class Display(SilentDisplay):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


class Chooses(Direct):
    """Three choices, of which trials say what `told` makes of them."""

    CHOICES: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "train.smoothing": (0.0, 0.3),
        "memory.weight": (0.0, 0.3),
        "labels.map": ("on",),
    }

    def choices(self, data: Dataset) -> Mapping[str, tuple[Any, ...]]:
        return self.CHOICES


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Models that find the right label in first place for a share of the documents, by their settings: without
    smoothing more of them, without memory fewer, with the matrix as many.
    """
    asked: list[Settings] = []

    def ranked(self: Trials, changed: Settings, name: str) -> tuple[TopK, float]:
        asked.append(dict(changed))
        truth = self.yardsticks[name].truth
        right = 0.5 + 0.3 * ("train.smoothing" in changed) - 0.2 * ("memory.weight" in changed)
        first = [truth.indices[truth.indptr[row]] for row in range(truth.shape[0])]
        ids = np.array([[own if row < right * len(first) else -1] for row, own in enumerate(first)], np.int32)
        return TopK(ids, np.where(ids >= 0, np.float32(1), -np.inf).astype(np.float32)), 1.0

    monkeypatch.setattr(Trials, "ranked", ranked)
    return asked


def chosen(data: Dataset, folder: Path, effort: Any = "thorough", display: Display | None = None) -> Any:
    recipe = Chooses(from_text(DirectConfig(), ("train.together=2", "encoder.signed=on")))
    with Run.open(folder, {}, seed=0, device="cpu", display=display or Display()) as run:
        return choose(recipe, data, run, effort=effort, device="cpu", train=longtail.train).config


def test_what_gains_is_taken_and_what_costs_is_not(data: Dataset, tmp_path: Path, asked: list[Settings]) -> None:
    display = Display()
    config = chosen(data, tmp_path / "run", display=display)
    assert config.train.smoothing == 0, "it gained"
    assert config.memory.weight == DirectConfig().memory.weight, "it cost"
    assert config.labels.map == DirectConfig().labels.map, "it changed nothing"
    assert config.train.together == 2, "trials are cheaper than the training, which stays what it was"
    assert asked[0] == {}
    assert {"train.smoothing": 0.0, "memory.weight": 0.0} in asked, "each is tried beside what was chosen before it"
    assert {"train.smoothing": 0.3} not in asked, "that is what it was"
    assert any("train.smoothing=0.0: P@1 +" in line and line.endswith("taken") for line in display.said)
    assert any("memory.weight=0.0" in line and line.endswith("left as it is") for line in display.said)
    kept = read_json(tmp_path / "run" / "choices" / "choices.json")
    assert next((one["setting"], one["taken"]) for one in kept) == ("train.smoothing", True)


def test_the_same_call_again_trains_nothing(data: Dataset, tmp_path: Path, asked: list[Settings]) -> None:
    first = chosen(data, tmp_path / "run")
    count = len(asked)
    assert chosen(data, tmp_path / "run") == first
    assert len(asked) == count


def test_an_effort_is_a_number_of_trainings(data: Dataset, tmp_path: Path, asked: list[Settings]) -> None:
    display = Display()
    chosen(data, tmp_path / "normal", "normal", display)
    assert len(asked) == choosing.TRIALS["normal"][0] == 3
    assert any("normal allows" in line for line in display.said)
    assert chosen(data, tmp_path / "quick", "quick").train.smoothing == DirectConfig().train.smoothing
    assert len(asked) == 3
    assert not (tmp_path / "quick" / "choices").exists()


def test_few_documents_decide_nothing(data: Dataset, tmp_path: Path, asked: list[Settings]) -> None:
    display = Display()
    chosen(some_documents(data, 0.3, 0), tmp_path / "run", display=display)
    assert not asked
    assert any("too few documents" in line for line in display.said)


def test_an_unknown_effort_is_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="effort 'much'"):
        chosen(data, tmp_path / "run", "much")


def test_several_processes_try_nothing() -> None:
    with pytest.raises(ConfigError, match="2 processes"):
        check_processes(Direct(DirectConfig()), 2, "normal")


def test_direct_tries_what_the_data_can_answer(data: Dataset, planted: Dataset) -> None:
    config = DirectConfig()
    found = Direct(config).choices(planted)
    assert "train.self_pairs" not in found, "the data has no masked pairs"
    assert "train.self_pairs" in Direct(config).choices(data)
    always = {"train.smoothing", "memory.weight", "memory.rarity", "labels.map", "encoder.signed"}
    assert always | {"features.char_sizes"} <= set(found)
    for path in found:
        value_of(config, path)
    # A trial has its share of the steps of the training, whatever batches and epochs its few documents would have.
    asked = Direct(from_text(config, ("train.epochs=12",)))
    assert asked.tried_with(data, 1.0) == {"train.together": 1, "train.epochs": 12}
    assert asked.tried_with(data, 1 / 6)["train.epochs"] == round(12 / 6 * 65 / 19)
    assert "features.view" in Direct(from_text(config, ("features.view_model=somewhere",))).choices(data)


def test_a_training_with_effort_writes_down_what_it_chose(data: Dataset, tmp_path: Path) -> None:
    """By real trainings, in the run's own folder; the same command again opens what is finished."""
    small = {"encoder": {"width": 8}, "train": {"epochs": 1}, "features": {"subwords": "none", "pairs": False}}
    options: dict[str, Any] = {"settings": small, "device": "cpu", "effort": "normal", "display": SilentDisplay()}
    model = longtail.train(data, tmp_path / "run", "direct", **options)
    seconds = read_json(tmp_path / "run" / "choices" / "seconds.json")
    assert len(seconds) == 3
    assert not list((tmp_path / "run" / "choices" / "trials").iterdir())
    tried = read_json(tmp_path / "run" / "choices" / "choices.json")
    written = (tmp_path / "run" / "config.toml").read_text()
    for choice in tried:
        name = choice["setting"].split(".")[-1]
        assert (f"{name} = {choice['value']}" in written) == choice["taken"]
    assert read_json(tmp_path / "run" / "run.json")["effort"] == "normal"
    question = data.need_test().documents.fields["title"][:3]
    assert longtail.train(data, tmp_path / "run", "direct", **options).predict(question) == model.predict(question)
