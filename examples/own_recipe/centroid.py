"""A recipe of your own, as a package: a label is the centroid of its documents, the nearest centroids win (Rocchio).

docs/add-a-recipe.md explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from longtail.config import section, setting
from longtail.errors import ConfigError
from longtail.features.settings import FeaturesConfig
from longtail.graph.ops import unit_rows
from longtail.persistence import DataPart
from longtail.recipes.base import Recipe
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import I64, Batch, Csr, Ranker, TopK


@dataclass(frozen=True)
class Nearest:
    least: float = setting(0.0, "labels whose similarity is not above this are left out", low=0, high=1)
    label_text: float = setting(1.0, "what the label's own text counts beside the sum of its documents", low=0)


@dataclass(frozen=True)
class CentroidConfig:
    features: FeaturesConfig = section(FeaturesConfig, "which texts are read, and how they become numbers")
    classify: Nearest = section(Nearest, "how centroids are made and ranked")


@dataclass(frozen=True)
class Centroids(DataPart):
    """What the first stage leaves.  rows: (L, V) CSR, the sum of each label's documents.  counts: (L,) documents."""

    KIND = "centroids"

    rows: Csr
    counts: I64

    def __post_init__(self) -> None:
        if len(self.counts) != self.rows.shape[0]:
            raise ValueError(f"{len(self.counts)} counts for {self.rows.shape[0]} labels")


@dataclass(frozen=True)
class NearestCentroids(DataPart, Ranker):
    """The ranker: labels by the cosine of their centroid.  rows: (L, V) CSR of unit length."""

    KIND = "nearest-centroids"

    rows: Csr
    least: float

    def rank(self, batch: Batch, k: int) -> TopK:
        scores = (sparse_rows(batch) @ self.rows.T).toarray().astype(np.float32)
        ids = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
        best = np.take_along_axis(scores, ids, axis=1)
        found = best > self.least
        return TopK(np.where(found, ids, TopK.PAD).astype(np.int32), np.where(found, best, np.float32(-np.inf)))


class Centroid(Recipe):
    """Every label is the centroid of its documents, the nearest one wins."""

    NAME = "centroid"
    CONFIG = CentroidConfig
    PARTS: ClassVar[Mapping[str, str]] = {
        "centroids": "centroid:Centroids",
        "nearest-centroids": "centroid:NearestCentroids",
    }
    config: CentroidConfig

    def memory(self, data: TrainingSet) -> int:
        per_document = sparse_rows(data.documents).nnz // data.n_documents + 1
        # At most: a document's features once per label, in three copies.
        return 3 * 8 * per_document * int(data.targets.nnz)

    def surrogate(self, data: TrainingSet, run: Run) -> Centroids:
        """Module I: the sum of each label's documents."""
        return Centroids(data.targets.T.tocsr() @ sparse_rows(data.documents), data.label_counts())

    def classify(
        self, data: TrainingSet, surrogate: Centroids, shortlister: None, model: None, run: Run
    ) -> NearestCentroids:
        """Module IV: the label's own text is added, so a label without documents can be found too."""
        rows = surrogate.rows
        if data.label_texts is not None:
            rows = rows + self.config.classify.label_text * sparse_rows(data.label_texts)
        run.log("centroids", without_documents=int((surrogate.counts == 0).sum()))
        return NearestCentroids(unit_rows(rows).astype(np.float32), self.config.classify.least)


def sparse_rows(batch: Batch) -> Csr:
    if batch.sparse is None:
        raise ConfigError("the recipe 'centroid' reads words", "use features.source=text, or another recipe")
    return batch.sparse
