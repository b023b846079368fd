"""What is measured of every contestant: accuracy with intervals, and predictions in turns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.race.contestants import Child, Contestant, Course
from longtail import metrics
from longtail.evaluation import Yardstick
from longtail.types import TopK

K, BATCH = 10, 512
# Documents of one contestant before the next takes its turn: what the others left in the caches is gone after the
# first.
TURN = 20
# The same of batches: a core that slept takes some milliseconds to wake, which is what a system with several threads
# would be measured by.
BATCHES_IN_TURN = 4


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    singles: int = 300
    batches: int = 20
    batch: int = BATCH
    k: int = K

    @cached_property
    def all_threads(self) -> int:
        return len(os.sched_getaffinity(0))


def accuracy(yardstick: Yardstick, tops: Mapping[str, TopK]) -> dict[str, dict[str, Any]]:
    """Every metric in percent with its interval, and the paired difference from the first contestant with its own."""
    measured = {name: yardstick.measure(top) for name, top in tops.items()}
    first = next(iter(measured))

    def drawn() -> np.random.Generator:
        """The same documents for all."""
        return np.random.default_rng(0)

    found: dict[str, dict[str, Any]] = {}
    for name, one in measured.items():
        found[name] = {
            "metrics": {
                metric: vars(interval) for metric, interval in metrics.bootstrap_interval(one, rng=drawn()).items()
            }
        }
        if name != first:
            differences = metrics.paired_bootstrap(one, measured[first], rng=drawn())
            found[name][f"minus {first}"] = {
                metric: {**vars(d), "excludes_zero": d.excludes_zero} for metric, d in differences.items()
            }
    return found


def race(contestants: Sequence[Contestant], course: Course, plan: Plan) -> dict[str, dict[str, Any]]:
    """Speed, memory and opening on one thread and on all."""
    found: dict[str, dict[str, Any]] = {one.name: {} for one in contestants}
    for threads in sorted({1, plan.all_threads}):
        for name, numbers in on_threads(contestants, course, plan, threads).items():
            found[name][f"threads_{threads}"] = numbers
    return found


def on_threads(
    contestants: Sequence[Contestant], course: Course, plan: Plan, threads: int
) -> dict[str, dict[str, Any]]:
    texts = course.texts
    order = np.random.default_rng(0).permutation(len(texts))

    def drawn(start: int, count: int) -> list[str]:
        return [texts[order[n % len(order)]] for n in range(start, start + count)]

    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(Child(one.name, one.command(threads), threads, course.log(one.name)))
            for one in contestants
        ]
        for child in children:
            child.ask(do="memory")  # it has started: nobody opens a model while others load Python
        opened = [child.ask(do="open")["seconds"] for child in children]
        first = [child.ask(do="singles", texts=drawn(0, 1), k=plan.k)["ms"][0] for child in children]
        for child in children:
            child.ask(do="batch", texts=drawn(0, plan.batch), k=plan.k)
        singles: list[list[float]] = [[] for _ in children]
        batches: list[list[float]] = [[] for _ in children]
        for start in range(0, plan.singles, TURN):
            for child, times in zip(children, singles, strict=True):
                times += child.ask(do="singles", texts=drawn(start, min(TURN, plan.singles - start)), k=plan.k)["ms"]
        for turn in range(0, plan.batches, BATCHES_IN_TURN):
            for child, times in zip(children, batches, strict=True):
                for number in range(turn, min(turn + BATCHES_IN_TURN, plan.batches)):
                    times.append(
                        child.ask(do="batch", texts=drawn(plan.singles + number * plan.batch, plan.batch), k=plan.k)[
                            "ms"
                        ]
                        / plan.batch
                    )
        memory = [child.ask(do="memory")["peak_mb"] for child in children]
    return {
        one.name: {
            "open_seconds": opened[n],
            "first_answer_seconds": first[n] / 1000,
            "single_p50_ms": float(np.median(singles[n])),
            "single_p99_ms": float(np.quantile(singles[n], 0.99)),
            "batch_ms": float(np.median(batches[n])),
            "peak_mb": memory[n],
        }
        for n, one in enumerate(contestants)
    }
