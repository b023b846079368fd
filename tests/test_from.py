"""Going on from a trained model: `train --from`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.test_cli import fails

import longtail
from longtail import Predictor, calibrating, labels
from longtail.cli import main
from longtail.data.dataset import Dataset
from longtail.data.from_texts import with_digest
from longtail.errors import ConfigError, DataError
from longtail.features.sparse import SparseText
from longtail.persistence import load_part
from longtail.recipes.direct.continuing import rate_share
from longtail.training.parent import ParentModel

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ["red fox", "grey wolf", "brown bear", "white owl", "black cat", "green frog"]
SETTINGS = {"encoder": {"width": 32}, "train": {"epochs": 30}}
WORDS = ["the", "a", "runs", "sleeps", "eats", "hides", "at", "night", "in", "woods", "near", "water"]


def documents(names: list[str], ids: list[str], count: int, seed: int) -> tuple[list[str], list[list[str]]]:
    rng = np.random.default_rng(seed)
    texts = [f"{names[n % len(names)]} {' '.join(rng.choice(WORDS, 4))} {n}" for n in range(count)]
    return texts, [[ids[n % len(ids)]] for n in range(count)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("from") / "old"
    ids = [f"id-{n}" for n in range(6)]
    data = Dataset.from_texts(*documents(NAMES, ids, 180, 0), dict(zip(ids, NAMES, strict=True)))
    longtail.train(data, out, settings=SETTINGS, device="cpu")
    return out


def more() -> Dataset:
    """A label of before, and a new one with a word that was never seen."""
    return Dataset.from_texts(
        *documents(["red fox", "striped badger"], ["id-0", "new"], 20, 1), {"id-0": "red fox", "new": "striped badger"}
    )


def test_old_labels_stay_and_new_ones_are_found(run: Path, tmp_path: Path) -> None:
    before = Predictor.open(run)
    after = longtail.train(more(), tmp_path / "new", settings={"encoder": {"width": 32}}, device="cpu", start=run)
    assert list(after.labels) == [*before.labels, "new"]
    assert after.bundle.manifest["from"] == before.bundle.digest
    reads, theirs = after.bundle.featurizer, before.bundle.featurizer
    assert isinstance(reads, SparseText)
    assert isinstance(theirs, SparseText)
    assert set(theirs.tokens) < set(reads.tokens)
    assert "badger" in set(reads.tokens)
    old = dict(zip(theirs.tokens, theirs.idf.tolist(), strict=True))
    new = dict(zip(reads.tokens, reads.idf.tolist(), strict=True))
    assert all(new[token] == weight for token, weight in old.items())
    for n, name in enumerate(NAMES):
        assert after.predict([name], k=1)[0][0].label == f"id-{n}"
    assert "new" in [one.label for one in after.predict(["striped badger"], k=2)[0]]
    # Documents of before were rehearsed, and are counted.
    assert after.bundle.labels.counts.tolist() == [40, 30, 30, 30, 30, 30, 10]


def test_the_same_command_opens_what_is_finished_and_another_parent_is_refused(run: Path, tmp_path: Path) -> None:
    settings = {"encoder": {"width": 32}, "train": {"epochs": 2}}
    first = longtail.train(more(), tmp_path / "new", settings=settings, device="cpu", start=run)
    again = longtail.train(more(), tmp_path / "new", settings=settings, device="cpu", start=run)
    assert again.bundle.digest == first.bundle.digest
    shutil.copytree(run / "bundle", tmp_path / "alone")
    labels.retire(tmp_path / "alone", ["id-5"])
    with pytest.raises(longtail.LongtailError, match="other settings"):
        longtail.train(more(), tmp_path / "new", settings=settings, device="cpu", start=tmp_path / "alone")


def test_from_a_bundle_alone_labels_that_are_not_seen_again_keep_their_rows(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "bundle", tmp_path / "alone")
    labels.retire(tmp_path / "alone", ["id-5"])
    after = longtail.train(
        more(), tmp_path / "new", settings={"encoder": {"width": 32}}, device="cpu", start=tmp_path / "alone"
    )
    assert list(after.labels) == [*(f"id-{n}" for n in range(5)), "new"]
    assert after.predict(["grey wolf"], k=1)[0][0].label == "id-1"


def test_a_document_that_comes_again_counts_once(run: Path, tmp_path: Path) -> None:
    texts, _ = documents(NAMES, ["id-0"], 6, 0)
    data = Dataset.from_texts(texts, [["id-3"]] * 6)
    settings = {"encoder": {"width": 32}, "train": {"epochs": 1}}
    longtail.train(data, tmp_path / "new", settings=settings, device="cpu", start=run)
    kept = load_part(tmp_path / "new" / "stages" / "0_prepare")
    assert kept.n_documents == 180
    assert kept.targets[:6].indices.tolist() == [3] * 6


def test_what_cannot_go_on_says_so(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'tiny' cannot go on"):
        longtail.train(more(), tmp_path / "x", "tiny", start=run)
    tiny = tmp_path / "tiny"
    longtail.train(more(), tiny, "tiny")
    with pytest.raises(ConfigError, match="a model of the recipe 'tiny'"):
        longtail.train(more(), tmp_path / "x", start=tiny)
    longtail.pack(run, tmp_path / "packed")
    with pytest.raises(ConfigError, match="packed"):
        longtail.train(
            more(), tmp_path / "x", settings={"encoder": {"width": 32}}, device="cpu", start=tmp_path / "packed"
        )


def test_corrections_are_learnt_by_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {"uid": "c-1", "title": "purple heron near water", "labels": ["heron"], "not_labels": ["id-0"], "model": "m"},
        {"uid": "c-2", "title": "a purple heron eats", "labels": ["heron", "id-3"], "not_labels": [], "model": "m"},
    ]
    file = tmp_path / "corrections.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "new"
    options = ["--from", str(run), "--out", str(out), "--device", "cpu", "--set", "encoder.width=32"]
    assert main(["train", str(file), *options]) == 0
    assert "not_labels" in capsys.readouterr().err
    opened = Predictor.open(out)
    assert opened.labels[-1] == "heron"
    fails(capsys, "train", str(file), "--from", str(tmp_path / "nothing"), "--out", str(tmp_path / "y"))


def test_documents_that_the_first_model_knows_judge_no_other(run: Path, tmp_path: Path) -> None:
    ids = [f"id-{n}" for n in range(6)]
    old, new = documents(NAMES, ids, 180, 0), documents(NAMES, ids, 60, 9)
    names = dict(zip(ids, NAMES, strict=True))
    settings = {"encoder": {"width": 32}, "train": {"epochs": 1}}
    both = Dataset.from_texts([*old[0], *new[0]], [*old[1], *new[1]], names)
    after = longtail.train(both, tmp_path / "new", settings=settings, device="cpu", start=run, holdout=0.5)
    held = {int(uid.removeprefix("train-")) for uid in after.bundle.held_out() or ()}
    assert 0 < len(held) < 60
    assert min(held) >= 180
    assert load_part(tmp_path / "new" / "stages" / "0_prepare").n_documents == 240 - len(held)
    again = Dataset.from_texts(*old, names)
    with pytest.raises(ConfigError, match="trained on all documents"):
        longtail.train(again, tmp_path / "x", settings=settings, device="cpu", start=run, holdout=0.1)
    with pytest.raises(ConfigError, match="not known without its run"):
        longtail.train(both, tmp_path / "y", settings=settings, device="cpu", start=copied(run, tmp_path), holdout=0.1)

    # What it is calibrated on is new to both.
    once = Dataset.from_texts(*new, names)
    longtail.train(once, tmp_path / "more", settings=settings, device="cpu", start=run)
    asked = with_digest(replace(once, test=again.train))
    with pytest.raises(DataError, match=r"was trained on 1\d\d of these 180"):
        calibrating.calibrate(tmp_path / "more", asked, on_test=True)
    lonely = copied(tmp_path / "more", tmp_path / "lonely")
    with pytest.raises(DataError, match="without the run"):
        calibrating.calibrate(lonely, asked, on_test=True)


def copied(run: Path, folder: Path) -> Path:
    """The bundle of a run alone."""
    folder.mkdir(exist_ok=True)
    return Path(shutil.copytree(run / "bundle", folder / "alone"))


def test_models_that_were_made_one_go_on_side_by_side(tmp_path: Path) -> None:
    ids = [f"id-{n}" for n in range(6)]
    names = dict(zip(ids, NAMES, strict=True))
    settings = {
        "encoder": {"width": 16, "signed": "on"},
        "train": {"epochs": 6, "together": 2},
        "memory": {"weight": 0},
    }
    data = Dataset.from_texts(*documents(NAMES, ids, 180, 0), names)
    longtail.train(data, tmp_path / "old", settings=settings, device="cpu")
    before = load_part(tmp_path / "old" / "stages" / "4_members")
    assert before.rows.shape == (2, 6, 16)
    assert before.words.dtype == np.float16

    # Nothing is learnt at a rate of nearly nothing, so the members must come back, each as itself.
    still = {**settings, "train": {"epochs": 1, "rate": 1e-12}}
    after = longtail.train(more(), tmp_path / "new", settings=still, device="cpu", start=tmp_path / "old")
    now = load_part(tmp_path / "new" / "stages" / "4_members")
    assert np.allclose(now.rows[:, :6].astype(np.float32), before.rows.astype(np.float32), atol=2e-2)
    assert np.allclose(now.residuals, before.residuals, atol=1e-3)
    assert not np.allclose(now.words[0], now.words[1], atol=1e-2)
    assert after.predict(["white owl"], k=1)[0][0].label == "id-3"

    # One model that was projected, and goes on alone, takes shorter steps.
    alone = copied(tmp_path / "old", tmp_path / "elsewhere")
    for model, share in ((tmp_path / "old", 0.5), (alone, 0.1)):
        assert rate_share(ParentModel.of(Predictor.open(model).bundle)) == share

    # Labels that changed since, and a bundle without its run, have the one model.
    labels.retire(tmp_path / "old", ["id-5"])
    longtail.train(more(), tmp_path / "x", settings=still, device="cpu", start=tmp_path / "old")
    assert not (tmp_path / "x" / "stages" / "4_members").exists()
