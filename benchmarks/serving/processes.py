"""Our server as a process, as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Running:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log_file = process, log
        self.port = int(self._event("serving")["url"].rstrip("/").rpartition(":")[2])

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.log_file.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == name]

    def _event(self, name: str, seconds: float = 300) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if found := self.events(name):
                return found[0]
            time.sleep(0.1)
        raise SystemExit(f"the server did not start:\n{self.log_file.read_text()[-2000:]}")

    def workers(self) -> list[int]:
        ended = {line["pid"] for line in self.events("worker ended")}
        return [line["pid"] for line in self.events("worker ready") if line["pid"] not in ended]

    def memory_mb(self) -> float:
        """Of all workers, what is theirs alone: the model's files are shared with whoever else reads them."""
        return sum(private_mb(pid) for pid in self.workers())


def private_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def processor_seconds(pid: int) -> float:
    """Of one process until now, in programs and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(*words: str, quiet: bool = True) -> Iterator[Running]:
    """``longtail serve WORDS`` at a free port; no line for each request."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "longtail", "serve", "--port", "0", *words, *(["--quiet"] if quiet else [])]
        with log.open("wb") as stderr:
            process = subprocess.Popen(command, stderr=stderr)
        try:
            yield Running(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
