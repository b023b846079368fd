"""Where a model fails: the labels that it misses most often, and what it says instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from longtail import metrics
from longtail.data.dataset import Dataset
from longtail.data.from_texts import binary_csr
from longtail.data.read import read
from longtail.errors import ConfigError
from longtail.evaluation import RECALL_KS, Yardstick, context_of_test, held_out_data, rank_test
from longtail.metrics.ranking import hits, positives
from longtail.predictor import Predictor
from longtail.training.progress import Display, SilentDisplay
from longtail.types import I64, TopK


@dataclass(frozen=True)
class Confusion:
    """A wrong label, and how many of the documents that miss the right one have it among their predictions."""

    label: str
    name: str
    documents: int


@dataclass(frozen=True)
class WeakLabel:
    """How a label fares in the first places of the lists.

    train, test: documents that have it. predicted: test documents it was predicted for. missed: test documents that
    have it, and were not predicted to. recall, precision: in percent. instead: the most frequent confusions first.
    """

    label: str
    name: str
    train: int
    test: int
    predicted: int
    missed: int
    recall: float
    precision: float
    instead: tuple[Confusion, ...]


def weak_labels(
    model: Predictor | str | Path,
    data: Dataset | str | Path,
    at: int = 5,
    *,
    support: int = 1,
    limit: int = 20,
    confusions: int = 3,
    display: Display | None = None,
) -> list[WeakLabel]:
    """The labels of the test documents of `data` that `model` misses most often in its `at` best, worst first.

    Data without test documents is asked for those that training held out.
    support: only labels that so many test documents have. limit: at most so many labels; 0: all that are missed.
    confusions: so many for each.
    """
    if not 1 <= at <= max(RECALL_KS) or support < 1 or limit < 0:
        raise ConfigError(
            f"at {at}, support {support}, limit {limit}: out of bounds",
            f"at is 1 to {max(RECALL_KS)}, support 1 or more, limit 0 (all) or more",
        )
    model = model if isinstance(model, Predictor) else Predictor.open(model)
    data = data if isinstance(data, Dataset) else read(Path(data))
    if data.test is None and model.bundle.held_out() is not None:
        data = held_out_data(model, data)
    yardstick = Yardstick.of(data)
    ranked = rank_test(model, yardstick, display or SilentDisplay(), context_of_test(model, yardstick))
    top, truth = metrics.cut(yardstick.cut(ranked), at), positives(yardstick.truth)
    counts = metrics.LabelCounts.at(top, truth, at)
    missed = counts.true - counts.found
    order = np.lexsort((np.arange(len(missed)), -counts.true, -missed))
    shown = order[(missed[order] > 0) & (counts.true[order] >= support)][: limit or None]
    instead = _confusions(top, yardstick, shown, confusions)
    return [
        WeakLabel(
            label=data.labels.uids[number],
            name=data.labels.name(number),
            train=int(yardstick.counts[number]),
            test=int(counts.true[number]),
            predicted=int(counts.predicted[number]),
            missed=int(missed[number]),
            recall=100.0 * float(counts.found[number] / counts.true[number]),
            precision=100.0 * float(counts.found[number] / max(counts.predicted[number], 1)),
            instead=tuple(Confusion(data.labels.uids[other], data.labels.name(other), n) for other, n in others),
        )
        for number, others in zip(shown.tolist(), instead, strict=True)
    ]


def _confusions(top: TopK, yardstick: Yardstick, labels: I64, most: int) -> list[list[tuple[int, int]]]:
    """For each label the wrong predictions of the documents that miss it, with how many documents have them."""
    truth = positives(yardstick.truth)
    hit, shape = hits(top, truth), truth.shape
    rows, places = np.nonzero(top.ids != TopK.PAD)
    predicted, right = top.ids[rows, places].astype(np.int64), hit[rows, places]
    found = binary_csr(rows[right], predicted[right], shape)
    wrong = binary_csr(rows[~right], predicted[~right], shape)
    # Only columns of the labels that are shown: what is counted is no larger than their missed pairs times the places.
    missing = (truth[:, labels] - found[:, labels]).tocsr()
    missing.eliminate_zeros()
    together = (missing.T @ wrong).tocsr()
    answer: list[list[tuple[int, int]]] = []
    for start, end in zip(together.indptr[:-1], together.indptr[1:], strict=True):
        others, times = together.indices[start:end], together.data[start:end]
        order = np.lexsort((others, -times))[:most]
        answer.append([(int(others[at]), round(float(times[at]))) for at in order])
    return answer


def render(rows: Sequence[WeakLabel], at: int = 5) -> str:
    """A table for people."""
    if not rows:
        return f"no label of the test documents is missed in the {at} best"
    recall, precision = f"R@{at}", f"P@{at}"
    lines = [
        f"{'missed':>7}{'test':>7}{'train':>8}{recall:>8}{precision:>8}  label -> what is said instead (documents)"
    ]
    for row in rows:
        others = ", ".join(f"{other.name[:40]} ({other.documents:,})" for other in row.instead)
        lines.append(
            f"{row.missed:>7,}{row.test:>7,}{row.train:>8,}{row.recall:>8.1f}{row.precision:>8.1f}  "
            f"{row.name[:60]} -> {others or 'nothing'}"
        )
    return "\n".join(lines)


def to_jsonl(rows: Sequence[WeakLabel]) -> str:
    """A JSON object per label and line."""
    return "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
