"""A recipe of many slow epochs, to be killed: ``python tests/slow_recipe.py DATA RUN SECONDS_PER_EPOCH``."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

import longtail
from longtail.config import section, setting
from longtail.features.settings import FeaturesConfig
from longtail.persistence import StringTable
from longtail.recipes.base import Recipe
from longtail.search.nearest import NearestDocuments, VoteConfig
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run


@dataclass(frozen=True)
class Pace:
    epochs: int = setting(8, "how many epochs each long stage has", low=1)


@dataclass(frozen=True)
class SlowConfig:
    features: FeaturesConfig = section(FeaturesConfig)
    classify: Pace = section(Pace)


class Slow(Recipe):
    """Every epoch shakes the weights with noise of its own, so a lost or repeated epoch changes the result."""

    NAME = "slow"
    CONFIG = SlowConfig
    seconds = 0.0

    def __init__(self, config: SlowConfig) -> None:
        self.config: SlowConfig = config

    def memory(self, data: TrainingSet) -> int:
        return 0

    def surrogate(self, data: TrainingSet, run: Run) -> StringTable:
        weights = self.shaken(np.ones(4, dtype=np.float32), run, "surrogate")
        return StringTable.of([repr(float(w)) for w in weights])

    def shortlist(self, data: TrainingSet, surrogate: StringTable, run: Run) -> None:
        time.sleep(self.seconds)

    def transfer(self, data: TrainingSet, surrogate: StringTable, shortlister: None, run: Run) -> None:
        """Nothing."""

    def classify(
        self, data: TrainingSet, surrogate: StringTable, shortlister: None, model: None, run: Run
    ) -> NearestDocuments:
        documents = csr_array(data.documents.sparse)
        start = (documents.data * np.float32(float(surrogate[0]))).astype(np.float32)
        values = self.shaken(start, run, "classify")
        return NearestDocuments(
            csr_array((values, documents.indices, documents.indptr), shape=documents.shape), data.targets, VoteConfig()
        )

    def shaken(
        self, weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]], run: Run, name: str
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        checkpoint = run.checkpoint()
        done, arrays = checkpoint.load() or (0, {"weights": weights})
        weights = np.array(arrays["weights"])
        for epoch in range(done, self.config.classify.epochs):
            time.sleep(self.seconds)
            weights = (weights * run.rng(name, epoch).uniform(0.5, 1.5, weights.shape)).astype(np.float32)
            checkpoint.save(epoch + 1, {"weights": weights})
        return weights


if __name__ == "__main__":
    Slow.seconds = float(sys.argv[3])
    longtail.train(Path(sys.argv[1]), Path(sys.argv[2]), Slow(SlowConfig()), device="cpu")
