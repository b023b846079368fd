"""What the cases of `benchmarks.speed` share: what a case returns, clocks, processes of their own, short trainings."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import longtail
from benchmarks.race.contestants import environment
from longtail.data.dataset import Dataset, Items
from longtail.predictor import Predictor
from longtail.recipes import make_recipe
from longtail.training.progress import SilentDisplay, Task

GIB = 2**30
CALL = "--call"  # the first word of a process that `alone` starts


@dataclass(frozen=True)
class Measured:
    """What a case found.

    numbers: any JSON.  data_hash: digest of the data set that was read.  config: what the numbers depend on beside the
    command.  problem: what is wrong, for a case that checks itself against its oracle or a bound; else empty.
    plot: an SVG, written beside the result.
    """

    numbers: dict[str, Any]
    data_hash: str | None = None
    config: Mapping[str, Any] | None = None
    seed: int | None = 0
    problem: str = ""
    plot: str = ""


# ---- arguments that several cases have ----


def data_argument(parser: argparse.ArgumentParser, what: str = "a data set", *, optional: bool = False) -> None:
    parser.add_argument("data", type=Path, metavar="DATA", nargs="?" if optional else None, help=what)


def device_argument(parser: argparse.ArgumentParser, default: str = "cpu") -> None:
    parser.add_argument("--device", default=default, help=f"cpu, cuda or auto (default {default})")


def set_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="a setting of the recipe")


# ---- clocks ----


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """The median of so many runs, after one that does not count."""
    work()
    return statistics.median(seconds_of(work) for _ in range(repeats))


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What the work gives, with seconds of the wall and of all processors."""
    wall, processors = time.perf_counter(), time.process_time()
    result = work()
    return result, {
        "seconds": round(time.perf_counter() - wall, 2),
        "processor_seconds": round(time.process_time() - processors, 2),
    }


class TaskWatch(SilentDisplay):
    """Seconds and steps of every task of a training (the stages that train), and the most memory it held in them.

    clock: `time.process_time` where the processor does the work and others use it too.  memory: look at it all 20 ms.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, memory: bool = False) -> None:
        self.clock, self.memory = clock, memory
        self.seconds: dict[str, float] = {}
        self.steps: dict[str, int] = {}
        self.peak: dict[str, int] = {}

    @contextlib.contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        over = threading.Event()
        sampler = threading.Thread(target=self._sample, args=(title, over))
        if self.memory:
            sampler.start()
        started = self.clock()
        try:
            with super().task(title, total) as task:
                yield task
        finally:
            self.seconds[title], self.steps[title] = self.clock() - started, total
            over.set()
            if self.memory:
                sampler.join()

    def _sample(self, title: str, over: threading.Event) -> None:
        while True:
            self.peak[title] = max(self.peak.get(title, 0), resident())
            if over.wait(0.02):
                return


def resident() -> int:
    """Bytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# ---- processes of their own ----


def alone(work: Callable[..., Any], *arguments: Any, threads: int | None = None, **variables: str) -> Any:
    """What ``work(*arguments)`` returns in a new process: its peak memory is its own, nothing is left behind, and
    libraries see the number of `threads` when they are imported. Arguments and result are JSON.
    """
    done = subprocess.run(
        call(work, *arguments),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**environment(threads), **variables},
    )
    return json.loads(done.stdout.splitlines()[-1])


def call(work: Callable[..., Any], *arguments: Any) -> list[str]:
    """The command of such a process."""
    return [sys.executable, "-m", "benchmarks.speed", CALL, work.__module__, work.__qualname__, json.dumps(arguments)]


def cores() -> int:
    return len(os.sched_getaffinity(0))


# ---- models that take part ----

TURNS = {1: 300, 256: 15}  # how often each model is asked, by documents at once
LABELS_ASKED_FOR = 5


def train(
    data: Dataset, out: Path, recipe: str, settings: list[str], device: str = "cpu", watch: TaskWatch | None = None
) -> Predictor:
    return longtail.train(data, out, make_recipe(recipe, assignments=settings), device=device, display=watch)


def beside(models: Mapping[str, Predictor], documents: Items) -> dict[str, Any]:
    """Median milliseconds per document of two models and their ratio, from raw text, for single documents and for
    batches. Both take turns on the same documents, so that a busy machine slows both.
    """
    found: dict[str, Any] = {}
    first, second = models
    for at_once, turns in TURNS.items():
        times = in_turns(models, documents, at_once, turns)
        medians = {name: statistics.median(each) for name, each in times.items()}
        found[f"{at_once} at once"] = {
            f"{first} / {second}": round(medians[first] / medians[second], 3),
            "milliseconds per document": {name: round(1000 * median, 4) for name, median in medians.items()},
            "quartiles": {
                name: [round(1000 * q, 4) for q in np.quantile(each, [0.25, 0.75]).tolist()]
                for name, each in times.items()
            },
        }
    return found


def in_turns(models: Mapping[str, Predictor], documents: Items, at_once: int, turns: int) -> dict[str, list[float]]:
    """Seconds per document of every turn, after one turn that does not count."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(turns + 1):
        chosen = documents.rows((turn * at_once + np.arange(at_once)) % len(documents))
        for name, model in models.items():
            started = time.perf_counter()
            model.rank(chosen, LABELS_ASKED_FOR)
            if turn:
                times[name].append((time.perf_counter() - started) / at_once)
    return times
