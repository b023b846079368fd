"""The data of an experiment, described by a small value: planted worlds, worlds of a paper's own making, real folders.

Planted worlds are drawn anew for every seed, so that a verdict is about the mechanism and not about one world. A real
data set is the same for every seed. Either way results are on test documents, and nothing is chosen by looking at
them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from longtail import metrics
from longtail.config import resolve
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.data.synthetic import PRESETS, Synthetic, SyntheticConfig, synthesise
from longtail.errors import ConfigError
from longtail.evaluation import Yardstick
from longtail.types import Csr

Truth = Literal["observed", "complete"]


@dataclass(frozen=True)
class World:
    """A data set with what its predictions are measured against; `planted` holds what only the maker of a planted one
    knows.
    """

    dataset: Dataset
    yardstick: Yardstick
    planted: Synthetic | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> World:
        return cls(dataset, Yardstick.of(dataset))


class DataSpec(Protocol):
    """A description of data. `shared`: all seeds see the same documents."""

    @property
    def shared(self) -> bool: ...

    def identity(self, seed: int, folder: Path | None) -> dict[str, Any]:
        """Plain values that determine the training data."""
        ...

    def world(self, seed: int, folder: Path | None) -> World: ...

    def describe(self) -> str: ...


@dataclass(frozen=True)
class Planted:
    """A synthetic world: a preset and the knobs that differ from it.

    truth: `observed` is what a user would have, with labels missing; `complete` is known here because the world is
        planted.
    """

    shared: ClassVar[bool] = False

    preset: str = "small"
    knobs: Mapping[str, Any] = field(default_factory=dict)
    truth: Truth = "observed"

    def config(self) -> SyntheticConfig:
        if self.preset not in PRESETS:
            raise ConfigError(f"unknown preset '{self.preset}' of synthetic data", f"known: {', '.join(PRESETS)}")
        return resolve(PRESETS[self.preset], self.knobs, "planted data")

    def identity(self, seed: int, folder: Path | None) -> dict[str, Any]:
        return {"planted": self.preset, "knobs": dict(self.knobs), "seed": seed}

    def world(self, seed: int, folder: Path | None) -> World:
        made = synthesise(self.config(), seed)
        yardstick = Yardstick.of(made.dataset)
        return World(made.dataset, replace(yardstick, truth=self._truth(made, yardstick)), made)

    def _truth(self, made: Synthetic, yardstick: Yardstick) -> Csr:
        return (
            yardstick.truth
            if self.truth == "observed"
            else metrics.drop_masked_targets(made.complete_test, yardstick.masked)
        )

    def describe(self) -> str:
        knobs = ", ".join(f"{name}={value}" for name, value in self.knobs.items())
        return (
            f"planted {self.preset}"
            + (f" ({knobs})" if knobs else "")
            + (", complete truth" if self.truth == "complete" else "")
        )


@dataclass(frozen=True)
class Crafted:
    """A world that a paper's claims make for themselves: ``maker(seed, **knobs)`` gives the data set."""

    shared: ClassVar[bool] = False

    maker: Callable[..., Dataset]
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def identity(self, seed: int, folder: Path | None) -> dict[str, Any]:
        return {
            "crafted": self.maker.__name__,
            "source": module_hash(self.maker),
            "knobs": dict(self.knobs),
            "seed": seed,
        }

    def world(self, seed: int, folder: Path | None) -> World:
        return World.of(self.maker(seed, **self.knobs))

    def describe(self) -> str:
        return f"planted by {self.maker.__name__}({', '.join(f'{name}={value}' for name, value in self.knobs.items())})"


@dataclass(frozen=True)
class Folder:
    """A real data set: a folder of this name under ``--data``."""

    shared: ClassVar[bool] = True

    name: str

    def identity(self, seed: int, folder: Path | None) -> dict[str, Any]:
        return {"data": self.name, "digest": self._dataset(folder).digest}

    def world(self, seed: int, folder: Path | None) -> World:
        return World.of(self._dataset(folder))

    def describe(self) -> str:
        return self.name

    def _dataset(self, folder: Path | None) -> Dataset:
        if folder is None:
            raise ConfigError(f"the data set '{self.name}' is needed", "give the folder that holds it with --data DIR")
        return _read_once(folder / self.name)


def module_hash(function: Callable[..., Any]) -> str:
    """SHA-256 of the module that a function is written in: other code, other results."""
    return sha256(inspect.getsource(inspect.getmodule(function) or function).encode()).hexdigest()


_READ: dict[Path, Dataset] = {}


def _read_once(path: Path) -> Dataset:
    """Reading takes seconds and every seed and variant asks; one data set is kept."""
    if path not in _READ:
        _READ.clear()
        _READ[path] = read(path)
    return _READ[path]
