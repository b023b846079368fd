"""What the parts of `direct` cost at prediction, packed: its memory, views, several models as one.

    python -m benchmarks.speed direct-parts DATA [--view-model FOLDER] [--checkpoint FOLDER] --out FILE.json

Models of one epoch (their labels mean nothing, their tables are those of a real one) are packed, with all parts and
with some left out, and asked in turns for the same test documents, from raw text, in one process: ratios are those of
medians beside the model without memory and without a view. Once for one thread and once for all. Views that are not
installed are left out, and the record says so.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.common import TURNS, Measured, alone, cores, data_argument, in_turns, set_argument, timed, train
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import MissingExtra
from longtail.models.encoders import ResidualMap
from longtail.models.rankers import IndexedRows
from longtail.packing import pack
from longtail.predictor import Predictor
from longtail.recipes.direct.ranker import HiddenMap

BASE = "no view, no memory"
CHEAP = ["train.epochs=1", "train.smoothing=0", "anchors.weight=0"]


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser)
    set_argument(parser)
    parser.add_argument("--view-model", default="", metavar="FOLDER", help="of the static view (default: its package)")
    parser.add_argument("--checkpoint", default="", metavar="FOLDER", help="of the transformer (default: its package)")
    parser.add_argument("--index", default="auto", help="how packed rows are searched (as of `longtail pack`)")


def measure(options: argparse.Namespace) -> Measured:
    data = read(options.data)
    views: dict[str, list[str]] = {
        "no view": [],
        "static": ["features.view=static", f"features.view_model={options.view_model}"],
        "transformer": ["features.view=transformer", f"features.view_model={options.checkpoint}"],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        left_out: dict[str, str] = {}
        training: dict[str, Any] = {}
        for view, settings in views.items():
            try:
                made = partial(packed, data, folder / view, [*CHEAP, *settings, *options.set], options.index)
                stages, seconds = timed(made)
                training[view] = {**seconds, "stages": stages}
            except MissingExtra as problem:
                left_out[view] = problem.message
        variants = [path.name for path in sorted(folder.glob("*, *memory*"))]
        numbers: dict[str, Any] = {
            f"threads_{n}": alone(measured, str(folder), variants, str(options.data), threads=n)
            for n in sorted({1, cores()})
        }
        sizes = {
            name: sum(file.stat().st_size for file in (folder / name).rglob("*") if file.is_file()) for name in variants
        }
    numbers["bytes"] = {name: {"bytes": size, "ratio": round(size / sizes[BASE], 3)} for name, size in sizes.items()}
    numbers |= {"one epoch and packing": training, "left out": left_out}
    return Measured(numbers, data.digest, {"settings": [*CHEAP, *options.set], "index": options.index, "turns": TURNS})


def packed(data: Dataset, place: Path, settings: list[str], index: Any = "auto") -> dict[str, float]:
    """Bundles beside `place`: the model as it is trained, without a memory, and as if it were three models made one;
    with the seconds of each stage of its training.
    """
    train(data, place, "direct", settings)
    pack(place, place.with_name(f"{place.name}, memory"), index=index)
    model = Predictor.open(place.with_name(f"{place.name}, memory"))
    ranker: Any = model.bundle.ranker
    bare = IndexedRows(ranker.encoder, ranker.refinement, ranker.index)
    Predictor(replace(model.bundle, ranker=bare)).save(place.with_name(f"{place.name}, no memory"))
    if isinstance(ranker.refinement, ResidualMap):
        # x = v + ReLU(R v), by the three matrices that several models as one have.
        one = np.eye(ranker.refinement.width, dtype=np.float32)
        several = replace(ranker, refinement=HiddenMap(one, np.asarray(ranker.refinement.weight), one))
        Predictor(replace(model.bundle, ranker=several)).save(place.with_name(f"{place.name}, memory, three as one"))
    events = map(json.loads, (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return {event["name"]: event["seconds"] for event in events if event["event"] == "stage"}


def measured(folder: str, variants: list[str], data: str) -> dict[str, Any]:
    """Milliseconds per document of all models, in turns, and their ratios to the first."""
    models = {name: Predictor.open(Path(folder) / name) for name in variants}
    documents = read(data).need_test().documents
    found: dict[str, Any] = {}
    for at_once, turns in TURNS.items():
        times = in_turns(models, documents, at_once, turns)
        medians = {name: statistics.median(each) for name, each in times.items()}
        found[f"{at_once} at once"] = {
            name: {
                "milliseconds": round(1000 * median, 4),
                "beside the base": round(1000 * (median - medians[BASE]), 4),
                "ratio": round(median / medians[BASE], 3),
            }
            for name, median in medians.items()
        }
    return found
