"""What a data set is once it is in memory, whatever file format it came from.

A `Dataset` is raw: texts, targets and given graphs. Training never sees one: `longtail.training.prepare` turns its
training side into a `TrainingSet`, a type that has no place for test documents, so they cannot enter graphs,
statistics or vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from longtail.data.columns import Columns
from longtail.declared import Shaped
from longtail.errors import ConfigError, DataError
from longtail.persistence import StringTable
from longtail.report import facts_as_html, named
from longtail.types import F32, I64, Csr


def no_pairs() -> I64:
    return np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Items:
    """Documents, labels or anchors: a stable string id each, named text fields, and vectors where they were given.

    fields: e.g. ``{"title": [...], "content": [...]}``; every list has one entry per item ("" where absent).
    vectors: (n, D) float32 or CSR features that came with the data in place of text.
    """

    uids: Sequence[str]
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    vectors: Annotated[Csr, Shaped("_", "_")] | Annotated[F32, Shaped("_", "_")] | None = None

    def __post_init__(self) -> None:
        for name, texts in self.fields.items():
            if len(texts) != len(self.uids):
                raise ValueError(f"field '{name}' has {len(texts)} texts for {len(self.uids)} items")
        if self.vectors is not None and self.vectors.shape[0] != len(self.uids):
            raise ValueError(f"vectors have {self.vectors.shape[0]} rows for {len(self.uids)} items")

    def __len__(self) -> int:
        return len(self.uids)

    def __repr__(self) -> str:
        fields = f", {', '.join(map(named, list(self.fields)[:3]))}" if self.fields else ""
        vectors = "" if self.vectors is None else f", vectors of {self.vectors.shape[1]:,}"
        first = f"; first {named(self.uids[0])}" if len(self) else ""
        return f"Items({len(self):,}{fields}{vectors}{first})"

    def name(self, index: int) -> str:
        """What to show a person: the title, or the id where there is none."""
        titles = self._title_field()
        return (titles[index] if titles is not None else "") or self.uids[index]

    def names(self) -> Sequence[str]:
        """`name` of all. A table of strings that has one for each is given as it is: it need not be read."""
        titles = self._title_field()
        if isinstance(titles, StringTable) and np.diff(titles.offsets).all():
            return titles
        return [title or uid for title, uid in zip(self.titles(), self.uids, strict=True)]

    def titles(self) -> list[str]:
        """All titles, "" where there is none."""
        return list(self._title_field() or [""] * len(self))

    def _title_field(self) -> Sequence[str] | None:
        """The field called title, or the first text where none is called so."""
        return self.fields["title"] if "title" in self.fields else next(iter(self.fields.values()), None)

    def rows(self, index: I64) -> Items:
        """The items at `index`, in that order."""
        chosen = index.tolist()
        return Items(
            uids=[self.uids[i] for i in chosen],
            fields={name: [texts[i] for i in chosen] for name, texts in self.fields.items()},
            vectors=None if self.vectors is None else self.vectors[index],
        )


@dataclass(frozen=True)
class Split:
    """Documents with their labels.

    targets: (N, L) CSR float32 of ones, sorted, no duplicates.
    masked: (P, 2) int64 (document, label) pairs that count neither as right nor as wrong (the document *is* the label,
        or a reciprocal pair): dropped from training, and from predictions and truth in evaluation.
    known: (P, 2) int64 pairs of test documents that are known before anything is predicted (warm start), masked as
        well. Models that can use labels already known are given them.
    groups: a group per document, e.g. the shop it is from, "" where it has none: what is held out is whole groups, if
        asked for. Recipes do not see it.
    """

    documents: Items
    targets: Csr
    masked: I64 = field(default_factory=no_pairs)
    known: I64 = field(default_factory=no_pairs)
    groups: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.targets.shape[0] != len(self.documents):
            raise ValueError(f"targets have {self.targets.shape[0]} rows for {len(self.documents)} documents")
        if self.groups is not None and len(self.groups) != len(self.documents):
            raise ValueError(f"{len(self.groups)} groups for {len(self.documents)} documents")

    def __len__(self) -> int:
        return len(self.documents)

    def __repr__(self) -> str:
        masked = f", {len(self.masked):,} masked" if len(self.masked) else ""
        return f"Split({len(self):,} documents, {self.targets.nnz:,} of {self.targets.shape[1]:,} labels{masked})"

    def rows(self, index: I64) -> Split:
        """The documents at `index`, in that order, with their masked and known pairs renumbered."""
        position = np.full(len(self), -1, dtype=np.int64)
        position[index] = np.arange(len(index))

        def moved(pairs: I64) -> I64:
            kept = pairs[position[pairs[:, 0]] >= 0]
            renumbered = np.stack([position[kept[:, 0]], kept[:, 1]], axis=1)
            return renumbered[np.argsort(renumbered[:, 0], kind="stable")]

        groups = None if self.groups is None else [self.groups[i] for i in index.tolist()]
        return Split(self.documents.rows(index), self.targets[index], moved(self.masked), moved(self.known), groups)

    def group_of_each(self, column: str) -> Sequence[str]:
        """The text field called `column`; where there is none, the groups that the data came with."""
        found = self.documents.fields.get(column, self.groups)
        if found is None:
            raise ConfigError(
                f"no groups: '{column}' is none of the text fields ({', '.join(self.documents.fields) or 'none'})",
                "name a column of the table when it is read (--group COLUMN), or give Split.groups",
            )
        return found


@dataclass(frozen=True)
class Graph:
    """Metadata that links training documents and labels to anchors, or labels to labels. Never test documents.

    documents: (N, M) CSR, or None.  labels: (L, M) CSR, or None.  label_label: (L, L) CSR, or None.
    """

    name: str
    anchors: Items | None = None
    documents: Annotated[Csr, Shaped("_", "anchors")] | None = None
    labels: Annotated[Csr, Shaped("labels", "anchors")] | None = None
    label_label: Annotated[Csr, Shaped("labels", "labels")] | None = None

    def __repr__(self) -> str:
        sides = {"documents": self.documents, "labels": self.labels, "label_label": self.label_label}
        edges = [f", {side} {matrix.nnz:,}" for side, matrix in sides.items() if matrix is not None]
        return f"Graph({named(self.name)}{''.join(edges)} edges)"

    def document_rows(self, index: I64) -> Graph:
        return self if self.documents is None else replace(self, documents=self.documents[index])


@dataclass(frozen=True)
class Dataset:
    """Labels, training documents, and where given test documents and graphs.

    repairs: what readers mended and how often, e.g. ``{"documents without text dropped": 3}``; shown to the user.
    digest: SHA-256 of the content; names the data in every result.
    columns: what the columns of a table were read as; None where the data is no table.
    vocabulary: the file that gave the labels, where one did.
    notes: what a reader found doubtful, a sentence each; shown to the user as warnings.
    """

    name: str
    labels: Items
    train: Split
    test: Split | None = None
    graphs: Mapping[str, Graph] = field(default_factory=dict)
    repairs: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""
    columns: Columns | None = None
    vocabulary: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for split in (self.train, self.test):
            if split is not None and split.targets.shape[1] != len(self.labels):
                raise ValueError(f"targets have {split.targets.shape[1]} columns for {len(self.labels)} labels")

    def about(self) -> dict[str, str]:
        """What there is, and how much of it, for people."""
        documents, each = len(self.train), self.train.targets.nnz / max(len(self.train), 1)
        facts = {"documents": f"{documents:,}", "labels": f"{len(self.labels):,}", "labels per document": f"{each:.1f}"}
        if self.test is not None:
            facts["test documents"] = f"{len(self.test):,}"
        if self.graphs:
            facts["graphs"] = f"{len(self.graphs)}"
        return facts

    def __repr__(self) -> str:
        return f"Dataset({named(self.name)}, {', '.join(f'{count} {what}' for what, count in self.about().items())})"

    def _repr_html_(self) -> str:
        return facts_as_html(f"Dataset {self.name}", self.about())

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str] | Sequence[Mapping[str, str]],
        labels: Sequence[Sequence[str]],
        label_texts: Mapping[str, str] | None = None,
        graphs: Mapping[str, Any] | None = None,
        *,
        test_texts: Sequence[str] | Sequence[Mapping[str, str]] | None = None,
        test_labels: Sequence[Sequence[str]] | None = None,
        name: str = "texts",
    ) -> Dataset:
        """A data set from Python lists: a text (or a dict of text fields) and a list of label ids per document.

        label_texts: a text per label id. graphs: see `longtail.data.from_texts.from_texts`, which does the work.
        """
        from longtail.data.from_texts import from_texts

        return from_texts(texts, labels, label_texts, graphs, test_texts=test_texts, test_labels=test_labels, name=name)

    def hold_out(self, share: float, seed: int, group: str | None = None) -> Dataset:
        """Training documents split by seed: `share` of them become the test side. The real test side is not touched.

        This is how everything is chosen: on a slice of the training data, never on the test split. See
        `held_out_rows` for which documents, `with_test_rows` for what the slice is like.
        """
        slice_of = self.with_test_rows(self.held_out_rows(share, seed, group))
        by = "" if group is None else f" by {group}"
        return replace(slice_of, name=f"{self.name}[held out {share:g}{by}, seed {seed}]")

    def held_out_rows(self, share: float, seed: int, group: str | None = None) -> I64:
        """Which training documents `hold_out` takes: by chance, or where a group column is named, whole groups of
        them.

        Groups are taken in random order as long as they fit into the share; documents without one are groups of their
        own.
        """
        n = len(self.train)
        held = round(n * share) if math.isfinite(share) else 0
        if not 0 < held < n:
            raise ConfigError(
                f"a validation share of {share:g} of {n} training documents is {held}",
                "use a share between 0 and 1 that leaves documents on both sides, or more data",
            )
        rng = np.random.default_rng([seed, 0x7A11])
        if group is None:
            return np.sort(rng.permutation(n)[:held])
        group_of = self.train.group_of_each(group)
        numbers: dict[object, int] = {}
        of_document = np.array([numbers.setdefault(name or (row,), len(numbers)) for row, name in enumerate(group_of)])
        if not any(group_of):
            raise ConfigError(f"the group column '{group}' is empty", "hold out by another column, or without --group")
        if len(numbers) < 2:
            raise ConfigError(
                f"all {n} training documents are of one group of '{group}' ({group_of[0]!r})",
                "hold out by another column, or without --group",
            )
        sizes = np.bincount(of_document)
        taken, room = np.zeros(len(sizes), dtype=np.bool_), held
        for number in rng.permutation(len(sizes)).tolist():
            if sizes[number] <= room:
                taken[number], room = True, room - int(sizes[number])
        if not taken.any():
            taken[np.argmin(sizes)] = True
        return np.flatnonzero(taken[of_document])

    def with_test_rows(self, rows: I64) -> Dataset:
        """The training documents at `rows` become the test side, the others are left for training.

        It is like a test split: pairs whose reverse is left in training are masked (a choice would be made by who
        copies best), labels that no training document is left of are not asked for (a choice would be made by who
        guesses them from their text), nor are documents of such labels alone. Anchors that are held-out documents
        leave the graphs, as test documents do when data is read.
        """
        from longtail.data.graph_files import drop_test_anchors
        from longtail.data.identity import check_reciprocal

        left = self.with_training_rows(np.setdiff1d(np.arange(len(self.train)), rows))
        out = self.train.rows(rows)
        seen = np.bincount(left.train.targets.indices, minlength=len(self.labels)) > 0
        asked = out.targets.multiply(seen[None, :].astype(np.float32)).tocsr()
        asked.eliminate_zeros()
        slice_of = replace(
            left,
            test=replace(out, targets=asked).rows(np.flatnonzero(np.diff(asked.indptr) > 0)),
            graphs={name: drop_test_anchors(graph, out.documents)[0] for name, graph in left.graphs.items()},
        )
        test = slice_of.need_test()
        if not len(test):
            raise ConfigError(
                f"none of the {len(rows)} documents that were held out has a label that is left in training",
                "use another share or seed, or more documents per label",
            )
        masked = np.unique(np.concatenate([test.masked, check_reciprocal(slice_of).test]), axis=0)
        return replace(slice_of, test=replace(test, masked=masked))

    def with_training_rows(self, rows: I64) -> Dataset:
        """The same labels and test side; of the training documents those at `rows`."""
        graphs = {name: graph.document_rows(rows) for name, graph in self.graphs.items()}
        return replace(self, train=self.train.rows(rows), graphs=graphs)

    def remarks(self) -> list[str]:
        """For people: what the columns of a table were read as, and what is doubtful about it."""
        return [*([] if self.columns is None else [self.columns.line()]), *(f"warning: {note}" for note in self.notes)]

    def need_test(self) -> Split:
        if self.test is None:
            raise DataError(
                f"the data set '{self.name}' has no test documents",
                "add tst.json.gz to a folder; of a table name both files: TRAIN.csv --test TEST.csv",
            )
        return self.test
