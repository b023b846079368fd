"""How prediction time grows with the number of labels: probes that train nothing, over planted vectors."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from benchmarks.claims.verdict import Estimate, slope
from benchmarks.claims.workshop import Workshop
from longtail.models.encoders import FrozenBag, ResidualMap
from longtail.models.shortlisted import Classifier, Model
from longtail.search.index import CENTROIDS, DOCUMENTS, ExactIndex, HnswIndex, HnswSettings
from longtail.search.shortlist import InstanceVote, LabelIndex, MergedShortlist
from longtail.types import F32, Batch, Csr

LABELS = (1_000, 4_000, 16_000, 64_000, 256_000)
WIDTH = 128
QUERIES = 256
NEAREST = 10  # few, so that ranking what was found, which costs the same at every size, does not hide the growth
REPEATS = 5
VOCABULARY, WORDS = 20_000, 8
SHORTLIST = 500


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
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return seconds


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
    from scipy.sparse import csr_array

    return csr_array((np.ones(n, dtype=np.float32), np.arange(n, dtype=np.int32), np.arange(n + 1)), shape=(n, n))


def bags(rng: np.random.Generator) -> Batch:
    """`QUERIES` documents of `WORDS` words."""
    from scipy.sparse import csr_array

    words = np.sort(np.stack([rng.choice(VOCABULARY, WORDS, replace=False) for _ in range(QUERIES)]), axis=1)
    values = np.full(words.size, WORDS**-0.5, dtype=np.float32)
    return Batch(
        sparse=csr_array(
            (values, words.ravel().astype(np.int32), WORDS * np.arange(QUERIES + 1)), shape=(QUERIES, VOCABULARY)
        )
    )
