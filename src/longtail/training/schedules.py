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

    def rate(self, epoch: float, epochs: int) -> float:
        return self.peak * self.factor ** sum(epoch >= step for step in self.at)


@dataclass(frozen=True)
class OneCycle:
    """Up from `peak / start_divisor` during the first `warm_up` share of the training, then down to nothing, along cosines."""

    peak: float
    warm_up: float = 0.25
    start_divisor: float = 25.0

    def rate(self, epoch: float, epochs: int) -> float:
        progress = epoch / epochs
        start = self.peak / self.start_divisor
        if progress < self.warm_up:
            return self.peak + (start - self.peak) * _half_cosine(progress / self.warm_up)
        return self.peak * _half_cosine((progress - self.warm_up) / (1 - self.warm_up))


def _half_cosine(progress: float) -> float:
    """From 1 at 0 to 0 at 1."""
    return (1 + math.cos(math.pi * progress)) / 2
