"""Classifiers and document blocks as settings and data ask for them: of clusters in I and II, of labels in IV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import csr
from longtail.nn.batches import to_tensor
from longtail.nn.blocks import DocumentBlock, uniform
from longtail.nn.row_tables import RowTable
from longtail.recipes.eclare.neighbours import has_edges
from longtail.recipes.eclare.network import FrozenTexts, LabelTextGraph, LabelTexts, TrainedTexts, component_names
from longtail.recipes.eclare.settings import CPU_BATCH, EclareStages
from longtail.search.cluster import meta_labels
from longtail.search.packed import Rows
from longtail.search.shortlist import cluster_graph
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import I32, Csr

# Numbers that the gradients of a composed row need for each of its own, by measurement.
_NUMBERS_PER_COMPOSED = 64


def words_of(data: TrainingSet) -> Csr:
    if data.documents.sparse is None:
        raise ConfigError(
            "eclare reads words, but the data came with dense vectors", "use recipe astec, or features.source=text"
        )
    return data.documents.sparse


def has_text(data: TrainingSet) -> bool:
    return data.label_texts is not None and data.label_texts.sparse is not None and data.label_texts.sparse.nnz > 0


def label_words(data: TrainingSet) -> Csr:
    assert data.label_texts is not None
    return data.label_texts.sparse


@dataclass(frozen=True)
class Composer:
    """Makes the networks of a training. graph: (L, L), of labels."""

    config: EclareStages
    data: TrainingSet
    graph: Csr
    run: Run

    @property
    def orders(self) -> int:
        """How many powers of the graph, the zeroth among them, are applied to label texts; 0 without text."""
        c = self.config
        if not has_text(self.data):
            return 0
        convolves = has_edges(self.graph) and (c.composition.graph != "none" or c.transfer.start == "graph")
        return 1 + (c.composition.order if convolves else 0)

    def reads_text(self, orders: int) -> bool:
        """Whether some component of a classifier comes from texts."""
        c = self.config.composition
        return bool(component_names(orders, text=c.text, graph=c.graph, free=False))

    def document_block(self, name: str) -> DocumentBlock:
        """name: of the random numbers, as everywhere here."""
        c = self.config
        return DocumentBlock(
            c.surrogate.width, self.run.rng(name), dropout=c.training.dropout, clamp_scale=c.composition.clamp_scale
        ).to(self.run.device)

    # ---- clusters ----

    def first_heads(self, table: RowTable, clusters: I32) -> LabelTextGraph:
        """Classifiers of clusters whose texts train the token vectors `table`; free vectors only where no text is."""
        share = self.cluster_share(clusters)
        if not self.reads_text(self.orders):
            return self.classifiers(None, self.free_start([], self.n_clusters, "heads start"), "heads", share)
        texts = TrainedTexts(table, *self.cluster_texts(clusters), self.orders)
        return self.classifiers(texts, None, "heads", share)

    def second_heads(self, table: Rows, clusters: I32) -> LabelTextGraph:
        """Classifiers of clusters from token vectors that stay as they are, with free vectors."""
        texts = None
        if self.orders:
            frozen = to_tensor(table[:], self.run.device)
            texts = FrozenTexts.of(frozen, *self.cluster_texts(clusters), self.orders)
        free = self.free_vectors(texts, self.n_clusters, "heads start of II")
        return self.classifiers(texts, free, "heads of II", self.cluster_share(clusters))

    @property
    def n_clusters(self) -> int:
        return self.config.n_clusters(self.data.n_labels)

    def cluster_texts(self, clusters: I32) -> tuple[Csr, Csr]:
        """(K, V) the texts of clusters, sums of their labels' as unit rows, and (K, K) the graph of clusters."""
        n, n_labels = self.n_clusters, self.data.n_labels
        members = csr(np.ones(n_labels, np.float32), clusters, np.arange(n_labels + 1), (n_labels, n))
        texts = unit_rows((members.T.tocsr() @ label_words(self.data)).tocsr())
        return texts, cluster_graph(self.graph, clusters, n, "both")

    def cluster_share(self, clusters: I32) -> float:
        """The share of (document, cluster) pairs that are true."""
        pairs = meta_labels(self.data.targets, clusters, self.n_clusters).nnz
        return float(pairs / (self.n_clusters * self.data.n_documents))

    # ---- labels ----

    def label_texts(self, table: Rows) -> FrozenTexts | None:
        """Label texts and their convolutions by token vectors that stay as they are; None without text."""
        if not self.orders:
            return None
        frozen = to_tensor(table[:], self.run.device)
        return FrozenTexts.of(frozen, label_words(self.data), self.graph, self.orders)

    def label_classifiers(self, texts: FrozenTexts | None, negatives: int) -> LabelTextGraph:
        """negatives: per document, beside which its labels stand."""
        per_document = self.data.targets.nnz / self.data.n_documents
        free = self.free_vectors(texts, self.data.n_labels, "free vectors")
        return self.classifiers(texts, free, "classifier", per_document / (per_document + negatives))

    # ---- both ----

    def free_vectors(self, texts: FrozenTexts | None, rows: int, name: str) -> Tensor | None:
        """What free vectors start from, None if there are none. Where no component reads text they are all there is."""
        orders = [] if texts is None else texts.convolved(None)
        if not self.config.composition.free and self.reads_text(len(orders)):
            return None
        return self.free_start(orders, rows, name)

    def free_start(self, orders: Sequence[Tensor], rows: int, name: str) -> Tensor:
        """(rows, D): what free vectors start from. Without a graph a label's neighbours are itself; without text it
        is chance.
        """
        start, width = self.config.transfer.start, self.config.surrogate.width
        if start == "random" or not orders:
            return uniform((rows, width), np.sqrt(6 / (rows + width)), self.run.rng(name)).to(self.run.device)
        return orders[0 if start == "text" else min(1, len(orders) - 1)].clone()

    def classifiers(self, texts: LabelTexts | None, free: Tensor | None, name: str, share: float) -> LabelTextGraph:
        """share: of scores that are of true pairs, whose log-odds biases start from."""
        c = self.config.composition
        return LabelTextGraph(
            texts,
            free,
            self.run.rng(name),
            text=c.text,
            graph=c.graph,
            mix=c.mix,
            dropout=self.config.training.dropout,
            clamp_scale=c.clamp_scale,
            attention_sigmoid=c.attention_sigmoid,
            bias=math.log(share / max(1 - share, share)) if c.bias else None,
        )


def peak_memory(data: TrainingSet, config: EclareStages) -> int:
    """Bytes of stage I or stage IV, whichever are more, beside convolved texts, document vectors and negatives.

    I: tables with their two moments, the words of label texts as they are looked at (values, gradients, steps),
        features.
    IV: the rows that a step composes, with all that their gradients need.
    """
    c, width, clusters = config, config.surrogate.width, config.n_clusters(data.n_labels)
    shortlist = -(-data.n_labels // clusters) * c.beam_size(data.n_labels)
    words, entries = np.zeros(0, np.int32), data.documents.sparse.nnz if data.documents.sparse is not None else 0
    if has_text(data):
        words, entries = np.unique(label_words(data).indices), entries + label_words(data).nnz
    tables = 3 * 4 * width * (data.featurizer.width + len(words) + clusters + data.n_labels)
    texts = 4 * width * (1 + c.composition.order) * data.n_labels
    per_document = 4 * (2 * width + (c.classify.count or shortlist))
    composed = min(data.n_labels, CPU_BATCH * (shortlist + c.classify.positives))
    both = texts + per_document * data.n_documents + 2**28
    return both + max(tables + 3 * 8 * entries, _NUMBERS_PER_COMPOSED * 4 * width * composed)
