"""GalaXC: what attention costs in training, a cold prediction beside Astec's, and the memory of a large batch.

    python -m benchmarks.speed galaxc [DATA] [--part ratios|memory|all] [--width 512] [--epochs 3] --out FILE.json

DATA: a data set, else a planted world. Trainings have few epochs: their ratio does not depend on the number. Ratios
are of one thread; GalaXC and Astec take turns in prediction. Memory, asked for alone, is that of all threads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.common import Measured, TaskWatch, alone, beside, data_argument, device_argument, resident, train
from longtail.data.dataset import Dataset, Items
from longtail.data.read import read
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.predictor import Predictor

LARGE = 100_000


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser, "a data set (default: a planted world)", optional=True)
    parser.add_argument("--part", default="all", choices=["ratios", "memory", "all"])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    device_argument(parser)


def measure(options: argparse.Namespace) -> Measured:
    source = None if options.data is None else str(options.data)
    numbers = alone(
        parts,
        source,
        options.part,
        options.width,
        options.epochs,
        options.device,
        threads=None if options.part == "memory" else 1,
    )
    return Measured(numbers, data_hash=numbers.pop("digest"))


def parts(source: str | None, part: str, width: int, epochs: int, device: str) -> dict[str, Any]:
    data = planted() if source is None else read(source)
    found: dict[str, Any] = {"digest": data.digest}
    if part in ("ratios", "all"):
        found |= ratios(data, width, epochs, device)
    if part in ("memory", "all"):
        found |= largest(data, width, epochs, device)
    return found


def planted() -> Dataset:
    return synthesise(
        SyntheticConfig(documents=12_000, test_documents=3_000, labels=7_500, topics=100, graph_coverage=0.0), 0
    ).dataset


def settings(width: int, epochs: int) -> list[str]:
    """As many epochs of each stage as the defaults have, in proportion: the share of Astec's stage I in the whole
    stays what it is.
    """
    return [f"astec.width={width}", f"astec.epochs={2 * epochs}", f"surrogate.epochs={epochs}"]


def ratios(data: Dataset, width: int, epochs: int, device: str) -> dict[str, Any]:
    """Attention / none in training, and GalaXC / Astec in prediction."""
    short = settings(width, epochs)
    clock = time.process_time if device == "cpu" else time.perf_counter
    of_astec = [f"surrogate.width={width}", f"surrogate.epochs={epochs}", f"classify.epochs={epochs}"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        train(synthesise("tiny", 0).dataset, home / "warm-up", "galaxc", [*short, "astec.width=64"], device)
        watches = {kind: TaskWatch(clock) for kind in ("none", "label")}
        models = {
            kind: train(data, home / kind, "galaxc", [*short, f"surrogate.attention={kind}"], device, watch)
            for kind, watch in watches.items()
        }
        astec = train(data, home / "astec", "astec", of_astec, device)
        compared = {"galaxc": models["label"], "astec": astec}
        prediction = beside(compared, data.need_test().documents)
    graph = {kind: watch.seconds["graph"] for kind, watch in watches.items()}
    whole = {kind: round(watch.seconds["surrogate"] + graph[kind], 2) for kind, watch in watches.items()}
    return {
        "training: attention / none": round(whole["label"] / whole["none"], 3),
        "training over the graph alone: attention / none": round(graph["label"] / graph["none"], 3),
        "processor seconds of training" if device == "cpu" else "seconds of training": whole,
        "cold prediction": prediction,
    }


def largest(data: Dataset, width: int, epochs: int, device: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        model = train(data, Path(folder) / "run", "galaxc", settings(width, epochs), device)
        return {f"memory of {LARGE:,} predictions (MB)": round(memory(model, data.need_test().documents) / 2**20)}


def memory(model: Predictor, documents: Items) -> int:
    """Bytes that the process holds more, at most, while a large batch is ranked, beyond its answers and the mapped
    model.
    """
    rows = np.resize(np.arange(len(documents)), LARGE)
    many, peak = documents.rows(rows), 0
    model.rank(documents.rows(np.arange(min(64, len(documents)))), 100)
    before = resident()

    def look(_: int) -> None:
        nonlocal peak
        peak = max(peak, resident())

    model.rank(many, 100, on_block=look)
    return max(peak - before, 0)
