"""What label text costs in a training of `direct`: steps with it, without the matrix that turns it, and without it,
in turns.

``python -m benchmarks.label_text_cost DATA [--device auto] [--rounds 3] [--set a.b=c] [--out FILE]``
DATA: a data set, or ``shape-131k`` (see `benchmarks.sets`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.record import write_result
from benchmarks.sets import SETTINGS_131K, SHAPE_131K
from longtail import api
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.data.synthetic import synthesise
from longtail.training.progress import SilentDisplay, Task

VARIANTS = {
    "label text, turned by a matrix": ("labels.map=on",),
    "label text": ("labels.map=off",),
    "free vectors alone": ("labels.text=false",),
}
PLAIN = "free vectors alone"


class Stopwatch(SilentDisplay):
    """Takes the time of the steps; what is around them (features, writing) is not asked for."""

    def __init__(self) -> None:
        self.milliseconds_per_step = 0.0

    @contextlib.contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        started = time.monotonic()
        with super().task(title, total) as task:
            yield task
        self.milliseconds_per_step = 1000 * (time.monotonic() - started) / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    shape = options.data == "shape-131k"
    data = synthesise(SHAPE_131K, 0).dataset if shape else read(Path(options.data), test=False)
    common = [*(SETTINGS_131K["direct"] if shape else []), "train.epochs=1", *options.set]
    found: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(options.rounds):
        for name, settings in VARIANTS.items():
            found[name].append(step_time(data, [*common, *settings], options.device))
            print(f"{name:<32} {found[name][-1]:.2f} ms a step", flush=True)
    numbers = summary(found)
    print(json.dumps(numbers, indent=1))
    if options.out:
        write_result(
            options.out,
            "label_text_cost",
            {"data": data.name, **numbers},
            "python -m benchmarks.label_text_cost " + " ".join(sys.argv[1:]),
            data.digest,
        )


def step_time(data: Dataset, settings: list[str], device: str) -> float:
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        api.train(
            data, Path(folder) / "run", api.make_recipe("direct", assignments=settings), device=device, display=watch
        )
    return watch.milliseconds_per_step


def summary(found: dict[str, list[float]]) -> dict[str, Any]:
    """Ratios of the same round, so that a machine that is busy now and then does not decide."""
    ratios = {
        name: statistics.median(a / b for a, b in zip(times, found[PLAIN], strict=True))
        for name, times in found.items()
        if name != PLAIN
    }
    return {
        "milliseconds per step, fastest round": {name: round(min(times), 2) for name, times in found.items()},
        "times the step of free vectors alone, median round": {name: round(ratio, 2) for name, ratio in ratios.items()},
    }


if __name__ == "__main__":
    main()
