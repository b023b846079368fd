"""How the time of predictions, and time and memory of the label graph, grow with the number of labels: probes that
train nothing, over planted vectors and targets.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import t as student_t

from benchmarks.claims.verdict import Estimate, slope
from benchmarks.claims.workshop import Workshop
from benchmarks.speed.cases import label_graph as label_graph_case
from benchmarks.speed.common import alone, seconds_of
from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.models.encoders import FrozenBag, ResidualMap
from longtail.models.rankers import Classifier, Model
from longtail.recipes.astec.ranker import InstanceVote, MergedShortlist
from longtail.search.index import CENTROIDS, DOCUMENTS, ExactIndex, HnswIndex, HnswSettings
from longtail.search.shortlist import LabelIndex
from longtail.types import F32, Batch, Csr

LABELS = (1_000, 4_000, 16_000, 64_000, 256_000)
WIDTH = 128
QUERIES = 256
NEAREST = 10  # few, so that ranking what was found, which costs the same at every size, does not hide the growth
REPEATS = 5
VOCABULARY, WORDS = 20_000, 8
SHORTLIST = 500
# The label graph: numbers of labels for walks, and for the dense expectation of walks.
WALKED = (10_000, 100_000)
EXPECTED = (60, 600)


def hnsw_query(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """The exponent of query time over the number of labels, approximate index at its defaults."""
    return growth({n: timed(_query(_hnsw(n))) for n in LABELS})


def exact_query(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """The same for the exact index, which looks at every label."""
    return growth({n: timed(_query(ExactIndex.build(planted_vectors(n, n)))) for n in LABELS})


def hnsw_prediction(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """The exponent of the time of a whole prediction: encode, two approximate indices, classifiers, fusion."""
    return growth({n: timed(_hnsw_prediction(n)) for n in LABELS})


def exact_against_hnsw(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """By how much the exponent of a whole prediction is higher with exact search: what both have in common cancels."""
    medians = {
        n: [statistics.median(timed(work)) for work in (_exact_prediction(n), _hnsw_prediction(n))] for n in LABELS
    }
    ratios = np.array([exact / approximate for exact, approximate in medians.values()])
    return slope(np.log(np.array(LABELS, dtype=np.float64)), np.log(ratios)), {
        f"exact / HNSW at {n} labels": r for n, r in zip(medians, ratios.tolist(), strict=True)
    }


def growth(seconds: Mapping[int, list[float]]) -> tuple[Estimate, Mapping[str, Any]]:
    """The slope of log time over log size, through the medians; and the times."""
    medians = {n: statistics.median(times) for n, times in seconds.items()}
    found = slope(np.log(np.array(list(medians), dtype=np.float64)), np.log(np.array(list(medians.values()))))
    per_query = {f"microseconds per query at {n} labels": 1e6 * each / QUERIES for n, each in medians.items()}
    return found, {**per_query, "batch": QUERIES, "threads": len(os.sched_getaffinity(0))}


def timed(work: Callable[[], object]) -> list[float]:
    """Seconds of `REPEATS` calls, after one to warm up."""
    work()
    return [seconds_of(work) for _ in range(REPEATS)]


def planted_vectors(n: int, seed: int) -> F32:
    """(n, WIDTH): as trained ones are, not negative and in groups (of about 16), not spread evenly over the sphere."""
    rng = np.random.default_rng([seed, 0x71E])
    centres = rng.standard_normal((max(1, n // 16), WIDTH), dtype=np.float32)
    return np.maximum(
        centres[rng.integers(len(centres), size=n)] + 0.5 * rng.standard_normal((n, WIDTH), dtype=np.float32), 0
    ).astype(np.float32)


@cache
def _hnsw(n: int, settings: HnswSettings = CENTROIDS) -> HnswIndex:
    """Over the planted vectors; built once for all probes, as that takes minutes at the largest size."""
    return HnswIndex.build(planted_vectors(n, n), settings)


def _query(index: ExactIndex | HnswIndex) -> Callable[[], object]:
    queries = planted_vectors(len(index), len(index))[:QUERIES]
    return lambda: index.query(queries, NEAREST)


def _hnsw_prediction(n: int) -> Callable[[], object]:
    # With one document per label the centroids are the documents' vectors, and their index is that of `hnsw_query`.
    return _prediction(n, lambda vectors: _hnsw(len(vectors)), lambda vectors: _hnsw(len(vectors), DOCUMENTS))


def _exact_prediction(n: int) -> Callable[[], object]:
    return _prediction(n, ExactIndex.build, ExactIndex.build)


def _prediction(
    labels: int, centroid_index: Callable[[F32], Any], document_index: Callable[[F32], Any]
) -> Callable[[], object]:
    """A model of random weights over `labels` labels and as many training documents, and a batch to rank."""
    rng = np.random.default_rng([labels, 0xA15])
    vectors = planted_vectors(labels, labels)
    targets = one_label_each(labels)
    shortlister = MergedShortlist(
        LabelIndex.build(vectors, targets, make_index=centroid_index),
        InstanceVote.build(vectors, targets, make_index=document_index),
    )
    model = Model(
        encoder=FrozenBag(planted_vectors(VOCABULARY, 1)),
        refinement=ResidualMap(np.eye(WIDTH, dtype=np.float32)),
        shortlister=shortlister,
        classifier=Classifier(rng.standard_normal((labels, WIDTH), dtype=np.float32)),
        shortlist_size=SHORTLIST,
        alpha=0.5,
    )
    batch = bags(rng)
    return lambda: model.rank(batch, 5)


def one_label_each(n: int) -> Csr:
    return csr_array((np.ones(n, dtype=np.float32), np.arange(n, dtype=np.int32), np.arange(n + 1)), shape=(n, n))


def bags(rng: np.random.Generator) -> Batch:
    """`QUERIES` documents of `WORDS` words."""
    words = np.sort(np.stack([rng.choice(VOCABULARY, WORDS, replace=False) for _ in range(QUERIES)]), axis=1)
    values = np.full(words.size, WORDS**-0.5, dtype=np.float32)
    return Batch(
        sparse=csr_array(
            (values, words.ravel().astype(np.int32), WORDS * np.arange(QUERIES + 1)), shape=(QUERIES, VOCABULARY)
        )
    )


# ---- the label graph ----


def walk_time_ratio(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """Processor seconds (all threads) of the label graph of ten times as many labels, relative to the smaller one."""
    return _ratio("walk", *WALKED)


def exact_time_ratio(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """The same for the expectation of the walks, which takes dense matrices of labels x labels."""
    return _ratio("exact", *EXPECTED)


def walk_memory(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """The most memory of a process, in GiB, that plants the targets and builds the graph of the larger size."""
    found = [alone(label_graph_case.measured, WALKED[1]) for _ in range(3)]
    return interval([run["peak_gib"] for run in found]), {"runs": found}


def _ratio(source: Any, small: int, large: int) -> tuple[Estimate, Mapping[str, Any]]:
    seconds = {n: _processor_seconds(n, LabelGraphConfig(source=source)) for n in (small, large)}
    logs = np.log(np.array(seconds[large])) - np.log(np.array(seconds[small]))
    found = interval(logs.tolist(), np.exp)
    return found, {f"processor seconds at {n} labels": times for n, times in seconds.items()}


def _processor_seconds(n_labels: int, config: LabelGraphConfig) -> list[float]:
    targets = label_graph_case.planted_targets(n_labels)
    seconds = []
    for repeat in range(REPEATS + 1):
        started = time.process_time()
        label_graph(targets, config, np.random.default_rng(repeat))
        seconds.append(time.process_time() - started)
    return seconds[1:]  # the first loads kernels


def interval(values: list[float], scale: Callable[[Any], Any] = np.asarray) -> Estimate:
    """The mean with the 95% interval of Student's t, on another `scale`."""
    reach = float(student_t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    mean = float(np.mean(values))
    return Estimate(float(scale(mean)), float(scale(mean - reach)), float(scale(mean + reach)))
