"""What the parts of `direct` cost at prediction, packed: its memory, views, several models as one.

    python -m benchmarks.speed direct-parts DATA [--view-model FOLDER] [--checkpoint FOLDER] --out FILE.json

Models of one epoch (their labels mean nothing, their tables are those of a real one) are packed, with all parts and
with some left out, and asked in turns for the same test documents, from raw text, in one process: ratios are those of
medians beside the model without memory and without a view. Once for one thread and once for all. Views that are not
installed are left out, and the record says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.common import TURNS, Measured, alone, cores, data_argument, in_turns, set_argument, train
from longtail.bundle import MANIFEST
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import MissingExtra
from longtail.models.encoders import ResidualMap
from longtail.models.rankers import IndexedRows
from longtail.packing import pack
from longtail.persistence import read_json
from longtail.predictor import Predictor
from longtail.recipes.direct.ranker import HiddenMap

BASE = "no view, no memory"
CHEAP = ["train.epochs=1", "train.smoothing=0", "anchors.weight=0"]


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser)
    set_argument(parser)
    parser.add_argument("--view-model", default="", metavar="FOLDER", help="of the static view (default: its package)")
    parser.add_argument("--checkpoint", default="", metavar="FOLDER", help="of the transformer (default: its package)")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="keep models here, and take those that are there")
    parser.add_argument("--index", default="auto", help="how packed rows are searched (as of `longtail pack`)")


def measure(options: argparse.Namespace) -> Measured:
    data = read(options.data)
    views: dict[str, list[str]] = {
        "no view": [],
        "static": ["features.view=static", f"features.view_model={options.view_model}"],
        "transformer": ["features.view=transformer", f"features.view_model={options.checkpoint}"],
    }
    with tempfile.TemporaryDirectory() if options.models is None else contextlib.nullcontext(options.models) as name:
        folder = Path(name)
        left_out: dict[str, str] = {}
        training: dict[str, Any] = {}
        for view, settings in views.items():
            try:
                made = partial(packed, data, folder / view, [*CHEAP, *settings, *options.set], options.index)
                training[view] = made()
            except MissingExtra as problem:
                left_out[view] = problem.message
        variants = [path.name for path in sorted(folder.glob("*, *memory*"))]
        numbers: dict[str, Any] = {
            f"threads_{n}": alone(measured, str(folder), variants, str(options.data), threads=n)
            for n in sorted({1, cores()})
        }
        numbers["search"] = {name: search_of(folder / name) for name in variants}
        sizes = {
            name: sum(file.stat().st_size for file in (folder / name).rglob("*") if file.is_file()) for name in variants
        }
    numbers["bytes"] = {name: {"bytes": size, "ratio": round(size / sizes[BASE], 3)} for name, size in sizes.items()}
    numbers |= {"seconds of stages, one epoch": training, "left out": left_out}
    return Measured(numbers, data.digest, {"settings": [*CHEAP, *options.set], "index": options.index, "turns": TURNS})


def packed(data: Dataset, place: Path, settings: list[str], index: Any = "auto") -> dict[str, float]:
    """Bundles beside `place`: the model as it is trained, without a memory, and as if it were three models made one;
    with the seconds of each stage of its training. Made once.
    """
    if not place.with_name(f"{place.name}, no memory").exists():
        train(data, place, "direct", settings)
        write_variants(place, index)
    events = map(json.loads, (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return {event["name"]: event["seconds"] for event in events if event["event"] == "stage"}


def write_variants(place: Path, index: Any) -> None:
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


def search_of(bundle: Path) -> Any:
    """How packed rows are searched."""
    return read_json(bundle / MANIFEST).get("packed", {}).get("search")


def measured(folder: str, variants: list[str], data: str) -> dict[str, Any]:
    """Milliseconds per document of all models, in turns, and their ratios to the base.

    Transformers take turns with the base alone: whoever comes after one finds nothing of its own near the processor.
    """
    models = {name: Predictor.open(Path(folder) / name) for name in variants}
    documents = read(data).need_test().documents
    found: dict[str, Any] = {f"{at_once} at once": {} for at_once in TURNS}
    slow = [name for name in variants if name.startswith("transformer")]
    for group in ([name for name in variants if name not in slow], [BASE, *slow]):
        some = {name: models[name] for name in group}
        for at_once, turns in TURNS.items():
            times = in_turns(some, documents, at_once, turns)
            medians = {name: statistics.median(each) for name, each in times.items()}
            found[f"{at_once} at once"] |= {
                name: {
                    "milliseconds": round(1000 * median, 4),
                    "more than the base": round(1000 * (median - medians[BASE]), 4),
                    "ratio": round(median / medians[BASE], 3),
                }
                for name, median in medians.items()
                if not (name == BASE and slow[:1] == group[1:2])
            }
    return found
