"""The formulas of prediction against plain Python: fused scores, re-ranking, ensembles; ties, padding and cuts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.speed.cases.ensemble import merged_by_numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.models.encoders import FrozenDense, FullMap, ResidualMap
from longtail.models.rankers import Classifier, Ensemble, Model, best, sigmoid
from longtail.persistence import load_part, save_part
from longtail.recipes.astec.ranker import Reranked
from longtail.search.shortlist import LabelIndex
from longtail.types import F32, Batch, Ranker, TopK

Scores = dict[int, float]  # of the labels of one document


@dataclass(frozen=True)
class Given(Ranker):
    """A shortlister and ranker that gives the same lists whatever is asked: its answers are the test's to choose."""

    KIND = "given-lists"

    top: TopK

    def query(self, vectors: Any, k: int) -> TopK:
        return TopK(self.top.ids[: len(vectors), :k], self.top.scores[: len(vectors), :k])

    def packed(self, packer: Any, width: int = 0) -> Any:
        raise NotImplementedError

    def voting_documents(self) -> None:
        return None

    def rank(self, batch: Batch, k: int) -> TopK:
        return TopK(self.top.ids[: len(batch), :k], self.top.scores[: len(batch), :k])

    def state(self) -> Any:
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: Any) -> Given:
        raise NotImplementedError


def random_lists(rng: np.random.Generator, documents: int, labels: int, places: int) -> TopK:
    """Well-formed lists: of different lengths, some empty, with many equal scores."""
    ids = np.full((documents, places), TopK.PAD, dtype=np.int32)
    scores = np.full((documents, places), -np.inf, dtype=np.float32)
    for row in range(documents):
        count = int(rng.integers(0, min(labels, places) + 1))
        chosen, values = rng.permutation(labels)[:count], rng.integers(0, 4, count) / 4
        order = np.lexsort((chosen, -values))
        ids[row, :count], scores[row, :count] = chosen[order], values[order]
    return TopK(ids, scores)


def numbers(rng: np.random.Generator, *shape: int) -> F32:
    return rng.standard_normal(shape).astype(np.float32)


def plain_sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def listed(top: TopK, row: int, places: int | None = None) -> Scores:
    return {
        int(label): float(score)
        for label, score in zip(top.ids[row, :places], top.scores[row, :places], strict=True)
        if label >= 0
    }


def agrees(found: TopK, expected: list[Scores], k: int) -> None:
    """The k best of the expected scores by (-score, label), padded; scores to 1e-5, order up to such differences."""
    assert found.ids.shape == (len(expected), k)
    for ids, scores, wanted in zip(found.ids, found.scores, expected, strict=True):
        count = min(k, len(wanted))
        assert (ids[:count] >= 0).all()
        assert (ids[count:] == TopK.PAD).all()
        assert np.isneginf(scores[count:]).all()
        np.testing.assert_allclose(scores[:count], sorted(wanted.values(), reverse=True)[:count], rtol=0, atol=1e-5)
        np.testing.assert_allclose(scores[:count], [wanted[int(label)] for label in ids[:count]], rtol=0, atol=1e-5)
        assert len(set(ids[:count].tolist())) == count
        pairs = list(zip(-scores[:count], ids[:count], strict=True))
        assert pairs == sorted(pairs)


# ---- classifier ----


@pytest.mark.parametrize("bias", [False, True])
def test_classifier_scores_are_products_and_padding_is_zero(bias: bool) -> None:
    rng = np.random.default_rng(0)
    rows, biases, vectors = numbers(rng, 6, 4), numbers(rng, 6) if bias else None, numbers(rng, 3, 4)
    ids = np.array([[0, 5, -1], [2, -1, -1], [-1, 1, 1]], dtype=np.int32)
    found = Classifier(rows, biases).scores(vectors, ids)
    for row, place in np.ndindex(3, 3):
        label = ids[row, place]
        expected = (
            0.0
            if label < 0
            else float(rows[label] @ vectors[row]) + (float(biases[label]) if biases is not None else 0.0)
        )
        assert found[row, place] == pytest.approx(expected, abs=1e-5)


def test_classifier_reads_vectors_of_any_memory_layout() -> None:
    rng = np.random.default_rng(1)
    rows, wide, ids = numbers(rng, 6, 4), numbers(rng, 3, 8), rng.integers(0, 6, (5, 3)).astype(np.int32).T
    expected = np.einsum("bd,bcd->bc", wide[:, ::2], rows[ids])
    np.testing.assert_allclose(Classifier(rows).scores(wide[:, ::2], ids), expected, rtol=1e-5, atol=1e-5)


# ---- model ----


@given(
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.1, 1.0]),
    st.sampled_from(["none", "residual", "full"]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_a_model_fuses_classifier_and_similarity(
    seed: int, alpha: float, temperature: float, block: str, bias: bool
) -> None:
    rng = np.random.default_rng(seed)
    labels, places, size, k = (int(n) for n in rng.integers(1, 9, 4))
    lists, vectors = random_lists(rng, 5, labels, places), np.abs(numbers(rng, 5, 3))
    weight, rows, biases = numbers(rng, 3, 3), numbers(rng, labels, 3), numbers(rng, labels) if bias else None
    refinement = {"none": None, "residual": ResidualMap(weight), "full": FullMap(weight)}[block]
    model = Model(
        encoder=FrozenDense(),
        refinement=refinement,
        shortlister=Given(lists),
        classifier=Classifier(rows, biases),
        shortlist_size=size,
        alpha=alpha,
        temperature=temperature,
    )
    expected: list[Scores] = []
    for row, v in enumerate(vectors.astype(np.float64)):
        turned = np.maximum(weight @ v, 0)
        x = {"none": v, "residual": v + turned, "full": turned}[block]
        raw = {
            label: float(rows[label] @ x) + (float(biases[label]) if biases is not None else 0.0)
            for label in range(labels)
        }
        # Only labels among the first `size` of the shortlist are scored.
        expected.append(
            {
                label: alpha * plain_sigmoid(raw[label]) + (1 - alpha) * plain_sigmoid(similarity / temperature)
                for label, similarity in listed(lists, row, min(size, labels)).items()
            }
        )
    agrees(model.rank(Batch(dense=vectors), k), expected, min(k, labels))


def test_a_model_never_asks_for_more_labels_than_there_are() -> None:
    asked: list[int] = []

    class Asked(Given):
        def query(self, search: Any, k: int) -> TopK:
            asked.append(k)
            return super().query(search, k)

    lists = random_lists(np.random.default_rng(0), 2, 3, 3)
    model = Model(
        encoder=FrozenDense(),
        refinement=None,
        shortlister=Asked(lists),
        classifier=Classifier(np.zeros((3, 2), np.float32)),
        shortlist_size=500,
        alpha=0.5,
    )
    assert model.rank(Batch(dense=np.zeros((2, 2), np.float32)), 100).k == 3
    replace(model, shortlist_size=2).rank(Batch(dense=np.zeros((2, 2), np.float32)), 1)
    assert asked == [3, 2]


def test_huge_scores_neither_overflow_nor_warn(recwarn: pytest.WarningsRecorder) -> None:
    lists = TopK(np.array([[0, 1]], np.int32), np.array([[1.0, 1.0]], np.float32))
    model = Model(
        encoder=FrozenDense(),
        refinement=None,
        shortlister=Given(lists),
        classifier=Classifier(np.array([[-1e6], [1e6]], np.float32)),
        shortlist_size=2,
        alpha=0.5,
    )
    top = model.rank(Batch(dense=np.ones((1, 1), np.float32)), 2)
    assert top.ids.tolist() == [[1, 0]]
    np.testing.assert_allclose(top.scores, [[0.5 + 0.5 * plain_sigmoid(1), 0.5 * plain_sigmoid(1)]], atol=1e-6)
    assert not recwarn.list


# ---- re-ranker ----


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.6, 1.0]), st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_reranker_weighs_its_own_score_within_the_first_labels(seed: int, beta: float, refined: bool) -> None:
    rng = np.random.default_rng(seed)
    labels, places, depth, k = (int(n) for n in rng.integers(1, 9, 4))
    lists, vectors = random_lists(rng, 5, labels, min(places, labels)), np.abs(numbers(rng, 5, 3))
    rows, weight = numbers(rng, labels, 3), numbers(rng, 3, 3)
    reranked = Reranked(
        Given(lists), FrozenDense(), ResidualMap(weight) if refined else None, Classifier(rows), depth, beta
    )
    expected: list[Scores] = []
    for row, v in enumerate(vectors.astype(np.float64)):
        x = v + np.maximum(weight @ v, 0) if refined else v
        first, seen = listed(lists, row, max(depth, k)), listed(lists, row, depth)
        expected.append(
            {
                label: beta * plain_sigmoid(float(rows[label] @ x)) * (label in seen) + (1 - beta) * score
                for label, score in first.items()
            }
        )
    agrees(reranked.rank(Batch(dense=vectors), k), expected, min(k, labels))


def test_what_a_reranker_puts_first_does_not_depend_on_how_much_is_asked_for() -> None:
    lists = TopK(np.array([[0, 1, 2]], np.int32), np.array([[0.9, 0.8, 0.7]], np.float32))
    # The second model loves label 2, which lies beyond its depth.
    reranked = Reranked(Given(lists), FrozenDense(), None, Classifier(np.array([[-1], [1], [9]], np.float32)), 2, 0.5)
    for k in (1, 2, 3):
        assert reranked.rank(Batch(dense=np.ones((1, 1), np.float32)), k).ids.tolist() == [[1, 0, 2][:k]]


# ---- ensemble ----


@given(st.integers(0, 10_000), st.integers(1, 4))
@settings(deadline=None, max_examples=80)
def test_an_ensemble_is_the_mean_over_the_union_where_missing_counts_nothing(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    labels, depth, k = int(rng.integers(1, 12)), int(rng.integers(1, 9)), int(rng.integers(1, 15))
    lists = [random_lists(rng, 6, labels, labels) for _ in range(count)]
    expected: list[Scores] = []
    for row in range(6):
        found = [listed(top, row, max(depth, k)) for top in lists]
        expected.append(
            {label: sum(scores.get(label, 0.0) for scores in found) / count for label in set().union(*found)}
        )
    ensemble = Ensemble(tuple(Given(top) for top in lists), depth)
    agrees(ensemble.rank(Batch(dense=np.zeros((6, 1), np.float32)), k), expected, min(k, labels))


def test_long_lists_of_far_labels_are_merged_as_numpy_merges_them() -> None:
    """To the last bit; labels so far apart share slots of the kernel's table."""
    rng = np.random.default_rng(0)
    far = np.sort(rng.choice(2**31 - 1, 400, replace=False))
    lists = []
    for places in (300, 250, 300):
        near = random_lists(rng, 7, len(far), places)
        noise = np.sort(rng.standard_normal(near.scores.shape, dtype=np.float32).round(1))[:, ::-1]  # ties, and below 0
        ids = np.where(near.ids >= 0, far[near.ids], TopK.PAD).astype(np.int32)
        lists.append(TopK(ids, np.where(near.ids >= 0, noise, -np.inf).astype(np.float32)))
    found = Ensemble(tuple(Given(top) for top in lists), depth=300).rank(Batch(dense=np.zeros((7, 1), np.float32)), 120)
    expected = merged_by_numpy(lists, 120)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_members_are_asked_as_deep_as_the_ensemble_looks() -> None:
    """A label that is first in the mean may be nowhere near the top of a member."""
    a = TopK(np.array([[0, 2]], np.int32), np.array([[1.0, 0.8]], np.float32))
    b = TopK(np.array([[1, 2]], np.int32), np.array([[1.0, 0.8]], np.float32))
    documents = Batch(dense=np.zeros((1, 1), np.float32))
    top = Ensemble((Given(a), Given(b))).rank(documents, 1)
    assert (top.ids.tolist(), top.scores.tolist()) == ([[2]], [[pytest.approx(0.8)]])
    assert Ensemble((Given(a), Given(b)), depth=1).rank(documents, 1).ids.tolist() == [[0]]


# ---- the cut ----


def test_the_best_are_ordered_by_score_then_label_and_padded() -> None:
    ids = np.array([[3, -1, 1, 2], [-1, -1, -1, -1]], dtype=np.int32)
    top = best(ids, np.array([[0.5, 9.0, 0.5, 0.7], [1.0, 1.0, 1.0, 1.0]]), 6)
    assert top.ids.tolist() == [[2, 1, 3, -1, -1, -1], [-1] * 6]
    assert top.scores[0].tolist() == [np.float32(0.7), 0.5, 0.5, -np.inf, -np.inf, -np.inf]
    assert np.isneginf(top.scores[1]).all()
    assert best(ids, np.zeros((2, 4)), 2).ids.tolist() == [[1, 2], [-1, -1]]
    assert top.ids.dtype == np.int32
    assert top.scores.dtype == np.float32


def test_sigmoid() -> None:
    np.testing.assert_allclose(
        sigmoid(np.array([-np.inf, -2.0, 0.0, 3.0, np.inf])), [0, plain_sigmoid(-2), 0.5, plain_sigmoid(3), 1]
    )


# ---- saving ----


def small_model(seed: int, bias: bool) -> Model:
    rng = np.random.default_rng(seed)
    documents, targets = np.abs(numbers(rng, 12, 3)), csr_array((rng.random((12, 5)) < 0.4).astype(np.float32))
    index = LabelIndex.build(documents, targets)
    return Model(
        encoder=FrozenDense(),
        refinement=ResidualMap(numbers(rng, 3, 3)),
        shortlister=index,
        classifier=Classifier(numbers(rng, 5, 3), numbers(rng, 5) if bias else None),
        shortlist_size=3,
        alpha=0.4,
        temperature=0.7,
    )


@pytest.mark.parametrize("bias", [False, True])
def test_models_inside_models_survive_saving(bias: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    members = [
        Reranked(
            small_model(seed, bias),
            FrozenDense(numbers(rng, 2, 3), numbers(rng, 2)),
            None,
            Classifier(numbers(rng, 5, 2)),
            2,
            0.3,
        )
        for seed in range(11)
    ]
    ranker, batch = Ensemble(tuple(members), depth=3), Batch(dense=np.abs(numbers(rng, 20, 3)))
    save_part(ranker, tmp_path / "part")
    loaded = load_part(tmp_path / "part")
    assert loaded.depth == 3
    assert len(loaded.members) == 11
    for k in (2, 5):
        before, after = ranker.rank(batch, k), loaded.rank(batch, k)
        np.testing.assert_array_equal(before.ids, after.ids)
        np.testing.assert_array_equal(before.scores, after.scores)
    for member, again in zip(members, loaded.members, strict=True):  # in their order, each with its own numbers
        np.testing.assert_array_equal(member.classifier.rows, again.classifier.rows)
        assert (again.base.alpha, again.base.temperature, again.base.shortlist_size) == (0.4, 0.7, 3)


def test_the_encoder_of_a_model_around_models() -> None:
    model, given = small_model(0, False), Given(TopK.padding(1, 1))
    second = FrozenDense()
    reranked = Reranked(model, second, None, model.classifier, 1, 0.5)
    assert model.document_encoder() is model.encoder
    assert reranked.document_encoder() is model.encoder is not second, "a re-ranker changes nothing here"
    assert Ensemble((reranked, given)).document_encoder() is model.encoder
    assert Ensemble((given, model)).document_encoder() is given.document_encoder() is None


def test_they_are_rankers() -> None:
    model = small_model(0, False)
    assert all(
        isinstance(ranker, Ranker)
        for ranker in (model, Reranked(model, FrozenDense(), None, model.classifier, 1, 0.5), Ensemble((model,)))
    )
