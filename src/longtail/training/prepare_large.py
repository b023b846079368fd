"""Stage 0 for data that is read in parts: features of all documents on the disk, and a `TrainingSet` of a sample.

Two readings: the first counts features (`SparseText.fit_parts`), the second packs documents as numbers
(`longtail.data.mapped`). Of the memory that was allowed counting has a half. After that a half is for the sample
and what is made of it (label graph, votes of similar documents, examples), and a quarter for two windows of documents
that training steps draw from. What is left is for the part that is read.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.dataset import Items, Split
from longtail.data.identity import same_titles
from longtail.data.large import LargeData, Tables
from longtail.data.mapped import MASKED, SAME, TARGET, DocumentsOnDisk, DocumentsWriter, labels_by_marks
from longtail.errors import ConfigError, DataError
from longtail.features.sparse import SparseText, with_fields
from longtail.graph.company import TEXT
from longtail.metrics import drop_masked_targets
from longtail.persistence import StringTable, load_part, save_part
from longtail.training.prepare import TrainingSet
from longtail.types import I64, Batch, BoolArray, Csr

_SILENCE = 30  # seconds
_EVERYTHING, _EXAMPLES = "everything", "examples"
# Bytes of memory, about: of a feature while features are counted; of the sample for each feature and pair of a
# document, and for its text; of a document in a window for each feature and pair.
_COUNTED, _SAMPLED, _SAMPLED_PAIR, _SAMPLED_TEXT, _DRAWN, _DRAWN_PAIR = 256, 48, 64, 300, 8, 5


def pack(
    data: LargeData, features: Any, folder: Path, check: Callable[[int, int], None], say: Callable[[str], None]
) -> Sequence[str]:
    """Make the stage in `folder`, which is not there yet; gives the fields of documents that are read. check: told the
    numbers of features and labels before documents are packed, so that it can refuse a model that would be too large.
    """
    features = _fitting(features).for_columns(data.columns)
    say("reading the documents, to count their words")
    pairs = 0

    def documents() -> Iterator[Items]:
        nonlocal pairs
        for part in _told(data.parts(data.repairs), say):
            pairs += int(part.targets.nnz) + len(part.masked)
            yield part.documents

    featurizer, counted = SparseText.fit_parts(
        documents(),
        lambda: data.labels,
        features.sparse_text(),
        max(1 << 10, data.memory // 2 // _COUNTED),
    )
    if counted.forgotten:
        say(
            f"note: there are more words, pairs and characters than --memory has room for; those seen up to "
            f"{counted.forgotten} times may have been forgotten"
        )
    check(featurizer.width, len(data.labels))
    say("reading the documents, to pack their features")
    aside = folder.with_name(f"{folder.name}.{_EVERYTHING}")
    needed = _SAMPLED * counted.entries + _SAMPLED_PAIR * pairs + _SAMPLED_TEXT * counted.documents
    share = min(1.0, data.memory / 2 / max(needed, 1))
    sample, texts = _packed(data, featurizer, Sample(counted.documents, round(share * counted.documents)), aside, say)
    if sample.n_documents < (documents_there := len(DocumentsOnDisk(aside))):
        say(
            f"note: {documents_there:,} documents are on the disk; a sample of {sample.n_documents:,} gives what has "
            "to be in memory: label graph, votes of similar documents, company and examples of labels"
        )
    save_part(sample, folder)
    os.rename(aside, folder / _EVERYTHING)
    save_part(StringTable.of(texts.uids), folder / _EXAMPLES / "uids")
    save_part(StringTable.of(texts.fields["title"]), folder / _EXAMPLES / "titles")
    return featurizer.fields


def opened(folder: Path) -> TrainingSet:
    """What `pack` made."""
    sample: TrainingSet = load_part(folder)
    return replace(sample, everything=DocumentsOnDisk(folder / _EVERYTHING))


def sampled_texts(folder: Path) -> Items:
    """Ids and the beginnings of titles of the documents of the sample."""
    texts = folder / _EXAMPLES
    return Items(load_part(texts / "uids"), {"title": load_part(texts / "titles")})


def _fitting(features: Any) -> Any:
    """Features that can be counted part by part; others are refused."""
    if features.source == "vectors":
        raise ConfigError("features.source is 'vectors', and data is read in parts as texts", "leave it at auto")
    wrong = {
        "features.subwords=wordpiece": features.subwords == "wordpiece",
        f"features.view={getattr(features, 'view', 'none')}": getattr(features, "view", "none") != "none",
        "features.max_tokens": bool(features.max_tokens),
    }
    for name, asked in wrong.items():
        if asked:
            raise ConfigError(f"{name}, and the data is read in parts (--memory)", "leave it out, or give more memory")
    return features


def _told(parts: Iterable[Split], say: Callable[[str], None]) -> Iterator[Split]:
    """The same; now and then it is said how far it is."""
    documents, last = 0, time.monotonic()
    for part in parts:
        yield part
        documents += len(part)
        if time.monotonic() - last > _SILENCE:
            last = time.monotonic()
            say(f"{documents:,} documents")


@dataclass(frozen=True)
class Sample:
    """`size` of `documents`, evenly spread; at least one."""

    documents: int
    size: int

    def has(self, rows: I64) -> BoolArray:
        size = max(1, self.size)
        chosen: BoolArray = rows * size // self.documents != (rows - 1) * size // self.documents
        return chosen


def _packed(
    data: LargeData, featurizer: SparseText, sample: Sample, folder: Path, say: Callable[[str], None]
) -> tuple[TrainingSet, Items]:
    """Writes all documents, and gives those of the sample with their texts."""
    from scipy.sparse import csr_array, vstack

    labels, dropped, texts = data.labels, Counter[str](), Tables()
    found: list[tuple[I64, Csr, Csr]] = []  # of the sample: rows in the data, features, marked labels
    first = pairs = 0
    with DocumentsWriter(folder, len(labels)) as writer:
        for part in _told(data.parts(), say):
            kept, features, marked = _numbers(part, featurizer, labels, dropped)
            chosen = np.flatnonzero(sample.has(first + kept))
            found.append((first + kept[chosen], features[chosen], marked[chosen]))
            texts.add(_beginnings(part.documents.rows(kept[chosen])))
            writer.add(features, marked)
            first, pairs = first + len(part), pairs + int(marked.nnz)
        if not writer.documents:
            raise DataError(
                f"'{data.name}' has no training document with both a label and a feature ({first} documents)",
                "check the text and label columns with 'longtail data check'",
            )
        each = 16 + (_DRAWN * writer.entries + _DRAWN_PAIR * pairs) / writer.documents
        writer.finish(featurizer.width, max(1, int(data.memory / 8 / each)))
    rows, sampled, marks = zip(*found, strict=True)
    targets, masked, same = labels_by_marks(csr_array(vstack(marks, format="csr")))
    return (
        TrainingSet(
            featurizer=featurizer,
            documents=Batch(sparse=csr_array(vstack(sampled, format="csr"))),
            targets=targets,
            masked=masked,
            labels=Items(
                StringTable.of(labels.uids), {name: StringTable.of(own) for name, own in labels.fields.items()}
            ),
            label_texts=featurizer.label_batch(labels),
            graphs={},
            rows=np.concatenate(rows),
            dropped=dict(dropped),
            same=same,
        ),
        texts.items(),
    )


def _numbers(part: Split, featurizer: SparseText, labels: Items, dropped: Counter[str]) -> tuple[I64, Csr, Csr]:
    """Which documents have a label and a feature, as in `prepare`; their features, and their pairs as
    `DocumentsOnDisk` has them.
    """
    features: Csr = featurizer.batch(with_fields(part.documents, featurizer.fields)).sparse
    targets = drop_masked_targets(part.targets, part.masked)
    has_label, has_feature = np.diff(targets.indptr) > 0, np.diff(features.indptr) > 0
    kept = np.flatnonzero(has_label & has_feature)
    dropped["training documents without a label"] += int((~has_label).sum())
    dropped["training documents with a label but without a known word"] += int((has_label & ~has_feature).sum())
    dropped["masked pairs taken out of the training targets"] += int(part.targets.nnz - targets.nnz)
    same = same_titles(part.documents, labels, part.masked)
    return kept, features[kept], _marked(targets, part.masked, same)[kept]


def _marked(targets: Csr, masked: I64, same: I64) -> Csr:
    """(n, L) CSR of `TARGET`, `MASKED` and `SAME`; same: some of the masked pairs."""
    from scipy.sparse import csr_array

    if not len(masked):
        return csr_array((np.full(targets.nnz, TARGET, np.int8), targets.indices, targets.indptr), shape=targets.shape)
    found = targets.tocoo()
    is_same = np.isin(masked @ [targets.shape[1], 1], same @ [targets.shape[1], 1])
    marks = np.concatenate([np.full(targets.nnz, TARGET), np.where(is_same, SAME, MASKED)]).astype(np.int8)
    places = np.concatenate([found.row, masked[:, 0]]), np.concatenate([found.col, masked[:, 1]])
    matrix = csr_array((marks, places), shape=targets.shape)
    matrix.sort_indices()
    return matrix


def _beginnings(documents: Items) -> Items:
    """As examples of labels show them."""
    return Items(documents.uids, {"title": [documents.name(row)[:TEXT] for row in range(len(documents))]})
