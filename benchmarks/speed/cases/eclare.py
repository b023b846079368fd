"""Prediction by ECLARE beside Astec with a shortlist of the same size, from raw text, on one thread.

    python -m benchmarks.speed eclare [--labels 6000] [--width 512] --out FILE.json

A planted world of titles. Trainings have one epoch a stage: time does not depend on how good the rows are. Both models
take turns, a document after a document or a batch after a batch, so that a busy machine slows both. ECLARE should
take at most 1.5 times as long.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.speed.common import Measured, alone, beside, train
from longtail.data.dataset import Dataset
from longtail.data.synthetic import SyntheticConfig, synthesise

ONE_EPOCH = ("surrogate.epochs=1", "classify.epochs=1")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", type=int, default=6_000)
    parser.add_argument("--width", type=int, default=512)


def measure(options: argparse.Namespace) -> Measured:
    numbers = alone(on_one_thread, options.labels, options.width, threads=1)
    return Measured(numbers, data_hash=numbers.pop("digest"))


def on_one_thread(labels: int, width: int) -> dict[str, Any]:
    data = planted(labels)
    return {"digest": data.digest, **measured(data, width)}


def planted(labels: int) -> Dataset:
    return synthesise(
        SyntheticConfig(
            documents=4 * labels, test_documents=labels, labels=labels, topics=labels // 50, graph_coverage=0.0
        ),
        0,
    ).dataset


def measured(data: Dataset, width: int) -> dict[str, Any]:
    """Trains both, and compares."""
    common = [f"surrogate.width={width}", *ONE_EPOCH]
    with tempfile.TemporaryDirectory() as folder:
        eclare = train(data, Path(folder) / "eclare", "eclare", [*common, "shortlist.epochs=1"])
        ranker: Any = eclare.bundle.ranker
        size = int(ranker.shortlist_size)
        same_size = [f"shortlist.size={size}", f"classify.count={size}", "reranker.enabled=false"]
        astec = train(data, Path(folder) / "astec", "astec", [*common, *same_size])
        models = {"eclare": eclare, "astec": astec}
        return {
            "labels": len(data.labels),
            "shortlist": size,
            **beside(models, data.need_test().documents),
        }
