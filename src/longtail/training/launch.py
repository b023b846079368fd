"""Starts several processes of one command on this machine, and sees to it that all of them end when one does.

They meet through a file (`processes.MEETING`), so that no port is taken. Over several machines: torchrun.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from longtail.errors import RunError
from longtail.training.processes import HINT, MEETING

# Processes that lost another one say so themselves, before they are ended.
SECONDS_TO_END = 30.0


def launch(words: Sequence[str], count: int) -> int:
    """Run ``python -m longtail WORDS`` in `count` processes; the exit code of all: 0, or that of the first to fail.

    One that is killed by a signal is an error that names it.
    """
    threads = str(max(1, (os.cpu_count() or 1) // count))
    with tempfile.TemporaryDirectory(prefix="longtail-") as folder:
        shared = {
            "OMP_NUM_THREADS": threads,
            "NUMBA_NUM_THREADS": threads,
            **os.environ,
            "WORLD_SIZE": str(count),
            MEETING: f"file://{Path(folder) / 'meeting'}",
        }
        command = [sys.executable, "-m", "longtail", *words]
        started = [
            subprocess.Popen(command, env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(count)
        ]
        try:
            failed = _first_to_fail(started)
            if failed is None:
                return 0
            _wait(started, SECONDS_TO_END)
        finally:
            for process in started:
                process.terminate()
            _wait(started, 10)
            for process in started:
                process.kill()
                process.wait()
    code = started[failed].returncode
    if code < 0:
        raise RunError(
            f"process {failed} of {count} was killed by {signal.Signals(-code).name}; the others were ended", HINT
        )
    return code


def _first_to_fail(processes: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """The number of a process that ended with an error, as soon as one does; None when all have done their work.

    Of several that are found at once, one that was killed is the cause, and others its consequence.
    """
    while True:
        codes = [process.poll() for process in processes]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            return min(failed, key=lambda rank: codes[rank] or 0)
        if all(code == 0 for code in codes):
            return None
        time.sleep(0.05)


def _wait(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    until = time.monotonic() + seconds
    while any(process.poll() is None for process in processes) and time.monotonic() < until:
        time.sleep(0.05)
