"""Experiments of GalaXC that one data set cannot hold: what known labels are worth, correlations over variants, and
times.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.claims.entries import Variant
from benchmarks.claims.galaxc_measures import embedding_recalls, warm_ranking
from benchmarks.claims.measures import Columns, MeasureFunction, ranking
from benchmarks.claims.timing import LABELS, VOCABULARY, WIDTH, bags, growth, one_label_each, planted_vectors, timed
from benchmarks.claims.verdict import Column, Estimate, estimate
from benchmarks.claims.workshop import Workshop
from benchmarks.claims.worlds import DataSpec
from longtail.graph.ops import unit_rows
from longtail.models.encoders import FrozenSum
from longtail.models.rankers import Classifier
from longtail.recipes.galaxc.graph import Fanout, GraphSpace, Shape, document_nodes, joint_graph
from longtail.recipes.galaxc.ranker import FrozenHops, JointGraphModel, node_views
from longtail.search.index import CENTROIDS, DOCUMENTS, ExactIndex, HnswIndex, Index
from longtail.types import F32

Measured = tuple[Estimate, Mapping[str, Any]]

SEEDS = 3
HOPS = 3


# ---- warm start ----


def warm_gain(workshop: Workshop, *, variant: Variant, warm: DataSpec, cold: DataSpec, metric: str) -> Measured:
    """Trained on and asked with known labels, less trained and asked without them; the same documents and hidden
    labels.
    """
    pairs = [
        (
            _column(workshop, variant, warm, seed, warm_ranking, metric),
            _column(workshop, variant, cold, seed, ranking, metric),
        )
        for seed in range(SEEDS)
    ]
    numbers = {"warm": [a.value for a, _ in pairs], "cold": [b.value for _, b in pairs]}
    return estimate(
        [a for a, _ in pairs], [b for _, b in pairs], shared=warm.shared, key=f"warm gain {metric}"
    ), numbers


def gain_beyond_text(
    workshop: Workshop,
    *,
    variant: Variant,
    text: Variant,
    warm: DataSpec,
    cold: DataSpec,
    metric: str,
    shuffled: bool = False,
) -> Measured:
    """The same gain, less that of a method that can only be trained on the known labels. shuffled: labels of other
    documents are given.
    """
    asked = f"shuffled {metric}" if shuffled else metric

    def gains(of: Variant, by: MeasureFunction, name: str) -> list[Column]:
        return [
            _difference(_column(workshop, of, warm, seed, by, name), _column(workshop, of, cold, seed, ranking, metric))
            for seed in range(SEEDS)
        ]

    ours, theirs = gains(variant, warm_ranking, asked), gains(text, ranking, metric)
    numbers = {
        "gain": statistics.fmean(c.value for c in ours),
        "gain of text": statistics.fmean(c.value for c in theirs),
    }
    return estimate(ours, theirs, shared=False, key=f"gain beyond text {asked}"), numbers


def _column(
    workshop: Workshop, variant: Variant, data: DataSpec, seed: int, by: MeasureFunction, metric: str
) -> Column:
    measured: Columns = by(workshop.trained(variant, data, seed))
    return measured[metric]


def _difference(a: Column, b: Column) -> Column:
    """Both are over the same documents with the same weights, so their difference is one column."""
    return Column(a.numerator - b.numerator, a.denominator)


# ---- initial vectors ----


def recall_and_precision(
    workshop: Workshop, *, variants: Mapping[str, Variant], data: DataSpec, seeds: int = SEEDS
) -> Measured:
    """Spearman's correlation, over variants, of the recall of initial vectors with the final P@1; one number per
    seed, in percent.
    """
    table = {
        name: [
            (
                _column(workshop, variant, data, seed, embedding_recalls, "initial").value,
                _column(workshop, variant, data, seed, ranking, "P@1").value,
            )
            for seed in range(seeds)
        ]
        for name, variant in variants.items()
    }
    found = [
        spearman([row[seed][0] for row in table.values()], [row[seed][1] for row in table.values()])
        for seed in range(seeds)
    ]
    return over_seeds([100 * each for each in found]), {
        name: {"recall": [r for r, _ in row], "P@1": [p for _, p in row]} for name, row in table.items()
    }


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Correlation of ranks; 0 where all of one side are equal."""
    from scipy.stats import rankdata

    x, y = rankdata(a), rankdata(b)
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) and np.ptp(y) else 0.0


def over_seeds(values: Sequence[float]) -> Estimate:
    """A mean with the interval of Student's t over seeds."""
    from scipy.stats import t

    mean, reach = statistics.fmean(values), 0.0
    if len(values) > 1:
        reach = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return Estimate(mean, mean - reach, mean + reach)


# ---- time ----


def attention_time(workshop: Workshop, *, attentive: Variant, plain: Variant, data: DataSpec) -> Measured:
    """How many times longer the whole training takes with attention; a ratio per seed."""
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    for seed in range(SEEDS):
        for name, variant in (("with", attentive), ("without", plain)):
            workshop.trained(variant, data, seed)
            # Stages inside another stage are counted by the outer one.
            stages = workshop.seconds(variant, data, seed)
            seconds[name].append(sum(each for stage, each in stages.items() if stage not in ("1_start", "1_astec")))
    return over_seeds([a / b for a, b in zip(seconds["with"], seconds["without"], strict=True)]), seconds


def graph_prediction(workshop: Workshop) -> Measured:
    """The exponent of the time of a whole prediction over the number of labels: link, convolve, shortlist, score."""
    return growth({n: timed(_prediction(n, _hnsw)) for n in LABELS})


def exhaustive_prediction(workshop: Workshop) -> Measured:
    """The same with exact search, which looks at every node and label."""
    return growth({n: timed(_prediction(n, lambda vectors, documents: ExactIndex.build(vectors))) for n in LABELS})


def _hnsw(vectors: F32, documents: bool) -> Index:
    return HnswIndex.build(vectors, DOCUMENTS if documents else CENTROIDS)


def _prediction(labels: int, make_index: Callable[[F32, bool], Index]) -> Callable[[], object]:
    """A model of random weights over `labels` labels and as many documents of one label each, and a batch to rank."""
    rng = np.random.default_rng([labels, 0x6A])
    vectors: F32 = unit_rows(planted_vectors(2 * labels, labels))
    graph = joint_graph(one_label_each(labels), document_nodes(labels, labels, np.zeros((0, 2), np.int64)), rng)
    space = GraphSpace(
        encoder=FrozenSum(planted_vectors(VOCABULARY, 1)),
        graph=graph,
        vectors=vectors,
        linker=make_index(vectors, True),
        fanout=Fanout((4, 3, 2)),
        shape=Shape(),
    )
    eye = np.tile(np.eye(WIDTH, dtype=np.float32), (HOPS, 1, 1))
    hops = FrozenHops(np.full(HOPS, 0.5, np.float32), eye, np.zeros((HOPS, WIDTH), np.float32))
    index = make_index(node_views(hops, space.paths, np.arange(labels, dtype=np.int32)).search, False)
    alphas = rng.dirichlet([1.0] * HOPS, labels).astype(np.float32)
    model = JointGraphModel(
        space, hops, index, Classifier(rng.standard_normal((labels, WIDTH), dtype=np.float32)), alphas, 500
    )
    batch = bags(rng)
    return lambda: model.rank(batch, 5)
