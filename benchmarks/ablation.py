"""Variants of a recipe on validation slices: what a choice was made by. Test documents are never looked at.

``python -m benchmarks.ablation VARIANTS.json DATA... --recipe direct --out FILE [--device auto] [--seeds 1]
[--max-minutes 4] [--labels 3000]``

VARIANTS.json: ``{"name": ["section.setting=value", ...], ...}``; the first is what the others are compared with. Of
several recipes at once: ``{"recipe": {"name": [...], ...}, ...}``, as in benchmarks/variants/graphs.json (RAMEN and
GNN-XML), and --recipe chooses one of them. A tenth of the training documents is held out, the same for all. --labels
makes data small: so many labels, drawn at random, and 12,000 at most of their documents. What cannot be trained (a
package is missing, data without a graph) is said, and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import longtail
from benchmarks.record import typed_command, write_result
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import ConfigError, LongtailError
from longtail.evaluation import Yardstick, rank_test
from longtail.recipes import make_recipe
from longtail.training.progress import SilentDisplay

HELD_OUT = 0.1
MOST_DOCUMENTS = 12_000  # of the labels that --labels draws
SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10", "R@100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variants", type=Path)
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--recipe", help="default: direct; of a file of several recipes all of them")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--labels", type=int, help="only so many, drawn at random, and documents that have one of them")
    parser.add_argument("--max-minutes", type=float, default=600.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    variants = read_variants(options.variants, options.recipe)
    deadline = time.monotonic() + 60 * options.max_minutes
    results: dict[str, Any] = {}
    for path in options.data:
        whole = read(path)
        data = (whole if options.labels is None else of_some_labels(whole, options.labels)).hold_out(HELD_OUT, 0)
        yardstick = Yardstick.of(data)
        found: dict[str, Any] = {}
        results[path.name] = {**yardstick.about(), "variants": found}
        for name, (recipe, settings) in variants.items():
            for seed in range(options.seeds):
                if time.monotonic() > deadline:
                    print(f"out of time before {path.name} {name}", flush=True)
                    continue
                try:
                    scores = measured(data, yardstick, recipe, settings, options.device, seed)
                except LongtailError as problem:
                    print(f"{path.name:<16} {name:<30} left out: {problem.message}", flush=True)
                    continue
                found.setdefault(name, []).append(scores)
                print(f"{path.name:<16} {name:<30} {json.dumps(found[name][-1])}", flush=True)
                if options.out:
                    command = typed_command("ablation", sys.argv[1:])
                    write_result(
                        options.out,
                        "ablation",
                        {"held_out": HELD_OUT, "settings": {n: each for n, (_, each) in variants.items()}, **results},
                        command,
                        seed=seed,
                    )


def read_variants(file: Path, recipe: str | None) -> dict[str, tuple[str, list[str]]]:
    """The recipe and the settings of each variant, by its name; where a file has several recipes, behind the recipe's.
    Settings that do not exist are refused before anything is trained.
    """
    content = json.loads(file.read_text(encoding="utf-8"))
    found: dict[str, tuple[str, list[str]]] = {}
    for name, value in content.items():
        if isinstance(value, list):
            found[name] = (recipe or "direct", value)
        elif recipe in (None, name):
            found |= {f"{name}: {inner}": (name, settings) for inner, settings in value.items()}
    if not found:
        raise ConfigError(f"{file} has no variants of '{recipe}'", f"it has those of {', '.join(content)}")
    for name, settings in found.values():
        make_recipe(name, assignments=settings)
    return found


def of_some_labels(data: Dataset, labels: int, documents: int = MOST_DOCUMENTS) -> Dataset:
    """Labels drawn at random, and the training documents that have one of them, or so many of those."""
    rng = np.random.default_rng(7)
    kept = np.sort(rng.choice(len(data.labels), labels, replace=False))
    place = np.full(len(data.labels), -1)
    place[kept] = np.arange(labels)
    targets = data.train.targets.tocsc()[:, kept].tocsr()
    rows = np.flatnonzero(np.diff(targets.indptr) > 0)
    if len(rows) > documents:
        rows = np.sort(rng.choice(rows, documents, replace=False))
    split = data.train.rows(rows)
    masked = split.masked[place[split.masked[:, 1]] >= 0]
    graphs = {
        name: replace(
            graph.document_rows(rows),
            labels=None if graph.labels is None else graph.labels[kept],
            label_label=None if graph.label_label is None else graph.label_label[kept].tocsc()[:, kept].tocsr(),
        )
        for name, graph in data.graphs.items()
    }
    train = replace(split, targets=targets[rows], masked=np.stack([masked[:, 0], place[masked[:, 1]]], axis=1))
    return replace(
        data, name=f"{data.name}[{labels} labels]", labels=data.labels.rows(kept), train=train, graphs=graphs, test=None
    )


def measured(
    data: Dataset, yardstick: Yardstick, recipe: str, settings: list[str], device: str, seed: int
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        model = longtail.train(
            data, Path(folder) / "run", make_recipe(recipe, assignments=settings), device=device, seed=seed
        )
        seconds = time.monotonic() - started
        scores = yardstick.score(rank_test(model, yardstick, SilentDisplay()))
    return {metric: round(scores[metric], 2) for metric in SHOWN} | {"seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
