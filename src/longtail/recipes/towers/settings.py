"""The settings that all methods of dual encoders share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longtail.config import section, setting
from longtail.features.settings import CheckpointFeaturesConfig
from longtail.recipes.base import TUNABLE_FEATURES, EnsembleConfig
from longtail.search.index import IndexKind
from longtail.training import ADAPTS, KEEPS


@dataclass(frozen=True)
class TowerEncoderConfig:
    """With features.checkpoint the encoder is that transformer, and width and dropout are the checkpoint's."""

    width: int = setting(256, "bag of words: numbers per vector", low=2)
    dropout: float = setting(0.2, "bag of words: share of numbers dropped inside the residual block", low=0, high=0.99)
    rate: float = setting(1e-4, "transformer: highest learning rate of Adam, in place of train.rate", low=0)


@dataclass(frozen=True)
class TowerTrainConfig:
    epochs: int = setting(30, "passes over the documents", low=0)
    batch: int = setting(1024, f"documents per step; {ADAPTS}", low=1)
    batch_adapts: bool = setting(True, f"{KEEPS}; of stage IV too")
    rate: float = setting(0.002, "highest learning rate of Adam (bag of words)", low=0)
    margin: float = setting(0.3, "triplets: by how much a document must be nearer to its label than to others", low=0)
    hardest: int = setting(12, "triplets: negatives per document at most, the nearest; 0: all of the batch", low=0)
    # Chosen on slices of training sides (benchmarks/results/tower_temperature.json).
    temperature: float = setting(0.1, "other losses: what a cosine is divided by", low=1e-3)
    random: int = setting(
        1000, "labels drawn for a step beside those of its documents; as many as there are labels: all", low=0
    )
    mined: int = setting(20, "ance: hard negatives per document that are looked up, one of them per step", low=1)
    refresh: int = setting(5, "epochs between two looks for hard negatives or clusters", low=1)
    cluster: int = setting(8, "ngame: documents per cluster at first, several of which are a batch", low=1)
    doubled: int = setting(25, "ngame: epochs after which clusters are twice as large", low=1)


@dataclass(frozen=True)
class TowerClassifyConfig:
    """ngame and siamese."""

    start: bool = setting(True, "classifiers start from the vectors of their labels' texts; false: from random ones")
    size: int = setting(200, "labels per shortlist", low=1)
    count: int = setting(100, "hard negatives per document", low=1)
    random: int = setting(50, "more negatives, uniform, drawn anew in every epoch", low=0)
    positives: int = setting(20, "labels of a document per step at most", low=1)
    epochs: int = setting(15, "passes over the documents", low=0)
    batch: int = setting(255, "documents per step; adapts as train.batch does", low=1)
    rate: float = setting(0.002, "highest learning rate of Adam", low=0)
    alpha: float = setting(0.5, "weight of the classifier beside the cosine in the final score", low=0, high=1)


@dataclass(frozen=True)
class TowerPredictConfig:
    index: IndexKind = setting("auto", "how labels are searched: exact, hnsw, or by their number")
    temperature: float = setting(0.2, "what a cosine is divided by to become a score", low=0.1)


@dataclass(frozen=True)
class TwoTowersConfig:
    features: CheckpointFeaturesConfig = section(
        CheckpointFeaturesConfig, "which texts are read, and how they become numbers", subwords="chars"
    )
    encoder: TowerEncoderConfig = section(TowerEncoderConfig, "from a text to a vector")
    train: TowerTrainConfig = section(TowerTrainConfig, "stage I")
    classify: TowerClassifyConfig = section(TowerClassifyConfig, "stage IV of ngame and siamese")
    predict: TowerPredictConfig = section(TowerPredictConfig, "how it predicts")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")


# What is worth trying (`longtail tune`).
TUNABLE: Mapping[str, tuple[Any, ...]] = {
    **TUNABLE_FEATURES,
    "encoder.width": (128, 256, 512),
    "encoder.dropout": (0.0, 0.2, 0.5),
    "train.epochs": (15, 30, 60),
    "train.rate": (0.001, 0.002, 0.005),
    "train.temperature": (0.05, 0.1, 0.2),
}
