"""`tiny`: TF-IDF nearest documents vote for their labels. Read it first, and copy it to start a recipe of your own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from longtail.config import section
from longtail.features.settings import FeaturesConfig
from longtail.recipes.base import TUNABLE_FEATURES, Recipe
from longtail.search.nearest import NearestDocuments, VoteConfig
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run


@dataclass(frozen=True)
class TinyConfig:
    features: FeaturesConfig = section(FeaturesConfig, "which texts are read, and how they become numbers")
    classify: VoteConfig = section(VoteConfig, "how the nearest training documents vote")


class Tiny(Recipe):
    """Nothing is learnt: TF-IDF rows are the representation, and of the four modules only the last is there."""

    NAME = "tiny"
    CONFIG = TinyConfig
    TUNABLE: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **TUNABLE_FEATURES,
        "classify.neighbours": (10, 25, 50, 100),
        "classify.power": (1.0, 2.0, 4.0),
    }
    config: TinyConfig

    def memory(self, data: TrainingSet) -> int:
        entries = data.documents.sparse.nnz if data.documents.sparse is not None else 0
        return 3 * 8 * entries + 8 * data.targets.nnz  # the rows, their inversion, and a copy while turning

    def classify(
        self, data: TrainingSet, surrogate: None, shortlister: None, model: None, run: Run
    ) -> NearestDocuments:
        """Module IV: the neighbours' labels are the prediction."""
        return NearestDocuments.of(data.documents, data.targets, self.config.classify)
