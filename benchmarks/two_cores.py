"""A recipe (`direct` by default) with its defaults on two cores: how long training takes, and how good the model is.

``python -m benchmarks.two_cores DATA... --out FILE [--seed 0] [--holdout 0.1] [--recipe direct] [--set a.b=c]
[--profile]``

Every data set is trained in a process of its own, with two threads on two cores, after its kernels were compiled. It is
measured on its test documents, or with --holdout on so large a share of the training documents, which is how settings
are chosen. Seconds of the wall mean something on a quiet machine alone; seconds of the processors, and the load before
the training, are recorded beside them. --profile: also the functions that take most of the time themselves, what they
call not counted; kernels and products are functions, too. Watching costs some percent of the time.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.race.contestants import environment
from benchmarks.record import typed_command, write_result

CORES = 2
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5", "R@10", "R@100")
CHILD = "--child"
LONGEST = 20


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == [CHILD]:
        print(json.dumps(measured(**json.loads(words[1]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA", help="a data set")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--holdout", type=float, default=0.0, help="measure on this share of the training documents")
    parser.add_argument("--recipe", default="direct")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="a setting of the recipe")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(words)
    results: dict[str, Any] = {}
    for path in options.data:
        asked = {
            "data": str(path),
            "recipe": options.recipe,
            "assignments": options.set,
            "seed": options.seed,
            "holdout": options.holdout,
            "profile": options.profile,
        }
        results[path.name] = alone(asked)
        print(json.dumps({path.name: results[path.name]}), flush=True)
        if options.out:
            hashes = ", ".join(f"{name}: {found['data_hash']}" for name, found in results.items())
            config = {name: found["config"] for name, found in results.items()}
            write_result(
                options.out,
                "two_cores",
                results,
                typed_command("two_cores", words),
                data_hash=hashes,
                seed=options.seed,
                config=config,
            )


def alone(asked: dict[str, Any]) -> dict[str, Any]:
    """`measured` in a process of its own, on two cores."""
    command = [sys.executable, "-m", "benchmarks.two_cores", CHILD, json.dumps(asked)]
    done = subprocess.run(command, env=environment(CORES), stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(
    data: str, recipe: str, assignments: list[str], seed: int, holdout: float, profile: bool = False
) -> dict[str, Any]:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    import longtail
    from longtail.config import to_tables
    from longtail.data.read import read
    from longtail.evaluation import Yardstick, rank_test
    from longtail.recipes import make_recipe
    from longtail.training.progress import PlainDisplay, SilentDisplay
    from longtail.warming import warm_up

    warm_up([recipe], SilentDisplay())
    load = os.getloadavg()[0]
    started, busy = time.perf_counter(), time.process_time()
    whole = read(data)
    known = whole.hold_out(holdout, seed) if holdout else whole
    made = make_recipe(recipe, assignments=assignments)
    with tempfile.TemporaryDirectory() as folder:
        run, watch = Path(folder) / "run", cProfile.Profile()
        if profile:
            watch.enable()
        model = longtail.train(known, run, made, device="cpu", seed=seed, display=PlainDisplay(seconds=30))
        watch.disable()
        seconds = {
            "from files to the model, wall": round(time.perf_counter() - started, 1),
            "processors": round(time.process_time() - busy, 1),
        }
        yardstick = Yardstick.of(known)
        scores = yardstick.score(rank_test(model, yardstick, SilentDisplay()))
    return {
        **yardstick.about(),
        "measured on": f"{holdout:g} of the training documents" if holdout else "test documents",
        "metrics": {name: round(scores[name], 2) for name in SHOWN},
        "seconds": seconds,
        "load before": round(load, 2),
        **({"most of the time": longest(watch)} if profile else {}),
        "config": to_tables(made.config),
    }


def longest(watch: cProfile.Profile) -> list[dict[str, Any]]:
    """The functions with the most seconds of their own."""
    found: Any = pstats.Stats(watch)
    own = sorted(found.stats.items(), key=lambda item: -item[1][2])[:LONGEST]
    return [
        {"function": f"{Path(file).name}:{line} {name}", "calls": calls, "seconds": round(seconds, 2)}
        for (file, line, name), (_, calls, seconds, _, _) in own
    ]


if __name__ == "__main__":
    main()
