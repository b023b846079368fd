"""Measures and probes of GalaXC's claims: numbers are those of plain counting, on small trained models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.claims import galaxc_probes
from benchmarks.claims.crafted_worlds import WarmStartFolder, cold_world, warm_world
from benchmarks.claims.galaxc_measures import (
    anchored_ranking,
    embedding_recalls,
    far_attention,
    isolated,
    model_of,
    warm_ranking,
    without_shortlist,
)
from benchmarks.claims.galaxc_probes import (
    attention_time,
    gain_beyond_text,
    over_seeds,
    recall_and_precision,
    spearman,
    warm_gain,
)
from benchmarks.claims.measures import Trained, ranking
from benchmarks.claims.model_measures import batch_to_rank
from benchmarks.claims.verdict import Column
from benchmarks.claims.worlds import World

import longtail
from longtail.data.read import write
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import ConfigError
from longtail.evaluation import Yardstick
from longtail.recipes import make_recipe
from longtail.recipes.galaxc.ranker import attention, embedding_recall, hop_norms
from longtail.search.index import ExactIndex, HnswIndex

pytestmark = pytest.mark.usefixtures("one_thread")

KNOBS: dict[str, Any] = {
    "documents": 400,
    "test_documents": 250,
    "labels": 60,
    "topics": 6,
    "token_dropout": 0.8,
    "missing_rate": 0.0,
}
SMALL = [
    "features.subwords=none",
    "features.pairs=false",
    "astec.width=16",
    "astec.epochs=3",
    "surrogate.epochs=3",
    "shortlist.size=5",
]


def trained_on(world: World, folder: Path, *settings: str) -> Trained:
    longtail.train(world.dataset, folder / "run", make_recipe("galaxc", assignments=[*SMALL, *settings]), device="cpu")
    return Trained(folder, world, 0, {})


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Trained:
    made = synthesise(SyntheticConfig(**KNOBS, graph_coverage=0.8), 0)
    return trained_on(
        World(made.dataset, Yardstick.of(made.dataset), made), tmp_path_factory.mktemp("linked"), "graph.auxiliary=test"
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Trained:
    # Linked to known labels alone, so that even a model this small depends on whose labels they are.
    return trained_on(
        World.of(warm_world(0, **KNOBS, graph_coverage=0.0)), tmp_path_factory.mktemp("told"), "hops.given=instead"
    )


# ---- measures ----


def test_anchors_of_test_documents_are_told(linked: Trained) -> None:
    planted = linked.world.planted
    assert planted is not None
    assert planted.oracle_test is not None
    graph = planted.dataset.graphs["anchors"]
    assert graph.anchors is not None
    uids = list(graph.anchors.uids)
    anchors = [
        [uids[column] for column in row]
        for row in np.split(planted.oracle_test.indices, planted.oracle_test.indptr[1:-1])
    ]
    documents = linked.world.dataset.need_test().documents
    context = linked.predictor.context(len(documents), anchors=anchors)
    expected = linked.world.yardstick.score(linked.predictor.rank(documents, 100, context=context))
    assert anchored_ranking(linked)["P@1"].value == pytest.approx(expected["P@1"])
    assert anchored_ranking(linked)["P@1"].value != ranking(linked)["P@1"].value


def test_recalls_are_those_of_the_analysis(linked: Trained) -> None:
    found = embedding_recalls(linked)
    by_analysis = embedding_recall(model_of(linked), batch_to_rank(linked), linked.world.yardstick.truth)
    assert found["initial"].value == pytest.approx(by_analysis["initial"])
    assert found["mean of hops"].value == pytest.approx(by_analysis["transformed, mean of hops"])
    assert not isolated(model_of(linked)).space.graph.degrees.any()
    assert len(model_of(linked).space.graph.neighbours), "the model itself keeps its edges"


def test_all_labels_are_scored_without_a_shortlist(linked: Trained) -> None:
    measured = without_shortlist(linked)
    assert measured["R@100"].value == 100, "there are fewer labels"
    assert ranking(linked)["R@100"].value < 100


def test_the_rarest_labels_against_the_most_frequent(linked: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    model, n = model_of(linked), KNOBS["labels"]
    counts = np.random.default_rng(0).permutation(np.arange(1, n + 1))
    bundle = linked.predictor.bundle
    counted = replace(bundle, labels=replace(bundle.labels, counts=counts))
    monkeypatch.setattr(linked.predictor, "bundle", counted)
    weights = attention(model) * hop_norms(model)
    far = 100 * (1 - weights[:, 0] / weights.sum(axis=1))
    fifth = n // 5
    found = far_attention(linked)
    assert found["tail - head"].value == pytest.approx(far[counts <= fifth].mean() - far[counts > n - fifth].mean())
    assert found["shuffled"].value != pytest.approx(found["tail - head"].value)


def test_known_labels_and_those_of_others(told: Trained, linked: Trained) -> None:
    found = warm_ranking(told)
    assert found["P@1"].value > found["shuffled P@1"].value
    with pytest.raises(ConfigError, match="no labels of test documents are known"):
        warm_ranking(linked)
    with pytest.raises(ConfigError, match="anchors of test documents are not known"):
        anchored_ranking(told)


def test_warm_and_cold_worlds_have_the_same_hidden_labels() -> None:
    warm, cold = (make(0, **KNOBS, graph_coverage=0.0).need_test() for make in (warm_world, cold_world))
    np.testing.assert_array_equal(warm.targets.toarray(), cold.targets.toarray())
    np.testing.assert_array_equal(warm.known, cold.known)


def test_arms_of_a_real_folder(tmp_path: Path) -> None:
    """What is revealed does not depend on the seed of a training; the arms differ in training and in identity alone."""
    write(synthesise(SyntheticConfig(**KNOBS, graph_coverage=0.0), 0).dataset, tmp_path / "real", "lf")
    warm, cold = WarmStartFolder("real", "warm"), WarmStartFolder("real", "cold")
    one, again, control = (arm.world(seed, tmp_path).dataset for arm, seed in ((warm, 0), (warm, 1), (cold, 0)))
    assert one.digest == again.digest != control.digest
    assert len(one.train) > len(control.train)
    np.testing.assert_array_equal(one.need_test().targets.toarray(), control.need_test().targets.toarray())
    assert warm.identity(0, tmp_path) == warm.identity(1, tmp_path) != cold.identity(0, tmp_path)


# ---- probes ----


class Shelf:
    """In place of a workshop: trainings are names, whose measures and times are written down."""

    def __init__(self, **seconds: dict[str, float]) -> None:
        self.times = seconds

    def trained(self, variant: Any, data: Any, seed: int) -> Any:
        return variant, data, seed

    def seconds(self, variant: Any, data: Any, seed: int) -> dict[str, float]:
        return self.times[variant]


class Arm(str):
    """In place of a description of data."""

    shared = False


def column(value: float) -> Column:
    return Column(np.full(50, value / 100), np.ones(50))


def test_gains_are_differences_of_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {("galaxc", "cold"): 30.0, ("astec", "cold"): 28.0, ("astec", "warm"): 29.0, ("galaxc", "warm"): 31.0}
    monkeypatch.setattr(galaxc_probes, "ranking", lambda trained: {"P@1": column(without[trained[:2]])})
    monkeypatch.setattr(
        galaxc_probes, "warm_ranking", lambda trained: {"P@1": column(40.0), "shuffled P@1": column(25.0)}
    )
    shelf: Any = Shelf()
    names: dict[str, Any] = {"variant": "galaxc", "warm": Arm("warm"), "cold": Arm("cold"), "metric": "P@1"}
    assert warm_gain(shelf, **names)[0].value == pytest.approx(10)
    names["text"] = "astec"
    found, numbers = gain_beyond_text(shelf, **names)
    assert found.value == pytest.approx(10 - 1)
    assert numbers == pytest.approx({"gain": 10, "gain of text": 1})
    assert gain_beyond_text(shelf, **names, shuffled=True)[0].value == pytest.approx(-5 - 1)


def test_times_of_stages_inside_others_count_once() -> None:
    stages = {"1_start": 5.0, "1_astec": 4.0, "1_surrogate": 10.0, "4_classify": 2.0}
    shelf: Any = Shelf(attentive=stages, plain={**stages, "1_surrogate": 8.0})
    names: dict[str, Any] = {"attentive": "attentive", "plain": "plain", "data": None}
    found, numbers = attention_time(shelf, **names)
    assert numbers == {"with": [12.0] * 3, "without": [10.0] * 3}
    assert found.value == pytest.approx(1.2)


def test_correlations_over_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    recalls, precisions = {"a": 10.0, "b": 20.0, "c": 30.0}, {"a": 1.0, "b": 3.0, "c": 2.0}
    monkeypatch.setattr(galaxc_probes, "embedding_recalls", lambda trained: {"initial": column(recalls[trained[0]])})
    monkeypatch.setattr(galaxc_probes, "ranking", lambda trained: {"P@1": column(precisions[trained[0]])})
    shelf: Any = Shelf()
    names: dict[str, Any] = {"variants": {name: name for name in recalls}, "data": None}
    found, numbers = recall_and_precision(shelf, **names)
    assert found.value == found.low == found.high == pytest.approx(50)
    assert numbers["b"] == {"recall": pytest.approx([20.0] * 3), "P@1": pytest.approx([3.0] * 3)}
    assert spearman([1, 2, 3], [5, 5, 5]) == 0
    assert spearman([1, 2, 3], [9, 5, 1]) == pytest.approx(-1)


def test_an_interval_over_seeds_is_students() -> None:
    found = over_seeds([1.0, 2.0, 3.0])
    assert (found.value, found.low, found.high) == pytest.approx(
        (2, 2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4
    )


@pytest.mark.parametrize("exact", [True, False])
def test_models_of_the_probe_are_whole(exact: bool) -> None:
    made: list[Any] = []

    def make_index(vectors: Any, documents: bool) -> Any:
        made.append(ExactIndex.build(vectors) if exact else galaxc_probes._hnsw(vectors, documents))
        return made[-1]

    top: Any = galaxc_probes._prediction(60, make_index)()
    assert [isinstance(index, HnswIndex) for index in made] == [not exact] * 2
    assert (top.ids >= 0).all()
