"""A real Ray cluster on this machine: batch prediction with a worker that dies, and a training of two workers.

One test does both, so that one cluster is started, however tests are shared out. Skipped where ray is not installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import longtail
from longtail.cli import main
from longtail.cli.training import _without
from longtail.data.dataset import Dataset
from longtail.predictor import Predictor

pytest.importorskip("pyarrow")

DOCUMENTS = 500


@pytest.fixture(scope="module")
def run(planted: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster") / "run"
    longtail.train(planted, folder, "tiny")
    return folder


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files, one of them with a document without text."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = tmp_path_factory.mktemp("documents")
    animals = ["an owl", "a cat", None, "a dog"]
    for part in range(3):
        numbers = range(part, DOCUMENTS, 3)
        table = pa.table({"key": [f"d{n}" for n in numbers], "title": [animals[n % 4] for n in numbers]})
        parquet.write_table(table, folder / f"{part}.parquet")
    return folder


def answers(folder: Path) -> dict[str, tuple[list[str], list[float]]]:
    from pyarrow import parquet

    rows = [row for file in folder.glob("*.parquet") for row in parquet.read_table(file).to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows) == DOCUMENTS, "each once"
    return {row["id"]: (row["labels"], row["scores"]) for row in rows}


def dies_once(bundle: str, **more: Any) -> type:
    """A worker that ends its process at its first batch, the first time."""
    from longtail.cluster.ray_data import PredictBatches

    class DiesOnce(PredictBatches):
        def __call__(self, table: Any) -> Any:
            mark = Path(bundle).parent / "died"
            if not mark.exists():
                mark.touch()
                os._exit(1)
            return super().__call__(table)

    return DiesOnce


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else other tests leave its workers hardly any time
    # Few workers: each is a process that imports everything anew.
    ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_a_cluster_predicts_and_trains(
    cluster: Any,
    run: Path,
    documents: Path,
    planted_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    two_workers_train_one_model(planted_folder, tmp_path / "trained", capsys)
    (tmp_path / "answered").mkdir()
    every_document_is_answered_once(run, documents, tmp_path / "answered", monkeypatch, capsys)


def every_document_is_answered_once(
    run: Path, documents: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a worker dies; and the answers are those of one process."""
    from longtail.cluster import ray_data

    monkeypatch.setattr(ray_data, "PredictBatches", dies_once(str(run)))
    monkeypatch.setattr(ray_data, "BATCH", 64)
    command = ["predict", str(run), "--cluster", "auto", "--input", str(documents), "--text", "title"]
    assert main([*command, "--id", "key", "-k", "2", "--output", str(folder / "answers")]) == 0
    assert f"wrote {DOCUMENTS} answers" in capsys.readouterr().out
    assert (run.parent / "died").exists()
    found = answers(folder / "answers")
    model = Predictor.open(run)
    for number, text in enumerate(["an owl", "a cat", "", "a dog"]):
        (wanted,) = model.predict([text], k=2)
        assert found[f"d{number}"][0] == [one.label for one in wanted]
        assert found[f"d{number}"][1] == pytest.approx([one.score for one in wanted])
    assert [path.name for path in folder.iterdir()] == ["answers"]
    assert main([*command, "--id", "key", "--output", str(folder / "answers")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*command, "--output", str(folder / "more")]) == 2
    assert "no column 'id' among key, title" in capsys.readouterr().err
    # Ids that are not different cannot tell answers apart. No worker is needed for that.
    monkeypatch.setattr(ray_data, "predict", lambda dataset, *_, **__: dataset.rename_columns({"title": "id"}))
    assert main([*command, "--id", "title", "--output", str(folder / "more")]) == 2
    assert f"{DOCUMENTS} documents, {DOCUMENTS} answers, 4 different ids" in capsys.readouterr().err
    assert not (folder / "more").exists()


def two_workers_train_one_model(planted_folder: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", str(planted_folder), "--device", "cpu", "--set", "encoder.width=16", "--set", "train.epochs=1"]
    assert main([*command, "--cluster", "auto", "--devices", "2", "--out", str(run)]) == 0
    assert "bundle:" in capsys.readouterr().out
    assert '"sent"' in (run / "metrics.jsonl").read_text(), "two processes have trained it"
    (found,) = Predictor.open(run).predict(["a small cat"], k=1)
    assert found


def test_what_a_cluster_cannot_do_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = ["--input", "x", "--output", "y"]
    ignored = (["--shard", "1/2"], ["--precision", "0.9"], ["--known-field", "labels"], ["--long"], ["--format", "csv"])
    for more in (["a text"], ["--input", "x"], *([*whole, *one] for one in ignored)):
        assert main(["predict", str(run), "--cluster", "auto", *more]) == 2
        assert "--cluster takes --input FILE and --output FOLDER" in capsys.readouterr().err
    assert main(["train", "data", "--out", "run", "--recipe", "galaxc", "--devices", "2", "--cluster", "auto"]) == 2
    assert "'galaxc' trains in one process" in capsys.readouterr().err


def test_a_worker_is_not_told_of_the_cluster() -> None:
    words = ["train", "data", "--cluster", "auto", "--out", "run"]
    assert _without(words, "--cluster") == ["train", "data", "--out", "run"]
    assert _without(["train", "--cluster=auto", "data"], "--cluster") == ["train", "data"]


def test_without_ray_it_says_what_to_install(
    run: Path, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    command = ["predict", str(run), "--cluster", "local", "--input", str(documents), "--output", str(tmp_path / "out")]
    assert main(command) == 2
    assert "pip install 'longtail[cluster]'" in capsys.readouterr().err
