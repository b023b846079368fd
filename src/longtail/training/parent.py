"""Going on from a trained model (`train --from`): the training set when labels, words and documents of before stay.

Labels of before keep their places, new ones follow. Words of before keep their weights, new ones are added. Documents
of before are rehearsed where the run that made the model still has them as numbers (``RUN/stages/0_prepare``), so that
nothing is forgotten: only their texts are gone. A document that the new data has again counts once, with the labels
that the new data gives it; it is known by the words of before. Graphs are not used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from longtail.bundle import Bundle
from longtail.data.dataset import Dataset, Items, no_pairs
from longtail.errors import ConfigError
from longtail.features.sparse import SparseText
from longtail.metrics import drop_masked_targets
from longtail.persistence import StringTable, load_part
from longtail.training.prepare import TrainingSet, prepare
from longtail.types import F32, I64, Batch, BoolArray, Csr


@dataclass(frozen=True)
class ParentModel:
    """The model to go on from.  old: its training set, where the run has it."""

    bundle: Bundle
    old: TrainingSet | None

    @classmethod
    def of(cls, bundle: Bundle) -> ParentModel:
        """The bundle of a run, or one that lies alone."""
        if not isinstance(bundle.featurizer, SparseText) or not bundle.featurizer.can_be_extended:
            raise ConfigError(
                f"{bundle.folder}: a model that reads more than plain words, or none, cannot be gone on from",
                "train anew; texts as words, pairs and characters can be extended, not pieces of words, given vectors "
                "or a view (features.view)",
            )
        return cls(bundle, training_set_of(bundle))

    @property
    def featurizer(self) -> SparseText:
        assert isinstance(self.bundle.featurizer, SparseText), "`of` checks this"
        return self.bundle.featurizer

    @property
    def n_labels(self) -> int:
        return len(self.bundle.labels)

    def rows(self) -> F32:
        """(L, D + 1) of the labels of before."""
        rows = self.bundle.ranker.label_vectors()
        if rows is None:
            raise ConfigError(f"{self.bundle.folder}: has no rows to go on from", "train anew")
        return rows

    def unknown(self, documents: Items) -> BoolArray:
        """(n,): which documents this model was not trained on; only these can tell how good its successor is."""
        if self.old is None:
            raise ConfigError(
                f"{self.bundle.folder}: which documents this model was trained on is not known without its run, so "
                "none can be held out",
                "go on from the run, or leave --holdout out",
            )
        return ~trained_on(self.old, documents)

    def training_set(self, data: Dataset, features: Any) -> TrainingSet:
        """What is trained on: the documents of `data`, and those of before."""
        labels = self._labels(data)
        number = {uid: place for place, uid in enumerate(labels.uids)}
        before = 0 if self.old is None else self.old.n_documents
        reads = self.featurizer.extended(data.train.documents, data.labels, before)
        # What is dropped, masked and the same is found as for any training; numbers are ours.
        plain = prepare(data, features)
        ours = np.array([number[uid] for uid in data.labels.uids], dtype=np.int64)
        documents = reads.batch(_readable(data.train.documents.rows(plain.rows), reads.fields)).sparse
        targets = _columns(drop_masked_targets(data.train.targets, data.train.masked)[plain.rows], ours, len(labels))
        masked, same = (_pairs(pairs, ours) for pairs in (plain.masked, plain.same))
        rows = plain.rows
        if self.old is not None and self.old.documents.sparse is not None:
            old, theirs = self.old, self.old.featurizer
            assert isinstance(theirs, SparseText), "as the bundle's"
            again = reads.moved(old.documents.sparse, theirs)
            # By the words of before: those that join now were never looked for in documents of before.
            here = theirs.batch(_readable(data.train.documents.rows(plain.rows), theirs.fields)).sparse
            kept = np.flatnonzero(~_same_rows(old.documents.sparse, here))
            shown = self._numbers_of_old()
            kept = kept[np.asarray(_columns(old.targets[kept], shown, len(labels)).sum(axis=1)).ravel() > 0]
            documents, targets = (
                _stacked(documents, again[kept]),
                _stacked(targets, _columns(old.targets[kept], shown, len(labels))),
            )
            place = np.full(old.n_documents, -1, dtype=np.int64)
            place[kept] = len(plain.rows) + np.arange(len(kept))
            masked = np.concatenate([masked, _moved(old.masked, place, shown)])
            same = np.concatenate([same, _moved(old.same, place, shown)])
            rows = np.concatenate([rows, np.full(len(kept), -1, dtype=np.int64)])
        texts = reads.label_batch(labels)
        return TrainingSet(
            featurizer=reads,
            documents=Batch(sparse=documents),
            targets=targets,
            masked=masked,
            labels=labels,
            label_texts=texts,
            graphs={},
            rows=rows,
            dropped=plain.dropped,
            same=same,
        )

    def _labels(self, data: Dataset) -> Items:
        """Those of before with their names, and those that are new."""
        known, names = set(self.bundle.labels.uids), list(self.bundle.labels.names)
        new = [row for row, uid in enumerate(data.labels.uids) if uid not in known]
        titles = data.labels.titles()
        given = {uid: titles[row] for row, uid in enumerate(data.labels.uids) if titles[row]}
        fields = self.featurizer.config.label_fields or ("title",)
        texts = [given.get(uid, name) for uid, name in zip(self.bundle.labels.uids, names, strict=True)]
        texts += [titles[row] for row in new]
        uids = [*self.bundle.labels.uids, *(data.labels.uids[row] for row in new)]
        empty = StringTable.of([""] * len(uids))
        return Items(StringTable.of(uids), dict.fromkeys(fields, empty) | {fields[0]: StringTable.of(texts)})

    def _numbers_of_old(self) -> I64:
        """(labels of the old training set,): their numbers now; -1: retired since."""
        assert self.old is not None
        number: Mapping[str, int] = {uid: place for place, uid in enumerate(self.bundle.labels.uids)}
        places = getattr(self.bundle.ranker, "places", None)
        if places is not None:
            return np.asarray(places[: self.old.n_labels], dtype=np.int64)
        return np.array([number.get(uid, -1) for uid in self.old.labels.uids], dtype=np.int64)


def training_set_of(bundle: Bundle) -> TrainingSet | None:
    """What the bundle of a run was trained on, as numbers; None for a bundle that lies alone."""
    folder = bundle.folder.parent / "stages" / "0_prepare"
    found = load_part(folder) if bundle.folder.name == "bundle" and folder.is_dir() else None
    return found if isinstance(found, TrainingSet) else None


def trained_on(known: TrainingSet, documents: Items) -> BoolArray:
    """(n,): which documents have exactly the features of one of `known`."""
    reads = known.featurizer
    if known.documents.sparse is None or not isinstance(reads, SparseText):
        return np.zeros(len(documents), dtype=np.bool_)
    return _same_rows(reads.batch(_readable(documents, reads.fields)).sparse, known.documents.sparse)


def _readable(documents: Items, fields: tuple[str, ...]) -> Items:
    """A field that documents lack is empty; the only text is the first field."""
    given = dict(documents.fields)
    if len(given) == 1 and given.keys().isdisjoint(fields):
        given = {fields[0]: next(iter(given.values()))}
    return replace(documents, fields={name: given.get(name, [""] * len(documents)) for name in fields})


def _columns(targets: Csr, numbers: I64, labels: int) -> Csr:
    """(N, labels): columns under other numbers; -1 is left out."""
    from scipy.sparse import csr_array

    found = targets.tocoo()
    kept = numbers[found.col] >= 0
    moved = csr_array(
        (np.ones(int(kept.sum()), np.float32), (found.row[kept], numbers[found.col[kept]])),
        shape=(targets.shape[0], labels),
    )
    moved.sum_duplicates()
    moved.data[:] = 1
    moved.sort_indices()
    return moved


def _pairs(pairs: I64, numbers: I64) -> I64:
    return np.stack([pairs[:, 0], numbers[pairs[:, 1]]], axis=1) if len(pairs) else no_pairs()


def _moved(pairs: I64, places: I64, numbers: I64) -> I64:
    found = np.stack([places[pairs[:, 0]], numbers[pairs[:, 1]]], axis=1) if len(pairs) else no_pairs()
    return found[(found >= 0).all(axis=1)]


def _stacked(first: Csr, second: Csr) -> Csr:
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack([first, second], format="csr"))


def _same_rows(rows: Csr, others: Csr) -> BoolArray:
    """(n,) which rows have exactly the features of one of the others."""

    def content(matrix: Csr, row: int) -> bytes:
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        return bytes(matrix.indices[part].astype(np.int32).tobytes())

    there = {content(others, row) for row in range(others.shape[0])}
    return np.array([content(rows, row) in there for row in range(rows.shape[0])], dtype=np.bool_)
