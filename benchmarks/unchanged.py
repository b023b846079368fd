"""Every recipe trained with fixed seeds, its predictions and times kept: what a change of the code must not change.

``python -m benchmarks.unchanged record OUT [--python PYTHON] [--source SRC] [--only NAME ...]`` trains the cases
below on planted data through the command line and writes their rankings (ids and scores, npz) and times to the folder
OUT. ``python -m benchmarks.unchanged compare BEFORE AFTER --out FILE.json`` says which rankings differ, by how much,
and how times moved. Every case runs twice in turn; the first run may compile kernels and its time does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_result

PLANTED = ["documents=900", "test_documents=300", "labels=160", "topics=8"]

# Name -> recipe and settings. Names that no version of the recipe knows any more leave this table with them.
CASES: dict[str, tuple[str, list[str]]] = {
    "tiny": ("tiny", []),
    "direct": ("direct", ["encoder.width=64", "train.epochs=6"]),
    "direct signed": ("direct", ["encoder.width=64", "train.epochs=6", "encoder.signed=on", "labels.map=on"]),
    "direct smoothed": ("direct", ["encoder.width=64", "train.epochs=6", "train.smoothing=0.3"]),
    "direct twice": ("direct", ["encoder.width=32", "train.epochs=4", "ensemble.learners=2"]),
    "astec": ("astec", ["surrogate.width=64"]),
    "astec reranked": ("astec", ["surrogate.width=32", "reranker.enabled=true"]),
    "astec slice": ("astec", ["surrogate.width=32", "classify.learner=slice"]),
    "astec dismec": ("astec", ["surrogate.width=32", "classify.learner=dismec"]),
    "astec parabel": ("astec", ["surrogate.width=32", "classify.learner=parabel"]),
    "astec parabel game": ("astec", ["surrogate.width=32", "classify.learner=parabel", "game.enabled=true"]),
    "astec surrogate": ("astec", ["surrogate.width=32", "classify.learner=surrogate"]),
    "astec clusters": ("astec", ["surrogate.width=32", "shortlist.structures=clusters"]),
    "astec mlp": ("astec", ["surrogate.width=32", "surrogate.encoder=mlp"]),
    "astec cnn": ("astec", ["surrogate.width=32", "surrogate.encoder=cnn", "features.max_tokens=32"]),
    "astec unigram": ("astec", ["surrogate.width=32", "classify.negatives=unigram"]),
    "astec inbatch": ("astec", ["surrogate.width=32", "classify.negatives=inbatch"]),
    "astec unsupervised": ("astec", ["surrogate.width=32", "surrogate.task=unsupervised"]),
    "eclare": ("eclare", ["surrogate.width=64"]),
    "eclare ppr": ("eclare", ["surrogate.width=32", "classify.negatives=ppr"]),
    "eclare full": ("eclare", ["surrogate.width=32", "classify.negatives=full"]),
    "eclare text": ("eclare", ["surrogate.width=32", "composition.graph=none", "transfer.start=text"]),
    "galaxc": ("galaxc", ["astec.width=32", "astec.epochs=6", "surrogate.epochs=8", "classify.epochs=6"]),
    "galaxc gin": (
        "galaxc",
        ["astec.width=32", "astec.epochs=4", "surrogate.epochs=6", "classify.epochs=4", "hops.encoder=gin"],
    ),
    "galaxc sage": (
        "galaxc",
        ["astec.width=32", "astec.epochs=4", "surrogate.epochs=6", "classify.epochs=4", "hops.encoder=sage"],
    ),
    "galaxc links": (
        "galaxc",
        ["astec.width=32", "astec.epochs=4", "surrogate.epochs=6", "classify.epochs=4", "classify.head=links"],
    ),
    "gnnxml": ("gnnxml", ["matcher.width=32", "matcher.epochs=12", "clusters.count=8"]),
    "ance": ("ance", ["encoder.width=64", "train.epochs=8"]),
    "ngame": ("ngame", ["encoder.width=64", "train.epochs=8", "classify.epochs=4"]),
    "dexml": ("dexml", ["encoder.width=64", "train.epochs=8"]),
    "siamese": ("siamese", ["encoder.width=64", "train.epochs=8", "classify.epochs=4"]),
    "ramen ance": ("ramen", ["base=ance", "encoder.width=64", "train.epochs=8"]),
    "ramen ngame": ("ramen", ["base=ngame", "encoder.width=64", "train.epochs=8"]),
    "ramen dexml": ("ramen", ["base=dexml", "encoder.width=64", "train.epochs=8"]),
    "ramen siamese": ("ramen", ["base=siamese", "encoder.width=64", "train.epochs=8"]),
    "ramen eclare": ("ramen", ["base=eclare", "eclare.surrogate.width=32", "eclare.surrogate.epochs=6"]),
    "ramen direct": ("ramen", ["base=direct", "direct.encoder.width=64", "direct.train.epochs=6"]),
}
# Bundles that are packed, too.
PACKED = ("direct", "astec", "eclare", "galaxc", "astec parabel", "direct twice", "ngame", "ramen direct")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("record")
    one.add_argument("out", type=Path)
    one.add_argument("--python", default=sys.executable)
    one.add_argument("--source", type=Path, default=Path("src"), help="the folder that holds the package longtail")
    one.add_argument("--only", nargs="*", default=[])
    one.set_defaults(run=record)
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--out", type=Path)
    two.set_defaults(run=compare)
    options = parser.parse_args(arguments)
    result: int = options.run(options)
    return result


def record(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    here = options.out.resolve()
    environment = {**os.environ, "PYTHONPATH": str(options.source.resolve())}

    def longtail(*words: str) -> float:
        started = time.perf_counter()
        done = subprocess.run(
            [options.python, "-m", "longtail", *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
        return time.perf_counter() - started

    data = here / "planted"
    if not data.exists():
        longtail("data", "synthetic", str(data), *(part for a in PLANTED for part in ("--set", a)))
    times = json.loads((here / "times.json").read_text()) if (here / "times.json").exists() else {}
    for name, (recipe, settings) in CASES.items():
        if options.only and name not in options.only:
            continue
        run = here / name.replace(" ", "_")
        words = [str(data), "--recipe", recipe, "--out", str(run), "--device", "cpu", "--restart"]
        command = ["train", *words, *(part for s in settings for part in ("--set", s))]
        try:
            longtail(*command)
            trained = longtail(*command)
            rankings = {"plain": run}
            if name in PACKED:
                packed = here / f"{run.name}.packed"
                subprocess.run(["rm", "-rf", str(packed)], check=True)
                longtail("pack", str(run), str(packed), "--index", "exact" if recipe in ("direct", "ramen") else "auto")
                rankings["packed"] = packed
            predicted = {}
            for kind, model in rankings.items():
                answer = ["predict", str(model), "--input", str(data / "tst.json.gz"), "-k", "20", "--format", "npz"]
                longtail(*answer, "--output", str(here / f"{run.name}.{kind}.npz"))
                predicted[kind] = longtail(*answer, "--output", str(here / f"{run.name}.{kind}.npz"))
        except SystemExit as problem:
            print(f"{name}: {problem}", flush=True)
            times[name] = {"error": str(problem)}
            continue
        times[name] = {"train": trained, **{f"predict {kind}": seconds for kind, seconds in predicted.items()}}
        print(f"{name:<20}" + "".join(f"  {what} {seconds:.2f} s" for what, seconds in times[name].items()), flush=True)
        (here / "times.json").write_text(json.dumps(times, indent=1))
    return 0


def rankings_of(file: Path) -> tuple[Any, Any]:
    """Ids and scores of an npz that `predict` wrote: CSR of scores, or arrays of their names."""
    with np.load(file, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}, sorted(found.files)


def compare(options: argparse.Namespace) -> int:
    rows: dict[str, Any] = {}
    worst = 0
    before, after = (json.loads((folder / "times.json").read_text()) for folder in (options.before, options.after))
    for file in sorted(options.before.glob("*.npz")):
        other = options.after / file.name
        name = file.name.removesuffix(".npz")
        if not other.exists():
            rows[name] = "missing"
            worst += 1
            continue
        (one, keys), (two, keys_after) = rankings_of(file), rankings_of(other)
        same = keys == keys_after and all(np.array_equal(one[key], two[key]) for key in keys)
        rows[name] = (
            "equal to the last bit"
            if same
            else {
                "arrays that differ": [key for key in keys if not np.array_equal(one[key], two.get(key, np.zeros(0)))]
            }
        )
        worst += not same
    timing = {
        name: {
            what: round(after[name][what] / seconds, 3) for what, seconds in told.items() if what in after.get(name, {})
        }
        for name, told in before.items()
        if "error" not in told
    }
    text = json.dumps({"rankings": rows, "seconds after / before": timing}, indent=1)
    print(text)
    if options.out:
        command = "python -m benchmarks.unchanged record OUT, at both commits, then compare BEFORE AFTER"
        write_result(options.out, "unchanged", {"rankings": rows, "seconds after / before": timing}, command, seed=0)
    return 1 if worst else 0


if __name__ == "__main__":
    raise SystemExit(main())
