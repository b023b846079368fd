"""The measuring functions and worlds of ECLARE's claims, on models made by hand whose answers are known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.claims import timing
from benchmarks.claims.crafted_worlds import borrowing_world
from benchmarks.claims.graph_measures import (
    beam_recall,
    cluster_loss,
    component_dominance,
    game_forms,
    lost_information,
    planted_recall,
)
from benchmarks.claims.workshop import Workshop
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.data.from_texts import binary_csr
from longtail.errors import ConfigError
from longtail.evaluation import Yardstick
from longtail.metrics import lmi
from longtail.models.encoders import FrozenBag
from longtail.models.rankers import Classifier, ClusterModel
from longtail.persistence import save_part
from longtail.recipes.astec.ranker import EncodedTree, SpreadTree
from longtail.recipes.astec.tree import ClusterTree, TreeConfig
from longtail.recipes.eclare.stages import LabelComponents
from longtail.search.shortlist import ClusterBeam, GameSettings
from longtail.types import I32, Batch, Csr, TopK

LABELS, DOCUMENTS, CLUSTERS = 24, 160, 6
UNREAD = Batch(dense=np.zeros((0, 1), dtype=np.float32))


def yardstick_of(truth: Csr) -> Yardstick:
    unread: Any = None
    data: Any = SimpleNamespace(graphs={})  # of which no hierarchy is read
    return Yardstick(
        data,
        truth,
        np.zeros((0, 2), np.int64),
        np.ones(truth.shape[1]),
        unread,
        np.bincount(truth.indices, minlength=truth.shape[1]),
    )


def trained_with(ranker: Any, batch: Batch, truth: Csr, targets: Csr | None = None) -> Any:
    """What measuring functions look at, as far as they do."""
    bundle = SimpleNamespace(ranker=ranker, featurizer=SimpleNamespace(batch=lambda documents: batch))
    data = SimpleNamespace(need_test=lambda: SimpleNamespace(documents=None))
    world = SimpleNamespace(dataset=data, yardstick=yardstick_of(truth))
    n_labels = int(truth.shape[1])
    first = SimpleNamespace(
        clusters=(np.arange(n_labels) % 2).astype(np.int32), graph=csr_array(np.eye(n_labels, dtype=np.float32))
    )
    return SimpleNamespace(
        predictor=SimpleNamespace(bundle=bundle),
        world=world,
        seed=0,
        # A document's words are its labels, so that labels that occur together have similar centroids.
        training=SimpleNamespace(targets=targets, documents=Batch(sparse=truth if targets is None else targets)),
        stage=lambda name: {"1_surrogate": first}[name],
    )


def pairs_of_neighbours(seed: int = 0) -> Csr:
    """(DOCUMENTS, LABELS): every document has two of four labels that stand side by side."""
    rng = np.random.default_rng(seed)
    first = 4 * rng.integers(LABELS // 4, size=DOCUMENTS)
    chosen = np.stack([first + rng.integers(2, size=DOCUMENTS), first + 2 + rng.integers(2, size=DOCUMENTS)], axis=1)
    return binary_csr(np.repeat(np.arange(DOCUMENTS), 2), chosen.ravel(), (DOCUMENTS, LABELS))


# ---- clusters ----


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_lost_information_is_lmi_document_by_document(seed: int, n_clusters: int) -> None:
    rng = np.random.default_rng(seed)
    targets = csr_array((rng.random((12, 8)) < 0.3).astype(np.float32))
    clusters: I32 = rng.integers(n_clusters, size=8).astype(np.int32)
    column, whole = lost_information(targets, clusters), lmi(targets, clusters)
    assert column.value == pytest.approx(whole.percent, abs=1e-9)
    assert column.numerator.sum() == pytest.approx(whole.nats * targets.nnz, abs=1e-9)
    assert (column.denominator >= -1e-12).all()


def cluster_model(clusters: I32, beam: int) -> ClusterModel:
    """Documents are words of their own; the head of a cluster is the unit vector of its number."""
    heads = np.eye(CLUSTERS, dtype=np.float32)
    return ClusterModel(
        encoder=FrozenBag(np.eye(CLUSTERS, dtype=np.float32)),
        shortlist_map=None,
        rank_map=None,
        beam=ClusterBeam.of(heads, clusters, beam=beam),
        classifier=Classifier(np.ones((LABELS, CLUSTERS), np.float32)),
    )


def test_loss_of_a_models_clusters_and_of_random_ones() -> None:
    truth, targets = pairs_of_neighbours(0), pairs_of_neighbours(1)
    clusters: I32 = (np.arange(LABELS) // 4).astype(np.int32)
    measured = cluster_loss(trained_with(cluster_model(clusters, 1), UNREAD, truth, targets))
    assert measured["LMI"].value == pytest.approx(lmi(truth, clusters).percent)
    assert measured["training LMI"].value == pytest.approx(lmi(targets, clusters).percent)
    assert measured["LMI of stage I"].value == pytest.approx(
        lmi(truth, (np.arange(LABELS) % 2).astype(np.int32)).percent
    )
    assert measured["LMI without head clusters"].value == pytest.approx(measured["LMI"].value, abs=3), (
        "centroids find the same groups"
    )
    assert measured["LMI at random"].value > 1.5 * measured["LMI"].value
    assert measured["training LMI at random"].value > 1.5 * measured["training LMI"].value
    with pytest.raises(ConfigError, match="finds no clusters"):
        cluster_loss(trained_with(object(), UNREAD, truth, targets))


@pytest.mark.parametrize(("beam", "share"), [(1, 50.0), (CLUSTERS, 100.0)])
def test_recall_of_a_beam_is_the_share_of_labels_in_its_clusters(beam: int, share: float) -> None:
    # Document c reads like cluster c and has a label of it and one of the next cluster.
    truth = binary_csr(
        np.repeat(np.arange(CLUSTERS), 2),
        np.array([[c, (c + 1) % CLUSTERS] for c in range(CLUSTERS)]).ravel(),
        (CLUSTERS, LABELS),
    )
    clusters: I32 = (np.arange(LABELS) % CLUSTERS).astype(np.int32)
    batch = Batch(sparse=csr_array(np.eye(CLUSTERS, dtype=np.float32)))
    assert beam_recall(trained_with(cluster_model(clusters, beam), batch, truth))["shortlist recall"].value == share


# ---- GAME ----


def spread_tree(targets: Csr, graph: Csr, beam: int = 1) -> tuple[EncodedTree, Batch]:
    """A tree of leaves of four labels; documents are the sum of random vectors of their labels."""
    rng = np.random.default_rng(2)
    vectors = np.abs(targets @ rng.standard_normal((LABELS, 12)).astype(np.float32)).astype(np.float32)
    tree = ClusterTree.fit(vectors, targets, TreeConfig(leaf_size=4, beam=beam), rng)
    words = Batch(sparse=csr_array(np.eye(len(vectors), dtype=np.float32)))
    return EncodedTree(FrozenBag(vectors), SpreadTree.build(tree, graph, GameSettings())), words


def test_forms_of_game_are_those_of_the_tree_inside() -> None:
    targets = pairs_of_neighbours()
    block = np.kron(np.eye(LABELS // 4), np.ones((4, 4))).astype(np.float32)
    ranker, words = spread_tree(targets, csr_array(block))
    measured = game_forms(trained_with(ranker, words, targets))
    vectors, spread, yardstick = Batch(dense=ranker.encode(words)), ranker.tree, yardstick_of(targets)
    assert isinstance(spread, SpreadTree)
    plain: Any = spread.base
    mixed = SpreadTree.build(plain, csr_array(block), GameSettings(mix=0.5, clusters="both"))
    for name, tree in (("plain", plain), ("GAME", spread), ("mixed GAME", mixed)):
        assert measured[f"P@1 {name}"].value == pytest.approx(
            yardstick.score(tree.rank(vectors, yardstick.depth))["P@1"]
        ), name
        inside = [
            set(np.flatnonzero(np.isin(plain.clusters, leaves)).tolist()) for leaves in tree.leaf_scores(vectors).ids
        ]
        own = [set(targets.indices[targets.indptr[row] : targets.indptr[row + 1]].tolist()) for row in range(DOCUMENTS)]
        expected = 100 * np.mean([len(found & wanted) / len(wanted) for found, wanted in zip(inside, own, strict=True)])
        assert measured[f"shortlist recall {name}"].value == pytest.approx(expected), name
    with pytest.raises(ConfigError, match="without GAME"):
        game_forms(trained_with(EncodedTree(ranker.encoder, plain), words, targets))


def test_game_along_a_graph_without_edges_gains_nothing() -> None:
    targets = pairs_of_neighbours()
    ranker, words = spread_tree(targets, csr_array(np.eye(LABELS, dtype=np.float32)), beam=3)
    measured = game_forms(trained_with(ranker, words, targets))
    for metric in ("P@1", "PSP@5", "shortlist recall"):
        np.testing.assert_allclose(measured[f"{metric} GAME"].numerator, measured[f"{metric} plain"].numerator)


# ---- components ----


def components(lengths: Any, names: tuple[str, ...] = ("text", "gale1", "free")) -> LabelComponents:
    counts = np.arange(1, len(lengths) + 1)
    return LabelComponents(
        names, np.ones_like(lengths, dtype=np.float32), np.asarray(lengths, dtype=np.float32), counts.astype(np.int64)
    )


def trained_in(folder: Path) -> Any:
    """All that the measure looks at."""
    return SimpleNamespace(run=folder, seed=0)


def test_dominance_correlates_components_with_frequency(tmp_path: Path) -> None:
    rise = np.arange(1.0, 41.0)
    # Text falls faster than the neighbours' text rises, so that both together fall.
    save_part(components(np.stack([100 - 2 * rise, rise, rise], axis=1)), tmp_path / "analysis" / "label_components")
    measured = component_dominance(trained_in(tmp_path))
    assert measured["refinement"].value == pytest.approx(100)
    assert measured["text and graph"].value == pytest.approx(-100)
    assert abs(measured["refinement by chance"].value) < 12
    assert abs(measured["text and graph by chance"].value) < 12
    assert len(measured["refinement"].numerator) == 1


def test_mean_weights_are_those_of_the_most_frequent_and_the_rarest_bin(tmp_path: Path) -> None:
    # 20 labels of one document each and four of 20: five bins of 20 pairs, the four in bins of their own.
    counts = np.array([1] * 20 + [20] * 4, dtype=np.int64)
    weights = np.array([[0.5, 0.1, 0.4]] * 20 + [[0.0, 0.1, 0.9]] * 4, dtype=np.float32)
    save_part(
        LabelComponents(("text", "gale1", "free"), weights, np.ones_like(weights), counts),
        tmp_path / "analysis" / "label_components",
    )
    measured = component_dominance(trained_in(tmp_path))
    found = {
        name.removeprefix("weight of "): column.value for name, column in measured.items() if name.startswith("weight")
    }
    assert found == pytest.approx(
        {
            **{"refinement in head": 90, "text in head": 0, "graph in head": 10, "text and graph in head": 10},
            **{"refinement in tail": 40, "text in tail": 50, "graph in tail": 10, "text and graph in tail": 60},
        }
    )


def test_dominance_needs_both_kinds_of_components(tmp_path: Path) -> None:
    save_part(components(np.ones((10, 1)), ("free",)), tmp_path / "analysis" / "label_components")
    with pytest.raises(ConfigError, match="not made of text"):
        component_dominance(trained_in(tmp_path))


# ---- planted labels ----


def test_recall_of_planted_labels_counts_their_pairs_alone() -> None:
    truth = csr_array(np.array([[1, 0, 1], [1, 1, 0], [0, 0, 1]], dtype=np.float32))
    top = TopK(np.array([[2], [2], [0]], dtype=np.int32), np.ones((3, 1), dtype=np.float32))
    dataset = SimpleNamespace(labels=SimpleNamespace(uids=["a", "b", "planted0"]))
    trained: Any = SimpleNamespace(
        world=SimpleNamespace(dataset=dataset, yardstick=yardstick_of(truth)), predictions=lambda: top
    )
    measured = planted_recall(trained)
    assert measured["R@10 of planted"].value == pytest.approx(100 * 1 / 2)
    assert measured["R@10 of others"].value == 0
    assert measured["R@10 of others"].denominator.sum() == 3


BORROWING: dict[str, Any] = {
    "documents": 600,
    "test_documents": 400,
    "labels": 120,
    "topics": 5,
    "graph_coverage": 0.0,
    "planted": 10,
}


@pytest.mark.parametrize("together", [True, False])
def test_planted_labels_share_no_word_with_documents_and_follow_their_partner(together: bool) -> None:
    data = borrowing_world(1, together=together, **BORROWING)
    planted = list(range(120, 130))
    assert [data.labels.uids[label] for label in planted] == [f"planted{n}" for n in range(10)]
    texts = [data.labels.fields["title"][label] for label in planted]
    spoken = {
        word
        for split in (data.train, data.need_test())
        for text in split.documents.fields["title"]
        for word in text.split()
    }
    assert not spoken & {word for text in texts for word in text.split()}
    train, test = data.train.targets, data.need_test().targets
    documents_of = train.T.tocsr()
    for label in planted:
        rows = np.flatnonzero(documents_of[[label]].toarray()).tolist()
        assert len(rows) == 2
        others = [set(train.indices[train.indptr[row] : train.indptr[row + 1]].tolist()) - {label} for row in rows]
        assert all(text.startswith("idle") for text in (data.train.documents.fields["title"][row] for row in rows))
        if not together:
            assert others == [set(), set()]
            continue
        assert others[0] == others[1]
        (partner,) = others[0]
        by_label = test.T.tocsr()
        np.testing.assert_array_equal(by_label[[partner]].toarray(), by_label[[label]].toarray())
        assert by_label[[label]].nnz > 0


# ---- time and memory of walks ----


def test_probes_of_walks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("WALKED", (100, 1000)), ("EXPECTED", (20, 60)), ("REPEATS", 2)):
        monkeypatch.setattr(timing, name, size)
    shop = Workshop(tmp_path, device="cpu")
    for probe in (timing.walk_time_ratio, timing.exact_time_ratio):
        found, numbers = probe(shop)
        assert 0 < found.low <= found.value <= found.high
        assert [len(seconds) for seconds in numbers.values()] == [2, 2]
    found, numbers = timing.walk_memory(shop)
    assert 0.01 < found.value < 2
    assert [run["labels"] for run in numbers["runs"]] == [1000] * 3


def test_an_interval_over_repetitions_is_students() -> None:
    found = timing.interval([1.0, 2.0, 3.0])
    assert (found.value, found.high) == pytest.approx((2.0, 2 + 4.302653 / 3**0.5))
    scaled = timing.interval([0.0, 0.0, 0.0], np.exp)
    assert (scaled.value, scaled.low, scaled.high) == (1.0, 1.0, 1.0)
