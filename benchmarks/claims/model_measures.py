"""Measures of what is inside a trained DeepXML model: shortlists, drift of features, members of an ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from benchmarks.claims.measures import Columns, Trained, columns_of
from benchmarks.claims.verdict import Column
from longtail import metrics
from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.metrics import hits
from longtail.models.rankers import Ensemble, Model, best
from longtail.recipes.astec.ranker import MergedShortlist
from longtail.search.cluster import label_centroids
from longtail.search.index import CENTROIDS, ExactIndex, HnswIndex, HnswSettings
from longtail.search.linear import LinearConfig, fit_linear
from longtail.types import F32, Batch, Csr, Shortlister, TopK

RECALL_KS = (20, 30, 100, 300)
LIST_LENGTH = 100  # of the lists whose overlap is measured
HEADS = 4  # labels that count as heads where none are multi-modal
_SLACK = 1e-6  # of the drift bound, for rounding
# A graph with hardly any links: what HNSW is without what makes it work.
CRIPPLED = HnswSettings(neighbours=2, build_effort=1, query_effort=1)


# ---- shortlists ----


def shortlist_recall(trained: Trained) -> Columns:
    """Share of a document's labels among the first k of the shortlist: ``recall@20``, ..., and at its full length
    ``recall``.
    """
    model, search = _model(trained), _search_vectors(trained)
    top = model.shortlister.query(search, model.shortlist_size)
    truth = trained.world.yardstick.truth
    return {
        "recall": recall_column(top, truth, top.k),
        **{f"recall@{k}": recall_column(top, truth, k) for k in RECALL_KS if k <= top.k},
    }


def structure_recall(trained: Trained) -> Columns:
    """Recall of the full shortlist by both structures, by each alone, and by both with the votes made idle."""
    model, search = _model(trained), _search_vectors(trained)
    both: Any = model.shortlister
    if not isinstance(both, MergedShortlist):
        raise ConfigError(
            f"the shortlister is a {type(both).__name__}, not one of two structures", "set shortlist.structures=both"
        )
    kinds: dict[str, Shortlister] = {
        "both": both,
        "labels": both.labels,
        "documents": both.instances,
        "idle votes": MergedShortlist(both.labels, both.instances, 0.0, 0.0),
    }
    truth = trained.world.yardstick.truth
    return {
        f"recall by {name}": recall_column(kind.query(search, model.shortlist_size), truth, model.shortlist_size)
        for name, kind in kinds.items()
    }


def head_recall(trained: Trained) -> Columns:
    """Recall of head labels (the multi-modal ones, or the most frequent), and of all others, among the first k of the
    shortlist.
    """
    model, search = _model(trained), _search_vectors(trained)
    top, truth = model.shortlister.query(search, model.shortlist_size), trained.world.yardstick.truth
    planted = trained.world.planted
    heads = (
        planted.multimodal
        if planted is not None and len(planted.multimodal)
        else np.argsort(-trained.world.yardstick.counts, kind="stable")[:HEADS]
    )
    is_head = np.zeros(truth.shape[1], dtype=bool)
    is_head[heads] = True
    sides = {"heads": only_labels(truth, is_head), "others": only_labels(truth, ~is_head)}
    # Pairs are counted, not documents: a document has at most a few heads.
    return {
        f"recall@{k} of {name}": pair_recall(top, side, k)
        for name, side in sides.items()
        for k in RECALL_KS
        if k <= top.k
    }


def list_overlap(trained: Trained) -> Columns:
    """How far the nearest labels by v and by refined features agree, and how far those of two unrelated documents do.

    Labels are ranked by the cosine to their centroid, which is the mean of their documents in the same space.
    """
    model = _model(trained)
    if model.refinement is None:
        raise ConfigError("the model has no refined features", "set transfer.block=residual")
    documents, queries = model.encoder.encode(trained.training.documents), _search_vectors(trained)
    k = min(LIST_LENGTH, trained.training.n_labels)
    by_v = _nearest_labels(documents, queries, trained.training.targets, k)
    by_refined = _nearest_labels(
        model.refinement.apply(documents), model.refinement.apply(queries), trained.training.targets, k
    )
    return {
        "overlap": _overlap(by_v, by_refined),
        "overlap of unrelated": _overlap(by_v, TopK(np.roll(by_refined.ids, 1, axis=0), by_refined.scores)),
    }


def index_recall(trained: Trained) -> Columns:
    """Share of the true 100 nearest centroids that HNSW finds, at its defaults and with a crippled graph."""
    model, queries = _model(trained), _search_vectors(trained)
    centroids = label_centroids(model.encoder.encode(trained.training.documents), trained.training.targets)
    centroids = centroids[np.any(centroids != 0, axis=1)]
    k = min(LIST_LENGTH, len(centroids))
    true = ExactIndex.build(centroids).query(queries, k)

    def found(settings: HnswSettings) -> Column:
        scores = HnswIndex.build(centroids, settings).query(queries, k).scores
        # By score, not by number: of equally near labels any will do.
        hit = (scores >= true.scores[:, -1:] - 1e-5).sum(axis=1)
        return mean_column(hit / k)

    return {"recall of HNSW": found(CENTROIDS), "recall of a crippled graph": found(CRIPPLED)}


# ---- features ----


def drift(trained: Trained) -> Columns:
    """How far refined features are from v, relative to the length of v: the mean, and the share of documents beyond
    the bound 1.
    """
    model, v = _model(trained), _search_vectors(trained)
    if model.refinement is None:
        raise ConfigError("the model has no refined features", "set transfer.block=residual")
    length = np.linalg.norm(v, axis=1).astype(np.float64)
    moved = np.linalg.norm(model.refinement.apply(v) - v, axis=1).astype(np.float64)
    relative = np.divide(moved, length, out=np.zeros_like(moved), where=length > 0)
    return {"drift": mean_column(relative), "beyond the bound": mean_column((relative > 1 + _SLACK).astype(np.float64))}


# ---- ensembles and baselines ----


def members(trained: Trained) -> Columns:
    """The ensemble's metrics, the mean of its members' (``members P@5``), and those of one member thrice (``repeated
    P@5``).
    """
    ensemble: Any = trained.predictor.bundle.ranker
    if not isinstance(ensemble, Ensemble):
        raise ConfigError(f"the model is a {type(ensemble).__name__}, not an ensemble", "set ensemble.learners=3")
    yardstick, batch = trained.world.yardstick, batch_to_rank(trained)
    alone = [columns_of(yardstick.measure(member.rank(batch, yardstick.depth))) for member in ensemble.members]
    repeated = Ensemble((ensemble.members[0],) * len(ensemble.members), ensemble.depth)
    together = {"": ensemble, "repeated ": repeated}
    found = {
        f"{prefix}{name}": column
        for prefix, kind in together.items()
        for name, column in columns_of(yardstick.measure(kind.rank(batch, yardstick.depth))).items()
    }
    found |= {f"first {name}": column for name, column in alone[0].items()}
    return found | {
        f"members {name}": Column(np.mean([a[name].numerator for a in alone], axis=0), column.denominator)
        for name, column in alone[0].items()
    }


def linear_one_vs_all(trained: Trained) -> Columns:
    """Contributions of labels of each frequency to P@5, PSP@5 and FN@5, and P@1 and PSP@5, of linear one-vs-all on
    TF-IDF.
    """
    training, yardstick, batch = trained.training, trained.world.yardstick, batch_to_rank(trained)
    top = one_vs_all(
        training.documents.sparse, training.targets, batch.sparse, yardstick.depth, np.random.default_rng(trained.seed)
    )
    bins = metrics.bins_for("by_frequency", yardstick.counts)
    by_bin = metrics.measure_bins(yardstick.cut(top), yardstick.truth, yardstick.inverse_propensity, bins, (5,))
    return {**columns_of(yardstick.measure(top)), **columns_of(by_bin)}


def one_vs_all(documents: Csr, targets: Csr, queries: Csr, k: int, rng: np.random.Generator, block: int = 512) -> TopK:
    """The `k` best labels of `queries` by linear classifiers, each trained on all `documents` (DiSMEC without pruning).

    documents: (N, V) CSR. targets: (N, L) CSR. queries: (B, V) CSR.
    """
    n, n_labels = targets.shape
    everyone = csr_array(np.ones((1, n), dtype=np.float32))
    rows = fit_linear(
        documents, targets.T.tocsr(), everyone, np.zeros(n_labels, dtype=np.int64), LinearConfig(prune=0.0), rng
    )
    labels = np.arange(n_labels, dtype=np.int32)
    found = []
    for start in range(0, queries.shape[0], block):
        scores = (queries[start : start + block] @ rows.weights.T).toarray() + rows.bias
        found.append(best(np.broadcast_to(labels, scores.shape), scores, k))
    return TopK(np.concatenate([top.ids for top in found]), np.concatenate([top.scores for top in found]))


# ---- pieces ----


def _model(trained: Trained) -> Model:
    """The model inside a bundle, under a re-ranker if there is one."""
    ranker: Any = trained.predictor.bundle.ranker
    ranker = getattr(ranker, "base", ranker)
    if not isinstance(ranker, Model):
        raise ConfigError(
            f"the trained model is a {type(ranker).__name__}, which has no shortlist to look into",
            "measure a recipe that ends in a Model",
        )
    return ranker


def batch_to_rank(trained: Trained) -> Batch:
    return trained.predictor.bundle.featurizer.batch(trained.world.dataset.need_test().documents)


def _search_vectors(trained: Trained) -> F32:
    """(N', D): v of the test documents."""
    return _model(trained).encoder.encode(batch_to_rank(trained))


def _nearest_labels(documents: F32, queries: F32, targets: Csr, k: int) -> TopK:
    return ExactIndex.build(label_centroids(documents, targets)).query(unit_rows(queries), k)


def _overlap(a: TopK, b: TopK) -> Column:
    """Share of the labels of each row of `a` that the same row of `b` has."""
    shared = np.array([len(np.intersect1d(x, y)) for x, y in zip(a.ids, b.ids, strict=True)], dtype=np.float64)
    return mean_column(shared / a.k)


def recall_column(top: TopK, truth: Csr, k: int) -> Column:
    """Share of each document's labels among its first k; documents without labels are left out."""
    n_labels = np.diff(truth.indptr)
    found = hits(metrics.cut(top, k), truth).sum(axis=1)
    return Column(found / np.maximum(n_labels, 1), (n_labels > 0).astype(np.float64))


def pair_recall(top: TopK, truth: Csr, k: int) -> Column:
    """Share of all (document, label) pairs that are found."""
    return Column(
        hits(metrics.cut(top, k), truth).sum(axis=1).astype(np.float64), np.diff(truth.indptr).astype(np.float64)
    )


def only_labels(truth: Csr, wanted: Any) -> Csr:
    """The truth without pairs of unwanted labels."""
    kept = truth.copy()
    kept.data = np.where(wanted[kept.indices], kept.data, 0)
    kept.eliminate_zeros()
    return kept


def mean_column(values: Any) -> Column:
    return Column(np.asarray(values, dtype=np.float64), np.ones(len(values)))
