"""What it costs that a run survives a loss of power and notices altered files: seconds of fsync and of checksums within
trainings on the embedded sample.

    python -m benchmarks.durability --out benchmarks/results/durability.json
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import longtail
from benchmarks.record import typed_command, write_result
from longtail.bundle import contents
from longtail.data.read import sample_folder
from longtail.training import run as runs

# Recipes, and settings that make one short: the shorter a training, the larger the share of what is written.
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny": ("tiny", {}),
    "direct": ("direct", {}),
    "direct, 2 epochs of 64 numbers": ("direct", {"train": {"epochs": 2}, "encoder": {"width": 64}}),
}


class Stopwatch:
    """Seconds and calls of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds, self.calls = function, 0.0, 0

    def __call__(self, *arguments: Any) -> Any:
        began = time.monotonic()
        try:
            return self.function(*arguments)
        finally:
            self.seconds, self.calls = self.seconds + time.monotonic() - began, self.calls + 1


def measured(recipe: str, settings: dict[str, Any]) -> dict[str, float]:
    """One training into a new folder."""
    sync, sums, checks = Stopwatch(os.fsync), Stopwatch(contents), Stopwatch(runs._checksum)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(os, "fsync", sync),
        mock.patch.object(runs, "contents", sums),
        mock.patch.object(runs, "_checksum", checks),
    ):
        began = time.monotonic()
        longtail.train(sample_folder(), Path(folder) / "run", recipe, settings=settings, device="cpu")
        whole = time.monotonic() - began
    hashing = sums.seconds + checks.seconds
    return {
        "seconds": round(whole, 3),
        "fsync_seconds": round(sync.seconds, 4),
        "fsync_calls": sync.calls,
        "checksum_seconds": round(hashing, 4),
        "percent": round(100 * (sync.seconds + hashing) / whole, 3),
    }


def main(words: list[str] | None = None) -> None:
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    measured("tiny", {})  # kernels are compiled
    numbers = {name: measured(recipe, settings) for name, (recipe, settings) in TRAININGS.items()}
    for name, found in numbers.items():
        print(f"{name:<20} {found['seconds']:>8.2f} s, {found['percent']:.2f}% of it for fsync and checksums")
    write_result(options.out, "durability", numbers, typed_command("durability", words))


if __name__ == "__main__":
    main()
