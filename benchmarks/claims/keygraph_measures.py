"""Measures of what is inside a trained GNN-XML model, and how its prediction time grows with the number of labels."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from benchmarks.claims.graph_measures import lost_information
from benchmarks.claims.measures import Columns, Trained
from benchmarks.claims.model_measures import batch_to_rank
from benchmarks.claims.timing import QUERIES, growth, timed
from benchmarks.claims.verdict import Column, Estimate, slope
from benchmarks.claims.workshop import Workshop
from longtail.errors import ConfigError
from longtail.models.encoders import FrozenGinLayer
from longtail.persistence import load_part
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.label_clusters import FrequencyCurves
from longtail.recipes.gnnxml.ranker import ClusterRankers, FrozenBranch, FrozenGin, KeygraphModel
from longtail.search.index import ExactIndex
from longtail.search.linear import LinearRows
from longtail.types import F32, I32, Batch, Csr

# ---- clusters ----

# Planted worlds are small: a label or cluster of more documents counts as frequent there. The paper has 100.
FREQUENT = 30


def cluster_quality(trained: Trained) -> Columns:
    """How good the clusters are to the matcher and by themselves.

    cluster recall: share of a document's labels in the clusters that are looked into. LMI and training LMI: what
    clusters lose of the information that labels have about documents, in percent of it; lower is better. Labels never
    seen in training are one cluster more.
    """
    model, truth = _model(trained), trained.world.yardstick.truth
    rankers = model.rankers
    clusters = np.where(rankers.clusters >= 0, rankers.clusters, rankers.n_clusters).astype(np.int32)
    looked = model.best_clusters(batch_to_rank(trained)).ids
    found = _pairs_in(truth, clusters, looked)
    counts = np.diff(truth.indptr)
    recall = Column(found / np.maximum(counts, 1), (counts > 0).astype(np.float64))
    return {
        "cluster recall": recall,
        "LMI": lost_information(truth, clusters),
        "training LMI": lost_information(trained.training.targets, clusters),
    }


def _pairs_in(truth: Csr, clusters: I32, looked: I32) -> Any:
    """(N,) labels of each document whose cluster is one of those looked into."""
    document = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    hit = (clusters[truth.indices][:, None] == looked[document]).any(axis=1)
    return np.bincount(document, weights=hit, minlength=truth.shape[0])


def frequent_shares(trained: Trained) -> Columns:
    """Percent of labels and of clusters with more than `FREQUENT` training documents. One number per training."""
    curves: Any = load_part(trained.run / "analysis" / "frequencies")
    if not isinstance(curves, FrequencyCurves):
        raise ConfigError("the training left no frequencies of labels and clusters", "measure the recipe gnnxml")
    labels, clusters = curves.frequent_shares(FREQUENT)
    return {"frequent labels": _one(labels / 100), "frequent clusters": _one(clusters / 100)}


def _one(value: float) -> Column:
    return Column(np.array([value]), np.ones(1))


def _model(trained: Trained) -> KeygraphModel:
    ranker: Any = trained.predictor.bundle.ranker
    if not isinstance(ranker, KeygraphModel):
        raise ConfigError(
            f"the trained model is a {type(ranker).__name__}, which has no clusters of keyword graphs",
            "measure the recipe gnnxml",
        )
    return ranker


# ---- prediction time ----

LABELS = (6_000, 24_000, 96_000, 384_000)
LABELS_PER_CLUSTER, MOST_CLUSTERS = 60, 2_048
BEAM = 15
WIDTH, VOCABULARY, WORDS, WEIGHTS = (
    64,
    20_000,
    30,
    20,
)  # of vectors, of words, words of a document, words that a ranker weighs
VERTICES, SENTENCES = 10, 4  # of a document


def prediction_growth(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """The exponent of prediction time over the number of labels, a 60th of them as clusters up to a limit."""
    return growth({n: timed(_prediction(n, BEAM)) for n in LABELS})


def exhaustive_against_beam(workshop: Workshop) -> tuple[Estimate, Mapping[str, Any]]:
    """By how much the exponent is higher if all clusters are looked into: what both have in common cancels."""
    medians = {n: [statistics.median(timed(_prediction(n, beam))) for beam in (n, BEAM)] for n in LABELS}
    ratios = np.array([all_of_them / some for all_of_them, some in medians.values()])
    found = slope(np.log(np.array(LABELS, dtype=np.float64)), np.log(ratios))
    return found, {
        f"all clusters / {BEAM} at {n} labels": ratio for n, ratio in zip(medians, ratios.tolist(), strict=True)
    }


def _prediction(labels: int, beam: int) -> Callable[[], object]:
    """A model of random weights, and documents to rank."""
    rng = np.random.default_rng([labels, 0x16])
    clusters = min(labels // LABELS_PER_CLUSTER, MOST_CLUSTERS)
    heads = rng.standard_normal((clusters, 2 * 2 * WIDTH + 1), dtype=np.float32)
    model = KeygraphModel(
        _network(rng), ExactIndex.build(heads, "dot"), _rankers(labels, clusters, rng), min(beam, clusters), "tfidf"
    )
    batch = Batch(sparse=_rows(QUERIES, WORDS, rng), graphs=_graphs(rng))
    return lambda: model.rank(batch, 5)


def _network(rng: np.random.Generator) -> FrozenGin:
    def layer() -> FrozenGinLayer:
        square: F32 = rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / np.float32(WIDTH)
        return FrozenGinLayer(0.0, square, np.zeros(WIDTH, np.float32), square, np.zeros(WIDTH, np.float32))

    scale = np.ones(2 * WIDTH, dtype=np.float32)
    return FrozenGin((), {name: FrozenBranch((layer(),), scale, 0 * scale) for name in ("conventional", "rebalance")})


def _rankers(labels: int, clusters: int, rng: np.random.Generator) -> ClusterRankers:
    owner = np.sort(np.arange(labels) % clusters)
    starts = np.append(0, np.cumsum(np.bincount(owner, minlength=clusters))).astype(np.int64)
    solved = LinearRows(_rows(labels, WEIGHTS, rng), np.zeros(labels, np.float32), np.zeros(labels, np.int32))
    return ClusterRankers.of(solved, labels, np.arange(labels, dtype=np.int32), starts)


def _rows(count: int, entries: int, rng: np.random.Generator) -> Csr:
    """(count, VOCABULARY) with so many entries per row."""
    words = np.sort(
        (np.arange(entries) * (VOCABULARY // entries) + rng.integers(VOCABULARY // entries, size=(count, entries))),
        axis=1,
    )
    values = rng.random(words.size, dtype=np.float32)
    return csr_array(
        (values, words.ravel().astype(np.int32), entries * np.arange(count + 1)), shape=(count, VOCABULARY)
    )


def _graphs(rng: np.random.Generator) -> KeyGraphs:
    """Complete graphs, every vertex with two sentences."""
    vertices = QUERIES * VERTICES
    others = np.array([[v for v in range(VERTICES) if v != u] for u in range(VERTICES)], dtype=np.int32)
    return KeyGraphs(
        vertex_starts=np.arange(QUERIES + 1) * VERTICES,
        sentence_starts=np.arange(QUERIES + 1) * SENTENCES,
        words=np.full(QUERIES, WORDS, np.int32),
        edge_starts=np.arange(vertices + 1) * (VERTICES - 1),
        neighbours=np.tile(others, (QUERIES, 1)).ravel(),
        weights=np.ones(vertices * (VERTICES - 1), np.float32),
        attach_starts=np.arange(vertices + 1) * 2,
        attached=np.tile(np.array([0, 2], np.int32), vertices),
        sentences=rng.standard_normal((QUERIES * SENTENCES, WIDTH)).astype(np.float16),
    )
