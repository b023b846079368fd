"""What plots of models show is true, where it can be worked out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset
from longtail.diagnosis import LookInside
from longtail.evaluation import Yardstick
from longtail.model_report.plots import figure
from longtail.models.analysis import cluster_pictures, shortlist_picture
from longtail.picture import Picture
from longtail.predictor import Predictor


def truth(rows: list[list[int]], labels: int) -> Any:
    dense = np.zeros((len(rows), labels), np.float32)
    for row, columns in enumerate(rows):
        dense[row, columns] = 1
    return SimpleNamespace(truth=csr_array(dense))


def test_clusters_of_labels_that_go_together_lose_nothing() -> None:
    """Labels 0 and 1 have the same documents, and so have 2 and 3; label 4 has no cluster and no say."""
    look = truth([[0, 1], [0, 1], [2, 3], [2, 3], [4]], 5)
    quality, sizes = cluster_pictures(np.array([0, 0, 1, 1, -1], np.int32), look)
    own, _ = quality.series["information that is lost"]
    assert own == pytest.approx(0, abs=1e-9)
    assert list(sizes.series["labels"]) == [2.0, 2.0]
    torn = cluster_pictures(np.array([0, 1, 0, 1, -1], np.int32), look)[0]
    assert torn.series["information that is lost"][0] == pytest.approx(100)
    assert cluster_pictures(np.full(5, -1, np.int32), look) == []


def test_recall_of_shortlists_is_drawn_at_their_lengths() -> None:
    picture = shortlist_picture({"R@10": 50.0, "R@100": 80.0})
    assert list(picture.x) == [10, 100]
    assert list(picture.series.values()) == [[50.0, 80.0]]


def test_parts_of_the_scores_of_direct_add_up(direct_run: Path, planted: Dataset) -> None:
    model = Predictor.open(direct_run)
    (picture,) = model.bundle.ranker.pictures(LookInside(model, Yardstick.of(planted)))
    learnt, votes = (np.array(values) for values in picture.series.values())
    assert learnt + votes == pytest.approx(100)
    assert (votes > 0).any()
    assert (learnt > 0).all()
    # All labels of the planted set have 10 to 99 documents.
    assert list(picture.x) == ["10-99"]


def test_values_that_are_not_there_are_not_shown() -> None:
    assert "nan" not in figure(Picture("t", "a", "stacked", ["x", "y"], {"s": [1.0, float("nan")]}), "one")
