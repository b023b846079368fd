"""What recipes of dual encoders have in common: documents and label texts go through one encoder, a document's labels
are near it.

    x = unit(a + s R ReLU(a)),  a = E words         one encoder for documents and labels (and, while training, anchors)
    I    the encoder, by the loss and the batches of the method
    II   labels by the cosine of their vectors; hard negatives for stage IV
    IV   dense retrieval: the label vectors are the classifiers; or a classifier per label that starts from its vector

The methods (`ance`, `ngame`, `dexml`, `siamese`) are a `Method` each, and share all settings. `ramen` gives their
first stage graphs.

Differs: the papers fine-tune a 66M transformer. Here the encoder is a bag of words, word pairs and character n-grams
under a residual block, so that everything trains on a CPU in minutes; `features.checkpoint` puts a pretrained
transformer in its place (mean of its tokens, unit length).
Differs: Adam without weight decay; the rate rises in a straight line during the first tenth, then falls to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from longtail.errors import ConfigError, DataError
from longtail.features.pieces import checkpoint_folder
from longtail.models.rankers import IndexedRows, Model
from longtail.nn.batches import Documents
from longtail.nn.blocks import EmbeddingBlock
from longtail.nn.encoders import BagSum, GivenVectors, UnitEncoder, encode_all
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import OneVsAll, RowTable
from longtail.recipes.base import Recipe
from longtail.recipes.towers.checkpoint import read_checkpoint
from longtail.recipes.towers.network import Transformer, transformer_memory
from longtail.recipes.towers.objective import PairLoss, Task, TwoTowers, kept_apart, label_index
from longtail.recipes.towers.settings import TUNABLE, TwoTowersConfig
from longtail.recipes.towers.stages import Towers
from longtail.search.index import build_index
from longtail.search.negatives import RandomNegatives, ShortlistNegatives, WithRandom, candidates, forbidden_pairs
from longtail.training.fit import WarmUp, fit_stage
from longtail.training.indices import exact_index_on
from longtail.training.objectives import OwnCandidates
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Batch


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


class TwoTowersRecipe(Recipe):
    """A recipe but for its `NAME` and `METHOD`."""

    CONFIG = TwoTowersConfig
    TUNABLE = TUNABLE
    KEEPS_DOCUMENTS_APART = True
    READS_CHECKPOINTS = True
    METHOD: ClassVar[Method]

    def __init__(self, config: TwoTowersConfig) -> None:
        self.config: TwoTowersConfig = config

    def encoder_width(self) -> int:
        return self.config.encoder.width

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
        """The encoder, trained by the loss and the batches of the method."""
        c, objective = self.config.train, self.objective(data, run)
        rate = self.config.encoder.rate if self.config.features.checkpoint else c.rate
        fit_stage(
            objective, run, "towers", epochs=c.epochs, batch=c.batch, schedule=WarmUp(rate, 0.1, 0.0), watch=objective
        )
        vectors = (encode_all(objective.encoder, texts, "search") for texts in (objective.documents, objective.labels))
        return Towers(objective.encoder.frozen(), *vectors)

    def objective(self, data: TrainingSet, run: Run) -> TwoTowers:
        """What stage I makes small, with a new encoder."""
        c, labels = self.config.train, Documents(label_texts(data), run.device)
        encoder = self.new_encoder(data, run).to(run.device)
        extra = None if self.extra_loss is None else self.extra_loss(encoder, data, run)
        share = 0.0 if extra is None else extra.heldout_share
        return TwoTowers(
            encoder,
            Documents(data.documents, run.device),
            labels,
            self.task(data),
            rng_for=run.rng,
            extra=extra,
            heldout=kept_apart(data.n_documents, share, run.rng("documents kept apart")) if share else None,
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
        return Task(
            data.targets,
            forbidden_pairs(data.targets, data.masked),
            loss=self.METHOD.loss,
            margin=c.margin,
            hardest=c.hardest,
            temperature=c.temperature,
            random=min(c.random, data.n_labels),
            mined=min(c.mined, data.n_labels) if self.METHOD.mined else 0,
        )

    # ---- II ----

    def shortlist(self, data: TrainingSet, surrogate: Towers, run: Run) -> ShortlistNegatives | None:
        """Hard negatives for the classifiers, where there are any: the labels whose texts are near a document."""
        if not self.METHOD.classifiers:
            return None
        index = label_index(surrogate.labels, exact_index_on(run.device))
        size = min(self.config.classify.count, data.n_labels)
        return ShortlistNegatives.mine(index, surrogate.documents, forbidden_pairs(data.targets, data.masked), size)

    # ---- III: the encoder stays as it is ----

    # ---- IV ----

    def classify(
        self, data: TrainingSet, surrogate: Towers, shortlister: ShortlistNegatives | None, model: None, run: Run
    ) -> IndexedRows | Model:
        if shortlister is None:
            return retriever(surrogate, self.config)
        return self.classified(data, surrogate, shortlister, run)

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
