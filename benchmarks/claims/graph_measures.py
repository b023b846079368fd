"""Measures of what ECLARE's label graph does inside a trained model: clusters, GAME, components of classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.claims.crafted_worlds import PLANTED
from benchmarks.claims.measures import Columns, Trained, columns_of
from benchmarks.claims.model_measures import batch_to_rank, only_labels, pair_recall, recall_column
from benchmarks.claims.verdict import Column
from longtail.errors import ConfigError
from longtail.metrics import equal_volume
from longtail.models.rankers import ClusterModel
from longtail.persistence import load_part
from longtail.recipes.astec.ranker import EncodedTree, FindsClusters, SpreadTree
from longtail.recipes.eclare.stages import LabelComponents, augmented_clusters
from longtail.search.shortlist import GameSettings
from longtail.types import I32, I64, Batch, Csr, TopK

SHUFFLES = 200  # of label frequencies, whose mean correlation stands for none
FIRST = 10  # places in which a planted label counts as found
# The paper's form, and that of its released code: half of the scores stays where it was, so edges must keep their size.
GAME_FORMS = {"GAME": GameSettings(), "mixed GAME": GameSettings(mix=0.5, clusters="both")}


# ---- clusters ----


def cluster_loss(trained: Trained) -> Columns:
    """LMI: what clusters lose of the information that labels have about documents, in percent of it; lower is better.

    Of the model's clusters, of those that stage I learnt from (``LMI of stage I``), and of the model's with their
    labels dealt out at random (``LMI at random``): among test documents, and among the recorded pairs of training
    (``training LMI``), as in the paper. ``LMI without head clusters`` is that of augmented centroids as in stage I,
    were frequent labels not apart.
    """
    clusters, first, training = _cluster_model(trained).beam.clusters, trained.stage("1_surrogate"), trained.training
    rng = np.random.default_rng([trained.seed, 0xC1])
    no_heads = np.zeros(len(clusters), dtype=np.bool_)
    kinds: dict[str, I32] = {
        "LMI": clusters,
        "LMI of stage I": first.clusters,
        "LMI at random": rng.permutation(clusters),
        "LMI without head clusters": augmented_clusters(
            training.documents.sparse, training.targets, first.graph, no_heads, int(clusters.max()) + 1, rng
        ),
    }
    sides = {"": trained.world.yardstick.truth, "training ": training.targets}
    return {
        f"{side}{kind}": lost_information(targets, of_label)
        for side, targets in sides.items()
        for kind, of_label in kinds.items()
    }


def lost_information(targets: Csr, clusters: I32) -> Column:
    """`metrics.lmi` as a sum over documents. targets: (N, L) CSR of ones; clusters: (L,).

    I(label; document) is the mean over pairs of log(p(l, i) / p(l) p(i)), where p(i) is a document's share of the
    pairs. What a document loses is what its own pairs lose. Resampling documents leaves the frequencies of labels as
    they are.
    """
    n_documents = int(targets.shape[0])
    document = np.repeat(np.arange(n_documents), np.diff(targets.indptr))
    whole = _information(document, targets.indices.astype(np.int64), n_documents)
    left = _information(document, clusters[targets.indices].astype(np.int64), n_documents)
    return Column(whole - left, whole)


def _information(document: I64, kind: I64, n_documents: int) -> NDArray[np.float64]:
    """(N,): each document's part of I(kind; document), times the number of pairs. document, kind: (P,) one entry per
    pair.
    """
    pairs, of_pair, count = np.unique(
        np.stack([document, kind], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    of_kind, of_document = np.bincount(kind), np.bincount(document, minlength=n_documents)
    logs = np.log(count * len(kind) / (of_kind[pairs[:, 1]] * of_document[pairs[:, 0]]))
    return np.bincount(document, weights=logs[of_pair.ravel()], minlength=n_documents).astype(np.float64)


def beam_recall(trained: Trained) -> Columns:
    """Share of a document's labels in the clusters that are looked into."""
    model = _cluster_model(trained)
    vectors = model.encoder.encode(batch_to_rank(trained))
    clusters, _ = model.beam.select(vectors if model.shortlist_map is None else model.shortlist_map.apply(vectors))
    return {"shortlist recall": _listed(model.beam.labels_of(clusters), trained.world.yardstick.truth)}


# ---- GAME on a foreign method ----


def game_forms(trained: Trained) -> Columns:
    """All metrics, and the recall of what the leaves hold, of a tree that has GAME: without it, and with each of
    `GAME_FORMS`.

    The tree was trained as if there were no GAME, so that one training serves for all.
    """
    ranker: Any = trained.predictor.bundle.ranker
    if not isinstance(ranker, EncodedTree) or not isinstance(ranker.tree, SpreadTree):
        raise ConfigError(
            f"the model is a {type(ranker).__name__} without GAME on a tree",
            "set classify.learner=parabel and game.enabled=true",
        )
    plain, graph = ranker.tree.base, ranker.tree.state().arrays["label_graph"]
    trees: dict[str, Any] = {
        "plain": plain,
        **{name: SpreadTree.build(plain, graph, settings) for name, settings in GAME_FORMS.items()},
    }
    yardstick, batch = trained.world.yardstick, Batch(dense=ranker.encode(batch_to_rank(trained)))
    found: dict[str, Column] = {}
    for name, tree in trees.items():
        measured = columns_of(yardstick.measure(tree.rank(batch, yardstick.depth)))
        recall = _listed(_labels_of_leaves(plain, batch, tree.leaf_scores(batch)), yardstick.truth)
        found |= {f"{metric} {name}": column for metric, column in {**measured, "shortlist recall": recall}.items()}
    return found


def _labels_of_leaves(tree: FindsClusters, batch: Batch, leaves: TopK) -> I32:
    return tree.label_scores(batch, leaves.ids)[0]


# ---- classifiers ----


def component_dominance(trained: Trained) -> Columns:
    """Spearman's correlation, times 100, of label frequency with how much of a classifier comes from a component:
    weight x length.

    Over five bins of labels with as many training pairs each, for the free vector (``refinement``) and for both text
    components together; and the mean over shuffled frequencies (``... by chance``). ``weight of ... in head`` and
    ``in tail``: the mean weight of a component, and of both text components together, in the bin of the most frequent
    and of the rarest labels, in percent.
    One number per training, so intervals come from seeds alone.
    """
    part: Any = load_part(trained.run / "analysis" / "label_components")
    if not isinstance(part, LabelComponents) or "free" not in part.names or len(part.names) < 2:
        raise ConfigError(
            "the classifiers are not made of text and free vectors", "measure the recipe eclare on data with label text"
        )
    rng = np.random.default_rng([trained.seed, 0xD0])
    true = _frequency_correlation(part, part.counts)
    chance = np.mean([_frequency_correlation(part, rng.permutation(part.counts)) for _ in range(SHUFFLES)], axis=0)
    names = ("refinement", "text and graph")
    values = dict(
        zip((*names, *(f"{name} by chance" for name in names)), (*true, *chance), strict=True)
    ) | _mean_weights(part)
    return {name: Column(np.array([value]), np.ones(1)) for name, value in values.items()}


def _frequency_correlation(part: LabelComponents, counts: I64) -> tuple[float, float]:
    """Spearman's correlation over bins: of the free component, and of the sum of the others."""
    from scipy.stats import spearmanr

    bins, strength = LabelComponents(part.names, part.weights, part.lengths, counts).dominance(equal_volume)
    filled = bins.n_labels > 0
    free, rest = (
        strength[:, [(name == "free") is is_free for name in part.names]].sum(axis=1)[filled]
        for is_free in (True, False)
    )
    return float(spearmanr(bins.mean_frequency[filled], free).statistic), float(
        spearmanr(bins.mean_frequency[filled], rest).statistic
    )


def _mean_weights(part: LabelComponents) -> dict[str, float]:
    """Mean weights of the free vector, the label's own text, its neighbours' texts and both of these, in the first and
    the last bin that has labels.
    """
    bins = equal_volume(part.counts)
    filled = np.flatnonzero(bins.n_labels > 0)
    weights = part.weights.astype(np.float64)
    free, text = (weights[:, [name == wanted for name in part.names]].sum(axis=1) for wanted in ("free", "text"))
    texts = weights.sum(axis=1) - free
    sides = {"refinement": free, "text": text, "graph": texts - text, "text and graph": texts}
    ends = {"head": filled[0], "tail": filled[-1]}
    return {
        f"weight of {name} in {end}": float(values[bins.bin_of_label == place].mean())
        for name, values in sides.items()
        for end, place in ends.items()
    }


# ---- planted labels ----


def planted_recall(trained: Trained) -> Columns:
    """Share of the pairs with planted labels (ids that begin with `PLANTED`) that are among the first 10, and of the
    other pairs.
    """
    world, top = trained.world, trained.predictions()
    planted = np.array([uid.startswith(PLANTED) for uid in world.dataset.labels.uids])
    sides = {"planted": planted, "others": ~planted}
    cut = world.yardstick.cut(top)
    return {
        f"R@{FIRST} of {name}": pair_recall(cut, only_labels(world.yardstick.truth, wanted), FIRST)
        for name, wanted in sides.items()
    }


# ---- pieces ----


def _cluster_model(trained: Trained) -> ClusterModel:
    ranker: Any = trained.predictor.bundle.ranker
    if not isinstance(ranker, ClusterModel):
        raise ConfigError(
            f"the model is a {type(ranker).__name__}, which finds no clusters",
            "measure eclare, or astec with shortlist.structures=clusters",
        )
    return ranker


def _listed(labels: I32, truth: Csr) -> Column:
    """Share of each document's labels among those listed for it; labels: (N', m), -1 as padding."""
    return recall_column(
        TopK(labels, np.where(labels >= 0, np.float32(0), np.float32(-np.inf))), truth, labels.shape[1]
    )
