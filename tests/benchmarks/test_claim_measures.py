"""The measuring functions of the claims, on models made by hand whose answers are known."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.claims import timing
from benchmarks.claims.crafted_worlds import dense_world, single_label_world
from benchmarks.claims.cross import NEAREST, POPULAR, baseline_ranking
from benchmarks.claims.measures import Trained
from benchmarks.claims.model_measures import (
    drift,
    head_recall,
    index_recall,
    list_overlap,
    members,
    one_vs_all,
    shortlist_recall,
    structure_recall,
)
from benchmarks.claims.workshop import Workshop
from benchmarks.claims.worlds import Planted
from benchmarks.claims.worlds import World as ClaimWorld
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset
from longtail.errors import ConfigError
from longtail.evaluation import Yardstick, evaluate
from longtail.metrics import drop_masked_targets
from longtail.models.encoders import FrozenBag, ResidualMap
from longtail.models.rankers import Classifier, Ensemble, Model
from longtail.predictor import Predictor
from longtail.recipes.astec.ranker import InstanceVote, MergedShortlist
from longtail.search.index import ExactIndex
from longtail.search.shortlist import LabelIndex
from longtail.types import F32, Batch, Csr, TopK

WIDTH, LABELS, TRAINING, TEST = 16, 40, 300, 120


def one_hot(columns: Any, width: int) -> Csr:
    return csr_array(
        (np.ones(len(columns), np.float32), np.asarray(columns, np.int32), np.arange(len(columns) + 1)),
        shape=(len(columns), width),
    )


class World:
    """Documents of one label each; every document is a word of its own, so the table of the encoder holds their
    vectors.
    """

    def __init__(self, spread: float = 0.6) -> None:
        rng = np.random.default_rng(0)
        centres = np.abs(rng.standard_normal((LABELS, WIDTH))).astype(np.float32)
        # Label 0 is frequent, the others are rare.
        self.labels = np.where(rng.random(TRAINING + TEST) < 0.3, 0, rng.integers(LABELS, size=TRAINING + TEST))
        self.vectors: F32 = np.abs(
            centres[self.labels] + spread * rng.standard_normal((TRAINING + TEST, WIDTH))
        ).astype(np.float32)
        self.targets = one_hot(self.labels[:TRAINING], LABELS)
        self.truth = one_hot(self.labels[TRAINING:], LABELS)
        self.test = Batch(sparse=one_hot(np.arange(TRAINING, TRAINING + TEST), TRAINING + TEST))
        self.training = Batch(sparse=one_hot(np.arange(TRAINING), TRAINING + TEST))
        self.classifier = Classifier(rng.standard_normal((LABELS, WIDTH)).astype(np.float32))

    def model(self, refinement: Any = None, size: int = 30) -> Model:
        trained = self.vectors[:TRAINING]
        shortlister = MergedShortlist(
            LabelIndex.build(trained, self.targets, make_index=ExactIndex.build),
            InstanceVote.build(trained, self.targets, neighbours=9),
        )
        return Model(
            encoder=FrozenBag(self.vectors),
            refinement=refinement,
            shortlister=shortlister,
            classifier=self.classifier,
            shortlist_size=size,
            alpha=0.5,
        )

    def trained(self, ranker: Any) -> Any:
        """What measuring functions look at, as far as they do."""
        data = SimpleNamespace(need_test=lambda: SimpleNamespace(documents=None))
        counts = np.bincount(self.targets.indices, minlength=LABELS)
        unread: Any = None
        yardstick = Yardstick(unread, self.truth, np.zeros((0, 2), np.int64), np.ones(LABELS), unread, counts)
        bundle = SimpleNamespace(ranker=ranker, featurizer=SimpleNamespace(batch=lambda documents: self.test))
        training = SimpleNamespace(documents=self.training, targets=self.targets, n_labels=LABELS)
        return SimpleNamespace(
            predictor=SimpleNamespace(bundle=bundle),
            training=training,
            seed=0,
            world=SimpleNamespace(dataset=data, yardstick=yardstick, planted=None),
        )


def share_found(top: TopK, truth: Any) -> float:
    return 100 * float(np.mean([label in ids for label, ids in zip(truth, top.ids.tolist(), strict=True)]))


def test_recall_of_shortlists_and_their_structures() -> None:
    world = World()
    model, wanted = world.model(size=30), world.labels[TRAINING:]
    merged: Any = model.shortlister
    by_size, by_structure = shortlist_recall(world.trained(model)), structure_recall(world.trained(model))
    queries = world.vectors[TRAINING:]
    whole = merged.query(queries, 30)
    assert by_size["recall@20"].value == pytest.approx(
        share_found(TopK(whole.ids[:, :20], whole.scores[:, :20]), wanted)
    )
    assert by_size["recall"].value == by_structure["recall by both"].value == pytest.approx(share_found(whole, wanted))
    assert by_structure["recall by labels"].value == pytest.approx(
        share_found(merged.labels.query(queries, 30), wanted)
    )
    assert by_structure["recall by documents"].value == pytest.approx(
        share_found(merged.instances.query(queries, 30), wanted)
    )
    assert by_structure["recall by idle votes"].value == by_structure["recall by labels"].value
    assert by_structure["recall by documents"].value < by_structure["recall by both"].value
    with pytest.raises(ConfigError, match="two structures"):
        structure_recall(
            world.trained(
                Model(
                    encoder=model.encoder,
                    refinement=None,
                    shortlister=merged.labels,
                    classifier=world.classifier,
                    shortlist_size=30,
                    alpha=0.5,
                )
            )
        )


def test_recall_of_heads_and_others() -> None:
    world = World()
    model, wanted = world.model(), world.labels[TRAINING:]
    measured = head_recall(world.trained(model))
    heads = np.argsort(-np.bincount(world.labels[:TRAINING], minlength=LABELS), kind="stable")[:4]
    top = model.shortlister.query(world.vectors[TRAINING:], 30)
    top = TopK(top.ids[:, :20], top.scores[:, :20])
    is_head = np.isin(wanted, heads)
    for name, rows in (("heads", is_head), ("others", ~is_head)):
        assert measured[f"recall@20 of {name}"].value == pytest.approx(
            share_found(TopK(top.ids[rows], top.scores[rows]), wanted[rows])
        )
        assert measured[f"recall@20 of {name}"].denominator.sum() == rows.sum()


def test_lists_agree_as_far_as_features_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.claims.model_measures.LIST_LENGTH", 5)
    world = World()
    doubled = list_overlap(world.trained(world.model(ResidualMap(np.eye(WIDTH, dtype=np.float32)))))
    assert doubled["overlap"].value == 100, "x = 2v has the cosines of v"
    assert doubled["overlap of unrelated"].value < 60
    scrambled = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    assert list_overlap(world.trained(world.model(ResidualMap(50 * scrambled))))["overlap"].value < 90
    with pytest.raises(ConfigError, match="no refined features"):
        list_overlap(world.trained(world.model(None)))


@pytest.mark.parametrize(("scale", "mean", "beyond"), [(0.5, 50, 0), (1.0, 100, 0), (1.5, 150, 100)])
def test_drift_is_relative_to_v(scale: float, mean: float, beyond: float) -> None:
    measured = drift(World().trained(World().model(ResidualMap(scale * np.eye(WIDTH, dtype=np.float32)))))
    assert measured["drift"].value == pytest.approx(mean, rel=1e-5)
    assert measured["beyond the bound"].value == beyond


def test_an_index_with_hardly_any_links_recalls_less() -> None:
    pytest.importorskip("faiss")
    measured = index_recall(World().trained(World().model()))
    assert measured["recall of HNSW"].value == 100
    assert measured["recall of a crippled graph"].value < 100


def test_members_of_an_ensemble() -> None:
    world = World()
    models = [world.model(size=size) for size in (2, 20, 30)]
    measured = members(world.trained(Ensemble(tuple(models), 30)))
    alone = [members(world.trained(Ensemble((model,), 30)))["P@5"] for model in models]
    assert measured["members P@5"].value == pytest.approx(np.mean([column.value for column in alone]))
    assert measured["first P@5"].value == pytest.approx(alone[0].value)
    assert measured["repeated P@5"].value == pytest.approx(alone[0].value)
    assert measured["P@5"].value != measured["first P@5"].value
    with pytest.raises(ConfigError, match="not an ensemble"):
        members(world.trained(models[0]))


def test_linear_one_vs_all_learns_what_is_separable() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(6, size=90)
    documents = csr_array(np.eye(6, dtype=np.float32)[labels] + 0.1 * rng.random((90, 6), dtype=np.float32))
    top = one_vs_all(documents, one_hot(labels, 6), documents, 3, rng, block=32)
    np.testing.assert_array_equal(top.ids[:, 0], labels)
    assert top.ids.shape == (90, 3)


# ---- time ----


def test_growth_is_the_exponent_of_the_medians() -> None:
    found, numbers = timing.growth(
        {n: [9.0, 1e-3 * n**0.5, 1e-3 * n**0.5, 1e-3 * n**0.5, 0.0] for n in (100, 400, 1600)}
    )
    assert found.value == pytest.approx(0.5)
    assert numbers["microseconds per query at 400 labels"] == pytest.approx(1e6 * 1e-3 * 20 / timing.QUERIES)


@pytest.mark.parametrize(
    "probe",
    [timing.hnsw_query, timing.exact_query, timing.hnsw_prediction, timing.exact_against_hnsw],
    ids=lambda probe: probe.__name__,
)
def test_probes_of_time_run(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(timing, "LABELS", (300, 400, 600))
    for name, size in (("VOCABULARY", 500), ("QUERIES", 16), ("REPEATS", 2)):
        monkeypatch.setattr(timing, name, size)
    estimate, numbers = probe(Workshop(tmp_path, device="cpu"))
    assert estimate.low <= estimate.value <= estimate.high
    assert sum("labels" in name for name in numbers) == 3


# ---- worlds ----


def test_labels_never_occur_together_in_a_single_label_world() -> None:
    knobs = {"documents": 400, "test_documents": 100, "labels": 60, "topics": 5, "graph_coverage": 0.0}
    data, whole = single_label_world(3, **knobs), Planted("small", knobs).world(3, None).dataset
    assert set(np.diff(data.train.targets.indptr).tolist()) == {1}
    assert data.train.targets.multiply(whole.train.targets).nnz == 400, "the label kept is one that the document had"
    assert data.need_test().targets.nnz == whole.need_test().targets.nnz
    assert data.digest != whole.digest


def test_baselines_are_those_of_evaluate(planted: Dataset, tiny_run: Path) -> None:
    trained: Any = SimpleNamespace(world=ClaimWorld.of(planted))
    found = baseline_ranking(trained)
    assert found[f"{NEAREST} P@1"].value == pytest.approx(evaluate(Predictor.open(tiny_run), planted)["P@1"])
    truth = drop_masked_targets(planted.need_test().targets, planted.need_test().masked)
    counts = drop_masked_targets(planted.train.targets, planted.train.masked).sum(axis=0)
    first = truth[:, [int(np.argmax(counts))]].sum()
    assert found[f"{POPULAR} P@1"].value == pytest.approx(100 * first / truth.shape[0])


DENSE: dict[str, Any] = {"documents": 400, "test_documents": 100, "labels": 60, "topics": 5, "graph_coverage": 0.0}


def test_dense_vectors_know_their_labels_unless_told_not_to() -> None:
    def same_label_advantage(**knobs: Any) -> float:
        """How much more similar documents that share a label are than others, in standard deviations of the
        similarity.
        """
        data = dense_world(0, **DENSE, **knobs)
        vectors: Any = data.train.documents.vectors
        similarity = np.corrcoef(vectors)
        together = (data.train.targets @ data.train.targets.T).toarray() > 0
        apart = ~together
        np.fill_diagonal(together, False)
        return float((similarity[together].mean() - similarity[apart].mean()) / similarity[apart].std())

    assert same_label_advantage() > 0.3
    assert abs(same_label_advantage(informativeness=0.0)) < 0.1
    assert same_label_advantage(nuisance=0.0) > same_label_advantage()


def test_dense_worlds_differ_by_seed_and_have_no_text() -> None:
    a, again, b = dense_world(0, **DENSE), dense_world(0, **DENSE), dense_world(1, **DENSE)
    assert a.digest == again.digest != b.digest
    assert not a.train.documents.fields
    vectors: Any = a.need_test().documents.vectors
    assert vectors.shape == (100, 512)


def test_on_a_gpu_documents_are_ranked_by_a_model_of_their_own_that_searches_there(
    tiny_run: Path, planted: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[object] = []
    monkeypatch.setattr("benchmarks.sets.search_on_gpu", changed.append)
    shutil.copytree(tiny_run, tmp_path / "run")
    here = Trained(tmp_path, ClaimWorld.of(planted), 0, {})
    expected = here.predictions()
    assert not changed
    (tmp_path / "predictions-as-trained.npz").unlink()
    there = Trained(tmp_path, ClaimWorld.of(planted), 0, {}, "cuda")
    plain = there.predictor
    assert np.array_equal(there.predictions().ids, expected.ids)
    assert len(changed) == 1
    assert changed[0] is not plain.bundle.ranker
