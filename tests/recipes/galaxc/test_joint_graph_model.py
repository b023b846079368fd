"""Prediction over a joint graph: how documents come in, what changes nothing, and what is never predicted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.models.encoders import FrozenGinLayer, FrozenSum
from longtail.models.rankers import Classifier, sigmoid
from longtail.persistence import StringTable, load_part, save_part
from longtail.recipes.galaxc import graph as graph_module
from longtail.recipes.galaxc.graph import (
    Anchors,
    Fanout,
    GraphSpace,
    HiddenEdges,
    JointGraph,
    Paths,
    Shape,
    added,
    balanced,
    document_nodes,
    joint_graph,
    labels_of_nodes,
    preferred,
)
from longtail.recipes.galaxc.ranker import (
    FrozenHops,
    FrozenMessages,
    FrozenSageLayer,
    JointGraphModel,
    attention,
    attention_by_frequency,
    bytes_of_parts,
    embedding_recall,
    hop_norms,
    listed,
    node_views,
)
from longtail.search.index import ExactIndex, HnswIndex
from longtail.types import Batch, Context, ContextRanker, Ranker, TopK

WORDS, LABELS, DOCUMENTS, WIDTH = 12, 9, 25, 7
rng = np.random.default_rng(3)
TABLE = rng.standard_normal((WORDS, WIDTH)).astype(np.float32)
TARGETS = csr_array((rng.random((DOCUMENTS, LABELS)) < 0.25).astype(np.float32))
TEXTS = (rng.random((DOCUMENTS + LABELS, WORDS)) < 0.3).astype(np.float32)
QUERIES = csr_array((np.random.default_rng(9).random((14, WORDS)) < 0.35).astype(np.float32))
ROWS = rng.standard_normal((LABELS, WIDTH)).astype(np.float32)
ALPHAS = rng.dirichlet([1, 1, 1], LABELS).astype(np.float32)
HOPS = FrozenHops(
    rng.random(3).astype(np.float32),
    (np.eye(WIDTH) + 0.2 * rng.standard_normal((3, WIDTH, WIDTH))).astype(np.float32),
    rng.standard_normal((3, WIDTH)).astype(np.float32),
)
ANCHORS = Anchors(StringTable.of(["rare", "common"]), csr_array(np.array([[1, 0] * 17, [1] * 34], dtype=np.float32)))


def space(
    fanout: Fanout | None = None, *, unit: bool = True, anchors: Anchors | None = None, **more: Any
) -> GraphSpace:
    nodes = document_nodes(DOCUMENTS, LABELS, np.zeros((0, 2), np.int64))
    graph = joint_graph(TARGETS, nodes, np.random.default_rng(0))
    vectors: Any = TEXTS @ TABLE
    vectors = unit_rows(vectors) if unit else vectors
    return GraphSpace(
        encoder=FrozenSum(TABLE),
        graph=graph,
        vectors=vectors,
        linker=ExactIndex.build(vectors),
        fanout=fanout or Fanout((4, 3, 2)),
        shape=Shape(unit),
        anchors=anchors,
        **more,
    )


def model(made: GraphSpace | None = None, size: int = 5, **more: Any) -> JointGraphModel:
    made = made or space()
    index = ExactIndex.build(node_views(HOPS, made.paths, np.arange(LABELS, dtype=np.int32)).search)
    return JointGraphModel(made, HOPS, index, Classifier(ROWS), ALPHAS, size, **more)


BATCH = Batch(sparse=QUERIES)


def matrix(rows: list[list[int]], columns: int) -> Any:
    ends = np.cumsum([0, *map(len, rows)])
    indices = np.array([column for row in rows for column in row], dtype=np.int32)
    return csr_array((np.ones(len(indices), np.float32), indices, ends), shape=(len(rows), columns))


def equal(a: TopK, b: TopK) -> None:
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_array_equal(a.scores, b.scores)


# ---- scores ----


def test_a_rank_is_its_formula() -> None:
    made = replace(model(), beta=0.7, temperature=0.5)
    views = made.views(BATCH)
    cosine = unit_rows(views.search) @ unit_rows(made.label_views().search).T
    raw = np.einsum("lk,bkd,ld->bl", ALPHAS, views.score, ROWS)
    fused = 0.7 * sigmoid(raw) + 0.3 * sigmoid(cosine / 0.5)
    top = made.rank(BATCH, LABELS)
    for row in range(len(BATCH)):
        shortlist = np.argsort(-cosine[row], kind="stable")[:5]
        expected = sorted(shortlist.tolist(), key=lambda label: (-fused[row, label], label))
        assert top.ids[row, :5].tolist() == expected
        np.testing.assert_allclose(top.scores[row, :5], fused[row, expected], rtol=1e-5)
        assert (top.ids[row, 5:] == TopK.PAD).all()


def test_log_odds_far_above_what_a_score_can_tell_apart_still_rank() -> None:
    """At 20 and more every sigmoid is 1 in float32, from 37 on in double precision, too."""
    bias = np.linspace(20, 60, LABELS).astype(np.float32)[::-1].copy()
    bias[[1, 4]] = bias[[4, 1]]
    top = replace(model(size=LABELS, beta=1.0), classifier=Classifier(np.zeros_like(ROWS), bias)).rank(BATCH, LABELS)
    assert (top.scores == 1).all()
    assert (top.ids == np.argsort(-bias, kind="stable")).all()


def test_nodes_vote_for_the_labels_that_they_have_or_are() -> None:
    """Against plain loops: votes of the nearest nodes, as a second list beside the nearest labels."""
    made = space()
    labels = labels_of_nodes(TARGETS, made.graph.nodes, len(made.graph))
    wide = model(made, size=LABELS)
    voting = model(made, size=6, node_labels=labels, voters=5, gamma=0.4, reserved=0.5)
    vectors = made.initial(BATCH)
    cosine = wide.index.query(wide.views(BATCH).search, LABELS)
    near = made.nearest(vectors, count=5)
    documents_of = {int(node): row for row, node in enumerate(made.graph.nodes)}
    alone = 0
    for row in range(len(BATCH)):
        votes = np.zeros(LABELS)
        for node, value in zip(near.ids[row].tolist(), near.scores[row].tolist(), strict=True):
            if node >= 0:
                own = {node} if node < LABELS else set(TARGETS[[documents_of[node]]].indices.tolist())
                votes[sorted(own)] += value
        votes /= max(votes.max(), 1e-12)
        first = dict(zip(cosine.ids[row, :6].tolist(), cosine.scores[row, :6].tolist(), strict=True))
        scores = {label: 0.6 * first.get(label, 0) + 0.4 * votes[label] for label in {*first, *np.flatnonzero(votes)}}
        found, kept = voting._shortlisted(voting.views(BATCH), BATCH, Context())
        listed = {
            int(label): float(score)
            for label, score in zip(found.ids[row][kept[row]], found.scores[row][kept[row]], strict=True)
        }
        assert len(listed) == 6
        alone += len(set(listed) - set(first))
        for label, score in listed.items():
            assert score == pytest.approx(scores[label], abs=1e-5)
    assert alone, "some labels are on the list by votes alone"


def test_labels_of_nodes() -> None:
    targets = matrix([[1], [0, 2], [2]], 3)
    nodes = document_nodes(3, 3, np.array([[0, 0]]))
    found = labels_of_nodes(targets, nodes, 5).toarray()
    np.testing.assert_array_equal(found, [[1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 0, 1]])


def test_without_attention_labels_read_the_mean_view() -> None:
    made = replace(model(size=LABELS), alphas=None)
    same = replace(model(size=LABELS), alphas=np.full((LABELS, 3), 1 / 3, np.float32))
    np.testing.assert_allclose(made.rank(BATCH, 4).scores, same.rank(BATCH, 4).scores, rtol=1e-5)


def test_biases_count() -> None:
    bias = np.linspace(-2, 2, LABELS).astype(np.float32)
    made = model(size=LABELS)
    ids = np.tile(np.array([0, 3, -1], np.int32), (len(BATCH), 1))
    views = made.views(BATCH).score
    plain, biased = made.scores(views, ids), replace(made, classifier=Classifier(ROWS, bias)).scores(views, ids)
    np.testing.assert_allclose(biased - plain, np.tile([bias[0], bias[3], 0], (len(BATCH), 1)), atol=1e-5)


def test_scoring_all_labels_shows_what_the_shortlist_loses() -> None:
    made = model(size=2)
    assert (made.rank(BATCH, 5).ids[:, 2:] == TopK.PAD).all()
    everything = made.exhaustive().rank(BATCH, LABELS)
    assert (np.sort(everything.ids, axis=1) == np.arange(LABELS)).all()


def test_it_is_saved(tmp_path: Path) -> None:
    for name, made in {
        "unit": model(space(anchors=ANCHORS)),
        "raw": model(space(unit=False)),
        "hnsw": replace(model(), space=replace(space(), linker=HnswIndex.build(space().vectors))),
        "all neighbours": model(space(Fanout((1, 1, 1), full=True))),
        "votes": model(node_labels=labels_of_nodes(TARGETS, space().graph.nodes, len(space().graph)), voters=4),
    }.items():
        save_part(made, tmp_path / name)
        again = load_part(tmp_path / name)
        assert isinstance(again, Ranker)
        assert isinstance(again, ContextRanker)
        equal(again.rank(BATCH, 4), made.rank(BATCH, 4))
        assert list(again.anchor_uids) == list(made.anchor_uids)


def test_an_exact_linker_is_not_saved_twice(tmp_path: Path) -> None:
    save_part(space(), tmp_path / "space")
    assert not (tmp_path / "space" / "linker").exists()
    save_part(space(unit=False), tmp_path / "raw")
    assert (tmp_path / "raw" / "linker" / "part.json").exists()


# ---- G16 ----


@pytest.mark.claim("G16")
def test_prediction_leaves_the_graph_as_it_was() -> None:
    made = model(space(anchors=ANCHORS))
    graph = made.space.graph
    before = [array.copy() for array in (graph.starts, graph.neighbours, made.space.vectors, made.label_views().search)]
    known = matrix([[row % LABELS] for row in range(14)], LABELS)
    for context in (Context(), Context(known), Context(anchors=matrix([[1]] * 14, 2)), Context(together=True)):
        made.rank_in_context(BATCH, 5, context)
    for array, old in zip(
        (graph.starts, graph.neighbours, made.space.vectors, made.label_views().search), before, strict=True
    ):
        np.testing.assert_array_equal(array, old)


@pytest.mark.claim("G16")
@pytest.mark.parametrize("kind", ["cold", "warm", "anchors", "both"])
def test_a_document_does_not_depend_on_the_others(kind: str) -> None:
    made = model(space(anchors=ANCHORS))
    rng = np.random.default_rng(0)
    known = matrix([sorted(rng.choice(LABELS, rng.integers(0, 4), replace=False).tolist()) for _ in range(14)], LABELS)
    anchors = matrix([sorted(rng.choice(2, rng.integers(0, 3), replace=False).tolist()) for _ in range(14)], 2)
    context = Context(known if kind in ("warm", "both") else None, anchors if kind in ("anchors", "both") else None)
    whole = made.rank_in_context(BATCH, LABELS, context)
    for row in range(14):
        alone = made.rank_in_context(BATCH.rows([row]), LABELS, context.rows([row]))
        np.testing.assert_array_equal(alone.ids[0], whole.ids[row])
        np.testing.assert_allclose(alone.scores[0], whole.scores[row], rtol=0, atol=1e-6)


@pytest.mark.claim("F15")
@pytest.mark.parametrize("kind", ["hops", "sage", "gin"])
def test_views_of_wide_vectors_do_not_feel_their_batch(kind: Any) -> None:
    """Products of float32 differ by ten times as much at this width when one row is multiplied and when many are."""
    wide, draws = 300, np.random.default_rng(5)

    def weights(*shape: int) -> Any:
        return (draws.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    square = {
        "first": weights(wide, wide),
        "first_bias": weights(wide),
        "second": weights(wide, wide),
        "second_bias": weights(wide),
    }
    layers: dict[str, Any] = {
        "sage": FrozenSageLayer(weights(wide, 2 * wide), weights(wide)),
        "gin": FrozenGinLayer(1.0, **square),
    }
    hops = (
        FrozenHops(HOPS.epsilons, 10 * weights(3, wide, wide), weights(3, wide))
        if kind == "hops"
        else FrozenMessages((layers[kind],) * 3, mean=kind == "sage")
    )
    graph = space().graph
    paths = Paths(graph, unit_rows(weights(len(graph), wide)), Fanout((4, 3, 2)))
    vectors, links = unit_rows(weights(40, wide)), draws.integers(-1, len(graph), (40, 4)).astype(np.int32)
    whole = hops.of_linked(paths, vectors, links, 0).score
    for rows in (slice(0, 1), slice(7, 9), slice(11, 25)):
        found = hops.of_linked(paths, vectors[rows], links[rows], 0).score
        np.testing.assert_allclose(found, whole[rows], rtol=0, atol=2e-7 * float(np.abs(whole).max()))


# ---- links ----


def test_a_document_is_linked_to_its_nearest_nodes() -> None:
    for made in (space(), space(unit=False)):
        vectors = made.initial(BATCH)
        cosine = unit_rows(vectors) @ unit_rows(made.vectors).T
        links = made.nearest(vectors).ids
        for row in range(len(BATCH)):
            expected = [
                node for node in np.lexsort((np.arange(len(made.graph)), -cosine[row]))[:4] if cosine[row, node] > 0
            ]
            assert [node for node in links[row] if node >= 0] == expected


def test_a_training_document_is_not_its_own_neighbour() -> None:
    made = space()
    nodes = made.graph.nodes
    links = made.nearest(made.vectors[nodes], exclude=nodes.astype(np.int64)).ids
    assert not (links == nodes[:, None]).any()
    assert (made.nearest(made.vectors[nodes]).ids == nodes[:, None]).any(axis=1).sum() > 20


def test_nodes_that_have_nothing_in_common_are_no_neighbours() -> None:
    """A document whose cosines are all 0 or less has no neighbour, and is what its own text says."""
    made = space()
    lonely = replace(made, vectors=-np.abs(made.vectors), linker=ExactIndex.build(-np.abs(made.vectors)))
    vectors = np.abs(made.vectors[:2])
    assert (lonely.nearest(vectors).ids == TopK.PAD).all()
    views = HOPS.of_linked(lonely.paths, vectors, lonely.linked(vectors, Context()), 0).score
    alone = np.repeat(vectors[:, None], 3, axis=1) * np.cumprod(1 + HOPS.epsilons)[None, :, None]
    np.testing.assert_allclose(views, HOPS.transformed(alone.astype(np.float32)), rtol=1e-5, atol=1e-6)


def test_known_labels_stand_beside_the_nearest_nodes_and_count_as_much() -> None:
    """Two known labels beside four nodes: each label twice. So too for nodes of the same anchor; a document without
    either has its nearest nodes alone.
    """
    made = space(anchors=ANCHORS)
    vectors = made.initial(BATCH)[:3]
    known, anchors = matrix([[2, 5], [], []], LABELS), matrix([[0], [0], []], 2)
    near, given = made.nearest(vectors).ids, made.given(3, Context(known, anchors))
    links = [
        sorted(node for node in row if node >= 0) for row in made.linked(vectors, Context(known, anchors)).tolist()
    ]
    assert links[0] == sorted([2, 2, 5, 5, *near[0].tolist()])
    assert links[1] == sorted([*np.resize(given[1][given[1] >= 0], 4).tolist(), *near[1].tolist()])
    assert links[2] == sorted(near[2].tolist())
    # What the labels add is the mean of both sides, scaled to the fan-out.
    sums = made.paths.of_linked(vectors[:1], made.linked(vectors, Context(known, anchors))[:1], 0)[0, 1]
    both = (made.vectors[[2, 5]].mean(axis=0) + made.vectors[near[0]].mean(axis=0)) / 2
    np.testing.assert_allclose(sums, 4 * both, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([7], [1, 2, 3, 4], [7, 1, 7, 2, 7, 3, 7, 4]),
        ([5, 6, 7], [1, 2, -1], [5, 1, 6, 2, 7, 1]),
        ([-1], [1, 2], [1, 2]),
        ([3, 4], [-1], [3, 4]),
        ([-1], [-1], [-1]),
    ],
)
def test_both_sides_in_turn(first: list[int], second: list[int], expected: list[int]) -> None:
    assert balanced(np.array([first], np.int32), np.array([second], np.int32)).tolist() == [expected]


def test_known_labels_can_take_the_place_of_the_nearest_nodes_as_in_the_paper() -> None:
    made = space(anchors=ANCHORS, beside=False)
    vectors = made.initial(BATCH)
    known, anchors = matrix([[2, 5], [], []], LABELS), matrix([[0], [0], []], 2)
    links = made.linked(vectors[:3], Context(known, anchors))
    assert [node for node in links[0] if node >= 0] == [2, 5]
    assert set(links[1][links[1] >= 0].tolist()) <= set(range(0, 34, 2)), "nodes of the rare anchor"
    np.testing.assert_array_equal(links[2][:4], made.nearest(vectors[2:3]).ids[0])


def test_anchors_need_a_model_that_knows_some() -> None:
    with pytest.raises(ConfigError, match="no anchors"):
        model().rank_in_context(BATCH, 3, Context(anchors=matrix([[0]] * 14, 1)))


def test_a_document_that_is_a_label_has_its_neighbours_beside_the_nearest_nodes() -> None:
    made = space(test_identity=True)
    plain = space()
    vectors = np.concatenate([made.vectors[[3]], made.initial(BATCH)[:1]])
    links, near = made.linked(vectors, Context()), plain.linked(vectors, Context())
    graph = made.graph
    own = graph.neighbours[graph.starts[3] : graph.starts[4]].tolist()
    assert set(near[0].tolist()) - set(own), "the test needs nearest nodes that are no neighbours"
    assert sorted(links[0][links[0] >= 0].tolist()) == sorted({*own, *near[0].tolist()})
    np.testing.assert_array_equal(links[1][:4], near[1])
    assert (links[1][4:] == TopK.PAD).all()


@pytest.mark.parametrize("test_identity", [False, True])
def test_training_documents_as_new_ones_keep_all_but_their_labels(test_identity: bool) -> None:
    """The nearest nodes; of a document that is a label this label among them, as a new document would find it, and
    where new documents take a label's place its other neighbours. Documents are not linked to their own nodes.
    """
    made = space(test_identity=test_identity)
    graph, nodes = made.graph, np.array([3, int(made.graph.nodes.max())], np.int32)
    own = graph.neighbours[graph.starts[3] : graph.starts[4]].tolist()
    gone = np.array([own[0], *graph.neighbours[graph.starts[nodes[1]] : graph.starts[nodes[1] + 1]]], np.int32)
    hidden = HiddenEdges(nodes.astype(np.int64), np.array([0, 1, len(gone)]), gone)
    links = made.as_new(nodes, hidden)
    near = made.nearest(made.vectors[nodes], exclude=np.array([-1, nodes[1]])).ids
    assert 3 in near[0]
    expected = [{*near[0].tolist(), *(own[1:] if test_identity else [])}, set(near[1].tolist())]
    assert [{node for node in row if node >= 0} for row in links.tolist()] == [found - {-1} for found in expected]


def test_of_many_neighbours_some_are_taken() -> None:
    made = space(test_identity=True)
    n = len(made.graph)
    hub = JointGraph(
        np.array([0, n - 1, *[n - 1] * (n - 1)]), np.arange(1, n, dtype=np.int32), made.graph.nodes, made.graph.n_labels
    )
    most, links = graph_module._MOST_NEIGHBOURS, replace(made, graph=hub).linked(made.vectors[[0]], Context())
    assert n - 1 > most
    assert set(range(1, most + 1)) <= set(links[0].tolist())
    assert (links[0] >= 0).sum() <= most + made.links


@pytest.mark.parametrize(
    ("first", "more", "expected"),
    [([4, 5], [5, 6, -1], [4, 5, 6]), ([4, -1], [-1, 6], [4, 6]), ([-1, -1], [-1], [-1]), ([-1, 2], [2, 3], [2, 3])],
)
def test_added_links(first: list[int], more: list[int], expected: list[int]) -> None:
    assert added(np.array([first], np.int32), np.array([more], np.int32)).tolist() == [expected]


def test_preferences() -> None:
    first, otherwise = np.array([[-1], [4]], np.int32), np.array([[1, 2], [3, 5]], np.int32)
    assert preferred(first, otherwise).tolist() == [[1, 2], [4, -1]]


# ---- warm start ----


def test_known_labels_are_not_predicted_and_take_no_place() -> None:
    made = model(size=3)
    known = matrix([[row % LABELS, (row + 4) % LABELS] for row in range(14)], LABELS)
    top = made.rank_in_context(BATCH, LABELS, Context(known))
    assert not listed(top.ids, known).any()
    assert ((top.ids >= 0).sum(axis=1) >= 3).all(), "the shortlist is as long as without them"


def test_known_labels_change_what_else_is_found() -> None:
    made = model(size=LABELS)
    cold, warm = made.rank(BATCH, 1), made.rank_in_context(BATCH, 1, Context(matrix([[1]] * 14, LABELS)))
    assert (cold.ids != warm.ids).any()


def test_of_a_document_without_words_only_its_labels_speak() -> None:
    made, empty = model(), Batch(sparse=csr_array((2, WORDS), dtype=np.float32))
    assert (made.rank(empty, 3).ids == TopK.PAD).all()
    warm = made.rank_in_context(empty, 3, Context(matrix([[4], []], LABELS)))
    assert (warm.ids[0] >= 0).all()
    assert (warm.ids[1] == TopK.PAD).all()


# ---- together ----


def test_documents_see_each_other_only_when_asked_to() -> None:
    made = model(size=LABELS)
    twice = Batch(sparse=csr_array(np.concatenate([QUERIES.toarray(), QUERIES.toarray()[:5]])))
    np.testing.assert_allclose(made.rank(twice, 3).scores[:14], made.rank(BATCH, 3).scores, atol=1e-6)
    together = Context(together=True)
    changed = made.rank_in_context(twice, 3, together).scores[:14] != made.rank_in_context(BATCH, 3, together).scores
    assert changed.any()


def test_a_document_is_not_linked_to_itself() -> None:
    made = space()
    vectors = made.initial(BATCH)
    graph = made.with_documents(vectors, Context(together=True)).graph
    n = len(made.graph)
    assert len(graph) == n + 14
    for row in range(14):
        own = graph.neighbours[graph.starts[n + row] : graph.starts[n + row + 1]]
        assert n + row not in own.tolist()
        cosine = unit_rows(np.concatenate([made.vectors, vectors])) @ unit_rows(vectors[[row]])[0]
        cosine[n + row] = -1
        np.testing.assert_allclose(np.sort(cosine[own]), np.sort(cosine)[-4:], rtol=1e-4)
    context = Context(matrix([[row % LABELS] for row in range(14)], LABELS), together=True)
    known = replace(made, beside=False).with_documents(vectors, context).graph
    assert known.neighbours[known.starts[n] :].tolist() == [row % LABELS for row in range(14)]
    both = made.with_documents(vectors, context).graph
    for row in range(14):
        own, alone = (of.neighbours[of.starts[n + row] : of.starts[n + row + 1]].tolist() for of in (both, graph))
        assert sorted(own) == sorted([row % LABELS] * 4 + alone)


# ---- analyses ----


def test_attention_by_frequency() -> None:
    made, counts = model(), np.array([9, 1, 8, 2, 7, 3, 6, 4, 5])
    bins, table = attention_by_frequency(made, counts)
    norms = np.linalg.norm(made.training_views().score, axis=2).mean(axis=0)
    np.testing.assert_allclose(hop_norms(made), norms, rtol=1e-5)
    head = np.flatnonzero(bins.bin_of_label == 0)
    assert set(counts[head].tolist()) == {8, 9}
    np.testing.assert_allclose(table[0], ALPHAS[head].mean(axis=0) * norms, rtol=1e-5)
    np.testing.assert_allclose(attention(made).sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(attention(replace(made, alphas=None)), 1 / 3)


def test_recall_of_embeddings() -> None:
    made, truth = model(), csr_array((np.random.default_rng(1).random((14, LABELS)) < 0.3).astype(np.float32))
    found = embedding_recall(made, BATCH, truth, k=4)
    assert {"initial", "convolved, mean of hops", "transformed, hop 3"} < found.keys()
    cosine = unit_rows(made.space.initial(BATCH)) @ unit_rows(made.space.vectors[:LABELS]).T
    top = np.argsort(-cosine, axis=1, kind="stable")[:, :4]
    wanted = truth.toarray() > 0
    shares = [wanted[row, top[row]].sum() / wanted[row].sum() for row in range(14) if wanted[row].any()]
    assert found["initial"] == pytest.approx(100 * np.mean(shares))


@pytest.mark.parametrize("space_", ["raw", "convolved", "transformed"])
def test_embeddings_of_documents_and_labels(space_: Any) -> None:
    made = model()
    vectors = made.space.initial(BATCH)
    sums = made.space.paths.of_linked(vectors, made.space.linked(vectors, Context()), 0x6A1A)
    expected = {
        "raw": np.repeat(vectors[:, None], 3, axis=1),
        "convolved": HOPS.convolved(sums),
        "transformed": HOPS.transformed(HOPS.convolved(sums)),
    }[space_]
    np.testing.assert_allclose(made.embeddings(BATCH, space_), expected.mean(axis=1), rtol=1e-4, atol=1e-5)
    if space_ != "raw":
        np.testing.assert_allclose(made.embeddings(BATCH, space_, 2), expected[:, 1], rtol=1e-4, atol=1e-5)
    assert made.embeddings(None, space_).shape == (LABELS, WIDTH)


def test_other_encoders_have_one_view() -> None:
    layer = FrozenSageLayer(np.ones((WIDTH, 2 * WIDTH), np.float32), np.zeros(WIDTH, np.float32))
    hops = FrozenMessages((layer, layer, layer), mean=True)
    made = replace(model(), hops=hops, alphas=None)
    assert made.embeddings(BATCH, "transformed").shape == (14, WIDTH)
    assert set(embedding_recall(made, BATCH, TARGETS[:14], k=2)) == {"initial", "transformed, mean of hops"}
    with pytest.raises(ConfigError, match="convolved"):
        made.embeddings(BATCH, "convolved")


def test_bytes_of_parts() -> None:
    made = model()
    sizes = bytes_of_parts(made)
    assert sizes["classifiers"] == 4 * LABELS * WIDTH
    assert sizes["attention"] == 4 * LABELS * 3
    assert sizes["vectors of nodes"] == 4 * (DOCUMENTS + LABELS) * WIDTH
    assert sizes["index of nodes"] == 0, "it is the vectors of nodes"
    assert sizes["edges"] >= 2 * 4 * TARGETS.nnz
    assert sizes["all"] == sum(size for name, size in sizes.items() if name != "all")
