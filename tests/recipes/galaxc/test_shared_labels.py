"""The labels that a batch shares, against plain sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.errors import ConfigError
from longtail.recipes.galaxc.objective import BatchLabels, hard_labels, random_labels
from longtail.search.negatives import ShortlistNegatives


@pytest.mark.claim("F8")
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_step_has_every_positive_and_no_masked_pair(data: st.DataObject) -> None:
    n, labels = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 10))
    targets = [data.draw(st.sets(st.integers(0, labels - 1), max_size=4)) for _ in range(n)]
    masked = {
        (row, label)
        for row in range(n)
        for label in data.draw(st.sets(st.integers(0, labels - 1), max_size=3))
        if label not in targets[row]
    }
    y = np.zeros((n, labels), np.float32)
    for row, own in enumerate(targets):
        y[row, list(own)] = 1
    count = data.draw(st.integers(0, labels + 2))
    made = BatchLabels(
        csr_array(y), np.array(sorted(masked), dtype=np.int64).reshape(-1, 2), random_labels(labels, count)
    )
    for seed in range(3):
        rows = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=6)), dtype=np.int64)
        shared = made.draw(rows, np.random.default_rng(seed))
        names = shared.labels.tolist()
        assert names == sorted(set(names))
        assert set().union(*(targets[row] for row in rows)) <= set(names) <= set(range(labels))
        assert len(names) >= min(count, labels)
        for place, row in enumerate(rows.tolist()):
            places = shared.places[shared.starts[place] : shared.starts[place + 1]]
            assert {names[at] for at in places} == targets[row]
            ignored = {names[at] for document, at in shared.ignored.tolist() if document == place}
            assert ignored == {label for document, label in masked if document == row and label in names}
            assert not ignored & targets[row]


def test_random_labels_are_different_and_drawn_anew() -> None:
    more = random_labels(1000, 50)
    rng = np.random.default_rng(0)
    one, other = (more(np.arange(3), rng) for _ in range(2))
    assert len(set(one.tolist())) == 50
    assert set(one.tolist()) != set(other.tolist())
    assert random_labels(5, 9)(np.arange(2), rng).tolist() == [0, 1, 2, 3, 4]
    assert len(random_labels(5, 0)(np.arange(2), rng)) == 0
    with pytest.raises(ConfigError, match="-1"):
        random_labels(5, -1)


def test_hard_labels_are_of_the_documents_of_the_batch() -> None:
    ids: Any = np.arange(40, dtype=np.int32).reshape(4, 10)
    ids[2, 5:] = -1
    rng = np.random.default_rng(0)
    drawn = hard_labels(ShortlistNegatives(ids), 3)(np.array([1, 2]), rng)
    assert len(drawn) == 6
    assert set(drawn[:3].tolist()) <= set(range(10, 20))
    assert set(drawn[3:].tolist()) <= {20, 21, 22, 23, 24, -1}
    everything = hard_labels(ShortlistNegatives(ids), 10)(np.array([0]), rng)
    assert sorted(everything.tolist()) == list(range(10))
    y = csr_array(np.zeros((4, 40), np.float32))
    shared = BatchLabels(y, np.zeros((0, 2), np.int64), hard_labels(ShortlistNegatives(ids), 10)).draw(
        np.array([0, 2]), rng
    )
    assert shared.labels.tolist() == [*range(10), *range(20, 25)], "padding is no label"
