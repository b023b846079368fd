"""Metrics that are means over labels, so that a label of three documents counts as much as one of three thousand; and
what a threshold of the scores finds.

    MacroP@k, MacroR@k, MacroF1@k   precision, recall and F1 of each label in the lists of k places, and their mean
    Coverage@k   share of the labels of the truth that are found in the k places of at least one document that has them
    MicroF1, MacroF1   of the pairs whose score is at least a threshold: F1 of all pairs, and the mean of labels

Means are over the labels that are in the truth or were predicted: of others there is nothing to say. (A mean over all
labels of a large data set is mostly zeros of labels without any test document.) Where a label has no prediction its
precision is 0, where it is not in the truth its recall is 0.

Paper: Schultheis et al., NeurIPS 2023 (generalised test utilities: macro metrics at k, coverage).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.ranking import cut, hits, positives
from longtail.metrics.scores import percent
from longtail.types import I64, BoolArray, Csr, TopK


@dataclass(frozen=True)
class LabelCounts:
    """Per label, (L,) each: documents that have it, documents it was predicted for, and those where both is so."""

    true: I64
    predicted: I64
    found: I64

    @classmethod
    def of(cls, top: TopK, hit: BoolArray, chosen: BoolArray, targets: Csr) -> LabelCounts:
        """hit: (N, k) which places of `top` are right. chosen: (N, k) which of them count as predicted.
        targets: (N, L) as `positives` gives them.
        """

        def counted(places: BoolArray) -> I64:
            return np.bincount(top.ids[places], minlength=targets.shape[1]).astype(np.int64)

        chosen = chosen & (top.ids != TopK.PAD)
        true = np.bincount(targets.indices, minlength=targets.shape[1]).astype(np.int64)
        return cls(true, counted(chosen), counted(chosen & hit))

    @classmethod
    def at(cls, top: TopK, targets: Csr, k: int) -> LabelCounts:
        """Of the first k places."""
        top, targets = cut(top, k), positives(targets)
        return cls.of(top, hits(top, targets), np.ones(top.ids.shape, dtype=np.bool_), targets)

    def macro(self) -> dict[str, float]:
        """Means over labels, in percent: P, R and F1."""
        there = (self.true > 0) | (self.predicted > 0)
        sums = {"P": self.predicted, "R": self.true, "F1": (self.true + self.predicted) / 2}
        return {
            name: float(_percent(self.found[there], below[there]).mean()) if there.any() else 0.0
            for name, below in sums.items()
        }

    def micro_f1(self) -> float:
        """Of all pairs of a document and a label together, in percent."""
        return float(_percent(self.found.sum(), (self.true.sum() + self.predicted.sum()) / 2))

    def coverage(self) -> float:
        """Share of the labels of the truth that were found at least once, in percent."""
        return float(_percent((self.found > 0).sum(), (self.true > 0).sum()))


def macro_score(top: TopK, targets: Csr, ks: Sequence[int] = (1, 3, 5)) -> dict[str, float]:
    """``{"MacroP@1": ..., "Coverage@5": ...}`` in percent. top, targets: as in `scores.measure`."""
    found: dict[str, float] = {}
    for k in ks:
        counts = LabelCounts.at(top, targets, k)
        found |= {f"Macro{name}@{k}": value for name, value in counts.macro().items()}
        found[f"Coverage@{k}"] = counts.coverage()
    return found


def f1_at_threshold(top: TopK, targets: Csr, threshold: float) -> dict[str, float]:
    """MicroF1 and MacroF1 in percent, where labels with a score of at least `threshold` are predicted.

    Labels that a list of `top` no longer holds are not: lists must be longer than what passes the threshold.
    """
    targets = positives(targets)
    counts = LabelCounts.of(top, hits(top, targets), top.scores >= np.float32(threshold), targets)
    return {"MicroF1": counts.micro_f1(), "MacroF1": counts.macro()["F1"]}


def best_threshold(top: TopK, targets: Csr) -> float | None:
    """The threshold at which MicroF1 is largest; of several the highest. None where nothing right was predicted.

    Choose it on documents that are not the ones to be measured.
    """
    hit, real = hits(top, targets), top.ids != TopK.PAD
    scores, right = top.scores[real], hit[real]
    if not right.any():
        return None
    order = np.argsort(-scores, kind="stable")
    scores, found = scores[order], np.cumsum(right[order])
    f1 = 2.0 * found / (np.arange(1, len(found) + 1) + positives(targets).nnz)
    # Equal scores pass together.
    last_of_equals = np.append(scores[1:] != scores[:-1], True)
    return float(scores[np.argmax(np.where(last_of_equals, f1, -1.0))])


def _percent(part: NDArray[np.integer] | np.integer, whole: NDArray[np.generic] | np.generic) -> NDArray[np.float64]:
    return percent(np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64))
