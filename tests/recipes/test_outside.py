"""Recipes that no package brings (``--recipe module:Class``), presets, and kinds of parts before training starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longtail import persistence
from longtail.cli import main
from longtail.errors import ConfigError
from longtail.recipes import RECIPES, make_recipe, presets, recipe_class

MODULE = """
from dataclasses import dataclass
from longtail.persistence import DataPart
from longtail.recipes.tiny import Tiny
from longtail.search.nearest import NearestDocuments

class Loud(NearestDocuments):
    KIND = "loud"

class Mine(Tiny):
    NAME = "mine"
    PARTS = {parts}

    def classify(self, data, surrogate, shortlister, model, run) -> Loud:
        made = super().classify(data, surrogate, shortlister, model, run)
        return Loud(**{{name: getattr(made, name) for name in made.__dataclass_fields__}})

nothing = 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder of a user, with two modules in it."""
    (tmp_path / "own_module.py").write_text(MODULE.format(parts='{"loud": "own_module:Loud"}'))
    (tmp_path / "silent_module.py").write_text(MODULE.format(parts="{}"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(persistence, "_DECLARED_KINDS", {})
    yield tmp_path
    for name in ("own_module", "silent_module"):
        sys.modules.pop(name, None)


def test_a_class_of_the_current_folder_trains_and_answers(
    folder: Path, planted_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = list(sys.path)
    assert main(["train", str(planted_folder), "--recipe", "own_module:Mine", "--out", "run", "-q"]) == 0
    assert main(["predict", "run", "an owl", "-k", "1", "--recipe", "own_module:Mine"]) == 0
    assert "id-owl" in capsys.readouterr().out
    assert main(["evaluate", "run", str(planted_folder), "--recipe", "own_module:Mine"]) == 0
    assert sys.path == path
    # Another process knows nothing of it, and a bundle never names code to be run.
    monkeypatch.setattr(persistence, "_DECLARED_KINDS", {})
    assert main(["predict", "run", "an owl"]) == 2
    assert "'loud'" in capsys.readouterr().err


def test_kinds_are_checked_before_training_starts(
    folder: Path, planted_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(planted_folder), "--recipe", "silent_module:Mine", "--out", "run"]) == 2
    shown = capsys.readouterr().err
    assert "'loud', which nobody declares" in shown
    assert "longtail.parts" in shown
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_module:X", "no_such_module"),
        ("own_module:Missing", "Missing"),
        ("own_module:nothing", "it has no NAME, CONFIG, classify"),
        (":", "cannot be imported"),
    ],
)
def test_what_is_no_recipe_is_refused(name: str, why: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        recipe_class(name)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_of_the_house_declare_their_kinds(name: str) -> None:
    make_recipe(name).check_kinds()


def test_presets_are_found_by_recipe_and_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "astec", "--preset", "LF-AmazonTitles-131K"]) == 0
    assert "rate = 0.03" in capsys.readouterr().out
    assert main(["config", "astec", "--presets"]) == 0
    assert capsys.readouterr().out.split() == list(presets("astec"))
    assert main(["config", "astec", "--preset", "LF-AmazonTitles-131"]) == 2
    assert "LF-AmazonTitles-131K" in capsys.readouterr().err
    assert main(["config", "tiny", "--preset", "X"]) == 2
    assert "has no presets" in capsys.readouterr().err


def test_settings_win_over_a_file_and_a_file_over_a_preset(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[surrogate]\nrate = 0.5\nepochs = 3\n")
    config = make_recipe(
        "astec",
        preset_name="LF-AmazonTitles-131K",
        config=tmp_path / "a.toml",
        assignments=["surrogate.epochs=4"],
    ).config
    assert (config.surrogate.rate, config.surrogate.epochs, config.surrogate.width) == (0.5, 4, 300)


def test_every_paper_has_presets_for_its_data_sets() -> None:
    assert {name for name in RECIPES if presets(name)} == {"astec", "eclare", "galaxc", "gnnxml", "ramen"}
