"""Looking inside a trained model: whether its shortlists hold the truth, how far training moved them, and how many
links a dual encoder predicts. Each model is asked itself (`Ranker.diagnose`); what several of them answer is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from longtail import metrics
from longtail.data.dataset import Dataset
from longtail.features.base import Featurizer
from longtail.graph.anchor_graph import anchor_graphs
from longtail.picture import Picture
from longtail.search.cluster import label_centroids
from longtail.search.index import ExactIndex
from longtail.search.shortlist import LabelIndex
from longtail.types import F32, I32, I64, Batch, Csr, TopK

SHORTLIST_KS = (10, 50, 100, 300, 500)
# Documents that the slower analyses look at.
SAMPLE = 2000


class Look(Protocol):
    """What a model is shown when it is asked about itself.

    featurizer: its own.  counts: (L,) training documents of its labels.  data: what it is measured on.
    """

    @property
    def featurizer(self) -> Featurizer: ...

    @property
    def counts(self) -> I64: ...

    @property
    def data(self) -> Dataset: ...

    @property
    def batch(self) -> Batch:
        """Some test documents, spread evenly."""
        ...

    @property
    def truth(self) -> Csr:
        """(B, L) labels of these documents, in the numbers of the model."""
        ...

    def recall(self, top: TopK, ks: tuple[int, ...]) -> dict[str, float]:
        """Share of the labels of these documents, also of those that the model does not know, among the first k of
        lists of the model's labels, in percent: ``R@k``.
        """
        ...


def spread(items: int, most: int = SAMPLE) -> I64:
    """Up to `most` numbers below `items`, spread evenly."""
    return np.linspace(0, items - 1, min(most, items)).astype(np.int64)


def shortlist_recall(shortlist: TopK, size: int, look: Look) -> dict[str, float]:
    """Share of a document's labels among the first k of its shortlist, in percent: what no classifier can exceed.

    size: of the longest shortlist that the model makes.
    """
    found = look.recall(shortlist, SHORTLIST_KS)
    return {f"R@{k}": round(found[f"R@{k}"], 3) for k in SHORTLIST_KS if k <= max(size, SHORTLIST_KS[0])}


def shortlist_picture(recall: dict[str, float]) -> Picture:
    """recall: from `shortlist_recall`."""
    return Picture(
        "How much of the truth is in the shortlist",
        "A label that is not in the shortlist of a document is never predicted for it: this is the most that the "
        "classifiers behind it can find.",
        "lines",
        [float(name.removeprefix("R@")) for name in recall],
        {"right labels in the shortlist": list(recall.values())},
        x_label="length of the shortlist",
        y_label="percent of right labels",
        log_x=True,
    )


def cluster_pictures(clusters: I32, look: Look) -> list[Picture]:
    """How large clusters of labels are, and what they lose of the information that labels have about documents, beside
    clusters of the same sizes that are drawn by chance. clusters: (L,), -1 for labels without one.

    Paper: ECLARE Tab. 7 (loss of mutual information), GNN-XML Sec. 3.2.
    """
    with_one = look.truth.multiply((clusters >= 0).astype(np.float32)[None, :]).tocsr()
    with_one.eliminate_zeros()
    inside = np.flatnonzero(clusters >= 0)
    drawn = clusters.copy()
    drawn[inside] = np.random.default_rng(0).permutation(clusters[inside])
    lost = {"of the model": metrics.lmi(with_one, clusters), "by chance": metrics.lmi(with_one, drawn)}
    sizes = np.sort(np.bincount(clusters[inside]))[::-1] if len(inside) else np.zeros(0, dtype=np.int64)
    sizes = sizes[sizes > 0]
    quality = Picture(
        "Cluster quality",
        "What is lost of the information that labels have about documents when a label is only known by its cluster. "
        "Less is better; clusters of the same sizes that are drawn by chance stand beside it.",
        "bars",
        list(lost),
        {"information that is lost": [loss.percent for loss in lost.values()]},
        y_label="percent",
    )
    places = spread(len(sizes), 200)
    size = Picture(
        "Sizes of the clusters of labels",
        "Clusters from the largest to the smallest. A steep curve means that few clusters hold most of the labels.",
        "lines",
        (places + 1.0).tolist(),
        {"labels": sizes[places].astype(float).tolist()},
        x_label="cluster",
        y_label="labels",
    )
    return [quality, size] if len(sizes) else []


def list_overlap(by_v: tuple[F32, F32], by_x: tuple[F32, F32], targets: Csr, k: int = 100) -> float:
    """Mean share of the k nearest labels by v that are also the k nearest by x, in percent. Paper: Astec Sec. 4,
    Module II (above 87%).

    by_v, by_x: vectors of training documents, whose centroids are the labels, and of the documents that ask.
    """
    tops = (nearest_labels(documents, targets, queries, k).ids for documents, queries in (by_v, by_x))
    shared = [
        len(np.intersect1d(a[a >= 0], b[b >= 0])) / max(1, int((a >= 0).sum())) for a, b in zip(*tops, strict=True)
    ]
    return round(100 * float(np.mean(shared)), 3)


def nearest_labels(documents: F32, targets: Csr, queries: F32, k: int) -> TopK:
    centroids = ExactIndex.build(label_centroids(documents, targets))
    return LabelIndex(centroids, np.arange(targets.shape[1], dtype=np.int32)).query(queries, k)


def link_recall(encode: Callable[[Batch], F32], look: Look, k: int = 100) -> dict[str, dict[str, float]]:
    """Share of the anchors of training documents, and of labels, among the k nearest anchors by cosine, in percent:
    graph -> side -> R@k.

    Paper: RAMEN Table 6. Edges are those of training; anchors are found by their titles alone.
    """
    data, featurizer = look.data, look.featurizer
    found: dict[str, dict[str, float]] = {}
    for graph in anchor_graphs(data.graphs):
        anchors = data.graphs[graph.name].anchors
        assert anchors is not None, "anchor_graphs gives graphs with anchors only"
        index = ExactIndex.build(encode(featurizer.batch_of_texts(anchors.titles())))
        found[graph.name] = {}
        for side, edges in graph.sides.items():
            linked = np.flatnonzero(np.diff(edges.indptr))
            rows = linked[spread(len(linked))]
            items = data.train.documents.rows(rows) if side == "documents" else data.labels.rows(rows)
            batch = featurizer.batch(items) if side == "documents" else featurizer.label_batch(items)
            if batch is not None:
                top = index.query(encode(batch), min(k, len(anchors)))
                measured = metrics.measure(top, edges[rows], np.ones(len(anchors)), (1,), (k,), skip_empty=True)
                found[graph.name][f"{side} R@{k}"] = round(measured.values()[f"R@{k}"], 3)
    return found
