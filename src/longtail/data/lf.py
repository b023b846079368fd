"""The raw LF layout: a folder with

    trn.json.gz, tst.json.gz    a document per line: uid, title, content, ..., target_ind (label numbers), target_rel
    lbl.json.gz                 a label per line: uid, title, content, ...; its number is its line, from 0
    filter_labels_{trn,tst}.txt pairs ``document label`` to mask
    graphs/<name>/              see `graph_files`

``.json`` and ``.jsonl``, plain or gzip, are read alike. Without ``tst`` there is no test side.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.dataset import Dataset, Items, Split
from longtail.data.folders import LABELS, TEST, TRAIN, assemble, write_shared
from longtail.data.from_texts import shown
from longtail.data.graph_files import find_json, have_anchors, item_lines
from longtail.data.json_lines import ItemColumns, read_items, records
from longtail.data.lines import new_folder, write_lines
from longtail.data.matrices import as_targets
from longtail.errors import ConfigError, DataError
from longtail.types import I64, Csr

_LAYOUT = "a data set in the LF layout is a folder with trn.json.gz, lbl.json.gz, and where given tst.json.gz, filter_labels_*.txt and graphs/"
_TARGETS = ("target_ind", "target_rel")


def read_lf(folder: Path | str, *, test: bool = True) -> Dataset:
    """Read a folder in the LF layout.

    test: without it, the test side is not read; only its uids and titles are, where a graph has anchors to check.
    """
    folder, repairs = Path(folder), Counter[str]()
    labels_file, train_file, test_file = (find_json(folder, stem) for stem in (LABELS, TRAIN, TEST))
    if labels_file is None or train_file is None:
        raise DataError(f"{TRAIN if train_file is None else LABELS}.json.gz is missing", _LAYOUT, file=folder)
    labels = _not_empty(read_items(labels_file, repairs), labels_file)
    train = read_split(train_file, len(labels), repairs)
    held = read_split(test_file, len(labels), repairs) if test and test_file is not None else None
    unseen = held.documents if held is not None else read_items(test_file, repairs) if test_file is not None and have_anchors(folder) else None
    return assemble(folder, labels, train, held, unseen, repairs)


def read_split(path: Path, labels: int, repairs: Counter[str]) -> Split:
    """Documents with their targets, in the order of the file. Nothing is masked yet."""
    columns, targets = ItemColumns(path), _Targets(path)
    for record in records(path):
        targets.add(record)
        columns.add(record)
    return Split(_not_empty(columns.items(repairs), path), targets.matrix(labels, repairs))


def _not_empty(items: Items, path: Path) -> Items:
    if not len(items):
        raise DataError("the file is empty", "it must hold at least one line", file=path)
    return items


@dataclass
class _Targets:
    """Label numbers and relevances of all documents, flat; checked after the last one."""

    path: Path
    numbers: list[Any] = field(default_factory=list)
    relevance: list[Any] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])

    def add(self, record: dict[str, Any]) -> None:
        numbers, relevance = record.pop("target_ind", None), record.pop("target_rel", None)
        if type(numbers) is not list:
            wrong = "there is no target_ind" if numbers is None else f"target_ind is {shown(numbers)}"
            raise self._error(len(self.ends), f"{wrong}, expected a list of label numbers", "[] where a document has no label")
        self.numbers += numbers
        if relevance is None:
            self.relevance += [1.0] * len(numbers)
        elif type(relevance) is list and len(relevance) == len(numbers):
            self.relevance += relevance
        else:
            found = f"has {len(relevance)} entries" if type(relevance) is list else f"is {shown(relevance)}"
            raise self._error(len(self.ends), f"target_rel {found}, expected {len(numbers)} numbers, as target_ind has", "leave target_rel out if all are 1")
        self.ends.append(len(self.numbers))

    def matrix(self, labels: int, repairs: Counter[str]) -> Csr:
        """(N, L) CSR of ones."""
        from scipy.sparse import csr_array

        indices = self._label_numbers(labels)
        return as_targets(csr_array((self._relevances(), indices, np.array(self.ends)), shape=(len(self.ends) - 1, labels)), repairs)

    def _label_numbers(self, labels: int) -> I64:
        if not set(map(type, self.numbers)) <= {int}:
            raise self._error_where([type(number) is not int for number in self.numbers], "target_ind holds {}, expected label numbers", "write whole numbers")
        try:
            indices = np.array(self.numbers, dtype=np.int64)
        except OverflowError:
            indices = np.array([min(max(number, -1), labels) for number in self.numbers], dtype=np.int64)
        if len(indices) and (indices.min() < 0 or indices.max() >= labels):
            raise self._error_where(
                (indices < 0) | (indices >= labels),
                f"label {{}} is outside 0..{labels - 1}",
                f"the file of labels has {labels} lines, and numbers count from 0",
            )
        return indices

    def _relevances(self) -> Any:
        expected = "target_rel holds {}, expected finite numbers"
        if not set(map(type, self.relevance)) <= {int, float}:
            wrong = [type(value) not in (int, float) for value in self.relevance]
            raise self._error_where(wrong, expected, "leave target_rel out if all are 1", self.relevance)
        try:
            values = np.array(self.relevance, dtype=np.float64)
        except OverflowError:
            values = np.array([min(max(value, -1), 1) for value in self.relevance], dtype=np.float64)
        if not np.isfinite(values).all():
            raise self._error_where(~np.isfinite(values), expected, "leave target_rel out if all are 1", self.relevance)
        return values

    def _error_where(self, wrong: Any, message: str, hint: str, values: list[Any] | None = None) -> DataError:
        position = int(np.argmax(wrong))
        line = int(np.searchsorted(np.array(self.ends), position, side="right"))
        return self._error(line, message.format(shown((self.numbers if values is None else values)[position])), hint)

    def _error(self, line: int, message: str, hint: str) -> DataError:
        return DataError(message, hint, file=self.path, line=line)


# ---- writing ----


def write_lf(dataset: Dataset, folder: Path | str) -> None:
    """Write a new folder that `read_lf` reads back as the same data set. Equal data gives equal bytes."""
    folder = Path(folder)
    splits = {side: split for side, split in ((TRAIN, dataset.train), (TEST, dataset.test)) if split is not None}
    for items in (dataset.labels, *(split.documents for split in splits.values())):
        _check_can_be_held(items)
    with new_folder(folder) as aside:
        write_lines(aside / f"{LABELS}.json.gz", item_lines(dataset.labels))
        for side, split in splits.items():
            write_lines(aside / f"{side}.json.gz", _document_lines(split))
        write_shared(aside, dataset)


def _check_can_be_held(items: Items) -> None:
    if items.vectors is not None:
        raise ConfigError("the LF layout holds text, and the data has vectors", "write npz (or split) instead")
    reserved = {"uid", *_TARGETS} & set(items.fields)
    if reserved:
        raise ConfigError(f"a text field cannot be called '{min(reserved)}' in the LF layout", "give the field another name")


def _document_lines(split: Split) -> Iterator[str]:
    labels, indptr = split.targets.indices.tolist(), split.targets.indptr.tolist()
    for item, (start, end) in zip(item_lines(split.documents), pairwise(indptr), strict=True):
        # The object is continued rather than built twice: "{...}" loses its brace and gets the targets.
        yield f'{item[:-1]}, "target_ind": {json.dumps(labels[start:end])}, "target_rel": {json.dumps([1.0] * (end - start))}}}'
