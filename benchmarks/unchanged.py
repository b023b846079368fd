"""Every recipe trained with fixed seeds, its rankings and times kept: what a change of the code must not change.

    python -m benchmarks.unchanged record OUT [--source SRC] [--python PYTHON] [--once] [--only NAME ...]
    python -m benchmarks.unchanged turns OUT --before SRC --after SRC [--rounds 3] [--only NAME ...] [--json FILE.json]
    python -m benchmarks.unchanged compare BEFORE AFTER [--turns OUT] [--about TEXT] [--out FILE.json]

`record` trains the cases below on planted data through the command line of the package in SRC, and writes to the
folder OUT what they rank for the test documents (ids and scores, NAME.plain.npz and NAME.packed.npz) and times.json.
Every command runs twice: the first run may compile kernels, and its time does not count; with --once it runs once, and
times say nothing. OUT can be recorded into again, case by case. `turns` runs commands of two versions in turns and
keeps the medians (turns.json), of seconds of the processor, which other work on the machine hardly changes. `compare`
says which rankings differ, and how times moved; it ends with status 1 if any differs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.record import typed_command, write_result
from longtail.persistence import read_json, write_json

PLANTED = ["documents=900", "test_documents=300", "labels=160", "topics=8"]

# Name -> recipe and settings. A setting that goes takes its case with it.
CASES: dict[str, tuple[str, list[str]]] = {
    "tiny": ("tiny", []),
    "direct": ("direct", ["encoder.width=64", "train.epochs=6"]),
    "direct signed": ("direct", ["encoder.width=64", "train.epochs=6", "encoder.signed=on", "labels.map=on"]),
    "direct smoothed": ("direct", ["encoder.width=64", "train.epochs=6", "train.smoothing=0.3"]),
    "direct twice": ("direct", ["encoder.width=32", "train.epochs=4", "ensemble.learners=2"]),
    "astec": ("astec", ["surrogate.width=64", "reranker.enabled=false"]),
    "astec reranked": ("astec", ["surrogate.width=32", "reranker.enabled=true"]),
    "astec slice": ("astec", ["surrogate.width=32", "classify.learner=slice", "reranker.enabled=false"]),
    "astec dismec": ("astec", ["surrogate.width=32", "classify.learner=dismec", "reranker.enabled=false"]),
    "astec parabel": ("astec", ["surrogate.width=32", "classify.learner=parabel"]),
    "astec parabel game": ("astec", ["surrogate.width=32", "classify.learner=parabel", "game.enabled=true"]),
    "astec surrogate": ("astec", ["surrogate.width=32", "classify.learner=surrogate"]),
    "astec clusters": ("astec", ["surrogate.width=32", "shortlist.structures=clusters", "reranker.enabled=false"]),
    "astec mlp": ("astec", ["surrogate.width=32", "surrogate.encoder=mlp", "reranker.enabled=false"]),
    "astec cnn": (
        "astec",
        ["surrogate.width=32", "surrogate.encoder=cnn", "features.max_tokens=32", "reranker.enabled=false"],
    ),
    "astec unigram": ("astec", ["surrogate.width=32", "classify.negatives=unigram", "reranker.enabled=false"]),
    "astec inbatch": ("astec", ["surrogate.width=32", "classify.negatives=inbatch", "reranker.enabled=false"]),
    "astec unsupervised": ("astec", ["surrogate.width=32", "surrogate.task=unsupervised", "reranker.enabled=false"]),
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
        [
            "astec.width=32",
            "astec.epochs=4",
            "surrogate.epochs=6",
            "hops.encoder=sage",
            "surrogate.head=links",
            "classify.epochs=0",
        ],
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
TIMES = "seconds of the processor, after / before"
# Bundles that are packed, too.
PACKED = ("direct", "astec", "eclare", "galaxc", "astec parabel", "direct twice", "ngame", "ramen direct")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    recorder = commands.add_parser("record", help="train the cases and keep what they rank")
    recorder.add_argument("out", type=Path, metavar="OUT")
    recorder.add_argument("--python", default=sys.executable, help="the interpreter (default: this one)")
    recorder.add_argument(
        "--source", type=Path, default=Path("src"), help="the folder that holds the package longtail (default: src)"
    )
    recorder.add_argument("--once", action="store_true", help="rankings alone: every command runs once")
    recorder.add_argument("--only", nargs="*", default=[], metavar="NAME", help="cases (default: all)")
    turner = commands.add_parser("turns", help="times of two versions, in turns")
    turner.add_argument("out", type=Path, metavar="OUT")
    turner.add_argument("--python", default=sys.executable, help="the interpreter (default: this one)")
    turner.add_argument("--before", type=Path, required=True, metavar="SRC")
    turner.add_argument("--after", type=Path, required=True, metavar="SRC")
    turner.add_argument("--rounds", type=int, default=3)
    turner.add_argument("--only", nargs="*", default=[], metavar="NAME", help="cases (default: all)")
    turner.add_argument("--json", type=Path, metavar="FILE.json", help="keep the times as a result")
    turner.add_argument("--about", default="", help="which versions these are, for the result")
    comparer = commands.add_parser("compare", help="hold two records against each other")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    comparer.add_argument("--turns", type=Path, metavar="OUT", help="where `turns` kept its times")
    comparer.add_argument("--about", default="", help="what was recorded where, for the result")
    comparer.add_argument("--out", type=Path, metavar="FILE.json")
    options = parser.parse_args(arguments)
    if options.command == "compare":
        return compare(options.before, options.after, options.turns, options.out, options.about)
    unknown = [name for name in options.only if name not in CASES]
    if unknown:
        parser.error(f"no case {', '.join(map(repr, unknown))}; cases: {', '.join(CASES)}")
    names = options.only or list(CASES)
    if options.command == "turns":
        versions = {side: Program(options.python, getattr(options, side)) for side in ("before", "after")}
        found = turns(options.out, versions, names, options.rounds)
        if options.json:
            command = typed_command("unchanged", sys.argv[1:] if arguments is None else arguments)
            write_result(options.json, "unchanged_times", {"about": options.about, TIMES: found}, command, seed=0)
        return 0
    return record(options.out, Program(options.python, options.source), names, runs=1 if options.once else 2)


# ---- record ----


class Failed(SystemExit):
    """A command of longtail that did not end well, with what it said. Ends a recording where no case catches it."""


@dataclass(frozen=True)
class Program:
    """A version of longtail: an interpreter, and the folder that holds the package."""

    python: str
    source: Path

    def seconds(self, *words: str) -> float:
        """Of one command."""
        return self.times(*words)[0]

    def times(self, *words: str) -> tuple[float, float]:
        """Seconds of one command: of the clock, and of the processor."""
        started, used = time.perf_counter(), _processor_seconds()
        done = subprocess.run(
            [self.python, "-m", "longtail", *words],
            env={**os.environ, "PYTHONPATH": str(self.source.resolve())},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"longtail {' '.join(words)}\n{done.stderr}")
        return time.perf_counter() - started, _processor_seconds() - used


def _processor_seconds() -> float:
    """Of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def record(out: Path, program: Program, names: Sequence[str], runs: int = 2) -> int:
    """Status 1 if a case failed; the others are recorded."""
    out.mkdir(parents=True, exist_ok=True)
    data, times_file = out.resolve() / "planted", out / "times.json"
    if not data.exists():
        program.seconds("data", "synthetic", str(data), *set_words(PLANTED))
    times: dict[str, dict[str, Any]] = read_json(times_file) if times_file.exists() else {}
    for name in names:
        try:
            times[name] = record_case(out.resolve(), data, program, name, runs)
            print(f"{name:<20}" + "".join(f"  {what} {s:.2f} s" for what, s in times[name].items()), flush=True)
        except Failed as problem:
            times[name] = {"error": str(problem)}
            print(f"{name}: {problem}", flush=True)
        write_json(times_file, times)
    return int(any("error" in times[name] for name in names))


def record_case(out: Path, data: Path, program: Program, name: str, runs: int) -> dict[str, float]:
    """Train, pack and predict; gives the seconds of each."""
    recipe, settings = CASES[name]
    file_name = name.replace(" ", "_")
    run = out / file_name
    places = [str(data), "--recipe", recipe, "--out", str(run), "--device", "cpu", "--restart"]
    models, seconds = {"plain": run}, {}
    for _ in range(runs):
        seconds["train"] = program.seconds("train", *places, *set_words(settings))
    if name in PACKED:
        models["packed"] = packed = out / f"{file_name}.packed"
        shutil.rmtree(packed, ignore_errors=True)
        program.seconds("pack", str(run), str(packed), "--index", "exact" if recipe in ("direct", "ramen") else "auto")
    for kind, model in models.items():
        ranking = str(out / f"{file_name}.{kind}.npz")
        asked = ["--input", str(data / "tst.json.gz"), "-k", "20", "--format", "npz", "--output", ranking]
        for _ in range(runs):
            seconds[f"predict {kind}"] = program.seconds("predict", str(model), *asked)
    return seconds


def set_words(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def turns(out: Path, versions: Mapping[str, Program], names: Sequence[str], rounds: int) -> dict[str, float]:
    """Median seconds of the processor, after / before, of starting, training and predicting; the first round of each
    compiles, and does not count.
    """
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    data, found = out / "planted", dict[str, float]()
    if not data.exists():
        versions["before"].seconds("data", "synthetic", str(data), *set_words(PLANTED))
    commands: dict[str, Callable[[str], list[str]]] = {"start": lambda _: ["recipes"]}
    for name in names:
        recipe, settings = CASES[name]
        words = ["--recipe", recipe, "--device", "cpu", "--restart", *set_words(settings)]
        run = str(out / name.replace(" ", "_"))
        commands[f"train {name}"] = partial(_train_words, run, str(data), words)
        commands[f"predict {name}"] = partial(_predict_words, run)
    for what, words_of in commands.items():
        seconds: dict[str, list[float]] = {side: [] for side in versions}
        for turn in range(rounds + 1):
            for side, version in versions.items():
                spent = version.times(*words_of(side))[1]
                if turn:
                    seconds[side].append(spent)
        found[what] = round(median(seconds["after"]) / median(seconds["before"]), 3)
        print(f"{what:<30} {found[what]}", flush=True)
        write_json(out / "turns.json", found)
    return found


def _train_words(run: str, data: str, words: list[str], side: str) -> list[str]:
    return ["train", data, "--out", f"{run}.{side}", *words]


def _predict_words(run: str, side: str) -> list[str]:
    return ["predict", f"{run}.{side}", "a text", "another"]


# ---- compare ----


def compare(before: Path, after: Path, in_turns: Path | None = None, out: Path | None = None, about: str = "") -> int:
    """Prints, and records in `out`, what became of every ranking of `before`."""
    rankings = {
        file.name.removesuffix(".npz"): difference(file, after / file.name) for file in sorted(before.glob("*.npz"))
    }
    numbers = {
        **({"about": about} if about else {}),
        "rankings": {name: found or "equal to the last bit" for name, found in rankings.items()},
        "seconds after / before": (
            read_json(in_turns / "turns.json")
            if in_turns
            else time_ratios(read_json(before / "times.json"), read_json(after / "times.json"))
        ),
    }
    print(json.dumps(numbers, indent=1))
    if out:
        command = "python -m benchmarks.unchanged record OUT, at both commits, then compare BEFORE AFTER"
        write_result(out, "unchanged", numbers, command, seed=0)
    return int(any(rankings.values()))


def difference(before: Path, after: Path) -> str:
    """In words; empty where both files hold the same arrays to the last bit."""
    if not after.exists():
        return "missing"
    with np.load(before, allow_pickle=False) as one, np.load(after, allow_pickle=False) as other:
        names = sorted({*one.files, *other.files} - {"ids"})  # of documents; older versions wrote none
        changed = [n for n in names if n not in one.files or n not in other.files or not same(one[n], other[n])]
    return f"arrays that differ: {', '.join(changed)}" if changed else ""


def same(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def time_ratios(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, float]]:
    """For cases that ran on both sides."""
    return {
        name: {what: round(after[name][what] / seconds, 3) for what, seconds in times.items() if what in after[name]}
        for name, times in before.items()
        if name in after and "error" not in times and "error" not in after[name]
    }


if __name__ == "__main__":
    raise SystemExit(main())
