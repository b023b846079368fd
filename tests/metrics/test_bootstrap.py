from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.errors import DataError
from longtail.metrics import Interval, PerDocument, bootstrap_interval, inverse_propensities, measure, paired_bootstrap
from longtail.metrics.bootstrap import _exactly_summable, _resampled_sums
from longtail.types import TopK


def planted(n: int, chances: tuple[float, ...], seed: int) -> list[PerDocument]:
    """Models that rank one of 30 labels, the right one with the given chance; every document has one or two labels."""
    rng = np.random.default_rng(seed)
    n_labels = 30
    first, second = rng.integers(0, n_labels, n), rng.integers(0, n_labels, n)
    truth = np.zeros((n, n_labels), dtype=np.float32)
    truth[np.arange(n), first] = 1
    truth[np.arange(n), np.where(rng.random(n) < 0.5, second, first)] = 1
    weights = inverse_propensities(np.arange(n_labels), 100, 0.55, 1.5)
    luck, models = rng.random(n), []
    for chance in chances:
        ids = np.where(luck < chance, first, np.int64(-1))[:, None].astype(np.int32)
        models.append(
            measure(
                TopK(ids, np.where(ids < 0, -np.inf, 1).astype(np.float32)), csr_array(truth), weights, (1, 3), (10,)
            )
        )
    return models


def test_a_planted_difference_is_found() -> None:
    a, b = planted(800, (0.5, 0.45), seed=3)
    differences = paired_bootstrap(a, b, 500, rng=np.random.default_rng(0))
    for name in ("P@1", "PSP@1", "R@10", "nDCG@3"):
        found = differences[name]
        assert found.low < found.mean < found.high
        assert found.mean == pytest.approx(a.values()[name] - b.values()[name], abs=1e-9)
        assert found.excludes_zero
    assert differences["FN@10"].high < 0
    assert differences["FN@10"].excludes_zero
    assert paired_bootstrap(b, a, 500, rng=np.random.default_rng(0))["P@1"].high < 0


def test_equal_predictions_differ_by_exactly_zero() -> None:
    a, b = planted(300, (0.4, 0.4), seed=1)
    for difference in paired_bootstrap(a, b, 100, rng=np.random.default_rng(0)).values():
        assert (difference.mean, difference.low, difference.high) == (0.0, 0.0, 0.0)
        assert not difference.excludes_zero


def test_a_seed_gives_the_same_intervals_again() -> None:
    a, b = planted(100, (0.5, 0.4), seed=2)
    first = paired_bootstrap(a, b, 130, rng=np.random.default_rng(7))
    assert paired_bootstrap(a, b, 130, rng=np.random.default_rng(7)) == first
    assert paired_bootstrap(a, b, 130, rng=np.random.default_rng(8)) != first


def test_agrees_with_drawing_documents_one_resample_at_a_time() -> None:
    """Differences of ratios of resampled means, computed the slow way with the same draws; some documents have no
    labels.
    """
    rng = np.random.default_rng(5)
    n, n_labels, resamples = 40, 12, 70
    truth = csr_array((rng.random((n, n_labels)) < 0.1).astype(np.float32))
    weights = inverse_propensities(rng.integers(0, 9, n_labels), 50, 0.55, 1.5)
    tops = [
        TopK(np.argsort(rng.random((n, n_labels)), axis=1)[:, :5].astype(np.int32), np.ones((n, 5), np.float32))
        for _ in range(2)
    ]
    for skip_empty in (False, True):
        a, b = (measure(top, truth, weights, skip_empty=skip_empty) for top in tops)
        slow_a: list[list[float]] = []
        slow_b: list[list[float]] = []
        draws = np.random.default_rng(9)
        for _ in range(resamples):
            rows = draws.integers(0, n, size=n)
            for top, values in zip(tops, (slow_a, slow_b), strict=True):
                drawn = measure(TopK(top.ids[rows], top.scores[rows]), truth[rows], weights, skip_empty=skip_empty)
                values.append(list(drawn.values().values()))
        low, high = np.quantile(np.array(slow_a) - np.array(slow_b), [0.025, 0.975], axis=0)
        fast = paired_bootstrap(a, b, resamples, rng=np.random.default_rng(9))
        assert [d.low for d in fast.values()] == pytest.approx(low.tolist(), abs=1e-7)
        assert [d.high for d in fast.values()] == pytest.approx(high.tolist(), abs=1e-7)
        single = bootstrap_interval(a, resamples, rng=np.random.default_rng(9), level=0.8)
        low, high = np.quantile(np.array(slow_a), [0.1, 0.9], axis=0)
        assert [i.low for i in single.values()] == pytest.approx(low.tolist(), abs=1e-7)
        assert [i.high for i in single.values()] == pytest.approx(high.tolist(), abs=1e-7)
        assert {name: interval.mean for name, interval in single.items()} == pytest.approx(a.values(), abs=1e-9)


def test_intervals_hold_the_true_value_about_as_often_as_they_say() -> None:
    covered = {"P@1": 0, "difference": 0}
    for seed in range(120):
        a, b = planted(150, (0.4, 0.3), seed)
        interval = bootstrap_interval(a, 200, rng=np.random.default_rng(seed))["P@1"]
        covered["P@1"] += interval.low <= 40 <= interval.high
        difference = paired_bootstrap(a, b, 200, rng=np.random.default_rng(seed))["P@1"]
        covered["difference"] += difference.low <= 10 <= difference.high
    # 95% of 120 is 114; three standard deviations of the count are 7, and the percentile method is a little narrow
    assert all(105 <= count <= 119 for count in covered.values()), covered


def test_sums_do_not_depend_on_the_order_of_additions() -> None:
    rng = np.random.default_rng(0)
    columns = np.stack(
        [rng.random(5000) / 3, 1e-6 * rng.standard_normal(5000), np.zeros(5000), 17.3 * rng.random(5000)], axis=1
    )
    exact = _exactly_summable(columns)
    assert np.abs(exact - columns).max(axis=0) == pytest.approx([0] * 4, abs=1e-9)
    assert np.abs(exact - columns).max(axis=0)[1] < 1e-15, "the grid follows the size of each column"
    times = rng.integers(0, 5, 5000).astype(np.float64)
    shuffled = rng.permutation(5000)
    for column in exact.T:
        assert math.fsum(times * column) == times @ column == times[shuffled] @ column[shuffled]


def test_resampled_sums_are_exact() -> None:
    columns = np.random.default_rng(1).random((3000, 3)) / 3
    sums, draws = _resampled_sums(columns, 3, np.random.default_rng(2)), np.random.default_rng(2)
    for row in sums:
        times = np.bincount(draws.integers(0, 3000, size=3000), minlength=3000)
        assert row.tolist() == [math.fsum(times * column) for column in _exactly_summable(columns).T]


def test_models_measured_on_different_truth_cannot_be_compared() -> None:
    a, b = planted(50, (0.5, 0.4), seed=0)
    (elsewhere,) = planted(50, (0.5,), seed=1)
    fewer = PerDocument(b.names, b.numerators[:-1], b.denominators[:-1], b.divisor)
    for wrong in (elsewhere, fewer, replace(b, names=b.names[::-1]), replace(b, divisor=b.divisor[::-1].copy())):
        with pytest.raises(DataError, match="same documents"):
            paired_bootstrap(a, wrong, 10, rng=np.random.default_rng(0))


def test_nothing_to_resample_is_an_error() -> None:
    (a,) = planted(5, (0.5,), seed=0)
    none = PerDocument(a.names, a.numerators[:0], a.denominators[:0], a.divisor)
    with pytest.raises(DataError, match="no documents"):
        bootstrap_interval(none, 10, rng=np.random.default_rng(0))


def test_a_single_document_has_an_interval_without_width() -> None:
    (a,) = planted(1, (1.0,), seed=0)
    assert bootstrap_interval(a, 10, rng=np.random.default_rng(0))["P@1"] == Interval(100.0, 100.0, 100.0)
