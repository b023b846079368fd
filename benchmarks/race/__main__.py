"""The race: our recipes and the peers on the same data in one run, from raw text to named labels.

    make race DATA=path/to/data                         installs the peers, trains, measures
    python -m benchmarks.race [DATA] --peer-python PEER_VENV/bin/python
    python -m benchmarks.race DATA --peer-python PEER_VENV/bin/python --model direct=RUN
    --model eclare=FOLDER

DATA: a data set (default: the embedded sample). Trains what is not trained yet: models are kept under --work, so the
same command resumes, and measures again. Then all take turns at predicting, on one thread and on all: a busy machine
slows all. Everybody ranks 10 labels with the default beam; making features of the text counts. Accuracy comes with
paired bootstrap intervals against our first recipe. A peer that is not installed is skipped, and said so
(`peer_systems` says how to install them). --model: one that was trained before or elsewhere, e.g. on a GPU machine;
the table says so, and what is known of its training (`training_record` writes it down there). Writes
benchmarks/results/race_DATA.json and .md, unless --out names another place.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race.contestants import Contestant, Course, Ours, Packed, PeerContestant
from benchmarks.race.measuring import Plan, accuracy, race
from benchmarks.race.table import markdown
from benchmarks.record import ROOT, write_result
from longtail.data.dataset import Dataset
from longtail.data.read import read, sample_folder
from longtail.errors import LongtailError
from longtail.persistence import read_json, written_aside

RECIPES, PEERS = "direct,eclare", "pecos,omikuji,napkinxc,knn"


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    try:
        run(options)
    except LongtailError as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.race", description="Our recipes and the peers on the same data in one run."
    )
    parser.add_argument("data", nargs="?", default="", help="a data set (default: the embedded sample)")
    parser.add_argument(
        "--recipes", default=RECIPES, help=f"ours to train, the first is compared with (default {RECIPES})"
    )
    help_model = "a trained model of ours, in place of training it; beside a bundle may lie its training.json"
    parser.add_argument(
        "--models",
        "--model",
        type=named_model,
        action="append",
        default=[],
        metavar="NAME=RUN_OR_BUNDLE",
        help=help_model,
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=c", help="a setting of our recipes that are trained here"
    )
    parser.add_argument(
        "--packed",
        default="int8",
        choices=("int8", "int4", "float16", "none"),
        help="also our models as `longtail pack` writes them",
    )
    parser.add_argument("--peers", default=PEERS, help=f"peers (default {PEERS}); module:Class for another")
    parser.add_argument(
        "--peer-python",
        default=sys.executable,
        metavar="PYTHON",
        help="the interpreter of the peers' own environment (default: this one)",
    )
    parser.add_argument("--fields", default="title", help="text fields that everybody reads (default title)")
    parser.add_argument(
        "--test",
        type=int,
        default=0,
        metavar="N",
        help="only so many test documents, drawn by a fixed seed (default: all)",
    )
    parser.add_argument("--singles", type=int, default=300, help="documents asked one by one (default 300)")
    parser.add_argument("--batches", type=int, default=20, help="batches of 512 documents (default 20), four in turn")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/race"), help="keeps what is trained (default runs/race)"
    )
    parser.add_argument(
        "--out", type=Path, help="the result (default benchmarks/results/race_DATA.json; the table beside it)"
    )
    parser.add_argument("--note", default="", help="a sentence for the result, e.g. what else ran on the machine")
    return parser.parse_args(arguments)


def named_model(item: str) -> tuple[str, Path]:
    name, equals, path = item.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"'{item}', expected NAME=RUN_OR_BUNDLE, e.g. direct=runs/books")
    return name, Path(path)


def run(options: argparse.Namespace) -> None:
    plan = Plan(singles=options.singles, batches=options.batches)
    source = options.data or str(sample_folder())
    data = fewer(read(source), options.test)
    course = Course.of(data, source, tuple(options.fields.split(",")), options.work / data.name, plan.all_threads)
    contestants = [*ours(options, course), *peers(options, course)]
    tops = {one.name: one.rank() for one in contestants}
    quality = accuracy(course.yardstick, tops)
    speed = race(contestants, course, plan)
    numbers = {one.name: {**one.about(), **quality[one.name], **speed[one.name]} for one in contestants}
    out = options.out or ROOT / "benchmarks" / "results" / f"race_{data.name}.json"
    config = {**vars(plan), "fields": course.fields, "set": options.set, "test_documents": len(course.texts)}
    about = {
        **course.yardstick.about(),
        "date": datetime.now(UTC).date().isoformat(),
        "note": options.note,
        "contestants": numbers,
    }
    write_result(out, "race", about, command_of(options), data.digest, 0, config)
    table = markdown(read_json(out))
    with written_aside(out.with_suffix(".md")) as aside:
        aside.write_text(table, encoding="utf-8")
    print(table)


def command_of(options: argparse.Namespace) -> str:
    """As typed, with names in place of this machine's folders."""
    words = ["python", "-m", "benchmarks.race", *([f"DATA/{Path(options.data).name}"] if options.data else [])]
    words += [word for name, _ in options.models for word in ("--model", f"{name}=RUN")]
    words += [word for item in options.set for word in ("--set", item)]
    for name, default in (
        ("recipes", RECIPES),
        ("peers", PEERS),
        ("packed", "int8"),
        ("fields", "title"),
        ("test", 0),
        ("singles", 300),
        ("batches", 20),
    ):
        value = getattr(options, name)
        words += [f"--{name}", str(value)] if value != default else []
    return shlex.join([*words, "--peer-python", "PEER_VENV/bin/python"])


def fewer(data: Dataset, documents: int) -> Dataset:
    test = data.need_test()
    if not documents or documents >= len(test):
        return data
    chosen = np.sort(np.random.default_rng(0).permutation(len(test))[:documents])
    return replace(data, test=test.rows(chosen))


def ours(options: argparse.Namespace, course: Course) -> list[Contestant]:
    """Each of our models, trained, and packed after it."""
    given = dict(options.models)
    names = [*given, *(name for name in options.recipes.split(",") if name and name not in given)]
    found: list[Contestant] = []
    for name in names:
        whole = Ours(name, course, given[name]) if name in given else Ours.of_recipe(name, course, options.set)
        say(f"{name}: {whole.folder}")
        whole.prepare()
        found.append(whole)
        if options.packed != "none" and "packed" not in about_bundle(whole):
            packed = Packed.of(whole, options.packed)
            packed.prepare()
            found.append(packed)
    return found


def about_bundle(model: Ours) -> Any:
    from longtail.bundle import MANIFEST, find_bundle

    return read_json(find_bundle(model.folder) / MANIFEST)


def peers(options: argparse.Namespace, course: Course) -> list[Contestant]:
    found: list[Contestant] = []
    for name in filter(None, options.peers.split(",")):
        peer = PeerContestant.found(name, course, options.peer_python)
        if isinstance(peer, str):
            say(f"{name}: skipped, {peer}")
            continue
        say(f"{name}: {peer.folder}")
        peer.prepare()
        found.append(peer)
    return found


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
