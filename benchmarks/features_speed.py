"""Reading a data set and building its features, beside plain JSON parsing and `tokenizers` encoding the same titles.

Issue 2 asks for at most 1.5x of the latter and under 2 GB on yso-finna-en (505,916 titles), on 2 cores.

    python benchmarks/features_speed.py DATA --out benchmarks/results/features_speed.json

Every measurement runs in a process of its own, which tells its peak memory and leaves nothing behind; the two sides
take turns. Training the tokenizer beforehand and compiling kernels (once per machine, told apart) are not counted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # `benchmarks` is found also when this file is run as a script

from benchmarks.record import write_result

VOCABULARY = 40_000
ENCODED_AT_ONCE = 10_000
# What is measured beside the defaults: name, settings of features.
VARIANTS = {"words_pairs": [], "words_pairs_chars": ["subwords=chars"], "words_pairs_wordpiece": ["subwords=wordpiece"]}
MOST_TIMES, MOST_MEMORY_MB = 1.5, 2000


def main() -> int:
    options = arguments()
    if options.step:
        print(json.dumps(STEPS[options.step](options.data, options.given)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = f"{folder}/tokenizer.json"
        child(options.data, "train-tokenizer", tokenizer)
        compiling = child(options.data, "compile", "", NUMBA_CACHE_DIR=f"{folder}/numba")
        child(options.data, "compile", "")
        rounds = [
            (child(options.data, "plain", tokenizer), child(options.data, "ours", "words_pairs"))
            for _ in range(options.repeats)
        ]
        variants = {name: child(options.data, "ours", name) for name in VARIANTS if name != "words_pairs"}
    plain, ours = (middle([pair[side] for pair in rounds]) for side in (0, 1))
    numbers = {
        "ratio": statistics.median(o["seconds"] / p["seconds"] for p, o in rounds),
        "ratio_of_processor_seconds": statistics.median(
            o["processor_seconds"] / p["processor_seconds"] for p, o in rounds
        ),
        "peak_memory_mb": max(o["peak_memory_mb"] for _, o in rounds),
        "ours": ours,
        "plain": plain,
        "compile_seconds": compiling["seconds"],
        **variants,
    }
    print(json.dumps(numbers, indent=1))
    if options.out:
        write_result(
            options.out,
            "features_speed",
            numbers,
            shlex.join(["python", *sys.argv]),
            data_hash=ours["digest"],
            config={"repeats": options.repeats},
        )
    met = numbers["ratio"] <= MOST_TIMES and numbers["peak_memory_mb"] < MOST_MEMORY_MB
    print(f"target of {MOST_TIMES}x and {MOST_MEMORY_MB} MB {'met' if met else 'MISSED'}", file=sys.stderr)
    return 0 if met else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Reading and features against plain JSON parsing and tokenizers.")
    parser.add_argument("data", type=Path, help="a data set in the raw LF layout (trn.json.gz, lbl.json.gz)")
    parser.add_argument("--repeats", type=int, default=3, help="the median of so many rounds")
    parser.add_argument("--out", type=Path, help="write the result here (JSON)")
    parser.add_argument("--step", choices=sorted(STEPS), help=argparse.SUPPRESS)
    parser.add_argument("--given", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def child(data: Path, step: str, given: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, __file__, str(data), "--step", step, "--given", given]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environment})
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def middle(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of every number; what is no number is the same in all rounds."""
    return {
        name: statistics.median(r[name] for r in rounds) if isinstance(value, float) else value
        for name, value in rounds[0].items()
    }


def measured(*steps: tuple[str, Callable[[], Any]]) -> dict[str, Any]:
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


def ours(data: Path, variant: str) -> dict[str, Any]:
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

    numbers = measured(("read", read_all), ("features", build))
    featurizer, documents, _ = kept["features"]
    return {
        **numbers,
        "titles": len(documents),
        "features": featurizer.width,
        "entries": int(documents.sparse.nnz),
        "digest": kept["data"].digest,
    }


def plain(data: Path, tokenizer_file: str) -> dict[str, Any]:
    """The same files and titles: json.loads for every line, encode_batch for every title."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    kept: dict[str, Any] = {}

    def parse() -> None:
        kept["titles"] = [found["title"] for name in ("trn", "lbl") for found in objects(data / f"{name}.json.gz")]

    def encode() -> None:
        titles = kept["titles"]
        kept["ids"] = [
            [
                encoded.ids
                for encoded in tokenizer.encode_batch(titles[start : start + ENCODED_AT_ONCE], add_special_tokens=False)
            ]
            for start in range(0, len(titles), ENCODED_AT_ONCE)
        ]

    return measured(("parse", parse), ("encode", encode))


def objects(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rb") as lines:
        yield from map(json.loads, lines)


def train_tokenizer(data: Path, file: str) -> dict[str, Any]:
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    titles = (found["title"] for found in objects(data / "trn.json.gz"))
    tokenizer.train_from_iterator(titles, vocab_size=VOCABULARY, show_progress=False)
    tokenizer.save(file)
    return {}


def compile_kernels(data: Path, given: str) -> dict[str, Any]:
    """The first features on a machine; a second call in the same process shows what is left without compiling."""
    from longtail.data.dataset import Items
    from longtail.features.base import make_featurizer
    from longtail.features.settings import FeaturesConfig

    few = Items(["a", "b"], {"title": ["one small title", "one more"]})
    return measured(
        ("first", lambda: make_featurizer(few, few, FeaturesConfig())),
        ("second", lambda: make_featurizer(few, few, FeaturesConfig())),
    )


STEPS: dict[str, Callable[[Path, str], dict[str, Any]]] = {
    "ours": ours,
    "plain": plain,
    "train-tokenizer": train_tokenizer,
    "compile": compile_kernels,
}

if __name__ == "__main__":
    sys.exit(main())
