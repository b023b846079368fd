"""How sure is it: calibration error of the labels shown, before and after, and the precision that was asked for.

A model is trained with a part of its training documents held out, and calibrated on them. On the test documents:

- ECE@1, ECE@3 and ECE@5 (`longtail.metrics.reliability`) before and after, and whether the ranking is the same;
- what `predict --precision` shows of five labels: the precision that was found, labels per document, and the share of
  documents of which nothing is said;
- the same errors for each way of calibrating, on the same rankings; and for the best way on documents that are like
  those of the test: one half of them is calibrated on, the other measured;
- how much longer a prediction takes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust.common import trained, training_options
from longtail import metrics
from longtail.bundle import find_bundle
from longtail.calibrating import (
    DEPTH,
    METHODS,
    Groups,
    Judged,
    best_calibration,
    calibrate,
    fitted,
    judged_by,
    label_groups,
    place_groups,
    undo,
)
from longtail.data.read import read
from longtail.evaluation import KS, Yardstick, held_out_data, rank_test
from longtail.models.calibration import Calibration
from longtail.predictor import Predictor
from longtail.training.progress import PlainDisplay, SilentDisplay
from longtail.types import TopK

ASKED = (0.8, 0.9, 0.95)
TIMED = 2000


def options(parser: argparse.ArgumentParser) -> None:
    training_options(parser)
    parser.add_argument("--holdout", type=float, default=0.05, help="share of the documents that training leaves out")
    parser.add_argument("--missing", default="none", choices=["none", "propensity"])


def measure(data: Path, options: argparse.Namespace) -> dict[str, Any]:
    whole = read(data)
    with trained(whole, options, f"{data.name}-{options.recipe}", holdout=options.holdout) as (model, seconds):
        run = find_bundle(model.bundle.folder)
        undo(run)
        raw, yardstick = Predictor.open(run), Yardstick.of(whole)
        before = rank_test(raw, yardstick, PlainDisplay(seconds=60))
        held = judged_by(raw, Yardstick.of(held_out_data(raw, whole)), options.missing, SilentDisplay())
        started = time.perf_counter()
        about = calibrate(run, whole, missing=options.missing)
        calibrating = round(time.perf_counter() - started, 1)
        sure = Predictor.open(run)
        after = rank_test(sure, yardstick, PlainDisplay(seconds=60))
        times = slowdown(
            raw, sure, whole.need_test().documents.rows(np.arange(min(TIMED, len(yardstick.truth.indptr) - 1)))
        )
    test = judged(before, yardstick, held)
    return {
        **yardstick.about(),
        "held out": about["documents"],
        "seconds": {"training": seconds, "calibrating": calibrating},
        "before": errors(before, yardstick),
        "after": errors(after, yardstick),
        "ranking unchanged": bool((before.ids == after.ids).all()),
        "P@1": {
            "test": round(float(yardstick.score(before)["P@1"]), 2),
            "held out": round(float(raw.metrics["scores"]["P@1"]), 2),
        },
        "reliability@5": metrics.reliability(yardstick.cut(after), yardstick.truth, 5, 10).as_json(),
        "precision": [achieved(sure, after, yardstick, asked) for asked in ASKED],
        "by way of calibrating": ways(held, before, yardstick),
        "calibrated on half of the test documents, measured on the other half": halves(test, yardstick),
        "slowdown": times,
        "calibration": about,
    }


def errors(top: TopK, yardstick: Yardstick) -> dict[str, float]:
    found = yardstick.calibration(top)
    return {f"ECE@{k}": round(found[f"ECE@{k}"], 3) for k in KS}


def achieved(model: Predictor, top: TopK, yardstick: Yardstick, asked: float) -> dict[str, Any]:
    """Of the first five places that are sure enough; None where such a precision was never reached."""
    assert model.calibration is not None
    lowest = model.calibration.thresholds[round(asked * (len(model.calibration.thresholds) - 1))]
    shown = metrics.cut(yardstick.cut(top), KS[-1]).above(float(lowest))
    real = shown.ids != TopK.PAD
    if not np.isfinite(lowest):
        return {"asked": asked, "achieved": None}
    right = metrics.hits(shown, yardstick.truth)
    return {
        "asked": asked,
        "achieved": round(float(right[real].mean()), 4) if real.any() else None,
        "labels shown": int(real.sum()),
        "labels per document": round(float(real.sum(axis=1).mean()), 4),
        "documents without a label": round(float((~real.any(axis=1)).mean()), 4),
    }


def ways(held: Judged, before: TopK, yardstick: Yardstick) -> dict[str, Any]:
    """ECE on test for every method and grouping that were to be chosen from."""
    places = place_groups(held)
    groupings = {
        "all labels alike": Groups(),
        "by frequency": Groups(fewest=label_groups(held, (0,))),
        "by place": Groups(places),
        "by place and frequency": Groups(places, label_groups(held, places)),
    }
    found = {}
    for method in METHODS:
        for name, groups in groupings.items():
            made = fitted(held, method, groups)
            found[f"{method}, {name}"] = errors(made.calibrated(before, made.label_groups(held.counts)), yardstick)
    return found


def judged(top: TopK, yardstick: Yardstick, like: Judged) -> Judged:
    """Rankings of the test documents as `judged_by` has them."""
    cut = TopK(top.ids[:, :DEPTH], top.scores[:, :DEPTH])
    counted = (cut.ids != TopK.PAD) & ~metrics.hits(cut, yardstick.masked_pairs())
    return Judged(cut, metrics.hits(cut, yardstick.truth).astype(np.float64), counted, like.counts)


def halves(test: Judged, yardstick: Yardstick) -> dict[str, Any]:
    """What a calibration can do where the documents that it is learnt on are like those that it is asked of."""
    first = np.random.default_rng(0).permutation(len(test.top)) % 2 == 0
    learnt: Calibration = best_calibration(test.rows(first), _only(yardstick, first), "auto")[0]
    others = test.rows(~first)
    said = learnt.calibrated(others.top, learnt.label_groups(test.counts))
    found: dict[str, Any] = {"before": _errors(others.top, others), "after": _errors(said, others)}
    for asked in ASKED:
        lowest = learnt.thresholds[round(asked * (len(learnt.thresholds) - 1))]
        shown = others.counted & (said.scores >= lowest)
        found[f"precision {asked}"] = round(float(others.worth[shown].mean()), 4) if shown.any() else None
    return found


def _errors(said: TopK, judged: Judged) -> dict[str, float]:
    """Masked pairs are left out where they stand; there are few."""
    return {
        f"ECE@{k}": round(metrics.binned(said.scores[:, :k][c], judged.worth[:, :k][c]).error(), 3)
        for k in KS
        for c in (judged.counted[:, :k],)
    }


def _only(yardstick: Yardstick, rows: Any) -> Yardstick:
    from dataclasses import replace

    place = np.cumsum(rows) - 1
    masked = yardstick.masked[rows[yardstick.masked[:, 0]]]
    masked = np.stack([place[masked[:, 0]], masked[:, 1]], axis=1)
    return replace(yardstick, truth=yardstick.truth[np.flatnonzero(rows)], masked=masked)


def slowdown(raw: Predictor, sure: Predictor, documents: Any) -> dict[str, float]:
    """Milliseconds a document, ten labels: alone (the median of 300) and in a batch, both models in turns."""
    field = next(iter(documents.fields))
    texts = documents.fields[field]

    def clocked(work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        return 1000 * (time.perf_counter() - started)

    alone: dict[str, list[float]] = {"raw": [], "calibrated": []}
    batch: dict[str, list[float]] = {"raw": [], "calibrated": []}
    for text in texts[:300]:
        for name, model in (("raw", raw), ("calibrated", sure)):
            alone[name].append(clocked(lambda model=model, text=text: model.predict([text], k=10)))  # type: ignore[misc]
    for _ in range(3):
        for name, model in (("raw", raw), ("calibrated", sure)):
            batch[name].append(clocked(lambda model=model: model.predict(list(texts), k=10)) / len(texts))  # type: ignore[misc]
    return {
        **{f"{name}, alone": round(statistics.median(values), 4) for name, values in alone.items()},
        **{f"{name}, in batches": round(min(values), 4) for name, values in batch.items()},
    }
