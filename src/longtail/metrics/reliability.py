"""Whether scores can be read as probabilities: of the labels that are shown with 0.8, are 80% right?

Only labels that are shown count, the first k places of every document. Over all labels of a large data set nearly
every score and nearly every truth is 0, and a mean over them says that every model is perfect.

    ECE@k = sum over bins of (share of the shown labels in the bin) * |mean score - share that is right|, in percent

Bins hold equally many labels, so that each is measured equally well; equal scores are never torn apart. A score outside
of 0 to 1 is no probability: it counts as the nearer end.

Paper: Naeini, Cooper, Hauskrecht, AAAI 2015 (expected calibration error); Nguyen, O'Connor, EMNLP 2015 (bins of equal
size).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.metrics.ranking import cut, hits
from longtail.types import I64, Csr, TopK

BINS = 20


@dataclass(frozen=True)
class Reliability:
    """Q bins of shown labels, from low to high scores: the mean score, the share that is right, and how many labels.

    All arrays are (Q,). `right` can exceed 1 where labels that are right count for more than one (`reliability`).
    """

    confidence: NDArray[np.float64]
    right: NDArray[np.float64]
    counts: I64

    def error(self) -> float:
        """The expected calibration error, in percent; 0 where nothing was shown."""
        if not self.counts.sum():
            return 0.0
        return float(100.0 * np.average(np.abs(self.confidence - self.right), weights=self.counts))

    def as_json(self) -> list[dict[str, Any]]:
        """A row per bin, in percent."""
        rows = zip(self.confidence.tolist(), self.right.tolist(), self.counts.tolist(), strict=True)
        return [{"confidence": 100 * said, "right": 100 * found, "labels": n} for said, found, n in rows]


def binned(confidence: ArrayLike, right: ArrayLike, n_bins: int = BINS) -> Reliability:
    """The reliability of (n,) confidences whose labels are right (1) or not (0), in bins of equally many.

    A bin ends only where the next confidence is another one; so there may be fewer bins than asked for.
    """
    said, found = np.clip(np.asarray(confidence, dtype=np.float64), 0.0, 1.0), np.asarray(right, dtype=np.float64)
    order = np.argsort(said, kind="stable")
    said, found = said[order], found[order]
    # Where the n-th part of the labels is reached; then on to the end of the run of equal confidences it lies in.
    wanted = np.arange(1, n_bins + 1) * len(said) // n_bins
    wanted = wanted[wanted > 0]
    ends = np.unique(np.searchsorted(said, said[wanted - 1], side="right")) if len(wanted) else wanted
    counts = np.diff(ends, prepend=0)
    starts = ends - counts
    if not len(starts):
        nothing = np.zeros(0)
        return Reliability(nothing, nothing, np.zeros(0, dtype=np.int64))
    return Reliability(
        np.add.reduceat(said, starts) / counts, np.add.reduceat(found, starts) / counts, counts.astype(np.int64)
    )


def reliability(
    top: TopK, targets: Csr, k: int, n_bins: int = BINS, gains: NDArray[np.float64] | None = None
) -> Reliability:
    """Of the first `k` places of every document; padding is not shown.

    top: (N, any) ranked labels, masked pairs dropped. targets: (N, L) CSR truth, masked pairs dropped.
    gains: (L,) what a label counts where it is right, e.g. `inverse_propensities`: each label of the truth then stands
        for those of its kind that are missing in it. None: 1.
    """
    top = cut(top, k)
    hit, real = hits(top, targets), top.ids != TopK.PAD
    worth = hit.astype(np.float64) if gains is None else np.where(hit, gains[top.ids], 0.0)
    return binned(top.scores[real], worth[real], n_bins)


def calibration_errors(top: TopK, targets: Csr, ks: Sequence[int] = (1, 3, 5)) -> dict[str, float]:
    """``{"ECE@1": ..., "ECE@3": ..., "ECE@5": ...}`` in percent. Arguments as in `reliability`."""
    return {f"ECE@{k}": reliability(top, targets, k).error() for k in ks}
