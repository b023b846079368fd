"""Recipe `tiny` beside scikit-learn's sparse product on the same matrix; importing longtail and opening a bundle.

    python -m benchmarks.speed ground-floor DATA [--documents 2000] [--rounds 5] --out FILE.json

`tiny` goes from features to ranked labels, scikit-learn does the product alone, alternating. Importing, and opening
once `Predictor` is imported, are timed in fresh processes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba
import numpy as np

import longtail
from benchmarks.race.contestants import environment
from benchmarks.speed.common import Measured, data_argument, seconds_of
from longtail.data.read import read
from longtail.predictor import Predictor


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser)
    parser.add_argument("--documents", type=int, default=2000, help="test documents per measurement")
    parser.add_argument("--rounds", type=int, default=5)


def measure(options: argparse.Namespace) -> Measured:
    data = read(options.data)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        model = longtail.train(data, run, "tiny")
        numbers: dict[str, Any] = {
            **against_sklearn(model, data, options.documents, options.rounds),
            **start_times(run, options.rounds),
        }
    return Measured(numbers, data_hash=data.digest, seed=None)


def against_sklearn(model: Predictor, data: Any, documents: int, rounds: int) -> dict[str, Any]:
    """Median time per document of both, one after the other in every round, and the ratio."""
    from sklearn.utils.extmath import safe_sparse_dot

    ranker: Any = model.bundle.ranker
    rows = np.arange(min(documents, len(data.need_test())), dtype=np.int64)
    batch = model.bundle.featurizer.batch(data.need_test().documents.rows(rows))
    sparse: Any = batch.sparse
    ranker.rank(batch, 5)  # compiles or loads the kernels

    def products() -> None:
        for block in range(0, len(rows), 256):
            safe_sparse_dot(sparse[block : block + 256], ranker.inverse.postings)

    ours, theirs = [], []
    threads = numba.get_num_threads()
    numba.set_num_threads(1)  # scikit-learn's product has one thread too
    for _ in range(rounds):
        ours.append(seconds_of(lambda: ranker.rank(batch, 5)))
        theirs.append(seconds_of(products))
    numba.set_num_threads(threads)
    a, b = statistics.median(ours), statistics.median(theirs)
    return {
        "documents": len(rows),
        "tiny_over_sklearn_product": round(a / b, 3),
        "what": "tiny: neighbours, vote and top 5; scikit-learn: the sparse product of the same rows alone; one "
        "thread each",
        "target": "at most 1",
    }


def start_times(run: Path, rounds: int) -> dict[str, Any]:
    """Seconds, as measured inside fresh processes after the interpreter has started."""

    def fresh(code: str, before: str = "pass") -> float:
        timed = f"import time; {before}; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
        command = [sys.executable, "-c", timed]
        return statistics.median(
            float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment(None)).stdout)
            for _ in range(rounds)
        )

    return {
        "import_s": round(fresh("import longtail"), 4),
        "open_bundle_s": round(
            fresh(f"longtail.Predictor.open({str(run)!r})", before="import longtail; longtail.Predictor"), 4
        ),
        "targets_s": {"import_s": 0.3, "open_bundle_s": 0.5},
    }
