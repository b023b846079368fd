"""Parts of GNN-XML changed for those of a tree of linear classifiers: put together again they are the model."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.claims.crafted_worlds import long_text_world
from benchmarks.gnnxml_parts import GNNXML, OMIKUJI, SHOWN, Parts

import longtail
from benchmarks import gnnxml_parts
from longtail.data.dataset import Dataset
from longtail.data.read import write
from longtail.evaluation import Yardstick
from longtail.metrics.scores import PerDocument
from longtail.recipes import make_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

AGAIN = "GNN-XML, put together again"
SMALL = (
    "features.fields=title,content",
    "features.keygraph.width=16",
    "matcher.width=16",
    "matcher.epochs=5",
    "clusters.count=8",
    "rankers.beam=3",
    "rankers.mistakes=3",
)
# What was the default when the parts were measured first, and other ways to make a score of a gate.
WAYS: dict[str, tuple[str, ...]] = {
    "default": (),
    "pairs, as printed": ("features.pairs=true", "rankers.cluster_power=1"),
    "by reach, half as sure": ("rankers.reach=20", "rankers.logit_scale=0.5"),
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    sizes: dict[str, Any] = {"documents": 300, "test_documents": 60, "labels": 100, "topics": 8, "graph_coverage": 0.0}
    return long_text_world(0, **sizes)


@pytest.fixture(scope="module")
def parts_of(data: Dataset, tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Callable[[str], Parts]:
    """Trains each way once."""
    made: dict[str, Parts] = {}

    def parts(way: str) -> Parts:
        if way not in made:
            run = tmp_path_factory.mktemp("parts") / "run"
            recipe = make_recipe("gnnxml", assignments=[*SMALL, *WAYS[way]])
            model = longtail.train(data, run, recipe, device="cpu", examples=False)
            ranker: Any = model.bundle.ranker
            yardstick, batch = Yardstick.of(data), model.bundle.featurizer.batch(data.need_test().documents)
            made[way] = Parts(run, ranker, batch, yardstick.truth, yardstick.depth)
        return made[way]

    return parts


def measured(data: Dataset, parts: Parts, name: str) -> PerDocument:
    top = parts.rows()[name]()
    assert top is not None
    return Yardstick.of(data).measure(top)


@pytest.mark.parametrize("way", WAYS)
def test_its_own_parts_make_the_model_again(way: str, parts_of: Callable[[str], Parts], data: Dataset) -> None:
    """Whatever the settings make of gates: what else is changed is then the only thing that is."""
    parts = parts_of(way)
    model, again = (parts.rows()[name]() for name in (GNNXML, AGAIN))
    assert model is not None
    assert again is not None
    real = model.ids[:, :3] >= 0
    # Rankers are solved anew, so the last digits differ, and with them the order of labels of nearly one score.
    same = model.ids[:, :3][real] == again.ids[:, :3][real]
    assert same.mean() > 0.9, f"only {same.mean():.0%} of the first labels are the same"
    scores = np.exp(again.scores[:, :3][real][same])
    np.testing.assert_allclose(scores, model.scores[:, :3][real][same], rtol=0.1)
    values = [Yardstick.of(data).measure(top).values() for top in (model, again)]
    for metric in ("P@1", "P@5", "PSP@5", "R@10"):
        assert values[1][metric] == pytest.approx(values[0][metric], abs=2.0), metric


def test_rows_differ_by_what_their_names_say(parts_of: Callable[[str], Parts], data: Dataset) -> None:
    parts = parts_of("default")
    found = {
        name: measured(data, parts, name).values()
        for name in (AGAIN, "every cluster looked into", "the true clusters alone", "gates by linear classifiers")
    }
    assert found["every cluster looked into"]["R@100"] > found[AGAIN]["R@100"] + 5, (
        "three of eight clusters lose labels"
    )
    assert found["the true clusters alone"]["P@1"] > found[AGAIN]["P@1"]
    assert found["gates by linear classifiers"]["P@1"] > 30
    counts = parts.training.label_counts()
    rare, plain = (parts.rows()[name]() for name in ("rare labels raised by 1", AGAIN))
    assert rare is not None
    assert plain is not None
    assert counts[rare.ids[:, 0]].mean() < counts[plain.ids[:, 0]].mean()


def test_words_alone_are_the_rows_without_pairs(parts_of: Callable[[str], Parts]) -> None:
    with_pairs, without = parts_of("pairs, as printed"), parts_of("default")
    x, asked = with_pairs._words_alone()
    assert x.shape[1] < with_pairs.x.shape[1]
    np.testing.assert_allclose(np.sqrt(x.multiply(x).sum(axis=1)), 1, rtol=1e-5)
    np.testing.assert_allclose(x.toarray(), without.x.toarray(), atol=1e-5)
    assert asked.shape == without.asked.shape
    plain, _ = without._words_alone()
    np.testing.assert_allclose(plain.toarray(), without.x.toarray(), atol=1e-6)


def test_neither_ranks_what_is_masked_or_without_a_cluster(parts_of: Callable[[str], Parts]) -> None:
    parts = parts_of("default")
    assert parts.left_out.nnz == len(parts.training.masked)
    silent = np.flatnonzero(~parts.has_cluster)
    for name in ("rankers alone, every label", "one against all, logistic"):
        top = parts.rows()[name]()
        assert top is not None
        assert not np.isin(top.ids, silent).any(), name


# ---- the program ----


def test_one_command_measures_all_documents_and_the_far_ones(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "omikuji" else find_spec(name))
    monkeypatch.setattr(gnnxml_parts, "NEAR", 0.2)
    write(data, tmp_path / "planted", "lf")
    out, run = tmp_path / "found.json", tmp_path / "run"
    every = "every cluster looked into"
    changes = [word for one in SMALL for word in ("--set", one)]
    words = [str(tmp_path / "planted"), "--run", str(run), "--out", str(out), *changes]
    words += ["--beside", AGAIN, "--rows", GNNXML, OMIKUJI, AGAIN, every]
    assert gnnxml_parts.main(words) == 0
    numbers = json.loads(out.read_text())["numbers"]
    assert numbers["n_test"] == 30, "a tenth of the training documents"
    assert numbers["far documents"] + numbers["near documents"] == 30
    assert 0 < numbers["near documents"] < 30
    rows = numbers["rows"]
    assert list(rows) == [GNNXML, AGAIN, every], "omikuji is left out where it is not installed"
    for name, row in rows.items():
        assert list(row["metrics"]) == list(SHOWN)
        for side in (row, row["far"], row["near"]):
            beside = {key for key in side if key.startswith("beside")}
            assert beside == {f"beside {other}" for other in (GNNXML, AGAIN) if other != name}
    mean, low, high = rows[every]["beside GNN-XML"]["R@100"]
    assert low <= mean <= high
    assert mean == pytest.approx(rows[every]["metrics"]["R@100"] - rows[GNNXML]["metrics"]["R@100"], abs=0.02)
    weighed = sum(rows[every][side]["metrics"]["P@1"] * numbers[f"{side} documents"] for side in ("far", "near"))
    assert weighed / 30 == pytest.approx(rows[every]["metrics"]["P@1"], abs=0.01)
    assert AGAIN in capsys.readouterr().out
    kept = {path: path.stat().st_mtime_ns for path in (run / "parts").iterdir()}
    assert {path.stem for path in kept} == {GNNXML, AGAIN, every}
    assert gnnxml_parts.main(words) == 0
    assert kept == {path: path.stat().st_mtime_ns for path in (run / "parts").iterdir()}, "nothing is fitted twice"
    assert json.loads(out.read_text())["numbers"]["rows"] == rows, "times of the first call, too"
    monkeypatch.setattr(gnnxml_parts, "NEAR", 2.0)
    assert gnnxml_parts.main(words) == 0
    alone = json.loads(out.read_text())["numbers"]
    assert (alone["far documents"], alone["near documents"]) == (30, 0)
    assert "near" not in alone["rows"][AGAIN], "of no documents nothing can be said"
    assert alone["rows"][AGAIN]["far"]["metrics"] == rows[AGAIN]["metrics"]


def test_similarities_are_cosines_to_the_nearest_training_document(parts_of: Callable[[str], Parts]) -> None:
    parts = parts_of("default")
    expected = (parts.asked.toarray() @ parts.x.toarray().T).max(axis=1)
    np.testing.assert_allclose(parts.similarities(), expected, rtol=1e-5)
