"""What people are shown is short, and says what it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.bundle import open_bundle
from longtail.data.dataset import Dataset, Graph, Items
from longtail.features.settings import FeaturesConfig
from longtail.persistence import StringTable
from longtail.predictor import Predictor
from longtail.report import Metrics, facts_as_html, shown, table
from longtail.training.prepare import prepare
from longtail.types import Batch, TopK

LONG = "x" * 300


@pytest.fixture(scope="module")
def large() -> Dataset:
    """Many documents, all of whose names are long."""
    names = ["title", *(f"{LONG}{field}" for field in range(4))]
    texts = [dict.fromkeys(names, f"word{row % 50}") for row in range(8000)]
    return Dataset.from_texts(texts, [[f"{LONG}{row % 700}"] for row in range(8000)], name=LONG)


SHORT: dict[str, tuple[Callable[[Dataset], Any], str]] = {
    "dataset": (lambda data: data, "8,000 documents, 700 labels, 1.0 labels per document"),
    "items": (lambda data: data.labels, "Items(700, 'title'; first 'xxxxx"),
    "split": (lambda data: data.train, "Split(8,000 documents, 8,000 of 700 labels)"),
    "training set": (lambda data: prepare(data, FeaturesConfig()), "8,000 documents, 700 labels, 8,000 targets"),
    "graph": (lambda data: Graph(LONG, label_label=csr_array(np.eye(700))), "label_label 700 edges"),
    "strings": (lambda data: StringTable.of(data.labels.uids), "... 697 more"),
    "empty items": (lambda data: Items([]), "Items(0)"),
    "vectors": (lambda data: Items(["a"], vectors=np.ones((1, 4000), np.float32)), "vectors of 4,000; first 'a'"),
    "top k": (lambda data: TopK(np.array([[4, 2, -1]] * 900, np.int32), np.ones((900, 3), np.float32)), "4 (1), 2 (1)"),
    "empty top k": (lambda data: TopK.padding(0, 5), "TopK(0 documents, k=5)"),
    "batch": (
        lambda data: Batch(csr_array((900, 5000), dtype=np.float32), tokens=np.zeros((900, 7), np.int32)),
        "Batch(900 documents, sparse 5,000 wide, tokens 7 wide)",
    ),
}


@pytest.mark.parametrize("what", SHORT)
def test_a_repr_is_short_and_useful(what: str, large: Dataset) -> None:
    make, expected = SHORT[what]
    found = repr(make(large))
    assert expected in found
    assert len(found) <= 200


def test_models_have_a_short_repr(tiny_run: Path, tmp_path: Path) -> None:
    assert repr(Predictor.open(tiny_run)) == f"Predictor('tiny', 12 labels, {tiny_run / 'bundle'})"
    deep = tmp_path.joinpath(*["a folder with a long name"] * 8, "bundle")
    Predictor.open(tiny_run).save(deep)
    for opened in (open_bundle(deep), Predictor.open(deep)):
        assert "'tiny', 12 labels, ..." in repr(opened)
        assert repr(opened).endswith("name/bundle)")
        assert len(repr(opened)) <= 200


def test_notebooks_are_shown_tables(tiny_run: Path, planted: Dataset) -> None:
    shown_model = Predictor.open(tiny_run)._repr_html_()
    assert "<th>recipe</th><td>tiny</td>" in shown_model
    assert "<th>trained on</th><td>planted</td>" in shown_model
    assert "<th>test documents</th><td>30</td>" in planted._repr_html_()
    assert facts_as_html("<a>", {"<b>": "&"}) == (
        "<table><caption>&lt;a&gt;</caption><tr><th>&lt;b&gt;</th><td>&amp;</td></tr></table>"
    )


def test_metrics_are_a_dict_that_prints_as_a_table() -> None:
    found = Metrics({"PSP@5": 3.0, "P@10": 2.5, "P@1": 50.123, "FN@1": 1.0, "data": "planted", "quantiles": {}})
    assert shown(found) == ["P@1", "P@10", "PSP@5"]
    assert [line.split() for line in str(found).splitlines()] == [
        ["percent"],
        ["P@1", "50.12"],
        ["P@10", "2.50"],
        ["PSP@5", "3.00"],
    ]
    assert "<th>P@1</th><td>50.12</td>" in found._repr_html_()
    assert json.loads(json.dumps(found)) == found == dict(found)
    assert repr(found) == "Metrics(P@1 50.12, P@10 2.50, PSP@5 3.00)"
    many = repr(Metrics({f"P@{k}": 12.345 for k in range(1, 60)}))
    assert many.startswith("Metrics(P@1 12.35, ")
    assert many.endswith(", ... 50 more)")
    assert len(many) <= 200
    assert repr(Metrics()) == "Metrics()"
    assert str(Metrics()) == "no metrics"
    assert "none" in Metrics()._repr_html_()
    both = Metrics(
        {"scores": {"P@1": 9.0, "MacroF1@1": 1, "MacroF1@5": 2, "MicroF1": 3}, "baselines": {"b": {"P@1": 1}}}
    )
    assert [line.split() for line in str(both).splitlines()] == [
        ["percent", "b"],
        ["P@1", "9.00", "1.00"],
        ["MacroF1@5", "2.00"],
        ["MicroF1", "3.00"],
    ]
    assert "a longer title" in table({"a longer title": found, "b": found}).splitlines()[0]


def test_a_model_says_what_it_is(tiny_run: Path, planted: Dataset) -> None:
    model = Predictor.open(tiny_run)
    assert model.recipe == "tiny"
    assert list(model.labels) == list(planted.labels.uids)
    assert model.metrics == {}
