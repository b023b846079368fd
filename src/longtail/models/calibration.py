"""From scores to probabilities, without a change of the ranking.

Score maps are learnt on documents that training did not see (`longtail.calibrating`): one for all, or one for each
group of places (the best label of a document is right more often than the fifth of another with the same score) and of
labels (models err differently on frequent and on rare ones). A label of another group can then get a higher probability
than the one above it. So each place gets at most the probability of the place above, and a last map, `overall`, sets
right what that takes away. Both leave the order of a list as it is, and what is said of a place does not depend on how
many places follow.

Where scores of two places differ, so do their probabilities, by one step of float32 at least: whoever sorts by them
gets the ranking of the model, ties included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from longtail.declared import Shaped
from longtail.errors import ConfigError
from longtail.persistence import DataPart
from longtail.types import F32, I64, TopK

F64 = NDArray[np.float64]

# No label is impossible, and none is certain. Above 0 by far more steps of float32 than a list has places.
LEAST, MOST = 1e-6, 1.0 - 1e-6
# Precision can be asked for in steps of a thousandth.
STEPS = 1000


@dataclass(frozen=True)
class ScoreMap:
    """An increasing map: straight lines between knots, constant beyond them.  scores, probabilities: (n,)"""

    scores: Annotated[F64, Shaped("knots")]
    probabilities: Annotated[F64, Shaped("knots")]

    def __post_init__(self) -> None:
        if not len(self.scores) or self.scores.shape != self.probabilities.shape or self.scores.ndim != 1:
            raise ValueError("a score map needs as many probabilities as scores, and one at least")
        if not (np.isfinite(self.scores).all() and (np.diff(self.scores) > 0).all()):
            raise ValueError("the scores of a score map must increase")
        within = (self.probabilities >= LEAST).all() and (self.probabilities <= MOST).all()
        if not within or (np.diff(self.probabilities) < 0).any():
            raise ValueError(f"the probabilities of a score map must not decrease, from {LEAST} to {MOST}")

    def __call__(self, scores: NDArray[Any]) -> F64:
        found: F64 = np.interp(scores, self.scores, self.probabilities)
        return found


@dataclass(frozen=True)
class Calibration(DataPart):
    """What turns the scores of a model into probabilities.

    places: (P,) increasing from 0: where groups of places begin.  fewest: (F,) increasing from 0: where groups of
        labels begin, in training documents.  maps: of all groups of labels at the first group of places, then at the
        next.
    overall: the last map, where there are several.
    thresholds: (STEPS + 1,) the lowest probability that may be shown so that what is shown over all documents has a
        precision of n / STEPS; infinite where no threshold was found to reach it.
    """

    KIND = "calibration"

    places: Annotated[I64, Shaped("groups of places", plain=True)]
    fewest: Annotated[I64, Shaped("groups of labels", plain=True)]
    maps: tuple[ScoreMap, ...]
    overall: ScoreMap | None
    thresholds: Annotated[F32, Shaped("_")] = field(repr=False)

    def __post_init__(self) -> None:
        for starts in (self.places, self.fewest):
            if not len(starts) or starts[0] != 0 or (np.diff(starts) <= 0).any():
                raise ValueError("groups must begin with 0 and increase")
        if len(self.maps) != len(self.places) * len(self.fewest):
            raise ValueError("a calibration needs a score map for every group")
        if (self.overall is None) != (len(self.maps) == 1):
            raise ValueError("several groups need a map over all, one group has none")
        if self.thresholds.shape != (STEPS + 1,) or not (self.thresholds[:-1] <= self.thresholds[1:]).all():
            raise ValueError(f"thresholds must be {STEPS + 1} numbers that do not decrease")

    def label_groups(self, counts: NDArray[Any]) -> I64:
        """The groups of labels with so many training documents."""
        return np.searchsorted(self.fewest, counts, side="right") - 1

    def calibrated(self, top: TopK, label_groups: NDArray[Any]) -> TopK:
        """The same ranking with probabilities.  label_groups: (L,) of every label."""
        if self.overall is None:
            found = self.maps[0](top.scores)
        else:
            found = self.overall(np.minimum.accumulate(self.by_group(top, label_groups), axis=1))
        real = top.ids != TopK.PAD
        return TopK(top.ids, np.where(real, decreasing(found, top.scores), np.float32(-np.inf)))

    def by_group(self, top: TopK, label_groups: NDArray[Any]) -> F64:
        """(B, k): what the map of its group says of each score, whatever stands above it."""
        low, high = self._range
        at = np.clip(top.scores.astype(np.float64), low, high) - low
        found: F64 = np.interp(at + self.groups(top, label_groups) * self._width, *self._side_by_side)
        return found

    def groups(self, top: TopK, label_groups: NDArray[Any]) -> I64:
        """(B, k): the group, a number of `maps`, of each place."""
        of_places = np.searchsorted(self.places, np.arange(top.k), side="right") - 1
        found: I64 = of_places[None, :] * len(self.fewest) + label_groups[top.ids]
        return found

    def threshold_for(self, precision: float) -> float:
        """The lowest probability to show for such a precision over all that is shown."""
        if isinstance(precision, bool) or not isinstance(precision, int | float) or not 0 < precision < 1:
            raise ConfigError(f"precision is {precision!r}, expected a number between 0 and 1", "e.g. 0.9")
        threshold = float(self.thresholds[int(np.ceil(round(precision * STEPS, 6)))])
        if not np.isfinite(threshold):
            best = (np.flatnonzero(np.isfinite(self.thresholds)).max(initial=0)) / STEPS
            reached = f"the highest that was reached is {best:g}" if best else "it had too few of them"
            raise ConfigError(
                f"no threshold gives a precision of {precision:g} on the documents that this model was calibrated on; "
                f"{reached}",
                "ask for less" if best else "calibrate with more documents",
            )
        return threshold

    # All maps side by side on one axis, so that all groups are looked up together.

    @cached_property
    def _range(self) -> tuple[float, float]:
        return min(float(one.scores[0]) for one in self.maps), max(float(one.scores[-1]) for one in self.maps)

    @cached_property
    def _width(self) -> float:
        low, high = self._range
        return 2.0 * (high - low) + 1.0

    @cached_property
    def _side_by_side(self) -> tuple[F64, F64]:
        low, high = self._range
        scores = [
            np.concatenate([[low], one.scores, [high]]) - low + number * self._width
            for number, one in enumerate(self.maps)
        ]
        probabilities = [np.pad(one.probabilities, 1, mode="edge") for one in self.maps]
        return np.concatenate(scores), np.concatenate(probabilities)


def decreasing(probabilities: F64, scores: F32) -> F32:
    """(B, k) probabilities as float32, changed so that each is below the one before it where scores (B, k) fall, and
    not above it where they are equal.

    Positive floats are ordered as their bits are: with d falls of the score before a place, bits + d must not rise.
    """
    bits = np.clip(probabilities, LEAST, MOST).astype(np.float32).view(np.int32).astype(np.int64)
    falls = np.zeros(bits.shape, dtype=np.int64)
    np.cumsum(scores[:, 1:] < scores[:, :-1], axis=1, out=falls[:, 1:])
    found: F32 = (np.minimum.accumulate(bits + falls, axis=1) - falls).astype(np.int32).view(np.float32)
    return found
