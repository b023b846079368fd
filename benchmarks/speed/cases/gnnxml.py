"""GNN-XML's own parts: keyword graphs, clusters of labels, and the classifiers inside clusters; time and memory.

    python -m benchmarks.speed gnnxml [DATA] --part keygraphs|clusters|rankers|all [--scale S] --out FILE.json

keygraphs  graphs of 100,000 planted descriptions of 65 words, sentence vectors excluded; wanted: under 3 minutes on 2
           cores
clusters   500,000 planted labels of 300 numbers, filtered and clustered into 8,333; wanted: under 10 minutes and 4 GB
rankers    all classifiers of DATA (titles and contents), after a short training of the matcher; wanted on
           debian-related: under 60 s

Every part runs in a process of its own, so that its peak memory is its own; kernels are compiled before. Seconds are
of the wall and of all processors together: on a machine that others use too, the second number says more. --scale
makes planted data smaller.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.cases.label_graph import planted_targets
from benchmarks.speed.common import GIB, Measured, alone, data_argument, timed
from longtail.data.read import read
from longtail.pipeline import prepared
from longtail.recipes import make_recipe
from longtail.recipes.gnnxml.keygraph import GraphBuilder, KeyGraphConfig, plain_reader
from longtail.recipes.gnnxml.label_clusters import correlation_graph, low_pass, minibatch_kmeans, spread_matrix
from longtail.training.run import Run, peak_memory_so_far
from longtail.types import F32

DESCRIPTIONS, SENTENCE, SENTENCES, VOCABULARY = 100_000, 13, 5, 50_000
LABELS, WIDTH, LABELS_PER_CLUSTER, ORDER = 500_000, 300, 60, 3
BLOCK = 50_000  # labels whose features are made at once


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser, "for rankers: a data set with title and content, e.g. debian-related", optional=True)
    parser.add_argument("--part", default="all", choices=["keygraphs", "clusters", "rankers", "all"])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the planted data")


def measure(options: argparse.Namespace) -> Measured:
    found: dict[str, Any] = {}
    if options.part in ("keygraphs", "all"):
        found["keygraphs"] = alone(keygraphs, options.scale)
    if options.part in ("clusters", "all"):
        found["clusters"] = alone(clusters, options.scale)
    if options.part in ("rankers", "all"):
        given = options.data is not None
        found["rankers"] = alone(rankers, str(options.data)) if given else {"left_out": "no DATA given"}
    return Measured(found)


def peak_gib() -> float:
    return round(peak_memory_so_far() / GIB, 2)


# ---- keyword graphs ----


def keygraphs(scale: float) -> dict[str, Any]:
    texts = descriptions(round(DESCRIPTIONS * scale))
    builder = GraphBuilder(KeyGraphConfig(), (), plain_reader())
    list(builder.blocks([texts[:10]]))  # compiles or loads the kernels

    def build() -> dict[str, int]:
        counts = {"vertices": 0, "edges": 0, "sentences": 0}
        for made in builder.blocks([texts]):
            counts["vertices"] += len(made.pieces.edges)
            counts["edges"] += len(made.pieces.neighbours)
            counts["sentences"] += len(made.sentences)
        return counts

    counts, spent = timed(build)
    return {"documents": len(texts), **spent, **counts, "peak_gib": peak_gib()}


def descriptions(count: int) -> list[str]:
    """Texts of 5 sentences of 13 words; frequent words are frequent, as in language."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(VOCABULARY)], dtype=object)
    texts = []
    for _ in range(count):
        chosen = words[(VOCABULARY * rng.random((SENTENCES, SENTENCE)) ** 4).astype(np.int64)]
        texts.append(" ".join(" ".join(sentence) + "." for sentence in chosen))
    return texts


# ---- clusters ----


def clusters(scale: float) -> dict[str, Any]:
    n_labels = round(LABELS * scale)
    count, rng = n_labels // LABELS_PER_CLUSTER, np.random.default_rng(1)
    targets = planted_targets(n_labels)
    features = [label_features(n_labels)]
    spread, graph_time = timed(lambda: spread_matrix(correlation_graph(targets)))
    # Popped: nobody else holds what was filtered.
    filtered, filter_time = timed(lambda: low_pass(features.pop(), spread, ORDER))
    owners, cluster_time = timed(lambda: minibatch_kmeans(filtered, count, rng))
    sizes = np.bincount(owners, minlength=count)
    return {
        "labels": n_labels,
        "clusters": count,
        "edges": int(spread.nnz),
        "largest_cluster": int(sizes.max()),
        "empty_clusters": int((sizes == 0).sum()),
        "graph": graph_time,
        "filter": filter_time,
        "k_means": cluster_time,
        "seconds": round(sum(t["seconds"] for t in (graph_time, filter_time, cluster_time)), 2),
        "peak_gib": peak_gib(),
    }


def label_features(n_labels: int) -> F32:
    """Unit rows around as many directions as there will be clusters, made in blocks."""
    rng = np.random.default_rng(2)
    centres = rng.standard_normal((max(n_labels // LABELS_PER_CLUSTER, 1), WIDTH), dtype=np.float32)
    features = np.empty((n_labels, WIDTH), dtype=np.float32)
    for start in range(0, n_labels, BLOCK):
        block = centres[rng.integers(len(centres), size=min(BLOCK, n_labels - start))]
        block += 0.7 * rng.standard_normal(block.shape, dtype=np.float32)
        features[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return features


# ---- rankers ----


def rankers(source: str) -> dict[str, Any]:
    recipe = make_recipe("gnnxml", assignments=["features.fields=title,content", "matcher.epochs=2"])
    with tempfile.TemporaryDirectory() as folder, Run.open(Path(folder) / "run", {}, device="cpu") as run:
        data = prepared(recipe, read(source, test=False), run)
        clusters = run.stage("1_surrogate", lambda: recipe.surrogate(data, run))
        matcher = run.stage("2_shortlist", lambda: recipe.shortlist(data, clusters, run))
        model, spent = timed(lambda: recipe.classify(data, clusters, matcher, None, run))
    weights = model.state().parts["rankers"]
    return {
        "labels": len(weights.labels),
        "documents": data.n_documents,
        "clusters": weights.n_clusters,
        **spent,
        "peak_gib": peak_gib(),
    }
