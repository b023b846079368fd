"""How the label graph grows with the number of labels: seconds and peak memory at 10,000 to 1.3 million (claim E16).

    python -m benchmarks.speed label-graph [--large | --sizes 10000 100000] --out FILE.json

Planted targets in the proportions of LF-AmazonTitles-131K (2.25 documents per label, 2.3 labels per document, a long
tail), walked by the default settings. Every size runs in a process of its own, so that its peak memory is its own;
kernels are compiled before.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from benchmarks.speed.common import GIB, Measured, alone
from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.training.run import peak_memory_so_far
from longtail.types import I64, Csr

SIZES, LARGE = (10_000, 100_000), 1_300_000
DOCUMENTS_PER_LABEL, LABELS_PER_DOCUMENT = 2.25, 2.3
FAMILY, STRAY = 16, 0.2  # labels that occur together; share of a document's labels that come from anywhere
MOST_TIMES, MOST_GIB = 15, 2  # as long for ten times the labels; memory of the larger size


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs=2, default=SIZES, help="a number of labels and ten times as many")
    parser.add_argument("--large", action="store_true", help="also 1.3 million labels")


def measure(options: argparse.Namespace) -> Measured:
    sizes = (*options.sizes, LARGE) if options.large else options.sizes
    found = [alone(measured, n) for n in sizes]
    return Measured({"sizes": found, **verdict(found)})


def measured(n_labels: int) -> dict[str, Any]:
    """Seconds to build the graph, and the most memory that the process held, targets included."""
    label_graph(planted_targets(100), LabelGraphConfig(), np.random.default_rng(0))  # compiles or loads the kernels
    targets = planted_targets(n_labels)
    before = peak_memory_so_far()
    started = time.perf_counter()
    graph = label_graph(targets, LabelGraphConfig(), np.random.default_rng(0))
    seconds = time.perf_counter() - started
    return {
        "labels": n_labels,
        "pairs": int(targets.nnz),
        "edges": int(graph.nnz),
        "seconds": round(seconds, 3),
        "peak_gib": round(peak_memory_so_far() / GIB, 3),
        "peak_before_gib": round(before / GIB, 3),
        "dense_would_need_gib": round(4 * n_labels**2 / GIB, 1),
    }


def verdict(found: list[dict[str, Any]]) -> dict[str, Any]:
    small, large = found[0], found[1]
    ratio = large["seconds"] / small["seconds"]
    return {
        "time_ratio_10x_labels": round(ratio, 2),
        "targets": {"time_ratio_10x_labels": MOST_TIMES, f"peak_gib_at_{large['labels']}_labels": MOST_GIB},
        "passed": bool(ratio <= MOST_TIMES and large["peak_gib"] < MOST_GIB),
    }


def planted_targets(n_labels: int) -> Csr:
    """Documents of one to four labels, mostly of one family; the frequency of a label falls with its number (Zipf)."""
    rng = np.random.default_rng(1)
    n_documents = round(DOCUMENTS_PER_LABEL * n_labels)
    counts = 1 + rng.binomial(3, (LABELS_PER_DOCUMENT - 1) / 3, n_documents)
    owners = np.repeat(np.arange(n_documents), counts)
    home, stray = zipf(n_documents, n_labels, rng)[owners], zipf(len(owners), n_labels, rng)
    family = np.minimum(home // FAMILY * FAMILY + rng.integers(FAMILY, size=len(owners)), n_labels - 1)
    labels = np.where(rng.random(len(owners)) < STRAY, stray, family)
    targets = csr_array((np.ones(len(labels), np.float32), (owners, labels)), shape=(n_documents, n_labels))
    targets.sum_duplicates()
    targets.data[:] = 1
    return targets


def zipf(count: int, n_labels: int, rng: np.random.Generator) -> I64:
    """Labels with a chance of about 1 / number."""
    return np.minimum((float(n_labels) ** rng.random(count)).astype(np.int64), n_labels) - 1
