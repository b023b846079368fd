"""What it costs to say why: `Predictor.explain` beside `Predictor.predict` on the same texts.

    python -m benchmarks.speed explaining --model RUN [--model RUN ...] --out FILE.json
    python -m benchmarks.speed explaining --synthetic 28881 --out FILE.json

Both give the same labels; the ratio is of medians over texts, of each text the best of three turns. Models and texts as
in the case `prediction`. Models that are explained by occlusion are measured too, and the number of extra predictions
per text is given.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.cases.prediction import synthetic, texts_for
from benchmarks.speed.common import Measured, alone, cores, seconds_of
from longtail.predictor import Predictor

K, BATCH = 5, 512
# The most that an exact explanation may cost, in plain predictions, and from how many labels on: with few of them a
# prediction of a batch takes less time than making the objects of an answer.
BOUND, FEW_LABELS = 5.0, 5000


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", action="append", type=Path, default=[], metavar="RUN", help="a run or bundle")
    parser.add_argument(
        "--synthetic",
        type=int,
        default=0,
        metavar="LABELS",
        help="also a model of so many random rows, whole and packed",
    )
    parser.add_argument("--width", type=int, default=512, help="numbers per row of the synthetic model")
    parser.add_argument("--input", default="", metavar="FILE", help="texts to explain (default: names of labels)")
    parser.add_argument("--documents", type=int, default=200, help="documents asked one by one")
    parser.add_argument("--batches", type=int, default=4, help=f"batches of {BATCH} documents")


def measure(options: argparse.Namespace) -> Measured:
    if not options.model and not options.synthetic:
        raise SystemExit("error: give --model RUN, or --synthetic LABELS")
    with tempfile.TemporaryDirectory() as folder:
        made = synthetic(options.synthetic, options.width, Path(folder)) if options.synthetic else []
        asked = (options.input, options.documents, options.batches)
        numbers = {
            bundle.name: {f"threads_{n}": alone(measured, str(bundle), *asked, threads=n) for n in sorted({1, cores()})}
            for bundle in [*options.model, *made]
        }
    config = {"k": K, "batch": BATCH}
    config |= {name: getattr(options, name) for name in ("documents", "batches", "synthetic", "width")}
    return Measured(numbers, config=config, seed=None, problem=too_slow(numbers))


def too_slow(numbers: dict[str, Any]) -> str:
    """What costs more than it may."""
    slow = [
        f"{name}, {threads}, {how}: {found[how]['times_a_prediction']:.1f} predictions"
        for name, by_threads in numbers.items()
        for threads, found in by_threads.items()
        for how in ("single", f"batch_of_{BATCH}")
        if found["method"] == "exact" and found["labels"] >= FEW_LABELS and found[how]["times_a_prediction"] > BOUND
    ]
    return f"more than {BOUND:g} predictions: {'; '.join(slow)}" if slow else ""


def measured(bundle: str, source: str, documents: int, batches: int) -> dict[str, Any]:
    """In one process."""
    model = Predictor.open(bundle)
    texts = texts_for(model, source, documents + BATCH * batches)
    for count in (1, BATCH):  # compiles
        model.predict(texts[:count], K)
        model.explain(texts[:count], K)
    jobs = {
        "single": [[text] for text in texts[:documents]],
        f"batch_of_{BATCH}": [texts[start : start + BATCH] for start in range(documents, len(texts), BATCH)],
    }
    answers = [why for answer in model.explain(texts[:BATCH], K) for why in answer]
    return {
        "labels": len(model.labels),
        "method": answers[0].method,
        "words_per_text": float(np.mean([len(why.words) for why in answers])),
        "extra_predictions_per_text": float(np.mean([why.predictions for why in answers])),
        **{name: beside_plain(model, some) for name, some in jobs.items()},
    }


def beside_plain(model: Predictor, jobs: list[list[str]]) -> dict[str, float]:
    """Milliseconds per document of both, which take turns; of each job the best of three, as others use the machine."""
    plain: list[float] = []
    explained: list[float] = []
    for texts in jobs:
        turns = [
            (seconds_of(partial(model.predict, texts, K)), seconds_of(partial(model.explain, texts, K)))
            for _ in range(3)
        ]
        plain.append(1000 * min(one for one, _ in turns) / len(texts))
        explained.append(1000 * min(other for _, other in turns) / len(texts))
    predict, explain = float(np.median(plain)), float(np.median(explained))
    return {"predict_p50_ms": predict, "explain_p50_ms": explain, "times_a_prediction": explain / predict}
