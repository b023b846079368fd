"""A report of every recipe: each section says something, and the plots of the papers are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.test_every_operation import SMALLEST
from tests.model_report.test_model_report import made

import longtail
from longtail.data.dataset import Dataset
from longtail.model_report.markup import Markup
from longtail.picture import Picture
from longtail.recipes import RECIPES, make_recipe

# What the section on the inside shows, and on training; of others a sentence that there is nothing.
INSIDE = {
    "tiny": "has no plots of its own",
    "direct": "What scores are made of",
    "astec": "How much of the truth is in the shortlist",
    "galaxc": "Attention by hop",
    "gnnxml": "Cluster quality",
    "eclare": "What label classifiers are made of",
    "ngame": "How much of the truth is in the shortlist",
    "siamese": "How much of the truth is in the shortlist",
    "ramen": "How much of the truth is in the shortlist",
    "ance": "link recall",
    "dexml": "link recall",
}


def test_every_recipe_joins_this_test() -> None:
    assert INSIDE.keys() == RECIPES.keys()


# Bandits need a few blocks.
MORE = {"ramen": ("train.epochs=4", "bandit.block=2", "regularise.warm_up=0")}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_report_of_every_recipe(
    recipe: str, planted_with_graphs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def draw(one: Picture, _: str) -> Markup:
        drawn.append(one.title)
        return Markup("<svg></svg>")

    monkeypatch.setattr("longtail.model_report.plots.svg", draw)
    made_by = make_recipe(recipe, assignments=(*SMALLEST[recipe], *MORE.get(recipe, ())))
    longtail.train(planted_with_graphs, tmp_path / "run", made_by, device="cpu")
    page, _ = made(tmp_path / "run", planted_with_graphs, tmp_path)
    assert INSIDE[recipe] in page.texts["inside"]
    if recipe == "tiny":
        assert "logs no losses" in page.texts["training"]
    else:
        assert any(title.startswith("Loss: ") for title in drawn)
    if recipe == "ramen":
        assert "Bandit: weights" in drawn
        assert "pairs" in page.texts["training"]
    if recipe == "gnnxml":
        assert "How clusters ease the long tail" in drawn
    if recipe == "eclare":
        assert "Cluster quality" in drawn
    assert "Best" in page.texts["examples"]
    assert "pairs were looked at" in page.texts["suspects"]
    for section, text in page.texts.items():
        assert "nan" not in text.split(), section
