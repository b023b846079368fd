"""How the stages of Astec grow with the number of labels while that of documents stays: time per epoch, and memory.

    python -m benchmarks.speed stage-growth [--documents 64000] [--labels 2000 8000 32000 64000] --out FILE.json

Each size trains in a process of its own on planted data. Stage IV looks at a fixed number of labels per document, so
its time per epoch should hardly grow; stage I scores all clusters. Memory is what the process holds more while stage
IV trains than before the recipe began, beside what has to be there: E, W and the two moments of W.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import longtail
from benchmarks.claims.verdict import slope
from benchmarks.speed.common import Measured, TaskWatch, alone, resident
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.recipes import make_recipe

EPOCHS = {"surrogate": 2, "classify": 4}
WIDTH, TOPICS = 128, 200


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=64_000)
    parser.add_argument("--labels", type=int, nargs="+", default=[2_000, 8_000, 32_000, 64_000])


def measure(options: argparse.Namespace) -> Measured:
    sizes = {n: alone(measured, options.documents, n) for n in options.labels}
    numbers: dict[str, Any] = {f"{n} labels": row for n, row in sizes.items()}
    for stage in EPOCHS:
        x = np.log(np.array(options.labels, dtype=np.float64))
        fitted = slope(x, np.log([row[f"{stage} seconds per epoch"] for row in sizes.values()]))
        numbers[f"exponent of {stage}"] = {"value": fitted.value, "low": fitted.low, "high": fitted.high}
    return Measured(numbers)


def measured(documents: int, labels: int) -> dict[str, Any]:
    warm = synthesise(SyntheticConfig.preset("tiny"), 0).dataset
    data = synthesise(
        SyntheticConfig(
            documents=documents, labels=labels, topics=TOPICS, graph_coverage=0.0, share_documents_are_labels=0.0
        ),
        0,
    ).dataset
    # The re-ranker comes after both, and is not measured.
    settings = [*(f"{stage}.epochs={epochs}" for stage, epochs in EPOCHS.items()), "reranker.enabled=false"]
    recipe = make_recipe(
        "astec", assignments=[*settings, f"surrogate.width={WIDTH}", "features.subwords=none", "features.pairs=false"]
    )
    with tempfile.TemporaryDirectory() as folder:
        # Compiled code and libraries are loaded before anything is counted.
        longtail.train(warm, Path(folder) / "warm", recipe, device="cpu")
        watch = TaskWatch(memory=True)
        before = resident()
        model = longtail.train(data, Path(folder) / "run", recipe, device="cpu", display=watch)
        vocabulary = int(model.bundle.ranker.encoder.table.shape[0])  # type: ignore[attr-defined]
    needed, of_documents, used = (
        4 * WIDTH * (vocabulary + 3 * labels),
        documents * 4 * (WIDTH + 500),
        watch.peak["classify"] - before,
    )
    return {
        **{f"{stage} seconds per epoch": round(watch.seconds[stage] / epochs, 6) for stage, epochs in EPOCHS.items()},
        "words": vocabulary,
        "E + W + moments (MB)": round(needed / 2**20, 1),
        "documents' vectors and negatives (MB)": round(of_documents / 2**20, 1),
        "stage IV memory (MB)": round(used / 2**20, 1),
        "stage IV memory / (E + W + moments)": round(used / needed, 2),
        "the same without documents' vectors and negatives": round((used - of_documents) / needed, 2),
    }
