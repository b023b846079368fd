"""Which labels a model misses, and what it says instead, where the answer is planted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import longtail
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError
from longtail.failures import render, to_jsonl, weak_labels
from longtail.predictor import Predictor


@pytest.fixture(scope="module")
def confused() -> Dataset:
    """Documents of 'hidden' read like those of 'loud', which is frequent; 'quiet' is missed once; 'clear' never."""
    texts = ["horn"] * 20 + ["leaf"] * 5 + ["stone"] * 2 + ["horn"]
    labels = [["loud"]] * 20 + [["clear"]] * 5 + [["quiet"]] * 2 + [["hidden"]]
    test_texts = ["horn", "horn", "horn", "leaf", "leaf", "stone"]
    test_labels = [["hidden"], ["hidden", "clear"], ["loud"], ["clear"], ["quiet"], ["quiet"]]
    names = {"loud": "loud things", "clear": "clear things", "quiet": "quiet things", "hidden": "hidden things"}
    return Dataset.from_texts(texts, labels, names, test_texts=test_texts, test_labels=test_labels)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, confused: Dataset) -> Predictor:
    return longtail.train(confused, tmp_path_factory.mktemp("confused") / "run", "tiny")


def test_labels_that_are_missed_most_come_first(model: Predictor, confused: Dataset) -> None:
    rows = weak_labels(model, confused, at=1)
    assert [row.label for row in rows] == ["hidden", "clear", "quiet"]
    hidden, clear, _ = rows
    assert (hidden.name, hidden.train, hidden.test, hidden.predicted, hidden.missed) == ("hidden things", 1, 2, 0, 2)
    assert (hidden.recall, hidden.precision) == (0, 0)
    assert [(c.label, c.name, c.documents) for c in hidden.instead] == [("loud", "loud things", 2)]
    assert (clear.test, clear.predicted, clear.missed, clear.recall, clear.precision) == (2, 2, 1, 50, 50)
    assert [(c.label, c.documents) for c in clear.instead] == [("loud", 1)]


def test_more_places_miss_less(model: Predictor, confused: Dataset) -> None:
    assert "hidden" not in [row.label for row in weak_labels(model, confused, at=5)]


def test_few_can_be_asked_for(model: Predictor, confused: Dataset) -> None:
    assert [row.label for row in weak_labels(model, confused, at=1, limit=1)] == ["hidden"]
    assert weak_labels(model, confused, at=1, support=3) == []
    assert weak_labels(model, confused, at=1, limit=0) == weak_labels(model, confused, at=1)
    with pytest.raises(ConfigError, match="at 0"):
        weak_labels(model, confused, at=0)


def test_masked_pairs_are_not_missed(model: Predictor, confused: Dataset) -> None:
    number = list(confused.labels.uids).index("hidden")
    masked = np.array([[0, number], [1, number]], dtype=np.int64)
    data = replace(confused, test=replace(confused.need_test(), masked=masked))
    assert "hidden" not in [row.label for row in weak_labels(model, data, at=1)]


def test_without_test_documents_those_of_the_holdout_are_asked_for(planted: Dataset, tmp_path: Path) -> None:
    longtail.train(planted, tmp_path / "run", "tiny", holdout=0.5)
    rows = weak_labels(tmp_path / "run", replace(planted, test=None), at=1)
    assert rows
    assert sum(row.test for row in rows) < 120


def test_rows_are_shown_and_written(model: Predictor, confused: Dataset) -> None:
    rows = weak_labels(model, confused, at=1)
    lines = render(rows, 1).splitlines()
    assert len(lines) == 4
    assert "hidden things -> loud things (2)" in lines[1]
    assert render([], 5) == "no label of the test documents is missed in the 5 best"
    written = [json.loads(line) for line in to_jsonl(rows).splitlines()]
    assert written[0]["label"] == "hidden"
    assert written[0]["instead"] == [{"label": "loud", "name": "loud things", "documents": 2}]
