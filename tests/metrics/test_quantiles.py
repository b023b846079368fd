from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from longtail.errors import ConfigError
from longtail.metrics import (
    CONVENTIONS,
    bins_for,
    by_frequency,
    contributions,
    equal_count,
    equal_volume,
    in_bin,
    measure_bins,
    paired_bootstrap,
    score,
)
from longtail.types import Csr, TopK

Case = Callable[[int], tuple[TopK, Csr, NDArray[np.float64]]]

COUNTS = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 200)), min_size=1, max_size=60).map(
    lambda c: np.array(c, dtype=np.int64)
)


def bins_by_loop(counts: NDArray[np.int64], n_bins: int) -> list[int]:
    """`equal_volume`, word by word as the specification says it."""
    bin_of_label, number, held = [0] * len(counts), 0, 0
    for label in sorted(range(len(counts)), key=lambda at: (-counts[at], at)):
        bin_of_label[label] = number
        held += int(counts[label])
        if held * n_bins >= int(counts.sum()) and number < n_bins - 1:
            number, held = number + 1, 0
    return bin_of_label


@pytest.mark.claim("F5")
@settings(deadline=None, max_examples=200)
@given(counts=COUNTS, n_bins=st.integers(1, 6))
def test_equal_volume(counts: NDArray[np.int64], n_bins: int) -> None:
    bins = equal_volume(counts, n_bins)
    assert bins.bin_of_label.tolist() == bins_by_loop(counts, n_bins)
    assert bins.n_labels.sum() == len(counts)
    volumes = [int(counts[bins.bin_of_label == number].sum()) for number in range(n_bins)]
    last = int(bins.bin_of_label.max())
    assert all(volume * n_bins >= counts.sum() for volume in volumes[:last])


@settings(deadline=None, max_examples=100)
@given(counts=COUNTS, n_bins=st.integers(1, 6))
def test_equal_count(counts: NDArray[np.int64], n_bins: int) -> None:
    bins = equal_count(counts, n_bins)
    assert bins.n_labels.sum() == len(counts)
    assert bins.n_labels.max() - bins.n_labels.min() <= 1
    order = sorted(range(len(counts)), key=lambda at: (-counts[at], at))
    assert bins.bin_of_label[order].tolist() == sorted(bins.bin_of_label.tolist())


def test_ties_go_by_label_number() -> None:
    counts = np.array([2, 7, 2, 2, 2, 2, 2, 2, 7, 2])
    assert equal_count(counts).bin_of_label.tolist() == [1, 0, 1, 2, 2, 3, 3, 4, 0, 4]
    assert equal_volume(counts).bin_of_label.tolist() == [2, 0, 2, 2, 3, 3, 3, 4, 1, 4]  # a fifth of 30 is 6


def test_the_label_that_crosses_the_boundary_belongs_to_the_bin_it_crosses_in() -> None:
    bins = equal_volume(np.array([3, 3, 3, 3, 3, 3, 1, 1]))  # a fifth of 20 is 4
    assert bins.bin_of_label.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert bins.n_labels.tolist() == [2, 2, 2, 2, 0]
    assert bins.mean_frequency.tolist() == [3, 3, 3, 1, 0]
    assert bins.names == ("1 (head)", "2", "3", "4", "5 (tail)")


def test_by_frequency() -> None:
    bins = by_frequency(np.array([0, 1, 2, 4, 5, 9, 10, 99, 100, 5000]))
    assert bins.names == ("100+", "10-99", "5-9", "2-4", "1", "0")
    assert bins.bin_of_label.tolist() == [5, 4, 3, 3, 2, 2, 1, 1, 0, 0]
    assert bins.mean_frequency.tolist() == [2550, 54.5, 7, 3, 1, 0]
    assert by_frequency(np.array([0, 7]), edges=(0, 5)).names == ("5+", "0-4")
    for wrong in ((), (1, 2), (0, 5, 5)):
        with pytest.raises(ValueError, match="edges"):
            by_frequency(np.array([1]), edges=wrong)


def test_conventions_are_chosen_by_name() -> None:
    for name in CONVENTIONS:
        bins = bins_for(name, np.array([5, 1, 0]))
        assert (bins.convention, len(bins)) == (name, len(bins.names))
    with pytest.raises(ConfigError, match="'quintile'") as problem:
        bins_for("quintile", np.array([1]))
    assert "equal_volume" in problem.value.hint


@pytest.mark.claim("F5")
@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 10**6), convention=st.sampled_from(sorted(CONVENTIONS)), skip_empty=st.booleans())
def test_contributions_sum_to_the_metric(seed: int, convention: str, skip_empty: bool, case: Case) -> None:
    top, targets, weights = case(seed)
    zipf = np.random.default_rng(seed).zipf(1.5, targets.shape[1]) % 300
    bins = bins_for(convention, zipf)
    parts = contributions(top, targets, weights, bins, (1, 3, 5), skip_empty)
    table = score(top, targets, weights, skip_empty=skip_empty)
    labelled = score(top, targets, weights, skip_empty=True)
    for k in (1, 3, 5):
        assert sum(parts[f"P@{k}"]) == pytest.approx(table[f"P@{k}"], abs=1e-9)
        assert sum(parts[f"PSP@{k}"]) == pytest.approx(table[f"PSP@{k}"], abs=1e-9)
        assert sum(parts[f"FN@{k}"]) == pytest.approx(labelled[f"FN@{k}"], abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6))
def test_contributions_agree_with_a_loop(seed: int, case: Case) -> None:
    top, targets, weights = case(seed)
    bins = equal_count(np.random.default_rng(seed).integers(0, 9, targets.shape[1]), 3)
    parts = contributions(top, targets, weights, bins, (3,))
    truths = [set(np.flatnonzero(row).tolist()) for row in targets.toarray()]
    for number in range(3):
        precision, missed = [], []
        for row, truth in zip(top.ids.tolist(), truths, strict=True):
            here = {label for label in truth if bins.bin_of_label[label] == number}
            precision.append(len(here & set(row[:3])) / 3)
            if truth:
                missed.append(len(here - set(row[:3])) / len(truth))
        assert parts["P@3"][number] == pytest.approx(100 * np.mean(precision), abs=1e-9)
        assert parts["FN@3"][number] == pytest.approx(100 * np.mean(missed), abs=1e-9)


def test_a_difference_shows_in_the_bin_where_it_was_planted() -> None:
    """Both models find the frequent label 0 for every document; only the first finds the rare one of its own."""
    from scipy.sparse import csr_array

    n = 200
    counts = np.array([500, *[1] * n])
    targets = csr_array(np.hstack([np.ones((n, 1)), np.eye(n)]).astype(np.float32))
    good = TopK(np.stack([np.zeros(n), 1 + np.arange(n)], axis=1).astype(np.int32), np.ones((n, 2), np.float32))
    other = TopK(
        np.where(np.arange(n)[:, None] % 4 == 0, good.ids, good.ids * [1, 0] + [0, -1]).astype(np.int32), good.scores
    )
    bins = by_frequency(counts)
    a, b = (measure_bins(top, targets, np.ones(n + 1), bins, (2,)) for top in (good, other))
    differences = paired_bootstrap(a, b, 200, rng=np.random.default_rng(0))
    rare, frequent = differences[in_bin("P@2", "1")], differences[in_bin("P@2", "100+")]
    assert rare.mean == pytest.approx(37.5)
    assert rare.excludes_zero
    assert differences[in_bin("FN@2", "1")].mean == pytest.approx(-37.5)
    assert (frequent.mean, frequent.low, frequent.high) == (0, 0, 0)
