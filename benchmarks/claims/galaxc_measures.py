"""Measures of what is inside a trained `JointGraphModel`: warm start, links by anchors, recall of embeddings,
attention by frequency.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.claims.measures import Columns, Trained, columns_of
from benchmarks.claims.model_measures import batch_to_rank
from benchmarks.claims.verdict import Column
from longtail import metrics
from longtail.errors import ConfigError
from longtail.evaluation import context_of_test, rank_test
from longtail.metrics import hits
from longtail.recipes.galaxc.graph import JointGraph
from longtail.recipes.galaxc.ranker import JointGraphModel, attention, hop_norms
from longtail.search.index import ExactIndex
from longtail.training.progress import SilentDisplay
from longtail.types import F32, Context, Csr, TopK

BINS = 5


# ---- documents of which more is known than their text ----


def warm_ranking(trained: Trained) -> Columns:
    """Every metric, with the labels that are known of test documents as their edges; ``shuffled P@1``: with those of
    other documents.
    """
    yardstick, model = trained.world.yardstick, trained.predictor
    context = context_of_test(model, yardstick)
    if context is None or context.labels is None:
        raise ConfigError("no labels of test documents are known", "measure a world of warm start")
    order = np.random.default_rng(trained.seed).permutation(context.labels.shape[0])
    others = Context(context.labels[order])
    kinds = {"": context, "shuffled ": others}
    return {
        f"{prefix}{name}": column
        for prefix, known in kinds.items()
        for name, column in columns_of(yardstick.measure(rank_test(model, yardstick, SilentDisplay(), known))).items()
    }


def anchored_ranking(trained: Trained) -> Columns:
    """Every metric, with test documents linked by the anchors that they really have (known only of a planted world)."""
    planted = trained.world.planted
    if planted is None or planted.oracle_test is None:
        raise ConfigError(
            "the anchors of test documents are not known", "measure a planted world with graph_coverage > 0"
        )
    yardstick = trained.world.yardstick
    top = rank_test(trained.predictor, yardstick, SilentDisplay(), Context(anchors=planted.oracle_test))
    return columns_of(yardstick.measure(top))


# ---- embeddings ----


def embedding_recalls(trained: Trained) -> Columns:
    """Share of a document's labels among the 100 whose embeddings are nearest: ``initial``, ``mean of hops``, and
    ``without edges``.

    Without edges: the same transformations of documents and labels that have no neighbours.
    """
    model, batch, truth = model_of(trained), batch_to_rank(trained), trained.world.yardstick.truth
    alone = isolated(model)
    nothing = np.full((len(batch), 1), TopK.PAD, dtype=np.int32)
    initial = model.space.initial(batch)
    sides: dict[str, tuple[F32, F32]] = {
        "initial": (initial, model.space.vectors[: model.n_labels]),
        "mean of hops": (model.views(batch).search, model.label_views().search),
        "without edges": (
            alone.hops.of_linked(alone.space.paths, initial, nothing, 0).search,
            alone.label_views().search,
        ),
    }
    return {name: recall(queries, labels, truth, 100) for name, (queries, labels) in sides.items()}


def isolated(model: JointGraphModel) -> JointGraphModel:
    """The same model over a graph without edges."""
    graph = model.space.graph
    lonely = JointGraph(np.zeros(len(graph) + 1, np.int64), np.zeros(0, np.int32), graph.nodes, graph.n_labels)
    return replace(model, space=replace(model.space, graph=lonely))


def recall(queries: F32, labels: F32, truth: Csr, k: int) -> Column:
    """Documents without labels are left out."""
    top = ExactIndex.build(labels).query(queries, min(k, len(labels)))
    counts = np.diff(truth.indptr)
    found = hits(metrics.cut(top, k), truth).sum(axis=1)
    return Column(found / np.maximum(counts, 1), (counts > 0).astype(np.float64))


# ---- shortlists ----


def without_shortlist(trained: Trained) -> Columns:
    """Every metric, with all labels scored."""
    yardstick, model = trained.world.yardstick, model_of(trained)
    return columns_of(yardstick.measure(model.exhaustive().rank(batch_to_rank(trained), yardstick.depth)))


# ---- attention ----


def far_attention(trained: Trained) -> Columns:
    """By how much the share of hops 2 and 3 in (attention x length) is larger for rare labels than for frequent ones,
    per label.

    ``tail - head``: the rarest fifth of the labels against the most frequent one; ``shuffled``: frequencies dealt out
    anew.
    """
    model = model_of(trained)
    weights = attention(model) * hop_norms(model)
    far = 1 - weights[:, 0] / weights.sum(axis=1)
    counts = trained.predictor.bundle.labels.counts
    shuffled = np.random.default_rng(trained.seed).permutation(counts)
    return {"tail - head": _contrast(far, counts), "shuffled": _contrast(far, shuffled)}


def _contrast(values: Any, counts: Any) -> Column:
    """A mean over labels that is the mean of the last bin less that of the first. Values are centred: what all share
    must not add to the spread.
    """
    bins = metrics.equal_count(counts, BINS).bin_of_label
    first, last = bins == 0, bins == BINS - 1
    sign = last * (len(values) / last.sum()) - first * (len(values) / first.sum())
    return Column((values - values.mean()) * sign, np.ones(len(values)))


# ---- pieces ----


def model_of(trained: Trained) -> JointGraphModel:
    ranker: Any = trained.predictor.bundle.ranker
    if not isinstance(ranker, JointGraphModel):
        raise ConfigError(
            f"the trained model is a {type(ranker).__name__}, which looks at no graph", "measure the recipe galaxc"
        )
    return ranker
