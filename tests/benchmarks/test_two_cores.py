"""`benchmarks.two_cores` on a small planted set: what is recorded."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import two_cores
from longtail import warming


def test_it_trains_on_two_cores_and_records_what_is_needed_to_do_it_again(
    planted_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process; the cores are put back, and kernels are compiled when they are called."""
    before = os.sched_getaffinity(0)
    warmed: list[list[str]] = []
    monkeypatch.setattr(warming, "warm_up", lambda recipes, display: warmed.append(recipes))
    monkeypatch.setattr(two_cores, "alone", lambda asked: two_cores.measured(**asked))
    out = tmp_path / "result.json"
    try:
        settings = ["--set", "encoder.width=8", "--set", "train.epochs=1"]
        two_cores.main(
            [str(planted_folder), "--holdout", "0.2", "--seed", "3", "--profile", *settings, "--out", str(out)]
        )
        assert len(os.sched_getaffinity(0)) <= 2
    finally:
        os.sched_setaffinity(0, before)
    assert warmed == [["direct"]]
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["seed"] == 3
    assert result["command"].startswith("python -m benchmarks.two_cores DATA/")
    (found,) = result["numbers"].values()
    assert found["data_hash"] in result["data_hash"]
    assert found["config"]["encoder"]["width"] == 8
    assert found["measured on"] == "0.2 of the training documents"
    assert set(found["metrics"]) == set(two_cores.SHOWN)
    assert found["seconds"]["processors"] > 0
    assert "held out 0.2" in found["data"]
    own = [each["seconds"] for each in found["most of the time"]]
    assert own == sorted(own, reverse=True)
    assert 0 < sum(own) <= found["seconds"]["from files to the model, wall"] + 0.5


def test_a_process_of_its_own_answers_in_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    class Done:
        stdout = "something a library said\n" + json.dumps({"seconds": 1}) + "\n"

    def run(command: list[str], **options: Any) -> Done:
        seen["command"], seen["env"] = command, options["env"]
        return Done()

    monkeypatch.setattr(subprocess, "run", run)
    assert two_cores.alone({"data": "x"}) == {"seconds": 1}
    assert seen["command"][-2:] == ["--child", json.dumps({"data": "x"})]
    assert seen["env"]["OMP_NUM_THREADS"] == seen["env"]["NUMBA_NUM_THREADS"] == "2"
