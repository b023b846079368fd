"""How the label graph grows with the number of labels (claim E16): ``python -m benchmarks.label_graph_scale --out
FILE [--large]``.

Planted targets in the proportions of LF-AmazonTitles-131K (2.25 documents per label, 2.3 labels per document, a long
tail), walked by the default settings. Every size runs in a process of its own, so that its peak memory is its own;
kernels are compiled before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.record import write_result
from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.training.run import peak_memory
from longtail.types import I64, Csr

SIZES, LARGE = (10_000, 100_000), 1_300_000
DOCUMENTS_PER_LABEL, LABELS_PER_DOCUMENT = 2.25, 2.3
FAMILY, STRAY = 16, 0.2  # labels that occur together; share of a document's labels that come from anywhere
GIB = 2**30


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path)
    arguments.add_argument("--large", action="store_true", help="also 1.3 million labels")
    arguments.add_argument("--one", type=int, help="only this many labels, in this process; prints JSON")
    options = arguments.parse_args()
    if options.one:
        print(json.dumps(measured(options.one)))
        return
    sizes = (*SIZES, LARGE) if options.large else SIZES
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, __file__, "--one", str(n)], capture_output=True, text=True, check=True
            ).stdout
        )
        for n in sizes
    ]
    numbers = {"sizes": found, **verdict(found)}
    print(json.dumps(numbers, indent=1))
    if options.out:
        command = f"python -m benchmarks.label_graph_scale{' --large' if options.large else ''}"
        write_result(options.out, "label_graph_scale", numbers, command, seed=0)


def measured(n_labels: int) -> dict[str, Any]:
    """Seconds to build the graph, and the most memory that the process held, targets included."""
    label_graph(planted_targets(100), LabelGraphConfig(), np.random.default_rng(0))  # compiles or loads the kernels
    targets = planted_targets(n_labels)
    before = peak_memory()
    started = time.perf_counter()
    graph = label_graph(targets, LabelGraphConfig(), np.random.default_rng(0))
    seconds = time.perf_counter() - started
    return {
        "labels": n_labels,
        "pairs": int(targets.nnz),
        "edges": int(graph.nnz),
        "seconds": round(seconds, 3),
        "peak_gib": round(peak_memory() / GIB, 3),
        "peak_before_gib": round(before / GIB, 3),
        "dense_would_need_gib": round(4 * n_labels**2 / GIB, 1),
    }


def verdict(found: list[dict[str, Any]]) -> dict[str, Any]:
    small, large = found[0], found[1]
    ratio = large["seconds"] / small["seconds"]
    return {
        "time_ratio_10x_labels": round(ratio, 2),
        "targets": {"time_ratio_10x_labels": 15, "peak_gib_at_100000_labels": 2},
        "passed": bool(ratio <= 15 and large["peak_gib"] < 2),
    }


def planted_targets(n_labels: int) -> Csr:
    """Documents of one to four labels, mostly of one family; the frequency of a label falls with its number (Zipf)."""
    from scipy.sparse import csr_array

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


if __name__ == "__main__":
    main()
