"""Votes, merges and several centroids per label against plain loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.errors import BundleError, ConfigError
from longtail.graph.ops import unit_rows
from longtail.persistence import load_part, save_part, write_json
from longtail.recipes.astec.ranker import InstanceVote, MergedShortlist
from longtail.search.index import ExactIndex, Heaps
from longtail.search.kernels.shortlist import keep_best
from longtail.search.shortlist import LabelIndex
from longtail.types import F32, Csr, TopK


def data(seed: int, documents: int = 40, labels: int = 12, share: float = 0.15) -> tuple[F32, Csr]:
    rng = np.random.default_rng(seed)
    return rng.random((documents, 6)).astype(np.float32), csr_array(
        (rng.random((documents, labels)) < share).astype(np.float32)
    )


def ranked(scores: dict[int, float], k: int) -> list[int]:
    return sorted(scores, key=lambda label: (-scores[label], label))[:k]


@given(st.integers(0, 200), st.integers(1, 15), st.booleans())
@settings(deadline=None, max_examples=40)
def test_votes_are_sums_of_cosines_over_the_largest(seed: int, neighbours: int, excluded: bool) -> None:
    vectors, y = data(seed)
    found = InstanceVote.build(vectors, y, neighbours=neighbours).query(
        vectors, 6, exclude=np.arange(40) if excluded else None
    )
    units, targets = unit_rows(vectors), y.toarray()
    for row in range(40):
        cosines = units @ units[row]
        if excluded:
            cosines[row] = -np.inf
        sums: dict[int, float] = {}
        for document in np.argsort(-cosines, kind="stable")[: min(neighbours, 39 if excluded else 40)]:
            for label in np.flatnonzero(targets[document]):
                sums[int(label)] = sums.get(int(label), 0.0) + float(cosines[document])
        largest = max(sums.values(), default=1.0)
        real = found.ids[row][found.ids[row] >= 0]
        assert len(real) == min(6, len(sums))
        assert np.allclose(
            found.scores[row][: len(real)],
            sorted((s / largest for s in sums.values()), reverse=True)[: len(real)],
            atol=1e-5,
        )
        assert np.allclose([sums[int(label)] / largest for label in real], found.scores[row][: len(real)], atol=1e-5)


def test_a_document_does_not_vote_for_itself_but_its_copy_does() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    vote = InstanceVote.build(vectors, csr_array(np.eye(3, dtype=np.float32)), neighbours=1)
    assert vote.query(vectors, 1, exclude=np.arange(3)).ids[:2].tolist() == [[1], [0]]
    assert vote.query(vectors, 1).ids.tolist() == [[0], [0], [2]]
    assert vote.query(vectors[:2], 2, exclude=np.array([-1, 0])).ids.tolist() == [
        [0, -1],
        [1, -1],
    ]  # one voter either way


def test_only_similar_documents_vote() -> None:
    vectors = np.array([[1, 0], [-1, 0.1], [0, 0]], dtype=np.float32)
    vote = InstanceVote.build(vectors, csr_array(np.eye(3, dtype=np.float32)), neighbours=3)
    assert vote.query(vectors[:1], 3).ids.tolist() == [[0, -1, -1]]
    assert vote.query(vectors[2:], 3).ids.tolist() == [[-1, -1, -1]]  # similar to none


def test_equal_votes_are_ordered_by_label() -> None:
    y = csr_array(np.array([[0, 1, 0, 1], [1, 0, 1, 0]], dtype=np.float32))
    vote = InstanceVote.build(np.ones((2, 3), np.float32), y, neighbours=2)
    assert vote.query(np.ones((1, 3), np.float32), 3).ids.tolist() == [[0, 1, 2]]


def test_label_index_is_the_cosine_to_centroids() -> None:
    vectors, y = data(1)
    found = LabelIndex.build(vectors, y).query(vectors, 12)
    targets = y.toarray()
    centroids = {label: vectors[targets[:, label] > 0].sum(axis=0) for label in range(12) if targets[:, label].any()}
    for row in range(40):
        cosines = {
            label: float(c @ vectors[row] / np.linalg.norm(c) / np.linalg.norm(vectors[row]))
            for label, c in centroids.items()
        }
        assert np.allclose(found.scores[row][: len(cosines)], sorted(cosines.values(), reverse=True), atol=1e-5)
        assert np.allclose(
            [cosines[int(label)] for label in found.ids[row][: len(cosines)]],
            found.scores[row][: len(cosines)],
            atol=1e-5,
        )


def head_label(seed: int) -> tuple[F32, Csr]:
    """Label 0 has five topics that differ; labels 1 to 5 are the topics themselves, with fewer documents."""
    rng = np.random.default_rng(seed)
    topic = np.repeat(np.arange(5), 30)
    vectors = (np.eye(5, 8)[topic] + 0.15 * rng.random((150, 8))).astype(np.float32)
    targets = np.zeros((150, 6), np.float32)
    targets[:, 0] = 1
    targets[np.arange(150), topic + 1] = rng.random(150) < 0.4
    return vectors, csr_array(targets)


def test_several_centres_bring_a_head_label_near_all_its_topics() -> None:
    vectors, y = head_label(0)
    one = LabelIndex.build(vectors, y)
    several = LabelIndex.build(vectors, y, head_centres=5, head_documents=100, rng=np.random.default_rng(0))
    assert len(one.owners) == 6
    assert np.bincount(several.owners).tolist() == [6, 1, 1, 1, 1, 1]

    def score_of(found: TopK, label: int) -> F32:
        return found.scores[found.ids == label]

    before, after = one.query(vectors, 6), several.query(vectors, 6)
    assert (score_of(after, 0) > score_of(before, 0)).all()
    for label in range(1, 6):
        assert np.allclose(score_of(after, label), score_of(before, label), atol=1e-6)
    # By its own definition: the best of all rows that a label owns.
    assert isinstance(several.index, ExactIndex)
    cosines = unit_rows(vectors) @ several.index.vectors.T
    assert np.allclose(score_of(after, 0), cosines[:, several.owners == 0].max(axis=1), atol=1e-6)


def test_labels_with_fewer_documents_than_centres_keep_their_mean() -> None:
    vectors, y = head_label(1)
    assert (
        len(LabelIndex.build(vectors, y, head_centres=151, head_documents=10, rng=np.random.default_rng(0)).owners) == 6
    )


@pytest.mark.parametrize("k", [1, 3, 8, 20])
def test_many_centres_of_one_label_do_not_crowd_out_others(k: int) -> None:
    """All rows near the query belong to label 0: the index must be asked again until k labels are found."""
    rng = np.random.default_rng(0)
    near, far = np.array([1, 0, 0]) + 0.01 * rng.random((60, 3)), np.array([0, 1, 0]) + 0.3 * rng.random((9, 3))
    owners = np.concatenate([np.zeros(60), np.arange(1, 10)]).astype(np.int32)
    labels = LabelIndex(ExactIndex.build(np.concatenate([near, far]).astype(np.float32)), owners)
    found = labels.query(np.array([[1, 0, 0], [0, 1, 0]], dtype=np.float32), k)
    assert ((found.ids >= 0).sum(axis=1) == min(k, 10)).all()
    assert found.ids[0, 0] == 0
    if k >= 10:
        assert found.ids[1, 9] == 0


def merge_by_hand(near: TopK, voted: TopK, gamma: float, k: int, reserved: int) -> list[dict[int, float]]:
    """The formula with dictionaries; rounded to float32 where the kernel rounds, so that equal scores are equal in
    both.
    """
    lists = []
    for row in range(len(near)):
        cosine = {int(i): float(s) for i, s in zip(near.ids[row], near.scores[row], strict=True) if i >= 0}
        votes = {int(i): float(s) for i, s in zip(voted.ids[row], voted.scores[row], strict=True) if i >= 0}
        scores = {
            label: float(
                np.float32(float(np.float32((1 - gamma) * cosine.get(label, 0.0))) + gamma * votes.get(label, 0.0))
            )
            for label in cosine.keys() | votes.keys()
        }
        own = ranked({label: s for label, s in scores.items() if label not in cosine}, reserved)
        rest = ranked({label: s for label, s in scores.items() if label not in own}, k - len(own))
        lists.append({label: scores[label] for label in [*own, *rest]})
    return lists


@given(
    st.integers(0, 200),
    st.sampled_from([0.0, 0.075, 0.5, 1.0]),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    st.integers(1, 9),
)
@settings(deadline=None, max_examples=60)
def test_merge_follows_the_formula(seed: int, gamma: float, reserved: float, k: int) -> None:
    vectors, y = data(seed, labels=30, share=0.08)
    labels, instances = LabelIndex.build(vectors, y), InstanceVote.build(vectors, y, neighbours=6)
    rows = np.arange(40)
    found = MergedShortlist(labels, instances, gamma, reserved).query(vectors, k, exclude=rows)
    expected = merge_by_hand(labels.query(vectors, k), instances.query(vectors, k, rows), gamma, k, int(reserved * k))
    for row in range(40):
        order = ranked(expected[row], k)
        assert found.ids[row].tolist() == order + [-1] * (k - len(order))
        assert found.scores[row][: len(order)].tolist() == [expected[row][label] for label in order]


def test_reserved_places_let_labels_in_that_only_votes_find() -> None:
    vectors, y = data(3, documents=200, labels=80, share=0.02)
    labels, instances = LabelIndex.build(vectors, y), InstanceVote.build(vectors, y, neighbours=30)

    def news(lists: TopK) -> list[int]:
        near = labels.query(vectors, 10)
        return [len(np.setdiff1d(lists.ids[row], [*near.ids[row], TopK.PAD])) for row in range(200)]

    possible = news(instances.query(vectors, 10))
    assert max(possible) > 3
    assert news(MergedShortlist(labels, instances, 0.075, 0.0).query(vectors, 10)) == [0] * 200
    assert news(MergedShortlist(labels, instances, 0.075, 0.3).query(vectors, 10)) == [min(3, n) for n in possible]


@pytest.mark.parametrize(("gamma", "reserved"), [(-0.1, 0.0), (1.1, 0.0), (0.5, -1.0), (0.5, 2.0)])
def test_refuses_shares_out_of_bounds(gamma: float, reserved: float) -> None:
    vectors, y = data(0)
    with pytest.raises(ConfigError):
        MergedShortlist(LabelIndex.build(vectors, y), InstanceVote.build(vectors, y), gamma, reserved)
    with pytest.raises(ConfigError):
        InstanceVote.build(vectors, y, neighbours=0)


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    vectors, y = data(0)
    with pytest.raises(ValueError, match="39 with labels"):
        InstanceVote(ExactIndex.build(vectors), y[:39], 3)
    with pytest.raises(ValueError, match="40 centroids"):
        LabelIndex(ExactIndex.build(vectors), np.zeros(3, np.int32))
    save_part(LabelIndex.build(vectors, y), tmp_path / "part")
    write_json(tmp_path / "part" / "index" / "part.json", {"format": 1, "kind": "none"})
    with pytest.raises(BundleError):
        load_part(tmp_path / "part")


# ---- the best of many ----


@pytest.mark.parametrize(
    ("items", "k", "blocks"), [(750, 100, 3), (300, 40, 2), (50, 100, 2), (101, 100, 1), (60, 9, 2)]
)
def test_the_best_of_blocks_are_those_of_a_full_sort(items: int, k: int, blocks: int) -> None:
    """With many ties, both zeros and nothing at all, whether they are found by splitting or by heaps."""
    rng = np.random.default_rng(items)
    similarities = rng.standard_normal((6, items * blocks)).astype(np.float32).round(1)
    similarities[0], similarities[1, ::2] = 0.0, -0.0
    similarities[2, ::3] = -np.inf
    found = Heaps(len(similarities), k)
    for first in range(0, items * blocks, items):
        keep_best(np.ascontiguousarray(similarities[:, first : first + items]), first, *found.arrays)
    top = found.ranked()
    for row, values in enumerate(similarities):
        order = np.lexsort((np.arange(len(values)), -values))[:k]
        assert top.ids[row].tolist() == order.tolist() + [TopK.PAD] * (k - len(order))
        np.testing.assert_array_equal(top.scores[row, : len(order)], values[order])
