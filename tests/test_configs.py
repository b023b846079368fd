"""Every file in src/longtail/presets is a valid change of its recipe's defaults, and changes something."""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail.recipes import RECIPES, make_recipe, presets
from longtail.recipes.galaxc.settings import PAPER

FILES = sorted((Path(__file__).parents[1] / "src" / "longtail" / "presets").glob("*/*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_config_files_are_valid(path: Path) -> None:
    assert path.parent.name in RECIPES
    assert make_recipe(path.parent.name, config=path).config != make_recipe(path.parent.name).config


# The data sets that the papers report on with settings of their own; of Astec also one that it has no numbers for.
OF_PAPERS = {
    "astec": {
        *("AmazonTitles-3M", "AmazonTitles-670K", "WikiSeeAlsoTitles-350K", "WikiTitles-500K", "Q2B-3M"),
        *("LF-AmazonTitles-131K", "LF-AmazonTitles-1.3M", "LF-WikiSeeAlsoTitles-320K", "LF-WikiTitles-500K"),
    },
    "eclare": {
        *("LF-AmazonTitles-131K", "LF-AmazonTitles-1.3M", "LF-WikiSeeAlsoTitles-320K", "LF-WikiTitles-500K"),
        *("LF-P2PTitles-2M", "LF-P2PTitles-10M"),
    },
    "galaxc": {
        *("LF-AmazonTitles-131K", "LF-AmazonTitles-1.3M", "LF-WikiSeeAlsoTitles-320K", "Q2K-450K", "Q2K-50M"),
    },
    "gnnxml": {"EURLex-4K", "Wiki10-31K", "AmazonCat-13K", "Wiki-500K", "Amazon-670K", "Amazon-3M"},
    "ramen": {
        *("LF-WikiSeeAlsoTitles-320K", "LF-WikiTitles-500K", "LF-AmazonTitles-1.3M"),
        *("LF-WikiSeeAlso-320K", "LF-Wikipedia-500K"),
    },
}


@pytest.mark.parametrize("recipe", OF_PAPERS)
def test_every_data_set_of_a_paper_has_a_preset(recipe: str) -> None:
    assert OF_PAPERS[recipe] <= presets(recipe).keys()
    assert {path.parent.name for path in FILES} == OF_PAPERS.keys()


# Documents per step, by recipe and section; of GalaXC by data set.
PER_STEP = {
    "astec": {"surrogate": 255, "classify": 255},
    "eclare": {"training": 255},
    "galaxc": {"surrogate": 256},
    "ramen": {"train": 1024},
}
OTHERS_PER_STEP = {"Q2K-50M": 1024, "LF-AmazonTitles-1.3M": 512, "Q2K-450K": 512}


@pytest.mark.parametrize("path", [path for path in FILES if path.parent.name in PER_STEP], ids=lambda p: p.stem)
def test_presets_keep_the_documents_per_step_of_the_papers(path: Path) -> None:
    """Neither small nor large data changes them."""
    config = make_recipe(path.parent.name, config=path).config
    others = OTHERS_PER_STEP if path.parent.name == "galaxc" else {}
    for name, documents in PER_STEP[path.parent.name].items():
        section = getattr(config, name)
        assert section.batch == others.get(path.stem, documents)
        assert not section.batch_adapts


def test_the_paper_of_galaxc_is_its_preset() -> None:
    assert (
        make_recipe(
            "galaxc", assignments=[*PAPER, "surrogate.random=30000", "astec.rate=0.03", "astec.clusters=65536"]
        ).config
        == make_recipe("galaxc", preset_name="LF-AmazonTitles-131K").config
    )


def test_stage_iv_of_galaxc_begins_at_the_rates_of_stage_i() -> None:
    config = make_recipe("galaxc", preset_name="LF-AmazonTitles-1.3M").config
    assert config.classify.epochs == 15
    assert (config.classify.rate, config.classify.attention_rate) == (0.001, 0.05)
    assert (config.surrogate.rate, config.surrogate.attention_rate) == (0.001, 0.05)
    assert config.classify.per_document == config.classify.count == 500, "all hard negatives of a step's documents"
