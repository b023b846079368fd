"""What label text costs in a training step of `direct`: with it, without the matrix that turns it, and without it.

    python -m benchmarks.speed label-text DATA [--device auto] [--rounds 3] [--set a.b=c] --out FILE.json

DATA: a data set, or ``shape-131k`` (see `benchmarks.sets`). The three take turns; ratios are of the same round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.sets import SETTINGS_131K, SHAPE_131K
from benchmarks.speed.common import Measured, TaskWatch, device_argument, set_argument, train
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.data.synthetic import synthesise

VARIANTS = {
    "label text, turned by a matrix": ("labels.map=on",),
    "label text": ("labels.map=off",),
    "free vectors alone": ("labels.text=false",),
}
PLAIN = "free vectors alone"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="a data set, or shape-131k")
    device_argument(parser, "auto")
    parser.add_argument("--rounds", type=int, default=3)
    set_argument(parser)


def measure(options: argparse.Namespace) -> Measured:
    shape = options.data == "shape-131k"
    data = synthesise(SHAPE_131K, 0).dataset if shape else read(Path(options.data), test=False)
    common = [*(SETTINGS_131K["direct"] if shape else []), "train.epochs=1", *options.set]
    found: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(options.rounds):
        for name, settings in VARIANTS.items():
            found[name].append(step_time(data, [*common, *settings], options.device))
            print(f"{name:<32} {found[name][-1]:.2f} ms a step", flush=True)
    return Measured({"data": data.name, **summary(found)}, data.digest, seed=None)


def step_time(data: Dataset, settings: list[str], device: str) -> float:
    """Milliseconds per step; what is around the steps (features, writing) is not counted."""
    watch = TaskWatch()
    with tempfile.TemporaryDirectory() as folder:
        train(data, Path(folder) / "run", "direct", settings, device, watch)
    ((title, seconds),) = watch.seconds.items()
    return 1000 * seconds / watch.steps[title]


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
