"""Looking inside a trained model: what it weighs, how long its stages took, and what it tells of itself.

Also what needs predictions and a graph: which of them the truth does not have but the graph does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from longtail import metrics
from longtail.bundle import MANIFEST, bytes_by_part
from longtail.data.dataset import Dataset, Items
from longtail.data.from_texts import binary_csr
from longtail.data.inputs import heading
from longtail.evaluation import Yardstick, renumbered
from longtail.features.base import Featurizer
from longtail.models.analysis import spread
from longtail.predictor import Predictor
from longtail.report import one_line
from longtail.types import I64, Batch, BoolArray, Csr, TopK


@dataclass(frozen=True)
class LookInside:
    """What a model is shown when it is asked about itself: a `longtail.models.analysis.Look`."""

    model: Predictor
    yardstick: Yardstick

    @property
    def featurizer(self) -> Featurizer:
        return self.model.bundle.featurizer

    @property
    def counts(self) -> I64:
        return self.model.bundle.labels.counts

    @property
    def data(self) -> Dataset:
        return self.yardstick.data

    @cached_property
    def _rows(self) -> I64:
        return spread(len(self.data.need_test()))

    @cached_property
    def batch(self) -> Batch:
        return self.featurizer.batch(self.data.need_test().documents.rows(self._rows))

    @cached_property
    def truth(self) -> Csr:
        known = {uid: number for number, uid in enumerate(self.model.bundle.labels.uids)}
        columns = np.array([known.get(uid, -1) for uid in self.data.labels.uids], dtype=np.int64)
        truth = self.yardstick.truth[self._rows].tocoo()
        rows, labels = truth.coords[0].astype(np.int64), columns[truth.coords[1]]
        return binary_csr(rows[labels >= 0], labels[labels >= 0], (len(self._rows), len(known)))

    def recall(self, top: TopK, ks: tuple[int, ...]) -> dict[str, float]:
        found = renumbered(top, self.model.bundle.labels.uids, self.data.labels.uids)
        return metrics.measure(
            found, self.yardstick.truth[self._rows], self.yardstick.inverse_propensity, (1,), ks
        ).values()


def diagnose(model: Predictor, yardstick: Yardstick) -> dict[str, Any]:
    """Bytes by part, seconds by stage, and what the model tells of its inside (`Ranker.diagnose`): for models with a
    shortlist its recall and how far training moved it; for models that look at a graph what its parts weigh, which
    hops labels attend to, and what embeddings recall; for dual encoders on data with graphs how many links to anchors
    they predict.
    """
    inside = model.bundle.ranker.diagnose(LookInside(model, yardstick))
    sizes = Counter[str]()
    for name, size in bytes_by_part(model.bundle.folder).items():
        sizes[name.split("/")[0]] += size
    del sizes[MANIFEST]
    return {"bytes": {**sizes, "all": sizes.total()}, "seconds_by_stage": seconds_by_stage(model), **inside}


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


def seconds_by_stage(model: Predictor) -> dict[str, float]:
    """From the log of the run that the bundle lies in; empty for a bundle alone."""
    events = [event for event in training_log(model) if "member" not in event]
    return {event["name"]: event["seconds"] for event in events if event["event"] == "stage"}


def training_log(model: Predictor) -> list[dict[str, Any]]:
    """What happened in the run that the bundle lies in (`longtail.training.run`), in its order; then in those of the
    models of an ensemble, which say so under ``member``, from 1. Empty for a bundle alone.
    """
    run = model.bundle.folder.parent
    members = sorted((path for path in run.glob("members/*/metrics.jsonl")), key=lambda path: int(path.parent.name))
    events: list[dict[str, Any]] = []
    for number, log in enumerate([run / "metrics.jsonl", *members]):
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        found = [event for event in map(_event, lines) if event is not None]
        events += [event if not number else {**event, "member": number} for event in found]
    return events


def _event(line: str) -> dict[str, Any] | None:
    """None for what a killed process had not written to its end."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


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
                lines.append(f"\n{heading(documents, int(row))}")
                for place in range(k):
                    numbers = [int(top.ids[at, place]) for top in tops]
                    shown = [
                        f"{'*' if number in right else ' '} {one_line(labels.name(number))[:56]}" if number >= 0 else ""
                        for number in numbers
                    ]
                    lines.append(f"  {shown[0]:<60} {shown[1]}")
        if not count:
            break
    return "\n".join(lines)
