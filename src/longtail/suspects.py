"""Suspected errors of the truth: where a model is sure and the test documents say otherwise.

Two kinds: a label that a document has and that the model does not see in it at all, and one that it lacks and that the
model is sure of. How doubtful a pair is: `longtail.metrics.label_errors`. Documents must be ones that the model was not
trained on: of those it believes what they say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail import metrics
from longtail.data.dataset import Dataset
from longtail.evaluation import Yardstick, rank_test
from longtail.kernels.arrays import F64
from longtail.metrics.ranking import hits, positives
from longtail.predictor import Predictor
from longtail.training.progress import Display, SilentDisplay
from longtail.types import F32, I32, I64, Context, Csr, TopK


@dataclass(frozen=True)
class SuspectPairs:
    """Pairs of a test document and a label, the most doubtful first; (n,) each.

    rows: of the test documents.  labels: numbers of the data set.  scores: of the model.  doubts: what they are sorted
    by.
    """

    rows: I64
    labels: I64
    scores: F32
    doubts: F64

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def sorted(cls, rows: I64, labels: I64, scores: F32, doubts: F64) -> SuspectPairs:
        order = np.lexsort((labels, rows, -doubts))
        return cls(rows[order], labels[order], scores[order], doubts[order])


@dataclass(frozen=True)
class Suspects:
    """given: all labels of the test documents that the model knows, those that are probably wrong first.
    missing: labels among the first predictions that documents lack, those that are probably right first.
    """

    given: SuspectPairs
    missing: SuspectPairs


def suspects(
    model: Predictor,
    yardstick: Yardstick,
    ranked: TopK,
    *,
    at: int = 5,
    context: Context | None = None,
    display: Display | None = None,
) -> Suspects:
    """Labels of the truth that are probably wrong or missing. ranked: predictions for all test documents, as
    `longtail.evaluation.rank_test` gives them.  at: places in which missing labels are looked for.

    Documents of which the model says nothing are left out. Of a calibrated model its own scores are compared: far down
    in the lists all probabilities are alike.
    """
    display = display or SilentDisplay()
    if model.calibration is not None:
        model = model.uncalibrated()
        ranked = rank_test(model, yardstick, display, context)
    truth, best = positives(yardstick.truth), metrics.cut(ranked, 1)
    spoken = best.ids[:, 0] >= 0
    rows = np.repeat(np.arange(len(ranked)), np.diff(truth.indptr))
    labels = truth.indices.astype(np.int64)
    numbers = _numbers(model, yardstick.data)
    asked = spoken[rows] & (numbers[labels] >= 0)
    rows, labels = rows[asked], labels[asked]
    scores = _given_scores(model, yardstick, ranked, rows, numbers[labels], labels, context, display)
    bins = metrics.by_frequency(yardstick.counts).bin_of_label
    doubts = metrics.doubts_of_given(labels, scores, best.scores[rows, 0], bins)
    top = metrics.cut(yardstick.cut(ranked), at)
    lacking = (top.ids >= 0) & ~hits(top, truth)
    others, places = np.nonzero(lacking)
    said, of_said = top.ids[others, places].astype(np.int64), top.scores[others, places]
    sure = metrics.doubts_of_missing(of_said, places + 1)
    return Suspects(SuspectPairs.sorted(rows, labels, scores, doubts), SuspectPairs.sorted(others, said, of_said, sure))


def _numbers(model: Predictor, data: Dataset) -> I64:
    """(L,) the model's number of each label of the data; -1 where it does not know it."""
    known = {uid: number for number, uid in enumerate(model.bundle.labels.uids)}
    return np.array([known.get(uid, -1) for uid in data.labels.uids], dtype=np.int64)


def _given_scores(
    model: Predictor,
    yardstick: Yardstick,
    ranked: TopK,
    rows: I64,
    numbers: I64,
    labels: I64,
    context: Context | None,
    display: Display,
) -> F32:
    """(n,) of the pairs (rows, labels): read from the lists; documents with a label that is not in their list are asked
    again. numbers: of the labels, as the model counts.
    """
    lists: Csr = metrics.to_csr(ranked, len(yardstick.data.labels))
    found = np.asarray(lists[rows, labels]).ravel().astype(np.float32) if len(rows) else np.zeros(0, dtype=np.float32)
    again = np.unique(rows[found == 0])
    if not len(again):
        return found
    place_of = np.full(len(ranked), -1, dtype=np.int64)
    place_of[again] = np.arange(len(again))
    chosen = place_of[rows] >= 0
    mine = place_of[rows[chosen]]
    counts = np.bincount(mine, minlength=len(again))
    places = np.arange(len(mine)) - np.repeat(np.cumsum(counts) - counts, counts)
    ids: I32 = np.full((len(again), int(counts.max())), TopK.PAD, dtype=np.int32)
    ids[mine, places] = numbers[chosen]
    documents = yardstick.data.need_test().documents.rows(again)
    with display.task("scoring given labels", len(again)) as task:
        known = None if context is None else context.rows(again)
        asked = model.scores_of(documents, ids, context=known, on_block=task.advance)
    found[chosen] = asked[mine, places]
    return found
