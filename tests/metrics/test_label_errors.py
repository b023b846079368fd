"""How doubtful labels of the truth are: the formulas by hand."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.metrics import doubts_of_given, doubts_of_missing
from longtail.metrics.label_errors import BEST, LEAST, PLACE, PRIOR, USUAL, log_odds, usual

BINS = np.zeros(3, dtype=np.int64)


def test_log_odds_are_symmetric_and_end_somewhere() -> None:
    assert log_odds([0.5, 0.9]).tolist() == pytest.approx([0, np.log(9)])
    assert log_odds([0.0, 1.0]).tolist() == pytest.approx([np.log(LEAST), -np.log(LEAST)], rel=1e-6)
    assert np.isfinite(log_odds([-3.0, 7.0])).all()


def test_what_is_usual_leaves_the_pair_itself_out() -> None:
    labels, odds = np.array([0, 0, 0, 1]), np.array([1.0, 2.0, 6.0, -1.0])
    mean = 2.0
    found = usual(labels, odds, BINS)
    assert found[0] == pytest.approx((2 + 6 + PRIOR * mean) / (2 + PRIOR))
    assert found[3] == pytest.approx(mean)


def test_labels_of_like_frequency_stand_in_for_each_other() -> None:
    bins = np.array([0, 1, 1])
    found = usual(np.array([0, 1, 2]), np.array([4.0, -4.0, -2.0]), bins)
    assert found.tolist() == pytest.approx([4, -3, -3])


def test_doubts_by_hand() -> None:
    labels, scores, best = np.array([0, 1]), np.array([0.5, 0.01]), np.array([0.5, 0.9])
    odds = log_odds(scores)
    expected = USUAL * usual(labels, odds, BINS) - odds + BEST * log_odds(best)
    assert doubts_of_given(labels, scores, best, BINS) == pytest.approx(expected)
    assert doubts_of_given(labels, scores, best, BINS)[1] > doubts_of_given(labels, scores, best, BINS)[0]
    missing = doubts_of_missing([0.9, 0.1, 0.9], [1, 1, 3])
    assert missing.tolist() == pytest.approx([np.log(9), -np.log(9), np.log(9) - PLACE * np.log(3)])


def test_a_label_the_model_is_rarely_sure_of_is_doubted_less() -> None:
    """The same score: of a label that others have with 0.9, and of one that nobody gets."""
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    scores = np.array([0.01, 0.9, 0.9, 0.9, 0.01, 0.01, 0.01, 0.01])
    doubts = doubts_of_given(labels, scores, np.full(8, 0.9), BINS)
    assert doubts.argmax() == 0
    assert doubts[0] > doubts[4]


def test_where_the_model_says_nothing_of_a_document_it_is_doubted_less() -> None:
    doubts = doubts_of_given(np.array([0, 0]), np.array([0.01, 0.01]), np.array([0.9, 0.02]), BINS)
    assert doubts[0] > doubts[1]
