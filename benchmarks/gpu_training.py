"""Where the seconds of a training of `direct` on a GPU go, from files to the bundle.

``python -m benchmarks.gpu_training DATA... --out FILE [--parts] [--steps] [--runs 2] [--effort] [--set a.b=c]
[--limit SECONDS] [--add]``

DATA: a data set, or ``shape-131k`` for planted data of that shape (`benchmarks.sets`), which is written to files first;
a folder of this name has them already.
Each set is trained `--runs` times by ``longtail train`` in a new process, timed from outside; the first time kernels
may have to be compiled. --parts: once more it is trained with a clock around each part; parts wait for the GPU, so this
training is somewhat slower. --steps: also what a step takes, for one model and for three, recorded and plain. --effort:
also ``longtail train --effort normal`` beside the others, once. --limit: so long after the first training of a set
began, the one that runs is stopped. --add: what FILE has stays, and what is measured now is added. Each number is
written as soon as it is known.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.record import typed_command, write_result

SHAPE, CHILD = "shape-131k", "--child"

# A part's name -> where the function is looked up when it is called. None of them is called inside another.
PARTS = {
    "reading files": "longtail.pipeline:read",
    "texts to features": "longtail.pipeline:prepare",
    "anchors": "longtail.recipes.direct.recipe:anchor_columns",
    "label graph": "longtail.recipes.direct.recipe:Direct.label_graph",
    "targets": "longtail.recipes.direct.recipe:Direct.targets",
    "targets to the GPU": "longtail.recipes.direct.recipe:marked_targets",
    "new models": "longtail.recipes.direct.recipe:new_learner",
    "steps": "longtail.recipes.direct.recipe:fit_stage",
    "several as one": "longtail.recipes.direct.recipe:as_one",
    "index": "longtail.recipes.direct.recipe:build_index",
    "memory of documents": "longtail.recipes.direct.recipe:remembering",
    "saving stages": "longtail.training.run:save_part",
    "opening stages": "longtail.training.run:load_part",
    "company of labels": "longtail.pipeline:Company.of",
    "writing the bundle": "longtail.pipeline:write_bundle",
    "opening the bundle": "longtail.pipeline:open_bundle",
}


def main() -> None:
    if sys.argv[1:2] == [CHILD]:
        job = json.loads(sys.argv[2])
        asked: dict[str, Callable[..., Any]] = {"parts": parts_of, "steps": steps_of}
        print(json.dumps(asked[job.pop("what")](**job)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--effort", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS")
    parser.add_argument("--add", action="store_true")
    options = parser.parse_args()
    before = (read_json(options.out) if options.add else None) or {"numbers": {}, "command": ""}
    command = "; ".join(filter(None, [before["command"], typed_command("gpu_training", sys.argv[1:])]))
    results: dict[str, Any] = before["numbers"]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.data:
            called = " ".join([Path(name).name, *options.set])
            found = results.setdefault(called, {})
            path, settings = name, [*options.set]
            if Path(name).name == SHAPE:
                from benchmarks.sets import SETTINGS_131K

                path = name if Path(name).is_dir() else planted(Path(folder) / SHAPE)
                settings = [*SETTINGS_131K["direct"], *options.set]
            for key, value in measurements(path, settings, options, Path(folder)):
                found[key] = value
                print(called, key, json.dumps(value), flush=True)
                write_result(options.out, "gpu_training", results, command)


def measurements(path: str, settings: list[str], options: Any, folder: Path) -> Iterator[tuple[str, Any]]:
    yield "settings", settings
    until = time.monotonic() + options.limit
    words = [word for setting in settings for word in ("--set", setting)]
    walls, out = [], folder / Path(path).name
    for number in range(options.runs):
        walls.append(seconds_of_training([path, "--out", f"{out}-{number}", *words], until))
        yield "seconds from files to the bundle", walls
        yield "what was said of steps", said_of_steps(Path(f"{out}-{number}"))
    if options.effort:
        yield (
            "seconds with --effort normal",
            seconds_of_training([path, "--out", f"{out}-effort", "--effort", "normal", *words], until),
        )
        yield "seconds of its trials", read_json(Path(f"{out}-effort") / "choices/seconds.json")
    if options.parts:
        yield "parts", in_child({"what": "parts", "path": path, "settings": settings})
    if options.steps:
        for models in (1, 3):
            job = {"what": "steps", "path": path, "settings": settings, "models": models}
            yield f"steps, models: {models}", in_child(job)


def seconds_of_training(arguments: list[str], until: float = math.inf) -> float | str:
    """Of ``longtail train`` in a process of its own; or the end of what it said when it failed.  until: a time of the
    monotonic clock, at which it is stopped.
    """
    began = time.monotonic()
    limit = None if until == math.inf else max(until - began, 0.0)
    command = [sys.executable, "-m", "longtail", "train", *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"stopped after {limit:.0f} seconds"
    return round(time.monotonic() - began, 2) if done.returncode == 0 else done.stderr[-800:]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def said_of_steps(run: Path) -> list[Any]:
    """Lines of metrics.jsonl that say whether steps were recorded."""
    file = run / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    return [
        {key: line[key] for key in ("recorded", "why") if key in line} for line in lines if line["event"] == "steps"
    ]


def in_child(job: dict[str, Any]) -> Any:
    command = [sys.executable, "-m", "benchmarks.gpu_training", CHILD, json.dumps({**job, "began": time.time()})]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else done.stderr[-1500:]


def planted(folder: Path) -> str:
    from benchmarks.sets import SHAPE_131K
    from longtail.data.read import write
    from longtail.data.synthetic import synthesise

    write(synthesise(SHAPE_131K, 0).dataset, folder, "lf")
    return str(folder)


# ---- in a process of its own ----


def parts_of(path: str, settings: list[str], began: float, keep: str = "") -> dict[str, Any]:
    """Seconds by part, of a training in this process; `began` is when it was started.  keep: a folder for the run."""
    found: dict[str, float] = {"start of Python": time.time() - began}

    @contextmanager
    def clock(name: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        found[name] = found.get(name, 0.0) + time.monotonic() - begun

    with clock("importing longtail"):
        pipeline = importlib.import_module("longtail.pipeline")
    with clock("importing torch"):
        torch: Any = importlib.import_module("torch")
    with clock("importing the recipe"):
        recipe = importlib.import_module("longtail.recipes").make_recipe("direct", assignments=settings)
        importlib.import_module("longtail.recipes.direct.recipe")
    with clock("start of CUDA"):
        torch.zeros(1, device="cuda")

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*given: Any, **named: Any) -> Any:
            torch.cuda.synchronize()
            with clock(name):
                result = function(*given, **named)
                torch.cuda.synchronize()
            return result

        return inner

    for name, place in PARTS.items():
        module, _, attribute = place.partition(":")
        owner: Any = importlib.import_module(module)
        *inside, last = attribute.split(".")
        for step in inside:
            owner = getattr(owner, step)
        setattr(owner, last, watched(name, getattr(owner, last)))
    with tempfile.TemporaryDirectory() as folder, clock("all of train"):
        pipeline.train(path, keep or Path(folder) / "run", recipe, device="cuda", progress=False)
    found["everything"] = time.time() - began
    named = sum(found.get(name, 0.0) for name in PARTS)
    found["train, not in a part"] = found["all of train"] - named
    return {
        "seconds": {name: round(value, 3) for name, value in found.items()},
        "peak GPU memory, MB": torch.cuda.max_memory_allocated() // 2**20,
    }


def steps_of(path: str, settings: list[str], models: int, began: float) -> dict[str, Any]:
    """Milliseconds of a step of whole batches, and its kernels: recorded, then plain."""
    import numpy as np
    import torch

    from longtail.data.read import read
    from longtail.recipes import make_recipe
    from longtail.training import adapted_batch
    from longtail.training.prepare import prepare
    from longtail.training.progress import SilentDisplay
    from longtail.training.run import Run

    module: Any = importlib.import_module("longtail.recipes.direct.recipe")
    made: Any = make_recipe("direct", assignments=[*settings, f"train.together={models}"])
    ready = prepare(read(path, test=False), made.config.features)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), seed=0, device="cuda", display=SilentDisplay())
        shared = made.shared(ready, run)
        learners = [module.new_learner(made.config, shared, run, number, None) for number in range(models)]
        batch, rng = adapted_batch(ready.n_documents, made.config.train.batch), np.random.default_rng(0)
        result: dict[str, Any] = {"batch": batch, "labels and anchors": shared.targets.columns}

        def go(objective: Any, steps: int) -> tuple[float, float]:
            """Milliseconds of a step: until all was told, and until all was done."""
            order = np.concatenate(
                [rng.permutation(ready.n_documents) for _ in range(1 + steps * batch // ready.n_documents)]
            )
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for number in range(steps):
                objective.step(order[number * batch : (number + 1) * batch], rng, 1e-3)
            told = time.perf_counter() - begun
            torch.cuda.synchronize()
            return 1000 * told / steps, 1000 * (time.perf_counter() - begun) / steps

        for name, choice in (("recorded", "auto"), ("plain", "off")):
            objective = module.steps_of([learner.objective for learner in learners], choice, run)
            go(objective, 40)
            told, done = go(objective, 200)
            result[name] = {
                "ms a step": round(done, 3),
                "ms of the processor": round(told, 3),
                **profiled(objective, go),
            }
        result["peak GPU memory, MB"] = torch.cuda.max_memory_allocated() // 2**20
    return result


def profiled(objective: Any, go: Callable[[Any, int], Any], steps: int = 40) -> dict[str, Any]:
    """Kernels of a step."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        go(objective, steps)
    kernels = [event for event in profile.key_averages() if event.self_device_time_total > 0]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    return {
        "GPU ms a step": round(sum(event.self_device_time_total for event in kernels) / steps / 1000, 3),
        "kernels a step": round(sum(event.count for event in kernels) / steps, 1),
        "by GPU time": [
            {
                "name": event.key[:160],
                "us": round(event.self_device_time_total / steps, 1),
                "calls": event.count / steps,
            }
            for event in kernels[:24]
        ],
    }


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
