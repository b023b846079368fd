"""Dual encoders: documents and label texts go through one encoder, and a document's labels are near it.

    x = unit(a + s R ReLU(a)),  a = E words         one encoder for documents and labels (and, while training, anchors)
    I    the encoder, by the loss and the batches of the method
    II   labels by the cosine of their vectors: hard negatives for stage IV
    IV   dense retrieval: the label vectors are the classifiers, and there is no stage II;
         or a classifier per label that starts from its vector (`ClassifiedTowers`)

The methods (`ance`, `ngame`, `dexml`, `siamese`) are the last classes of this file, and share all settings. `ramen`
gives their first stage graphs.

Differs: the papers fine-tune a 66M transformer. Here the encoder is a bag of words, word pairs and character n-grams
under a residual block, so that everything trains on a CPU in minutes; `features.checkpoint` puts a pretrained
transformer in its place (mean of its tokens, unit length).
Differs: Adam without weight decay; the rate rises in a straight line during the first tenth, then falls to nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from longtail.models.rankers import IndexedRows, Model
from longtail.models.transformer import transformer_memory
from longtail.nn.batches import Documents
from longtail.nn.encoders import GivenVectors, encode_all
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import OneVsAll
from longtail.recipes.base import Recipe
from longtail.recipes.towers.network import (
    PairLoss,
    PairTask,
    Towers,
    TwoTowers,
    kept_apart,
    label_index,
    label_texts,
    new_encoder,
)
from longtail.recipes.towers.settings import TUNABLE, TwoTowersConfig
from longtail.search.index import build_index
from longtail.search.negatives import ShortlistNegatives, candidates, forbidden_pairs
from longtail.training.fit import WarmUp, fit_stage
from longtail.training.indices import exact_index_on
from longtail.training.objectives import OwnCandidates
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Batch


class TwoTowersRecipe(Recipe):
    """Dense retrieval; a recipe but for its `NAME` and what tells one method from another."""

    CONFIG = TwoTowersConfig
    TUNABLE = TUNABLE
    config: TwoTowersConfig
    KEEPS_DOCUMENTS_APART = True
    READS_CHECKPOINTS = True
    LOSS: ClassVar[PairLoss]
    CLUSTERED: ClassVar[bool] = False  # batches of similar documents
    MINED: ClassVar[bool] = False  # hard negatives from all labels

    def encoder_width(self) -> int:
        return self.config.encoder.width

    def memory(self, data: TrainingSet) -> int:
        """The table with two moments, vectors of documents and labels, negatives, and one block of similarities.

        Of a transformer the weights with gradients and moments; what a step keeps for its backward pass is not counted.
        """
        c, width = self.config, self.config.encoder.width
        vectors = 2 * width * (data.n_documents + data.n_labels)
        negatives = data.n_documents * (c.train.mined + c.classify.count)
        numbers = 3 * width * data.featurizer.width + vectors + negatives
        return 4 * numbers + transformer_memory(c.features.checkpoint) + 2**28

    # ---- I ----

    def surrogate(self, data: TrainingSet, run: Run) -> Towers:
        """The encoder, trained by the loss and the batches of the method."""
        c, objective = self.config.train, self.objective(data, run)
        schedule = WarmUp(self.config.encoder.rate if self.config.features.checkpoint else c.rate, 0.1, 0.0)
        fit_stage(
            objective,
            run,
            "towers",
            epochs=c.epochs,
            batch=c.batch,
            schedule=schedule,
            adapts=c.batch_adapts,
            watch=objective,
        )
        vectors = (encode_all(objective.encoder, texts, "search") for texts in (objective.documents, objective.labels))
        return Towers(objective.encoder.frozen(), *vectors)

    def objective(self, data: TrainingSet, run: Run) -> TwoTowers:
        """What stage I makes small, with a new encoder."""
        c, labels = self.config.train, Documents(label_texts(data), run.device)
        encoder = new_encoder(data, self.config, run).to(run.device)
        extra = None if self.extra_loss is None else self.extra_loss(encoder, data, run)
        share = 0.0 if extra is None else extra.heldout_share
        task = PairTask.of(data, c, self.LOSS, mined=self.MINED)
        return TwoTowers(
            encoder,
            Documents(data.documents, run.device),
            labels,
            task,
            rng_for=run.rng,
            extra=extra,
            heldout=kept_apart(data.n_documents, share, run.rng("documents kept apart")) if share else None,
            refresh=c.refresh,
            cluster=c.cluster if self.CLUSTERED else 0,
            doubled=c.doubled,
        )

    # ---- III: the encoder stays as it is.  IV ----

    def classify(
        self, data: TrainingSet, surrogate: Towers, shortlister: Any, model: None, run: Run
    ) -> IndexedRows | Model:
        """Over all labels that have a text; the others come last."""
        c = self.config.predict
        return IndexedRows.by_cosine(surrogate.encoder, surrogate.labels, c.temperature, c.index)


class ClassifiedTowers(TwoTowersRecipe):
    """One classifier per label on vectors that no longer change, against hard and random negatives."""

    def memory(self, data: TrainingSet) -> int:
        """Classifiers with two moments besides."""
        return super().memory(data) + 3 * 4 * self.config.encoder.width * data.n_labels

    def shortlist(self, data: TrainingSet, surrogate: Towers, run: Run) -> ShortlistNegatives:
        """Hard negatives: the labels whose texts are near a document."""
        index = label_index(surrogate.labels, exact_index_on(run.device))
        size = min(self.config.classify.count, data.n_labels)
        return ShortlistNegatives.mine(index, surrogate.documents, forbidden_pairs(data.targets, data.masked), size)

    def classify(
        self, data: TrainingSet, surrogate: Towers, shortlister: ShortlistNegatives, model: None, run: Run
    ) -> Model:
        c, width = self.config.classify, surrogate.documents.shape[1]
        classifier = OneVsAll(data.n_labels, width, run.rng("classifier"), bias=True).to(run.device)
        if c.start:
            with torch.no_grad():
                classifier.weight.copy_(torch.from_numpy(np.array(surrogate.labels)) / self.config.train.temperature)
        classifier.rows.data[:, width] = -float(np.log(max(c.count, 1)))
        negatives = shortlister.with_random(forbidden_pairs(data.targets, data.masked), c.random)
        objective = OwnCandidates(
            GivenVectors(width),
            RestrictedTrainer(classifier),
            Documents(Batch(dense=np.array(surrogate.documents)), run.device),
            lambda rows, rng: candidates(rows, data.targets, negatives, rng, max_positives=c.positives),
        )
        schedule, adapts = WarmUp(c.rate, 0.1, 0.0), self.config.train.batch_adapts
        fit_stage(objective, run, "classify", epochs=c.epochs, batch=c.batch, schedule=schedule, adapts=adapts)
        return Model(
            encoder=surrogate.encoder,
            refinement=None,
            shortlister=label_index(surrogate.labels, partial(build_index, kind=self.config.predict.index)),
            classifier=classifier.frozen(),
            shortlist_size=c.size,
            alpha=c.alpha,
            temperature=self.config.predict.temperature,
        )


class Ance(TwoTowersRecipe):
    """Dense retrieval, trained on triplets with hard negatives that the encoder itself finds among all labels.

    Paper: Xiong et al., ICLR 2021 (ANCE). The label vectors are the model: a label that was never seen in training is
    found by its text.

    Differs: negatives are looked up again every few epochs, not by a second process while training goes on; those of
    the batch and some random labels count as well (batches adapt to small data, and small ones hold few negatives).
    """

    NAME, LOSS, MINED = "ance", "triplet", True


class Ngame(ClassifiedTowers):
    """Batches of similar documents, so that their labels are hard negatives of each other; then a classifier per label.

    Paper: Dahiya et al., WSDM 2023 (NGAME), as RAMEN's appendix has it: documents are clustered by their vectors every
    5 epochs, a batch is several clusters, clusters double every 25 epochs.

    Differs: classifiers are trained on vectors that no longer change, with all positives of a document up to 20 and
    150 negatives (the paper: 2 and 12). Some random labels join the negatives of a batch, as in `ance`.
    """

    NAME, LOSS, CLUSTERED = "ngame", "triplet", True


class Dexml(TwoTowersRecipe):
    """Trained by decoupled softmax: each label of a document against all negatives, never against its other labels.

    Paper: Gupta et al., ICLR 2024 (DEXML).

    Differs: a step sees all labels of its documents and `train.random` others; the paper encodes all labels in every
    step, which is `--set train.random=N` with N at least the number of labels.
    """

    NAME, LOSS = "dexml", "softmax"


class Siamese(ClassifiedTowers):
    """Trained by log-loss on pairs, then classifiers that start from the vectors of their labels' texts.

    Paper: Dahiya et al., ICML 2021 (SiameseXML), in the spirit of its three modules.

    Differs: the loss is binary cross-entropy of cosine / temperature - log(labels of the step) over the labels of the
    batch and some random ones, in place of the paper's likelihood; classifiers are trained on vectors that no longer
    change.
    """

    NAME, LOSS = "siamese", "logistic"
