"""Metrics of labels: against scikit-learn on small dense matrices, and what must hold for any."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.metrics import f1_score, precision_score, recall_score

from longtail.metrics import best_threshold, cut, f1_at_threshold, macro_score, score
from longtail.types import Csr, TopK

Case = Callable[[int], tuple[TopK, Csr, NDArray[np.float64]]]

SEEDS = st.integers(0, 10**6)


def dense(top: TopK, n_labels: int, threshold: float = -np.inf) -> NDArray[np.int64]:
    found = np.zeros((len(top), n_labels), dtype=np.int64)
    for row, (ids, scores) in enumerate(zip(top.ids, top.scores, strict=True)):
        found[row, ids[(ids >= 0) & (scores >= threshold)]] = 1
    return found


@settings(deadline=None, max_examples=100)
@given(seed=SEEDS, k=st.integers(1, 6))
def test_macro_metrics_are_those_of_scikit_learn(seed: int, k: int, case: Case) -> None:
    top, targets, _ = case(seed)
    truth, guess = (targets.toarray() != 0).astype(np.int64), dense(cut(top, k), targets.shape[1])
    there = (truth.sum(axis=0) > 0) | (guess.sum(axis=0) > 0)
    found = macro_score(top, targets, (k,))
    if not there.any():
        assert set(found.values()) == {0.0}
        return
    for name, function in (("P", precision_score), ("R", recall_score), ("F1", f1_score)):
        expected = function(truth, guess, average=None, zero_division=0)[there].mean()
        assert found[f"Macro{name}@{k}"] == pytest.approx(100 * expected), name
    covered = (truth & guess).any(axis=0).sum() / max(truth.any(axis=0).sum(), 1)
    assert found[f"Coverage@{k}"] == pytest.approx(100 * covered)


@settings(deadline=None, max_examples=100)
@given(seed=SEEDS, place=st.floats(0, 1))
def test_f1_at_a_threshold_is_that_of_scikit_learn(seed: int, place: float, case: Case) -> None:
    top, targets, _ = case(seed)
    real = np.sort(top.scores[top.ids >= 0])
    threshold = float(real[int(place * (len(real) - 1))]) if len(real) else 0.0
    truth, guess = (targets.toarray() != 0).astype(np.int64), dense(top, targets.shape[1], threshold)
    found = f1_at_threshold(top, targets, threshold)
    assert found["MicroF1"] == pytest.approx(100 * f1_score(truth, guess, average="micro", zero_division=0))
    there = (truth.sum(axis=0) > 0) | (guess.sum(axis=0) > 0)
    if there.any():
        expected = f1_score(truth, guess, average=None, zero_division=0)[there].mean()
        assert found["MacroF1"] == pytest.approx(100 * expected)


@settings(deadline=None, max_examples=100)
@given(seed=SEEDS)
def test_no_threshold_is_better_than_the_best(seed: int, case: Case) -> None:
    top, targets, _ = case(seed)
    best = best_threshold(top, targets)
    every = [f1_at_threshold(top, targets, float(value))["MicroF1"] for value in np.unique(top.scores[top.ids >= 0])]
    if best is None:
        assert max(every, default=0.0) == 0
    else:
        assert f1_at_threshold(top, targets, best)["MicroF1"] == pytest.approx(max(every))


@settings(deadline=None, max_examples=100)
@given(seed=SEEDS)
def test_more_places_find_no_fewer_labels(seed: int, case: Case) -> None:
    found = macro_score(*case(seed)[:2], (1, 2, 3, 5))
    assert all(0 <= value <= 100 + 1e-9 for value in found.values())
    for few, many in pairwise((1, 2, 3, 5)):
        assert found[f"Coverage@{few}"] <= found[f"Coverage@{many}"] + 1e-9


def test_equal_scores_pass_a_threshold_together() -> None:
    """The first of two equal scores is right. A threshold cannot tell them apart, so both pass or none does."""
    top = TopK(np.array([[0, 1]], np.int32), np.array([[0.5, 0.5]], np.float32))
    targets = csr_array(np.array([[1.0, 0.0]], np.float32))
    assert best_threshold(top, targets) == 0.5
    assert f1_at_threshold(top, targets, 0.5)["MicroF1"] == pytest.approx(100 * 2 / 3)
    assert f1_at_threshold(top, targets, 0.51)["MicroF1"] == 0


def test_a_rare_label_counts_as_much_as_a_frequent_one() -> None:
    """Nine documents of label 0 are right, the one of label 1 is not."""
    top = TopK(np.zeros((10, 1), np.int32), np.ones((10, 1), np.float32))
    truth = np.zeros((10, 3), np.float32)
    truth[:9, 0], truth[9, 1] = 1, 1
    found = macro_score(top, csr_array(truth), (1,))
    assert found["MacroR@1"] == found["Coverage@1"] == 50
    assert found["MacroP@1"] == 45
    assert score(top, csr_array(truth), np.ones(3), (1,), ())["F1@1"] == 90
