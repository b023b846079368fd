"""Trainings that are killed, run out of disk or of memory at a file operation, and files that nobody would write.

Each in a process of its own, which is forked often: see `benchmarks.faults`, the long version. Kills here are real and
few; what one at any operation leaves is tried in `test_every_operation`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.faults.__main__ import placeless
from benchmarks.record import ROOT

# kind -> tries. Of trainings: every second is of the smallest recipe, the others of larger ones in turn.
BUDGET = {"kill": 4, "disk": 4, "memory": 3, "files": 1200}


def tried(kind: str, folder: Path, count: int) -> int:
    """How many tries there were; fails with what was found."""
    threads = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    words = [kind, str(folder), "0", str(count), "600"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.faults.worker", *words],
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = (folder / f"{kind}.jsonl").read_text()
    assert found == "", found[:3000]
    return int((folder / f"{kind}.at").read_text().split()[1])


@pytest.mark.parametrize("kind", BUDGET)
def test_nothing_is_lost(kind: str, tmp_path: Path) -> None:
    assert tried(kind, tmp_path, BUDGET[kind]) >= BUDGET[kind]


def test_a_full_disk_at_every_operation(tmp_path: Path) -> None:
    assert tried("full", tmp_path, 1) > 40


def test_records_of_failures_name_no_place_of_the_machine(tmp_path: Path) -> None:
    said = f'File "{ROOT}/src/longtail/bundle.py", line 1: {tmp_path}/kill/broken: no space'
    assert placeless(said, tmp_path) == 'File "src/longtail/bundle.py", line 1: kill/broken: no space'
