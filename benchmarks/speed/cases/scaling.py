"""How prediction grows with the number of labels: planted models of 10,000 to ten million, packed.

    python -m benchmarks.speed scaling [--sizes 10000,100000,1000000] [--large] --out FILE.json
    python -m benchmarks.speed scaling DATA --sizes "" --like RUN

For every size: what each way of searching finds and costs (planted documents; `longtail.packing`), then a
bundle with the one that was taken, opened by a process of its own on one thread: opening, memory, milliseconds from
raw text to named labels. --large: also ten million labels (14 GB of memory, 4 GB of disk). --like: recall on the rows
of a trained bundle of `direct`, asked by test documents of DATA, beside planted ones of the same number. What planted
rows are like was taken from a model of yso-finna-en (case `shape`). Writes a plot beside the result.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race.contestants import Child
from benchmarks.speed.cases.shape import in_main_directions, trained
from benchmarks.speed.common import Measured, data_argument
from benchmarks.speed.planted_rows import planted_documents, planted_index
from benchmarks.speed.plot import log_log
from longtail.bundle import LabelTable, write_bundle
from longtail.data.dataset import Items
from longtail.data.read import read, sample_folder
from longtail.features.settings import SparseTextConfig
from longtail.features.sparse import SparseText
from longtail.models.encoders import FrozenBag, ResidualMap
from longtail.models.rankers import IndexedRows
from longtail.packing import QUERIES, Choice, SearchKind, choose
from longtail.search.index import ExactIndex, Index
from longtail.search.packed import PackedIndex, PackedRows
from longtail.types import F32

SIZES, LARGE = "10000,100000,1000000", 10_000_000
SINGLES, BATCH, BATCHES, K = 300, 512, 5, 10
# Exponents are given for all sizes and, as small models say little about large ones, from here on.
FROM = 100_000


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser, "with --like: whose test documents ask (default: label names)", optional=True)
    parser.add_argument("--sizes", default=SIZES, help=f"numbers of labels (default {SIZES})")
    parser.add_argument("--large", action="store_true", help=f"also {LARGE:,} labels")
    parser.add_argument("--width", type=int, default=128, help="numbers per row (default 128)")
    parser.add_argument(
        "--like", type=Path, metavar="RUN", help="check recall on the rows of a trained model of direct, too"
    )
    parser.add_argument(
        "--work",
        type=Path,
        help="where bundles are written for the time of the measurement (default: a temporary folder)",
    )


def measure(options: argparse.Namespace) -> Measured:
    sizes = [*(int(size) for size in options.sizes.split(",") if size), *([LARGE] if options.large else [])]
    numbers: dict[str, Any] = {}
    for labels in sizes:
        numbers[str(labels)] = measured(labels, options.width, options.work)
        print(json.dumps({labels: numbers[str(labels)]["taken"]}), file=sys.stderr, flush=True)
    result = {"sizes": numbers}
    if len(sizes) > 1:
        result |= growth(numbers)
    if options.like:
        result["like"] = like_trained(options.like, options.data, options.width)
    config = {"width": options.width, "k": K, "batch": BATCH, "queries": QUERIES}
    return Measured(result, config=config, plot=plot(numbers) if len(sizes) > 1 else "")


# ---- one size ----


def measured(labels: int, width: int, work: Path | None) -> dict[str, Any]:
    started = time.perf_counter()
    exact = planted_index(labels, width)
    made = time.perf_counter()
    choice = choose(exact, partial(planted_documents, exact, QUERIES))
    chosen = time.perf_counter()
    print(f"{labels:,} labels\n{choice.render()}", file=sys.stderr, flush=True)
    del exact
    with tempfile.TemporaryDirectory(dir=work) as folder:
        bundle = Path(folder) / "bundle"
        texts = write_model(bundle, choice.index, width)
        written = time.perf_counter()
        answers = asked(bundle, texts, Path(folder) / "log")
        size = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
    building = 0.0 if choice.taken is None else choice.taken.seconds
    seconds = {
        "making rows": made - started,
        "measuring and building": chosen - made,
        "writing the bundle": written - chosen,
        "building": building,
    }
    return {"taken": {**choice.about(), **answers}, "bytes": size, "seconds": seconds, "search": tried(choice)}


def tried(choice: Choice) -> list[dict[str, Any]]:
    return [vars(one) for one in choice.tried]


def write_model(folder: Path, index: Index, width: int) -> list[str]:
    """A bundle of random words over these rows; returns texts to ask it."""
    data, rng = read(sample_folder()), np.random.default_rng(0)
    featurizer = SparseText.fit(
        data.train.documents, data.labels, SparseTextConfig(fields=tuple(data.train.documents.fields), subwords="chars")
    )
    table = PackedRows.of(rng.standard_normal((featurizer.width, width), dtype=np.float32), "int8")
    weight = rng.standard_normal((width, width), dtype=np.float32) / np.float32(width)
    numbers = [str(number) for number in range(len(index))]
    labels = LabelTable.of(Items(numbers, {"title": numbers}), np.ones(len(index), np.int64))
    ranker = IndexedRows(FrozenBag(table), ResidualMap(weight), index)
    write_bundle(folder, about={"recipe": "direct"}, config="", labels=labels, featurizer=featurizer, ranker=ranker)
    return [data.labels.name(int(number)) for number in rng.permutation(len(data.labels))]


def asked(bundle: Path, texts: list[str], log: Path) -> dict[str, float]:
    """One thread, from raw text to named labels."""

    def some(start: int, count: int) -> list[str]:
        return [texts[n % len(texts)] for n in range(start, start + count)]

    with Child("scaling", [sys.executable, "-m", "benchmarks.race.our_system", "serve", str(bundle)], 1, log) as child:
        opened = child.ask(do="open")["seconds"]
        first = child.ask(do="singles", texts=some(0, 1), k=K)["ms"][0]
        child.ask(do="singles", texts=some(0, 20), k=K)
        single = child.ask(do="singles", texts=some(20, SINGLES), k=K)["ms"]
        batch = [
            child.ask(do="batch", texts=some(number * BATCH, BATCH), k=K)["ms"] / BATCH for number in range(BATCHES)
        ]
        memory = child.ask(do="memory")["peak_mb"]
    return {
        "open_seconds": opened,
        "first_answer_seconds": first / 1000,
        "single_p50_ms": float(np.median(single)),
        "single_p99_ms": float(np.quantile(single, 0.99)),
        "batch_ms": float(np.median(batch)),
        "peak_mb": memory,
    }


# ---- all sizes ----


def growth(numbers: dict[str, Any]) -> dict[str, Any]:
    """Exponents of time over labels by least squares in logarithms, over all sizes and from 10^5 on."""
    found: dict[str, Any] = {}
    for name in ("single_p50_ms", "batch_ms"):
        points = {int(labels): one["taken"][name] for labels, one in numbers.items()}
        above = {labels: value for labels, value in points.items() if labels >= FROM}
        found[name] = {"all": exponent(points), **({f"from {FROM}": exponent(above)} if len(above) > 1 else {})}
    exact = {
        int(labels): next(one["single_ms"] for one in of["search"] if one["kind"] == "exact")
        for labels, of in numbers.items()
        if of["search"]
    }
    return {"exponents": {**found, **({"exact search alone": {"all": exponent(exact)}} if len(exact) > 1 else {})}}


def exponent(points: dict[int, float]) -> float:
    x, y = np.log(list(points)), np.log(list(points.values()))
    return float(np.polyfit(x, y, 1)[0])


def plot(numbers: dict[str, Any]) -> str:
    lines: dict[str, dict[int, float]] = {"from text, alone (p50)": {}, "from text, in batches": {}}
    for labels, one in numbers.items():
        lines["from text, alone (p50)"][int(labels)] = one["taken"]["single_p50_ms"]
        lines["from text, in batches"][int(labels)] = one["taken"]["batch_ms"]
        for way in one["search"]:
            if way["recall_at_100"] >= 0.95:
                line = lines.setdefault(f"search alone: {way['kind']}", {})
                line[int(labels)] = min(way["single_ms"], line.get(int(labels), np.inf))
    return log_log("One document, one thread", "ms", lines)


# ---- beside a trained model ----


def like_trained(path: Path, data: Path | None, width: int) -> dict[str, Any]:
    """What each way of searching finds on trained rows, whole and in their main directions, and on as many planted
    ones of that width.
    """
    rows, queries = trained(path, data)
    narrow_rows, narrow_queries = in_main_directions(rows, queries, width)
    planted = planted_index(len(rows), width)
    return {
        "labels": len(rows),
        f"trained, {rows.shape[1] - 1} numbers": searched(packed(rows), queries),
        f"trained, {width} main directions": searched(packed(narrow_rows), narrow_queries),
        f"planted, {width} numbers": searched(planted, planted_documents(planted, QUERIES)),
    }


def packed(rows: F32) -> PackedIndex:
    return PackedIndex.of(ExactIndex.build(rows, "dot"), "int8", last_whole=True)


def searched(index: PackedIndex, queries: F32) -> dict[str, Any]:
    """All labels compared, sketches and leaves, each with what it finds."""
    kinds: tuple[SearchKind, ...] = ("sketch", "leaves")
    found = {kind: tried(choose(index, lambda: queries, kind)) for kind in kinds}
    return {"exact": found["sketch"][:1], **{kind: numbers[1:] for kind, numbers in found.items()}}
