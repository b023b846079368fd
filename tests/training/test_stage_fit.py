"""`fit` inside a stage of a run: how large a step is, which generators serve it, what is shown, logged and resumed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtail.persistence import StringTable
from longtail.training import adapted_batch
from longtail.training.fit import StepDecay, fit_stage
from longtail.training.progress import SilentDisplay, Task
from longtail.training.run import Run

RATE = StepDecay(0.1, (1,))


class Watched:
    """An objective that writes down its steps. Its state is a chain over them: a lost or repeated one would show."""

    def __init__(self, size: int, fail_at_step: int = -1) -> None:
        self.size, self.fail_at_step = size, fail_at_step
        self.steps: list[tuple[tuple[int, ...], float]] = []
        self.chain = torch.zeros(1, dtype=torch.float64)

    def step(self, rows: Any, rng: np.random.Generator, rate: float) -> torch.Tensor:
        if len(self.steps) == self.fail_at_step:
            raise KeyboardInterrupt
        self.steps.append((tuple(rows.tolist()), rate))
        self.chain.mul_(0.9).add_(float(rows @ np.arange(1, len(rows) + 1)) * rate + rng.random())
        return torch.tensor(2.0 if len(self.steps) % 2 else 1.0)

    def state(self) -> dict[str, torch.Tensor]:
        return {"chain": self.chain}


class Counting(SilentDisplay):
    """A display that adds up."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, int]] = []
        self.advanced, self.notes = 0, [""]
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    @contextlib.contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        self.tasks.append((title, total))
        yield self

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.advanced += steps
        self.notes.append(note)


def fitted(
    folder: Path,
    objective: Watched,
    *,
    epochs: int = 2,
    batch: int = 255,
    name: str = "part",
    seed: int = 0,
    adapts: bool = True,
) -> Counting:
    display = Counting()

    def work() -> StringTable:
        fit_stage(objective, run, name, epochs=epochs, batch=batch, schedule=RATE, adapts=adapts)
        return StringTable.of([])

    with Run.open(folder, {}, seed=seed, device="cpu", display=display) as run:
        run.stage("1_stage", work)
    return display


@pytest.mark.parametrize(
    ("documents", "asked", "used"),
    [
        (1, 255, 8),
        (100, 255, 8),
        (511, 255, 8),
        (640, 255, 10),
        (6400, 255, 100),
        (6400, 32, 32),
        (100, 5, 5),
        (16_320, 255, 255),
        (130_000, 255, 255),
        (130_560, 255, 255),
        (200_000, 255, 390),
        (1_000_000, 255, 1020),
        (1_000_000, 8, 32),
    ],
)
def test_small_data_takes_smaller_steps_and_large_data_larger_ones(documents: int, asked: int, used: int) -> None:
    assert adapted_batch(documents, asked) == used


@pytest.mark.parametrize(("documents", "asked", "used"), [(3, 255, 3), (100, 255, 8), (700, 255, 10), (700, 9, 9)])
def test_steps_have_the_adapted_size(documents: int, asked: int, used: int, tmp_path: Path) -> None:
    objective = Watched(documents)
    display = fitted(tmp_path / "run", objective, epochs=1, batch=asked)
    sizes = [len(rows) for rows, _ in objective.steps]
    assert max(sizes) == used
    assert len(sizes) == -(-documents // used)
    assert sorted(row for rows, _ in objective.steps for row in rows) == list(range(documents)), "each document once"
    assert display.tasks == [("part", len(sizes))]


@pytest.mark.parametrize("documents", [100, 2_000])
def test_steps_have_the_size_that_was_asked_for_where_they_do_not_adapt(documents: int, tmp_path: Path) -> None:
    objective = Watched(documents)
    fitted(tmp_path / "run", objective, epochs=1, batch=255 if documents == 100 else 2, adapts=False)
    assert max(len(rows) for rows, _ in objective.steps) == (100 if documents == 100 else 2)


def test_epochs_have_orders_of_their_own_that_the_seed_and_the_name_decide(tmp_path: Path) -> None:
    def order(folder: str, **options: Any) -> list[tuple[int, ...]]:
        objective = Watched(40)
        fitted(tmp_path / folder, objective, epochs=2, **options)
        rows = [row for rows, _ in objective.steps for row in rows]
        return [tuple(rows[:40]), tuple(rows[40:])]

    first, second = order("a")
    assert first != second
    assert order("b") == [first, second]
    assert order("c", seed=1)[0] != first
    assert order("d", name="other")[0] != first


def test_rates_follow_the_schedule(tmp_path: Path) -> None:
    objective = Watched(16)
    fitted(tmp_path / "run", objective, epochs=2)
    assert [rate for _, rate in objective.steps] == [0.1, 0.1, 0.05, 0.05]


def test_progress_reaches_its_total_and_shows_the_loss(tmp_path: Path) -> None:
    display = fitted(tmp_path / "run", Watched(20), epochs=3)
    assert display.tasks == [("part", 9)]
    assert display.advanced == 9
    assert display.notes[-1] == "loss 2.0000"


def test_mean_losses_are_logged(tmp_path: Path) -> None:
    fitted(tmp_path / "run", Watched(16), epochs=3)
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (event,) = (event for event in events if event["event"] == "fit")
    assert (event["name"], event["stage"], event["losses"]) == ("part", "1_stage", [1.5, 1.5, 1.5])


def test_an_interrupted_stage_goes_on_after_its_last_epoch(tmp_path: Path) -> None:
    whole = Watched(40)
    fitted(tmp_path / "whole", whole, epochs=4)
    broken = Watched(40, fail_at_step=12)
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "broken", broken, epochs=4)
    resumed = Watched(40)
    display = fitted(tmp_path / "broken", resumed, epochs=4)
    # Two epochs were finished; the second, over in no time, may not have been worth a save.
    assert len(resumed.steps) in (10, 15)
    assert resumed.steps == whole.steps[-len(resumed.steps) :]
    assert torch.equal(resumed.chain, whole.chain)
    assert display.advanced == 20, "what was done before counts"
    done = 4 - len(resumed.steps) // 5
    assert display.said == ["going on from stage 1_stage", f"part: going on after epoch {done} of 4"]


def test_no_epochs_no_steps(tmp_path: Path) -> None:
    objective = Watched(40)
    display = fitted(tmp_path / "run", objective, epochs=0)
    assert objective.steps == []
    assert display.tasks == [("part", 0)]
