"""How the stages of Astec grow with the number of labels while the number of documents stays: time per epoch, and
memory.

``python -m benchmarks.stage_growth --out benchmarks/results/stage_growth.json [--documents 64000] [--labels 2000 8000
32000 64000]``

Each size trains in a process of its own on planted data. Stage IV looks at a fixed number of labels per document, so
its time per epoch should hardly grow; stage I scores all clusters. Memory is what the process holds more while stage
IV trains than before the recipe began, beside what has to be there: E, W and the two moments of W.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims.verdict import slope
from benchmarks.record import write_result
from longtail import api
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.training.progress import SilentDisplay, Task

EPOCHS = {"surrogate": 2, "classify": 4}
WIDTH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=64_000)
    parser.add_argument("--labels", type=int, nargs="+", default=[2_000, 8_000, 32_000, 64_000])
    parser.add_argument("--only", type=int, help="measure one size in this process and print it")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measured(options.documents, options.only)))
        return
    sizes = {n: in_own_process(options.documents, n) for n in options.labels}
    numbers: dict[str, Any] = {f"{n} labels": row for n, row in sizes.items()}
    for stage in EPOCHS:
        x, y = (
            np.log(np.array(options.labels, dtype=np.float64)),
            np.log([row[f"{stage} seconds per epoch"] for row in sizes.values()]),
        )
        fitted = slope(x, y)
        numbers[f"exponent of {stage}"] = {"value": fitted.value, "low": fitted.low, "high": fitted.high}
    print(json.dumps(numbers, indent=1))
    if options.out:
        command = "python -m benchmarks.stage_growth " + " ".join(sys.argv[1:])
        write_result(options.out, "stage_growth", numbers, command, seed=0)


def in_own_process(documents: int, labels: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.stage_growth", "--documents", str(documents), "--only", str(labels)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(labels, row, flush=True)
    return row


def measured(documents: int, labels: int) -> dict[str, Any]:
    warm = synthesise(SyntheticConfig(), 0).dataset
    data = synthesise(
        SyntheticConfig(
            documents=documents, labels=labels, topics=200, graph_coverage=0.0, share_documents_are_labels=0.0
        ),
        0,
    ).dataset
    settings = [f"{stage}.epochs={epochs}" for stage, epochs in EPOCHS.items()]
    recipe = api.make_recipe(
        "astec", assignments=[*settings, f"surrogate.width={WIDTH}", "features.subwords=none", "features.pairs=false"]
    )
    with tempfile.TemporaryDirectory() as folder:
        # Compiled code and libraries are loaded before anything is counted.
        api.train(warm, Path(folder) / "warm", recipe, device="cpu")
        watch = Watch()
        before = resident()
        model = api.train(data, Path(folder) / "run", recipe, device="cpu", display=watch)
        vocabulary = int(model.bundle.ranker.encoder.table.shape[0])  # type: ignore[attr-defined]
    needed, of_documents, used = (
        4 * WIDTH * (vocabulary + 3 * labels),
        documents * 4 * (WIDTH + 500),
        watch.peak["classify"] - before,
    )
    return {
        **{f"{stage} seconds per epoch": round(watch.seconds[stage] / epochs, 3) for stage, epochs in EPOCHS.items()},
        "words": vocabulary,
        "E + W + moments (MB)": round(needed / 2**20, 1),
        "documents' vectors and negatives (MB)": round(of_documents / 2**20, 1),
        "stage IV memory (MB)": round(used / 2**20, 1),
        "stage IV memory / (E + W + moments)": round(used / needed, 2),
        "the same without documents' vectors and negatives": round((used - of_documents) / needed, 2),
    }


class Watch(SilentDisplay):
    """Time and highest resident memory of every task of a training."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peak: dict[str, int] = {}

    @contextlib.contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        over = threading.Event()
        sampler = threading.Thread(target=self._sample, args=(title, over))
        sampler.start()
        started = time.monotonic()
        try:
            with super().task(title, total) as task:
                yield task
        finally:
            self.seconds[title] = time.monotonic() - started
            over.set()
            sampler.join()

    def _sample(self, title: str, over: threading.Event) -> None:
        while True:
            self.peak[title] = max(self.peak.get(title, 0), resident())
            if over.wait(0.02):
                return


def resident() -> int:
    """Bytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


if __name__ == "__main__":
    main()
