"""The company of labels: what they are seen with, and documents that carry them. For people who look at a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from longtail.data.dataset import Items
from longtail.declared import Shaped, Sized
from longtail.kernels.arrays import csr
from longtail.persistence import DataPart, StringTable
from longtail.types import F32, I32, I64, Batch, Csr

NEIGHBOURS = 10  # labels kept of those that a label is seen with
EXAMPLES, ALL_EXAMPLES = (
    3,
    300_000,
)  # documents kept of a label; fewer each where labels are so many that these are more
TEXT, LABEL_TEXT = 200, 1000  # characters kept of a document, of a label
# Labels whose company is counted at once, before it is cut to the strongest.
_BLOCK = 20_000
# Words of documents that are compared with those of labels at once.
_WORDS = 4_000_000


@dataclass(frozen=True)
class Company(DataPart):
    """What a label is seen with in the training documents.

    neighbours: (L, L) CSR float32, the labels that share most documents with a label: how many, over the root of the
        product of the documents of each; at most `NEIGHBOURS` of them, all above zero.
    texts: what else is known of labels beside their names; None where nothing is.
    carried: (L, E) CSR int8: which of the E examples carry a label, 1 for the one nearest to its text, 2 for the next;
        None where no examples were kept. Ones alone, as models of before have them, say nothing of nearness.
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
    def of(
        cls,
        targets: Csr,
        labels: Items,
        documents: Items | None = None,
        rows: I64 | None = None,
        read: tuple[Batch, Batch | None] | None = None,
    ) -> Company:
        """targets: (N, L) CSR of the training documents. documents: where their texts are; None keeps no examples.
        rows: (N,) which of `documents` they are; None: all, in order. read: the training documents and the texts of the
        labels as features, by which the nearest are found.
        """
        neighbours, texts = _strongest(targets), _further_texts(labels)
        if documents is None or not documents.fields:
            return cls(neighbours, texts)
        carried, chosen = _examples(targets, None if read is None else _words(*read))
        kept = (chosen if rows is None else rows[chosen]).tolist()
        uids = StringTable.of([documents.uids[row] for row in kept])
        return cls(neighbours, texts, carried, uids, StringTable.of([documents.name(row)[:TEXT] for row in kept]))

    def __len__(self) -> int:
        return int(self.neighbours.shape[0])

    def of_labels(self, numbers: I64) -> Company:
        """The company of these labels, in this order; a number that is none of theirs is a label without any."""
        from scipy.sparse import csr_array

        ours = np.flatnonzero(numbers < len(self))
        picks = csr_array((np.ones(len(ours), np.int8), (ours, numbers[ours])), shape=(len(numbers), len(self)))
        texts = self.texts
        if texts is not None:
            texts = StringTable.of([texts[number] if number < len(self) else "" for number in numbers.tolist()])
        neighbours = csr_array(picks @ self.neighbours @ picks.T, dtype=np.float32)
        neighbours.sort_indices()
        carried = self.carried
        if carried is not None:
            carried = csr_array(picks @ carried, dtype=np.int8)
            carried.sort_indices()
        return replace(self, neighbours=neighbours, texts=texts, carried=carried)

    def neighbours_of(self, label: int) -> list[tuple[int, float]]:
        """Labels and their strengths, strongest first; ties by label number."""
        start, end = self.neighbours.indptr[label : label + 2].tolist()
        found = zip(self.neighbours.indices[start:end].tolist(), self.neighbours.data[start:end].tolist(), strict=True)
        return sorted(found, key=lambda one: (-one[1], one[0]))

    def examples_of(self, label: int) -> list[tuple[str, str]]:
        """Ids and texts of documents that carry the label, nearest first."""
        if self.carried is None or self.example_ids is None or self.examples is None:
            return []
        start, end = self.carried.indptr[label : label + 2].tolist()
        found = zip(self.carried.data[start:end].tolist(), self.carried.indices[start:end].tolist(), strict=True)
        return [(self.example_ids[one], self.examples[one]) for _, one in sorted(found)]


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


def _examples(targets: Csr, words: tuple[Csr, Csr] | None) -> tuple[Csr, I64]:
    """(L, E) CSR of places, see `Company`, and the rows of the E documents.

    Of each label those whose words are nearest to its text; where that says nothing, those with the fewest labels
    beside it, as they say most about it; the first of the data among equals.
    """
    labels = int(targets.shape[1])
    each = min(EXAMPLES, max(1, ALL_EXAMPLES // max(labels, 1)))
    coordinates = targets.tocoo()
    rows, columns = coordinates.row.astype(np.int64), coordinates.col.astype(np.int64)
    near = np.zeros(len(rows), np.float32) if words is None else _nearness(*words, rows, columns)
    order = np.lexsort((rows, np.diff(targets.indptr)[rows], -near, columns))
    rows, columns = rows[order], columns[order]
    places = np.arange(len(rows)) - np.searchsorted(columns, columns)
    chosen = places < each
    rows, columns, places = rows[chosen], columns[chosen], places[chosen]
    documents, numbers = np.unique(rows, return_inverse=True)
    order = np.lexsort((numbers, columns))
    ends = np.zeros(labels + 1, np.int64)
    np.cumsum(np.bincount(columns, minlength=labels), out=ends[1:])
    said = (places[order] + 1).astype(np.int8)
    return csr(said, numbers[order].astype(np.int32), ends, (labels, len(documents))), documents


def _nearness(documents: Csr, labels: Csr, rows: I64, columns: I64) -> F32:
    """(P,) the cosine between a document and a label, for each of the pairs and for no others."""
    found = np.zeros(len(rows), np.float32)
    read = np.cumsum(np.diff(documents.indptr)[rows] + np.diff(labels.indptr)[columns])
    first = 0
    while first < len(rows):
        before = int(read[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(read, before + _WORDS, side="right")))
        found[first:end] = documents[rows[first:end]].multiply(labels[columns[first:end]]).sum(axis=1)
        first = end
    return found


def _words(documents: Batch, labels: Batch | None) -> tuple[Csr, Csr] | None:
    """Documents and labels as rows of unit length over the same words; None where there are no words to compare."""
    if labels is None:
        return None
    if documents.sparse is not None and labels.sparse is not None:
        return documents.sparse, labels.sparse
    if documents.tokens is not None and labels.tokens is not None:
        width = 1 + max(int(documents.tokens.max(initial=0)), int(labels.tokens.max(initial=0)))
        bags = _bags(documents.tokens, width), _bags(labels.tokens, width)
        frequent = np.bincount(bags[0].indices, minlength=width)
        rare = np.log((1 + len(documents)) / (1 + frequent)).astype(np.float32)
        return _unit(bags[0], rare), _unit(bags[1], rare)
    return None


def _bags(tokens: I32, width: int) -> Csr:
    """(n, width) CSR of ones: which tokens occur."""
    rows, _ = np.nonzero(tokens >= 0)
    found = np.unique(rows.astype(np.int64) * width + tokens[tokens >= 0])
    ends = np.searchsorted(found, width * np.arange(len(tokens) + 1, dtype=np.int64))
    return csr(np.ones(len(found), np.float32), (found % width).astype(np.int32), ends, (len(tokens), width))


def _unit(bags: Csr, weights: F32) -> Csr:
    values = weights[bags.indices]
    rows = np.repeat(np.arange(bags.shape[0]), np.diff(bags.indptr))
    length = np.sqrt(np.bincount(rows, weights=values.astype(np.float64) ** 2, minlength=bags.shape[0]))
    return csr((values / np.maximum(length, 1e-9)[rows]).astype(np.float32), bags.indices, bags.indptr, bags.shape)


def _further_texts(labels: Items) -> StringTable | None:
    """What labels have beside their names, field after field."""
    if len(labels.fields) < 2:
        return None
    # Side by side, not one by one: a table of strings is read in one go.
    joined = [
        "\n".join(dict.fromkeys(text for text in texts if text and text != title))[:LABEL_TEXT]
        for title, *texts in zip(labels.titles(), *labels.fields.values(), strict=True)
    ]
    return StringTable.of(joined) if any(joined) else None
