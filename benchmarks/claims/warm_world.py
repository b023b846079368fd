"""Data of warm start, planted or real: half of the labels of test documents are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from benchmarks.claims.worlds import Folder, World
from longtail.config import resolve
from longtail.data.dataset import Dataset
from longtail.data.protocols import WarmStart, warm_start
from longtail.data.synthetic import PRESETS, synthesise


def warm_world(seed: int, **knobs: Any) -> Dataset:
    """Known labels are in training, and told before prediction."""
    return _cut(seed, knobs).warm


def cold_world(seed: int, **knobs: Any) -> Dataset:
    """The same test documents and hidden labels; training as it was."""
    return _cut(seed, knobs).cold


def _cut(seed: int, knobs: dict[str, Any]) -> WarmStart:
    return warm_start(synthesise(resolve(PRESETS["small"], knobs, "planted data"), seed).dataset, seed)


@dataclass(frozen=True)
class ToldFolder:
    """One arm of a real data set. What is revealed does not depend on the seed of a training, so all seeds see the
    same documents and hidden labels.
    """

    shared: ClassVar[bool] = True

    name: str
    arm: Literal["warm", "cold"]

    def identity(self, seed: int, folder: Path | None) -> dict[str, Any]:
        return {**Folder(self.name).identity(seed, folder), "arm": self.arm}

    def world(self, seed: int, folder: Path | None) -> World:
        return World.of(getattr(warm_start(Folder(self.name).world(seed, folder).dataset, 0), self.arm))

    def describe(self) -> str:
        return f"{self.name}, {self.arm} start"
