"""Every sampler keeps its promises on every kind of data, and draws what its name says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.errors import ConfigError, DataError
from longtail.persistence import load_part, save_part
from longtail.recipes.astec.ranker import InBatchNegatives, InstanceVote, MergedShortlist
from longtail.search.negatives import (
    Negatives,
    RandomNegatives,
    ShortlistNegatives,
    WithRandom,
    candidates,
    forbidden_pairs,
)
from longtail.search.shortlist import LabelIndex
from longtail.types import F32, I32, I64, Csr


class Data:
    def __init__(self, documents: int, labels: int, share: float, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.vectors: F32 = rng.random((documents, 6)).astype(np.float32)
        self.y: Csr = csr_array((rng.random((documents, labels)) < share).astype(np.float32))
        self.masked: I64 = np.stack([rng.integers(0, documents, 40), rng.integers(0, labels, 40)], axis=1)
        self.forbidden = forbidden_pairs(self.y, self.masked)
        self.rows: I64 = rng.permutation(documents)[: documents // 2 + 1]


def head_heavy() -> Data:
    """A label with every document, a document with every label, and one without any."""
    data = Data(50, 30, 0.1, 1)
    targets = data.y.toarray()
    targets[:, 0], targets[7], targets[9] = 1, 1, 0
    data.y = csr_array(targets)
    data.forbidden = forbidden_pairs(data.y, data.masked)
    return data


DATA: dict[str, Callable[[], Data]] = {
    "many-labels": lambda: Data(60, 3000, 0.001),
    "few-labels": lambda: Data(40, 12, 0.2),
    "head-heavy": head_heavy,
}
COUNT = 10
SAMPLERS: dict[str, Callable[[Data], Negatives]] = {
    "uniform": lambda d: RandomNegatives(d.forbidden, COUNT),
    "unigram": lambda d: RandomNegatives.unigram(d.y, d.forbidden, COUNT),
    "label-index": lambda d: ShortlistNegatives.mine(LabelIndex.build(d.vectors, d.y), d.vectors, d.forbidden, COUNT),
    "instance-vote": lambda d: ShortlistNegatives.mine(
        InstanceVote.build(d.vectors, d.y), d.vectors, d.forbidden, COUNT
    ),
    "both": lambda d: ShortlistNegatives.mine(both(d), d.vectors, d.forbidden, COUNT),
    "both-and-random": lambda d: WithRandom(
        ShortlistNegatives.mine(both(d), d.vectors, d.forbidden, COUNT - 4), RandomNegatives(d.forbidden, 4)
    ),
    "in-batch": lambda d: InBatchNegatives(d.y, d.forbidden, COUNT),
}


def both(d: Data) -> MergedShortlist:
    return MergedShortlist(LabelIndex.build(d.vectors, d.y), InstanceVote.build(d.vectors, d.y))


@pytest.fixture(params=sorted(DATA))
def data(request: pytest.FixtureRequest) -> Data:
    return DATA[request.param]()


@pytest.fixture(params=sorted(SAMPLERS))
def sampler(request: pytest.FixtureRequest) -> Any:
    return SAMPLERS[request.param]


def lists(drawn: I32) -> list[list[int]]:
    return [row[row >= 0].tolist() for row in drawn]


@pytest.mark.claim("F8")
def test_never_a_positive_or_masked_pair_always_valid_unique_and_within_the_cap(data: Data, sampler: Any) -> None:
    negatives = sampler(data)
    assert isinstance(negatives, Negatives)
    positive = data.y.toarray() > 0
    cap = COUNT
    found = 0
    for seed in range(3):
        drawn = negatives.draw(data.rows, np.random.default_rng(seed))
        assert drawn.dtype == np.int32
        assert drawn.shape == (len(data.rows), cap)
        assert ((drawn >= -1) & (drawn < data.y.shape[1])).all()
        for document, labels in zip(data.rows, lists(drawn), strict=True):
            assert len(set(labels)) == len(labels) <= cap
            assert not positive[document, labels].any()
            assert not set(labels) & set(data.masked[data.masked[:, 0] == document, 1])
            found += len(labels)
    assert found > 0


def test_same_generator_same_negatives_whatever_the_threads(
    data: Data, sampler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("longtail.search.negatives", "longtail.recipes.astec.ranker"):
        monkeypatch.setattr(f"{module}.DOCUMENTS_PER_THREAD", 1)
    negatives = sampler(data)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        one = negatives.draw(data.rows, np.random.default_rng(5))
    finally:
        numba.set_num_threads(before)
    assert np.array_equal(one, negatives.draw(data.rows, np.random.default_rng(5)))


def test_one_label_one_document(sampler: Any) -> None:
    """Nothing can be negative, and that is no error."""
    only = Data(1, 1, 1.0)
    assert (sampler(only).draw(np.array([0]), np.random.default_rng(0)) == -1).all()
    assert sampler(DATA["few-labels"]()).draw(np.zeros(0, np.int64), np.random.default_rng(0)).shape[0] == 0


def test_random_ones_are_as_many_as_asked_for_where_there_are_enough(data: Data) -> None:
    drawn = RandomNegatives(data.forbidden, COUNT).draw(data.rows, np.random.default_rng(0))
    allowed = data.y.shape[1] - data.forbidden.toarray()[data.rows].sum(axis=1)
    assert ((drawn >= 0).sum(axis=1) == np.minimum(allowed, COUNT)).all()


def frequencies(negatives: RandomNegatives, labels: int, draws: int) -> Any:
    drawn = negatives.draw(np.zeros(draws, np.int64), np.random.default_rng(0))
    return np.bincount(drawn[drawn >= 0], minlength=labels) / draws


@pytest.mark.parametrize("labels", [6, 40])  # a small pool is enumerated, a large one drawn and rejected
def test_uniform_is_uniform_over_what_is_allowed(labels: int) -> None:
    forbidden = csr_array((np.ones(2, np.float32), (np.array([0, 0]), np.array([1, 4]))), shape=(1, labels))
    share = frequencies(RandomNegatives(forbidden, 1), labels, 40_000)
    assert share[[1, 4]].tolist() == [0, 0]
    assert np.allclose(np.delete(share, [1, 4]), 1 / (labels - 2), atol=0.01)


@pytest.mark.parametrize("labels", [4, 40])
def test_weights_are_followed(labels: int) -> None:
    weights = np.zeros(labels, np.float32)
    weights[:4] = [1, 2, 0, 5]
    share = frequencies(RandomNegatives(csr_array((1, labels), dtype=np.float32), 1, weights), labels, 40_000)
    assert np.allclose(share, weights / weights.sum(), atol=0.01)


@pytest.mark.parametrize("labels", [4, 40])
def test_labels_without_weight_do_not_fill_up(labels: int) -> None:
    weights = np.zeros(labels, np.float32)
    weights[[0, 3]] = [1, 2]
    for count in (3, 4):
        drawn = RandomNegatives(csr_array((1, labels), dtype=np.float32), count, weights).draw(
            np.array([0]), np.random.default_rng(0)
        )
        assert sorted(lists(drawn)[0]) == [0, 3]


def test_weights_without_replacement_match_successive_draws() -> None:
    """Two of three labels: P(label 0 is in) = p0 + sum over first picks j of p_j p0 / (1 - p_j); for both ways of
    drawing.
    """
    p = np.array([0.2, 0.3, 0.5])
    expected = [p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(3) if j != i) for i in range(3)]
    for labels in (3, 30):
        weights = np.concatenate([p, np.zeros(labels - 3)]).astype(np.float32)
        share = frequencies(RandomNegatives(csr_array((1, labels), dtype=np.float32), 2, weights), labels, 40_000)
        assert np.allclose(share[:3], expected, atol=0.01)


def test_unigram_goes_by_frequency() -> None:
    y = csr_array(np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]], dtype=np.float32))
    share = frequencies(RandomNegatives.unigram(y, csr_array((4, 3), dtype=np.float32), 1), 3, 40_000)
    assert np.allclose(share, np.array([4**0.75, 1, 0]) / (4**0.75 + 1), atol=0.01)


@pytest.mark.parametrize("weights", [[1, 1], [0, 0, 0], [1, -1, 1], [1, np.nan, 1]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(DataError, match="weights of 3 labels"):
        RandomNegatives(csr_array((1, 3), dtype=np.float32), 1, np.array(weights, np.float32))


def test_extras_are_new_each_time_and_differ_from_the_hard_ones() -> None:
    data = DATA["many-labels"]()
    hard = ShortlistNegatives.mine(LabelIndex.build(data.vectors, data.y), data.vectors, data.forbidden, 30)
    mixed, rng = WithRandom(hard, RandomNegatives(data.forbidden, 20)), np.random.default_rng(0)
    first, second = mixed.draw(data.rows, rng), mixed.draw(data.rows, rng)
    assert np.array_equal(first[:, :30], hard.ids[data.rows])
    assert np.array_equal(second[:, :30], first[:, :30])
    assert not np.array_equal(first[:, 30:], second[:, 30:])


def test_extras_avoid_the_hard_ones_even_when_few_are_left() -> None:
    forbidden = csr_array((np.ones(1, np.float32), (np.array([0]), np.array([0]))), shape=(1, 8))
    drawn = RandomNegatives(forbidden, 5).draw(
        np.array([0]), np.random.default_rng(0), avoid=np.array([[3, 5, -1, 6]], dtype=np.int32)
    )
    assert sorted(drawn[0].tolist()) == [-1, 1, 2, 4, 7]


def test_shortlist_negatives_are_the_shortlist_without_what_is_forbidden() -> None:
    data = DATA["head-heavy"]()
    shortlister = both(data)
    mined = ShortlistNegatives.mine(shortlister, data.vectors, data.forbidden, 5)
    found = shortlister.query(data.vectors, 10, exclude=np.arange(50))
    for document in range(50):
        if document == 7:
            continue  # every label is forbidden
        allowed = [
            label for label in found.ids[document] if label >= 0 and not data.forbidden.toarray()[document, label]
        ][:5]
        assert lists(mined.ids)[document][: len(allowed)] == allowed
    assert lists(mined.ids)[7] == []


def test_mining_in_blocks_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows keep their own number in every block: each is left out of its own neighbours, and loses its own
    positives.
    """
    data = Data(90, 25, 0.1)
    data.y = csr_array(
        np.eye(90, 25, dtype=np.float32) + np.eye(90, 25, -25, dtype=np.float32) + np.eye(90, 25, -50, dtype=np.float32)
    )
    forbidden, vote = forbidden_pairs(data.y), InstanceVote.build(data.vectors, data.y, neighbours=4)
    whole = ShortlistNegatives.mine(vote, data.vectors, forbidden, 6).ids
    monkeypatch.setattr("longtail.search.negatives._BLOCK", 7)
    assert np.array_equal(ShortlistNegatives.mine(vote, data.vectors, forbidden, 6).ids, whole)


def test_shortlist_negatives_are_saved_and_loaded(tmp_path: Path) -> None:
    negatives = ShortlistNegatives(np.arange(12, dtype=np.int32).reshape(4, 3))
    save_part(negatives, tmp_path / "part")
    assert np.array_equal(
        load_part(tmp_path / "part").draw(np.array([2, 0]), np.random.default_rng(0)), [[6, 7, 8], [0, 1, 2]]
    )


def test_in_batch_offers_what_the_others_have() -> None:
    y = csr_array(np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]], dtype=np.float32))
    batch = InBatchNegatives(y, forbidden_pairs(y, np.array([[1, 3]])), 3)
    assert [set(found) for found in lists(batch.draw(np.array([0, 1, 2]), np.random.default_rng(0)))] == [
        {2, 3},
        {0, 1},
        {0, 1},
    ]
    chosen = {
        tuple(sorted(lists(batch.draw(np.array([3, 0, 2]), np.random.default_rng(seed)))[0])) for seed in range(40)
    }
    assert chosen == {(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)}  # 4 labels for 3 places: every choice occurs


def test_forbidden_is_the_union() -> None:
    y = csr_array(np.array([[1, 0, 0], [0, 2, 0]], dtype=np.float32))
    assert forbidden_pairs(y, np.array([[0, 2], [0, 2], [0, 0]])).toarray().tolist() == [[1, 0, 1], [0, 1, 0]]
    assert forbidden_pairs(y).toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert y.toarray().tolist() == [[1, 0, 0], [0, 2, 0]]


@given(st.integers(0, 300), st.integers(1, 6))
@settings(deadline=None, max_examples=50)
def test_candidates_are_positives_then_negatives(seed: int, max_positives: int) -> None:
    data = Data(20, 30, 0.15, seed)
    negatives = ShortlistNegatives(RandomNegatives(data.forbidden, 7).draw(np.arange(20), np.random.default_rng(seed)))
    made = candidates(data.rows, data.y, negatives, np.random.default_rng(seed), max_positives=max_positives)
    for row, document in enumerate(data.rows):
        ids, targets, mask = made.ids[row], made.targets[row], made.mask[row]
        positives = set(np.flatnonzero(data.y.toarray()[document]).tolist())
        count = min(len(positives), max_positives)
        assert targets.tolist() == [1.0] * count + [0.0] * (len(ids) - count)
        assert set(ids[:count].tolist()) <= positives
        assert ids[count : count + 7].tolist() == negatives.ids[document].tolist()
        assert mask.tolist() == [True] * (count + 7) + [False] * (len(ids) - count - 7)
        assert (ids[~mask] == -1).all()
        assert len(set(ids[mask].tolist())) == mask.sum()


def test_a_document_with_many_positives_gets_each_of_them_in_turn() -> None:
    y = csr_array(np.concatenate([np.ones((1, 10)), np.zeros((1, 2))], axis=1).astype(np.float32))
    made = candidates(
        np.zeros(2000, np.int64),
        y,
        RandomNegatives(forbidden_pairs(y), y.shape[1]),
        np.random.default_rng(0),
        max_positives=3,
    )
    seen = np.bincount(made.ids[:, :3].ravel(), minlength=12) / 2000
    assert np.allclose(seen[:10], 0.3, atol=0.05)


@pytest.mark.parametrize(
    "make", [lambda d: RandomNegatives(d.forbidden, 0), lambda d: InBatchNegatives(d.y, d.forbidden, -1)]
)
def test_a_count_below_one_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make(DATA["few-labels"]())
