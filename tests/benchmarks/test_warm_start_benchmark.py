"""`benchmarks.warm_start` and `benchmarks.differences`: both arms on the same hidden labels, arms that are there are
not trained again, differences add up.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import differences, warm_start
from longtail.data.protocols import warm_start as cut
from longtail.data.read import read, write
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.evaluation import Yardstick

pytestmark = pytest.mark.usefixtures("one_thread")

KNOBS: dict[str, Any] = {
    "documents": 400,
    "test_documents": 150,
    "labels": 60,
    "topics": 6,
    "missing_rate": 0.0,
    "graph_coverage": 0.0,
}
SMALL = ("astec.width=8", "astec.epochs=1", "surrogate.epochs=1", "features.subwords=none", "features.pairs=false")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("real")
    write(synthesise(SyntheticConfig(**KNOBS), 0).dataset, home / "data", "lf")
    return home


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *more: str) -> None:
    settings = [argument for setting in SMALL for argument in ("--set", setting)]
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "warm_start",
            str(folder / "data"),
            "--predictions",
            str(folder / "kept"),
            "--device",
            "cpu",
            *settings,
            *more,
        ],
    )
    warm_start.main()


def test_arms_and_their_differences(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, folder, "--arms", "cold")
    assert sorted(path.name for path in (folder / "kept").iterdir()) == ["cold.json", "cold.npz"]
    run(monkeypatch, folder, "--out", str(folder / "found.json"))
    before = (folder / "kept" / "cold.json").stat().st_mtime_ns
    run(monkeypatch, folder, "--out", str(folder / "found.json"))
    assert (folder / "kept" / "cold.json").stat().st_mtime_ns == before, "what is there is not trained again"
    numbers = json.loads((folder / "found.json").read_text())["numbers"]
    warm, cold = numbers["warm"]["metrics"]["warm"], numbers["cold"]["metrics"]["cold"]
    for metric, found in numbers["differences"]["warm - cold"].items():
        assert found["mean"] == pytest.approx(warm[metric] - cold[metric], abs=2e-3)
        assert found["low"] <= found["mean"] <= found["high"]
    assert numbers["warm"]["n_train"] > numbers["cold"]["n_train"] == 400
    test = cut(read(folder / "data"), 0).cold.need_test()
    answers = np.load(folder / "kept" / "cold.npz")["ids"]
    assert not any(label in answers[row] for row, label in test.known.tolist()), (
        "known labels are no answers of the cold arm either"
    )


def test_models_beside_each_other(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    yardstick = Yardstick.of(read(folder / "data"))
    truth = yardstick.truth
    first = np.array(
        [row[0] if len(row) else -1 for row in np.split(truth.indices, truth.indptr[1:-1])], dtype=np.int32
    )[:, None]
    scores = np.where(first >= 0, 1.0, -np.inf).astype(np.float32)
    for name, ids in (("right", first), ("wrong", np.full_like(first, -1))):
        np.savez(tmp_path / f"{name}.npz", ids=ids, scores=np.where(ids >= 0, scores, -np.inf).astype(np.float32))
    models = [f"{name}={tmp_path / f'{name}.npz'}" for name in ("right", "wrong")]
    differences.main([str(folder / "data"), *models, "--out", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())["numbers"]
    share = 100 * float((first >= 0).mean())
    assert found["models"]["right"]["P@1"] == pytest.approx(share)
    assert found["differences"]["right - wrong"]["P@1"]["mean"] == pytest.approx(share)
    assert "right - wrong" in capsys.readouterr().out
