"""Kill a training at any moment, start it again, and get the same bundle, bit by bit."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Real kills, at moments that nobody chose; what one at any file operation of any recipe leaves is tried in
# `faults/test_every_operation.py`. The one of many slow epochs more often.
KILLS = {"slow": 2, "direct": 1}
SLOW = Path(__file__).with_name("slow_recipe.py")
SMALL = ["encoder.width=16", "train.epochs=12", "train.text_every=3", "train.smoothing=0.3", "ensemble.learners=2"]


def command(recipe: str, data: Path, run: Path) -> list[str]:
    if recipe == "slow":
        return [sys.executable, str(SLOW), str(data), str(run), "0.05"]
    settings = [part for assignment in SMALL for part in ("--set", assignment)]
    words = ["train", str(data), "--recipe", recipe, "--out", str(run), "--device", "cpu"]
    return [sys.executable, "-m", "longtail", *words, *settings]


def content(bundle: Path) -> dict[str, bytes]:
    return {str(path.relative_to(bundle)): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", KILLS)
def test_killed_at_random_moments_and_resumed(
    recipe: str, planted_folder: Path, direct_run: Path, tmp_path: Path
) -> None:
    # `direct_run` has compiled the kernels: the first training here says how long another takes.
    data, started = planted_folder, time.monotonic()
    subprocess.run(command(recipe, data, tmp_path / "whole"), check=True, capture_output=True)
    duration = time.monotonic() - started
    moments, kills = random.Random(recipe), 0
    while kills < KILLS[recipe]:
        process = subprocess.Popen(
            command(recipe, data, tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            process.wait(timeout=duration * moments.uniform(0.2, 0.9))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.stderr is not None
        assert process.returncode == 0, process.stderr.read().decode()
        # It was faster than the first one: begin again with less patience.
        shutil.rmtree(tmp_path / "killed")
        duration *= 0.7
    subprocess.run(command(recipe, data, tmp_path / "killed"), check=True, capture_output=True)
    assert content(tmp_path / "killed" / "bundle") == content(tmp_path / "whole" / "bundle")
    assert not list((tmp_path / "killed").rglob("*.tmp"))
