"""What recipes of dual encoders have in common: documents and label texts go through one encoder, a document's labels
are near it.

    x = unit(a + s R ReLU(a)),  a = E words         one encoder for documents and labels (and, while training, anchors)
    I    the encoder, by the loss and the batches of the method
    II   labels by the cosine of their vectors; hard negatives for stage IV
    IV   dense retrieval: the label vectors are the classifiers; or a classifier per label that starts from its vector

The methods (`ance`, `ngame`, `dexml`, `siamese`) are a `Method` each, and share the settings below. `ramen` gives
their first stage graphs.

Differs: the papers fine-tune a 66M transformer. Here the encoder is a bag of words, word pairs and character n-grams
under a residual block, so that everything trains on a CPU in minutes; `features.checkpoint` puts a pretrained
transformer in its place (mean of its tokens, unit length).
Differs: Adam without weight decay; the rate rises in a straight line during the first tenth, then falls to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from longtail.config import section, setting
from longtail.errors import ConfigError, DataError
from longtail.features.pieces import checkpoint_folder
from longtail.features.settings import CheckpointFeaturesConfig
from longtail.models.checkpoint import WEIGHTS, read_checkpoint
from longtail.models.encoders import FrozenEncoder
from longtail.models.rows import IndexedRows
from longtail.models.shortlisted import Model
from longtail.nn.batches import Documents
from longtail.nn.blocks import EmbeddingBlock
from longtail.nn.encoders import BagSum, GivenVectors, UnitEncoder, encode_all
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.rows import OneVsAll, RowTable
from longtail.persistence import State
from longtail.recipes.base import EnsembleConfig, Recipe
from longtail.recipes.ramen.regularisers import Regularisers
from longtail.recipes.towers.network import Transformer
from longtail.recipes.towers.objective import PairLoss, Task, TwoTowers, kept_apart, label_index
from longtail.search.index import IndexKind, build_index
from longtail.search.negatives import RandomNegatives, ShortlistNegatives, WithRandom, candidates, forbidden_pairs
from longtail.training.fit import WarmUp, fit_stage
from longtail.training.indices import exact_index_on
from longtail.training.objectives import OwnCandidates
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, Batch, BoolArray


@dataclass(frozen=True)
class TowerEncoderConfig:
    """With features.checkpoint the encoder is that transformer, and width and dropout are the checkpoint's."""

    width: int = setting(256, "bag of words: numbers per vector", low=2)
    dropout: float = setting(0.2, "bag of words: share of numbers dropped inside the residual block", low=0, high=0.99)
    rate: float = setting(1e-4, "transformer: highest learning rate of Adam, in place of train.rate", low=0)


@dataclass(frozen=True)
class TowerTrainConfig:
    epochs: int = setting(30, "passes over the documents", low=0)
    batch: int = setting(
        1024, "documents per step; adapts to small and large data, an epoch has 64 to 512 steps", low=1
    )
    rate: float = setting(0.002, "highest learning rate of Adam (bag of words)", low=0)
    margin: float = setting(0.3, "triplets: by how much a document must be nearer to its label than to others", low=0)
    hardest: int = setting(12, "triplets: negatives per document at most, the nearest; 0: all of the batch", low=0)
    # Chosen on slices of training sides (benchmarks/results/tower_temperature.json): best of five for softmax, and
    # for PSP of the logistic loss.
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


@dataclass(frozen=True)
class Method:
    """What tells one method from another.

    clustered: batches of similar documents.  mined: hard negatives from all labels.  classifiers: a stage IV with one
        per label.
    """

    loss: PairLoss
    clustered: bool = False
    mined: bool = False
    classifiers: bool = False


@dataclass(frozen=True)
class Towers:
    """What stage I leaves behind: the encoder, and the unit vectors of documents (N, D) and labels (L, D)."""

    KIND = "two-towers"

    encoder: FrozenEncoder
    documents: F32
    labels: F32

    def state(self) -> State:
        return State(arrays={"documents": self.documents, "labels": self.labels}, parts={"encoder": self.encoder})

    @classmethod
    def from_state(cls, state: State) -> Towers:
        parts: Any = state.parts
        return cls(parts["encoder"], **state.arrays)


class TwoTowersRecipe(Recipe):
    """A recipe but for its `NAME` and `METHOD`."""

    CONFIG = TwoTowersConfig
    METHOD: ClassVar[Method]

    def __init__(self, config: TwoTowersConfig) -> None:
        self.config: TwoTowersConfig = config

    def memory(self, data: TrainingSet) -> int:
        """Tables with two moments, vectors of documents and labels, classifiers, negatives, and one block of
        similarities.

        Of a transformer the weights with gradients and moments; what a step keeps for its backward pass is not counted.
        """
        c, width = self.config, self.config.encoder.width
        tables = 3 * 4 * width * (data.featurizer.width + (data.n_labels if self.METHOD.classifiers else 0))
        vectors = 4 * (data.n_documents + data.n_labels) * 2 * width + 4 * data.n_documents * (
            c.train.mined + c.classify.count
        )
        return tables + vectors + transformer_memory(c.features.checkpoint) + 2**28

    # ---- I ----

    def surrogate(self, data: TrainingSet, run: Run) -> Towers:
        return self.towers(data, run)

    def towers(
        self, data: TrainingSet, run: Run, regularisers: Regularisers | None = None, heldout: float = 0.0
    ) -> Towers:
        """The trained encoder. heldout: share of documents kept apart, for regularisers that want to know the loss on
        them.
        """
        c, objective = self.config.train, self.objective(data, run, regularisers, heldout)
        rate = self.config.encoder.rate if self.config.features.checkpoint else c.rate
        fit_stage(
            objective, run, "towers", epochs=c.epochs, batch=c.batch, schedule=WarmUp(rate, 0.1, 0.0), watch=objective
        )
        vectors = (encode_all(objective.encoder, texts, "search") for texts in (objective.documents, objective.labels))
        return Towers(objective.encoder.frozen(), *vectors)

    def objective(
        self, data: TrainingSet, run: Run, regularisers: Regularisers | None = None, heldout: float = 0.0
    ) -> TwoTowers:
        """What stage I makes small, with a new encoder."""
        c = self.config.train
        labels = Documents(label_texts(data), run.device)
        apart: BoolArray | None = (
            kept_apart(data.n_documents, heldout, run.rng("documents kept apart")) if heldout else None
        )
        return TwoTowers(
            self.new_encoder(data, run).to(run.device),
            Documents(data.documents, run.device),
            labels,
            self.task(data),
            rng_for=run.rng,
            regularisers=regularisers,
            heldout=apart,
            refresh=c.refresh,
            cluster=c.cluster if self.METHOD.clustered else 0,
            doubled=c.doubled,
        )

    def new_encoder(self, data: TrainingSet, run: Run) -> UnitEncoder:
        """The same numbers for documents, labels and anchors."""
        c, checkpoint = self.config.encoder, self.config.features.checkpoint
        if checkpoint:
            return UnitEncoder(
                Transformer(read_checkpoint(checkpoint_folder(checkpoint, f"features.checkpoint={checkpoint}")))
            )
        table = RowTable.random(data.featurizer.width, c.width, run.rng("encoder"))
        return UnitEncoder(BagSum(table), EmbeddingBlock(c.width, run.rng("block"), dropout=c.dropout))

    def task(self, data: TrainingSet) -> Task:
        c = self.config.train
        mined = min(c.mined, data.n_labels) if self.METHOD.mined else 0
        forbidden = forbidden_pairs(data.targets, data.masked)
        return Task(
            data.targets,
            forbidden,
            self.METHOD.loss,
            c.margin,
            c.hardest,
            c.temperature,
            min(c.random, data.n_labels),
            mined,
        )

    # ---- II ----

    def shortlist(self, data: TrainingSet, surrogate: Towers, run: Run) -> ShortlistNegatives | None:
        """Hard negatives for the classifiers, where there are any: the labels whose texts are near a document."""
        if not self.METHOD.classifiers:
            return None
        index, size = (
            label_index(surrogate.labels, exact_index_on(run.device)),
            min(self.config.classify.count, data.n_labels),
        )
        return ShortlistNegatives.mine(index, surrogate.documents, forbidden_pairs(data.targets, data.masked), size)

    # ---- III ----

    def transfer(self, data: TrainingSet, surrogate: Towers, shortlister: ShortlistNegatives | None, run: Run) -> None:
        """The encoder stays as it is: there is nothing to compute."""

    # ---- IV ----

    def classify(
        self, data: TrainingSet, surrogate: Towers, shortlister: ShortlistNegatives | None, model: None, run: Run
    ) -> IndexedRows | Model:
        return (
            retriever(surrogate, self.config)
            if shortlister is None
            else self.classified(data, surrogate, shortlister, run)
        )

    def classified(self, data: TrainingSet, towers: Towers, hard: ShortlistNegatives, run: Run) -> Model:
        """One classifier per label on vectors that no longer change, against hard and random negatives."""
        c = self.config.classify
        width = towers.documents.shape[1]
        classifier = OneVsAll(data.n_labels, width, run.rng("classifier"), bias=True).to(run.device)
        if c.start:
            with torch.no_grad():
                classifier.weight.copy_(torch.from_numpy(np.array(towers.labels)) / self.config.train.temperature)
        classifier.rows.data[:, width] = -float(np.log(max(c.count, 1)))
        negatives = (
            WithRandom(hard, RandomNegatives(forbidden_pairs(data.targets, data.masked), c.random))
            if c.random
            else hard
        )
        objective = OwnCandidates(
            GivenVectors(width),
            RestrictedTrainer(classifier),
            Documents(Batch(dense=np.array(towers.documents)), run.device),
            lambda rows, rng: candidates(rows, data.targets, negatives, rng, max_positives=c.positives),
        )
        fit_stage(objective, run, "classify", epochs=c.epochs, batch=c.batch, schedule=WarmUp(c.rate, 0.1, 0.0))
        shortlister = label_index(towers.labels, partial(build_index, kind=self.config.predict.index))
        return Model(
            encoder=towers.encoder,
            refinement=None,
            shortlister=shortlister,
            classifier=classifier.frozen(),
            shortlist_size=c.size,
            alpha=c.alpha,
            temperature=self.config.predict.temperature,
        )


def transformer_memory(checkpoint: str) -> int:
    """Bytes of a transformer in training; 0 without one, or where its file is missing, which is said when it is
    read.
    """
    if not checkpoint:
        return 0
    weights = checkpoint_folder(checkpoint, f"features.checkpoint={checkpoint}") / WEIGHTS
    # In float32, though stored perhaps in float16: as read, trained, frozen, the gradient and two moments.
    return 6 * 2 * weights.stat().st_size if weights.is_file() else 0


def label_texts(data: TrainingSet) -> Batch:
    """The texts that the second tower reads."""
    if data.documents.sparse is None and data.documents.tokens is None:
        raise ConfigError(
            "this recipe reads words, but the data came with dense vectors",
            "use features.source=text, or the recipe astec",
        )
    if data.label_texts is None or data.label_texts.is_empty().all():
        raise DataError(
            "this recipe finds labels by their text, but no label has one",
            "add a title to the labels, or use the recipe astec",
        )
    return data.label_texts


def retriever(towers: Towers, config: TwoTowersConfig) -> IndexedRows:
    """Dense retrieval: over all labels that have a text; the others come last."""
    return IndexedRows.by_cosine(towers.encoder, towers.labels, config.predict.temperature, config.predict.index)
