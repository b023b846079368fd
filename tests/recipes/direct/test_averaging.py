"""Averages of weights: against snapshots, and over an interruption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.recipes.direct.averaging import Averaged
from longtail.training.fit import OneCycle, fit, to_array
from longtail.types import I64

pytestmark = pytest.mark.usefixtures("one_thread")

DOCUMENTS, BATCH, EPOCHS = 20, 5, 6
STEPS = EPOCHS * DOCUMENTS // BATCH


class Wandering:
    """Weights that move at random in each step, and one thing that is no weight."""

    def __init__(self) -> None:
        self.rows, self.scale, self.moments = torch.zeros(3, 4), torch.ones(()), torch.zeros(2)
        self.snapshots: list[dict[str, Tensor]] = []

    size = DOCUMENTS

    def weights(self) -> dict[str, Tensor]:
        return {"rows": self.rows, "scale": self.scale}

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        for tensor in (self.rows, self.scale, self.moments):
            tensor += torch.from_numpy(np.asarray(rng.standard_normal(tensor.shape), np.float32))
        self.snapshots.append({name: weight.clone() for name, weight in self.weights().items()})
        return self.rows.sum()

    def state(self) -> dict[str, Tensor]:
        return self.weights() | {"moments": self.moments}


class InMemory:
    """The last epoch that was saved; every one is."""

    def __init__(self) -> None:
        self.saved: tuple[int, dict[str, NDArray[Any]]] | None = None

    def due(self, size: int) -> bool:
        return True

    def load(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        return None if self.saved is None else (self.saved[0], dict(self.saved[1]))

    def save(self, epochs_done: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.saved = epochs_done, {name: array.copy() for name, array in arrays.items()}


def averaged(share: float, steps: int = STEPS) -> tuple[Wandering, Averaged]:
    objective = Wandering()
    return objective, Averaged(objective, objective.weights(), steps=steps, share=share)


def train(objective: Averaged, checkpoint: InMemory | None = None, stop: int | None = None) -> None:
    class Interrupted(Exception):
        pass

    def on_batch(done: int, _: int, __: float) -> None:
        if done == stop:
            raise Interrupted

    try:
        fit(
            objective,
            epochs=EPOCHS,
            batch_size=BATCH,
            schedule=OneCycle(0.1, 0.5),
            rng_for=np.random.default_rng,
            checkpoint=checkpoint,
            on_batch=on_batch,
        )
    except Interrupted:
        return
    objective.finish()


@pytest.mark.parametrize(("share", "looks"), [(0.25, 6), (0.5, 12), (1.0, 24), (0.01, 1)])
def test_the_average_of_the_last_snapshots(share: float, looks: int) -> None:
    objective, average = averaged(share)
    train(average)
    for name, weight in objective.weights().items():
        naive = torch.stack([snapshot[name] for snapshot in objective.snapshots[-looks:]]).mean(0)
        torch.testing.assert_close(weight, naive, rtol=1e-5, atol=1e-5)


def test_long_trainings_are_looked_at_every_few_steps_and_at_the_last() -> None:
    objective, average = averaged(0.5, steps=600)  # 300 steps: every 5th, 60 in all
    rng = np.random.default_rng(0)
    for _ in range(600):
        average.step(np.arange(BATCH), rng, 0.1)
    average.finish()
    naive = torch.stack([snapshot["rows"] for snapshot in objective.snapshots[304::5]]).mean(0)
    assert len(objective.snapshots[304::5]) == 60
    torch.testing.assert_close(objective.rows, naive, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stop", [3, 14, 18, 23])
def test_an_interrupted_training_has_the_same_average(stop: int) -> None:
    whole, average = averaged(0.5)
    train(average)
    checkpoint = InMemory()
    train(averaged(0.5)[1], checkpoint, stop=stop)
    resumed, again = averaged(0.5)
    train(again, checkpoint)
    assert torch.equal(resumed.rows, whole.rows)
    assert torch.equal(resumed.scale, whole.scale)


def test_training_itself_is_not_changed() -> None:
    objective, average = averaged(1.0)
    plain = Wandering()
    for step in range(STEPS):
        average.step(np.arange(BATCH), np.random.default_rng(step), 0.1)
        plain.step(np.arange(BATCH), np.random.default_rng(step), 0.1)
    assert {name: to_array(value).tolist() for name, value in objective.state().items()} == {
        name: to_array(value).tolist() for name, value in plain.state().items()
    }
    assert average.size == DOCUMENTS


def test_nothing_was_looked_at() -> None:
    objective, average = averaged(0.5)
    average.step(np.arange(BATCH), np.random.default_rng(0), 0.1)
    before = objective.rows.clone()
    average.finish()
    assert torch.equal(objective.rows, before)
