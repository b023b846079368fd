"""Trainings, each made once: a cache of run folders named by everything that determines the result. Processes can
share it (`workers`).

CACHE/<key>/identity.json     recipe, resolved settings, seed, data, device, hash of the sources
CACHE/<key>/run/              an ordinary run folder: an interrupted training resumes
CACHE/<key>/predictions-*.npz
CACHE/probe-<key>.json        what a probe measured
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import longtail
from benchmarks.claims.entries import Probe, Variant
from benchmarks.claims.measures import Trained
from benchmarks.claims.verdict import Estimate
from benchmarks.claims.worlds import DataSpec, World, module_hash
from longtail.bundle import MANIFEST
from longtail.config import to_tables
from longtail.errors import ConfigError, RunTaken
from longtail.persistence import read_json, write_json
from longtail.recipes import make_recipe
from longtail.recipes.base import Recipe

WORLDS_KEPT = 6
LOOK_AGAIN = 0.5  # seconds, while another process trains


class OutOfTime(Exception):
    """The time given with --max-minutes is over and a training is still to be done."""


class Workshop:
    """Where variants are trained and worlds are made.

    deadline: on the clock of `time.monotonic`; after it nothing new is begun. data: the folder of real data sets.
    """

    def __init__(
        self,
        cache_folder: Path,
        *,
        device: str = "auto",
        data: Path | None = None,
        deadline: float | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.cache_folder, self.device, self.data, self.deadline, self.say = (
            cache_folder,
            device_kind(device),
            data,
            deadline,
            say,
        )
        self.trainings_made = 0
        self._worlds: dict[str, World] = {}

    # ---- worlds ----

    def world(self, spec: DataSpec, seed: int) -> World:
        name = spec.describe() if spec.shared else f"{spec.describe()}, seed {seed}"
        if name not in self._worlds:
            while len(self._worlds) >= WORLDS_KEPT:
                del self._worlds[next(iter(self._worlds))]
            self._worlds[name] = spec.world(seed, self.data)
        return self._worlds[name]

    # ---- trainings ----

    def trained(self, variant: Variant, spec: DataSpec, seed: int, name: str = "", *, wait: bool = True) -> Trained:
        """The variant trained on this data with this seed: from the cache, or trained now. name: what to call it
        while it trains.

        wait: for another process that trains just this; else `RunTaken` is raised.
        """
        folder = self.folder(variant, spec, seed)
        while not self.is_finished(folder):
            try:
                self._train(variant, spec, seed, folder, name or describe(variant))
            except RunTaken:
                if not wait:
                    raise
                time.sleep(LOOK_AGAIN)
        return Trained(folder, self.world(spec, seed), seed, variant.at_prediction, self.device)

    def _train(self, variant: Variant, spec: DataSpec, seed: int, folder: Path, name: str) -> None:
        self.check_time(f"training '{name}' with seed {seed}")
        dataset, started = self.world(spec, seed).dataset, time.monotonic()
        if self.is_finished(folder):  # by another process, in the meantime
            return
        write_json(folder / "identity.json", self.identity(variant, spec, seed))
        longtail.train(dataset, folder / "run", recipe_of(variant), seed=seed, device=self.device)
        self.trainings_made += 1
        self.say(f"  trained '{name}' with seed {seed}: {time.monotonic() - started:.1f} s")

    def is_trained(self, variant: Variant, spec: DataSpec, seed: int) -> bool:
        return self.is_finished(self.folder(variant, spec, seed))

    @staticmethod
    def is_finished(folder: Path) -> bool:
        return (folder / "run" / "bundle" / MANIFEST).exists()

    def folder(self, variant: Variant, spec: DataSpec, seed: int) -> Path:
        return self.cache_folder / _digest(self.identity(variant, spec, seed))[:20]

    def identity(self, variant: Variant, spec: DataSpec, seed: int) -> dict[str, Any]:
        """All that determines a trained model. What is changed at prediction is not part of it."""
        return {
            "recipe": variant.recipe,
            "settings": to_tables(recipe_of(variant).config),
            "seed": seed,
            "data": spec.identity(seed, self.data),
            "device": self.device,
            "source": source_hash(),
        }

    def seconds(self, variant: Variant, spec: DataSpec, seed: int) -> dict[str, float]:
        """How long each stage of a finished training took."""
        lines = (self.folder(variant, spec, seed) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        return {event["name"]: event["seconds"] for event in events if event["event"] == "stage"}

    # ---- probes ----

    def probed(self, probe: Probe) -> tuple[Estimate, Mapping[str, Any]]:
        """What the probe measures: from the cache, or measured now."""
        path = self.probe_file(probe)
        if not path.exists():
            self.check_time(f"measuring {probe.name}")
            self.say(f"  measuring {probe.name}")
            estimate, numbers = probe.measure(self)
            write_json(path, {"estimate": asdict(estimate), "numbers": dict(numbers)})
        saved = read_json(path)
        return Estimate(**{**saved["estimate"], "per_seed": tuple(saved["estimate"]["per_seed"])}), saved["numbers"]

    def probe_file(self, probe: Probe) -> Path:
        key = [probe.name, probe.measure.__name__, module_hash(probe.measure), self.device, source_hash()]
        return self.cache_folder / f"probe-{_digest(key)[:20]}.json"

    # ---- time ----

    @property
    def is_over(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def check_time(self, what: str) -> None:
        if self.is_over:
            raise OutOfTime(what)


def recipe_of(variant: Variant) -> Recipe:
    if isinstance(variant.settings, tuple):
        return make_recipe(variant.recipe, assignments=list(variant.settings))
    return make_recipe(variant.recipe, settings=variant.settings)


def describe(variant: Variant) -> str:
    """The recipe and what differs from its defaults, in one line."""
    settings = (
        variant.settings if isinstance(variant.settings, tuple) else (json.dumps(variant.settings, sort_keys=True),)
    )
    return " ".join([variant.recipe, *settings])


def device_kind(device: str) -> str:
    """`auto` as what it comes to here: cpu or cuda."""
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device '{device}', expected auto, cpu or cuda", "use --device auto")
    if device == "cpu" or find_spec("torch") is None:
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise ConfigError(
            "--device cuda: torch sees no CUDA device",
            "use --device cpu, or a machine with a GPU and a CUDA build of torch",
        )
    return "cpu"


@cache
def source_hash() -> str:
    """SHA-256 over every source file of longtail: other code may train another model."""
    root = Path(longtail.__file__).parent
    digest = sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
