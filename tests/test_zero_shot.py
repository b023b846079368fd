"""Zero shot from end to end, and the other analyses of RAMEN's paper: links, what is missed, and what the truth
lacks.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz
from tests.test_cli import fails

import longtail
from longtail import Predictor
from longtail.cli import main
from longtail.compare import compare, render_missed
from longtail.data.dataset import Dataset, Items
from longtail.data.from_texts import with_digest
from longtail.data.protocols import zero_shot
from longtail.data.read import read, write
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.diagnosis import LookInside, diagnose, reachable_labels, unlisted
from longtail.errors import ConfigError
from longtail.evaluation import Yardstick, evaluate
from longtail.models.analysis import link_recall
from longtail.recipes import make_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = [
    "--set",
    "encoder.width=32",
    "--set",
    "train.epochs=8",
    "--set",
    "train.rate=0.02",
    "--set",
    "features.pairs=false",
    "--device",
    "cpu",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = SyntheticConfig(documents=400, test_documents=250, labels=80, topics=8, token_dropout=0.3)
    folder = tmp_path_factory.mktemp("zero") / "data"
    write(synthesise(config, 0).dataset, folder, "lf")
    return folder


@pytest.fixture(scope="module")
def cut(world: Path) -> Path:
    out = world.parent / "cut"
    assert main(["data", "zero-shot", str(world), str(out), "--share", "0.3", "--seed", "1"]) == 0
    return out


@pytest.fixture(scope="module")
def run(cut: Path, tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    out = tmp_path_factory.mktemp("runs") / "ance"
    assert main(["train", str(cut / "train"), "--recipe", "ance", "--out", str(out), *SMALL]) == 0
    return out


def test_the_command_writes_what_the_protocol_says(cut: Path, world: Path) -> None:
    made = zero_shot(read(world), 1, 0.3)
    for name, expected in (("train", made.train), ("unseen", made.unseen), ("generalised", made.generalised)):
        found = read(cut / name)
        assert list(found.labels.uids) == list(expected.labels.uids)
        assert found.digest == expected.digest
    assert not set(read(cut / "train").labels.uids) & set(read(cut / "unseen").labels.uids)


def test_unseen_labels_are_found_by_their_texts(
    cut: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words of a label that training never saw are in documents of training: the encoder puts both near."""
    assert (
        main(["evaluate", str(run), str(cut / "unseen"), "--labels-by-text", "--json", str(tmp_path / "u.json")]) == 0
    )
    unseen = json.loads((tmp_path / "u.json").read_text())
    labels = len(read(cut / "unseen").labels)
    assert unseen["P@1"] > 2 * 100 / labels
    model, everything = Predictor.open(run), read(cut / "generalised")
    known = evaluate(model, read(cut / "generalised"))
    assert known["R@10"] < evaluate(model.with_labels(everything.labels), everything)["R@10"], (
        "a model without the labels cannot find them"
    )
    capsys.readouterr()


def test_with_its_own_labels_nothing_changes(run: Path, cut: Path) -> None:
    model, data = Predictor.open(run), read(cut / "train")
    again = model.with_labels(data.labels)
    texts = list(data.train.documents.fields["title"][:20])
    for first, second in zip(model.predict(texts, k=3), again.predict(texts, k=3), strict=True):
        assert [p.label for p in first] == [p.label for p in second]
        np.testing.assert_allclose([p.score for p in first], [p.score for p in second], atol=1e-5)
    np.testing.assert_array_equal(again.bundle.labels.counts, model.bundle.labels.counts)
    mixed = model.with_labels(
        Items(["new", data.labels.uids[0]], {"title": ["the zebra", data.labels.fields["title"][0]]})
    )
    assert mixed.bundle.labels.counts.tolist() == [0, int(model.bundle.labels.counts[0])]


def test_models_of_fixed_labels_refuse(
    run: Path, tiny_run: Path, planted_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error, hint = fails(capsys, "evaluate", str(tiny_run), str(planted_folder), "--labels-by-text")
    assert "knows only the labels of its training" in error
    assert "ance" in hint
    with pytest.raises(ConfigError, match="have none"):
        Predictor.open(run).with_labels(Items(["a"]))


def test_transductive_labels_stay_in_training(world: Path, tmp_path: Path) -> None:
    assert main(["data", "zero-shot", str(world), str(tmp_path / "cut"), "--transductive-labels"]) == 0
    assert len(read(tmp_path / "cut" / "train").labels) == len(read(tmp_path / "cut" / "generalised").labels)


def test_wrong_shares_are_refused(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "a share of 2" in fails(capsys, "data", "zero-shot", str(world), str(tmp_path / "cut"), "--share", "2")[0]
    assert not (tmp_path / "cut").exists()


# ---- links ----


def test_links_are_recalled_by_an_encoder_that_knows_the_words(planted_with_graphs: Dataset, tmp_path: Path) -> None:
    recipe = make_recipe(
        "dexml", assignments=["encoder.width=32", "train.epochs=8", "train.rate=0.02", "features.pairs=false"]
    )
    model = longtail.train(planted_with_graphs, tmp_path / "run", recipe, device="cpu")
    ranker: Any = model.bundle.ranker
    look = LookInside(model, Yardstick.of(planted_with_graphs))
    found = link_recall(ranker.encoder.encode, look, k=2)
    assert found["pairs"].keys() == {"documents R@2", "labels R@2"}
    assert found["noise"].keys() == {"documents R@2"}
    # Each label has one of six anchors, whose name has its own word; two drawn at random would find a third.
    assert found["pairs"]["labels R@2"] > 80
    whole = diagnose(model, Yardstick.of(planted_with_graphs))["link_recall"]
    assert whole["pairs"]["documents R@100"] == 100.0, "there are only six anchors"


# ---- what is missed ----


def test_what_is_missed_by_bins_sums_to_the_whole(planted: Dataset, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth = planted.need_test().targets.toarray()
    for name, share in (("a", 0.9), ("b", 0.3)):
        scores = rng.random(truth.shape).astype(np.float32)
        scores[(truth > 0) & (rng.random(truth.shape) < share)] = 2
        # So few labels that the first five hold nearly all: leave the others out.
        scores[scores < 1] = 0
        save_npz(tmp_path / f"{name}.npz", csr_array(scores))
    result = compare(tmp_path / "a.npz", tmp_path / "b.npz", planted, resamples=50)
    for entry in result["missed"].values():
        assert entry["complete"]["difference"] < -20
        assert sum(d["difference"] for d in entry["bins"]) == pytest.approx(entry["complete"]["difference"])
    assert list(result["missed"]) == ["FN@5", "FN@10", "FN@20", "FN@50", "FN@100"]
    shown = render_missed(result).splitlines()
    assert shown[-1].startswith("complete")
    assert f"{result['missed']['FN@5']['complete']['difference']:+.3f}" in shown[-1]


# ---- what the truth lacks ----


@pytest.fixture(scope="module")
def incomplete(planted_with_graphs: Dataset) -> tuple[Dataset, dict[str, Any]]:
    """Of every test document one label is left; its links know the others."""
    test, graph = planted_with_graphs.need_test(), planted_with_graphs.graphs["pairs"]
    edges = csr_array(test.targets @ graph.labels)
    kept = test.targets.toarray()
    kept[np.arange(len(kept)), kept.argmax(axis=1)] = 0
    rest = csr_array(np.where(kept.any(axis=1, keepdims=True), kept, test.targets.toarray()))
    return with_digest(replace(planted_with_graphs, test=replace(test, targets=rest))), {"pairs": edges}


def test_predictions_beyond_the_truth_are_told_from_wrong_ones(
    incomplete: tuple[Dataset, dict[str, Any]], tmp_path: Path
) -> None:
    data, oracles = incomplete
    recipe = make_recipe(
        "dexml", assignments=["encoder.width=32", "train.epochs=8", "train.rate=0.02", "features.pairs=false"]
    )
    model, yardstick = longtail.train(data, tmp_path / "run", recipe, device="cpu"), Yardstick.of(data)
    reach = reachable_labels(data, oracles).toarray() > 0
    shares, pairs = unlisted(model, yardstick, oracles, k=2)
    assert shares["reached, of predictions in the truth"] == 100.0
    assert shares["reached, of predictions not in the truth"] > shares["reached, of labels drawn by frequency"] + 20
    truth = yardstick.truth.toarray()
    assert pairs
    assert all(reach[row, label] and not truth[row, label] for row, label in pairs)


def test_the_command_shows_them_with_what_they_share(
    incomplete: tuple[Dataset, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, oracles = incomplete
    folder, run = tmp_path / "data", tmp_path / "run"
    write(replace(data, graphs={"pairs": data.graphs["pairs"]}), folder, "lf")
    save_npz(folder / "graphs" / "pairs" / "oracle_tst.npz", csr_array(oracles["pairs"]))
    assert main(["train", str(folder), "--recipe", "dexml", "--out", str(run), *SMALL]) == 0
    assert main(["evaluate", str(run), str(folder), "--unlisted", "2", "--json", str(tmp_path / "e.json")]) == 0
    shown = capsys.readouterr().out
    assert "read for this analysis alone" in shown
    assert shown.count("through pairs: ") == 2
    assert json.loads((tmp_path / "e.json").read_text())["unlisted"]["reached, of predictions in the truth"] > 50


def test_data_without_graphs_has_nothing_to_reach(
    tiny_run: Path, planted_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "has no graphs" in fails(capsys, "evaluate", str(tiny_run), str(planted_folder), "--unlisted", "1")[0]
