"""Warm start against cold on a real data set: half of the labels of test documents are known, the others are to be
found (the protocol of GalaXC, Sec. 5).

``python -m benchmarks.warm_start DATA --predictions DIR [--out FILE] [--arms cold,warm] [--recipe galaxc] [--set
a.b=c] [--device auto] [--gpu-search]``

cold  trained without what is known of test documents, and asked by their text alone
warm  trained with it, and asked with it; beside it ``warm, by text alone``: the same model asked without it

Both arms are measured on the same documents and the same hidden labels; known labels are no answers in either. An arm
whose predictions lie in DIR is not trained again, so two processes can train one arm each. As soon as both are there,
their differences come with intervals over documents.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import longtail
from benchmarks.differences import SHOWN, kept
from benchmarks.record import typed_command, write_result
from benchmarks.sets import KEPT_LABELS, search_on_gpu
from longtail import metrics
from longtail.config import to_tables
from longtail.data.dataset import Dataset
from longtail.data.protocols import warm_start
from longtail.data.read import read
from longtail.evaluation import Yardstick, context_of_test, rank_test
from longtail.persistence import read_json, write_json
from longtail.recipes import make_recipe
from longtail.training.progress import PlainDisplay

ARMS = ("cold", "warm")
BY_TEXT = "warm, by text alone"
DIFFERENCES = (("warm", "cold"), ("warm", BY_TEXT), (BY_TEXT, "cold"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--recipe", default="galaxc")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the trainings; what is revealed is always chosen with seed 0"
    )
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="keep the runs here: what was interrupted goes on")
    parser.add_argument(
        "--gpu-search", action="store_true", help="test documents are searched on the GPU: the same answers, sooner"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cut = warm_start(read(options.data), seed=0)
    sides: dict[str, Dataset] = {"cold": cut.cold, "warm": cut.warm}
    for arm in options.arms.split(","):
        if not (options.predictions / f"{arm}.json").exists():
            measure(arm, sides[arm], options)
    found = {
        arm: read_json(options.predictions / f"{arm}.json")
        for arm in ARMS
        if (options.predictions / f"{arm}.json").exists()
    }
    numbers = {**found, "differences": differences(cut.cold, options.predictions) if len(found) == len(ARMS) else {}}
    print(json.dumps({name: part for name, part in numbers.items() if name == "differences"} or numbers, indent=1))
    if options.out:
        command = typed_command("warm_start", sys.argv[1:])
        write_result(options.out, "warm_start", numbers, command, data_hash=cut.cold.digest, seed=options.seed)


def measure(arm: str, data: Dataset, options: argparse.Namespace) -> None:
    """Train one arm, keep what it predicts and what that is worth; the file of numbers is written last."""
    recipe = make_recipe(options.recipe, assignments=options.set)
    yardstick, display = Yardstick.of(data), PlainDisplay(seconds=60)
    with tempfile.TemporaryDirectory() if options.runs is None else contextlib.nullcontext(options.runs) as folder:
        started = time.monotonic()
        model = longtail.train(
            data,
            Path(folder) / f"{options.data.name}-{arm}",
            recipe,
            device=options.device,
            seed=options.seed,
            display=display,
        )
        seconds = time.monotonic() - started
        if options.gpu_search:
            search_on_gpu(model.bundle.ranker)
        tops = {arm if arm == "cold" else BY_TEXT: rank_test(model, yardstick, display)}
        if arm == "warm":
            tops[arm] = rank_test(model, yardstick, display, context_of_test(model, yardstick))
    options.predictions.mkdir(parents=True, exist_ok=True)
    for name, top in tops.items():
        # Known labels fall away first: the cold arm may have put them in front.
        answers = yardstick.cut(top)
        np.savez_compressed(
            file_of(options.predictions, name), ids=answers.ids[:, :KEPT_LABELS], scores=answers.scores[:, :KEPT_LABELS]
        )
    scores = {
        name: {metric: round(value, 3) for metric, value in yardstick.score(top).items()} for name, top in tops.items()
    }
    about = {"metrics": scores, "training_seconds": round(seconds, 1), "n_train": len(data.train), **yardstick.about()}
    write_json(options.predictions / f"{arm}.json", {**about, "config": to_tables(recipe.config)})


def file_of(folder: Path, name: str) -> Path:
    return folder / f"{name.replace(', ', '-').replace(' ', '-')}.npz"


def differences(cold: Dataset, folder: Path) -> dict[str, Any]:
    """Paired over documents, with intervals; by the data of the cold arm, whose test side is that of both."""
    yardstick = Yardstick.of(cold)
    measured = {name: yardstick.measure(kept(file_of(folder, name))) for name in (*ARMS, BY_TEXT)}
    return {
        f"{a} - {b}": {
            metric: vars(found)
            for metric, found in metrics.paired_bootstrap(
                measured[a], measured[b], rng=np.random.default_rng(0)
            ).items()
            if metric in SHOWN
        }
        for a, b in DIFFERENCES
    }


if __name__ == "__main__":
    main()
