"""Stage 0: from texts to numbers. The only door between a `Dataset` and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from longtail.data.dataset import Dataset, Graph, Items, no_pairs
from longtail.data.identity import same_titles
from longtail.data.mapped import DocumentsOnDisk
from longtail.declared import Between, Shaped, Sized
from longtail.errors import DataError
from longtail.features.base import Featurizer, make_featurizer
from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.metrics import drop_masked_targets
from longtail.persistence import DataPart, StringTable
from longtail.types import I64, Batch, Csr


@dataclass(frozen=True)
class TrainingSet(DataPart):
    """What every recipe starts from. It has no place for test documents.

    documents: the N training documents that have features and at least one label.
    targets: (N, L) CSR float32 of ones, masked pairs removed.
    masked: (P, 2) pairs that may be neither positives nor negatives.
    labels: ids and names of the L labels (all of them, also those without a document).
    label_texts: label text in the vocabulary of the documents, or None where labels have no text.
    rows: (N,) row of each document in the training split of the data set.
    dropped: documents left out and why, to be shown.
    same: (S, 2) those of the masked pairs where the document *is* the label.
    everything: where the documents do not fit into memory: all of them, on the disk. What is above, and what else a
        training knows of documents than its steps do, is then a sample of them. Saved beside it (`prepare_large`).
    """

    KIND = "training-set"

    featurizer: Featurizer
    documents: Annotated[Batch, Sized(len="documents")]
    targets: Annotated[Csr, Shaped("documents", "labels")]
    masked: Annotated[I64, Shaped("_", "_", plain=True)]
    labels: Annotated[Items, Sized(len="labels")]
    label_texts: Annotated[Batch, Sized(len="labels")] | None
    graphs: Mapping[str, Graph]
    rows: Annotated[I64, Shaped("documents", plain=True)]
    dropped: Mapping[str, Annotated[int, Between(0)]] = field(default_factory=dict)
    same: Annotated[I64, Shaped("_", "_", plain=True)] = field(default_factory=no_pairs)
    everything: DocumentsOnDisk | None = None

    def __repr__(self) -> str:
        counts = f"{self.n_documents:,} documents, {self.n_labels:,} labels, {self.targets.nnz:,} targets"
        return f"TrainingSet({counts}, {self.featurizer.width:,} features, {len(self.graphs)} graphs)"

    @property
    def n_documents(self) -> int:
        return int(self.targets.shape[0])

    @property
    def n_labels(self) -> int:
        return int(self.targets.shape[1])

    @property
    def all_documents(self) -> int:
        """How many a training learns from; `n_documents`, unless those are a sample."""
        return self.n_documents if self.everything is None else len(self.everything)

    @property
    def all_pairs(self) -> int:
        """Of those documents and their labels."""
        return int(self.targets.nnz) if self.everything is None else self.everything.pairs

    def label_counts(self) -> I64:
        """(L,) training documents per label."""
        return self.sampled_counts() if self.everything is None else self.everything.counts.copy()

    def sampled_counts(self) -> I64:
        """(L,) the same of `documents` alone."""
        return np.bincount(self.targets.indices, minlength=self.n_labels).astype(np.int64)

    def label_words(self) -> Csr | None:
        """(L, V) texts of labels as sparse features; None where they have none."""
        return None if self.label_texts is None else self.label_texts.sparse

    def label_graphs(self) -> list[Csr]:
        """(L, L) each: the graphs between labels that came with the data."""
        return [graph.label_label for graph in self.graphs.values() if graph.label_label is not None]

    def label_graph(self, config: LabelGraphConfig, rng: np.random.Generator) -> Csr:
        """(L, L): which labels belong together, by all that is known of them (`longtail.graph.label_graph`)."""
        return label_graph(self.targets, config, rng, self.label_graphs(), self.label_words())

    def masked_matrix(self) -> Csr | None:
        """(N, L) CSR of ones at the masked pairs; None if there are none."""
        from scipy.sparse import csr_array

        if not len(self.masked):
            return None
        matrix = csr_array(
            (np.ones(len(self.masked), np.float32), (self.masked[:, 0], self.masked[:, 1])), shape=self.targets.shape
        )
        matrix.data[:] = 1  # a pair that was named twice
        return matrix


def _with_anchors(data: Dataset) -> Items:
    """Labels, and the anchors of all graphs behind them, by their titles: what a vocabulary is made of."""
    anchors = [graph.anchors for graph in data.graphs.values() if graph.anchors is not None]
    titles = [title for each in anchors for title in each.titles()]
    if not data.labels.fields or not titles:
        return data.labels
    fields = {
        name: [*texts, *(titles if name == "title" else [""] * len(titles))]
        for name, texts in data.labels.fields.items()
    }
    return Items([*data.labels.uids, *(f"anchor {n}" for n in range(len(titles)))], fields)


def prepare(data: Dataset, features: Any) -> TrainingSet:
    """Features and targets of the training split alone; `data.test` is not looked at.

    Dropped, and counted: masked pairs (from the targets), documents without a label, documents without a feature.
    """
    features = features.for_columns(data.columns)
    texts = _with_anchors(data) if features.reads_anchors() else data.labels
    featurizer, documents, label_texts = make_featurizer(data.train.documents, texts, features)
    if label_texts is not None and len(label_texts) > len(data.labels):
        label_texts = label_texts.rows(slice(0, len(data.labels)))
    targets = drop_masked_targets(data.train.targets, data.train.masked)
    has_label = np.diff(targets.indptr) > 0
    has_feature = np.ones(len(documents), dtype=bool)
    if documents.sparse is not None:
        has_feature = np.diff(documents.sparse.indptr) > 0
    elif documents.tokens is not None:
        has_feature = ~documents.is_empty()
    rows = np.flatnonzero(has_label & has_feature).astype(np.int64)
    if not len(rows):
        found = (
            f"{len(data.train)} documents, {int(has_label.sum())} with a label, {int(has_feature.sum())} with a feature"
        )
        raise DataError(
            f"'{data.name}' has no training document with both a label and a feature ({found})",
            "check the text and label columns with 'longtail data check'",
        )
    position = np.full(len(data.train), -1, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    masked = data.train.masked[position[data.train.masked[:, 0]] >= 0]
    same = same_titles(data.train.documents, data.labels, masked)
    return TrainingSet(
        featurizer=featurizer,
        documents=documents.rows(rows),
        targets=targets[rows],
        masked=np.stack([position[masked[:, 0]], masked[:, 1]], axis=1),
        labels=_as_tables(data.labels, list(data.labels.fields)),
        label_texts=label_texts,
        graphs={name: _as_saved(graph.document_rows(rows)) for name, graph in data.graphs.items()},
        rows=rows,
        dropped={
            "training documents without a label": int((~has_label).sum()),
            "training documents with a label but without a known word": int((has_label & ~has_feature).sum()),
            "masked pairs taken out of the training targets": int(data.train.targets.nnz - targets.nnz),
        },
        same=np.stack([position[same[:, 0]], same[:, 1]], axis=1),
    )


def _as_tables(items: Items, fields: Sequence[str]) -> Items:
    """Ids and the named texts, ready to be saved; vectors were read by then."""
    return Items(
        StringTable.of(items.uids), {name: StringTable.of(items.fields.get(name, [""] * len(items))) for name in fields}
    )


def _as_saved(graph: Graph) -> Graph:
    return graph if graph.anchors is None else replace(graph, anchors=_as_tables(graph.anchors, ["title"]))
