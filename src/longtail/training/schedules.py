"""Learning rates over the course of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class Schedule(Protocol):
    def rate(self, epoch: float, epochs: int) -> float:
        """The learning rate at `epoch` (a fraction inside an epoch: 2.5 is half way through the third) of `epochs`."""
        ...


@dataclass(frozen=True)
class StepDecay:
    """A constant rate, multiplied by `factor` at the start of each epoch (counted from 0) named in `at`."""

    peak: float
    at: tuple[int, ...] = ()
    factor: float = 0.5

    @classmethod
    def every(cls, peak: float, share: float, epochs: int, factor: float = 0.5) -> StepDecay:
        """A decay after each `share` of the epochs. Paper: ECLARE Sec. 4 (halved after half of the epochs)."""
        steps = (math.ceil(number * share * epochs) for number in range(1, math.ceil(1 / share)))
        return cls(peak, tuple(step for step in steps if step < epochs), factor)

    def rate(self, epoch: float, epochs: int) -> float:
        return self.peak * self.factor ** sum(epoch >= step for step in self.at)


@dataclass(frozen=True)
class OneCycle:
    """Up from `peak / start_divisor` during the first `warm_up` share of the training, then down to nothing, along
    cosines.
    """

    peak: float
    warm_up: float = 0.25
    start_divisor: float = 25.0

    def rate(self, epoch: float, epochs: int) -> float:
        progress = epoch / epochs
        start = self.peak / self.start_divisor
        if progress < self.warm_up:
            return self.peak + (start - self.peak) * _half_cosine(progress / self.warm_up)
        return self.peak * _half_cosine((progress - self.warm_up) / (1 - self.warm_up))


@dataclass(frozen=True)
class WarmUp:
    """Up to `peak` in a straight line during the first `share` of the training, then down to `end` x `peak` in another.

    Paper: GNN-XML Sec. 4.2 (a warm-up proportion of 0.1).
    """

    peak: float
    share: float = 0.1
    end: float = 1.0

    def rate(self, epoch: float, epochs: int) -> float:
        progress = epoch / epochs
        if progress < self.share:
            return self.peak * progress / self.share
        return self.peak * (1 - (1 - self.end) * (progress - self.share) / max(1 - self.share, 1e-12))


def _half_cosine(progress: float) -> float:
    """From 1 at 0 to 0 at 1."""
    return (1 + math.cos(math.pi * progress)) / 2
