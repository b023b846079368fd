"""Batches in pieces: how they are cut, which models allow it, and that no answer changes by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.bundle import Bundle, LabelTable
from longtail.data.dataset import Items
from longtail.features.settings import SparseTextConfig
from longtail.features.sparse import SparseText
from longtail.models.encoders import EmbeddingMap, FrozenBag, FrozenDense, FrozenMlp, FrozenSum, ResidualMap
from longtail.models.rankers import Classifier, ClusterModel, Ensemble, IndexedRows
from longtail.predictor import Predictor, even_pieces
from longtail.search.index import ExactIndex
from longtail.search.kernels import packed as byte_kernels
from longtail.search.packed import PackedIndex, Packer
from longtail.search.shortlist import ClusterBeam
from longtail.search.sketch import SketchIndex
from longtail.types import F32, Batch, Ranker, TopK

WORDS, WIDTH, LABELS, DOCUMENTS = 200, 64, 700, 330
needs_bytes = pytest.mark.skipif(not byte_kernels.available(), reason="the machine cannot multiply bytes")


def numbers(seed: int, *shape: int) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def direct() -> IndexedRows:
    return IndexedRows(
        FrozenBag(numbers(0, WORDS, WIDTH)),
        ResidualMap(numbers(1, WIDTH, WIDTH) / np.float32(16)),
        ExactIndex(numbers(2, LABELS, WIDTH + 1), "dot"),
    )


def eclare() -> ClusterModel:
    rng = np.random.default_rng(5)

    def edges(n: int) -> Any:
        return csr_array((rng.random((n, n)) * (rng.random((n, n)) < 0.03) + np.eye(n)).astype(np.float32))

    beam = ClusterBeam.of(
        numbers(3, 120, WIDTH + 1), rng.integers(0, 120, LABELS).astype(np.int32), edges(120), beam=15, game_mix=0.5
    )
    first, second = (EmbeddingMap(numbers(seed, WIDTH, WIDTH) / np.float32(16)) for seed in (6, 7))
    return ClusterModel(
        encoder=FrozenSum(numbers(0, WORDS, WIDTH)),
        shortlist_map=first,
        rank_map=second,
        beam=beam,
        classifier=Classifier(numbers(4, LABELS, WIDTH)),
        label_graph=edges(LABELS),
        game_mix=0.5,
    )


def sketched(model: IndexedRows, leaves: int = 0) -> IndexedRows:
    assert isinstance(model.index, PackedIndex)
    return replace(
        model,
        index=SketchIndex.build(model.index, leaves=leaves, rng=np.random.default_rng(0)).tuned(more=30, effort=200),
    )


def models() -> dict[str, Any]:
    """Every packed model that is to be cut."""
    exact, clusters = direct().packed(Packer("int8")), eclare().packed(Packer("int4"))
    return {
        "exact": exact,
        "sketch": sketched(exact),
        "leaves": sketched(exact, 25),
        "eclare": clusters,
        "ensemble": Ensemble((exact, clusters), depth=20),
    }


MODELS = list(models())


def documents(seed: int = 8) -> Any:
    rng = np.random.default_rng(seed)
    return csr_array((rng.random((DOCUMENTS, WORDS)) * (rng.random((DOCUMENTS, WORDS)) < 0.1)).astype(np.float32))


@given(st.integers(0, 5000), st.integers(1, 16))
def test_pieces_are_even_large_and_as_many_for_each_thread(count: int, threads: int) -> None:
    pieces = even_pieces(count, threads)
    assert [n for piece in pieces for n in range(count)[piece]] == list(range(count))
    sizes = [piece.stop - piece.start for piece in pieces]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= 512
    assert len(sizes) == 1 or min(sizes) >= 64
    if count >= 64 * threads:
        assert len(sizes) % threads == 0


def test_a_batch_of_the_race_is_one_piece_per_thread() -> None:
    assert even_pieces(512, 1) == [slice(0, 512)]
    assert even_pieces(512, 2) == [slice(0, 256), slice(256, 512)]
    assert even_pieces(100, 2) == [slice(0, 100)]


@needs_bytes
@pytest.mark.parametrize("name", MODELS)
def test_packed_models_stand_alone_and_documents_do_not_show_in_each_other(name: str) -> None:
    """To the last bit: else the number of threads would."""
    model, x = models()[name], documents()
    assert model.row_by_row()
    whole = model.rank(Batch(sparse=x), 10)
    for threads in (2, 3, 5):
        pieces = [model.rank(Batch(sparse=x[piece]), 10) for piece in even_pieces(DOCUMENTS, threads)]
        assert len(pieces) == threads
        np.testing.assert_array_equal(np.concatenate([top.ids for top in pieces]), whole.ids)
        np.testing.assert_array_equal(np.concatenate([top.scores for top in pieces]), whole.scores)


def test_models_with_steps_of_blas_are_left_whole() -> None:
    packed, clusters = direct().packed(Packer("int8")), eclare().packed(Packer("int8"))
    narrow = ResidualMap(numbers(0, WIDTH + 1, WIDTH + 1))
    mlp = FrozenMlp(numbers(0, WORDS, WIDTH), numbers(1, WIDTH), numbers(2, WIDTH, WIDTH), numbers(3, WIDTH))
    left: list[Ranker] = [
        direct(),
        eclare(),
        direct().packed(Packer("float16")),
        eclare().packed(Packer("float16")),
        replace(packed, encoder=FrozenDense()),
        replace(packed, encoder=mlp),
        replace(packed, refinement=narrow),
        replace(clusters, shortlist_map=narrow),
        replace(clusters, rank_map=narrow),
        replace(clusters, beam=eclare().beam),
        replace(clusters, encoder=mlp),
        Ensemble((packed, direct())),
        Watched(packed),
    ]
    assert [model.row_by_row() for model in left] == [False] * len(left)


# ---- asked ----


class Watched(Ranker):
    """A ranker that notes how it was asked."""

    KIND = "watched"

    def __init__(self, ranker: Any) -> None:
        self.ranker = ranker
        self.asked: list[tuple[int, int]] = []

    def rank(self, batch: Batch, k: int) -> TopK:
        self.asked.append((len(batch), numba.get_num_threads()))
        top: TopK = self.ranker.rank(batch, k)
        return top


@pytest.fixture
def texts() -> list[str]:
    rng = np.random.default_rng(9)
    return [" ".join(f"word{n}" for n in rng.integers(0, WORDS, 12)) for _ in range(DOCUMENTS)]


def predictor(texts: list[str], name: str) -> Predictor:
    """A vocabulary that was learned, and one of the planted models over it."""
    items = Items([str(n) for n in range(len(texts))], {"title": texts})
    featurizer = SparseText.fit(
        items, None, SparseTextConfig(fields=("title",), pairs=False, subwords="none", min_count=1)
    )
    assert featurizer.width == WORDS
    labels = Items([f"id-{n}" for n in range(LABELS)], {"title": [f"label {n}" for n in range(LABELS)]})
    return Predictor(Bundle(Path(), {}, LabelTable.of(labels, np.zeros(LABELS, np.int64)), featurizer, models()[name]))


@needs_bytes
@pytest.mark.parametrize("name", MODELS)
def test_answers_do_not_depend_on_threads(texts: list[str], name: str) -> None:
    model, before = predictor(texts, name), numba.get_num_threads()
    items, answers = Items([str(n) for n in range(len(texts))], {"title": texts}), []
    try:
        for threads in sorted({1, min(2, before)}):
            numba.set_num_threads(threads)
            top = model.rank(items, 7)
            answers.append((model.predict(texts, 7), top.ids.tolist(), top.scores.tolist()))
    finally:
        numba.set_num_threads(before)
    assert all(answer == answers[0] for answer in answers)
    said, ids, scores = answers[0]
    assert [[p.label for p in row] for row in said] == [[f"id-{n}" for n in row] for row in ids]
    assert [[p.name for p in row] for row in said] == [[f"label {n}" for n in row] for row in ids]
    assert [[p.score for p in row] for row in said] == scores


@needs_bytes
@pytest.mark.parametrize("alone", [True, False])
def test_a_batch_is_split_over_threads_where_documents_stand_alone(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    model, before = predictor(texts, "exact"), numba.get_num_threads()
    if before < 2:
        pytest.skip("one processor")
    watched = Watched(model.bundle.ranker)
    monkeypatch.setattr(watched, "row_by_row", lambda: alone)
    model = Predictor(replace(model.bundle, ranker=watched))
    numba.set_num_threads(2)
    try:
        model.predict(texts, 3)
        model.rank(Items([str(n) for n in range(len(texts))], {"title": texts}), 3)
        model.predict(texts[:100], 3)
    finally:
        numba.set_num_threads(before)
    halves = [(DOCUMENTS // 2, 1)] * 2 if alone else [(DOCUMENTS, 2)]
    assert watched.asked[: 2 * len(halves)] == halves * 2
    assert watched.asked[2 * len(halves) :] == [(100, 2)], "too few to split"


def test_strings_are_kept_up_to_a_number_of_labels(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    top = TopK(np.array([[3, 0], [3, -1]], np.int32), np.array([[0.5, 0.25], [0.75, -np.inf]], np.float32))
    expected = [[("id-3", "label 3", 0.5), ("id-0", "label 0", 0.25)], [("id-3", "label 3", 0.75)]]
    kept = predictor(texts, "exact")
    assert kept.named(top) == expected
    again = kept.named(top)
    assert again == expected
    assert again[0][0].name is again[1][0].name
    monkeypatch.setattr("longtail.predictor._KEPT", LABELS - 1)
    many = predictor(texts, "exact").named(top)
    assert many == expected
    assert many[0][0].name is not many[1][0].name
