from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.metrics import constants_for, inverse_propensities
from longtail.metrics.scores import AMAZON, DEFAULT, WIKIPEDIA


@pytest.mark.claim("F1")
def test_golden_example() -> None:
    expected = [1.711852, 1.844255, 2.082519, 2.302585, 2.302585, 2.725134]
    assert inverse_propensities([6, 4, 2, 1, 1, 0], 10, 0.55, 1.5) == pytest.approx(expected, abs=1e-6)


@pytest.mark.claim("F4")
@given(
    counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=20),
    n=st.integers(3, 10**8),
    a=st.floats(0.1, 1.0),
    b=st.floats(0.1, 5.0),
)
def test_propensity_is_a_probability_that_grows_with_frequency(counts: list[int], n: int, a: float, b: float) -> None:
    p = 1 / inverse_propensities(counts, n, a, b)
    assert ((p > 0) & (p < 1)).all()
    closed_form = [1 / (1 + (math.log(n) - 1) * (b + 1) ** a * math.exp(-a * math.log(count + b))) for count in counts]
    assert p == pytest.approx(closed_form, abs=1e-9)
    for i, first in enumerate(counts):
        for j, second in enumerate(counts):
            assert first >= second or p[i] < p[j]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_with_fewer_documents_than_the_model_needs_all_labels_count_alike(n: int) -> None:
    assert inverse_propensities([0, 1, n], n, 0.55, 1.5).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("counts", "n", "a", "b"), [([-1], 10, 0.5, 0.4), ([1], -1, 0.5, 0.4), ([1], 10, 0.0, 0.4), ([1], 10, 0.5, 0.0)]
)
def test_impossible_numbers_are_refused(counts: list[int], n: int, a: float, b: float) -> None:
    with pytest.raises(ValueError, match=r"positive|negative"):
        inverse_propensities(np.array(counts), n, a, b)


@pytest.mark.parametrize(
    "name",
    [
        "Wikipedia-500K",
        "LF-Wikipedia-500K",
        "WikiTitles-500K",
        "LF-WikiTitles-500K",
        "lf_wikititles_500k",
        "WikiLSHTC-325K",
        "wiki-500k",
    ],
)
def test_wikipedia_family(name: str) -> None:
    assert constants_for(name) == WIKIPEDIA
    assert (WIKIPEDIA.a, WIKIPEDIA.b) == (0.5, 0.4)


@pytest.mark.parametrize(
    "name",
    [
        "Amazon-670K",
        "Amazon-3M",
        "LF-Amazon-131K",
        "LF-AmazonTitles-131K",
        "lf_amazontitles_131k",
        "AmazonTitles-670K",
        "LF-AmazonTitles-1.3M",
        "LF_AmazonTitles_1_3M",
        "AmazonTitles-3M",
        "LF-AmazonTitles-131K[held out 0.1, seed 0]",
    ],
)
def test_amazon_family(name: str) -> None:
    assert constants_for(name) == AMAZON
    assert (AMAZON.a, AMAZON.b) == (0.6, 2.6)


@pytest.mark.parametrize(
    "name",
    [
        "AmazonCat-13K",
        "LF-WikiSeeAlso-320K",
        "LF-WikiSeeAlsoTitles-320K",
        "LF-WikiSeeAlsoTitles-500K",
        "EURLex-4K",
        "Wiki10-31K",
        "yso-finna-en",
        "wordnet-related",
        "amazon",
        "Amazon-3Months",
        "",
    ],
)
def test_all_others(name: str) -> None:
    assert constants_for(name) == DEFAULT
    assert (DEFAULT.a, DEFAULT.b) == (0.55, 1.5)


def test_constants_can_be_printed() -> None:
    assert str(constants_for("Amazon-3M")) == "A=0.6 B=2.6 (amazon)"
