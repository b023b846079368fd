"""Going on from a model: `train --from` with a tenth of the documents that is new, beside training with all of them.

A model is trained on nine tenths of the training documents, by chance; from it training goes on with the last tenth. A
second model is trained on all. Measured on the test documents, with the seconds that each training took.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust.common import trained, training_options
from longtail.bundle import find_bundle
from longtail.data.from_texts import with_digest
from longtail.data.read import read
from longtail.evaluation import evaluate

SHOWN = ("P@1", "P@5", "PSP@5", "R@10")


def options(parser: argparse.ArgumentParser) -> None:
    training_options(parser)
    parser.add_argument("--share", type=float, default=0.1, help="of the documents that are new")


def measure(data: Path, options: argparse.Namespace) -> dict[str, Any]:
    whole = read(data)
    order = np.random.default_rng([options.seed, 0xF20]).permutation(len(whole.train))
    cut = round(options.share * len(order))
    new, old = np.sort(order[:cut]), np.sort(order[cut:])
    found: dict[str, Any] = {"data_hash": whole.digest, "new": len(new), "old": len(old)}
    name = f"{data.name}-{options.recipe}"
    with trained(with_digest(whole.with_training_rows(old)), options, f"{name}-old") as (model, seconds):
        found["old"] = {**_scores(model, whole), "seconds": seconds}
        more = with_digest(replace(whole.with_training_rows(new), graphs={}))
        start = find_bundle(model.bundle.folder).parent
        with trained(more, options, f"{name}-gone-on", start=start) as (after, took):
            found["gone on"] = {**_scores(after, whole), "seconds": took}
    # Last, so that what a process compiles once is no part of the time that going on is compared with.
    with trained(whole, options, f"{name}-all-of-it") as (model, seconds):
        found["all"] = {**_scores(model, whole), "seconds": seconds}
    found["P@1 lost"] = round(found["all"]["P@1"] - found["gone on"]["P@1"], 2)
    found["share of the time"] = round(found["gone on"]["seconds"] / max(found["all"]["seconds"], 1e-9), 3)
    return found


def _scores(model: Any, data: Any) -> dict[str, float]:
    measured = evaluate(model, data)
    return {name: round(measured[name], 2) for name in SHOWN}
