"""Every file in src/longtail/presets is a valid change of its recipe's defaults, and changes something."""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail.recipes import RECIPES, make_recipe

FILES = sorted((Path(__file__).parents[1] / "src" / "longtail" / "presets").glob("*/*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_config_files_are_valid(path: Path) -> None:
    assert path.parent.name in RECIPES
    assert make_recipe(path.parent.name, config=path).config != make_recipe(path.parent.name).config


def test_there_are_config_files() -> None:
    assert FILES
