"""Regularisers on random and planted graphs: which triplets there are, what pruning keeps, and that streams stay
apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.graph.anchor_graph import AnchorGraph
from longtail.nn.batches import Documents
from longtail.nn.encoders import GivenVectors, UnitEncoder
from longtail.recipes.ramen import graph_loss as module
from longtail.recipes.ramen.graph_loss import (
    ENOUGH_BLOCKS,
    MOST_STEPS,
    AnchorSet,
    BanditConfig,
    BatchVectors,
    RegulariserConfig,
    Regularisers,
    WeightBandit,
    capped,
    drawn_by_weight,
    given_shares,
    term_names,
)
from longtail.training.objectives import vectors_together
from longtail.types import Batch

WIDTH = 6


def made(
    graphs: list[AnchorGraph], vectors: list[Any], config: RegulariserConfig | None = None, **bandit: Any
) -> tuple[Regularisers, list[Any]]:
    """Regularisers whose anchors are given vectors, with bandit off unless asked for; and what they log."""
    logged: list[Any] = []
    sets = [AnchorSet(graph, Documents(Batch(dense=v))) for graph, v in zip(graphs, vectors, strict=True)]
    weights = WeightBandit(
        term_names(graphs),
        BanditConfig(**{"enabled": False, **bandit}),
        lambda block: np.random.default_rng([1, block]),
    )
    found = Regularisers(
        sets,
        config or RegulariserConfig(),
        weights,
        rng_for=lambda name, number: np.random.default_rng([len(name), number]),
        log=lambda event, **values: logged.append((event, values)),
        say=logged.append,
    )
    return found, logged


def random_graph(rng: np.random.Generator, items: dict[Any, int], anchors: int, share: float = 0.2) -> AnchorGraph:
    return AnchorGraph(
        "g", {side: csr_array((rng.random((n, anchors)) < share).astype(np.float32)) for side, n in items.items()}
    )


def unit(rng: np.random.Generator, n: int) -> Any:
    vectors = rng.standard_normal((n, WIDTH)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


ENCODER = UnitEncoder(GivenVectors(WIDTH))


def losses_of(found: Regularisers, encoder: Any, vectors: BatchVectors, wanted: Any) -> list[Any]:
    """Every R of a step where `wanted` terms have the weight 1, the others 0."""
    step = found.draw({side: numbers for side, (numbers, _) in vectors.items()}, np.append(1.0, wanted))
    return list(found.losses(vectors, step, vectors_together(encoder, found.texts(step))))


def objective_of(found: Regularisers, task: Any, encoder: Any, vectors: BatchVectors) -> Any:
    """J of a step, whose anchors are drawn and encoded here."""
    step = found.draw({side: numbers for side, (numbers, _) in vectors.items()})
    return found.objective(task, vectors, step, vectors_together(encoder, found.texts(step)))


@pytest.mark.claim("R5")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.6))
def test_negatives_are_never_edges_and_items_without_anchors_take_no_part(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, {"documents": 12, "labels": 7}, 9, share)
    found, _ = made([graph], [unit(rng, 9)])
    # Pruning hides half of the edges: they are no positives, and must not become negatives either.
    for side, kept in found.sets[0].kept.items():
        kept.copy_(torch.from_numpy((rng.random(len(kept)) < 0.5).astype(np.uint8)))
        assert side in graph.sides
    found.sets[0].begin_epoch(rng)
    rows, labels = rng.permutation(12)[:8], np.sort(rng.permutation(7)[:4])
    vectors = BatchVectors(
        {"documents": (rows, torch.from_numpy(unit(rng, 8))), "labels": (labels, torch.from_numpy(unit(rng, 4)))}
    )
    seen: list[Any] = []
    pools: list[Any] = []
    texts = found.texts

    def spy(similarity: Any, positive: Any, negative: Any, **_: Any) -> Any:
        seen.append((positive.numpy(), negative.numpy()))
        return similarity.sum() * 0

    def recorded(step: Any) -> Any:
        pools.extend(part.pool for part in step.sets)
        return texts(step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "triplet_loss", spy)
        patch.setattr(found, "texts", recorded)
        losses = losses_of(found, ENCODER, vectors, np.ones(2, bool))
    current: dict[str, Any] = {side: found.sets[0].current[side].toarray() > 0 for side in graph.sides}
    whole: dict[str, Any] = {side: edges.toarray() for side, edges in graph.sides.items()}
    for (name, numbers), loss in zip((("documents", rows), ("labels", labels)), losses, strict=True):
        has_anchor = current[name][numbers].any(axis=1)
        assert (loss is not None) == has_anchor.any()
        if loss is None:
            continue
        positive, negative = seen.pop(0)
        np.testing.assert_array_equal(positive >= 0, has_anchor)
        np.testing.assert_array_equal(negative, whole[name][numbers][:, pools[0]] == 0)
        assert current[name][numbers[has_anchor], pools[0][positive[has_anchor]]].all()


@pytest.mark.claim("R5")
def test_the_negatives_of_a_known_batch() -> None:
    """Items 0 and 1 have anchors 0 and 1; item 0 is linked to anchor 1 too, by an edge that was pruned; item 2 has
    none.
    """
    edges = csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]], np.float32))
    anchors = np.eye(3, WIDTH, dtype=np.float32)
    found, _ = made([AnchorGraph("g", {"documents": edges})], [anchors], RegulariserConfig(margin=0.5))
    found.sets[0].kept["documents"].copy_(torch.tensor([1, 0, 1], dtype=torch.uint8))
    found.sets[0].begin_epoch(np.random.default_rng(0))
    x = torch.nn.functional.normalize(
        torch.tensor([[0.0, 1, 0, 0, 0, 0], [1.0, 1, 0, 0, 0, 0], [1.0, 0, 0, 0, 0, 0]]), dim=1
    )
    (loss,) = losses_of(found, ENCODER, BatchVectors({"documents": (np.arange(3), x)}), np.ones(1, bool))
    # Item 0 has no negative in the pool {0, 1}; item 1 has anchor 0, as near as its own: a violation of 0.5; item 2
    # is not counted.
    assert loss is not None
    assert float(loss) == pytest.approx(0.5 / 2)


def test_pruning_keeps_like_ends_always_from_all_edges_and_says_so() -> None:
    edges = csr_array(np.array([[1, 1, 0, 0], [1, 1, 0, 0]], np.float32))
    graph = AnchorGraph("g", {"documents": edges})
    found, logged = made(
        [graph], [np.array([[1, 0], [0, 1], [0, 0], [0, 0]], np.float32)], RegulariserConfig(warm_up=1, every=2)
    )
    encoder = UnitEncoder(GivenVectors(2))
    labels = Batch(dense=np.zeros((0, 2), np.float32))

    def kept(epoch: int, vectors: Any) -> Any:
        found.begin_epoch(epoch, 20, encoder, Batch(dense=np.array(vectors, np.float32)), labels)
        return found.sets[0].current["documents"].toarray()[:, :2].tolist()

    one_way, other_way = [[1, -1], [-1, 1]], [[1, 1], [-1, -1]]
    assert kept(0, one_way) == [[1, 1], [1, 1]], "warm-up"
    assert kept(1, one_way) == [[1, 0], [0, 1]]
    assert kept(2, other_way) == [[1, 0], [0, 1]], "not due"
    assert kept(3, other_way) == [[1, 1], [0, 0]], "edges come back"
    events = [values for event, values in (entry for entry in logged if isinstance(entry, tuple)) if event == "prune"]
    assert [(event["epoch"], event["kept"], event["dropped"]) for event in events] == [(1, 2, 2), (3, 2, 2)]
    assert not [entry for entry in logged if isinstance(entry, str)]
    kept(5, [[1, 1], [1, 1]])
    assert any("0.0% of the documents edges of 'g'" in entry for entry in logged if isinstance(entry, str))


def test_pruning_in_the_batch_masks_positives_that_are_unlike() -> None:
    edges = csr_array(np.eye(2, dtype=np.float32))
    found, _ = made(
        [AnchorGraph("g", {"documents": edges})],
        [np.eye(2, dtype=np.float32)],
        RegulariserConfig(prune="inbatch", warm_up=1, margin=1.0),
    )
    encoder, nothing = UnitEncoder(GivenVectors(2)), Batch(dense=np.zeros((0, 2), np.float32))
    x = torch.tensor([[1.0, 0.0], [0.0, -1.0]])

    def loss(epoch: int) -> float:
        found.begin_epoch(epoch, 20, encoder, nothing, nothing)
        (value,) = losses_of(found, encoder, BatchVectors({"documents": (np.arange(2), x)}), np.ones(1, bool))
        assert value is not None
        return float(value)

    assert loss(0) == pytest.approx((0.0 + 2.0) / 2)
    assert loss(1) == 0, "item 1 is far from its anchor and takes no part, item 0 keeps its margin"


def test_a_term_of_weight_zero_is_not_computed_and_changes_no_other_stream() -> None:
    rng = np.random.default_rng(0)
    graphs = [random_graph(rng, {"documents": 10, "labels": 5}, 6, 0.5) for _ in range(2)]
    texts = [unit(rng, 6) for _ in graphs]
    vectors = BatchVectors(
        {
            "documents": (np.arange(10), torch.from_numpy(unit(rng, 10))),
            "labels": (np.arange(5), torch.from_numpy(unit(rng, 5))),
        }
    )
    found, _ = made(graphs, texts)
    before = torch.get_rng_state()
    whole = losses_of(found, ENCODER, vectors, np.array([True, True, True, True]))
    part = losses_of(found, ENCODER, vectors, np.array([False, False, True, True]))
    assert torch.equal(before, torch.get_rng_state())
    assert part[:2] == [None, None]
    assert [float(a) for a in whole[2:] if a is not None] == [float(b) for b in part[2:] if b is not None]
    off, _ = made(graphs, texts, fixed=0.0)
    task = torch.tensor(1.25, requires_grad=True)
    assert float(objective_of(off, task, ENCODER, vectors).detach()) == 1.25


@pytest.mark.parametrize("reward", ["objective", "task", "heldout"])
def test_a_block_ends_with_a_log_line_and_a_lesson(reward: str) -> None:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, {"documents": 10}, 6, 0.5)
    found, logged = made([graph], [unit(rng, 6)], enabled=True, block=2, reward=reward, initial=0.5)
    vectors = BatchVectors({"documents": (np.arange(10), torch.from_numpy(unit(rng, 10)))})
    totals = []
    for task in (1.0, 2.0, 3.0, 5.0):
        totals.append(float(objective_of(found, torch.tensor(task), ENCODER, vectors)))
        found.end_step(lambda: 7.0)
    (event, first), (_, second) = logged
    assert event == "bandit"
    assert first["weights"] == {"task": 1.0, "g:documents": 0.5}
    assert first["tried"]["g:documents"] in (0.4, 0.6)
    expected = {"objective": sum(totals[:2]) / 2, "task": 1.5, "heldout": 7.0}[reward]
    assert first["reward"] == pytest.approx(expected)
    assert first["losses"]["task"] == 1.5
    assert second["losses"]["task"] == 4.0
    assert sum(totals[:2]) / 2 == pytest.approx(1.5 + first["tried"]["g:documents"] * first["losses"]["g:documents"])
    assert (found.bandit.weights[1] == 0.5) == (reward == "heldout"), "an equal reward teaches nothing"


def test_it_goes_on_from_its_state() -> None:
    rng = np.random.default_rng(0)
    graph, texts = random_graph(rng, {"documents": 10}, 6, 0.5), unit(rng, 6)
    vectors = BatchVectors({"documents": (np.arange(10), torch.from_numpy(unit(rng, 10)))})
    whole, first, second = (made([graph], [texts], enabled=True, block=3)[0] for _ in range(3))

    def steps(found: Regularisers, numbers: range) -> list[float]:
        values = []
        for number in numbers:
            values.append(float(objective_of(found, torch.tensor(float(number)), ENCODER, vectors)))
            found.end_step(lambda: 0.0)
        return values

    expected = steps(whole, range(10))
    steps(first, range(5))
    for name, tensor in second.state().items():
        tensor.copy_(first.state()[name])
    assert steps(second, range(5, 10)) == expected[5:]


def test_only_the_hardest_negatives_count() -> None:
    rng = np.random.default_rng(0)
    graph, texts = random_graph(rng, {"documents": 10}, 9, 0.3), unit(rng, 9)
    vectors = BatchVectors({"documents": (np.arange(10), torch.from_numpy(unit(rng, 10)))})
    values = []
    for hardest in (0, 1):
        (loss,) = losses_of(
            made([graph], [texts], RegulariserConfig(hardest=hardest))[0], ENCODER, vectors, np.ones(1, bool)
        )
        assert loss is not None
        values.append(float(loss))
    assert values[1] > values[0], "the mean over the hardest violation is larger than over all"


def test_dropout_of_anchors_has_a_stream_of_its_own() -> None:
    rng = np.random.default_rng(0)
    graph, texts = random_graph(rng, {"documents": 10}, 9, 0.3), unit(rng, 9)
    dropout: Any = torch.nn.Dropout(0.5)
    encoder = UnitEncoder(GivenVectors(WIDTH), dropout).train()
    vectors = BatchVectors({"documents": (np.arange(10), torch.from_numpy(unit(rng, 10)))})
    found, _ = made([graph], [texts])
    values = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        (loss,) = losses_of(found, encoder, vectors, np.ones(1, bool))
        assert loss is not None
        values.append(float(loss))
    assert values[0] == values[1]


def test_an_item_has_at_most_so_many_anchors_in_an_epoch_and_others_in_the_next() -> None:
    graph = AnchorGraph("g", {"documents": csr_array(np.ones((1, 8), np.float32))})
    anchors = AnchorSet(graph, Documents(Batch(dense=np.eye(8, dtype=np.float32))))
    chosen = set()
    for epoch in range(5):
        anchors.begin_epoch(np.random.default_rng(epoch))
        assert anchors.current["documents"].nnz == graph.most == 3
        chosen.add(tuple(anchors.current["documents"].indices.tolist()))
    assert len(chosen) > 1


# ---- anchors by visits ----


def test_given_edges_have_at_least_half_of_the_weight_where_anchors_are_drawn_by_visits() -> None:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, {"documents": 40, "labels": 25}, 30, share=0.1)
    plain, by_visits = (
        graph.completed(length=400, restart=0.8, top=10, rng=np.random.default_rng(1), by_visits=visits)
        for visits in (False, True)
    )
    for side, given_edges in graph.sides.items():
        weights = by_visits.sides[side]
        assert (weights.toarray() > 0).tolist() == plain.sides[side].toarray().astype(bool).tolist()
        assert set(plain.sides[side].data.tolist()) == {1.0}
        given_share = weights.multiply(given_edges).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9)
        has_edges = given_edges.sum(axis=1) > 0
        assert given_share[has_edges].min() >= 0.5
        uniform = plain.sides[side].multiply(given_edges).sum(axis=1) / np.maximum(plain.sides[side].sum(axis=1), 1)
        assert uniform[has_edges].min() < 0.5, "drawn uniformly they are less than half for some"
        assert (weights.data[weights.multiply(given_edges).toarray()[weights.nonzero()] > 0] >= 1).all()


def test_how_many_of_the_drawn_anchors_were_given() -> None:
    given_edges = AnchorGraph("g", {"documents": csr_array(np.array([[1.0, 0, 0], [0, 0, 0], [0, 1, 1]], np.float32))})
    weights = np.array([[3.0, 1, 0], [0, 0, 0], [2, 1, 1]], np.float32)
    completed = AnchorGraph("g", {"documents": csr_array(weights)})
    assert given_shares(given_edges, completed) == {"documents": pytest.approx((0.75 + 0.5) / 2)}
    assert given_shares(given_edges, given_edges) == {"documents": 1.0}


def test_anchors_are_drawn_by_their_weights() -> None:
    edges = csr_array(np.array([[3.0, 0, 1], [0, 0, 0], [0, 2.0, 2]], np.float32))
    sums = np.append(0.0, np.cumsum(edges.data, dtype=np.float64))
    rows = np.tile(np.arange(3), 4000)
    found = drawn_by_weight(edges, sums, rows, np.random.default_rng(0)).reshape(-1, 3)
    assert np.bincount(found[:, 0], minlength=3)[[1]].tolist() == [0]
    assert (found[:, 0] == 0).mean() == pytest.approx(0.75, abs=0.03)
    assert (found[:, 1] == -1).all()
    assert (found[:, 2] == 1).mean() == pytest.approx(0.5, abs=0.03)
    nothing = csr_array((2, 3), dtype=np.float32)
    assert drawn_by_weight(nothing, np.zeros(1), np.arange(2), np.random.default_rng(0)).tolist() == [-1, -1]


def test_a_set_draws_by_weights_where_there_are_any_and_keeps_heavy_edges_more_often() -> None:
    weights = np.array([[6.0, 1, 1, 1, 1, 1, 1, 1]], np.float32)
    texts = Documents(Batch(dense=np.eye(8, dtype=np.float32)))
    rng = np.random.default_rng(0)

    def share_of_first(edges: Any) -> float:
        anchors = AnchorSet(AnchorGraph("g", {"documents": csr_array(edges)}), texts)
        drawn: list[int] = []
        for _ in range(300):
            anchors.begin_epoch(rng)
            drawn += anchors.draw("documents", np.zeros(5, np.int64), rng).tolist()
        return float(np.mean(np.array(drawn) == 0))

    assert share_of_first(weights) > 0.5
    assert share_of_first(np.ones_like(weights)) == pytest.approx(1 / 8, abs=0.04)
    assert capped(csr_array(weights), 8, rng).nnz == 8


# ---- blocks ----


@pytest.mark.parametrize(("steps", "epochs", "expected"), [(50, 30, 5), (2, 10, 1), (4000, 30, MOST_STEPS)])
def test_blocks_that_adapt_are_enough_and_never_longer_than_the_papers(steps: int, epochs: int, expected: int) -> None:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, {"documents": 3}, 4, share=0.6)
    found, logged = made([graph], [unit(rng, 4)], RegulariserConfig(prune="none"), enabled=True, block=0)
    nothing = Batch(dense=np.zeros((3, WIDTH), np.float32))
    for epoch in range(2):
        found.begin_epoch(epoch, epochs, ENCODER, nothing, nothing)
        before = len(logged)
        for _ in range(steps):
            found.end_step()
    blocks = len(logged) - before
    assert abs(blocks - steps / expected) <= 1
    assert blocks * epochs >= min(ENOUGH_BLOCKS, steps * epochs) * 0.9
