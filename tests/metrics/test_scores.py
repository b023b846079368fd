from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.reference_metrics import naive_score
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from longtail.metrics import PerDocument, inverse_propensities, measure, score, top_k
from longtail.types import Csr, TopK

Case = Callable[[int], tuple[TopK, Csr, NDArray[np.float64]]]

SEEDS = st.integers(0, 10**6)


@pytest.fixture(scope="module")
def golden() -> tuple[TopK, Csr, NDArray[np.float64]]:
    """A small example whose values were computed by another program."""
    ids = np.array([[2, 0, 1, 3, 4], [0, 3, 1, 5, 2], [1, 2, 0, 4, 3], [0, 1, 2, 3, 4]], dtype=np.int32)
    truth = np.zeros((4, 6), dtype=np.float32)
    truth[[0, 0, 1, 1, 1, 2], [0, 2, 1, 3, 4, 0]] = 1
    scores = np.tile(np.arange(5, 0, -1, dtype=np.float32), (4, 1))
    return TopK(ids, scores), csr_array(truth), inverse_propensities([6, 4, 2, 1, 1, 0], 10, 0.55, 1.5)


GOLDEN = {
    1: {"P": 0.25, "nDCG": 0.25, "PSP": 0.341567, "PSnDCG": 0.341567, "R": 0.125, "FN": 0.875},
    3: {"P": 0.416667, "nDCG": 0.507680, "PSP": 0.807406, "PSnDCG": 0.668752, "R": 0.666667, "FN": 0.333333},
    5: {"P": 0.25, "nDCG": 0.507680, "PSP": 0.807406, "PSnDCG": 0.668752, "R": 0.666667, "FN": 0.333333},
}


@pytest.mark.claim("F1")
@pytest.mark.parametrize("k", GOLDEN)
def test_golden_example(k: int, golden: tuple[TopK, Csr, NDArray[np.float64]]) -> None:
    table = score(*golden)
    assert {metric: table[f"{metric}@{k}"] / 100 for metric in GOLDEN[k]} == pytest.approx(GOLDEN[k], abs=1e-6)


@pytest.mark.claim("F1")
def test_golden_example_without_the_empty_document(golden: tuple[TopK, Csr, NDArray[np.float64]]) -> None:
    table = score(*golden, skip_empty=True)
    expected = {"P@3": 55.5556, "R@3": 88.8889, "nDCG@3": 67.6907, "FN@3": 11.1111, "PSP@3": 80.7406}
    assert {name: table[name] for name in expected} == pytest.approx(expected, abs=1e-4)


@pytest.mark.claim("F3")
def test_psp_is_a_ratio_of_means(golden: tuple[TopK, Csr, NDArray[np.float64]]) -> None:
    measured = measure(*golden)
    assert measured.values()["PSP@3"] / 100 == pytest.approx(0.807406, abs=1e-6)
    at = measured.names.index("PSP@3")
    best = measured.denominators[:3, measured.divisor[at]]
    assert np.mean(measured.numerators[:3, at] / best) == pytest.approx(0.880993, abs=1e-6), "the wrong way gives this"


@settings(deadline=None, max_examples=200)
@given(
    seed=SEEDS,
    skip_empty=st.booleans(),
    ks=st.sampled_from([(1, 3, 5), (2,), (1, 12)]),
    recall_ks=st.sampled_from([(10, 100), (3, 4), ()]),
)
def test_agrees_with_the_naive_loop(
    seed: int, skip_empty: bool, ks: tuple[int, ...], recall_ks: tuple[int, ...], case: Case
) -> None:
    top, targets, weights = case(seed)
    table = score(top, targets, weights, ks, recall_ks, skip_empty)
    rankings = [[label for label in row if label >= 0] for row in top.ids.tolist()]
    truths = [set(np.flatnonzero(row).tolist()) for row in targets.toarray()]
    expected = naive_score(rankings, truths, weights.tolist(), ks, recall_ks, skip_empty)
    assert set(table) == set(expected)
    assert table == pytest.approx(expected, abs=1e-9)


@pytest.mark.claim("F2")
@settings(deadline=None, max_examples=200)
@given(seed=SEEDS)
def test_at_one_place_discounting_changes_nothing(seed: int, case: Case) -> None:
    table = score(*case(seed))
    assert table["P@1"] == pytest.approx(table["nDCG@1"], abs=1e-9)
    assert table["P@1"] == pytest.approx(table["Hits@1"], abs=1e-9)
    assert table["PSP@1"] == pytest.approx(table["PSnDCG@1"], abs=1e-9)


@pytest.mark.claim("F2")
@settings(deadline=None, max_examples=200)
@given(seed=SEEDS)
def test_a_perfect_ranking_reaches_100(seed: int, case: Case) -> None:
    _, targets, weights = case(seed)
    perfect = targets.copy()
    perfect.data = weights[perfect.indices]
    table = score(top_k(perfect, 100), targets, weights, skip_empty=True)
    for name in ("nDCG", "PSP", "PSnDCG", "PSR", "Hits"):
        assert [table[f"{name}@{k}"] for k in (1, 3, 5)] == pytest.approx([100] * 3, abs=1e-9)
    assert (table["R@100"], table["FN@100"]) == pytest.approx((100, 0), abs=1e-9)


@pytest.mark.claim("F2")
@settings(deadline=None, max_examples=200)
@given(seed=SEEDS)
def test_the_order_of_documents_does_not_matter(seed: int, case: Case) -> None:
    top, targets, weights = case(seed)
    order = np.random.default_rng(seed).permutation(len(top))
    shuffled = score(TopK(top.ids[order], top.scores[order]), targets[order], weights)
    assert shuffled == pytest.approx(score(top, targets, weights), abs=1e-9)


@pytest.mark.claim("F2")
@settings(deadline=None, max_examples=200)
@given(seed=SEEDS, transform=st.sampled_from([np.exp, np.cbrt, lambda x: 3 * x - 7, lambda x: x**3]))
def test_only_the_order_of_scores_matters(
    seed: int, transform: Callable[[NDArray[np.float64]], NDArray[np.float64]], case: Case
) -> None:
    _, targets, weights = case(seed)
    rng = np.random.default_rng(seed)
    scores = csr_array(np.where(rng.random(targets.shape) < 0.7, rng.integers(-4, 5, targets.shape) + 0.5, 0.0))
    transformed = scores.copy()
    transformed.data = transform(scores.data)
    assert score(top_k(scores, 6), targets, weights) == pytest.approx(
        score(top_k(transformed, 6), targets, weights), abs=1e-9
    )


@settings(deadline=None, max_examples=50)
@given(seed=SEEDS)
def test_recall_and_misses_are_complements_and_values_lie_in_bounds(seed: int, case: Case) -> None:
    for skip_empty in (False, True):
        table = score(*case(seed), skip_empty=skip_empty)
        for k in (1, 3, 5, 10, 100):
            assert table[f"R@{k}"] + table[f"FN@{k}"] == pytest.approx(100, abs=1e-9)
        assert all(-1e-9 <= value <= 100 + 1e-9 for value in table.values())


def test_names_come_metric_by_metric() -> None:
    names = list(
        score(
            TopK(np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)),
            csr_array(np.ones((1, 1))),
            np.ones(1),
            (1, 3),
            (3, 10),
        )
    )
    assert names == [
        "P@1",
        "P@3",
        "nDCG@1",
        "nDCG@3",
        "PSP@1",
        "PSP@3",
        "PSnDCG@1",
        "PSnDCG@3",
        "PSR@1",
        "PSR@3",
        "Hits@1",
        "Hits@3",
        "F1@1",
        "F1@3",
        "R@1",
        "R@3",
        "R@10",
        "FN@1",
        "FN@3",
        "FN@10",
    ]


def test_truth_without_any_label_gives_zero_and_no_warning() -> None:
    top, nothing = TopK(np.zeros((2, 1), np.int32), np.ones((2, 1), np.float32)), csr_array((2, 3), dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {
            name: value
            for name, value in score(top, nothing, np.ones(3)).items()
            if value and not name.startswith("FN")
        } == {}
        assert set(score(top, nothing, np.ones(3), skip_empty=True).values()) == {0.0}


def test_weights_must_fit_the_labels(case: Case) -> None:
    top, targets, weights = case(1)
    with pytest.raises(ValueError, match="inverse propensities"):
        score(top, targets, weights[:-1])


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS)
def test_metrics_of_parts_add_up(seed: int, case: Case) -> None:
    """Numerators and denominators are per document: those of some documents are those rows."""
    top, targets, weights = case(seed)
    assume(len(top) > 1)
    whole, rows = measure(top, targets, weights), np.arange(len(top)) % 2 == 0
    part = measure(TopK(top.ids[rows], top.scores[rows]), targets[rows], weights)
    assert len(whole) == len(top)
    same_rows = PerDocument(whole.names, whole.numerators[rows], whole.denominators[rows], whole.divisor)
    assert part.values() == pytest.approx(same_rows.values(), abs=1e-9)
