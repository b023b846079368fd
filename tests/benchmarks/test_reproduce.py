"""The papers' tables again, on a planted set in the layout of the public files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.checkpoints import write_checkpoint

from benchmarks import reproduce
from longtail.cli import main as longtail
from longtail.data.read import read
from longtail.recipes import presets

NAME = "LF-AmazonTitles-131K"
SMALL = {
    "astec": ["surrogate.width=16", "surrogate.clusters=8", "surrogate.epochs=2", "classify.epochs=2"],
    "eclare": ["surrogate.width=16", "surrogate.clusters=8", "surrogate.epochs=2", "classify.epochs=2"],
    "galaxc": ["astec.width=16", "astec.clusters=8", "astec.epochs=2", "surrogate.epochs=2", "classify.epochs=2"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As published: texts alone, one filter file, and its own spelling."""
    place = tmp_path_factory.mktemp("public") / "called otherwise"
    sizes = ["documents=300", "test_documents=80", "labels=60", "topics=6"]
    assert longtail(["data", "synthetic", str(place), *(word for size in sizes for word in ("--set", size))]) == 0
    (place / "filter_labels_test.txt").write_text("0 0\n")
    for other in place.glob("filter_labels_t??.txt"):
        other.unlink()
    return place


def test_presets_give_numbers_beside_the_papers(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [word for recipe, own in SMALL.items() for one in own for word in ("--set", f"{recipe}:{one}")]
    out = tmp_path / "result.json"
    assert reproduce.main([NAME, str(folder), "--out", str(out), "--device", "cpu", *changes]) == 0
    shown = capsys.readouterr().out
    result = json.loads(out.read_text())
    recipes = result["numbers"]["recipes"]
    assert list(recipes) == ["astec", "eclare", "galaxc", "ramen"]
    assert recipes.pop("ramen") == {"left out": f"its paper prints nothing for {NAME}"}
    assert f"ramen: left out: its paper prints nothing for {NAME}" in shown
    for recipe, found in recipes.items():
        assert 0 < found["metrics"]["R@100"] <= 100, recipe
        assert found["metrics"].keys() >= set(reproduce.SHOWN)
        assert f"{recipe}, here (single model)" in shown
    assert "astec, GalaXC Table 5                37.12   25.20   18.24   29.22   34.64   39.49" in shown
    assert "eclare, ECLARE Table 2               40.46       -   19.63   33.18       -   44.10" in shown
    assert "PSP with A=0.6 B=2.6" in shown, "of the data set that was named, whatever the folder is called"
    assert result["numbers"]["data"]["propensity"] == {"A": 0.6, "B": 2.6, "family": "amazon"}
    assert result["numbers"]["changed"], "a preset that was changed is said to be"


def test_ramen_is_trained_with_graphs_and_a_checkpoint(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "LF-WikiSeeAlsoTitles-320K"
    words = sorted({word for title in read(folder).train.documents.fields["title"] for word in title.split()})
    checkpoint = write_checkpoint(tmp_path / "distilbert", words, family="distilbert", layers=1)
    quick = ["train.epochs=2", "regularise.warm_up=0", "regularise.every=1"]
    changes = [word for one in quick for word in ("--set", f"ramen:{one}")]
    out, where = tmp_path / "result.json", ["--checkpoint", str(checkpoint), "--device", "cpu"]
    assert reproduce.main([name, str(folder), "--only", "ramen", "--out", str(out), *where, *changes]) == 0
    shown = capsys.readouterr().out
    assert "PSP with A=0.55 B=1.5" in shown
    assert "ramen, RAMEN Table 1                 35.20   24.00   18.40   29.00   31.80   34.50" in shown
    (found,) = json.loads(out.read_text())["numbers"]["recipes"].values()
    assert 0 < found["metrics"]["R@100"] <= 100


def test_what_cannot_be_trained_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce.main(["LF-WikiSeeAlsoTitles-320K", str(folder), "--only", "ramen"]) == 0
    assert "ramen, here: left out: its encoder is DistilBERT" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        reproduce.main([NAME, str(folder), "--only", "ramen"])
    assert "no numbers for 'ramen' on LF-AmazonTitles-131K" in capsys.readouterr().err


def test_every_paper_with_numbers_has_a_preset() -> None:
    for name, papers in reproduce.PAPERS.items():
        assert not [recipe for recipe in papers if name not in presets(recipe)], name
