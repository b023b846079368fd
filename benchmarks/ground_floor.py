"""How fast the ground floor is: ``python benchmarks/ground_floor.py DATA --out FILE`` (DATA: e.g. wordnet-related).

- `tiny` from features to ranked labels against scikit-learn's sparse product alone on the same matrix, alternating
- ``import longtail``, and opening a bundle once `Predictor` is imported, each in a fresh process
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.record import write_result
from longtail import api
from longtail.data.read import read
from longtail.predictor import Predictor


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--out", type=Path)
    arguments.add_argument("--documents", type=int, default=2000, help="test documents per measurement")
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()

    data = read(options.data)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        model = api.train(data, run, "tiny")
        numbers: dict[str, Any] = {
            **against_sklearn(model, data, options.documents, options.rounds),
            **start_times(run, options.rounds),
        }
    print(json.dumps(numbers, indent=1))
    if options.out:
        write_result(options.out, "ground_floor", numbers, " ".join(["python", *sys.argv]), data_hash=data.digest)


def against_sklearn(model: Predictor, data: Any, documents: int, rounds: int) -> dict[str, Any]:
    """Median time per document of both, one after the other in every round, and the ratio."""
    from sklearn.utils.extmath import safe_sparse_dot

    ranker: Any = model.bundle.ranker
    rows = np.arange(min(documents, len(data.need_test())), dtype=np.int64)
    batch = model.bundle.featurizer.batch(data.need_test().documents.rows(rows))
    sparse: Any = batch.sparse
    ranker.rank(batch, 5)  # compiles or loads the kernels
    ours, theirs = [], []
    threads = numba.get_num_threads()
    numba.set_num_threads(1)  # scikit-learn's product has one thread too
    for _ in range(rounds):
        started = time.perf_counter()
        ranker.rank(batch, 5)
        ours.append(time.perf_counter() - started)
        started = time.perf_counter()
        for block in range(0, len(rows), 256):
            safe_sparse_dot(sparse[block : block + 256], ranker.inverse.postings)
        theirs.append(time.perf_counter() - started)
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
        return statistics.median(
            float(subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True).stdout)
            for _ in range(rounds)
        )

    return {
        "import_s": round(fresh("import longtail"), 4),
        "open_bundle_s": round(
            fresh(f"longtail.Predictor.open({str(run)!r})", before="import longtail; longtail.Predictor"), 4
        ),
        "targets_s": {"import_s": 0.3, "open_bundle_s": 0.5},
    }


if __name__ == "__main__":
    main()
