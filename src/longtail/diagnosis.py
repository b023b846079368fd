"""Looking inside a trained model: what it weighs, how long its stages took, and whether its shortlists hold the truth.

These are the analyses of the DeepXML paper that need the model and not only its predictions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from longtail import metrics
from longtail.data.dataset import Dataset, Items
from longtail.data.from_texts import binary_csr
from longtail.evaluation import Yardstick, renumbered
from longtail.graph.anchor_graph import anchor_graphs
from longtail.models.clusters import ClusterModel
from longtail.models.encoders import FrozenUnit
from longtail.models.shortlisted import Ensemble, Model, Reranked
from longtail.predictor import Predictor
from longtail.recipes.galaxc.analysis import attention_by_frequency, bytes_of_parts, embedding_recall
from longtail.recipes.galaxc.ranker import JointGraphModel
from longtail.search.cluster import label_centroids
from longtail.search.index import ExactIndex
from longtail.search.shortlist import InstanceVote, LabelIndex, MergedShortlist
from longtail.types import F32, BoolArray, Csr, TopK

SHORTLIST_KS = (10, 50, 100, 300, 500)
# Documents that the slower analyses look at.
SAMPLE = 2000


def diagnose(model: Predictor, yardstick: Yardstick) -> dict[str, Any]:
    """Bytes by part, seconds by stage, and for models with a shortlist its recall and how far training moved it.

    For models that look at a graph: what its parts weigh, which hops labels attend to, and what embeddings recall.
    For dual encoders on data with graphs: how many links to anchors they predict.
    """
    found: dict[str, Any] = {"bytes": bytes_by_part(model), "seconds_by_stage": seconds_by_stage(model)}
    if isinstance(model.bundle.ranker, JointGraphModel):
        found["graph"] = inside_graph(model.bundle.ranker, model, yardstick)
    encoder = getattr(model.bundle.ranker, "encoder", None)
    if isinstance(encoder, FrozenUnit):
        found["link_recall"] = link_recall(encoder, model, yardstick.data)
    inner = first_model(model.bundle.ranker)
    if inner is not None:
        documents = yardstick.data.need_test().documents
        rows = np.linspace(0, len(documents) - 1, min(SAMPLE, len(documents))).astype(np.int64)
        vectors = inner.encoder.encode(model.bundle.featurizer.batch(documents.rows(rows)))
        found["shortlist_recall"] = shortlist_recall(inner, vectors, rows, model, yardstick)
    if isinstance(inner, Model):
        moved = list_overlap(inner, vectors)
        if moved is not None:
            found["overlap_of_top_100_lists_by_v_and_by_x"] = moved
        if inner.refinement is not None:
            drift = np.linalg.norm(inner.refinement.apply(vectors) - vectors, axis=1) / np.maximum(
                np.linalg.norm(vectors, axis=1), 1e-12
            )
            found["largest_drift_of_x_from_v"] = round(float(drift.max(initial=0)), 6)
    return found


def inside_graph(inner: JointGraphModel, model: Predictor, yardstick: Yardstick) -> dict[str, Any]:
    """The analyses of the GalaXC paper (Table 4, Fig. 6), and what shortlists cost; recall and P in percent."""
    bins, attended = attention_by_frequency(inner, model.bundle.labels.counts)
    documents, known = (
        yardstick.data.need_test().documents,
        {uid: number for number, uid in enumerate(model.bundle.labels.uids)},
    )
    rows = np.linspace(0, len(documents) - 1, min(SAMPLE, len(documents))).astype(np.int64)
    columns = np.array([known.get(uid, -1) for uid in yardstick.data.labels.uids], dtype=np.int64)
    truth = yardstick.truth[rows].tocoo()
    held = columns[truth.coords[1]] >= 0
    ours = binary_csr(truth.coords[0][held].astype(np.int64), columns[truth.coords[1][held]], (len(rows), len(known)))
    batch = model.bundle.featurizer.batch(documents.rows(rows))
    return {
        "bytes": bytes_of_parts(inner),
        "nodes": len(inner.space.graph),
        "edges": len(inner.space.graph.neighbours),
        "isolated_nodes": int((inner.space.graph.degrees == 0).sum()),
        "attention_times_length_by_hop": dict(zip(bins.names, np.nan_to_num(attended).round(4).tolist(), strict=True)),
        "R@100_of_embeddings": {name: round(value, 3) for name, value in embedding_recall(inner, batch, ours).items()},
        "P@1": {
            name: round(metrics.measure(ranker.rank(batch, 1), ours, np.ones(len(known)), (1,), ()).values()["P@1"], 3)
            for name, ranker in (("with shortlists", inner), ("all labels scored", inner.exhaustive()))
        },
    }


def link_recall(encoder: FrozenUnit, model: Predictor, data: Dataset, k: int = 100) -> dict[str, dict[str, float]]:
    """Share of the anchors of training documents, and of labels, among the k nearest anchors by cosine, in percent:
    graph -> side -> R@k.

    Paper: RAMEN Table 6. Edges are those of training; anchors are found by their titles alone.
    """
    featurizer = model.bundle.featurizer
    found: dict[str, dict[str, float]] = {}
    for graph in anchor_graphs(data.graphs):
        anchors = data.graphs[graph.name].anchors
        assert anchors is not None, "anchor_graphs gives graphs with anchors only"
        index = ExactIndex.build(encoder.encode(featurizer.batch_of_texts(anchors.titles())))
        found[graph.name] = {}
        for side, edges in graph.sides.items():
            linked = np.flatnonzero(np.diff(edges.indptr))
            rows = linked[np.linspace(0, len(linked) - 1, min(SAMPLE, len(linked))).astype(np.int64)]
            items = data.train.documents.rows(rows) if side == "documents" else data.labels.rows(rows)
            batch = featurizer.batch(items) if side == "documents" else featurizer.label_batch(items)
            if batch is not None:
                top = index.query(encoder.encode(batch), min(k, len(anchors)))
                recall = metrics.measure(top, edges[rows], np.ones(len(anchors)), (1,), (k,), skip_empty=True).values()[
                    f"R@{k}"
                ]
                found[graph.name][f"{side} R@{k}"] = round(recall, 3)
    return found


def reachable_labels(data: Dataset, oracles: Mapping[str, Csr]) -> Csr:
    """(N', L) CSR, how many anchors a test document shares with a label.  oracles: graph -> (N', M) edges of test
    documents, for this analysis only.
    """
    from scipy.sparse import csr_array

    found = csr_array((len(data.need_test()), len(data.labels)), dtype=np.float32)
    for name, edges in oracles.items():
        of_labels = data.graphs[name].labels
        if of_labels is not None:
            found = csr_array(found + csr_array(edges, dtype=np.float32) @ csr_array(of_labels, dtype=np.float32).T)
    return found


def unlisted(
    model: Predictor, yardstick: Yardstick, oracles: Mapping[str, Csr], k: int = 5
) -> tuple[dict[str, float], list[tuple[int, int]]]:
    """Predictions that the truth does not have but the graph does: shares in percent, and the (document, label)
    pairs, surest first.

    Of the predictions among the first k: how many share an anchor with their document, for those in the truth and
    those that are not; beside it the same for labels drawn by their training frequency. Where the truth is
    incomplete, wrong ones are reached more often than by chance.
    Paper: RAMEN Sec. 4 (missing labels, Table 13).
    """
    documents, truth = yardstick.data.need_test().documents, yardstick.truth
    top = yardstick.cut(
        renumbered(model.rank(documents, yardstick.depth), model.bundle.labels.uids, yardstick.data.labels.uids)
    )
    reach = reachable_labels(yardstick.data, oracles)
    rows, labels = np.repeat(np.arange(len(documents)), k), top.ids[:, :k].ravel().astype(np.int64)
    scores = top.scores[:, :k].ravel()
    real = labels >= 0
    rows, labels, scores = rows[real], labels[real], scores[real]
    right, reached = _entries(truth, rows, labels), _entries(reach, rows, labels)
    chances = yardstick.counts / max(yardstick.counts.sum(), 1)
    drawn = (
        np.random.default_rng(0).choice(len(chances), size=len(rows), p=chances) if yardstick.counts.any() else labels
    )

    def share(of: BoolArray, among: BoolArray) -> float:
        return round(100 * float(of[among].mean()), 3) if among.any() else 0.0

    shares = {
        "reached, of predictions in the truth": share(reached, right),
        "reached, of predictions not in the truth": share(reached, ~right),
        "reached, of labels drawn by frequency": share(
            _entries(reach, rows, drawn), np.ones(len(rows), dtype=np.bool_)
        ),
    }
    chosen = np.flatnonzero(reached & ~right)
    return shares, [(int(rows[at]), int(labels[at])) for at in chosen[np.argsort(-scores[chosen], kind="stable")]]


def _entries(matrix: Csr, rows: Any, columns: Any) -> BoolArray:
    """(n,) whether an entry is there."""
    return np.asarray(matrix[rows, columns]).ravel() > 0 if len(rows) else np.zeros(0, dtype=np.bool_)


def show_unlisted(
    pairs: Sequence[tuple[int, int]], yardstick: Yardstick, oracles: Mapping[str, Csr], count: int
) -> str:
    """`count` of the pairs with the anchors that document and label share."""
    data, lines = yardstick.data, []
    documents = data.need_test().documents
    for row, label in pairs[:count]:
        shared = []
        for name, edges in oracles.items():
            graph = data.graphs[name]
            if graph.labels is not None and graph.anchors is not None:
                both = np.intersect1d(edges[[row]].indices, graph.labels[[label]].indices)
                shared += [f"{name}: {graph.anchors.name(int(anchor))}" for anchor in both[:3]]
        lines.append(
            f"\n{documents.name(row)[:100]}\n  {data.labels.name(label)[:100]}\n    through {'; '.join(shared)}"
        )
    return "\n".join(lines)


def bytes_by_part(model: Predictor) -> dict[str, int]:
    """Size of each folder of the bundle, and of all of it."""
    sizes: Counter[str] = Counter()
    for name, entry in model.bundle.manifest["files"].items():
        sizes[name.split("/")[0]] += entry["bytes"]
    return {**sizes, "all": sum(sizes.values())}


def seconds_by_stage(model: Predictor) -> dict[str, float]:
    """From the log of the run that the bundle lies in; empty for a bundle alone."""
    log = model.bundle.folder.parent / "metrics.jsonl"
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    return {event["name"]: event["seconds"] for event in events if event["event"] == "stage"}


def first_model(ranker: Any) -> Model | ClusterModel | None:
    """The model with a shortlist inside a ranker, if there is one; of an ensemble the first."""
    if isinstance(ranker, Ensemble):
        return first_model(ranker.members[0])
    if isinstance(ranker, Reranked):
        return first_model(ranker.base)
    return ranker if isinstance(ranker, Model | ClusterModel) else None


def shortlist_recall(
    inner: Model | ClusterModel, vectors: F32, rows: Any, model: Predictor, yardstick: Yardstick
) -> dict[str, float]:
    """Share of a document's labels among the first k of its shortlist, in percent: what no classifier can exceed."""
    found = renumbered(shortlists(inner, vectors), model.bundle.labels.uids, yardstick.data.labels.uids)
    truth = yardstick.truth[rows]
    per_document = metrics.measure(found, truth, yardstick.inverse_propensity, (1,), SHORTLIST_KS).values()
    return {
        f"R@{k}": round(per_document[f"R@{k}"], 3)
        for k in SHORTLIST_KS
        if k <= max(inner.shortlist_size, SHORTLIST_KS[0])
    }


def shortlists(inner: Model | ClusterModel, vectors: F32) -> TopK:
    """The labels that a model scores, for what its encoder made of documents."""
    size = min(inner.shortlist_size, len(inner.classifier.rows))
    if isinstance(inner, Model):
        return inner.shortlister.query(vectors, size)
    return inner.beam.query(vectors if inner.shortlist_map is None else inner.shortlist_map.apply(vectors), size)


def list_overlap(inner: Model, vectors: F32, k: int = 100) -> float | None:
    """Mean share of the k nearest labels by v that are also the k nearest by x (Paper: Astec Sec. 4, Module II, above
    87%), in percent.

    Centroids in x-space are those of the training documents in the vote's index; None where it keeps no plain vectors.
    """
    shortlister = inner.shortlister
    votes = (
        shortlister.instances
        if isinstance(shortlister, MergedShortlist)
        else shortlister
        if isinstance(shortlister, InstanceVote)
        else None
    )
    if inner.refinement is None or votes is None or not isinstance(votes.index, ExactIndex):
        return None
    by_v = nearest_labels(votes.index.vectors, votes.targets, vectors, k)
    by_x = nearest_labels(
        inner.refinement.apply(votes.index.vectors), votes.targets, inner.refinement.apply(vectors), k
    )
    shared = [
        len(np.intersect1d(a[a >= 0], b[b >= 0])) / max(1, int((a >= 0).sum()))
        for a, b in zip(by_v.ids, by_x.ids, strict=True)
    ]
    return round(100 * float(np.mean(shared)), 3)


def nearest_labels(documents: F32, targets: Csr, queries: F32, k: int) -> TopK:
    return LabelIndex(
        ExactIndex.build(label_centroids(documents, targets)), np.arange(targets.shape[1], dtype=np.int32)
    ).query(queries, k)


def side_by_side(
    a: Predictor, b: Predictor, documents: Items, truth: Csr, labels: Items, count: int, k: int = 5
) -> str:
    """The `k` best labels of two models for the first `count` documents on whose lists they differ; a star marks the
    truth.
    """
    lines: list[str] = []
    for start in range(0, len(documents), 256):
        rows = np.arange(start, min(start + 256, len(documents)), dtype=np.int64)
        tops = [
            renumbered(model.rank(documents.rows(rows), k), model.bundle.labels.uids, labels.uids) for model in (a, b)
        ]
        for at, row in enumerate(rows):
            if count and tops[0].ids[at].tolist() != tops[1].ids[at].tolist():
                count -= 1
                right = set(truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist())
                lines.append(f"\n{documents.name(int(row))}")
                for place in range(k):
                    shown = [
                        f"{'*' if top.ids[at, place] in right else ' '} {labels.name(int(top.ids[at, place]))[:56]}"
                        if top.ids[at, place] >= 0
                        else ""
                        for top in tops
                    ]
                    lines.append(f"  {shown[0]:<60} {shown[1]}")
        if not count:
            break
    return "\n".join(lines)
