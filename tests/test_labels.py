"""Labels that come and go: patches beside a bundle, what they do to its answers, and what is refused."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.test_cli import fails

import longtail
from longtail import Predictor, labels
from longtail.bundle import digest_of, entry_of, open_bundle
from longtail.cli import main
from longtail.compare import compare
from longtail.data.dataset import Dataset
from longtail.data.label_tables import read_new_labels
from longtail.data.table_files import open_table
from longtail.errors import BundleError, ConfigError, DataError, RunError, RunTaken
from longtail.label_changes import CHANGE, changes_folder, changing
from longtail.models.new_labels import LabelSpace, Modesty, Nearest, Regression, modest, taught
from longtail.persistence import map_arrays, write_arrays
from longtail.training.progress import SilentDisplay

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ["red fox", "grey wolf", "brown bear", "white owl", "black cat", "green frog"]
SETTINGS = {"encoder": {"width": 32}, "train": {"epochs": 30}}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of six animals."""
    rng = np.random.default_rng(0)
    words = ["the", "a", "runs", "sleeps", "eats", "hides", "at", "night", "in", "woods", "near", "water"]
    texts, carried = [], []
    for number in range(180):
        name = NAMES[number % 6]
        texts.append(f"{name} {' '.join(rng.choice(words, 4))}")
        carried.append([f"id-{number % 6}"])
    data = Dataset.from_texts(texts, carried, {f"id-{n}": name for n, name in enumerate(NAMES)})
    out = tmp_path_factory.mktemp("labels") / "run"
    longtail.train(data, out, settings=SETTINGS, device="cpu")
    return out / "bundle"


@pytest.fixture
def model(bundle: Path, tmp_path: Path) -> Path:
    shutil.copytree(bundle, tmp_path / "model")
    return tmp_path / "model"


class Heard(SilentDisplay):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def best(model: Path, text: str) -> str:
    return Predictor.open(model).predict([text], k=1)[0][0].label


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_label_is_found_by_its_examples_and_taken_back_without_a_trace(model: Path) -> None:
    before, asked = files_of(model), ["black frog in the woods", "grey owl near water"]
    answers = Predictor.open(model).predict(asked, k=6)
    labels.add(model, {"x": "night owl"}, examples={"x": ["grey owl near water", "grey owl at night"]})
    opened = Predictor.open(model)
    assert opened.labels[-1] == "x"
    assert opened.label_names[-1] == "night owl"
    assert opened.bundle.labels.counts[-1] == 2
    assert "x" in [one.label for one in opened.predict([asked[1]], k=3)[0]]
    assert files_of(model) == before, "the bundle itself never changes"
    assert opened.bundle.digest != open_bundle(model).digest
    labels.undo(model)
    assert Predictor.open(model).predict(asked, k=6) == answers
    assert Predictor.open(model).bundle.digest == open_bundle(model).digest


def test_a_copied_bundle_opens_without_its_changes_and_a_saved_one_has_them_inside(model: Path, tmp_path: Path) -> None:
    labels.retire(model, ["id-0"])
    labels.rename(model, "id-1", "wolves")
    shutil.copytree(model, tmp_path / "copy")
    assert "id-0" in Predictor.open(tmp_path / "copy").labels
    Predictor.open(model).save(tmp_path / "saved")
    saved = Predictor.open(tmp_path / "saved")
    assert list(saved.labels) == [f"id-{n}" for n in range(1, 6)]
    assert saved.label_names[0] == "wolves"
    assert saved.settled() is saved
    assert Predictor.open(model).settled().predict(["red fox"], k=3) == Predictor.open(model).predict(["red fox"], k=3)
    longtail.pack(model, tmp_path / "packed")
    assert "id-0" not in Predictor.open(tmp_path / "packed").labels


def test_company_explanations_and_vectors_follow(model: Path) -> None:
    labels.add(model, {"x": "red panda"})
    labels.retire(model, ["id-0"])
    opened = Predictor.open(model)
    company = opened.bundle.company()
    plain = open_bundle(model).company()
    assert company.examples_of(0) == plain.examples_of(1)
    assert company.examples_of(5) == []
    why = opened.explain(["red panda"], labels=["x"])[0][0]
    assert why.label == "x"
    rows = opened.bundle.ranker.label_vectors()
    assert rows is not None
    assert rows.shape[0] == len(opened.labels) == 6


def test_a_retired_id_can_come_again(model: Path) -> None:
    labels.retire(model, ["id-0"])
    assert best(model, "red fox") != "id-0"
    labels.add(model, {"id-0": "red fox"}, examples={"id-0": ["red fox runs", "red fox sleeps"]})
    assert "id-0" in [one.label for one in Predictor.open(model).predict(["red fox runs"], k=2)[0]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: labels.add(m, {"id-0": "again"}), "already"),
        (lambda m: labels.add(m, {}), "no labels"),
        (lambda m: labels.add(m, {"x": ""}), "has no text"),
        (lambda m: labels.add(m, {"x": "qqqq zzzz"}), "knows no word"),
        (lambda m: labels.add(m, {" x": "red"}), "the id"),
        (lambda m: labels.add(m, {"x": "red"}, near={"x": ["nobody"]}), "not a label"),
        (lambda m: labels.add(m, {"x": "red"}, near={"y": ["id-0"]}), "none of the new"),
        (lambda m: labels.add(m, {"x": "red"}, examples={"x": "a text"}), "expected a list"),
        (lambda m: labels.rename(m, "id-9", "name"), "not a label"),
        (lambda m: labels.rename(m, "id-1", " "), "empty text"),
        (lambda m: labels.merge(m, ["id-0"], into="id-0"), "itself"),
        (lambda m: labels.merge(m, [], into="id-0"), "expected a list"),
        (lambda m: labels.retire(m, "id-0"), "expected a list"),
        (lambda m: labels.retire(m, [f"id-{n}" for n in range(6)]), "no label would be left"),
        (labels.undo, "no change"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(model: Path, change: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        change(model)
    assert labels.log(model) == []


def test_a_change_of_another_model_is_refused(model: Path, bundle: Path, tmp_path: Path) -> None:
    labels.retire(model, ["id-0"])
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    manifest = json.loads((other / "manifest.json").read_text())
    labels.rename(other, "id-0", "another")
    shutil.rmtree(changes_folder(other))
    shutil.copytree(changes_folder(model), changes_folder(other))
    assert "id-0" not in Predictor.open(other).labels  # the same model
    assert manifest["n_labels"] == 6
    head = json.loads((changes_folder(other) / "0001-retire" / CHANGE).read_text())
    head["of"] = "0" * 64
    (changes_folder(other) / "0001-retire" / CHANGE).write_text(json.dumps(head))
    with pytest.raises(BundleError, match="checksum"):
        Predictor.open(other)


@pytest.mark.parametrize("spoil", ["row", "name", "gap", "foreign", "json"])
def test_an_altered_change_is_refused(model: Path, spoil: str) -> None:
    labels.add(model, {"x": "red panda"})
    labels.retire(model, ["id-0"])
    folder = changes_folder(model)
    if spoil == "row":
        file = folder / "0001-add" / "added" / "arrays.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    elif spoil == "name":
        (folder / "0002-retire").rename(folder / "0002-enlarge")
    elif spoil == "gap":
        shutil.rmtree(folder / "0001-add")
    elif spoil == "foreign":
        (folder / "0001-add" / "more.txt").write_text("more")
    else:
        (folder / "0002-retire" / CHANGE).write_text("{")
    with pytest.raises(BundleError):
        Predictor.open(model)


def forged(change: Path, **said: Any) -> None:
    """What a change says, altered by somebody who can write checksums; None: left out."""
    head = json.loads((change / CHANGE).read_text()) | said
    head = {name: value for name, value in head.items() if value is not None and name != "sha256"}
    (change / CHANGE).write_text(json.dumps({**head, "sha256": digest_of(head)}))


@pytest.mark.parametrize(
    "said",
    [
        *({name: None} for name in ("of", "after", "number", "kind", "said", "time")),
        {"time": 5},
        {"said": []},
        {"said": {"labels": 5}},
        *({"said": {"labels": [{"id": "x", "text": text}]}} for text in (5, ["x"], None)),
        {"said": {"labels": [{"id": 5, "text": "x"}]}},
        {"said": {"labels": {}}},
    ],
    ids=str,
)
def test_a_forged_change_is_refused(model: Path, said: dict[str, Any]) -> None:
    labels.add(model, {"x": "red panda"})
    forged(changes_folder(model) / "0001-add", **said)
    for ask in (Predictor.open, labels.log):
        with pytest.raises(BundleError, match=r"0001-add"):
            ask(model)


@pytest.mark.parametrize("count", [-1, 2**63 - 1])
def test_forged_numbers_of_documents_are_refused(model: Path, count: int) -> None:
    change = labels.add(model, {"x": "red panda"}).folder
    arrays = {name: np.array(array) for name, array in map_arrays(change / "added" / "arrays.safetensors").items()}
    arrays["counts"][0] = count
    write_arrays(change / "added" / "arrays.safetensors", arrays)
    files = {path.relative_to(change).as_posix(): path for path in change.rglob("*") if path.name != CHANGE}
    forged(change, files={name: entry_of(path) for name, path in files.items() if path.is_file()})
    with pytest.raises(BundleError, match="labels of"):
        Predictor.open(model)


@pytest.mark.parametrize("ids", [None, "id-0", [5], 5, {}], ids=str)
def test_forged_ids_are_refused(model: Path, ids: Any) -> None:
    labels.retire(model, ["id-0"])
    forged(changes_folder(model) / "0001-retire", said={"ids": ids})
    with pytest.raises(BundleError, match="does not say what was changed"):
        Predictor.open(model)


def test_changes_are_neither_links_nor_pipes(model: Path, tmp_path: Path) -> None:
    labels.retire(model, ["id-0"])
    change, elsewhere = changes_folder(model) / "0001-retire", tmp_path / "elsewhere"
    change.rename(elsewhere)
    change.symlink_to(elsewhere)
    with pytest.raises(BundleError, match="not a change of labels"):
        Predictor.open(model)
    change.unlink()
    change.mkdir()
    os.mkfifo(change / CHANGE)
    with pytest.raises(BundleError, match="not a plain file"):
        Predictor.open(model)
    changes_folder(model).rename(elsewhere.with_name("all"))
    changes_folder(model).symlink_to(elsewhere.with_name("all"))
    with pytest.raises(BundleError, match="a link beside a bundle"):
        Predictor.open(model)


def test_a_folder_of_changes_is_on_the_disk_and_its_lock_is_no_link(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    with monkeypatch.context() as watched:
        watched.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
        labels.rename(model, "id-0", "fox")
    assert synced[0] == str(model.parent)
    (changes_folder(model) / ".lock").unlink()
    (changes_folder(model) / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="cannot be written"):
        labels.rename(model, "id-1", "wolf")
    assert not (tmp_path / "elsewhere").exists()


def test_two_at_once_are_told_apart(model: Path) -> None:
    with changing(open_bundle(model)), pytest.raises(RunTaken, match="another process"):
        labels.retire(model, ["id-0"])
    labels.retire(model, ["id-0"])


def _change_again_and_again(model: Path) -> None:
    while True:
        labels.add(model, {"x": "red panda"}, examples={"x": ["red panda eats"]})
        labels.undo(model)


def test_a_kill_leaves_the_old_labels_or_the_new_ones(model: Path) -> None:
    plain, context = list(Predictor.open(model).labels), multiprocessing.get_context("fork")
    rng = np.random.default_rng(3)
    for _ in range(4):
        process = context.Process(target=_change_again_and_again, args=(model,))
        process.start()
        time.sleep(0.05 + 0.15 * rng.random())
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert list(Predictor.open(model).labels) in (plain, [*plain, "x"])
        if labels.log(model):
            labels.undo(model)
    # What a killed process left half-written is gone with the next change.
    labels.rename(model, "id-0", "fox")
    assert sorted(path.name for path in changes_folder(model).iterdir()) == [".lock", "0001-rename"]


def test_folders_of_others_beside_changes_stay(model: Path) -> None:
    theirs = changes_folder(model) / ".mine.tmp"
    theirs.mkdir(parents=True)
    (theirs / "precious").touch()
    labels.rename(model, "id-0", "fox")
    labels.undo(model)
    assert (theirs / "precious").exists()
    assert sorted(path.name for path in changes_folder(model).iterdir()) == [".lock", ".mine.tmp"]


def test_a_folder_of_that_name_without_a_change_is_of_somebody_else(model: Path) -> None:
    changes_folder(model).mkdir()
    (changes_folder(model) / "train.csv").touch()
    assert labels.log(model) == []
    assert best(model, "red fox") == "id-0"
    with pytest.raises(ConfigError, match=r"train\.csv: not a change of labels"):
        labels.rename(model, "id-0", "fox")
    assert [path.name for path in changes_folder(model).iterdir()] == ["train.csv"]


def test_a_label_that_is_gone_is_said_to_be_where_it_went(model: Path) -> None:
    labels.merge(model, ["id-0"], into="id-1")
    labels.retire(model, ["id-2"])
    for uid, where in (("id-0", r"merged into 'id-1' \(change 1\)"), ("id-2", r"retired \(change 2\)")):
        with pytest.raises(ConfigError, match=f"not a label of this model any more: it was {where}"):
            labels.merge(model, [uid], into="id-1")


def test_a_measurement_says_which_labels_of_the_truth_are_gone(model: Path, heard: Heard) -> None:
    carried = [[f"id-{n % 6}"] for n in range(12)]
    data = Dataset.from_texts(NAMES * 2, carried, test_texts=NAMES * 2, test_labels=carried)
    longtail.evaluate(model, data, heard)
    assert not [line for line in heard.said if "not in the model" in line]
    labels.merge(model, ["id-0"], into="id-1")
    labels.retire(model, ["id-2"])
    longtail.evaluate(model, data, heard)
    (said,) = [line for line in heard.said if "not in the model" in line]
    assert said.startswith("warning: 2 labels of the test documents (33.3% of the pairs) are not in the model")
    assert "such as 'id-0', 'id-2'; 2 of them were retired or merged" in said
    compare(model, model, data, resamples=1, display=heard)
    assert len([line for line in heard.said if "not in the model" in line]) == 3, "of both models"


# ---- the command line ----


def test_the_commands(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "new.csv"
    table.write_text("id,text,near,examples\nx,red panda,id-0,red panda eats|a red panda\ny,snow owl,,\n")
    assert main(["labels", "add", str(model), "--file", str(table)]) == 0
    assert "2 labels added (change 1)" in capsys.readouterr().out
    documents = tmp_path / "docs.csv"
    documents.write_text("text,labels\ngrey seal in water,z\nthe seal eats,z\n")
    lines = tmp_path / "new.jsonl"
    lines.write_text('{"id": "z", "text": "grey seal", "near": ["y"]}\n')
    assert main(["labels", "add", str(model), "--file", str(lines), "--examples", str(documents)]) == 0
    assert "2 examples" in capsys.readouterr().out
    plain = tmp_path / "plain.txt"
    plain.write_text("a brown toad\ntoad near water\n")
    assert main(["labels", "add", str(model), "--id", "t", "--text", "toad", "--examples", str(plain)]) == 0
    assert main(["labels", "rename", str(model), "--id", "t", "--text", "brown toad"]) == 0
    assert main(["labels", "merge", str(model), "id-0", "--into", "x"]) == 0
    assert main(["labels", "retire", str(model), "id-5"]) == 0
    capsys.readouterr()
    assert main(["labels", "log", str(model), "--format", "jsonl"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["kind"] for one in said] == ["add", "add", "add", "rename", "merge", "retire"]
    assert main(["labels", "undo", str(model)]) == 0
    assert "retire" in capsys.readouterr().out
    shown = Predictor.open(model).predict(["brown toad near water"], k=8)[0]
    assert {"t", "id-5"} <= {one.label for one in shown}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("text\nred\n", "none is 'id'"),
        ("id,text\n,red\n", "line 2: column 'id' is empty"),
        ("id,text\n", "no label"),
        ("id,text\nx,red\nx,blue\n", "line 3: column 'id' repeats the id 'x': it stands at 2 already"),
        ("id,text\nx,red,panda\n", "line 2: 3 columns"),
        ("id,text,text\nx,red,panda\n", "twice"),
        ('id,text\nx,"red panda\ny,blue\n', "line 2: not valid CSV"),
        ("id,text\nx,red\0\n", "NUL"),
        ("id,text\nx,\udce9\n", "line 2: byte 0xe9"),
    ],
)
def test_files_of_labels_that_say_nothing_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    file = tmp_path / "new.csv"
    file.write_text(content, errors="surrogateescape")
    assert said in fails(capsys, "labels", "add", str(model), "--file", str(file))[0]
    assert "give either" in fails(capsys, "labels", "add", str(model))[0]
    assert "no such file" in fails(capsys, "labels", "add", str(model), "--file", str(tmp_path / "none.csv"))[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'ID;Text;near\n x ;"red\npanda\u2028";id-0|id-5\n'),
        ("a.csv", 'id\ttext\tnear\nx\t"red\npanda\u2028"\tid-0|id-5\n'),
        ("A.JSONL", '{"id": "x", "text": "red\\npanda\u2028", "near": ["id-0", "id-5"]}\n'),
        ("a.ndjson", '{"id": "x", "text": "red\\npanda\u2028", "near": "id-0|id-5", "examples": null}\n'),
    ],
)
def test_files_of_labels_are_tables_like_any_other(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    found = read_new_labels(open_table(tmp_path / name))
    assert found.texts == {"x": "red\npanda\u2028"}
    assert found.near == {"x": ["id-0", "id-5"]}
    assert found.examples == {"x": []}


@pytest.mark.parametrize("cell", ['"\\ud800"', "[" * 100_000 + "]" * 100_000, "1" * 5000, "[[]]"])
def test_json_lines_of_labels_that_no_text_can_be_made_of(tmp_path: Path, cell: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"id": "x", "text": {cell}}}\n')
    with pytest.raises(DataError, match="line 1"):
        read_new_labels(open_table(tmp_path / "a.jsonl"))


# ---- formulas ----


def test_the_regression_finds_what_rows_have_in_common_with_texts() -> None:
    rng = np.random.default_rng(1)
    texts, weights = rng.standard_normal((400, 6)).astype(np.float32), rng.standard_normal((6, 4))
    counts = rng.integers(0, 9, 400)
    rows = texts @ weights + np.log1p(counts)[:, None] * 0.5 - 2
    read = Regression.of(rows, counts, texts)
    np.testing.assert_allclose(read.rows(texts, counts), rows, atol=0.4)


def test_neighbours_count_only_where_they_help() -> None:
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(20), 5)
    texts = rng.standard_normal((20, 8))[groups] + 0.05 * rng.standard_normal((100, 8))
    unit = (texts / np.linalg.norm(texts, axis=1, keepdims=True)).astype(np.float32)
    shared = rng.standard_normal((20, 3))[groups]
    assert Nearest(unit, shared).trust() > 0.4
    assert Nearest(unit, rng.standard_normal((100, 3))).trust() < 0.2
    _, first = Nearest(unit, shared).mixed(unit[:5] * 1.0)
    assert set(first.tolist()) <= set(range(5))


def test_examples_move_a_row_towards_them_and_not_the_usual_document() -> None:
    from scipy.sparse import csr_array

    rng = np.random.default_rng(3)
    usual = np.append(rng.standard_normal(5), 1.0)
    own = np.c_[rng.standard_normal((3, 5)) + 2, np.ones(3)]
    row = np.append(np.zeros(5), -8.0)[None]
    moved = taught(row, own, csr_array(np.ones((3, 1), np.float32)), usual)
    assert (own @ moved[0] > own @ row[0] + 1).all()
    np.testing.assert_allclose(usual @ moved[0], usual @ row[0], atol=1e-9)


def test_modest_rows_are_among_the_best_as_often_as_they_should() -> None:
    rng = np.random.default_rng(4)
    documents, rows = np.c_[rng.standard_normal((800, 6)), np.ones(800)], rng.standard_normal((500, 7))
    asked: Any = None
    space = LabelSpace(asked, asked, asked, Modesty(0.5, 0.1, together=100))
    made = modest(rows[:200] + 5, np.zeros(200, np.int64), space, documents, rows)
    bars = np.sort(documents @ rows.T, axis=1)[:, -10]
    assert 0.05 < float(np.mean(documents @ made.T >= bars[:, None])) < 0.2
    same = modest(rows[:5], np.ones(5, np.int64), space, documents, rows)
    np.testing.assert_array_equal(same, rows[:5])
    # Many labels share what all of them together may take: 200 of them 8 places of a document, a 25th each.
    crowded = replace(space, untaught=Modesty(0.5, 0.1, together=8))
    made = modest(rows[:200] + 5, np.zeros(200, np.int64), crowded, documents, rows)
    assert 0.02 < float(np.mean(documents @ made.T >= bars[:, None])) < 0.08
