"""What GalaXC costs, as ratios: attention in training, and a cold prediction beside Astec's. And the memory of a
large batch.

``python -m benchmarks.galaxc_speed [--part ratios|memory|all] [--data DIR] [--width 512] [--epochs 3] [--out FILE]``

Data: a folder that `longtail train` reads, else a planted world. Trainings have few epochs: their ratio does not
depend on the number. Ratios are of one thread; predictions are timed as the median of some runs after one to warm up.
Memory, asked for alone, is that of all threads.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_result
from benchmarks.stage_growth import resident
from longtail import api
from longtail.data.dataset import Dataset, Items
from longtail.data.read import read
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.predictor import Predictor
from longtail.training.progress import SilentDisplay, Task

REPEATS = 7
# Libraries read these when they are imported, so the measuring is done by a process that was started with them.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
LARGE = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="all", choices=["ratios", "memory", "all"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.part != "memory" and any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        sys.exit(
            subprocess.run(
                [sys.executable, "-m", "benchmarks.galaxc_speed", *sys.argv[1:]], env={**os.environ, **ONE_THREAD}
            ).returncode
        )
    data = planted() if options.data is None else read(options.data)
    parts = {"ratios": ratios, "memory": largest}
    numbers = {
        name: value
        for part, work in parts.items()
        if options.part in (part, "all")
        for name, value in work(data, options).items()
    }
    print(json.dumps(numbers, indent=1))
    if options.out:
        command = "python -m benchmarks.galaxc_speed " + " ".join(sys.argv[1:])
        write_result(options.out, "galaxc_speed", numbers, command, data_hash=data.digest, seed=0)


def planted() -> Dataset:
    return synthesise(
        SyntheticConfig(documents=12_000, test_documents=3_000, labels=7_500, topics=100, graph_coverage=0.0), 0
    ).dataset


def settings(options: argparse.Namespace) -> list[str]:
    """As many epochs of each stage as the defaults have, in proportion: the share of Astec's stage I in the whole
    stays what it is.
    """
    return [f"astec.width={options.width}", f"astec.epochs={2 * options.epochs}", f"surrogate.epochs={options.epochs}"]


def ratios(data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """Attention / none in training, and GalaXC / Astec in prediction."""
    short, device, epochs = settings(options), options.device, options.epochs
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        train(synthesise("tiny", 0).dataset, home / "warm-up", "galaxc", [*short, "astec.width=64"], device)
        watches = {
            kind: Watch(time.process_time if device == "cpu" else time.perf_counter) for kind in ("none", "label")
        }
        models = {
            kind: train(data, home / kind, "galaxc", [*short, f"surrogate.attention={kind}"], device, watch)
            for kind, watch in watches.items()
        }
        astec = train(
            data,
            home / "astec",
            "astec",
            [f"surrogate.width={options.width}", f"surrogate.epochs={epochs}", f"classify.epochs={epochs}"],
            device,
        )
        whole = {kind: round(watch.seconds["surrogate"] + watch.seconds["graph"], 2) for kind, watch in watches.items()}
        documents = data.need_test().documents
        times = {
            size: {
                name: per_document(model, documents, size)
                for name, model in (("galaxc", models["label"]), ("astec", astec))
            }
            for size in (1, 256)
        }
    return {
        "training: attention / none": round(whole["label"] / whole["none"], 3),
        "training over the graph alone: attention / none": round(
            watches["label"].seconds["graph"] / watches["none"].seconds["graph"], 3
        ),
        "processor seconds of training" if device == "cpu" else "seconds of training": whole,
        **{
            f"cold prediction, batch {size}: galaxc / astec": round(row["galaxc"] / row["astec"], 2)
            for size, row in times.items()
        },
        "milliseconds per document": {
            f"batch {size}": {name: round(1000 * each, 3) for name, each in row.items()} for size, row in times.items()
        },
    }


def largest(data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        model = train(data, Path(folder) / "run", "galaxc", settings(options), options.device)
        return {f"memory of {LARGE:,} predictions (MB)": round(memory(model, data.need_test().documents) / 2**20)}


class Watch(SilentDisplay):
    """Time of every task of a training: that of the processor, or where a GPU works that of the clock."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self.seconds: dict[str, float] = {}
        self.clock = clock

    @contextlib.contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        started = self.clock()
        with super().task(title, total) as task:
            yield task
        self.seconds[title] = self.clock() - started


def train(
    data: Dataset, out: Path, recipe: str, settings: list[str], device: str, watch: Watch | None = None
) -> Predictor:
    return api.train(data, out, api.make_recipe(recipe, assignments=settings), device=device, display=watch)


def per_document(model: Predictor, documents: Items, size: int) -> float:
    """Median seconds per document, in batches of `size`."""
    chosen = documents.rows(np.arange(min(size, len(documents))))
    model.rank(chosen, 5)
    taken = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        model.rank(chosen, 5)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) / len(chosen)


def memory(model: Predictor, documents: Items) -> int:
    """Bytes that the process holds more, at most, while a large batch is ranked, beyond its answers and the mapped
    model.
    """
    rows = np.resize(np.arange(len(documents)), LARGE)
    many, peak = documents.rows(rows), 0
    model.rank(documents.rows(np.arange(64)), 100)
    before = resident()

    def look(_: int) -> None:
        nonlocal peak
        peak = max(peak, resident())

    model.rank(many, 100, on_block=look)
    return max(peak - before, 0)


if __name__ == "__main__":
    main()
