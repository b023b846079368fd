"""Our recipes and the systems that a user would pick instead, on the same features of the same data in one run.

    python -m benchmarks.peers DATA --peer-python PEER_VENV/bin/python [--recipe astec | --predictions astec=FILE]
    [--out FILE]

Peers get TF-IDF rows of words, made by longtail from the same titles (or --fields); masked pairs are removed from
everybody's predictions and from the truth. Differences come with intervals. It compares accuracy on equal features;
`benchmarks.race` gives every system raw text, and measures time and memory as well. Both use the adapters of
`benchmarks.race.peer_systems`; `make race` makes the environment of the peers (.venv-peers).
--predictions: what `benchmarks.sets --predictions` kept of a model that was trained on a GPU machine; everybody is
then ranked by as many labels as were kept, so there is no R@100.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import longtail
from benchmarks.differences import SHOWN, kept
from benchmarks.race.contestants import run_child
from benchmarks.record import typed_command, write_result
from longtail import metrics
from longtail.config import to_tables
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.evaluation import Yardstick, rank_test
from longtail.features.base import make_featurizer
from longtail.features.settings import FeaturesConfig
from longtail.metrics import drop_masked_targets
from longtail.persistence import write_json
from longtail.recipes import make_recipe
from longtail.training.progress import PlainDisplay
from longtail.types import TopK


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--peer-python", required=True, help="the interpreter of the peers' own environment")
    parser.add_argument("--fields", default="title", help="of documents, that peers read in place of titles")
    parser.add_argument("--names", default="omikuji,pecos", help="of benchmarks.race.peer_systems")
    parser.add_argument("--recipe", action="append", default=[])
    parser.add_argument(
        "--predictions", action="append", default=[], help="NAME=FILE in place of training a recipe here"
    )
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    data = read(options.data)
    yardstick = Yardstick.of(data)
    given = dict(item.split("=", 1) for item in options.predictions)
    recipes = options.recipe or ([] if given else ["astec"])
    tops: dict[str, TopK] = {}
    about: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names.split(","):
            tops[name], about[name] = peer(name, data, yardstick, options, Path(folder))
        for name, path in given.items():
            about[name] = {"trained": f"by benchmarks.sets, predictions in {Path(path).name}"}
            tops[name] = kept(Path(path))
        for name in recipes:
            recipe = make_recipe(name, assignments=options.set)
            started = time.monotonic()
            model = longtail.train(
                data,
                Path(folder) / name,
                recipe,
                device=options.device,
                seed=options.seed,
                display=PlainDisplay(seconds=60),
            )
            about[name] = {"train_s": round(time.monotonic() - started, 1), "config": to_tables(recipe.config)}
            tops[name] = rank_test(model, yardstick, PlainDisplay(seconds=60))
    numbers = {name: {**about[name], "metrics": yardstick.score(top)} for name, top in tops.items()}
    measured = {name: yardstick.measure(top) for name, top in tops.items()}
    differences = {
        f"{ours} - {name}": {
            metric: vars(d)
            for metric, d in metrics.paired_bootstrap(
                measured[ours], measured[name], rng=np.random.default_rng(0)
            ).items()
            if metric in SHOWN
        }
        for ours in [*given, *recipes]
        for name in options.names.split(",")
    }
    for name, row in numbers.items():
        print(
            f"{name:<20}"
            + "  ".join(f"{metric} {row['metrics'][metric]:6.2f}" for metric in SHOWN)
            + f"  train {row.get('train_s', '-')} s"
        )
    print(json.dumps(differences, indent=1))
    if options.out:
        command = typed_command("peers", sys.argv[1:] if arguments is None else arguments)
        write_result(
            options.out,
            "peers",
            {**yardstick.about(), "models": numbers, "differences": differences},
            command,
            data.digest,
            options.seed,
        )


def peer(
    name: str, data: Dataset, yardstick: Yardstick, options: argparse.Namespace, folder: Path
) -> tuple[TopK, dict[str, Any]]:
    """Train and predict in the peers' own environment: training rows with masked pairs removed, and test rows."""
    inputs, models = folder / "inputs", folder / name.replace(":", "-")
    if not inputs.exists():
        write_inputs(data, tuple(options.fields.split(",")), min(yardstick.depth, len(data.labels)), inputs)
    models.mkdir()
    threads = len(os.sched_getaffinity(0))
    places = [name, str(inputs), str(models), str(threads)]
    command = [options.peer_python, "-m", "benchmarks.race.peer_systems", "rows", *places]
    said = json.loads(run_child(command, threads).strip().splitlines()[-1])
    return kept(models / "ranking.npz"), said


def write_inputs(data: Dataset, fields: tuple[str, ...], k: int, folder: Path) -> None:
    featurizer, documents, _ = make_featurizer(
        data.train.documents, None, FeaturesConfig(fields=fields, pairs=False, sublinear=True)
    )
    targets = drop_masked_targets(data.train.targets, data.train.masked)
    sparse: Any = documents.sparse
    rows = np.flatnonzero((np.diff(sparse.indptr) > 0) & (np.diff(targets.indptr) > 0))
    test: Any = featurizer.batch(data.need_test().documents).sparse
    # omikuji refuses rows without any feature
    empty = np.flatnonzero(np.diff(test.indptr) == 0)
    test = test.tolil()
    test[empty, 0] = 1e-6
    folder.mkdir()
    save_matrix(folder / "train_x.npz", sparse[rows])
    save_matrix(folder / "train_y.npz", targets[rows])
    save_matrix(folder / "test_x.npz", test.tocsr())
    write_json(folder / "k.json", k)


def save_matrix(path: Path, matrix: Any) -> None:
    """As scipy's older matrix class: PECOS does not know arrays."""
    from scipy.sparse import csr_matrix, save_npz

    save_npz(path, csr_matrix(matrix))


if __name__ == "__main__":
    main()
