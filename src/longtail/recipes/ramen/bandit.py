"""Weights of losses, learnt by trial: perturb them, train for a block of steps, and step against what that did to a
reward.

    z  a random step of every weight;  tried = max(weight + z, 0);  P = what a block of steps with `tried` came to
    weight <- clip(weight - rate * slope, lowest, highest)
    slope   sign: z = +-deviation, P / z      gauss_score: z ~ N(0, deviation^2), P z / deviation^2
            pairs: a block with z and one with -z, (P - P') / 2z

Paper: RAMEN Sec. 3 (bandit learning, after Flaxman et al.). Differs:

- The printed rule divides P by a Gaussian z. That has no variance: 1 / z is unbounded near 0 (claim R11 has numbers).
  The two forms above are unbiased with a finite one. `paper_ratio` is the printed rule with |z| kept above 0.02.
- A running mean of P is subtracted: all weights are perturbed at once, and each would see the noise of the others.
- A loss that falls while weights are tried looks like a slope to both forms, and the running mean lags behind it:
  where training is short this is most of what moves weights. `pairs` (not in the paper) compares neighbouring blocks,
  between which the loss hardly falls.
- The objective itself contains weight * R with R >= 0, so on average the printed rule lowers every weight, without an
  end. Hence bounds, and the weight of the task stays 1: only ratios matter to Adam. What remains useful: weights of
  graphs whose loss stays high fall fastest. `reward` offers the loss of the task, in training or on documents kept
  apart, where a weight must earn its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from longtail.config import setting

Estimator: TypeAlias = Literal["sign", "gauss_score", "paper_ratio", "pairs"]
F64: TypeAlias = NDArray[np.float64]

# The smallest |z| that `paper_ratio` divides by.
FLOOR = 0.02
# How much of the running mean of rewards is kept at each block.
DECAY = 0.9
TASK = "task"


@dataclass(frozen=True)
class BanditConfig:
    enabled: bool = setting(True, "weights of the regularisers are learnt by trial; false: all are `fixed`")
    fixed: float = setting(1.0, "the weight of every regulariser where nothing is tried", low=0)
    initial: float = setting(0.1, "the weight of every regulariser at first", low=0)
    estimator: Estimator = setting(
        "sign",
        "how slopes are found: steps of one size; Gaussian steps; the printed ratio, its divisor kept off 0; steps "
        "forth and back",
    )
    baseline: Literal["ema", "none"] = setting("ema", "ema: rewards count beside their running mean")
    reward: Literal["objective", "task", "heldout"] = setting(
        "objective",
        "what is made small: the weighted sum, the loss of the task alone, or that loss on documents kept apart",
    )
    accumulate: Literal["mean", "sum"] = setting("mean", "how the steps of a block become one reward")
    block: int = setting(30, "steps with the same weights", low=1)
    deviation: float = setting(0.1, "size of a trial step", low=1e-6)
    rate: float = setting(0.01, "learning rate of the weights", low=0)
    lowest: float = setting(1e-3, "bound of the weights", low=0)
    highest: float = setting(2.0, "bound of the weights", low=0)
    fix_task_weight: bool = setting(True, "the weight of the task stays 1")
    heldout_share: float = setting(0.05, "reward=heldout: share of the documents kept apart", low=0.001, high=0.5)


def trial_steps(
    shape: int | tuple[int, ...], estimator: Estimator, deviation: float, rng: np.random.Generator, floor: float = FLOOR
) -> F64:
    """z: +-deviation for `sign` and `pairs`, else Gaussian with that deviation; for `paper_ratio` at least `floor`
    from 0.
    """
    if estimator in ("sign", "pairs"):
        return np.where(rng.random(shape) < 0.5, -deviation, deviation)
    z: F64 = rng.standard_normal(shape) * deviation
    return np.where(np.abs(z) < floor, np.copysign(floor, z), z) if estimator == "paper_ratio" else z


def slopes(reward: float | F64, z: F64, estimator: Estimator, deviation: float) -> F64:
    """What one trial says about the slope of the reward."""
    found: F64 = reward * z / deviation**2 if estimator == "gauss_score" else reward / z
    return found


class WeightBandit:
    """The weights of a task and of its regularisers, in the order of `names`; the first is the task's.

    rng_for: a generator of its own for each block, so that a resumed training tries the same.
    `arrays` are all that blocks change, live: a checkpoint saves them, and copies back into them.
    """

    def __init__(
        self, names: Sequence[str], config: BanditConfig, rng_for: Callable[[int], np.random.Generator]
    ) -> None:
        self.names, self.config, self._rng_for = (TASK, *names), config, rng_for
        first = config.initial if config.enabled else config.fixed
        self.weights: F64 = np.array([1.0, *(first for _ in names)])
        self._mean = np.zeros(2)  # of rewards, and of how many blocks
        self._last = np.zeros(1)  # reward
        self.arrays: dict[str, NDArray[Any]] = {"weights": self.weights, "mean": self._mean, "last": self._last}

    @property
    def blocks(self) -> int:
        return int(self._mean[1])

    def steps(self) -> F64:
        """z of the block at work; 0 where a weight does not move."""
        c = self.config
        if not c.enabled:
            return np.zeros(len(self.names))
        if c.estimator == "pairs":
            z = (
                trial_steps(len(self.names), c.estimator, c.deviation, self._rng_for(self.blocks // 2))
                * (-1) ** self.blocks
            )
        else:
            z = trial_steps(len(self.names), c.estimator, c.deviation, self._rng_for(self.blocks))
        return np.where(np.arange(len(z)) == 0, 0.0, z) if c.fix_task_weight else z

    def tried(self) -> F64:
        """The weights of the block at work. Differs: a weight as small as its trial step would turn negative, and push
        items away from their anchors; it becomes 0.
        """
        return np.maximum(self.weights + self.steps(), 0.0)

    def learn(self, reward: float) -> None:
        """The end of a block. reward: its P."""
        c, z = self.config, self.steps()
        moved, (mean, blocks) = z != 0, self._mean.tolist()
        if c.enabled and (c.estimator != "pairs" or blocks % 2):
            self.weights[moved] -= c.rate * self._slopes(reward, z[moved])
            self.weights[moved] = np.clip(self.weights[moved], c.lowest, c.highest)
        self._mean[:] = (DECAY * mean + (1 - DECAY) * reward if blocks else reward), blocks + 1
        self._last[0] = reward

    def _slopes(self, reward: float, z: F64) -> F64:
        c = self.config
        if c.estimator == "pairs":
            return (reward - self._last[0]) / (2 * z)
        if c.baseline == "none":
            return slopes(reward, z, c.estimator, c.deviation)
        # Before the first block there is no mean: it is compared with itself, and teaches nothing.
        return slopes(reward - (float(self._mean[0]) if self.blocks else reward), z, c.estimator, c.deviation)
