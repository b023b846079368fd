"""The search for settings: it finds what was planted, keeps to its budget, and goes on where it was killed."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail import tuning
from longtail.choosing import nested
from longtail.cli import main
from longtail.config import read_toml, to_tables
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, MissingExtra, RunError
from longtail.pipeline import train
from longtail.recipes import RECIPES, make_recipe, recipe_class
from longtail.recipes.tiny import Tiny
from longtail.training.progress import PlainDisplay
from longtail.tuning import Tuned, choices_of, seconds_of, tune

# Two settings, six trials in all: none is left to chance.
SPACE = {"features.pairs": (True, False), "classify.neighbours": (1, 5, 20)}
WITHOUT_PAIRS = {"features": {"pairs": False}, "classify": {"neighbours": 20}}


@pytest.fixture(scope="module")
def ordered() -> Dataset:
    """The label is which of two words comes first: words alone cannot tell, pairs can."""
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(400):
        first, second = rng.permutation(4)[:2]
        noise = " ".join(f"noise{rng.integers(200)}" for _ in range(2))
        texts.append(f"word{first} word{second} {noise}")
        labels.append([f"{first} before {second}"])
    return Dataset.from_texts(texts, labels, name="ordered")


def search(data: Dataset, folder: Path, **options: Any) -> Tuned:
    given: dict[str, Any] = {
        "settings": WITHOUT_PAIRS,
        "metric": "P@1",
        "space": SPACE,
        "budget_s": 300.0,
        "share": 0.2,
        "seed": 1,
    }
    return tune(data, folder, "tiny", **given | options)


@pytest.fixture(scope="module")
def whole(ordered: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tuned, Path]:
    folder = tmp_path_factory.mktemp("tune") / "study"
    return search(ordered, folder), folder


def test_what_was_planted_is_found(whole: tuple[Tuned, Path]) -> None:
    found, _ = whole
    assert len(found.trials) == 6
    assert found.first.changed == {}
    assert found.best.changed["features.pairs"] is True
    assert found.config.features.pairs
    assert found.best.values[-1] > found.first.values[-1] + 20
    assert found.check is not None
    assert found.check[1] > found.check[0] + 20, "it holds up on documents that no choice has seen"
    assert found.ended == "all was tried"


def test_bad_ones_are_stopped_early(whole: tuple[Tuned, Path]) -> None:
    trials = whole[0].trials
    assert any(len(trial.values) == 1 for trial in trials[1:])
    worst = [trial.values[0] for trial in trials if not trial.finished]
    assert max(worst) < max(trial.values[0] for trial in trials if trial.finished)


def test_it_is_found_among_all_that_a_recipe_has_within_few_trials(ordered: Dataset, tmp_path: Path) -> None:
    found = search(ordered, tmp_path / "study", space=None, trials=10, seed=1)
    assert len(found.trials) <= 10
    assert found.best.changed["features.pairs"] is True
    assert len({json.dumps(trial.changed, sort_keys=True) for trial in found.trials}) == len(found.trials)


def test_the_slices_do_not_overlap(ordered: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Dataset] = []

    def spied(data: Dataset, *args: Any, **options: Any) -> Any:
        seen.append(data)
        return train(data, *args, **options)

    monkeypatch.setattr(tuning, "train", spied)
    search(ordered, tmp_path / "study")
    checked, chosen = (set(data.need_test().documents.uids) for data in (seen[-1], seen[0]))
    assert len(checked) == 80
    assert len(chosen) == 64
    assert not checked & chosen
    for data in seen:
        assert not set(data.train.documents.uids) & set(data.need_test().documents.uids)
        if data is not seen[-1] and data is not seen[-2]:
            assert not set(data.train.documents.uids) & checked
    assert len(seen[0].train) == 64, "a quarter first"


# ---- time ----


def test_a_small_budget_ends_soon(ordered: Dataset, tmp_path: Path) -> None:
    began = time.monotonic()
    found = search(ordered, tmp_path / "study", budget_s=0.001)
    assert time.monotonic() - began < 20
    assert len(found.trials) == 1, "the settings as they are, always"
    assert found.best is found.first
    assert found.check is None
    assert "no time for another" in found.render()
    assert "nothing was better" in found.render()


def test_a_trial_that_would_not_fit_is_not_begun(
    ordered: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock on which every training takes 100 seconds: 125 for the first trial, and as much for the check."""
    now = [0.0]

    def slow(*args: Any, **options: Any) -> Any:
        now[0] += 100
        return train(*args, **options)

    monkeypatch.setattr(tuning, "train", slow)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    found = search(ordered, tmp_path / "study", budget_s=850)
    # The first two trainings; each trial more needs two, and the check two at the end.
    assert now[0] <= 850
    assert len(found.trials) >= 3


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_times_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


def test_wrong_calls_are_refused(ordered: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="budget of 'soon'"):
        seconds_of("soon")
    with pytest.raises(ConfigError, match="budget of 0"):
        search(ordered, tmp_path / "study", budget_s=0)
    with pytest.raises(ConfigError, match="unknown metric 'PSP5'") as caught:
        search(ordered, tmp_path / "study", metric="PSP5")
    assert "PSP@5" in caught.value.hint
    with pytest.raises(ConfigError, match=r"unknown setting 'features\.pears'"):
        search(ordered, tmp_path / "study", space={"features.pears": (1,)})
    assert not (tmp_path / "study").exists()


def test_without_optuna_it_says_what_to_install(
    ordered: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="optuna"):
        search(ordered, tmp_path / "study")


# ---- interrupted, killed, called again ----


def stopping(after: int, with_: type[BaseException]) -> Callable[..., Any]:
    """`train` that is stopped in the middle of the training after so many."""
    count = [0]

    def stopped(*args: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] > after:
            raise with_
        return train(*args, **options)

    return stopped


def told(found: Tuned) -> list[Any]:
    return [(dict(trial.changed), trial.values) for trial in found.trials]


@pytest.mark.parametrize("after", [0, 1, 3, 6])
def test_a_killed_search_goes_on(
    after: int, whole: tuple[Tuned, Path], ordered: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "train", stopping(after, SystemExit))
    with pytest.raises(SystemExit):
        search(ordered, tmp_path / "study")
    monkeypatch.setattr(tuning, "train", train)
    again = search(ordered, tmp_path / "study")
    assert told(again) == told(whole[0]), "as if nothing had happened"
    assert again.check == whole[0].check


def test_an_interrupt_gives_the_best_so_far(ordered: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "train", stopping(2, KeyboardInterrupt))
    found = search(ordered, tmp_path / "study")
    assert found.ended == "interrupted"
    assert len(found.trials) == 1
    monkeypatch.setattr(tuning, "train", stopping(0, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        search(ordered, tmp_path / "other")


def test_what_is_finished_is_not_done_again(
    whole: tuple[Tuned, Path], ordered: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "train", stopping(0, AssertionError))
    again = search(ordered, whole[1])
    assert told(again) == told(whole[0])
    assert again.check == whole[0].check
    assert not any((whole[1] / "trials").iterdir()), "models of trials are not kept"


def test_another_search_in_the_same_folder_is_refused(whole: tuple[Tuned, Path], ordered: Dataset) -> None:
    for changed in ({"metric": "P@3"}, {"seed": 2}, {"share": 0.3}, {"space": {"features.pairs": (True,)}}):
        with pytest.raises(RunError, match="other settings"):
            search(ordered, whole[1], **changed)


def test_settings_that_cannot_be_trained_are_passed_over(
    ordered: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(data: Dataset, out: Path, recipe: Tiny, **options: Any) -> Any:
        if recipe.config.classify.neighbours == 1:
            raise ConfigError("one neighbour is not enough", "take more")
        return train(data, out, recipe, **options)

    monkeypatch.setattr(tuning, "train", picky)
    found = search(ordered, tmp_path / "study")
    failed = [trial for trial in found.trials if trial.note]
    assert {trial.changed["classify.neighbours"] for trial in failed} == {1}
    assert "one neighbour is not enough" in found.render()
    assert found.best.changed["features.pairs"] is True


# ---- what comes out ----


def test_the_answer_is_a_config_that_train_reads(whole: tuple[Tuned, Path], ordered: Dataset, tmp_path: Path) -> None:
    found, _ = whole
    (tmp_path / "best.toml").write_text(found.toml(), encoding="utf-8")
    assert found.toml().startswith("# recipe: tiny\n")
    assert read_toml(tmp_path / "best.toml") == to_tables(found.config)
    made = make_recipe("tiny", config=tmp_path / "best.toml")
    assert made.config == found.config
    assert train(ordered, tmp_path / "run", made).predict("word1 word2", k=1)


def test_the_answer_is_shown(whole: tuple[Tuned, Path]) -> None:
    lines = whole[0].render().splitlines()
    assert len(lines) == 1 + 6 + 3
    assert lines[1].endswith("as they were")
    assert sum("*" in line for line in lines) == 1
    assert sum("stopped early" in line for line in lines[1:7]) >= 1
    assert lines[-1].startswith("on a second slice that no choice has seen: ")


def test_progress_is_said(ordered: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search(ordered, tmp_path / "study", display=PlainDisplay(sys.stdout), budget_s=0.001)
    assert "trial 0: P@1 " in capsys.readouterr().out


# ---- what recipes say is worth trying ----


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_recipe_says_can_be_set(name: str) -> None:
    cls = recipe_class(name)
    choices = choices_of(cls(cls.CONFIG()))
    assert 2 <= len(choices) <= 13
    for path, values in choices.items():
        assert 2 <= len(values) <= 6, path
        assert values[0] in cls.TUNABLE[path], f"{path}: its default {values[0]!r} is not among the choices"


def test_lists_can_be_tried() -> None:
    choices = choices_of(make_recipe("tiny"), {"features.char_sizes": ((3,), (4,), (3, 5))})
    assert choices == {"features.char_sizes": ([4], [3], [3, 5])}
    assert nested({"a.b.c": 1, "a.d": 2, "e": 3}) == {"a": {"b": {"c": 1}, "d": 2}, "e": 3}


def test_the_best_settings_are_not_written_over_a_file_of_the_study(
    planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    words = ["tune", str(planted_folder), "--recipe", "tiny", "--trials", "1", "--study", str(study)]
    assert main([*words, "--out", str(study / "trials.json")]) == 2
    said = capsys.readouterr()
    assert "is a file of the run" in said.err
    assert "# recipe: tiny" in said.out, "what was found is not lost"
    assert main([*words, "--out", str(study / "best.toml")]) == 0
