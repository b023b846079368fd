"""Measures of what graphs did to an encoder: edges told from noise, links of test documents, weights, unseen labels,
times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.claims.crafted_worlds import SECOND
from benchmarks.claims.entries import Variant
from benchmarks.claims.galaxc_probes import over_seeds
from benchmarks.claims.measures import Columns, Trained, columns_of, ranking
from benchmarks.claims.model_measures import recall_column
from benchmarks.claims.verdict import Column, Estimate, estimate
from benchmarks.claims.workshop import Workshop
from benchmarks.claims.worlds import DataSpec
from longtail.data.dataset import Items
from longtail.errors import ConfigError
from longtail.graph.anchor_graph import edge_rows
from longtail.recipes.ramen.graph_loss import edge_cosines
from longtail.search.index import ExactIndex
from longtail.types import F32, Batch, Csr

LINKS = (10, 100)  # anchors per test document that are looked at
SEEDS = 3
REPEATS, TURNS = 5, 4


def edges_told_apart(trained: Trained) -> Columns:
    """Of the documents' edges, how well cosines of the trained encoder tell true ones from injected ones.

    ``AUC`` and, over documents, ``precision of kept`` (cosine above 0) and ``precision of all``; ``AUC by chance``
    for shuffled cosines.
    """
    planted = trained.world.planted
    if planted is None or planted.injected_documents is None:
        raise ConfigError(
            "which edges are noise is known of planted graphs only", "measure this on planted data with a graph"
        )
    edges: Csr = trained.training.graphs["anchors"].documents
    injected = planted.injected_documents[trained.training.rows]
    is_noise = _entries(edges, injected)
    cosines = edge_cosines(edges, _encoded(trained, trained.training.documents), _anchors(trained))
    shuffled = np.random.default_rng([trained.seed, 0xE7]).permutation(cosines)
    rows, kept, n = edge_rows(edges), cosines > 0, int(edges.shape[0])

    def per_document(of: Any) -> Any:
        return np.bincount(rows[of], minlength=n).astype(np.float64)

    return {
        "AUC": _alone(_auc(cosines, is_noise)),
        "AUC by chance": _alone(_auc(shuffled, is_noise)),
        "precision of kept": Column(per_document(kept & ~is_noise), per_document(kept)),
        "precision of all": Column(per_document(~is_noise), per_document(np.ones(len(rows), dtype=bool))),
    }


def link_recall(trained: Trained) -> Columns:
    """Share of a test document's true anchors among the nearest k, ``links R@k``. Edges of test documents are for
    this measure only.
    """
    planted = trained.world.planted
    if planted is None or planted.oracle_test is None:
        raise ConfigError(
            "edges of test documents are known of planted graphs only", "measure this on planted data with a graph"
        )
    documents = _encoded(
        trained, trained.predictor.bundle.featurizer.batch(trained.world.dataset.need_test().documents)
    )
    nearest = ExactIndex.build(_anchors(trained)).query(documents, max(LINKS))
    return {f"links R@{k}": recall_column(nearest, planted.oracle_test, k) for k in LINKS}


def weight_order(trained: Trained) -> Columns:
    """``junk below``: 100 where the weights of the second anchor set ended below those of the first, else 0; one
    number per training.
    """
    lines = (trained.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    blocks = [event for event in map(json.loads, lines) if event["event"] == "bandit"]
    if not blocks:
        raise ConfigError("no weights were tried in this training", "measure the recipe ramen with bandit.enabled")
    weights: Mapping[str, float] = blocks[-1]["weights"]
    first, second = (
        [weight for name, weight in weights.items() if name.startswith(f"{graph}:")] for graph in ("anchors", SECOND)
    )
    return {"junk below": _alone(float(np.mean(second) < np.mean(first)))}


def unseen_ranking(trained: Trained) -> Columns:
    """The metrics of ranking test documents among labels that training never saw, by their texts alone."""
    yardstick, featurizer = trained.world.yardstick, trained.predictor.bundle.featurizer
    texts = featurizer.label_batch(yardstick.data.labels)
    assert texts is not None
    documents = _encoded(trained, featurizer.batch(yardstick.data.need_test().documents))
    top = ExactIndex.build(_encoded(trained, texts)).query(documents, min(yardstick.depth, len(yardstick.data.labels)))
    return columns_of(yardstick.measure(top))


# ---- probes ----


def paired_difference(
    workshop: Workshop, *, a: tuple[Variant, DataSpec], b: tuple[Variant, DataSpec], metric: str
) -> tuple[Estimate, Mapping[str, Any]]:
    """metric(a) - metric(b) of variants that are trained on different data with the same test side."""
    columns = [[ranking(workshop.trained(*each, seed))[metric] for seed in range(SEEDS)] for each in (a, b)]
    numbers = {name: [column.value for column in side] for name, side in zip(("a", "b"), columns, strict=True)}
    return estimate(columns[0], columns[1], shared=False, key=f"paired {metric}"), numbers


def time_ratio(workshop: Workshop, *, of: Variant, to: Variant, data: DataSpec) -> tuple[Estimate, Mapping[str, Any]]:
    """Time of predicting all test documents, one variant's by the other's; interval over repeats.

    In each both take turns, and the fastest of their turns count: what else a machine does makes a turn slower, never
    faster.
    """
    models = [workshop.trained(variant, data, 0) for variant in (of, to)]
    documents = models[0].world.dataset.need_test().documents
    for model in models:
        model.predictor.rank(documents, 5)
    seconds = [
        [min(times) for times in zip(*(_turn(models, documents) for _ in range(TURNS)), strict=True)]
        for _ in range(REPEATS)
    ]
    return over_seeds([first / second for first, second in seconds]), {"seconds": seconds, "documents": len(documents)}


def _turn(models: Sequence[Trained], documents: Items) -> list[float]:
    """Seconds of each model, one after the other."""
    seconds = []
    for model in models:
        started = time.perf_counter()
        model.predictor.rank(documents, 5)
        seconds.append(time.perf_counter() - started)
    return seconds


# ---- pieces ----


def _encoded(trained: Trained, batch: Batch) -> F32:
    ranker: Any = trained.predictor.bundle.ranker
    vectors: F32 = ranker.encoder.encode(batch)
    return vectors


def _anchors(trained: Trained) -> F32:
    anchors = trained.world.dataset.graphs["anchors"].anchors
    assert anchors is not None
    return _encoded(trained, trained.predictor.bundle.featurizer.batch_of_texts(list(anchors.fields["title"])))


def _entries(edges: Csr, some: Csr) -> Any:
    """(E,) whether an entry of `edges` is one of `some` too."""
    width = np.int64(edges.shape[1])
    return np.isin(edge_rows(edges) * width + edges.indices, edge_rows(some) * width + some.indices)


def _auc(scores: Any, is_noise: Any) -> float:
    """The chance that a true edge has a higher score than an injected one."""
    from scipy.stats import rankdata

    true, noise = int((~is_noise).sum()), int(is_noise.sum())
    if not true or not noise:
        raise ConfigError(
            f"{true} true and {noise} injected edges cannot be told apart",
            "measure this with noise_edges between 0 and 1",
        )
    return float((rankdata(scores)[~is_noise].sum() - true * (true + 1) / 2) / (true * noise))


def _alone(share: float) -> Column:
    """A number of the whole training: intervals come from seeds alone."""
    return Column(np.array([share]), np.ones(1))
