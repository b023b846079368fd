"""Variants of the papers: each is a valid change of its recipe, and one command measures them all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.paper_variants import ASKED, TRAINED

from benchmarks import paper_variants
from longtail.data.read import write
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.recipes import make_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

CASES = [(recipe, name) for recipe, variants in TRAINED.items() for name in variants]


@pytest.mark.parametrize(("recipe", "name"), CASES, ids=[f"{recipe}: {name}" for recipe, name in CASES])
def test_every_variant_changes_something(recipe: str, name: str) -> None:
    changed = make_recipe(recipe, assignments=list(TRAINED[recipe][name])).config != make_recipe(recipe).config
    assert changed == (name != "defaults")
    assert next(iter(TRAINED[recipe])) == "defaults"


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert paper_variants.main(["galaxc", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(TRAINED["galaxc"])


def test_a_variant_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        paper_variants.main(["galaxc", "tiny", "--only", "nothing"])
    assert "no variant 'nothing'" in capsys.readouterr().err


WORLD = SyntheticConfig(
    documents=400, test_documents=20, labels=60, topics=6, graph_coverage=0.0, share_documents_are_labels=0.1
)
SMALL = {
    "galaxc": ("astec.width=8", "astec.epochs=1", "surrogate.epochs=1", "shortlist.size=10"),
    "eclare": ("surrogate.width=8", "surrogate.epochs=1", "shortlist.epochs=1", "classify.epochs=1"),
}


@pytest.mark.parametrize("recipe", SMALL)
def test_one_command_measures_a_model_and_what_it_is_asked(recipe: str, tmp_path: Path) -> None:
    write(synthesise(WORLD).dataset, tmp_path / "planted", "lf")
    out = tmp_path / "found.json"
    settings = [word for one in SMALL[recipe] for word in ("--set", one)]
    words = [recipe, str(tmp_path / "planted"), "--only", "defaults", "--device", "cpu", "--out", str(out), *settings]
    assert paper_variants.main(words) == 0
    (found,) = json.loads(out.read_text())["numbers"]["planted"]["variants"]["defaults"]
    assert 0 < found["R@100"] <= 100
    assert set(found["asked"]) == set(ASKED[recipe])
    if recipe == "galaxc":
        assert set(found["documents"]) == {"are labels", "are no labels"}
        assert found["asked"]["every label scored"]["R@100"] > found["R@100"], "shortlists of 10 lose some of 60 labels"
    else:
        assert found["asked"]["cluster_power 0.5"]["PSP@5"] == found["PSP@5"], "the default"


def test_what_cannot_be_had_is_recorded(tmp_path: Path) -> None:
    data = synthesise(WORLD).dataset
    found = paper_variants.measured(data.hold_out(0.1, 0), "eclare", ["surrogate.clusters=4096"], "cpu", 0)
    assert "4096 clusters" in found["left out"]
