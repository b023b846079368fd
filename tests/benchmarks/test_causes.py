"""Where causes of failed claims are looked for: what is asked exists, and the file says what was found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from benchmarks.claims import causes
from benchmarks.claims.causes import LOOKS, Look, Slice, by_own_vectors, far_shares, half_as_sure, mean_weights, reached
from benchmarks.claims.entries import Difference, Value, difference
from benchmarks.claims.measures import by_frequency
from benchmarks.claims.workshop import Workshop, recipe_of
from scipy.sparse import csr_array
from tests.benchmarks.small_claims import BLIND, SEES, SILENT, WORLD
from tests.recipes.gnnxml.test_keygraph_model import SIZES, MakeGraphs, model_of

from longtail.data.read import write
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.evaluation import Yardstick
from longtail.persistence import save_part
from longtail.recipes.eclare.stages import LabelComponents
from longtail.recipes.gnnxml.ranker import Gating
from longtail.types import Batch

READING = Look(
    worlds={"texts": WORLD, "noise": SILENT},
    variants={"sees": SEES, "blind": BLIND},
    compared=(("sees", "blind"),),
    also=(
        Value("sees", "P@5 [10-99]", by_frequency),
        Difference(Value("sees", "P@1"), Value("sees", "P@5")),
    ),
    shown=("P@1",),
    only={"noise": ("blind",)},
)


@pytest.mark.parametrize("claim", list(LOOKS))
def test_what_is_asked_of_a_look_exists(claim: str) -> None:
    look = LOOKS[claim]
    for variant in look.variants.values():
        recipe_of(variant)  # refuses settings that do not exist
    named = {name for pair in look.compared for name in pair} | {n for names in look.only.values() for n in names}
    named |= {value.variant for asked in look.also for value in causes._values(asked)}
    assert named <= look.variants.keys()
    assert look.only.keys() <= look.worlds.keys()


def test_the_file_says_what_was_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(causes.LOOKS, "A6", READING)
    out = tmp_path / "found.json"
    words = ["A6", "--device", "cpu", "--cache", str(tmp_path / "cache"), "--out", str(out), "--seeds", "2"]
    assert causes.main(words) == 0
    found = json.loads(out.read_text())["numbers"]
    assert found["seeds"] == 2
    texts, noise = found["A6"]["texts"], found["A6"]["noise"]
    assert texts["settings"] == {"sees": "tiny", "blind": "tiny features.max_features=1"}
    gain = texts["differences"]["P@1: sees - blind"]
    assert 10 < gain["low"] <= gain["value"] <= gain["high"]
    assert len(gain["per seed"]) == 2
    sees, blind = (texts["metrics"][name]["P@1"]["mean"] for name in ("sees", "blind"))
    assert gain["value"] == pytest.approx(sees - blind, abs=2e-3)
    # Two metrics of one variant are named both, a single value by its variant.
    assert texts["differences"]["P@1(sees) - P@5(sees)"]["value"] > 0
    assert any("[10-99]" in name for name in texts["differences"])
    # Only one of the variants was trained on noise, so nothing is compared there.
    assert noise["settings"].keys() == {"blind"}
    assert noise["differences"] == {}


def test_a_look_that_compares_what_is_not_there_is_silent_of_it(tmp_path: Path) -> None:
    look = replace(READING, only={"texts": ("sees",), "noise": ("blind",)}, also=(difference("sees", "blind", "P@1"),))
    found = look.found(Workshop(tmp_path, device="cpu"), 1)
    assert found["texts"]["differences"] == found["noise"]["differences"] == {}


# ---- what is measured ----


def looked_at(ranker: Any, batch: Batch, truth: np.ndarray, training: Any = None, counts: Any = None) -> Any:
    """What measuring functions look at of a training, as far as they do."""
    table, unread = csr_array(truth.astype(np.float32)), cast(Any, None)
    labels = np.asarray(truth.sum(axis=0), dtype=np.int64)
    yardstick = Yardstick(unread, table, np.zeros((0, 2), np.int64), np.ones(truth.shape[1]), unread, labels)
    bundle = SimpleNamespace(
        ranker=ranker,
        featurizer=SimpleNamespace(batch=lambda documents: batch),
        labels=SimpleNamespace(counts=counts),
    )
    data = SimpleNamespace(need_test=lambda: SimpleNamespace(documents=None))
    world = SimpleNamespace(yardstick=yardstick, dataset=data)
    return SimpleNamespace(predictor=SimpleNamespace(bundle=bundle), world=world, training=training)


def test_half_as_sure_halves_log_odds_and_nothing_else(make_graphs: MakeGraphs) -> None:
    model, batch = model_of(make_graphs(SIZES), beam=4)
    truth = np.eye(8)[[0, 1, 5, 3, 6, 2]]
    for power in (1.0, 0.25):
        trained = looked_at(replace(model, gating=Gating(power=power)), batch, truth)
        yardstick = trained.world.yardstick
        wanted = yardstick.measure(replace(model, gating=Gating(power, 0.5)).rank(batch, yardstick.depth)).values()
        found = half_as_sure(trained)
        for metric in ("P@1", "P@3", "PSP@3"):
            assert found[metric].value == pytest.approx(wanted[metric]), (power, metric)


def test_half_as_sure_keeps_the_power_of_the_gate(make_graphs: MakeGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_of(make_graphs(SIZES), beam=4)
    asked: list[Any] = []
    rank = type(model).rank

    def watched(one: Any, *rest: Any) -> Any:
        asked.append(one.gating)
        return rank(one, *rest)

    monkeypatch.setattr(type(model), "rank", watched)
    half_as_sure(looked_at(replace(model, gating=Gating(power=0.25)), batch, np.eye(8)[:6]))
    half_as_sure(looked_at(model, batch, np.eye(8)[:6]))
    assert asked == [Gating(0.25, 0.5), Gating(1.0, 0.5)]


def test_reached_counts_labels_of_the_clusters_that_are_looked_into(make_graphs: MakeGraphs) -> None:
    model, batch = model_of(make_graphs(SIZES), beam=1)
    found = reached(looked_at(model, batch, np.eye(8)[:6]))
    sizes = np.diff(model.rankers.starts)
    looked = model.best_clusters(batch).ids[:, 0]
    held = [int(sizes[cluster]) if cluster >= 0 else 0 for cluster in looked.tolist()]
    assert held[1] == 0, "nothing is known of this document"
    assert found["looked at"].value == pytest.approx(100 * np.mean(held) / 8)
    assert found["largest"].value == pytest.approx(100 * 2 / 7)


def test_far_shares_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten labels, the first two the most frequent: they look at the first of two hops, the last two at the second."""
    weights = np.full((10, 2), 0.5)
    weights[:2], weights[8:] = (1.0, 0.0), (0.0, 1.0)
    monkeypatch.setattr(causes, "model_of", lambda trained: None)
    monkeypatch.setattr(causes, "attention", lambda model: weights)
    monkeypatch.setattr(causes, "hop_norms", lambda model: np.array([1.0, 3.0]))
    trained = looked_at(None, Batch(dense=np.zeros((1, 1), np.float32)), np.zeros((1, 10)), counts=np.arange(10, 0, -1))
    found = {name: column.value for name, column in far_shares(trained).items()}
    assert found == pytest.approx(
        {
            "far, equal attention": 75.0,
            "far, most frequent": 0.0,
            "far, rarest": 100.0,
            "moved, most frequent": 100.0,
            "moved, rarest": 100.0,
        }
    )


def test_neighbours_by_the_vectors_of_the_base() -> None:
    """A test document is where a training document is: it gets its labels, though no word is the same."""
    places = np.eye(4, dtype=np.float32)
    encoder = SimpleNamespace(encode=lambda batch: batch.dense @ places)
    reranked = SimpleNamespace(base=SimpleNamespace(encoder=encoder))
    known, labels = np.eye(4, dtype=np.float32), np.eye(4)[[2, 0, 3, 1]]
    training = SimpleNamespace(documents=Batch(dense=known), targets=csr_array(labels.astype(np.float32)))
    asked = known[[3, 1, 0, 2]]
    right = looked_at(reranked, Batch(dense=asked), labels[[3, 1, 0, 2]], training)
    wrong = looked_at(reranked, Batch(dense=asked), labels, training)
    assert by_own_vectors(right)["P@1"].value == 100
    assert by_own_vectors(wrong)["P@1"].value == 25


def test_a_slice_is_known_by_its_documents(tmp_path: Path) -> None:
    sizes = SyntheticConfig(documents=200, test_documents=20, labels=50, topics=5, graph_coverage=0.0)
    write(synthesise(sizes).dataset, tmp_path / "planted", "lf")
    some, fewer = Slice("planted"), Slice("planted@20")
    world = some.world(0, tmp_path)
    assert len(world.dataset.need_test()) == 20, "a tenth of the training documents"
    assert world.dataset.digest == some.world(1, tmp_path).dataset.digest, "the same for every seed"
    assert some.identity(0, tmp_path) != fewer.identity(0, tmp_path)
    assert some.identity(0, tmp_path)["digest"] == world.dataset.digest
    assert fewer.describe() == "slice of planted@20"


def test_mean_weights_of_components(tmp_path: Path) -> None:
    weights = np.array([[0.5, 0.3, 0.2], [0.9, 0.1, 0.0]], np.float32)
    part = LabelComponents(("text", "gale1", "free"), weights, np.ones_like(weights), np.array([4, 1]))
    save_part(part, tmp_path / "analysis" / "label_components")
    found = mean_weights(cast(Any, SimpleNamespace(run=tmp_path)))
    assert {name: column.value for name, column in found.items()} == pytest.approx(
        {"text": 70, "gale1": 20, "free": 10}, rel=1e-5
    )
