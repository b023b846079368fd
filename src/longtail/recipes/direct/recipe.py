"""`direct`: every label against every document, no clusters, no shortlist, no negatives to choose. The default recipe.

    v = E x                   weighted sum of the vectors of a document's words, word pairs and character 4-grams;
                              those that occur in few texts weigh less, as they are learnt by heart
    z = v + ReLU(R v)         a residual
    w_l = g (E Z)_l M + n_l / (n_l + trust) f_l
                              the label's text in the same vectors, turned by a matrix M, and a free vector f_l that
                              counts the more, the more documents n_l the label has; optionally its neighbours' text
                              in a label graph (few pairs of a document and a label: no M, and v = ReLU(E x), which
                              have less to learn)
    loss                      binary cross-entropy over all labels: on a GPU cheaper than looking for hard negatives

While it trains, anchors of the data's graphs are labels as well; none of them is left at prediction. What the data
lacks is left out: without label text rows are free vectors. Label texts can be training documents of their own label
(`labels.documents`): it teaches that the text of a label has no other label, which is wrong where labels are
documents, too.

Options that are off: labels that are probably missing can be softer targets, by a label graph (`train.smoothing`) or
by the documents nearest to one (`train.completion`); words can begin with pretrained vectors (`encoder.vectors`); the
model can be an average of weights (`train.averaging`).

The idea of composed rows is ECLARE's; that all negatives are affordable is a matter of the hardware. The choices were
made on validation slices: `benchmarks/results/direct_ablation.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from longtail.config import section, setting
from longtail.errors import ConfigError
from longtail.features.settings import FeaturesConfig
from longtail.features.sparse import SparseText
from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.metrics import constants_for, inverse_propensities
from longtail.models.rows import IndexedRows
from longtail.nn.batches import Documents, to_numpy, to_tensor
from longtail.nn.blocks import Residual, frozen_block
from longtail.nn.encoders import BagEncoder, BagSum, DenseEncoder, Encoder, Refined
from longtail.nn.precision import fastest_products
from longtail.nn.rows import RowTable
from longtail.recipes.base import EnsembleConfig, Recipe
from longtail.recipes.direct.anchors import AnchorColumns, AnchorsConfig, anchor_columns
from longtail.recipes.direct.averaging import Averaged
from longtail.recipes.direct.objective import AllLabels, Truth
from longtail.recipes.direct.rows import TextRows
from longtail.recipes.direct.targets import completed_targets, smoothed_targets
from longtail.recipes.direct.word_vectors import at_width, read_word_vectors
from longtail.recipes.ramen.regularisers import Regularisers, graph_terms
from longtail.search.index import IndexKind, build_index
from longtail.training.fit import OneCycle, adapted_batch, fit_stage
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, Batch, Csr

# Epochs by the number of examples, where the settings leave it open: more of them need fewer looks at each.
_EPOCHS_SCALE, _FEWEST_EPOCHS, _MOST_EPOCHS = 7000, 8, 60
# And the rate: many examples drown the noise of large steps, few are learnt by heart. A short training must take
# longer steps: on a slice of the embedded sample 975 steps of at most 0.0005 gave P@1 / PSP@5 53.5 / 56.6, of 0.002
# 58.2 / 66.7.
_RATE, _RATE_EXAMPLES, _LOWEST_RATE, _HIGHEST_RATE = 0.001, 100_000, 0.0005, 0.0025
_LEAST_WAY, _HIGHEST_SHORT_RATE = 2.0, 0.004
# From so many pairs of a document and a label on, the matrix M and a v with either sign are learnt well enough to
# pay. On validation slices (`direct_ablation.json`, rounds 15 and 16) they do with 35,000 pairs and more of real
# text, and cost with 6,000 to 17,000, of real text as of planted.
_MANY_PAIRS = 32_768
# A look at all label texts costs more than a step.
_TEXT_EVERY = {"cpu": 8, "cuda": 4}


WhereManyPairs = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class EncoderConfig:
    width: int = setting(512, "numbers per document vector", low=2)
    dropout: float = setting(0.5, "share of numbers dropped after each ReLU", low=0, high=0.99)
    token_dropout: float = setting(0.0, "share of a document's features dropped in a step", low=0, high=0.99)
    signed: WhereManyPairs = setting(
        "auto",
        "v has no ReLU: documents and label texts are sums of the same vectors; auto: with 32,768 or more pairs of "
        "a document and a label",
    )
    residual: bool = setting(True, "a residual between v and the classifiers")
    vectors: str = setting(
        "",
        "a file of word vectors (word2vec's or fastText's text format) that words begin with; empty: all begin at "
        "random",
    )


@dataclass(frozen=True)
class LabelsConfig:
    text: bool = setting(True, "label text is part of a label's classifier")
    map: WhereManyPairs = setting(
        "auto",
        "label texts pass through a matrix that is learnt, so that a text need not mean the same in a label as in a "
        "document; auto: as encoder.signed",
    )
    neighbours: bool = setting(False, "the text of neighbours in the label graph, too")
    neighbour_gain: float = setting(1.0, "what neighbours' text counts at first; it is trained", low=0)
    documents: bool = setting(False, "label texts are training documents of their own label")
    document_negatives: float = setting(
        1.0, "how much it counts that a label's text does not have the other labels", low=1e-6, high=1
    )
    free: bool = setting(True, "a free vector per label is part of its classifier")
    trust: float = setting(
        1.0, "documents at which a label uses half of its free vector; 0: all of it from the first on", low=0
    )
    graph: LabelGraphConfig = section(LabelGraphConfig, "which labels are neighbours")


@dataclass(frozen=True)
class TrainConfig:
    epochs: int = setting(0, "passes over the examples; 0: 7000 / sqrt(examples), at least 8 and at most 60", low=0)
    batch: int = setting(512, "documents per step; adapts to small and large data, an epoch has 64 to 512 steps", low=1)
    rate: float = setting(
        0.0,
        "highest learning rate of Adam; 0: 0.001 sqrt(examples / 100,000), from 0.0005 to 0.0025, and at least 2 / "
        "steps (0.004 at most)",
        low=0,
    )
    warm_up: float = setting(0.25, "share of the training in which the rate rises", low=0, high=1)
    text_every: int = setting(0, "steps between two looks at the label texts; 0: 4 on a GPU, 8 on a CPU", low=0)
    smoothing: float = setting(
        0.0, "target of labels that are neighbours of a document's labels; 0: none", low=0, high=1
    )
    completion: float = setting(
        0.0,
        "highest target of labels that a document lacks and the documents nearest to it have; 0: none",
        low=0,
        high=1,
    )
    completion_neighbours: int = setting(10, "completion: how many of the nearest documents vote", low=1, high=1000)
    averaging: float = setting(
        0.0,
        "the model is the average of its weights over this last share of the steps; 0: those of the last step",
        low=0,
        high=1,
    )
    propensity: bool = setting(False, "positives of rare labels weigh more, by their inverse propensity")
    softmax: bool = setting(False, "decoupled softmax in place of binary cross-entropy")


@dataclass(frozen=True)
class PredictConfig:
    index: IndexKind = setting("auto", "how labels are searched: exact, hnsw, or by their number")


@dataclass(frozen=True)
class DirectConfig:
    features: FeaturesConfig = section(
        FeaturesConfig, "which texts are read, and how they become numbers", subwords="chars", damping=3.0
    )
    encoder: EncoderConfig = section(EncoderConfig, "from a text to a vector")
    labels: LabelsConfig = section(LabelsConfig, "what a label's classifier is made of")
    anchors: AnchorsConfig = section(AnchorsConfig, "graphs of documents and labels with anchors, in training only")
    train: TrainConfig = section(TrainConfig, "how it is trained")
    predict: PredictConfig = section(PredictConfig, "how it predicts")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")


class Direct(Recipe):
    """One stage: there is nothing to prepare for classifiers that see every label in every step."""

    NAME = "direct"
    CONFIG = DirectConfig

    def __init__(self, config: DirectConfig) -> None:
        self.config: DirectConfig = config

    def memory(self, data: TrainingSet) -> int:
        """Tables with two moments (and an average), the vectors of label texts' words as they are looked at, composed
        rows with their gradients, the features, and one block of scores. Measured on a CPU: 4,037 MiB on
        wordnet-related (3,993 by this), 1,806 on debian-related (1,773)."""
        width = self.config.encoder.width
        words = data.featurizer.width if data.documents.dense is None else 0
        entries = sum(
            batch.sparse.nnz
            for batch in (data.documents, data.label_texts)
            if batch is not None and batch.sparse is not None
        )
        anchors = (
            sum(len(graph.anchors) for graph in data.graphs.values() if graph.anchors is not None)
            if self.config.anchors.weight
            else 0
        )
        average = 1 if self.config.train.averaging else 0
        return 4 * width * ((4 + average) * words + (8 + average) * (data.n_labels + anchors)) + 3 * 8 * entries + 2**29

    def surrogate(self, data: TrainingSet, run: Run) -> None:
        """Module I: E is learnt on the task itself."""

    def shortlist(self, data: TrainingSet, surrogate: None, run: Run) -> None:
        """Module II: no shortlist, all labels are negatives."""

    def transfer(self, data: TrainingSet, surrogate: None, shortlister: None, run: Run) -> None:
        """Module III: nothing to transfer."""

    def classify(
        self,
        data: TrainingSet,
        surrogate: None,
        shortlister: None,
        model: None,
        run: Run,
        regularisers: Regularisers | None = None,
    ) -> IndexedRows:
        """Module IV: encoder and classifiers together, against all labels. regularisers: graphs that help (Paper:
        RAMEN).
        """
        c = self.config
        graph, anchors = self.label_graph(data, run), anchor_columns(data, c.anchors)
        documents, targets, masked = self.examples(data, graph, anchors)
        encoder = self.new_encoder(data, run).to(run.device)
        block = (
            Residual(encoder.width, run.rng("residual"), dropout=c.encoder.dropout, mode="off").to(run.device)
            if c.encoder.residual
            else None
        )
        texts = self.texts(data, graph, anchors, encoder)
        truth = Truth.of(
            targets,
            masked,
            run.device,
            weights=self.weights(data, anchors, run),
            negatives_count=self.negatives_count(data, len(documents)),
            loss="softmax" if c.train.softmax else "bce",
        )
        refined = encoder if block is None else Refined(encoder, block)
        terms = None if regularisers is None else graph_terms(regularisers, refined, data, run)
        objective = AllLabels(
            refined,
            texts,
            self.trust(data, anchors).to(run.device),
            first_bias(targets).to(run.device),
            Documents(documents, run.device),
            truth,
            start=None if texts is not None else random_rows(targets.shape[1], encoder.width, run).to(run.device),
            text_every=c.train.text_every or _TEXT_EVERY[run.device],
            token_dropout=c.encoder.token_dropout,
            beside=terms,
        )
        epochs = c.train.epochs or default_epochs(len(documents))
        steps = epochs * -(-len(documents) // adapted_batch(len(documents), c.train.batch))
        rate = c.train.rate or default_rate(len(documents), steps)
        averaged = (
            Averaged(objective, objective.weights(), steps=steps, share=c.train.averaging)
            if c.train.averaging
            else None
        )
        fit_stage(
            averaged or objective,
            run,
            "training",
            epochs=epochs,
            batch=c.train.batch,
            schedule=OneCycle(rate, c.train.warm_up),
            watch=terms,
        )
        if averaged is not None:
            averaged.finish()
        rows = to_numpy(objective.final_rows()[: data.n_labels])
        return IndexedRows(encoder.frozen(), frozen_block(block), build_index(rows, c.predict.index, similarity="dot"))

    def label_graph(self, data: TrainingSet, run: Run) -> Csr | None:
        """Which labels belong together; None where nothing asks (walks over many labels take a while), or where no
        label has a neighbour.
        """
        c = self.config
        if not c.train.smoothing and (data.label_texts is None or not (c.labels.neighbours or c.labels.documents)):
            return None
        given = [graph.label_label for graph in data.graphs.values() if graph.label_label is not None]
        graph = label_graph(data.targets, c.labels.graph, run.rng("label graph"), given)
        return graph if graph.nnz > data.n_labels else None

    def examples(
        self, data: TrainingSet, graph: Csr | None = None, anchors: AnchorColumns | None = None
    ) -> tuple[Batch, Csr, Csr]:
        """Documents, (N, L) targets and masked pairs. Label texts are documents behind the others, anchors labels
        behind the others.
        """
        from scipy.sparse import csr_array, eye_array, hstack, vstack

        documents, targets, masked = data.documents, data.targets, data.masked_matrix()
        if masked is None:
            masked = csr_array(targets.shape, dtype=np.float32)
        if self.config.train.smoothing and graph is not None:
            targets = smoothed_targets(targets, graph, self.config.train.smoothing)
        if self.config.train.completion:
            targets = targets.maximum(self.completed(data, masked))
        if anchors is not None:
            targets, masked = (
                hstack([targets, anchors.documents], format="csr"),
                hstack([masked, anchors.own_documents], format="csr"),
            )
        texts = None if data.label_texts is None else data.label_texts.sparse
        if self.config.labels.documents and texts is not None and documents.sparse is not None:
            of_labels, unknown = eye_array(data.n_labels, dtype=np.float32, format="csr"), related_labels(data, graph)
            if anchors is not None:
                of_labels, unknown = (
                    hstack([of_labels, anchors.labels], format="csr"),
                    hstack([unknown, anchors.own_labels], format="csr"),
                )
            named = np.flatnonzero(np.diff(texts.indptr) > 0)
            documents = Batch(sparse=vstack([documents.sparse, texts[named]], format="csr"))
            targets, masked = (
                vstack([targets, of_labels[named]], format="csr"),
                vstack([masked, unknown[named]], format="csr"),
            )
        return documents, targets, masked

    def completed(self, data: TrainingSet, masked: Csr) -> Csr:
        c = self.config.train
        if data.documents.sparse is None:
            raise ConfigError(
                "train.completion compares the words of documents, but these came as dense vectors",
                "leave train.completion at 0",
            )
        return completed_targets(
            data.targets, data.documents.sparse, c.completion, neighbours=c.completion_neighbours, masked=masked
        )

    def negatives_count(self, data: TrainingSet, examples: int) -> F32 | None:
        """(examples,): label texts come behind the documents; what other labels they have is not known."""
        share = self.config.labels.document_negatives
        if share == 1 or examples == data.n_documents or self.config.train.softmax:
            return None
        return np.where(np.arange(examples) < data.n_documents, 1, share).astype(np.float32)

    def new_encoder(self, data: TrainingSet, run: Run) -> Encoder:
        c = self.config.encoder
        words = word_rows(data) if c.vectors else {}
        if data.documents.dense is not None:
            return DenseEncoder(
                data.documents.dense.shape[1], run.rng("encoder"), project_to=c.width, dropout=c.dropout
            )
        table = RowTable.random(data.featurizer.width, c.width, run.rng("encoder"), run.device)
        if c.vectors:
            rows, vectors = read_word_vectors(Path(c.vectors), words)
            with torch.no_grad():
                table.weight[to_tensor(rows, run.device)] = to_tensor(
                    at_width(vectors, c.width, run.rng("vectors")), run.device
                )
            run.log("vectors", words=len(words), found=len(rows), dim=vectors.shape[1])
        return BagSum(table, dropout=c.dropout) if is_on(c.signed, data) else BagEncoder(table, dropout=c.dropout)

    def texts(
        self, data: TrainingSet, graph: Csr | None, anchors: AnchorColumns | None, encoder: Encoder
    ) -> TextRows | None:
        from scipy.sparse import vstack

        c = self.config.labels
        if (
            not c.text
            or data.label_texts is None
            or data.label_texts.sparse is None
            or not isinstance(encoder, BagEncoder | BagSum)
        ):
            return None
        texts, neighbours = data.label_texts.sparse, graph if c.neighbours else None
        if anchors is not None:
            texts = vstack([texts, anchors.texts], format="csr")
            if neighbours is not None:
                neighbours = neighbours.copy()
                neighbours.resize(texts.shape[0], texts.shape[0])
        compute = fastest_products(encoder.table.weight.device)
        return TextRows(
            encoder.table, texts, neighbours, graph_gain=c.neighbour_gain, mapped=is_on(c.map, data), compute=compute
        )

    def trust(self, data: TrainingSet, anchors: AnchorColumns | None = None) -> Tensor:
        """(L, 1): the share of its free vector that a label uses; anchors behind."""
        c = self.config.labels
        counts = data.label_counts()
        if anchors is not None:
            counts = np.concatenate([counts, np.bincount(anchors.documents.indices, minlength=anchors.count)])
        # Where there is no text, the free vector is all there is.
        alone = not c.text or data.label_texts is None
        share = (
            np.ones(len(counts), np.float32)
            if alone or not c.trust
            else (counts / (counts + c.trust)).astype(np.float32)
        )
        return torch.from_numpy(share * np.float32(c.free or alone))[:, None]

    def weights(self, data: TrainingSet, anchors: AnchorColumns | None, run: Run) -> Tensor | None:
        """(L,): what a positive of each label counts, anchors behind; None: all the same."""
        of_labels = propensity_weights(data) if self.config.train.propensity else np.ones(data.n_labels, np.float32)
        if anchors is None:
            return torch.from_numpy(of_labels).to(run.device) if self.config.train.propensity else None
        of_anchors = np.full(anchors.count, self.config.anchors.weight, np.float32)
        return torch.from_numpy(np.concatenate([of_labels, of_anchors])).to(run.device)


def is_on(choice: WhereManyPairs, data: TrainingSet) -> bool:
    """A part that has much to learn: as asked for, else where there is enough to learn it from."""
    return choice == "on" or (choice == "auto" and data.targets.nnz >= _MANY_PAIRS)


def word_rows(data: TrainingSet) -> dict[str, int]:
    """Words of the vocabulary and their rows in the table of features, for `encoder.vectors`."""
    features = data.featurizer
    if data.documents.sparse is None or not isinstance(features, SparseText) or not features.word_range:
        raise ConfigError(
            "encoder.vectors are of words, but words are no features here",
            "leave encoder.vectors empty, or set features.words=true",
        )
    return {features.token(row): row for row in features.word_range}


def propensity_weights(data: TrainingSet) -> F32:
    """(L,), their mean over positives being 1, so that the balance of positives and negatives stays."""
    constants, counts = constants_for(""), data.label_counts()
    weights = inverse_propensities(counts, data.n_documents, constants.a, constants.b)
    return (weights / np.average(weights, weights=np.maximum(counts, 1e-9))).astype(np.float32)


def related_labels(data: TrainingSet, graph: Csr | None) -> Csr:
    """(L, L) CSR of ones: labels that may well be right for the text of another label; to call them wrong would teach
    nonsense.

    They are its neighbours in the label graph, and the labels of documents that it is paired with as "the same thing".
    """
    from scipy.sparse import csr_array

    related, masked = csr_array((data.n_labels, data.n_labels), dtype=np.float32), data.masked_matrix()
    if graph is not None:
        related = related + graph
    if masked is not None:
        related = related + masked.T @ data.targets
    related = csr_array(related)
    related.setdiag(0)
    related.eliminate_zeros()
    related.data = np.ones_like(related.data)
    return related


def default_epochs(examples: int) -> int:
    return int(np.clip(round(_EPOCHS_SCALE / np.sqrt(examples)), _FEWEST_EPOCHS, _MOST_EPOCHS))


def default_rate(examples: int, steps: int) -> float:
    by_examples = float(np.clip(_RATE * np.sqrt(examples / _RATE_EXAMPLES), _LOWEST_RATE, _HIGHEST_RATE))
    return max(by_examples, min(_LEAST_WAY / steps, _HIGHEST_SHORT_RATE))


def first_bias(targets: Csr) -> Tensor:
    """The logit of the average label, so that training does not begin with pushing all scores down."""
    documents, labels = targets.shape
    share = min(max(targets.sum() / (documents * labels), 1e-9), 0.5)
    return torch.tensor(np.log(share / (1 - share)), dtype=torch.float32)


def random_rows(labels: int, width: int, run: Run) -> Tensor:
    """Where rows are free vectors alone they must differ at first: at zero no gradient reaches the encoder."""
    return torch.from_numpy(run.rng("rows").standard_normal((labels, width), dtype=np.float32)) * (0.1 / width**0.5)
