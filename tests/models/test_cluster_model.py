"""The model over clusters against its formula in plain Python; its parts; saving."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.errors import ConfigError
from longtail.models.encoders import EmbeddingMap, FrozenBag, FrozenSum
from longtail.models.rankers import Classifier, ClusterModel
from longtail.persistence import load_part, save_part
from longtail.search.shortlist import ClusterBeam
from longtail.types import F32, Batch, Csr, Ranker, TopK

WORDS, WIDTH, LABELS = 9, 4, 14


def numbers(rng: np.random.Generator, *shape: int) -> F32:
    return rng.standard_normal(shape).astype(np.float32)


def random_edges(rng: np.random.Generator, n: int) -> Csr:
    return csr_array((rng.random((n, n)) * (rng.random((n, n)) < 0.3) + np.eye(n)).astype(np.float32))


def documents(rng: np.random.Generator, count: int) -> Batch:
    """The last one has no word."""
    x = rng.random((count, WORDS)) * (rng.random((count, WORDS)) < 0.4)
    x[:, 0] += 0.1
    x[-1] = 0
    return Batch(sparse=csr_array(x.astype(np.float32)))


def random_model(
    rng: np.random.Generator, *, game: bool = True, maps: bool = True, bias: bool = False, beam: int = 2, **changes: Any
) -> ClusterModel:
    return ClusterModel(
        encoder=FrozenSum(numbers(rng, WORDS, WIDTH)),
        shortlist_map=EmbeddingMap(numbers(rng, WIDTH, WIDTH), 0.7) if maps else None,
        rank_map=EmbeddingMap(numbers(rng, WIDTH, WIDTH), 1.3) if maps else None,
        beam=ClusterBeam.of(
            numbers(rng, 5, WIDTH),
            rng.integers(0, 5, LABELS).astype(np.int32),
            random_edges(rng, 5) if game else None,
            beam=beam,
        ),
        classifier=Classifier(numbers(rng, LABELS, WIDTH), numbers(rng, LABELS) if bias else None),
        label_graph=random_edges(rng, LABELS) if game else None,
        **changes,
    )


def naive_scores(model: ClusterModel, x: Any) -> dict[int, float]:
    """s_l = r_l p_m of one document, by loops."""

    def mapped(a: Any, block: Any) -> Any:
        return a if block is None else np.maximum(a + block.lam * block.weight @ np.maximum(a, 0), 0)

    encoder: Any = model.encoder
    a = x @ encoder.table
    clusters, p = model.beam.select(mapped(a, model.shortlist_map)[None].astype(np.float32))
    chosen = {int(m): float(value) for m, value in zip(clusters[0], p[0], strict=True) if m >= 0}
    raw = model.classifier.rows @ mapped(a, model.rank_map) + (
        0 if model.classifier.bias is None else model.classifier.bias
    )
    r = np.array(
        [
            1 / (1 + math.exp(-raw[label])) if m in chosen else 0.0
            for label, m in enumerate(model.beam.clusters.tolist())
        ]
    )
    if model.label_graph is not None:
        edges = model.label_graph.toarray()
        r = model.game_mix * ((edges.T if model.game_transpose else edges) @ r) + (1 - model.game_mix) * r
    return {
        label: r[label] * chosen[m] ** model.cluster_power
        for label, m in enumerate(model.beam.clusters.tolist())
        if m in chosen
    }


@given(
    st.integers(0, 10_000),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.5, 1.0]),
    st.booleans(),
    st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(deadline=None, max_examples=60)
def test_scores_are_those_of_the_formula(
    seed: int, game: bool, maps: bool, bias: bool, mix: float, transpose: bool, power: float
) -> None:
    rng = np.random.default_rng(seed)
    beam = int(rng.integers(1, 6))
    model = random_model(
        rng, game=game, maps=maps, bias=bias, beam=beam, game_mix=mix, game_transpose=transpose, cluster_power=power
    )
    batch, k = documents(rng, 6), int(rng.integers(1, 18))
    top = model.rank(batch, k)
    assert top.ids.shape == (6, min(k, LABELS))
    sparse: Any = batch.sparse
    for row, x in enumerate(sparse.toarray()[:-1]):
        wanted = naive_scores(model, x)
        found = top.ids[row] >= 0
        assert found.sum() == min(len(wanted), top.k)
        np.testing.assert_allclose(
            top.scores[row][found], sorted(wanted.values(), reverse=True)[: found.sum()], rtol=1e-4
        )
        np.testing.assert_allclose(
            top.scores[row][found], [wanted[label] for label in top.ids[row][found].tolist()], rtol=1e-4
        )
    assert (top.ids[-1] == TopK.PAD).all(), "nothing can be said of a document without a known word"
    assert np.isneginf(top.scores[-1]).all()


def test_blocks_of_documents_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    model, batch = random_model(rng), documents(rng, 23)
    whole = model.rank(batch, 5)
    monkeypatch.setattr("longtail.models.rankers._BLOCK", 4)
    again = model.rank(batch, 5)
    np.testing.assert_array_equal(whole.ids, again.ids)
    np.testing.assert_allclose(whole.scores, again.scores, rtol=1e-6)


@pytest.mark.parametrize("game", [False, True])
@pytest.mark.parametrize("maps", [False, True])
def test_it_survives_saving(game: bool, maps: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    model, batch = (
        random_model(rng, game=game, maps=maps, bias=True, game_mix=0.5, game_transpose=True, cluster_power=0.3),
        documents(rng, 12),
    )
    assert isinstance(model, Ranker)
    save_part(model, tmp_path / "part")
    loaded = load_part(tmp_path / "part")
    before, after = model.rank(batch, 9), loaded.rank(batch, 9)
    np.testing.assert_array_equal(before.ids, after.ids)
    np.testing.assert_array_equal(before.scores, after.scores)
    assert (loaded.game_mix, loaded.game_transpose, loaded.cluster_power) == (0.5, True, 0.3)


def test_a_changed_copy_is_a_changed_model() -> None:
    """`replace` is how settings are swept at prediction: what was prepared for the old graph must not stay."""
    rng = np.random.default_rng(3)
    model, batch = random_model(rng, beam=5), documents(rng, 8)
    plain = replace(model, label_graph=None).rank(batch, LABELS)
    np.testing.assert_allclose(replace(model, game_mix=0.0).rank(batch, LABELS).scores, plain.scores, rtol=1e-6)
    assert not np.allclose(model.rank(batch, LABELS).scores[:-1], plain.scores[:-1])


# ---- the document side ----


def test_a_sum_keeps_signs_and_a_bag_does_not() -> None:
    rng = np.random.default_rng(4)
    table, batch = numbers(rng, WORDS, WIDTH), documents(rng, 7)
    sparse: Any = batch.sparse
    np.testing.assert_allclose(FrozenSum(table).encode(batch), sparse.toarray() @ table, atol=1e-5)
    np.testing.assert_allclose(np.maximum(FrozenSum(table).encode(batch), 0), FrozenBag(table).encode(batch))
    with pytest.raises(ConfigError, match="vocabulary of 9"):
        FrozenSum(table).encode(Batch(sparse=csr_array((2, 8), dtype=np.float32)))


@pytest.mark.parametrize("relu", [False, True])
def test_the_map_is_its_formula_and_leaves_its_input_alone(relu: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    weight, a = numbers(rng, WIDTH, WIDTH), numbers(rng, 6, WIDTH)
    before, block = a.copy(), EmbeddingMap(weight, -0.4, relu)
    expected = a - 0.4 * np.maximum(a, 0) @ weight.T
    np.testing.assert_allclose(block.apply(a), np.maximum(expected, 0) if relu else expected, atol=1e-6)
    np.testing.assert_array_equal(a, before)
    save_part(block, tmp_path / "part")
    np.testing.assert_array_equal(load_part(tmp_path / "part").apply(a), block.apply(a))
