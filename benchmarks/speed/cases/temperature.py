"""Which `train.temperature` dual encoders should have, chosen on slices of training sides; test is not looked at.

    python -m benchmarks.speed temperature planted DATA/debian-related DATA/wordnet-related --out FILE.json

A source is a planted world (as the claims of RAMEN have it, with a seed of its own) or 3,000 training documents of a
real data set; a fifth of them is held out and measured. Narrow vectors and short trainings on a CPU: what is compared
is temperatures, not methods.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims.deepxml import WORDS_ALONE
from benchmarks.claims.ramen import WORLD
from benchmarks.speed.common import Measured, train
from longtail.config import resolve
from longtail.data.dataset import Dataset
from longtail.data.from_texts import with_digest
from longtail.data.read import read
from longtail.data.synthetic import PRESETS, synthesise
from longtail.evaluation import evaluate

BASES = ("dexml", "siamese")
TEMPERATURES = (0.05, 0.1, 0.15, 0.2, 0.3)
SETTINGS = ("encoder.width=96", "train.epochs=12", "classify.epochs=8")
METRICS = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10")
PLANTED, WORLD_SEED, DRAW_SEED, SLICE_SEED = "planted", 11, 7, 3


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", metavar="DATA", help=f"a data set, or {PLANTED}")
    parser.add_argument("--documents", type=int, default=3000)


def measure(options: argparse.Namespace) -> Measured:
    found = {
        Path(name).name: measured(source(name, options.documents), WORDS_ALONE if name == PLANTED else ())
        for name in options.sources
    }
    return Measured(found, config={"settings": list(SETTINGS), "documents": options.documents})


def source(name: str, documents: int) -> Dataset:
    """A data set without its test side, its own slice of training documents in the place of one."""
    if name == PLANTED:
        data = replace(synthesise(resolve(PRESETS["small"], WORLD, "planted data"), WORLD_SEED).dataset, test=None)
        return data.hold_out(0.2, SLICE_SEED)
    data = read(name, test=False)
    rows = np.sort(
        np.random.default_rng(DRAW_SEED).choice(len(data.train), min(documents, len(data.train)), replace=False)
    )
    return with_digest(replace(data, train=data.train.rows(rows), graphs={}, test=None)).hold_out(0.2, SLICE_SEED)


def measured(data: Dataset, settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """base -> temperature -> metrics on the slice."""
    found: dict[str, dict[str, Any]] = {}
    for base in BASES:
        for temperature in TEMPERATURES:
            chosen = [*SETTINGS, f"train.temperature={temperature:g}", *settings]
            with tempfile.TemporaryDirectory() as folder:
                result = evaluate(train(data, Path(folder) / "run", base, chosen), data)
            found.setdefault(base, {})[f"{temperature:g}"] = {name: round(result[name], 2) for name in METRICS}
            print(data.name, base, temperature, found[base][f"{temperature:g}"], flush=True)
    return found
