"""The average of the weights over the end of a training, in place of the last ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from longtail.training.fit import OwnOrder
from longtail.training.objectives import Objective, prefixed
from longtail.types import I64

# Looks at the weights, at most: each is a pass over all tables, which on a CPU takes as long as a step or two.
_LOOKS = 64


class Averaged:
    """An objective whose `weights` are averaged over the last `share` of its steps; `finish` puts the average in
    their place.

    steps: of the whole training. The weights are looked at every few steps, at most 64 times, last after the last
    step: not once per epoch, as a short training has few of them. Training itself is not changed. The average is part
    of the state, so that a resumed training has it.
    """

    def __init__(self, objective: Objective, weights: Mapping[str, Tensor], *, steps: int, share: float) -> None:
        assert not isinstance(objective, OwnOrder), "`fit` would not see its order"
        self.objective, self.weights, self.steps = objective, weights, steps
        self._span = max(1, round(share * steps))
        self._every = -(-self._span // _LOOKS)
        self.averages = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self._count = torch.zeros((), dtype=torch.int64)
        self._looks = torch.zeros((), dtype=torch.int64)

    @property
    def size(self) -> int:
        return self.objective.size

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        loss = self.objective.step(rows, rng, rate)
        self._count += 1
        left = self.steps - int(self._count)
        if left < self._span and left % self._every == 0:
            self._look()
        return loss

    @torch.no_grad()
    def _look(self) -> None:
        self._looks += 1
        for name, average in self.averages.items():
            average.lerp_(self.weights[name], 1 / int(self._looks))

    @torch.no_grad()
    def finish(self) -> None:
        """The weights become their average."""
        if int(self._looks):
            for name, average in self.averages.items():
                self.weights[name].copy_(average)

    def state(self) -> dict[str, Tensor]:
        own = {"count": self._count, "looks": self._looks} | prefixed("of", self.averages)
        return self.objective.state() | prefixed("average", own)
