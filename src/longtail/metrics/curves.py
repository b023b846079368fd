"""What a threshold of the scores costs: precision and recall over all documents together, from strict to loose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longtail.kernels.arrays import F64
from longtail.metrics.ranking import hits, positives
from longtail.types import Csr, TopK


class PrecisionRecall(NamedTuple):
    """Of all labels with a score of at least `thresholds`, (n,) each, falling: how many of them are right, and how many
    of the right ones they are; in percent.
    """

    thresholds: F64
    precision: F64
    recall: F64


def precision_recall(top: TopK, targets: Csr, points: int = 200) -> PrecisionRecall:
    """The curve of pairs of a document and a label, at most so many points of it.

    top: (N, k) ranked labels, masked pairs dropped; labels that a list no longer holds are not predicted at any
    threshold. Equal scores pass together.
    """
    real = top.ids >= 0
    scores, right = top.scores[real].astype(np.float64), hits(top, targets)[real]
    total = positives(targets).nnz
    if not len(scores) or not total:
        return PrecisionRecall(np.zeros(0), np.zeros(0), np.zeros(0))
    order = np.argsort(-scores, kind="stable")
    scores, found = scores[order], np.cumsum(right[order])
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    # Spread over recall, where the eye looks, and over the strictest, where few pairs decide.
    steps = np.linspace(0, found[-1], points)
    chosen = np.unique(np.concatenate([ends[:1], ends[np.searchsorted(found[ends], steps).clip(max=len(ends) - 1)]]))
    return PrecisionRecall(scores[chosen], 100.0 * found[chosen] / (chosen + 1), 100.0 * found[chosen] / total)
