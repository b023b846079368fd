"""A recipe of your own, outside the package: a label is the centroid of its documents, and the nearest centroids win
(Rocchio).

    python examples/own_recipe.py [DATA [RUN]]

docs/add-a-recipe.md explains it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.sparse import eye_array

from longtail.api import evaluate, train
from longtail.config import section, setting
from longtail.data.read import read
from longtail.data.sample import sample_folder
from longtail.features.settings import FeaturesConfig
from longtail.graph.ops import unit_rows
from longtail.recipes.base import Recipe
from longtail.search.nearest import NearestDocuments, VoteConfig
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Batch


@dataclass(frozen=True)
class Nearest:
    labels: int = setting(100, "labels that a document gets at most", low=1, high=10_000)
    label_text: float = setting(1.0, "what the label's own text counts beside the sum of its documents", low=0)


@dataclass(frozen=True)
class CentroidConfig:
    features: FeaturesConfig = section(FeaturesConfig, "which texts are read, and how they become numbers")
    classify: Nearest = section(Nearest, "how centroids are made and ranked")


class Centroid(Recipe):
    NAME = "centroid"
    CONFIG = CentroidConfig

    def __init__(self, config: CentroidConfig) -> None:
        self.config: CentroidConfig = config

    def memory(self, data: TrainingSet) -> int:
        per_document = features_of(data.documents).size // data.n_documents + 1
        return (
            3 * 8 * per_document * int(data.targets.nnz)
        )  # at most: a document's features once per label, in three copies

    def surrogate(self, data: TrainingSet, run: Run) -> None:
        """Module I: TF-IDF rows are the representation."""

    def shortlist(self, data: TrainingSet, surrogate: None, run: Run) -> None:
        """Module II: all centroids are searched, in `classify`."""

    def transfer(self, data: TrainingSet, surrogate: None, shortlister: None, run: Run) -> None:
        """Module III: nothing to transfer."""

    def classify(
        self, data: TrainingSet, surrogate: None, shortlister: None, model: None, run: Run
    ) -> NearestDocuments:
        """Module IV: centroids take the place of documents, and each votes for its own label alone."""
        centroids = data.targets.T.tocsr() @ features_of(data.documents)
        if data.label_texts is not None:
            centroids = centroids + self.config.classify.label_text * features_of(data.label_texts)
        itself = eye_array(data.n_labels, dtype="float32", format="csr")
        return NearestDocuments(
            unit_rows(centroids), itself, VoteConfig(neighbours=self.config.classify.labels, power=1.0)
        )


def features_of(batch: Batch) -> Any:
    """TF-IDF rows of texts, or the vectors that the data came with."""
    return batch.sparse if batch.sparse is not None else batch.dense


def main(data_folder: Path, run: Path) -> None:
    data = read(data_folder)
    model = train(data, run, Centroid(CentroidConfig()))
    print(f"P@1 {evaluate(model, data)['P@1']:.2f}")
    text = data.need_test().documents.name(0)
    print(text)
    for found in model.predict([text], k=3)[0]:
        print(f"  {found.score:.4f}  {found.label}  {found.name}")


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    main(given[0] if given else sample_folder(), given[1] if len(given) > 1 else Path("runs/centroid"))
