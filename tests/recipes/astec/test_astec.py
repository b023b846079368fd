"""Astec stage by stage: what each leaves behind, what the theorem promises of a trained model, and what strange data
gets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import longtail
from longtail import pipeline
from longtail.config import from_text
from longtail.data.dataset import Dataset, Graph, Items
from longtail.errors import ConfigError
from longtail.evaluation import evaluate
from longtail.graph.label_graph import label_graph
from longtail.models.encoders import FrozenBag, FrozenCnn, FrozenDense, FrozenMlp, FullMap, ResidualMap
from longtail.models.rankers import ClusterModel, Model
from longtail.persistence import load_part
from longtail.recipes.astec import recipe as astec
from longtail.recipes.astec.ranker import (
    EncodedTree,
    InstanceVote,
    MergedShortlist,
    Reranked,
    SpreadTree,
    nearest_labels,
)
from longtail.recipes.astec.recipe import Astec
from longtail.recipes.astec.settings import AstecConfig
from longtail.recipes.astec.tree import ClusterTree
from longtail.search.index import ExactIndex, HnswIndex
from longtail.search.negatives import ShortlistNegatives, candidates, forbidden_pairs
from longtail.search.shortlist import LabelIndex, cluster_graph
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.progress import SilentDisplay
from longtail.training.run import Run
from longtail.training.surrogate import Surrogate, spectral_vectors, surrogate_targets, word_vectors
from longtail.types import F32, Candidates

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = (
    *("surrogate.width=8", "surrogate.epochs=2", "classify.epochs=2", "reranker.epochs=2"),
    "reranker.enabled=false",  # what is trained without it; tests of the re-ranker switch it on
)


def recipe(*settings: str) -> Astec:
    return Astec(from_text(AstecConfig(), (*SMALL, *settings)))


@dataclass(frozen=True)
class Stages:
    """What a training left behind in every stage."""

    recipe: Astec
    run: Run
    data: TrainingSet
    surrogate: Surrogate
    shortlists: Any  # AstecShortlists; None where a tree finds labels by itself
    ranker: Any


Train = Callable[..., Stages]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    def trained(dataset: Dataset, *settings: str, seed: int = 0) -> Stages:
        made = recipe(*settings)
        with Run.open(tmp_path / "run", {}, seed=seed, device="cpu", restart=True) as run:
            data = pipeline.prepared(made, dataset, run)
            ranker = pipeline.stages(made, data, run)
            surrogate = load_part(run.folder / "stages" / "1_surrogate")
            by_tree = made.config.classify.learner == "parabel"
            shortlists: Any = None if by_tree else load_part(run.folder / "stages" / "2_shortlist")
            assert by_tree == (not (run.folder / "stages" / "2_shortlist").exists())
            assert not (run.folder / "stages" / "3_transfer").exists()
            return Stages(made, run, data, surrogate, shortlists, ranker)

    return trained


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path, seed=0, device="cpu", display=SilentDisplay())


def prepared(dataset: Dataset, *settings: str) -> TrainingSet:
    return prepare(dataset, recipe(*settings).config.features)


def with_vectors(dataset: Dataset, vectors: F32) -> Dataset:
    return replace(
        dataset, train=replace(dataset.train, documents=Items(dataset.train.documents.uids, vectors=vectors))
    )


# ---- I ----


def moved_rows(stages: Stages) -> Any:
    """Which rows of the table of word vectors are not what they were at the start."""
    assert isinstance(stages.surrogate.encoder, FrozenBag)
    start = word_vectors(stages.data.documents.sparse, stages.recipe.config.surrogate, stages.run.rng("encoder"))
    return np.any(stages.surrogate.encoder.table != start, axis=1)


@pytest.mark.claim("A18")
def test_every_token_of_a_labelled_document_is_trained(planted: Dataset, train: Train) -> None:
    stages = train(planted)
    assert stages.data.documents.sparse is not None
    occurs = np.bincount(stages.data.documents.sparse.indices, minlength=stages.data.featurizer.width) > 0
    assert 0 < occurs.sum() < len(occurs), "some features come from label texts alone"
    np.testing.assert_array_equal(moved_rows(stages), occurs)


def test_label_selection_leaves_tokens_untrained(planted: Dataset, train: Train) -> None:
    """The control of A18: the same measure sees what a surrogate task with few labels does not reach."""
    stages = train(planted, "surrogate.task=label_selection", "surrogate.selected=0.1")
    sparse = stages.data.documents.sparse
    assert sparse is not None
    reached = np.diff(stages.data.targets[:, stages.surrogate.clusters >= 0].indptr) > 0
    expected = np.bincount(sparse[np.flatnonzero(reached)].indices, minlength=sparse.shape[1]) > 0
    np.testing.assert_array_equal(moved_rows(stages), expected)
    assert expected.sum() < len(np.unique(sparse.indices))


def topics(n_topics: int = 2, labels: int = 8, documents: int = 120) -> Dataset:
    """Labels of one topic share words, and label ids say the topic. Lower-numbered labels are more frequent."""
    rng = np.random.default_rng(0)
    texts, names = [], []
    for number in range(documents):
        label = min(number % labels, number % (labels + 3), key=lambda n: n % labels) % labels
        topic = label % n_topics
        texts.append(" ".join(f"topic{topic}word{word}" for word in rng.integers(6, size=5)) + f" own{label}")
        names.append([f"t{topic}-{label}"])
    return Dataset.from_texts(texts, names, {"absent": "a label without documents"})


def test_clusters_are_balanced_and_hold_similar_labels(run: Run) -> None:
    data = prepared(topics())
    clusters, n = surrogate_targets(data, recipe("surrogate.correlations=false").config.surrogate, run)
    assert n == 2
    absent = list(data.labels.uids).index("absent")
    assert clusters[absent] == -1
    topic_of = {uid: uid.split("-")[0] for uid in data.labels.uids if uid != "absent"}
    groups = [
        {topic_of[uid] for uid, cluster in zip(data.labels.uids, clusters, strict=True) if cluster == number}
        for number in range(n)
    ]
    assert sorted(map(sorted, groups)) == [["t0"], ["t1"]]
    assert np.bincount(clusters[clusters >= 0]).tolist() == [4, 4]


def test_labels_that_occur_together_are_clustered_together(run: Run) -> None:
    """Their words differ; only the walk over shared documents joins them."""
    pairs = [(0, 4), (1, 5), (2, 6), (3, 7)]
    alone = [(f"own{label} own{label}b", [f"l{label}"]) for label in range(8) for _ in range(30)]
    together = [(f"chat{number % 7}", [f"l{a}", f"l{b}"]) for a, b in pairs for number in range(8)]
    texts, labels = zip(*(alone + together), strict=True)
    data = prepared(Dataset.from_texts(list(texts), list(labels)), "features.subwords=none")
    clusters, n = surrogate_targets(data, recipe().config.surrogate, run)
    assert n == 2, "4 labels per cluster"
    assert [clusters[a] == clusters[b] for a, b in pairs] == [True] * 4


@pytest.mark.parametrize(
    ("labels", "asked", "n"), [(1, 0, 1), (3, 0, 1), (8, 0, 2), (40, 0, 8), (40, 4, 4), (40, 32, 32), (40, 16, 16)]
)
def test_clusters_are_as_many_as_asked_for_or_suit_the_labels(labels: int, asked: int, n: int, run: Run) -> None:
    data = prepared(Dataset.from_texts([f"word{i}" for i in range(80)], [[f"l{i % labels}"] for i in range(80)]))
    clusters, found = surrogate_targets(data, recipe(f"surrogate.clusters={asked}").config.surrogate, run)
    assert found == n
    sizes = np.bincount(clusters, minlength=n)
    assert sizes.max() - sizes.min() <= 1
    assert sizes.sum() == labels


@pytest.mark.parametrize(("asked", "said"), [(64, "40 labels have training documents"), (7, "expected a power of two")])
def test_clusters_that_cannot_be_made_are_refused(asked: int, said: str, run: Run) -> None:
    data = prepared(Dataset.from_texts([f"word{i}" for i in range(80)], [[f"l{i % 40}"] for i in range(80)]))
    with pytest.raises(ConfigError, match=said):
        surrogate_targets(data, recipe(f"surrogate.clusters={asked}").config.surrogate, run)


def test_label_selection_takes_the_most_frequent_labels(run: Run) -> None:
    counts = {"rare": 2, "often": 9, "some": 5, "also5": 5, "one": 1}
    names = [[name] for name, count in counts.items() for _ in range(count)]
    data = prepared(Dataset.from_texts([f"word{i}" for i in range(len(names))], names))
    for share, expected in ((0.2, {"often"}), (0.6, {"often", "some", "also5"}), (0.0, {"often"}), (1.0, set(counts))):
        clusters, n = surrogate_targets(
            data, recipe("surrogate.task=label_selection", f"surrogate.selected={share}").config.surrogate, run
        )
        assert n == len(expected)
        assert {uid for uid, cluster in zip(data.labels.uids, clusters, strict=True) if cluster >= 0} == expected
        assert sorted(clusters[clusters >= 0]) == list(range(n)), "each has a target of its own"


@pytest.mark.parametrize("task", ["random", "unsupervised"])
def test_random_targets_are_drawn_from_as_many_buckets_as_there_would_be_clusters(task: str, run: Run) -> None:
    data = prepared(topics(labels=40, documents=200))
    clusters, n = surrogate_targets(data, recipe(f"surrogate.task={task}").config.surrogate, run)
    assert n == 8
    assert clusters[list(data.labels.uids).index("absent")] == -1
    assert set(clusters.tolist()) == {-1, *range(8)}
    run.seed = 1
    assert not np.array_equal(
        surrogate_targets(data, recipe(f"surrogate.task={task}").config.surrogate, run)[0], clusters
    )


def test_without_supervision_word_vectors_are_spectral_and_stay(planted: Dataset, train: Train) -> None:
    stages = train(planted, "surrogate.task=unsupervised")
    assert isinstance(stages.surrogate.encoder, FrozenBag)
    expected = spectral_vectors(stages.data.documents.sparse, 8, stages.run.rng("encoder"))
    np.testing.assert_array_equal(stages.surrogate.encoder.table, expected)


def test_given_word_vectors_are_where_training_starts(planted: Dataset, train: Train, tmp_path: Path) -> None:
    given = np.random.default_rng(0).standard_normal((prepared(planted).featurizer.width, 8)).astype(np.float32)
    np.save(tmp_path / "words.npy", given)
    stages = train(planted, f"surrogate.vectors={tmp_path / 'words.npy'}", "surrogate.epochs=0")
    assert isinstance(stages.surrogate.encoder, FrozenBag)
    np.testing.assert_array_equal(stages.surrogate.encoder.table, given)


def test_stage_one_leaves_the_vectors_of_all_documents_and_its_heads(planted: Dataset, train: Train) -> None:
    stages = train(planted)
    found = stages.surrogate
    np.testing.assert_allclose(found.vectors, found.encoder.encode(stages.data.documents), rtol=1e-5, atol=1e-5)
    assert found.heads.shape == (int(found.clusters.max()) + 1, 8)
    assert isinstance(found.refinement, ResidualMap)


def test_stage_one_learns_its_targets(planted: Dataset, train: Train) -> None:
    """A document's own clusters score above the others, which a head or a target in the wrong place would undo."""
    stages = train(planted, "surrogate.width=32", "surrogate.epochs=12", "surrogate.rate=0.02")
    found = stages.surrogate
    assert found.refinement is not None
    scores = found.refinement.apply(found.vectors) @ found.heads.T
    own = np.zeros(scores.shape, dtype=bool)
    for document, label in zip(*stages.data.targets.nonzero(), strict=True):
        own[document, found.clusters[label]] = True
    assert ((scores > 0) == own).mean() > 0.95


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ((), FrozenBag),
        (("surrogate.encoder=bag",), FrozenBag),
        (("surrogate.encoder=mlp",), FrozenMlp),
        (("surrogate.encoder=cnn", "features.max_tokens=5"), FrozenCnn),
    ],
)
def test_the_encoder_is_a_setting(settings: tuple[str, ...], kind: type[Any], planted: Dataset, train: Train) -> None:
    stages = train(planted, *settings, "surrogate.epochs=0", "classify.epochs=0")
    assert type(stages.surrogate.encoder) is kind
    assert stages.surrogate.vectors.shape == (120, 8)
    if isinstance(stages.surrogate.encoder, FrozenCnn):
        assert stages.surrogate.encoder.length == 8, "as many tokens as features gave, at least the longest span"


def test_given_vectors_take_the_place_of_text(planted: Dataset, train: Train) -> None:
    vectors = np.random.default_rng(0).standard_normal((120, 5)).astype(np.float32)
    stages = train(with_vectors(planted, vectors), "surrogate.epochs=0", "classify.epochs=0")
    assert isinstance(stages.surrogate.encoder, FrozenDense)
    assert stages.surrogate.encoder.weight is not None
    assert stages.surrogate.encoder.weight.shape == (8, 5)


@pytest.mark.parametrize("kind", ["full", "none"])
def test_what_stands_before_the_heads_is_a_setting(kind: str, planted: Dataset, train: Train) -> None:
    stages = train(planted, f"surrogate.block={kind}", "classify.epochs=0")
    assert type(stages.surrogate.refinement) is (FullMap if kind == "full" else type(None))


# ---- II ----


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ((), MergedShortlist),
        (("shortlist.structures=labels",), LabelIndex),
        (("shortlist.structures=documents",), InstanceVote),
        (("classify.learner=slice",), LabelIndex),
    ],
)
def test_structures_are_a_setting(settings: tuple[str, ...], kind: type[Any], planted: Dataset, run: Run) -> None:
    data = prepared(planted)
    vectors = np.random.default_rng(0).random((120, 4)).astype(np.float32)
    assert type(nearest_labels(vectors, data.targets, recipe(*settings).config, run)) is kind


def test_settings_of_the_shortlist_arrive(planted: Dataset, run: Run) -> None:
    data = prepared(planted)
    vectors = np.random.default_rng(0).random((120, 4)).astype(np.float32)
    settings = ("gamma=0.3", "reserved=0.25", "neighbours=7", "head_labels=20", "head_centres=3", "index=hnsw")
    found: Any = nearest_labels(
        vectors, data.targets, recipe(*(f"shortlist.{setting}" for setting in settings)).config, run
    )
    assert (found.gamma, found.reserved, found.instances.neighbours) == (0.3, 0.25, 7)
    assert isinstance(found.labels.index, HnswIndex)
    assert isinstance(found.instances.index, HnswIndex)
    assert found.labels.index.graph.hnsw.efConstruction == 300
    assert found.instances.index.graph.hnsw.efConstruction == 50
    heads = data.label_counts() >= 20
    assert 0 < heads.sum() < 12
    np.testing.assert_array_equal(np.bincount(found.labels.owners), np.where(heads, 4, 1))
    by_labels = nearest_labels(vectors, data.targets, recipe("shortlist.structures=labels").config, run)
    assert isinstance(by_labels, LabelIndex)
    assert isinstance(by_labels.index, ExactIndex)


@pytest.mark.parametrize("structures", ["labels", "documents"])
def test_hard_negatives_are_the_best_labels_that_are_neither_true_nor_masked(
    structures: str, planted: Dataset, train: Train
) -> None:
    dataset = replace(
        planted, train=replace(planted.train, masked=np.array([[row, (row + 3) % 12] for row in range(60)]))
    )
    stages = train(dataset, f"shortlist.structures={structures}", "classify.count=4", "classify.epochs=0")
    assert stages.shortlists.negatives is not None
    targets, hidden = stages.data.targets.toarray(), {tuple(pair) for pair in stages.data.masked.tolist()}
    for row, ids in enumerate(stages.shortlists.negatives.ids):
        # A document must not vote for its own labels, or a label of its copy would look harder than it is.
        ranked = stages.shortlists.shortlister.query(stages.surrogate.vectors[[row]], 12, exclude=np.array([row])).ids[
            0
        ]
        allowed = [
            label for label in ranked.tolist() if label >= 0 and not targets[row, label] and (row, label) not in hidden
        ]
        assert ids.tolist() == (allowed + [-1] * 4)[:4]


@pytest.mark.parametrize(
    "settings",
    [
        ("classify.negatives=uniform",),
        ("classify.negatives=full",),
        ("classify.learner=dismec",),
    ],
)
def test_hard_negatives_are_looked_up_only_where_they_are_used(
    settings: tuple[str, ...], planted: Dataset, train: Train
) -> None:
    assert train(planted, *settings, "surrogate.epochs=0", "classify.epochs=0").shortlists.negatives is None


# ---- III and IV ----


@pytest.mark.parametrize("kind", ["residual", "full", "none"])
def test_what_stands_before_the_classifiers_is_a_setting(kind: str, planted: Dataset, train: Train) -> None:
    expected = {"residual": ResidualMap, "full": FullMap, "none": type(None)}[kind]
    assert type(train(planted, f"transfer.block={kind}").ranker.refinement) is expected


def test_the_residual_starts_as_the_identity(planted: Dataset, train: Train) -> None:
    np.testing.assert_array_equal(train(planted, "classify.epochs=0").ranker.refinement.weight, np.eye(8))


def drift(stages: Stages, dataset: Dataset, refinement: Any) -> Any:
    """(documents,) how far refinement moves each test document, in lengths of v."""
    batch = stages.data.featurizer.batch(dataset.need_test().documents)
    v = stages.ranker.encoder.encode(batch).astype(np.float64)
    assert (v >= 0).all()
    assert v.any(axis=1).all()
    return np.linalg.norm(refinement.apply(v) - v, axis=1) / np.linalg.norm(v, axis=1)


@pytest.mark.claim("A1")
@pytest.mark.parametrize("bound", [1.0, 0.4])
@pytest.mark.parametrize("mode", ["project", "normalise"])
def test_theorem_1_holds_on_every_test_document_of_a_trained_model(
    bound: float, mode: str, planted: Dataset, train: Train
) -> None:
    settings = [
        f"{stage}.{name}" for stage in ("surrogate", "transfer") for name in (f"bound={bound}", f"bound_mode={mode}")
    ]
    stages = train(planted, *settings, "classify.epochs=6", "classify.rate=0.05")
    for refinement in (stages.ranker.refinement, stages.surrogate.refinement):
        moved = drift(stages, planted, refinement)
        assert (moved <= bound * (1 + 1e-5)).all()
        assert (moved > 0).all(), "the residual does something"


def test_without_the_bound_documents_drift_further(planted: Dataset, train: Train) -> None:
    """The control of A1: the same training breaks the bound when nothing keeps it."""
    stages = train(planted, "transfer.bound_mode=off", "classify.epochs=6", "classify.rate=0.05")
    assert drift(stages, planted, stages.ranker.refinement).max() > 1.2


@pytest.mark.parametrize("learner", ["slice", "dismec"])
def test_frozen_learners_read_v_itself(learner: str, planted: Dataset, train: Train) -> None:
    ranker = train(planted, f"classify.learner={learner}").ranker
    assert isinstance(ranker, Model)
    assert ranker.refinement is None


def test_parabel_is_a_tree_on_v(planted: Dataset, train: Train) -> None:
    stages = train(planted, "classify.learner=parabel", "tree.leaf_size=3")
    assert isinstance(stages.ranker, EncodedTree)
    assert stages.shortlists is None, "a tree finds labels by itself"
    assert isinstance(stages.ranker.tree, ClusterTree)
    assert stages.ranker.tree.n_leaves == 4
    np.testing.assert_allclose(
        stages.ranker.encode(stages.data.documents), stages.surrogate.vectors, rtol=1e-5, atol=1e-5
    )


def test_clusters_of_stage_one_can_be_the_shortlist(planted: Dataset, train: Train) -> None:
    stages = train(
        planted, "shortlist.structures=clusters", "surrogate.clusters=2", "shortlist.size=7", "classify.count=5"
    )
    ranker, beam, found = stages.ranker, stages.shortlists.shortlister, stages.surrogate
    assert isinstance(ranker, ClusterModel)
    assert beam.beam == 2, "clusters of six labels, seven labels asked for"
    assert (beam.graph, ranker.label_graph) == (None, None)
    np.testing.assert_array_equal(beam.heads, found.heads)
    np.testing.assert_array_equal(beam.clusters, found.clusters)
    batch, refinement = stages.data.documents, found.refinement
    assert refinement is not None
    assert ranker.rank_map is not None
    clusters, p = beam.select(refinement.apply(found.vectors))
    top = ranker.rank(batch, 12)
    labels = beam.labels_of(clusters)
    raw = np.einsum("nd,nld->nl", ranker.rank_map.apply(found.vectors), ranker.classifier.rows[labels])
    expected = np.sort(1 / (1 + np.exp(-raw)) * np.repeat(p, beam.largest_cluster, axis=1), axis=1)[:, ::-1]
    np.testing.assert_allclose(top.scores, expected, rtol=1e-4)
    # Negatives are what the same search confuses with the truth.
    assert stages.shortlists.negatives is not None
    mined = ShortlistNegatives.mine(
        beam, refinement.apply(found.vectors), forbidden_pairs(stages.data.targets, stages.data.masked), 5
    )
    np.testing.assert_array_equal(stages.shortlists.negatives.ids, mined.ids)


GAME = (
    "game.enabled=true",
    "game.mix=0.5",
    "game.transpose=true",
    "game.clusters=both",
    "graph.head_documents=1000",
    "graph.length=30",
)


@pytest.mark.parametrize("learner", ["joint", "surrogate", "parabel"])
def test_game_can_be_put_on_clusters_and_on_the_tree(learner: str, planted: Dataset, train: Train) -> None:
    stages = train(planted, f"classify.learner={learner}", "shortlist.structures=clusters", "tree.leaf_size=3", *GAME)
    graph = label_graph(stages.data.targets, stages.recipe.config.graph, stages.run.rng("label graph")).toarray()
    assert np.count_nonzero(graph) > 12, "labels have neighbours, or this test says nothing"
    ranker = stages.ranker
    if learner == "parabel":
        assert isinstance(ranker.tree, SpreadTree)
        state = ranker.tree.state()
        assert state.values == {"mix": 0.5, "transpose": True}
        clusters, between = ranker.tree.clusters, state.arrays["leaf_graph"]
        np.testing.assert_array_equal(state.arrays["label_graph"].toarray(), graph)
    else:
        assert isinstance(ranker, ClusterModel)
        assert (ranker.game_mix, ranker.game_transpose, ranker.beam.game_mix, ranker.beam.game_transpose) == (
            0.5,
            True,
            0.5,
            True,
        )
        assert ranker.label_graph is not None
        clusters, between = ranker.beam.clusters, ranker.beam.graph
        np.testing.assert_array_equal(ranker.label_graph.toarray(), graph)
    assert between is not None
    np.testing.assert_array_equal(
        between.toarray(), cluster_graph(csr_array(graph), clusters, between.shape[0], "both").toarray()
    )


def test_game_spreads_along_graphs_of_the_data(planted: Dataset, train: Train) -> None:
    ring = csr_array(np.roll(np.eye(12, dtype=np.float32), 1, axis=1))
    data = replace(planted, graphs={"ring": Graph("ring", label_label=ring)})
    ranker = train(data, "shortlist.structures=clusters", "graph.source=given", *GAME, "classify.epochs=0").ranker
    np.testing.assert_allclose(ranker.label_graph.toarray(), (np.eye(12) + ring.toarray()) / 2, atol=1e-6)


def test_stage_one_alone_scores_labels_by_their_target(planted: Dataset, train: Train) -> None:
    stages = train(planted, "classify.learner=surrogate", "surrogate.task=label_selection", "surrogate.selected=0.5")
    ranker, found = stages.ranker, stages.surrogate
    assert (ranker.alpha, type(ranker.refinement)) == (1.0, ResidualMap)
    for label, cluster in enumerate(found.clusters):
        expected = found.heads[cluster] if cluster >= 0 else np.full(8, -1e3)
        np.testing.assert_array_equal(ranker.classifier.rows[label], expected)
    chosen = set(np.flatnonzero(found.clusters >= 0).tolist())
    assert len(chosen) == 6
    assert set(ranker.rank(stages.data.documents, 6).ids.ravel().tolist()) == chosen


def test_settings_of_prediction_arrive(planted: Dataset, train: Train) -> None:
    settings = (
        "classify.alpha=0.25",
        "classify.temperature=0.5",
        "shortlist.size=7",
        "reranker.enabled=true",
        "reranker.depth=4",
        "reranker.beta=0.75",
    )
    ranker = train(planted, *settings, "surrogate.epochs=0", "classify.epochs=0", "reranker.epochs=0").ranker
    assert isinstance(ranker, Reranked)
    assert (ranker.depth, ranker.beta) == (4, 0.75)
    base: Any = ranker.base
    assert (base.alpha, base.temperature, base.shortlist_size) == (0.25, 0.5, 7)


def test_the_reranker_has_an_encoder_of_its_own(planted: Dataset, train: Train) -> None:
    ranker: Any = train(
        planted, "reranker.enabled=true", "surrogate.epochs=0", "classify.epochs=0", "reranker.epochs=0"
    ).ranker
    assert not np.array_equal(ranker.encoder.table, ranker.base.encoder.table)
    assert not np.array_equal(ranker.classifier.rows, ranker.base.classifier.rows)


def test_epochs_are_counted_per_stage(planted: Dataset, train: Train) -> None:
    stages = train(planted, "surrogate.epochs=3", "classify.epochs=2", "reranker.epochs=1", "reranker.enabled=true")
    events = [json.loads(line) for line in (stages.run.folder / "metrics.jsonl").read_text().splitlines()]
    losses = {event["name"]: event["losses"] for event in events if event["event"] == "fit"}
    assert {name: len(values) for name, values in losses.items()} == {"surrogate": 3, "classify": 2, "reranker": 1}
    assert all(values[-1] < values[0] for values in losses.values() if len(values) > 1)


class Seen:
    """Watches the candidates of every training step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[Any, Candidates]] = []

        def watched(rows: Any, *arguments: Any, **options: Any) -> Candidates:
            found = candidates(rows, *arguments, **options)
            self.steps.append((rows, found))
            return found

        monkeypatch.setattr(astec, "candidates", watched)

    def pairs(self, positive: bool) -> set[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        for rows, step in self.steps:
            at = np.nonzero(step.mask & (step.targets == positive))
            found |= set(zip(rows[at[0]].tolist(), step.ids[at].tolist(), strict=True))
        return found


@pytest.mark.parametrize("negatives", ["shortlist", "uniform", "unigram", "inbatch"])
@pytest.mark.parametrize("reranker", [False, True])
def test_no_step_trains_a_true_or_masked_pair_as_a_negative(
    negatives: str, reranker: bool, planted: Dataset, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    dataset = replace(
        planted, train=replace(planted.train, masked=np.array([[row, (row + 3) % 12] for row in range(120)]))
    )
    stages = train(
        dataset,
        f"classify.negatives={negatives}",
        f"reranker.enabled={str(reranker).lower()}",
        "classify.epochs=3",
        "surrogate.epochs=0",
    )
    true = set(zip(*(numbers.tolist() for numbers in stages.data.targets.nonzero()), strict=True))
    hidden = {tuple(pair) for pair in stages.data.masked.tolist()}
    wrong = seen.pairs(positive=False)
    assert seen.pairs(positive=True) == true
    assert not wrong & true
    assert not wrong & hidden
    # 12 labels are fewer than the negatives asked for: each other label comes up, except where the batch must provide
    # it
    others = 12 * stages.data.n_documents - len(true | hidden)
    assert len(wrong) == others if negatives != "inbatch" or reranker else len(wrong) > 0.7 * others


def test_the_reranker_learns_from_labels_that_it_will_be_asked_about(
    planted: Dataset, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negatives are among the first labels of the base, whatever is drawn at random for the base itself."""
    seen = Seen(monkeypatch)
    stages = train(
        planted,
        "reranker.enabled=true",
        "reranker.depth=3",
        "shortlist.size=6",
        "classify.random=6",
        "classify.epochs=0",
        "surrogate.epochs=0",
        "reranker.epochs=1",
    )
    base: Any = stages.ranker.base
    first = base.rank(stages.data.documents, 12).ids
    wrong = seen.pairs(positive=False)
    assert wrong
    assert all(label in first[document] for document, label in wrong), "never a label that the shortlist does not hold"


def test_the_number_of_negatives_and_positives_is_a_setting(
    planted: Dataset, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    train(
        planted,
        "classify.count=3",
        "classify.random=2",
        "classify.positives=1",
        "classify.epochs=1",
        "surrogate.epochs=0",
    )
    for _, step in seen.steps:
        assert (step.targets.sum(axis=1) == 1).all()
        assert (step.mask.sum(axis=1) == 1 + 3 + 2).all()


def test_unigram_negatives_are_frequent_labels(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [["often"]] * 60 + [[f"l{i}"] for i in range(20)]
    dataset = Dataset.from_texts([f"word{i}" for i in range(80)], names)
    shares = []
    for kind in ("uniform", "unigram"):
        seen = Seen(monkeypatch)
        data = train(
            dataset, f"classify.negatives={kind}", "classify.count=1", "surrogate.epochs=0", "classify.epochs=4"
        ).data
        drawn = [
            label
            for rows, step in seen.steps
            for label in step.ids[(rows >= 60)[:, None] & step.mask & (step.targets == 0)].tolist()
        ]
        shares.append(drawn.count(list(data.labels.uids).index("often")) / len(drawn))
    assert shares[0] < 0.2
    assert shares[1] > 0.35  # 60 ** 0.75 of that plus 19 labels of one document


# ---- what it is good for ----


GOOD: dict[str, tuple[str, ...]] = {
    "joint": (),
    "reranked": ("classify.rate=0.002", "reranker.enabled=true", "reranker.epochs=12"),
    "slice": ("classify.learner=slice",),
    "ensemble": ("ensemble.learners=2",),
    "clusters": ("shortlist.structures=clusters",),
    "network": (
        "surrogate.encoder=mlp",
        "surrogate.task=label_selection",
        "surrogate.selected=1",
        "surrogate.epochs=20",
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_it_finds_planted_labels(case: str, planted: Dataset, tmp_path: Path) -> None:
    made = recipe("surrogate.width=64", "surrogate.epochs=5", "classify.epochs=15", "classify.rate=0.02", *GOOD[case])
    found = evaluate(longtail.train(planted, tmp_path / "run", made, device="cpu"), planted)
    assert found["P@1"] > 80
    assert found["R@10"] > 95


# ---- memory ----


def test_the_memory_estimate_grows_with_all_that_grows(planted: Dataset) -> None:
    data = prepared(planted)
    base = recipe().memory(data)
    assert base >= 3 * 4 * 8 * (data.featurizer.width + data.n_labels), (
        "word vectors and classifiers with two moments each"
    )
    larger = ("surrogate.width=16", "classify.count=1000", "reranker.enabled=true")
    assert all(recipe(setting).memory(data) > base for setting in larger)
    assert recipe("reranker.enabled=true", "reranker.depth=500").memory(data) > recipe("reranker.enabled=true").memory(
        data
    )

    def estimate(documents: int, words: int, labels: int) -> int:
        texts = [f"word{i % words} word{(i + documents) % words}" for i in range(documents)]
        names = {f"l{i}": "word0" for i in range(labels)}  # labels bring no words of their own
        plain = "features.subwords=none", "features.pairs=false"
        return recipe(*plain).memory(
            prepared(Dataset.from_texts(texts, [[f"l{i % labels}"] for i in range(documents)], names), *plain)
        )

    # 16 and 24 labels make the same number of clusters
    assert (
        min(
            estimate(240, 240, 24) - less
            for less in (estimate(120, 240, 24), estimate(240, 120, 24), estimate(240, 240, 16))
        )
        > 0
    )


# ---- mistakes and strange data ----


def test_settings_that_do_not_fit_the_data_say_so(planted: Dataset, train: Train, tmp_path: Path) -> None:
    np.save(tmp_path / "narrow.npy", np.zeros((3, 8), dtype=np.float32))
    vectors = with_vectors(planted, np.ones((120, 5), dtype=np.float32))
    cases: list[tuple[Dataset, str, str]] = [
        (planted, "surrogate.encoder=cnn", "token sequences"),
        (planted, "surrogate.encoder=dense", "no dense vectors"),
        (vectors, "surrogate.encoder=bag", "reads words"),
        (vectors, "surrogate.encoder=mlp", "reads words"),
        (vectors, "surrogate.encoder=cnn", "reads words"),
        (vectors, f"surrogate.vectors={tmp_path / 'narrow.npy'}", "word vectors"),
        (planted, f"surrogate.vectors={tmp_path / 'narrow.npy'}", r"shape \(3, 8\), expected \(\d+, 8\)"),
        (planted, "game.enabled=true", "no clusters are looked up"),
        (planted, "shortlist.structures=clusters surrogate.task=unsupervised", "does not train"),
        (planted, "shortlist.structures=clusters game.enabled=true graph.source=given", "no label-label graph"),
    ]
    for dataset, changes, message in cases:
        with pytest.raises(ConfigError, match=message) as caught:
            train(dataset, *changes.split(" "))
        assert caught.value.hint


LEARNERS = ("joint", "slice", "dismec", "parabel", "surrogate")
STRANGE: dict[str, tuple[list[str], list[list[str]]]] = {
    "fewer labels than clusters": ([f"word{i % 3} also{i}" for i in range(30)], [[f"l{i % 3}"] for i in range(30)]),
    "a label with every document": (
        [f"word{i % 5} also{i}" for i in range(40)],
        [["all", f"l{i % 5}"] for i in range(40)],
    ),
    "every label with every document": ([f"word{i % 5} also{i}" for i in range(20)], [["a", "b"]] * 20),
    "one label only": ([f"word{i}" for i in range(9)], [["only"]] * 9),
    "one document only": (["word"], [["only"]]),
    "40% duplicate documents": (
        ["same text"] * 24 + [f"word{i}" for i in range(36)],
        [[f"l{i % 6}"] for i in range(60)],
    ),
    "nothing but duplicates": (["same text"] * 20, [[f"l{i % 5}"] for i in range(20)]),
    "a document with every label": (
        ["word"] * 3 + ["other"] * 10,
        [[f"l{i}" for i in range(10)]] * 3 + [[f"l{i}"] for i in range(10)],
    ),
}


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("case", STRANGE)
def test_strange_data_trains(case: str, learner: str, train: Train) -> None:
    texts, labels = STRANGE[case]
    stages = train(Dataset.from_texts(texts, labels), f"classify.learner={learner}")
    top = stages.ranker.rank(stages.data.featurizer.batch_of_texts([*texts[:3], "qqqq zzzz", ""]), 3)
    assert top.k == min(3, stages.data.n_labels)
    found = top.ids >= 0
    assert found[: len(texts[:3]), 0].all(), "a known document gets labels"
    assert learner == "parabel" or not found[-2:].any(), "nothing is known of the others"
    assert np.isfinite(top.scores[found]).all()
    assert np.isneginf(top.scores[~found]).all()


@pytest.mark.parametrize("negatives", ["uniform", "unigram", "inbatch", "full"])
@pytest.mark.parametrize("case", ["one label only", "every label with every document"])
def test_where_there_are_no_negatives_training_goes_on(case: str, negatives: str, train: Train) -> None:
    stages = train(Dataset.from_texts(*STRANGE[case]), f"classify.negatives={negatives}", "reranker.enabled=true")
    assert np.isfinite(stages.ranker.rank(stages.data.documents, 1).scores).all()


def test_a_label_with_every_document_is_learnt(train: Train) -> None:
    stages = train(
        Dataset.from_texts(*STRANGE["a label with every document"]), "classify.epochs=20", "classify.rate=0.05"
    )
    top = stages.ranker.rank(stages.data.documents, 1)
    assert stages.data.labels.uids[int(np.bincount(top.ids[:, 0]).argmax())] == "all"


def test_a_document_of_unknown_words_has_no_vector_and_breaks_nothing(planted: Dataset, train: Train) -> None:
    stages = train(planted)
    batch = stages.data.featurizer.batch_of_texts(["qqqq zzzz", "cat"])
    assert batch.sparse is not None
    assert np.diff(batch.sparse.indptr)[0] == 0
    assert not stages.ranker.encoder.encode(batch)[0].any()
    top = stages.ranker.rank(batch, 12)
    assert np.isfinite(top.scores[top.ids >= 0]).all()
    alone = stages.ranker.rank(batch.rows(slice(1, 2)), 12)
    np.testing.assert_array_equal(top.ids[1], alone.ids[0])


@pytest.mark.parametrize("share", [0.0, 0.001, 0.999, 1.0])
def test_no_validation_slice_is_said(share: float, planted: Dataset) -> None:
    with pytest.raises(ConfigError, match="validation share") as caught:
        planted.hold_out(share, seed=0)
    assert "more data" in caught.value.hint


def test_an_ensemble_has_members_with_other_clusters(tmp_path: Path) -> None:
    dataset = topics(n_topics=5, labels=40, documents=160)
    made = recipe("ensemble.learners=2", "surrogate.epochs=0", "classify.epochs=0")
    longtail.train(dataset, tmp_path / "run", made, device="cpu")
    clusters = [
        load_part(tmp_path / "run" / "members" / member / "stages" / "1_surrogate").clusters for member in ("0", "1")
    ]
    together = [np.equal.outer(c, c) for c in clusters]
    assert not np.array_equal(*together), "labels are grouped in another way, not only renumbered"
