"""What can be measured of a trained variant, per test document. A paper's claims add measuring functions of their
own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.claims.verdict import Column
from benchmarks.claims.worlds import World
from longtail import metrics
from longtail.errors import ConfigError
from longtail.evaluation import rank_test
from longtail.persistence import load_part, written_aside
from longtail.predictor import Predictor
from longtail.training.prepare import TrainingSet
from longtail.training.progress import SilentDisplay
from longtail.types import TopK


class Trained:
    """A trained variant with the world it belongs to.

    folder: its place in the cache; the run is in ``folder/run``, predictions lie beside it.
    at_prediction: fields of the model that are replaced before it ranks. device: where all test documents are ranked;
    a GPU searches large indices in place of the processor, with the same answers.
    """

    def __init__(
        self, folder: Path, world: World, seed: int, at_prediction: Mapping[str, Any], device: str = "cpu"
    ) -> None:
        self.run, self.world, self.seed, self.at_prediction = folder / "run", world, seed, at_prediction
        self.device = device
        name = (
            sha256(json.dumps(dict(at_prediction), sort_keys=True).encode()).hexdigest()[:12]
            if at_prediction
            else "as-trained"
        )
        self._predictions = folder / f"predictions-{name}.npz"

    @cached_property
    def predictor(self) -> Predictor:
        return self._opened()

    def _opened(self) -> Predictor:
        bundle = Predictor.open(self.run).bundle
        return Predictor(replace(bundle, ranker=changed(bundle.ranker, self.at_prediction)))

    @cached_property
    def training(self) -> TrainingSet:
        """The training documents as the recipe saw them."""
        loaded: TrainingSet = self.stage("0_prepare")
        return loaded

    def stage(self, name: str) -> Any:
        """The saved result of a stage."""
        return load_part(self.run / "stages" / name)

    def predictions(self) -> TopK:
        """For all test documents, uncut; kept on disk."""
        if not self._predictions.exists():
            model = self.predictor
            if self.device == "cuda":
                from benchmarks.sets import search_on_gpu

                model = self._opened()  # one of its own, as it is changed
                search_on_gpu(model.bundle.ranker)
            top = rank_test(model, self.world.yardstick, SilentDisplay())
            with written_aside(self._predictions) as aside, aside.open("wb") as file:
                np.savez(file, ids=top.ids, scores=top.scores)
        with np.load(self._predictions, allow_pickle=False) as saved:
            return TopK(saved["ids"], saved["scores"])


Columns: TypeAlias = Mapping[str, Column]
MeasureFunction: TypeAlias = Callable[[Trained], Columns]


def ranking(trained: Trained) -> Columns:
    """Every metric of `longtail evaluate`: P, nDCG, PSP, R, ... @k."""
    return columns_of(trained.world.yardstick.measure(trained.predictions()))


def by_frequency(trained: Trained) -> Columns:
    """Contributions of labels of each training frequency to P@5, PSP@5 and FN@5, e.g. ``PSP@5 [2-4]``."""
    yardstick = trained.world.yardstick
    bins = metrics.bins_for("by_frequency", yardstick.counts)
    return columns_of(
        metrics.measure_bins(
            yardstick.cut(trained.predictions()), yardstick.truth, yardstick.inverse_propensity, bins, (5,)
        )
    )


def columns_of(measured: metrics.PerDocument) -> Columns:
    return {
        name: Column(measured.numerators[:, place], measured.denominators[:, measured.divisor[place]])
        for place, name in enumerate(measured.names)
    }


def changed(ranker: Any, changes: Mapping[str, Any]) -> Any:
    """`ranker` with fields of its model replaced; looks through wrappers (a re-ranker's base, an ensemble's
    members).
    """
    if not changes:
        return ranker
    known = {f.name for f in fields(ranker)} if is_dataclass(ranker) else set()
    if changes.keys() <= known:
        return replace(ranker, **changes)
    if "base" in known:
        return replace(ranker, base=changed(ranker.base, changes))
    if "members" in known:
        return replace(ranker, members=tuple(changed(member, changes) for member in ranker.members))
    raise ConfigError(
        f"a trained {type(ranker).__name__} has no {', '.join(sorted(changes))} to change at prediction",
        "use fields of longtail.models.rankers.Model",
    )
