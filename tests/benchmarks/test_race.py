"""The race on planted data with a peer that predicts the most frequent labels."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.race import measuring
from benchmarks.race.__main__ import main
from benchmarks.race.contestants import Course, write_inputs
from benchmarks.race.peer_systems import SYSTEMS, Opened, SparseKnn
from benchmarks.race.table import SHOWN
from benchmarks.race.training_record import diary_record, trained_in_words, training_record, write_record
from scipy.sparse import csr_matrix

import longtail
from longtail.data.dataset import Dataset
from longtail.errors import RunError
from longtail.evaluation import Yardstick, baselines

PEER = "tests.benchmarks.fake_peer:Popular"
SMALL = ["--set", "encoder.width=16", "--set", "train.epochs=4", "--singles", "3", "--batches", "1"]


@pytest.fixture(scope="module")
def result(planted_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The finished race and its arguments."""
    folder = tmp_path_factory.mktemp("race")
    arguments = [str(planted_folder), "--recipes", "direct", "--peers", f"{PEER},missing.module:Peer", *SMALL]
    arguments += ["--work", str(folder / "work"), "--out", str(folder / "race.json")]
    assert main(arguments) == 0
    return folder, arguments


def contestants(folder: Path) -> Any:
    return json.loads((folder / "race.json").read_text())["numbers"]["contestants"]


def test_everybody_is_measured_in_every_way(result: tuple[Path, list[str]]) -> None:
    found = contestants(result[0])
    assert found.keys() == {"direct", "direct, int8", PEER}
    for one in found.values():
        assert {"training_seconds", "training_peak_mb", "bytes"} <= one.keys()
        assert one["trained_here"]
        for threads in {1, len(os.sched_getaffinity(0))}:
            speed = one[f"threads_{threads}"]
            assert 0 < speed["single_p50_ms"] <= speed["single_p99_ms"]
            assert min(speed["batch_ms"], speed["peak_mb"], speed["open_seconds"], speed["first_answer_seconds"]) > 0
    assert found["direct, int8"]["bytes"] < found["direct"]["bytes"]


def test_accuracy_is_that_of_the_yardstick(result: tuple[Path, list[str]], planted: Dataset) -> None:
    folder, found = result[0], contestants(result[0])
    yardstick = Yardstick.of(planted)
    popular = yardstick.score(baselines(planted, yardstick)["most frequent labels"])
    (run,) = (path for path in (folder / "work" / planted.name).glob("direct-????????") if path.is_dir())
    ours = longtail.evaluate(run, planted)
    for metric in SHOWN:
        assert found[PEER]["metrics"][metric]["mean"] == pytest.approx(popular[metric])
        assert found["direct"]["metrics"][metric]["mean"] == pytest.approx(ours[metric])
        assert found[PEER]["minus direct"][metric]["mean"] == pytest.approx(popular[metric] - ours[metric])


def test_the_table_and_the_command_name_no_folder_of_this_machine(
    result: tuple[Path, list[str]], planted_folder: Path
) -> None:
    folder, _ = result
    table, command = (folder / "race.md").read_text(), json.loads((folder / "race.json").read_text())["command"]
    assert f"| {PEER} |" in table
    assert "P@1" in table
    assert "PEER_VENV/bin/python" in command
    assert str(folder) not in table


def test_what_is_finished_is_not_trained_again(
    result: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, arguments = result
    models = {
        path: path.stat().st_mtime_ns
        for path in (folder / "work").rglob("*")
        if path.is_file() and path.suffix not in (".log", ".jsonl")
    }
    assert main([*arguments[: arguments.index("--out")], "--out", str(folder / "again.json")]) == 0
    assert "missing.module:Peer: skipped, not installed" in capsys.readouterr().err
    now = {path: path.stat().st_mtime_ns for path in models}
    assert {path.name for path in models if now[path] != models[path]} <= {".lock", "config.toml"}
    before, after = (
        json.loads((folder / name).read_text())["numbers"]["contestants"] for name in ("race.json", "again.json")
    )
    assert all(before[name]["training_seconds"] == after[name]["training_seconds"] for name in before)


def test_a_trained_model_takes_part_with_the_time_of_its_own_diary(
    planted_folder: Path, tiny_run: Path, tmp_path: Path
) -> None:
    options = [
        "--recipes",
        "",
        "--models",
        f"neighbours={tiny_run}",
        "--packed",
        "none",
        "--peers",
        "",
        "--singles",
        "2",
        "--batches",
        "1",
    ]
    assert (
        main([str(planted_folder), *options, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "race.json")])
        == 0
    )
    (one,) = contestants(tmp_path).values()
    events = [json.loads(line) for line in (tiny_run / "metrics.jsonl").read_text().splitlines()]
    assert one["training_seconds"] == pytest.approx(sum(e["seconds"] for e in events if e["event"] == "stage"))


def test_a_peer_that_fails_is_an_error_with_its_last_words(
    planted_folder: Path, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--recipes",
        "",
        "--models",
        f"neighbours={tiny_run}",
        "--packed",
        "none",
        "--peers",
        "tests.benchmarks.fake_peer:Broken",
    ]
    assert (
        main([str(planted_folder), *options, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "race.json")])
        == 2
    )
    assert "this peer always fails" in capsys.readouterr().err
    assert not (tmp_path / "race.json").exists()
    assert not list((tmp_path / "work").glob("*/tests.benchmarks.fake_peer-Broken-????????/done.json"))


def test_other_fields_than_the_model_reads_are_refused(
    planted_folder: Path, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--recipes", "", "--models", f"neighbours={tiny_run}", "--peers", "", "--work", str(tmp_path)]
    assert main([str(planted_folder), *options, "--fields", "body"]) == 2
    assert "no field 'body'" in capsys.readouterr().err


def test_peers_see_no_masked_pair_and_no_document_without_labels(planted: Dataset, tmp_path: Path) -> None:
    from dataclasses import replace

    first = planted.train.targets.indices[: planted.train.targets.indptr[1]]
    masked = np.array([[0, label] for label in first], dtype=np.int64)
    course = Course.of(replace(planted, train=replace(planted.train, masked=masked)), "", ("title",), tmp_path, 1)
    write_inputs(course, tmp_path / "inputs")
    texts = json.loads((tmp_path / "inputs" / "train.json").read_text())
    assert texts == list(planted.train.documents.fields["title"])[1:]
    with np.load(tmp_path / "inputs" / "targets.npz") as kept:
        assert len(kept["indptr"]) == len(texts) + 1
        assert len(kept["indices"]) == planted.train.targets.nnz - len(first)


def test_sparse_neighbours_are_those_of_a_plain_product(tmp_path: Path) -> None:
    """The one peer that needs nothing but scikit-learn."""
    texts = ["red fox", "red dog", "blue whale", "blue fox"]
    targets = csr_matrix(np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1]], dtype=np.float32))
    peer = SparseKnn()
    peer.train(texts, targets, tmp_path, 1)
    peer.open(tmp_path, 1)
    rows = peer._vectorizer.transform(texts)
    expected = (peer._vectorizer.transform(["red fox"]) @ rows.T @ targets).toarray()[0]
    ids, scores = Opened(peer, ["a", "b", "c"]).rank(["red fox", "unknown"], 3)
    np.testing.assert_allclose(scores[0], np.sort(expected)[::-1], rtol=1e-5)
    assert ids[0].tolist() == np.argsort(-expected).tolist()
    assert ids[1].tolist() == [-1, -1, -1]
    assert Opened(peer, ["a", "b", "c"]).predict(["red fox"], 1)[0][0][0] == "a"


def test_every_peer_says_what_it_needs() -> None:
    assert all(made().NEEDS for made in SYSTEMS.values())


def test_a_model_from_elsewhere_comes_with_its_record(
    planted_folder: Path, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_run / "bundle", tmp_path / "model" / "bundle")
    monkeypatch.setenv("LONGTAIL_COMMIT", "0123456789abcdef")
    write_record(tiny_run, tmp_path / "model")
    options = [
        "--recipes",
        "",
        "--model",
        f"far={tmp_path / 'model'}",
        "--packed",
        "none",
        "--peers",
        "",
        "--singles",
        "2",
        "--batches",
        "1",
    ]
    assert (
        main([str(planted_folder), *options, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "race.json")])
        == 0
    )
    (one,) = contestants(tmp_path).values()
    assert one["trained_here"] is False
    assert one["training_seconds"] == diary_record(tiny_run)["training_seconds"]
    assert one["trained_on"]["commit"] == "0123456789abcdef"
    table = (tmp_path / "race.md").read_text()
    assert "far: trained on" in table
    assert "commit 0123456789ab; its training was not measured here" in table


def test_a_bundle_alone_says_nothing_of_its_training(tiny_run: Path) -> None:
    assert training_record(tiny_run / "bundle") == {}
    assert "not written down" in trained_in_words({})


def test_a_record_needs_a_run(tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no metrics\.jsonl"):
        write_record(tiny_run / "bundle", tmp_path)


@pytest.mark.parametrize("given", ["direct", "=runs/x", "direct="])
def test_a_model_needs_a_name_and_a_place(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--model", given])
    assert "expected NAME=RUN_OR_BUNDLE" in capsys.readouterr().err


def test_models_are_opened_when_all_processes_have_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who is opened first must not pay for others that still load Python."""
    asked: list[tuple[str, str]] = []

    class Watched:
        def __init__(self, name: str, command: list[str], threads: int, log: Path) -> None:
            self.name = name

        def ask(self, **request: Any) -> dict[str, Any]:
            asked.append((self.name, request["do"]))
            return {
                "seconds": 0.1,
                "ms": [1.0] * len(request["texts"]) if request["do"] == "singles" else 1.0,
                "peak_mb": 1.0,
            }

        def __enter__(self) -> Watched:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(measuring, "Child", Watched)
    runners: Any = [SimpleNamespace(name=name, command=lambda threads: []) for name in ("ours", "theirs")]
    course: Any = SimpleNamespace(texts=["a", "b"], log=lambda name: tmp_path / name)
    found = measuring.on_threads(runners, course, measuring.Plan(singles=2, batches=1), 1)
    first_open = next(place for place, (_, do) in enumerate(asked) if do == "open")
    assert {name for name, _ in asked[:first_open]} == {"ours", "theirs"}
    assert found["theirs"]["open_seconds"] == 0.1
