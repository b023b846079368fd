"""The record of one measurement: what was run, on which code, data and machine, and the numbers it gave.

Committed records are in benchmarks/results. `command` is what was typed then; where the same measurement has another
command today, `command_now` stands beside it.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

from longtail.persistence import write_json

ROOT = Path(__file__).resolve().parents[1]
GPU_COMMAND = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "500"]


def write_result(
    path: Path,
    name: str,
    numbers: Mapping[str, Any],
    command: str,
    data_hash: str | None = None,
    seed: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Write `numbers` (any JSON) with all that is needed to get them again. Replaces the file in one step.

    command: as typed, relative to the repository root. data_hash: the data set's digest where one was read.
    """
    result = {
        "name": name,
        "command": command,
        **code(),
        "machine": machine(),
        "data_hash": data_hash,
        "seed": seed,
        "config": None if config is None else dict(config),
        "numbers": dict(numbers),
    }
    write_json(path, result)


def typed_command(module: str, words: Sequence[str]) -> str:
    """``python -m benchmarks.MODULE WORDS``, without --out and without the places of this machine: a data set is
    DATA/its name, a run or bundle RUN/its name, another file its name.
    """
    kept: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if before != "--out" and not word.startswith("--out"):
            kept.append(_placeless(word, is_option=before.startswith("--")))
    return f"python -m benchmarks.{module} {shlex.join(kept)}".rstrip()


def _placeless(word: str, *, is_option: bool) -> str:
    name, equals, value = word.partition("=")
    if equals and Path(value).exists():  # NAME=FILE
        return f"{name}={Path(value).name}"
    path = Path(word)
    if word.startswith("--") or not path.exists():
        return word
    if (path / "bundle").exists() or (path / "manifest.json").exists():
        return f"RUN/{path.name}"
    return path.name if is_option or path.is_file() else f"DATA/{path.name}"


def code() -> dict[str, Any]:
    """Which source gave the numbers. A copy on a borrowed machine, whose git history is another one, says it in
    LONGTAIL_COMMIT.
    """
    if "LONGTAIL_COMMIT" in os.environ:
        return {"commit": os.environ["LONGTAIL_COMMIT"], "uncommitted_changes": None}
    return {
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", "src", "benchmarks")),
    }


def machine() -> dict[str, Any]:
    """What the numbers depend on besides the code. No host name: it says nothing and does not belong in a file."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "gpu": _gpu(),
        **{package: _version(package) for package in ("numpy", "scipy", "numba", "torch")},
    }


class GpuWatch:
    """How busy the GPU is while something runs, as `nvidia-smi` says twice a second.

    ``with GpuWatch() as watch: ...``, then `watch.report()`; empty where there is no GPU.
    """

    def __init__(self) -> None:
        self.samples: list[tuple[int, int]] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> GpuWatch:
        if shutil.which(GPU_COMMAND[0]):
            self._process = subprocess.Popen(GPU_COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self.samples = parsed_samples(self._process.communicate()[0])

    def report(self) -> dict[str, float]:
        """Per cent of the time that some kernel ran: over all, and from the first to the last sample with any; peak
        memory in MB.
        """
        busy = [use for use, _ in self.samples]
        if not any(busy):
            return {}
        first = next(i for i, use in enumerate(busy) if use > 0)
        last = max(i for i, use in enumerate(busy) if use > 0)
        working = busy[first : last + 1]
        return {
            "utilisation": round(sum(busy) / len(busy), 1),
            "utilisation_while_working": round(sum(working) / len(working), 1),
            "peak_memory_mb": max(memory for _, memory in self.samples),
        }


def parsed_samples(text: str) -> list[tuple[int, int]]:
    """(utilisation, memory) per line; a line that was cut off is left out."""
    fields = [line.split(",") for line in text.splitlines()]
    return [
        (int(a), int(b))
        for a, b in (pair for pair in fields if len(pair) == 2)
        if a.strip().isdigit() and b.strip().isdigit()
    ]


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _gpu() -> str | None:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
