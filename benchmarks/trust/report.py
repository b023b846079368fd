"""What a report costs, and how many planted errors of the truth its lists of suspects bring to the top.

`longtail report` runs as a process of its own, on all test documents that it takes by default: seconds, bytes of the
file, memory. Then errors are planted in the truth of a sample of the test documents: a share of all labels is replaced
by another one, drawn by training frequency or from all labels alike, and in another copy of the truth as many are taken
out. The model knows nothing of it. Recorded is the share of the wrong ones in the first tenth of the list of labels
that are given and probably wrong, and of the lost ones in the first tenth of the list of those that are missing and
probably right; by chance it would be 10%.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust.common import trained, training_options
from longtail.data.from_texts import binary_csr
from longtail.data.read import read
from longtail.evaluation import Yardstick, rank_test
from longtail.metrics.ranking import positives
from longtail.model_report.findings import DOCUMENTS, SHOWN, sampled
from longtail.predictor import Predictor
from longtail.suspects import SuspectPairs, suspects
from longtail.training.progress import SilentDisplay
from longtail.types import I64, TopK


def options(parser: argparse.ArgumentParser) -> None:
    training_options(parser)
    parser.add_argument("--model", type=Path, metavar="RUN", help="a run of this data (default: one is trained)")
    parser.add_argument("--share", type=float, default=0.05, help="of the labels that are made wrong, or taken out")
    parser.add_argument("--draws", type=int, default=3, help="how often errors are planted anew")


def measure(data: Path, options: argparse.Namespace) -> dict[str, Any]:
    whole = read(data)
    if options.model is not None:
        return measured(options.model, data, Yardstick.of(sampled(whole, DOCUMENTS, options.seed)), options)
    with trained(whole, options, f"{data.name}-{options.recipe}") as (model, _):
        run = model.bundle.folder.parent
        return measured(run, data, Yardstick.of(sampled(whole, DOCUMENTS, options.seed)), options)


def measured(run: Path, data: Path, yardstick: Yardstick, options: argparse.Namespace) -> dict[str, Any]:
    cost = cost_of_report(run, data)
    model = Predictor.open(run)
    ranked = rank_test(model, yardstick, SilentDisplay())
    draws: dict[str, list[float]] = {}
    for draw in range(options.draws):
        rng = np.random.default_rng([options.seed, draw])
        for how in ("by frequency", "from all labels"):
            draws.setdefault(f"wrong, drawn {how}", []).append(found_wrong(model, yardstick, ranked, how, options, rng))
        listed, first = found_lost(model, yardstick, ranked, options, rng)
        draws.setdefault("lost, of all", []).append(first)
        draws.setdefault("lost, of those in the list", []).append(first / max(listed, 1e-9) * 100)
    return {
        **yardstick.about(),
        "recipe": model.recipe,
        "report": cost,
        "planted share": options.share,
        "percent in the first tenth": {
            name: {"mean": round(float(np.mean(values)), 2), "draws": [round(value, 2) for value in values]}
            for name, values in draws.items()
        },
    }


def cost_of_report(run: Path, data: Path) -> dict[str, Any]:
    """Of the whole command, with starting Python and reading the data."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "report.html"
        command = [sys.executable, "-m", "longtail", "report", str(run), str(data), "--output", str(output), "--quiet"]
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "seconds": round(seconds, 1),
            "seconds of the processor": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
            "bytes": output.stat().st_size,
            "most memory, bytes": after.ru_maxrss * 1024,
        }


def pairs_of(yardstick: Yardstick) -> tuple[I64, I64]:
    truth = positives(yardstick.truth)
    return np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)), truth.indices.astype(np.int64)


def found_wrong(
    model: Predictor,
    yardstick: Yardstick,
    ranked: TopK,
    how: str,
    options: argparse.Namespace,
    rng: np.random.Generator,
) -> float:
    """Percent of planted wrong labels in the first tenth of those that are given."""
    rows, labels = pairs_of(yardstick)
    size = yardstick.truth.shape[1]
    chances = yardstick.counts if how == "by frequency" else (yardstick.counts > 0).astype(np.int64)
    chosen = rng.random(len(rows)) < options.share
    planted = labels.copy()
    planted[chosen] = rng.choice(size, size=int(chosen.sum()), p=chances / chances.sum())
    wrong = chosen & ~np.isin(rows * size + planted, rows * size + labels)
    truth = binary_csr(rows, planted, yardstick.truth.shape)
    given = suspects(model, replace(yardstick, truth=truth), ranked, at=SHOWN).given
    return 100 * in_first_tenth(given, rows[wrong] * size + planted[wrong], size)


def found_lost(
    model: Predictor, yardstick: Yardstick, ranked: TopK, options: argparse.Namespace, rng: np.random.Generator
) -> tuple[float, float]:
    """Percent of labels that were taken out which are in the list of missing ones, and in its first tenth."""
    rows, labels = pairs_of(yardstick)
    size = yardstick.truth.shape[1]
    lost = rng.random(len(rows)) < options.share
    truth = binary_csr(rows[~lost], labels[~lost], yardstick.truth.shape)
    missing = suspects(model, replace(yardstick, truth=truth), ranked, at=SHOWN).missing
    keys = rows[lost] * size + labels[lost]
    return 100 * in_list(missing, keys, size, len(missing)), 100 * in_first_tenth(missing, keys, size)


def in_first_tenth(pairs: SuspectPairs, planted: I64, size: int) -> float:
    return in_list(pairs, planted, size, len(pairs) // 10)


def in_list(pairs: SuspectPairs, planted: I64, size: int, first: int) -> float:
    return float(np.isin(planted, pairs.rows[:first] * size + pairs.labels[:first]).mean()) if len(planted) else 0.0
