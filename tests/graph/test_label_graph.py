"""The label graph against dense algebra, head labels, given graphs, and the trace of one walk."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from longtail.errors import ConfigError, DataError
from longtail.graph.label_graph import (
    LabelGraphConfig,
    _sources,
    head_labels,
    label_graph,
    near_in_text,
    normalised,
    perron_scaled,
    walk_trace,
)
from longtail.graph.ops import expected_walk_graph, random_walk_graph
from longtail.types import Csr

Dense = NDArray[np.float64]

# Every head test plants one label with more documents than this.
HEAD = 12
SOURCES = ("walk", "cooc", "given", "walk+given", "exact", "none")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def planted(seed: int, documents: int = 40, labels: int = 15) -> Csr:
    """Random targets; label 3 is a head (20 documents), label 5 has no document, documents 0 to 4 carry the head
    alone.
    """
    targets = (rng(seed).random((documents, labels)) < 0.12).astype(np.float32)
    targets[:, 3], targets[:, 5], targets[:5] = 0, 0, 0
    targets[:20, 3] = 1
    return csr_array(targets)


def user_graph(seed: int, labels: int = 15) -> Csr:
    return csr_array(
        np.round(rng(seed).random((labels, labels)) * (rng(seed + 1).random((labels, labels)) < 0.3) * 9).astype(
            np.float32
        )
    )


def settings_of(source: Any, **changes: Any) -> LabelGraphConfig:
    return LabelGraphConfig(source=source, length=60, head_documents=HEAD, **changes)


def built(source: str, seed: int = 0, **changes: Any) -> Csr:
    return label_graph(
        planted(seed), settings_of(source, **changes), rng(seed), [user_graph(seed), user_graph(seed + 7)]
    )


def both_sides(weights: Dense) -> Dense:
    return weights / np.sqrt(weights.sum(axis=1))[:, None] / np.sqrt(weights.sum(axis=0))


def with_diagonal(weights: Dense) -> Dense:
    weights = weights.copy()
    np.fill_diagonal(weights, np.maximum(weights.diagonal(), 1))
    return weights


def largest(weights: Dense, k: int) -> Dense:
    """The k largest of each row, the diagonal before all others, ties by column."""
    kept = np.zeros_like(weights)
    for row, values in enumerate(weights):
        importance = values.copy()
        importance[row] = np.inf if values[row] else 0
        chosen = np.lexsort((np.arange(len(values)), -importance))[:k]
        kept[row, chosen] = values[chosen]
    return kept


def no_heads(targets: Csr, heads: NDArray[np.bool_]) -> Csr:
    dense = targets.toarray()
    dense[:, heads] = 0
    return csr_array(dense)


# ---- sources ----


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("top_k", [0, 3, 10])
def test_the_walk_is_partitioned_cut_and_normalised(seed: int, top_k: int) -> None:
    targets = planted(seed)
    heads = head_labels(targets, HEAD)
    counts = (
        random_walk_graph(no_heads(targets, heads), length=60, restart=0.8, rng=rng(seed)).toarray().astype(np.float64)
    )
    expected = both_sides(with_diagonal(largest(counts, top_k or 15)))
    graph = built("walk", seed, top_k=top_k)
    np.testing.assert_allclose(graph.toarray(), expected, atol=1e-6)
    assert graph.dtype == np.float32
    assert graph.has_sorted_indices


@pytest.mark.parametrize("seed", range(3))
def test_cooccurrence_counts_shared_documents(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = planted(seed)
    dense = no_heads(targets, head_labels(targets, HEAD)).toarray().astype(np.float64)
    expected = both_sides(with_diagonal(largest(dense.T @ dense, 4)))
    np.testing.assert_allclose(built("cooc", seed, top_k=4).toarray(), expected, atol=1e-6)
    monkeypatch.setattr("longtail.graph.label_graph._COOC_BLOCK", 4)
    np.testing.assert_allclose(built("cooc", seed, top_k=4).toarray(), expected, atol=1e-6)


def test_cooccurrence_cut_in_blocks_keeps_a_diagonal_that_ties() -> None:
    """Twelve labels that always come together: the diagonal is no larger than the rest, and must be among the three
    kept.
    """
    targets = csr_array(np.ones((5, 12), np.float32))
    graph = label_graph(targets, LabelGraphConfig(source="cooc", top_k=3, head_documents=9), rng())
    assert (np.diff(graph.indptr) == 3).all()
    np.testing.assert_array_equal(graph.diagonal() > 0, np.ones(12, bool))
    assert graph[11, [0, 1, 11]].toarray().all()


@pytest.mark.parametrize("source", ["given", "walk+given"])
def test_given_graphs_are_scaled_by_rows_and_added(source: str) -> None:
    targets, graphs = planted(0), [user_graph(0), user_graph(7)]
    heads = head_labels(targets, HEAD)
    pieces = [graph.toarray().astype(np.float64) for graph in graphs]
    if source == "walk+given":
        pieces.insert(
            0,
            random_walk_graph(no_heads(targets, heads), length=60, restart=0.8, rng=rng(0))
            .toarray()
            .astype(np.float64),
        )
    for piece in pieces:
        piece[heads], piece[:, heads] = 0, 0
    total = np.zeros((15, 15))
    for piece in (largest(piece, 5) for piece in pieces):
        sums = piece.sum(axis=1, keepdims=True)
        total += np.divide(piece, sums, out=np.zeros_like(piece), where=sums > 0)
    np.testing.assert_allclose(built(source, top_k=5).toarray(), both_sides(with_diagonal(total)), atol=1e-6)


def test_given_graphs_may_come_in_any_unit() -> None:
    targets, graph = planted(0), user_graph(0)
    one, thousand = (label_graph(targets, settings_of("given"), rng(), [graph * unit]).toarray() for unit in (1, 1000))
    np.testing.assert_allclose(one, thousand, atol=1e-6)


def test_the_exact_graph_is_what_walks_tend_to() -> None:
    exact = built("exact", top_k=0).toarray()
    walked = label_graph(planted(0), LabelGraphConfig(length=200_000, top_k=0, head_documents=HEAD), rng()).toarray()
    counts = expected_walk_graph(no_heads(planted(0), head_labels(planted(0), HEAD)), length=60, restart=0.8).toarray()
    np.testing.assert_allclose(exact, both_sides(with_diagonal(counts.astype(np.float64))), atol=1e-6)
    # The limit of long walks is not the mean of short ones, but not far from it.
    assert np.abs(walked - exact).max() < 0.02


def test_none_is_the_identity() -> None:
    np.testing.assert_array_equal(built("none").toarray(), np.eye(15, dtype=np.float32))


@pytest.mark.parametrize("source", ["given", "walk+given"])
def test_a_source_that_is_not_there_is_an_error(source: str) -> None:
    with pytest.raises(ConfigError, match=r"no label-label graph"):
        label_graph(planted(0), settings_of(source), rng())


@pytest.mark.parametrize(
    "wrong", [csr_array((3, 3), dtype=np.float32), -user_graph(0), user_graph(0) * np.float32(np.nan)]
)
def test_a_graph_that_cannot_be_used_is_an_error(wrong: Csr) -> None:
    with pytest.raises(DataError, match="label graph"):
        label_graph(planted(0), settings_of("given"), rng(), [wrong])


# ---- heads ----


def test_heads_have_more_documents_than_the_threshold() -> None:
    counts = np.array([499, 500, 501])
    columns = np.repeat(np.arange(3), counts)
    targets = csr_array((np.ones(1500, np.float32), (np.arange(1500), columns)), shape=(200_000, 3))
    assert head_labels(targets).tolist() == [False, False, True]
    assert head_labels(targets, 499).tolist() == [False, True, True]
    small = targets[:1500]  # 1% of the documents is 15
    assert head_labels(small).tolist() == [True, True, True]
    assert head_labels(csr_array(np.eye(300, dtype=np.float32))).sum() == 0


@pytest.mark.claim("E2")
@pytest.mark.parametrize("source", SOURCES)
def test_a_head_is_alone_and_the_others_are_as_if_it_were_not_there(source: Any) -> None:
    """Five labels; label 2 is on every document, the others would meet through it."""
    y = np.array(
        [[1, 1, 1, 0, 0], [1, 0, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 0]], dtype=np.float32
    )
    config = LabelGraphConfig(source=source, length=50, head_documents=4)
    user = csr_array(np.ones((5, 5), np.float32))
    graph = label_graph(csr_array(y), config, rng(), [user]).toarray()
    alone = np.zeros(5)
    alone[2] = 1
    np.testing.assert_array_equal(graph[2], alone)
    np.testing.assert_array_equal(graph[:, 2], alone)
    y[:, 2] = 0
    rest = user.toarray()
    rest[2], rest[:, 2] = 0, 0
    without = label_graph(csr_array(y), config, rng(), [csr_array(rest)]).toarray()
    np.testing.assert_array_equal(graph, without)
    if source in ("walk", "cooc", "exact"):
        assert not graph[:2, 3:].any(), "only the head joins labels 0, 1 and 3, 4"
        assert graph[0, 1] > 0
        assert graph[3, 4] > 0


# ---- E1, E3 ----


@pytest.mark.claim("E1")
@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from([0.2, 0.5, 0.8]))
def test_visits_tend_to_the_closed_form_and_sum_to_the_length(seed: int, restart: float) -> None:
    y = (rng(seed).random((30, 15)) < 0.2).astype(np.float64)
    y[np.arange(15), np.arange(15)] = 1  # every label has a document
    length = 20_000
    counts = random_walk_graph(csr_array(y), length=length, restart=restart, rng=rng(seed)).toarray()
    step = (y / y.sum(axis=0)).T @ (y / np.maximum(y.sum(axis=1, keepdims=True), 1))
    assert np.abs(counts / length - restart * step @ np.linalg.inv(np.eye(15) - (1 - restart) * step)).max() < 0.02
    assert (counts.sum(axis=1) == length).all()


@pytest.mark.claim("E3")
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from(SOURCES), st.integers(0, 12))
def test_the_largest_singular_value_is_one(seed: int, source: str, top_k: int) -> None:
    graph = built(source, seed, top_k=top_k).toarray().astype(np.float64)
    assert (graph >= 0).all()
    assert (graph.diagonal() > 0).all()
    assert np.linalg.svd(graph, compute_uv=False)[0] == pytest.approx(1, abs=1e-6)  # float32
    counts = with_diagonal(
        random_walk_graph(planted(seed), length=60, restart=0.8, rng=rng(seed)).toarray().astype(np.float64)
    )
    assert np.linalg.svd(normalised(csr_array(counts), "both").toarray(), compute_uv=False)[0] == pytest.approx(
        1, abs=1e-8
    )


# ---- normalisation ----


def test_rows_sum_to_one() -> None:
    np.testing.assert_allclose(built("walk", norm="rows").sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_perron_is_the_symmetric_form_by_the_stationary_distribution(seed: int) -> None:
    counts = with_diagonal(
        random_walk_graph(planted(seed), length=60, restart=0.8, rng=rng(seed), top_k=3).toarray().astype(np.float64)
    )
    steps = counts / counts.sum(axis=1, keepdims=True)
    jumping = 0.999 * steps + 0.001 / 15
    values, vectors = np.linalg.eig(jumping.T)
    place = np.abs(np.real(vectors[:, np.argmax(np.real(values))]))
    root = np.sqrt(place / place.sum())
    half = root[:, None] * steps / root
    scaled = perron_scaled(csr_array(counts)).toarray()
    np.testing.assert_allclose(scaled, (half + half.T) / 2, atol=1e-5)
    np.testing.assert_allclose(scaled, scaled.T)
    graph = built("walk", seed, norm="perron").toarray()
    assert graph[3, 3] == pytest.approx(1)
    assert np.count_nonzero(graph[3]) == 1


# ---- the trace of one walk ----


@pytest.mark.parametrize("label", [0, 7, 14])
def test_a_trace_is_the_walk_that_was_counted(label: int) -> None:
    targets = planted(1)
    steps = walk_trace(targets, label, 60, 0.8, rng(1), head_documents=HEAD)
    assert steps.shape == (60, 2)
    y, here = targets.toarray(), label
    for document, reached in steps.tolist():
        assert y[document, reached]
        assert reached != 3, "no walk passes through a head"
        assert y[document, here] or y[document, label], "a step starts where the last one ended, or at the start"
        here = reached
    counts = random_walk_graph(no_heads(targets, head_labels(targets, HEAD)), length=60, restart=0.8, rng=rng(1))
    assert Counter(steps[:, 1].tolist()) == {
        int(c): int(v) for c, v in zip(counts[[label]].indices, counts[[label]].data, strict=True)
    }


def test_a_trace_without_restart_goes_on_from_where_it_is() -> None:
    """A chain of labels 0 - 1 - 2: only a walk that does not restart gets from 0 to 2."""
    chain = csr_array(np.array([[1, 1, 0], [0, 1, 1]], dtype=np.float32))
    assert set(walk_trace(chain, 0, 200, 1.0, rng(), head_documents=9)[:, 1].tolist()) == {0, 1}
    assert set(walk_trace(chain, 0, 200, 0.0, rng(), head_documents=9)[:, 1].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("label", [3, 5])
def test_a_head_and_a_label_without_documents_have_no_walk(label: int) -> None:
    assert walk_trace(planted(0), label, 10, 0.5, rng(), head_documents=HEAD).shape == (0, 2)


@pytest.mark.parametrize("label", [-1, 15])
def test_a_trace_of_an_unknown_label_is_an_error(label: int) -> None:
    with pytest.raises(ConfigError, match="0 to 14"):
        walk_trace(planted(0), label, 10, 0.5, rng())


# ---- threads ----


def test_threads_do_not_matter() -> None:
    targets = csr_array((rng(0).random((300, 400)) < 0.01).astype(np.float32))
    before = numba.get_num_threads()
    graphs = []
    try:
        for threads in (1, before):
            numba.set_num_threads(threads)
            graphs.append(label_graph(targets, LabelGraphConfig(length=50), rng()).toarray())
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(*graphs)


def test_inputs_stay_as_they_were() -> None:
    targets, user = planted(0), user_graph(0)
    before = targets.toarray(), user.toarray()
    for source in SOURCES:
        label_graph(targets, settings_of(source), rng(), [user])
    np.testing.assert_array_equal(before[0], targets.toarray())
    np.testing.assert_array_equal(before[1], user.toarray())


# ---- texts ----


def test_edges_between_labels_of_unlike_texts_are_left_out() -> None:
    """By dense products. The diagonal stays, and so do edges of a label without text."""
    weights = np.array([[2, 1, 3, 1], [1, 0, 2, 0], [1, 1, 1, 1], [1, 1, 1, 1]], float)
    texts = np.array([[1, 1, 0], [2, 1, 0], [0, 0, 3], [0, 0, 0]], float)
    unit = texts / np.maximum(np.linalg.norm(texts, axis=1, keepdims=True), 1e-12)
    kept = (unit @ unit.T >= 0.5) | np.eye(4, dtype=bool)
    kept[3], kept[:, 3] = True, True
    found = near_in_text(csr_array(weights), csr_array(texts), 0.5)
    np.testing.assert_array_equal(found.toarray(), weights * kept)
    assert found.nnz == np.count_nonzero(weights * kept)


def test_text_is_compared_before_the_graph_is_scaled() -> None:
    targets = planted(3)
    texts = csr_array(np.abs(np.random.default_rng(0).standard_normal((15, 6))) * (np.arange(6) < 3))
    config = settings_of("cooc", text_cosine=0.8)
    plain = settings_of("cooc")
    assert (label_graph(targets, config, rng()) != label_graph(targets, plain, rng())).nnz == 0, "no texts, no pruning"
    pruned = label_graph(targets, config, rng(), texts=texts)
    assert pruned.nnz < label_graph(targets, plain, rng()).nnz
    weights = near_in_text(
        _sources(targets, head_labels(targets, config.head_documents), config, rng(), ())[0], texts, 0.8
    )
    np.testing.assert_allclose(pruned.toarray(), both_sides(with_diagonal(weights.toarray())), rtol=1e-5)
