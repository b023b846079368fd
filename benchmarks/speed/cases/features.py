"""Reading a data set and building its features, beside plain JSON parsing and `tokenizers` encoding the same titles.

    python -m benchmarks.speed features DATA [--repeats 3] --out FILE.json

At most 1.5 times as long as the latter and under 2 GB is what is wanted on yso-finna-en (505,916 titles), on 2 cores;
else the command ends with status 1. Every measurement runs in a process of its own, which has a peak memory of its own
and leaves nothing behind; the two sides take turns. Training the tokenizer beforehand and compiling kernels (once per
machine, recorded apart) are not counted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed.common import Measured, alone, data_argument

VOCABULARY = 40_000
ENCODED_AT_ONCE = 10_000
# What is measured beside the defaults: name, settings of features.
VARIANTS = {"words_pairs": [], "words_pairs_chars": ["subwords=chars"], "words_pairs_wordpiece": ["subwords=wordpiece"]}
MOST_TIMES, MOST_MEMORY_MB = 1.5, 2000

# Processor time is counted in steps of this many seconds: a tiny job may take none.
CLOCK_GRAIN = 0.01


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser, "a data set in the raw LF layout (trn.json.gz, lbl.json.gz)")
    parser.add_argument("--repeats", type=int, default=3, help="the median of so many rounds")


def measure(options: argparse.Namespace) -> Measured:
    data = str(options.data)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = f"{folder}/tokenizer.json"
        alone(train_tokenizer, data, tokenizer)
        compiling = alone(compile_kernels, NUMBA_CACHE_DIR=f"{folder}/numba")
        alone(compile_kernels)
        rounds = [(alone(plain, data, tokenizer), alone(ours, data, "words_pairs")) for _ in range(options.repeats)]
        variants = {name: alone(ours, data, name) for name in VARIANTS if name != "words_pairs"}
    of_plain, of_ours = (middle([pair[side] for pair in rounds]) for side in (0, 1))
    numbers = {
        "ratio": statistics.median(o["seconds"] / p["seconds"] for p, o in rounds),
        "ratio_of_processor_seconds": statistics.median(
            o["processor_seconds"] / max(p["processor_seconds"], CLOCK_GRAIN) for p, o in rounds
        ),
        "peak_memory_mb": max(o["peak_memory_mb"] for _, o in rounds),
        "ours": of_ours,
        "plain": of_plain,
        "compile_seconds": compiling["seconds"],
        **variants,
    }
    met = numbers["ratio"] <= MOST_TIMES and numbers["peak_memory_mb"] < MOST_MEMORY_MB
    problem = "" if met else f"more than {MOST_TIMES} times as long as plain parsing, or {MOST_MEMORY_MB} MB or more"
    return Measured(numbers, of_ours["digest"], {"repeats": options.repeats}, seed=None, problem=problem)


def middle(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of every number; what is no number is the same in all rounds."""
    return {
        name: statistics.median(r[name] for r in rounds) if isinstance(value, float) else value
        for name, value in rounds[0].items()
    }


def clocked(*steps: tuple[str, Callable[[], Any]]) -> dict[str, Any]:
    """Seconds of each step and of all, seconds of all cores, and the peak memory of this process."""
    before, start, taken = os.times(), time.perf_counter(), {}
    for name, step in steps:
        step_start = time.perf_counter()
        step()
        taken[f"{name}_seconds"] = time.perf_counter() - step_start
    after = os.times()
    return {
        **taken,
        "seconds": time.perf_counter() - start,
        "processor_seconds": after.user + after.system - before.user - before.system,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def ours(data: str, variant: str) -> dict[str, Any]:
    """What a training run does before the recipe begins."""
    from longtail.config import from_text
    from longtail.data.read import read
    from longtail.features.base import make_featurizer
    from longtail.features.settings import FeaturesConfig

    config = from_text(FeaturesConfig(), VARIANTS[variant])
    kept: dict[str, Any] = {}

    def read_all() -> None:
        kept["data"] = read(data, test=False)

    def build() -> None:
        kept["features"] = make_featurizer(kept["data"].train.documents, kept["data"].labels, config)

    numbers = clocked(("read", read_all), ("features", build))
    featurizer, documents, _ = kept["features"]
    return {
        **numbers,
        "titles": len(documents),
        "features": featurizer.width,
        "entries": int(documents.sparse.nnz),
        "digest": kept["data"].digest,
    }


def plain(data: str, tokenizer_file: str) -> dict[str, Any]:
    """The same files and titles: json.loads for every line, encode_batch for every title."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    kept: dict[str, Any] = {}

    def parse() -> None:
        kept["titles"] = [
            found["title"] for name in ("trn", "lbl") for found in objects(Path(data) / f"{name}.json.gz")
        ]

    def encode() -> None:
        titles = kept["titles"]
        kept["ids"] = [
            [
                encoded.ids
                for encoded in tokenizer.encode_batch(titles[start : start + ENCODED_AT_ONCE], add_special_tokens=False)
            ]
            for start in range(0, len(titles), ENCODED_AT_ONCE)
        ]

    return clocked(("parse", parse), ("encode", encode))


def objects(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rb") as lines:
        yield from map(json.loads, lines)


def train_tokenizer(data: str, file: str) -> None:
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    titles = (found["title"] for found in objects(Path(data) / "trn.json.gz"))
    tokenizer.train_from_iterator(titles, vocab_size=VOCABULARY, show_progress=False)
    tokenizer.save(file)


def compile_kernels() -> dict[str, Any]:
    """The first features on a machine; a second call in the same process shows what is left without compiling."""
    from longtail.data.dataset import Items
    from longtail.features.base import make_featurizer
    from longtail.features.settings import FeaturesConfig

    few = Items(["a", "b"], {"title": ["one small title", "one more"]})
    return clocked(
        ("first", lambda: make_featurizer(few, few, FeaturesConfig())),
        ("second", lambda: make_featurizer(few, few, FeaturesConfig())),
    )
