"""Variants of a recipe on validation slices: what a choice was made by. Test documents are never looked at.

``python -m benchmarks.ablation VARIANTS.json DATA... --recipe direct --out FILE [--device auto] [--seeds 1] [--max-minutes 4]``

VARIANTS.json: ``{"name": ["section.setting=value", ...], ...}``; the first is what the others are compared with. A tenth of the
training documents is held out, the same for all.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import write_result
from longtail import api
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.evaluation import Yardstick, rank_test
from longtail.training.progress import SilentDisplay

HELD_OUT = 0.1
SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10", "R@100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variants", type=Path)
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--recipe", default="direct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--max-minutes", type=float, default=600.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    variants: dict[str, list[str]] = json.loads(options.variants.read_text(encoding="utf-8"))
    deadline = time.monotonic() + 60 * options.max_minutes
    results: dict[str, Any] = {}
    for path in options.data:
        data = read(path).hold_out(HELD_OUT, 0)
        yardstick = Yardstick.of(data)
        found: dict[str, Any] = {}
        results[path.name] = {**yardstick.about(), "variants": found}
        for name, settings in variants.items():
            for seed in range(options.seeds):
                if time.monotonic() > deadline:
                    print(f"out of time before {path.name} {name}", flush=True)
                    continue
                found.setdefault(name, []).append(measured(data, yardstick, options.recipe, settings, options.device, seed))
                print(f"{path.name:<16} {name:<30} {json.dumps(found[name][-1])}", flush=True)
                if options.out:
                    command = "python -m benchmarks.ablation " + " ".join(sys.argv[1:])
                    write_result(options.out, "ablation", {"held_out": HELD_OUT, "settings": variants, **results}, command, seed=seed)


def measured(data: Dataset, yardstick: Yardstick, recipe: str, settings: list[str], device: str, seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        model = api.train(data, Path(folder) / "run", api.make_recipe(recipe, assignments=settings), device=device, seed=seed)
        seconds = time.monotonic() - started
        scores = yardstick.score(rank_test(model, yardstick, SilentDisplay()))
    return {metric: round(scores[metric], 2) for metric in SHOWN} | {"seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
