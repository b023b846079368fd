"""Stage 0: from texts to numbers. The only door between a `Dataset` and training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from longtail.data.dataset import Dataset, Graph, Items, no_pairs
from longtail.data.identity import same_titles
from longtail.errors import DataError
from longtail.features.base import Featurizer, make_featurizer
from longtail.metrics import drop_masked_targets
from longtail.persistence import Part, State, StringTable
from longtail.types import I64, Batch, Csr


@dataclass(frozen=True)
class TrainingSet:
    """What every recipe starts from. It has no place for test documents.

    documents: the N training documents that have features and at least one label.
    targets: (N, L) CSR float32 of ones, masked pairs removed.
    masked: (P, 2) pairs that may be neither positives nor negatives.
    labels: ids and names of the L labels (all of them, also those without a document).
    label_texts: label text in the vocabulary of the documents, or None where labels have no text.
    rows: (N,) row of each document in the training split of the data set.
    dropped: documents left out and why, to be shown.
    same: (S, 2) those of the masked pairs where the document *is* the label.
    """

    KIND = "training-set"

    featurizer: Featurizer
    documents: Batch
    targets: Csr
    masked: I64
    labels: Items
    label_texts: Batch | None
    graphs: Mapping[str, Graph]
    rows: I64
    dropped: Mapping[str, int] = field(default_factory=dict)
    same: I64 = field(default_factory=no_pairs)

    @property
    def n_documents(self) -> int:
        return int(self.targets.shape[0])

    @property
    def n_labels(self) -> int:
        return int(self.targets.shape[1])

    def label_counts(self) -> I64:
        """(L,) training documents per label."""
        return np.bincount(self.targets.indices, minlength=self.n_labels).astype(np.int64)

    def label_graphs(self) -> list[Csr]:
        """(L, L) each: the graphs between labels that came with the data."""
        return [graph.label_label for graph in self.graphs.values() if graph.label_label is not None]

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

    def state(self) -> State:
        arrays: dict[str, Any] = {"targets": self.targets, "masked": self.masked, "rows": self.rows, "same": self.same}
        parts: dict[str, Part | None] = {"featurizer": self.featurizer, "label_uids": StringTable.of(self.labels.uids)}
        for name, batch in (("documents", self.documents), ("label_texts", self.label_texts)):
            for view in ("sparse", "dense", "tokens"):
                if batch is not None and getattr(batch, view) is not None:
                    arrays[f"{name}:{view}"] = getattr(batch, view)
            if batch is not None and batch.graphs is not None:
                graphs: Any = batch.graphs
                parts[f"{name}_graphs"] = graphs
        for number, (_, texts) in enumerate(self.labels.fields.items()):
            parts[f"label_field{number}"] = StringTable.of(texts)
        for number, graph in enumerate(self.graphs.values()):
            for side in ("documents", "labels", "label_label"):
                if getattr(graph, side) is not None:
                    arrays[f"graph{number}:{side}"] = getattr(graph, side)
            if graph.anchors is not None:
                parts[f"graph{number}_uids"] = StringTable.of(graph.anchors.uids)
                parts[f"graph{number}_titles"] = StringTable.of(graph.anchors.titles())
        values = {"label_fields": list(self.labels.fields), "graphs": list(self.graphs), "dropped": dict(self.dropped)}
        return State(values, arrays, parts)

    @classmethod
    def from_state(cls, state: State) -> TrainingSet:
        def batch(name: str) -> Batch | None:
            views: dict[str, Any] = {view: state.arrays.get(f"{name}:{view}") for view in ("sparse", "dense", "tokens")}
            views["graphs"] = state.parts.get(f"{name}_graphs")
            return Batch(**views) if any(v is not None for v in views.values()) else None

        def graph(number: int, name: str) -> Graph:
            sides = {side: state.arrays.get(f"graph{number}:{side}") for side in ("documents", "labels", "label_label")}
            uids: Any = state.parts.get(f"graph{number}_uids")
            titles: Any = state.parts.get(f"graph{number}_titles")
            return Graph(name, None if uids is None else Items(uids, {"title": titles}), **sides)

        documents = batch("documents")
        if documents is None:
            raise ValueError("no documents")
        label_uids: Any = state.parts["label_uids"]
        fields: dict[str, Any] = {
            name: state.parts[f"label_field{number}"] for number, name in enumerate(state.values["label_fields"])
        }
        featurizer: Any = state.parts["featurizer"]
        return cls(
            featurizer=featurizer,
            documents=documents,
            targets=state.arrays["targets"],
            masked=state.arrays["masked"],
            labels=Items(label_uids, fields),
            label_texts=batch("label_texts"),
            graphs={name: graph(number, name) for number, name in enumerate(state.values["graphs"])},
            rows=state.arrays["rows"],
            dropped=state.values["dropped"],
            same=state.arrays["same"],
        )


def prepare(data: Dataset, features: Any) -> TrainingSet:
    """Features and targets of the training split alone; `data.test` is not looked at.

    Dropped, and counted: masked pairs (from the targets), documents without a label, documents without a feature.
    """
    featurizer, documents, label_texts = make_featurizer(data.train.documents, data.labels, features)
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
        labels=data.labels,
        label_texts=label_texts,
        graphs={name: graph.document_rows(rows) for name, graph in data.graphs.items()},
        rows=rows,
        dropped={
            "training documents without a label": int((~has_label).sum()),
            "training documents with a label but without a known word": int((has_label & ~has_feature).sum()),
            "masked pairs taken out of the training targets": int(data.train.targets.nnz - targets.nnz),
        },
        same=np.stack([position[same[:, 0]], same[:, 1]], axis=1),
    )
