"""Where the time of predictions goes, by py-spy: which line was at work, sampled 200 times a second, one thread.

``python -m benchmarks.prediction_profile BUNDLE DATA [--seconds 5] [--out FILE]``

DATA: whose test documents ask. py-spy must be on the PATH. Compiled kernels have no lines: their time stands at the
line that calls them. Seconds are those of the processor, so other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.race.contestants import environment, texts_of
from benchmarks.record import write_result
from longtail.data.read import read
from longtail.predictor import Predictor

BATCH, K, LINES = 512, 10, 15
MARK = ";asked ("  # the function whose samples count: not imports, not opening
LOOK_AT_THE_CLOCK = 512  # documents between two looks at it: each takes as long as a step of a prediction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--ask", type=int, default=0, help=argparse.SUPPRESS
    )  # the process that is watched: documents at a time
    options = parser.parse_args()
    if options.ask:
        ask(options.bundle, options.data, options.ask, options.seconds)
        return
    numbers = {"alone": watched(options, 1), f"in batches of {BATCH}": watched(options, BATCH)}
    for name, one in numbers.items():
        print(f"{name}: {one['microseconds']:.1f} microseconds of processor a document")
        print("\n".join(f"  {share:5.1f}%  {line}" for line, share in one["percent"].items()))
    if options.out:
        write_result(
            options.out,
            "prediction_profile",
            numbers,
            "python -m benchmarks.prediction_profile BUNDLE DATA",
            config={"k": K, "batch": BATCH},
        )


def ask(bundle: Path, data: Path, count: int, seconds: float) -> None:
    """Prints microseconds per document."""
    model, documents = Predictor.open(bundle), read(data).need_test().documents
    texts = texts_of(documents.fields, tuple(model.bundle.featurizer.fields))
    for _ in range(3):
        model.predict(texts[:count], K)
    print(1e6 * seconds / asked(model, texts, count, seconds))


def asked(model: Predictor, texts: list[str], count: int, seconds: float) -> int:
    """How many documents were answered."""
    until, done = time.thread_time() + seconds, 0
    while time.thread_time() < until:
        for start in range(done, done + LOOK_AT_THE_CLOCK, count):
            first = start % (len(texts) - count)
            model.predict(texts[first : first + count], K)
        done += LOOK_AT_THE_CLOCK
    return done


def watched(options: argparse.Namespace, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "samples"
        command = [sys.executable, "-m", "benchmarks.prediction_profile", str(options.bundle), str(options.data)]
        command += ["--seconds", str(options.seconds), "--ask", str(count)]
        spy = ["py-spy", "record", "--rate", "200", "--format", "raw", "--output", str(raw), "--", *command]
        done = subprocess.run(spy, capture_output=True, text=True, check=True, env=environment(1))
        told = [line for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit()]
        return {"microseconds": float(told[-1]), "percent": shares(raw.read_text(encoding="utf-8"))}


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


if __name__ == "__main__":
    main()
