"""The company of labels: what they are seen with, and documents that carry them. For people who look at a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from longtail.data.dataset import Items
from longtail.declared import Shaped, Sized
from longtail.kernels.arrays import csr
from longtail.persistence import DataPart, StringTable
from longtail.types import I64, Csr

NEIGHBOURS = 10  # labels kept of those that a label is seen with
EXAMPLES, ALL_EXAMPLES = (
    3,
    300_000,
)  # documents kept of a label; fewer each where labels are so many that these are more
TEXT, LABEL_TEXT = 200, 1000  # characters kept of a document, of a label
# Labels whose company is counted at once, before it is cut to the strongest.
_BLOCK = 20_000


@dataclass(frozen=True)
class Company(DataPart):
    """What a label is seen with in the training documents.

    neighbours: (L, L) CSR float32, the labels that share most documents with a label: how many, over the root of the
        product of the documents of each; at most `NEIGHBOURS` of them, all above zero.
    texts: what else is known of labels beside their names; None where nothing is.
    carried: (L, E) CSR int8 of ones: which of the E examples carry a label; None where no examples were kept.
    example_ids, examples: ids and texts of training documents, the texts cut to `TEXT` characters.
    """

    KIND = "company"

    neighbours: Annotated[Csr, Shaped("labels", "labels")]
    texts: Annotated[StringTable, Sized(len="labels")] | None = None
    carried: Annotated[Csr, Shaped("labels", "examples")] | None = None
    example_ids: Annotated[StringTable, Sized(len="examples")] | None = None
    examples: Annotated[StringTable, Sized(len="examples")] | None = None

    def __post_init__(self) -> None:
        labels = self.neighbours.shape[0]
        if self.neighbours.shape[1] != labels or (self.texts is not None and len(self.texts) != labels):
            raise ValueError("neighbours and texts of labels do not fit together")
        if self.carried is None:
            return
        if self.example_ids is None or self.examples is None or len(self.example_ids) != len(self.examples):
            raise ValueError("examples lack ids or texts")
        if self.carried.shape != (labels, len(self.examples)):
            raise ValueError(f"examples of labels have shape {self.carried.shape}")

    @classmethod
    def of(cls, targets: Csr, labels: Items, documents: Items | None = None, rows: I64 | None = None) -> Company:
        """targets: (N, L) CSR of the training documents. documents: where their texts are; None keeps no examples.
        rows: (N,) which of `documents` they are; None: all, in order.
        """
        neighbours, texts = _strongest(targets), _further_texts(labels)
        if documents is None or not documents.fields:
            return cls(neighbours, texts)
        carried, chosen = _examples(targets)
        kept = (chosen if rows is None else rows[chosen]).tolist()
        uids = StringTable.of([documents.uids[row] for row in kept])
        return cls(neighbours, texts, carried, uids, StringTable.of([documents.name(row)[:TEXT] for row in kept]))

    def __len__(self) -> int:
        return int(self.neighbours.shape[0])

    def neighbours_of(self, label: int) -> list[tuple[int, float]]:
        """Labels and their strengths, strongest first; ties by label number."""
        start, end = self.neighbours.indptr[label : label + 2].tolist()
        found = zip(self.neighbours.indices[start:end].tolist(), self.neighbours.data[start:end].tolist(), strict=True)
        return sorted(found, key=lambda one: (-one[1], one[0]))

    def examples_of(self, label: int) -> list[tuple[str, str]]:
        """Ids and texts of documents that carry the label, in the order of the data."""
        if self.carried is None or self.example_ids is None or self.examples is None:
            return []
        start, end = self.carried.indptr[label : label + 2].tolist()
        return [(self.example_ids[one], self.examples[one]) for one in self.carried.indices[start:end].tolist()]


def _strongest(targets: Csr) -> Csr:
    """(L, L): see `Company`; block by block of labels, as the whole may be too big before it is cut."""
    by_label = targets.T.tocsr()
    labels = int(by_label.shape[0])
    root = 1 / np.sqrt(np.maximum(np.diff(by_label.indptr), 1))
    kept: list[tuple[I64, I64, np.ndarray]] = []
    for first in range(0, labels, _BLOCK):
        shared = (by_label[first : first + _BLOCK] @ targets).tocoo()
        rows, columns = shared.row.astype(np.int64) + first, shared.col.astype(np.int64)
        values = (shared.data * root[rows] * root[columns]).astype(np.float32)
        other = rows != columns
        rows, columns, values = rows[other], columns[other], values[other]
        order = np.lexsort((columns, -values, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        best = place < NEIGHBOURS
        kept.append((rows[best], columns[best], values[best]))
    empty = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    rows, columns, values = (np.concatenate(pieces) for pieces in zip(empty, *kept, strict=True))
    order = np.lexsort((columns, rows))
    ends = np.zeros(labels + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=labels), out=ends[1:])
    return csr(values[order], columns[order].astype(np.int32), ends, (labels, labels))


def _examples(targets: Csr) -> tuple[Csr, I64]:
    """(L, E) CSR of ones, and the rows of the E documents: of each label those with the fewest labels beside it, as
    they say most about it; the first of the data among equals.
    """
    labels = int(targets.shape[1])
    each = min(EXAMPLES, max(1, ALL_EXAMPLES // max(labels, 1)))
    coordinates = targets.tocoo()
    rows, columns = coordinates.row.astype(np.int64), coordinates.col.astype(np.int64)
    order = np.lexsort((rows, np.diff(targets.indptr)[rows], columns))
    rows, columns = rows[order], columns[order]
    chosen = np.arange(len(rows)) - np.searchsorted(columns, columns) < each
    rows, columns = rows[chosen], columns[chosen]
    documents, numbers = np.unique(rows, return_inverse=True)
    order = np.lexsort((numbers, columns))
    ends = np.zeros(labels + 1, np.int64)
    np.cumsum(np.bincount(columns, minlength=labels), out=ends[1:])
    ones = np.ones(len(numbers), np.int8)
    return csr(ones, numbers[order].astype(np.int32), ends, (labels, len(documents))), documents


def _further_texts(labels: Items) -> StringTable | None:
    """What labels have beside their names, field after field."""
    titles = labels.titles()
    joined = [
        "\n".join(dict.fromkeys(text for texts in labels.fields.values() if (text := texts[number]) and text != title))[
            :LABEL_TEXT
        ]
        for number, title in enumerate(titles)
    ]
    return StringTable.of(joined) if any(joined) else None
