"""How the cost of the label graph grows with the number of labels: probes that train nothing, over planted targets.

Time is that of the processor, over all threads: other work on the machine does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.claims.verdict import Estimate
from benchmarks.claims.workshop import Workshop
from benchmarks.speed.cases.label_graph import measured, planted_targets
from benchmarks.speed.common import alone
from longtail.graph.label_graph import LabelGraphConfig, label_graph

SMALL, LARGE = 10_000, 100_000
EXACT_SMALL, EXACT_LARGE = 60, 600
REPEATS = 5


def walk_time_ratio(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """Processor seconds of the graph of ten times as many labels, relative to those of the smaller one."""
    return _ratio("walk", SMALL, LARGE)


def exact_time_ratio(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """The same for the expectation of the walks, which takes dense matrices of labels x labels."""
    return _ratio("exact", EXACT_SMALL, EXACT_LARGE)


def walk_memory(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """The most memory of a process, in GiB, that plants the targets and builds the graph of the larger size."""
    found = [alone(measured, LARGE) for _ in range(3)]
    return interval([run["peak_gib"] for run in found]), {"runs": found}


def _ratio(source: Any, small: int, large: int) -> tuple[Estimate, Mapping[str, Any]]:
    seconds = {n: _processor_seconds(n, LabelGraphConfig(source=source)) for n in (small, large)}
    logs = np.log(np.array(seconds[large])) - np.log(np.array(seconds[small]))
    found = interval(logs.tolist(), np.exp)
    return found, {f"processor seconds at {n} labels": times for n, times in seconds.items()}


def _processor_seconds(n_labels: int, config: LabelGraphConfig) -> list[float]:
    targets = planted_targets(n_labels)
    seconds = []
    for repeat in range(REPEATS + 1):
        started = time.process_time()
        label_graph(targets, config, np.random.default_rng(repeat))
        seconds.append(time.process_time() - started)
    return seconds[1:]  # the first loads kernels


def interval(values: list[float], scale: Callable[[Any], Any] = np.asarray) -> Estimate:
    """The mean with the 95% interval of Student's t, on another `scale`."""
    from scipy.stats import t

    reach = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    mean = float(np.mean(values))
    return Estimate(float(scale(mean)), float(scale(mean - reach)), float(scale(mean + reach)))
