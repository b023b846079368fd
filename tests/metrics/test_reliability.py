"""Whether scores are probabilities: worked examples, a slow oracle, scikit-learn's curve, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.metrics import Reliability, binned, calibration_errors, inverse_propensities, reliability
from longtail.types import TopK


def test_a_worked_example() -> None:
    """Two bins of two labels: (0.1, 0.3) of which none is right, (0.6, 0.8) of which one is."""
    found = binned([0.6, 0.1, 0.8, 0.3], [1, 0, 0, 0], n_bins=2)
    np.testing.assert_allclose(found.confidence, [0.2, 0.7])
    np.testing.assert_allclose(found.right, [0.0, 0.5])
    assert found.counts.tolist() == [2, 2]
    assert found.error() == pytest.approx(20.0)  # the mean of 20 and 20 points
    assert found.as_json()[1] == {"confidence": pytest.approx(70.0), "right": pytest.approx(50.0), "labels": 2}


def test_a_perfect_and_a_boastful_model() -> None:
    right = np.arange(1000) % 10 < 3
    assert binned(np.full(1000, 0.3), right).error() == pytest.approx(0.0, abs=1e-9)
    assert binned(np.full(1000, 0.9), right).error() == pytest.approx(60.0)


def test_scores_that_are_no_probabilities_count_as_the_nearer_end() -> None:
    assert binned([-4.0, 17.0], [0, 1]).error() == 0.0
    assert binned([-4.0, 17.0], [1, 0]).error() == 100.0


def test_only_the_first_places_count_and_padding_does_not() -> None:
    top = TopK(
        np.array([[1, 0, 2], [2, 1, -1], [-1, -1, -1]], dtype=np.int32),
        np.array([[0.9, 0.5, 0.2], [0.7, 0.1, -np.inf], [-np.inf] * 3], dtype=np.float32),
    )
    truth = csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]], dtype=np.float32))
    assert reliability(top, truth, 1).counts.sum() == 2
    assert reliability(top, truth, 3).counts.sum() == 5
    errors = calibration_errors(top, truth, (1, 3))
    assert errors["ECE@1"] == pytest.approx(100 * (abs(0.9 - 1) + abs(0.7 - 0)) / 2, rel=1e-6)
    assert errors["ECE@3"] == pytest.approx(100 * (0.1 + 0.5 + 0.8 + 0.7 + 0.1) / 5, rel=1e-6)


def test_a_right_label_can_stand_for_those_that_are_missing() -> None:
    top = TopK(np.array([[0], [0], [0], [0]], np.int32), np.full((4, 1), 0.5, np.float32))
    truth = csr_array(np.array([[1.0], [0], [0], [0]]))
    assert reliability(top, truth, 1).right.tolist() == [0.25]
    assert reliability(top, truth, 1, gains=np.array([2.0])).right.tolist() == [0.5]
    weights = inverse_propensities([3], 100, 0.55, 1.5)
    assert reliability(top, truth, 1, gains=weights).right[0] == pytest.approx(weights[0] / 4)


def test_nothing_shown_has_no_error() -> None:
    assert binned([], []).error() == 0.0
    assert binned([], []).as_json() == []


def slow(confidence: list[float], right: list[int], n_bins: int) -> float:
    """One label after the other: a bin is full when so many have gone by, and takes the equals of its last one."""
    bins: list[list[tuple[float, int]]] = [[]]
    pairs, total = sorted(zip(confidence, right, strict=True)), len(confidence)
    for place, (said, found) in enumerate(pairs):
        bins[-1].append((said, found))
        full = any(place + 1 >= n * total // n_bins > place + 1 - len(bins[-1]) for n in range(1, n_bins + 1))
        if full and (place + 1 == total or pairs[place + 1][0] != said):
            bins.append([])
    gaps = [len(one) * abs(sum(s for s, _ in one) - sum(r for _, r in one)) / len(one) for one in bins if one]
    return 100 * sum(gaps) / total


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20).map(lambda n: n / 20), st.integers(0, 1)), min_size=1, max_size=80),
    st.integers(1, 12),
)
def test_it_is_what_a_slow_count_gives(pairs: list[tuple[float, int]], n_bins: int) -> None:
    said, right = [one[0] for one in pairs], [one[1] for one in pairs]
    assert binned(said, right, n_bins).error() == pytest.approx(slow(said, right, n_bins), abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.integers(0, 1)), min_size=1, max_size=60))
def test_the_order_of_documents_does_not_matter_and_no_label_is_lost(pairs: list[tuple[float, int]]) -> None:
    said, right = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    one, other = binned(said, right, 7), binned(said[::-1], right[::-1], 7)
    np.testing.assert_allclose(one.right, other.right)
    assert one.counts.sum() == len(pairs)
    assert (np.diff(one.confidence) > 0).all()
    assert float(one.right @ one.counts) == pytest.approx(right.sum())


def test_it_agrees_with_the_curve_of_scikit_learn() -> None:
    calibration = pytest.importorskip("sklearn.calibration")
    rng = np.random.default_rng(0)
    said = rng.random(2000)
    right = rng.random(2000) < said**2
    ours: Reliability = binned(said, right, 10)
    theirs = calibration.calibration_curve(right, said, n_bins=10, strategy="quantile")
    np.testing.assert_allclose(ours.right, theirs[0], atol=0.01)
    np.testing.assert_allclose(ours.confidence, theirs[1], atol=0.01)
