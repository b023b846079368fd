"""How long ECLARE takes to predict for a document, beside Astec with a shortlist of the same size (issue: at most 1.5
times as long).

``python -m benchmarks.eclare_speed [--labels 6000] [--width 512] [--out FILE]``

A planted world of titles. Trainings have one epoch a stage: time does not depend on how good the rows are. From raw
text to labels, on one thread. Both models take turns, a document after a document or a batch after a batch, so that a
busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.galaxc_speed import ONE_THREAD, train
from benchmarks.record import write_result
from longtail.data.dataset import Dataset, Items
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.predictor import Predictor

K = 5
TURNS = {1: 300, 256: 15}  # how often each model is asked, by documents at once
ONE_EPOCH = ("surrogate.epochs=1", "classify.epochs=1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=6_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        sys.exit(
            subprocess.run(
                [sys.executable, "-m", "benchmarks.eclare_speed", *sys.argv[1:]], env={**os.environ, **ONE_THREAD}
            ).returncode
        )
    data = planted(options.labels)
    numbers = measured(data, options.width)
    print(json.dumps(numbers, indent=1))
    if options.out:
        command = f"python -m benchmarks.eclare_speed --labels {options.labels} --width {options.width}"
        write_result(options.out, "eclare_speed", numbers, command, data_hash=data.digest, seed=0)


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
        eclare = train(data, Path(folder) / "eclare", "eclare", [*common, "shortlist.epochs=1"], "cpu")
        ranker: Any = eclare.bundle.ranker
        size = int(ranker.shortlist_size)
        astec = train(
            data, Path(folder) / "astec", "astec", [*common, f"shortlist.size={size}", f"classify.count={size}"], "cpu"
        )
        return {
            "labels": len(data.labels),
            "shortlist": size,
            **compared({"eclare": eclare, "astec": astec}, data.need_test().documents),
        }


def compared(models: Mapping[str, Predictor], documents: Items) -> dict[str, Any]:
    """Median milliseconds per document and their ratio, for single documents and for batches."""
    found: dict[str, Any] = {}
    for at_once, turns in TURNS.items():
        times = in_turns(models, documents, at_once, turns)
        medians = {name: statistics.median(each) for name, each in times.items()}
        found[f"{at_once} at once"] = {
            "eclare / astec": round(medians["eclare"] / medians["astec"], 3),
            "milliseconds per document": {name: round(1000 * median, 4) for name, median in medians.items()},
            "quartiles": {
                name: [round(1000 * q, 4) for q in np.quantile(each, [0.25, 0.75]).tolist()]
                for name, each in times.items()
            },
        }
    return found


def in_turns(models: Mapping[str, Predictor], documents: Items, at_once: int, turns: int) -> dict[str, list[float]]:
    """Seconds per document of every turn; each model is asked about the same documents, after one turn that does not
    count.
    """
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(turns + 1):
        chosen = documents.rows((turn * at_once + np.arange(at_once)) % len(documents))
        for name, model in models.items():
            started = time.perf_counter()
            model.rank(chosen, K)
            if turn:
                times[name].append((time.perf_counter() - started) / at_once)
    return times


if __name__ == "__main__":
    main()
