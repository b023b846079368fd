"""Where a model fails: the labels that it misses most often, and what it says instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
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
from longtail.types import I64, BoolArray, Csr, TopK


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
    data = data if isinstance(data, Dataset) else read(Path(data), columns=model.columns)
    if data.test is None and model.bundle.held_out() is not None:
        data = held_out_data(model, data)
    yardstick = Yardstick.of(data)
    ranked = rank_test(model, yardstick, display or SilentDisplay(), context_of_test(model, yardstick))
    return Failures.of(ranked, yardstick, at, confusions).missed(support, limit)


@dataclass(frozen=True)
class Failures:
    """What is right and wrong in the first places of the lists, label by label.

    counts: of each label.  wrong, missing: (N, L) which pairs are predicted and wrong, and right and not predicted.
    confusions: so many are named for each label.
    """

    yardstick: Yardstick
    counts: metrics.LabelCounts
    wrong: Csr
    missing: Csr
    confusions: int

    @classmethod
    def of(cls, ranked: TopK, yardstick: Yardstick, at: int, confusions: int = 3) -> Failures:
        """ranked: predictions for all test documents, as `rank_test` gives them."""
        top, truth = metrics.cut(yardstick.cut(ranked), at), positives(yardstick.truth)
        hit = hits(top, truth)
        rows, places = np.nonzero(top.ids != TopK.PAD)
        predicted, right = top.ids[rows, places].astype(np.int64), hit[rows, places]
        found = binary_csr(rows[right], predicted[right], truth.shape)
        missing = (truth - found).tocsr()
        missing.eliminate_zeros()
        wrong = binary_csr(rows[~right], predicted[~right], truth.shape)
        return cls(yardstick, metrics.LabelCounts.at(top, truth, at), wrong, missing, confusions)

    def missed(self, support: int = 1, limit: int = 20) -> list[WeakLabel]:
        """The labels that are missed most often, worst first, of those that so many test documents have."""
        missed = self.counts.true - self.counts.found
        return self._rows((missed > 0) & (self.counts.true >= support), missed, self.counts.true, limit)

    def never_found(self, support: int = 1, limit: int = 20) -> list[WeakLabel]:
        """Labels that are predicted for none of the documents that have them, most documents first."""
        chosen = (self.counts.found == 0) & (self.counts.true >= max(support, 1))
        return self._rows(chosen, self.counts.true, self.yardstick.counts, limit)

    def always_wrong(self, support: int = 1, limit: int = 20) -> list[WeakLabel]:
        """Labels that are predicted, and never rightly, most predictions first; `instead` is what such documents have
        that was not found.
        """
        chosen = (self.counts.found == 0) & (self.counts.predicted >= max(support, 1))
        return self._rows(chosen, self.counts.predicted, self.yardstick.counts, limit, swapped=True)

    def _rows(
        self, chosen: BoolArray, first: I64, second: I64, limit: int, *, swapped: bool = False
    ) -> list[WeakLabel]:
        order = np.lexsort((np.arange(len(first)), -second, -first))
        labels = order[chosen[order]][: limit or None]
        # Only columns of the labels that are shown: what is counted is no larger than their pairs times the places.
        of, beside = (self.wrong, self.missing) if swapped else (self.missing, self.wrong)
        return [
            self.row(int(label), others)
            for label, others in zip(labels, _together(of[:, labels], beside, self.confusions), strict=True)
        ]

    def row(self, number: int, others: Sequence[tuple[int, int]] = ()) -> WeakLabel:
        """How the label with this number fares. others: labels that stand in its place, with how many documents."""
        counts, labels = self.counts, self.yardstick.data.labels
        true, predicted, found = (int(one[number]) for one in (counts.true, counts.predicted, counts.found))
        return WeakLabel(
            label=labels.uids[number],
            name=labels.name(number),
            train=int(self.yardstick.counts[number]),
            test=true,
            predicted=predicted,
            missed=true - found,
            recall=100.0 * found / max(true, 1),
            precision=100.0 * found / max(predicted, 1),
            instead=tuple(Confusion(labels.uids[other], labels.name(other), n) for other, n in others),
        )


def _together(of: Csr, beside: Csr, most: int) -> list[list[tuple[int, int]]]:
    """For each column of `of` the columns of `beside` that share most documents with it, and how many."""
    together = (of.T @ beside).tocsr()
    answer: list[list[tuple[int, int]]] = []
    for start, end in pairwise(together.indptr):
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
