"""Where the time of predictions goes, line by line, by py-spy, on one thread.

    python -m benchmarks.speed profile DATA --model RUN [--seconds 5] --out FILE.json

DATA: whose test documents ask. py-spy must be on the PATH; it looks 200 times a second at which line is at work.
Compiled kernels have no lines: their time stands at the line that calls them. Seconds are those of the processor, so
other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.race.contestants import environment, texts_of
from benchmarks.speed.common import Measured, call, data_argument
from longtail.data.read import read
from longtail.predictor import Predictor

BATCH, K, LINES = 512, 10, 15
MARK = ";asked ("  # the function whose samples count: not imports, not opening
LOOK_AT_THE_CLOCK = 512  # documents between two looks at it: each takes as long as a step of a prediction


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser)
    parser.add_argument("--model", type=Path, required=True, metavar="RUN", help="a run or bundle")
    parser.add_argument("--seconds", type=float, default=5.0)


def measure(options: argparse.Namespace) -> Measured:
    numbers = {
        name: watched(options.model, options.data, count, options.seconds)
        for name, count in (("alone", 1), (f"in batches of {BATCH}", BATCH))
    }
    return Measured(numbers, config={"k": K, "batch": BATCH}, seed=None)


def ask(bundle: str, data: str, count: int, seconds: float) -> float:
    """Microseconds per document: the process that is watched."""
    model, documents = Predictor.open(bundle), read(data).need_test().documents
    texts = texts_of(documents.fields, tuple(model.bundle.featurizer.fields))
    for _ in range(3):
        model.predict(texts[:count], K)
    return 1e6 * seconds / asked(model, texts, count, seconds)


def asked(model: Predictor, texts: list[str], count: int, seconds: float) -> int:
    """How many documents were answered."""
    until, done = time.thread_time() + seconds, 0
    while time.thread_time() < until:
        for start in range(done, done + LOOK_AT_THE_CLOCK, count):
            first = start % (len(texts) - count)
            model.predict(texts[first : first + count], K)
        done += LOOK_AT_THE_CLOCK
    return done


def watched(model: Path, data: Path, count: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "samples"
        command = call(ask, str(model), str(data), count, seconds)
        spy = ["py-spy", "record", "--rate", "200", "--format", "raw", "--output", str(raw), "--", *command]
        done = subprocess.run(spy, capture_output=True, text=True, check=True, env=environment(1))
        printed = [line for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit()]
        return {"microseconds": float(printed[-1]), "percent": shares(raw.read_text(encoding="utf-8"))}


def shares(samples: str) -> dict[str, float]:
    """Percent of the samples within `asked` by the line that was at work, the most frequent first;
    ``frame;frame;frame count`` in each line.
    """
    lines: Counter[str] = Counter()
    for sample in samples.splitlines():
        stack, _, count = sample.rpartition(" ")
        if MARK in stack:
            lines[stack.rpartition(";")[2]] += int(count)
    return {line: round(100 * count / lines.total(), 1) for line, count in lines.most_common(LINES)}
