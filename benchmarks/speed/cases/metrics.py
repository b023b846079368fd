"""Measuring predictions at the size of yso-finna-en: seconds of every step, and whether a naive loop agrees.

    python -m benchmarks.speed metrics [--documents 125428] [--predictions 100] --out FILE.json

Wanted: one evaluation of 125,428 documents x 100 predictions in under 3 seconds on 2 cores. The naive loop measures
some of the documents, too; if it disagrees the command ends with status 1.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.reference_metrics import naive_score
from benchmarks.speed.common import Measured, median_seconds
from longtail import metrics
from longtail.types import I64, Csr, TopK

TOLERANCE = 1e-9
SIZES = ("documents", "labels", "predictions", "repeats", "resamples")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=125_428)
    parser.add_argument("--labels", type=int, default=24_764)
    parser.add_argument("--predictions", type=int, default=100, help="per document")
    parser.add_argument("--checked", type=int, default=2_000, help="documents that the naive loop measures too")
    parser.add_argument("--repeats", type=int, default=5, help="the median of so many runs, after one to warm up")
    parser.add_argument("--resamples", type=int, default=1_000, help="of the paired bootstrap")
    parser.add_argument("--seed", type=int, default=0)


def measure(options: argparse.Namespace) -> Measured:
    rng = np.random.default_rng(options.seed)
    top, truth, counts = random_predictions(options.documents, options.labels, options.predictions, rng)
    weights = metrics.inverse_propensities(counts, options.documents, 0.55, 1.5)
    chosen = np.sort(rng.choice(options.documents, size=min(options.checked, options.documents), replace=False))
    difference, naive_s = largest_difference(top, truth, weights, chosen)
    numbers = {
        **timings(top, truth, counts, weights, options.repeats, options.resamples),
        "naive_loop_s_extrapolated": naive_s * options.documents / len(chosen),
        "naive_loop_documents_checked": len(chosen),
        "largest_difference_to_naive_loop": difference,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    config = {name: getattr(options, name) for name in SIZES}
    problem = f"the naive loop differs by {difference}" if difference > TOLERANCE else ""
    return Measured(numbers, config=config, seed=options.seed, problem=problem)


def random_predictions(n_documents: int, n_labels: int, k: int, rng: np.random.Generator) -> tuple[TopK, Csr, I64]:
    """Predictions, truth that they partly hit (more so in first places), and training counts of the labels."""
    gaps = rng.integers(1, max(2, n_labels // k), size=(n_documents, k))
    ids = (rng.integers(0, n_labels, size=(n_documents, 1)) + np.cumsum(gaps, axis=1)) % n_labels
    scores = -np.sort(-rng.random((n_documents, k), dtype=np.float32), axis=1)
    frequency = 1.0 / np.arange(1, n_labels + 1)
    rows = np.repeat(np.arange(n_documents), rng.poisson(3, size=n_documents))
    guessed = ids[rows, np.minimum(rng.geometric(0.1, size=len(rows)) - 1, k - 1)]
    other = rng.choice(n_labels, size=len(rows), p=frequency / frequency.sum())
    truth = csr_array(
        (np.ones(len(rows), dtype=np.float32), (rows, np.where(rng.random(len(rows)) < 0.4, guessed, other))),
        shape=(n_documents, n_labels),
    )
    truth.data[:] = 1.0
    return (
        TopK(ids.astype(np.int32), scores),
        truth,
        np.ceil(3 * n_documents * frequency / frequency.sum()).astype(np.int64),
    )


def timings(
    top: TopK, truth: Csr, counts: I64, weights: NDArray[np.float64], repeats: int, resamples: int
) -> dict[str, float]:
    """Seconds per step; `evaluate_s` is all that one evaluation does after prediction, masking included."""
    stored = metrics.to_csr(top, truth.shape[1])
    # one masked pair per document, among its predictions: more than any real filter file has
    masked = np.stack([np.arange(len(top)), top.ids[:, top.k // 2]], axis=1).astype(np.int64)
    bins = metrics.equal_volume(counts)
    measured = metrics.measure(top, truth, weights)
    other = metrics.measure(TopK(top.ids[:, ::-1].copy(), top.scores), truth, weights)

    def evaluate() -> None:
        metrics.score(metrics.drop_masked(top, masked, top.k), metrics.drop_masked_targets(truth, masked), weights)

    steps: dict[str, Callable[[], Any]] = {
        "evaluate_s": evaluate,
        "hits_s": lambda: metrics.hits(top, truth),
        "score_s": lambda: metrics.score(top, truth, weights),
        "quantiles_s": lambda: metrics.contributions(top, truth, weights, bins),
        "to_csr_s": lambda: metrics.to_csr(top, truth.shape[1]),
        "top_k_of_csr_s": lambda: metrics.top_k(stored, top.k),
        "paired_bootstrap_s": lambda: metrics.paired_bootstrap(
            measured, other, resamples, rng=np.random.default_rng(0)
        ),
    }
    return {
        "bootstrapped_metrics": len(measured.names),
        **{name: median_seconds(step, repeats) for name, step in steps.items()},
    }


def largest_difference(top: TopK, truth: Csr, weights: NDArray[np.float64], chosen: I64) -> tuple[float, float]:
    """Between the fast path and the naive loop over the chosen documents, in percent points; and the loop's seconds."""
    fast = metrics.score(TopK(top.ids[chosen], top.scores[chosen]), truth[chosen], weights)
    truths = [set(truth.indices[truth.indptr[i] : truth.indptr[i + 1]].tolist()) for i in chosen]
    start = time.perf_counter()
    naive = naive_score(top.ids[chosen].tolist(), truths, weights.tolist())
    seconds = time.perf_counter() - start
    assert fast.keys() == naive.keys()
    return max(abs(fast[name] - naive[name]) for name in naive), seconds
