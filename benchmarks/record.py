"""The record of one measurement: what was run, on which code, data and machine, and the numbers it gave."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from longtail.persistence import write_json

ROOT = Path(__file__).resolve().parents[1]


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
