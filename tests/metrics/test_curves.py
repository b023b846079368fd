"""Precision and recall over thresholds, by hand and against counting."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.metrics import precision_recall
from longtail.types import TopK


def test_each_threshold_by_hand() -> None:
    """Scores 0.9 right, 0.8 wrong, 0.5 right and wrong at once; one right label is in no list."""
    top = TopK(np.array([[0, 1], [2, 0]], np.int32), np.array([[0.9, 0.5], [0.8, 0.5]], np.float32))
    truth = csr_array(np.array([[1, 1, 0], [0, 1, 0]], np.float32))
    curve = precision_recall(top, truth)
    assert curve.thresholds.tolist() == pytest.approx([0.9, 0.5])
    assert curve.precision.tolist() == pytest.approx([100, 50])
    assert curve.recall.tolist() == pytest.approx([100 / 3, 200 / 3])


def test_as_counted_for_every_point() -> None:
    rng = np.random.default_rng(0)
    ids = np.stack([rng.permutation(30)[:10] for _ in range(50)]).astype(np.int32)
    scores = np.sort(rng.integers(0, 40, (50, 10)) / 40, axis=1)[:, ::-1].astype(np.float32)
    ids[3, 5:], scores[3, 5:] = -1, -np.inf
    truth = (rng.random((50, 30)) < 0.2).astype(np.float32)
    curve = precision_recall(TopK(ids, scores), csr_array(truth), points=500)
    assert len(curve.thresholds) == len(np.unique(curve.thresholds))
    for threshold, precision, recall in zip(*curve, strict=True):
        passed = (ids >= 0) & (scores >= np.float32(threshold))
        right = sum(truth[row, ids[row, place]] for row, place in np.argwhere(passed))
        assert precision == pytest.approx(100 * right / passed.sum())
        assert recall == pytest.approx(100 * right / truth.sum())


def test_few_points_are_asked_for_and_nothing_to_show_is_nothing() -> None:
    rng = np.random.default_rng(1)
    top = TopK(np.tile(np.arange(20, dtype=np.int32), (200, 1)), -np.sort(-rng.random((200, 20))).astype(np.float32))
    truth = csr_array((rng.random((200, 20)) < 0.3).astype(np.float32))
    assert len(precision_recall(top, truth, points=50).recall) <= 51
    assert len(precision_recall(TopK.padding(3, 2), csr_array((3, 20), dtype=np.float32)).recall) == 0
