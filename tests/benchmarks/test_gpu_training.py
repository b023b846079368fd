"""`benchmarks.gpu_training`: the parts that it puts clocks around are there, and nothing that was measured is lost."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

import pytest

from benchmarks import gpu_training


@pytest.mark.parametrize("place", gpu_training.PARTS.values())
def test_what_is_timed_is_there(place: str) -> None:
    module, _, attribute = place.partition(":")
    owner = importlib.import_module(module)
    for name in attribute.split("."):
        owner = getattr(owner, name)
    assert callable(owner)


def test_what_was_measured_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beside a training that was stopped."""
    took = iter([31.5, 30.0, "stopped after 40 seconds"])
    monkeypatch.setattr(gpu_training, "seconds_of_training", lambda *_: next(took))
    out = tmp_path / "result.json"
    for words in (["--runs", "2"], ["--runs", "1", "--set", "train.recorded=off", "--limit", "40", "--add"]):
        monkeypatch.setattr(sys, "argv", ["gpu_training", "some/set", "--out", str(out), *words])
        gpu_training.main()
    found = json.loads(out.read_text("utf-8"))
    assert found["numbers"]["set"]["seconds from files to the bundle"] == [31.5, 30.0]
    without = found["numbers"]["set train.recorded=off"]
    assert without["seconds from files to the bundle"] == ["stopped after 40 seconds"]
    assert without["settings"] == ["train.recorded=off"]
    assert found["command"].count("; ") == 1


def test_a_training_that_takes_too_long_is_stopped() -> None:
    assert gpu_training.seconds_of_training(["--help"], time.monotonic() + 0.01) == "stopped after 0 seconds"
