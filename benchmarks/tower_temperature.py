"""Which `train.temperature` dual encoders should have, chosen on slices of training sides; no test document is looked
at.

    python -m benchmarks.tower_temperature planted debian-related wordnet-related --data FOLDER --json FILE

A source is a planted world (as the claims of RAMEN have it, with a seed of its own) or 3,000 training documents of a
real data set; a fifth of them is held out and measured. Narrow vectors and short trainings on a CPU: what is compared
is temperatures, not methods.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims.deepxml import WORDS_ALONE
from benchmarks.claims.ramen import WORLD
from benchmarks.record import write_result
from longtail import api
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


def source(name: str, folder: Path | None, documents: int) -> Dataset:
    """A data set without its test side, its own slice of training documents in the place of one."""
    if name == PLANTED:
        data = replace(synthesise(resolve(PRESETS["small"], WORLD, "planted data"), WORLD_SEED).dataset, test=None)
        return data.hold_out(0.2, SLICE_SEED)
    data = read((folder or Path()) / name, test=False)
    rows = np.sort(
        np.random.default_rng(DRAW_SEED).choice(len(data.train), min(documents, len(data.train)), replace=False)
    )
    return with_digest(replace(data, train=data.train.rows(rows), graphs={}, test=None)).hold_out(0.2, SLICE_SEED)


def measured(data: Dataset, settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """base -> temperature -> metrics on the slice."""
    found: dict[str, dict[str, Any]] = {}
    for base in BASES:
        for temperature in TEMPERATURES:
            recipe = api.make_recipe(base, assignments=[*SETTINGS, f"train.temperature={temperature:g}", *settings])
            with tempfile.TemporaryDirectory() as folder:
                result = evaluate(api.train(data, Path(folder) / "run", recipe, device="cpu"), data)
            found.setdefault(base, {})[f"{temperature:g}"] = {name: round(result[name], 2) for name in METRICS}
            print(data.name, base, temperature, found[base][f"{temperature:g}"], flush=True)
    return found


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    found = {
        name: measured(source(name, options.data, options.documents), WORDS_ALONE if name == PLANTED else ())
        for name in options.sources
    }
    if options.json:
        command = f"python -m benchmarks.tower_temperature {' '.join(options.sources)} --documents {options.documents}"
        write_result(
            options.json,
            "tower_temperature",
            found,
            command,
            seed=0,
            config={"settings": list(SETTINGS), "documents": options.documents},
        )


if __name__ == "__main__":
    main(sys.argv[1:])
