"""What each part of `direct` is worth: trainings without it, measured on test documents, over seeds, with intervals.

``python -m benchmarks.parts JOBS.json DATA... --out FILE [--workers 14] [--seconds 240] [--device auto]
[--beside VARIANT]``

JOBS.json: ``{"set's name": {"variant": {"settings": ["a.b=c", ...], "seeds": [0, 1, 2]}, ...}, ...}``; the variant
``base`` of a set is what its others are compared with, and those that --beside names. Trainings run side by side in
processes of their own (one GPU serves many), so nothing is said of their time. Every model is measured with its memory
and, as another variant, without it. Differences: the mean over the seeds that both have, with a 95% interval of a
paired bootstrap over documents. What is not done after --seconds is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import typed_command, write_result

BASE, CHILD = "base", "--child"
WITHOUT_MEMORY = "{}, no memory"
SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10", "R@100")


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == [CHILD]:
        trained_and_measured(**json.loads(words[1]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--beside", action="append", default=[], metavar="VARIANT")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    asked: dict[str, Any] = json.loads(options.jobs.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            {
                "data": str(path),
                "variant": variant,
                "settings": one["settings"],
                "seed": seed,
                "device": options.device,
                "out": folder,
            }
            for path in options.data
            for variant, one in asked.get(path.name, {}).items()
            for seed in one["seeds"]
        ]
        # The longest first: several models take as long as several trainings.
        jobs.sort(key=lambda job: not any("together" in word for word in job["settings"]))
        deadline = time.monotonic() + options.seconds
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(lambda job: in_process(job, deadline), jobs))
        others = [BASE, *options.beside]
        results = {path.name: compared(path.name, Path(folder), others) for path in options.data if path.name in asked}
    print(json.dumps(results, indent=1))
    if options.out:
        command = typed_command("parts", words)
        write_result(options.out, "direct_parts", {"jobs": asked, **results}, command)


def in_process(job: dict[str, Any], deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        return
    command = [sys.executable, "-m", "benchmarks.parts", CHILD, json.dumps(job)]
    named = f"{Path(job['data']).name} {job['variant']} seed {job['seed']}"
    try:
        done = subprocess.run(command, timeout=left, check=False, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        print(f"{named}: no time", flush=True)
        return
    print(f"{named}: {done.stdout.strip() or done.stderr.strip()[-500:]}", flush=True)


def trained_and_measured(data: str, variant: str, settings: list[str], seed: int, device: str, out: str) -> None:
    import longtail
    from benchmarks.sets import search_on_gpu
    from longtail.data.read import read
    from longtail.evaluation import Yardstick, rank_test
    from longtail.models.rankers import IndexedRows
    from longtail.predictor import Predictor
    from longtail.recipes import make_recipe
    from longtail.training.progress import SilentDisplay

    whole = read(data)
    yardstick, began = Yardstick.of(whole), time.monotonic()
    recipe = make_recipe("direct", assignments=settings)
    with tempfile.TemporaryDirectory() as folder:
        model = longtail.train(
            whole, Path(folder) / "run", recipe, seed=seed, device=device, display=SilentDisplay(), examples=False
        )
        ranker: Any = model.bundle.ranker
        if device != "cpu" and _has_gpu():
            search_on_gpu(ranker)
        bare = IndexedRows(ranker.encoder, ranker.refinement, ranker.index)
        without = Predictor(replace(model.bundle, ranker=bare))
        for name, asked in ((variant, model), (WITHOUT_MEMORY.format(variant), without)):
            measured = yardstick.measure(rank_test(asked, yardstick, SilentDisplay()))
            kept = [measured.names.index(metric) for metric in SHOWN]
            arrays: dict[str, Any] = {
                "numerators": measured.numerators[:, kept],
                "denominators": measured.denominators,
                "divisor": measured.divisor[kept],
            }
            aside = Path(out) / f".{os.getpid()}.npz"
            np.savez_compressed(aside, about=json.dumps(yardstick.about()), **arrays)
            aside.rename(Path(out) / f"{Path(data).name}+{name}+{seed}.npz")
            values = measured.values()
            print(name, {metric: round(values[metric], 2) for metric in SHOWN}, round(time.monotonic() - began, 1))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def compared(name: str, folder: Path, others: Sequence[str] = (BASE,)) -> dict[str, Any]:
    """Values by seed, and differences from `others`, of all that lies in `folder` for the set `name`."""
    from longtail.metrics import paired_bootstrap

    found: dict[str, dict[int, Any]] = {}
    about: dict[str, Any] = {}
    for path in sorted(folder.glob(f"{name}+*.npz")):
        _, variant, seed = path.stem.split("+")
        with np.load(path) as arrays:
            about = json.loads(str(arrays["about"]))
            found.setdefault(variant, {})[int(seed)] = per_document(arrays)
    results: dict[str, Any] = {**about, "variants": {}}
    for variant, seeds in found.items():
        by_seed = {seed: rounded(one.values()) for seed, one in seeds.items()}
        mean = {m: round(float(np.mean([values[m] for values in by_seed.values()])), 3) for m in SHOWN}
        results["variants"][variant] = {"by seed": by_seed, "mean": mean}
        for other in others:
            both = sorted(set(seeds) & set(found.get(other, {})))
            if variant == other or not both:
                continue
            here, there = (mean_over([models[seed] for seed in both]) for models in (seeds, found[other]))
            differences = paired_bootstrap(here, there, rng=np.random.default_rng(0))
            results["variants"][variant][f"beside {other}"] = {
                "seeds": both,
                **{m: [round(d.mean, 2), round(d.low, 2), round(d.high, 2)] for m, d in differences.items()},
            }
    return results


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {metric: round(value, 3) for metric, value in values.items()}


def per_document(arrays: Any) -> Any:
    from longtail.metrics.scores import PerDocument

    return PerDocument(SHOWN, arrays["numerators"], arrays["denominators"], arrays["divisor"])


def mean_over(models: list[Any]) -> Any:
    """Of several models on the same documents: what each document gets in the mean."""
    return replace(models[0], numerators=np.mean([model.numerators for model in models], axis=0))


if __name__ == "__main__":
    main()
