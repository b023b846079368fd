"""The raw LF layout: a folder with

    trn.json.gz, tst.json.gz    a document per line: uid, title, content, ..., target_ind (label numbers), target_rel
    lbl.json.gz                 a label per line: uid, title, content, ...; its number is its line, from 0
    filter_labels_{trn,tst}.txt pairs ``document label`` to mask
    graphs/<name>/              see `graph_files`

``.json`` and ``.jsonl``, plain or gzip, are read alike. Without ``tst`` there is no test side.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.dataset import Dataset, Items, Split
from longtail.data.folders import LABELS, TEST, TRAIN, assemble, write_shared
from longtail.data.from_texts import shown
from longtail.data.graph_files import find_json, have_anchors, item_lines
from longtail.data.lines import ItemColumns, Record, new_folder, read_items, records, write_lines
from longtail.data.matrices import as_targets, make_csr
from longtail.errors import ConfigError, DataError
from longtail.types import F32, I64, Csr

_LAYOUT = (
    "a data set in the LF layout is a folder with trn.json.gz, lbl.json.gz, and where given tst.json.gz, "
    "filter_labels_*.txt and graphs/"
)
_TARGETS = ("target_ind", "target_rel")
_ALL_ONES = "leave target_rel out if all are 1"


def read_lf(folder: Path | str, *, test: bool = True) -> Dataset:
    """Read a folder in the LF layout.

    test: without it, the test side is not read; only its uids and titles are, where a graph has anchors to check.
    """
    folder, repairs = Path(folder), Counter[str]()
    labels_file, train_file = needed_files(folder)
    test_file = find_json(folder, TEST)
    labels = _not_empty(read_items(labels_file, repairs), labels_file)
    train = read_split(train_file, len(labels), repairs)
    held = read_split(test_file, len(labels), repairs) if test and test_file is not None else None
    unseen = (
        held.documents
        if held is not None
        else read_items(test_file, repairs, _TARGETS)
        if test_file is not None and have_anchors(folder)
        else None
    )
    return assemble(folder, labels, train, held, unseen, repairs)


def needed_files(folder: Path) -> tuple[Path, Path]:
    """Those of labels and of training documents."""
    labels, train = find_json(folder, LABELS), find_json(folder, TRAIN)
    if labels is None or train is None:
        raise DataError(f"{TRAIN if train is None else LABELS}.json.gz is missing", _LAYOUT, file=folder)
    return labels, train


def read_split(path: Path, labels: int, repairs: Counter[str]) -> Split:
    """Documents with their targets, in the order of the file. Nothing is masked yet."""
    split = split_of(path, records(path), labels, repairs)
    _not_empty(split.documents, path)
    return split


def split_of(path: Path, found: Iterable[Record], labels: int, repairs: Counter[str], before: int = 0) -> Split:
    """The records of a file, or those that follow `before` others of it, as documents with their targets."""
    columns, targets = ItemColumns(path, before=before), _Targets(path, before)
    columns.fill(targets.taken_from(found))
    return Split(columns.items(repairs), targets.matrix(labels, repairs))


def _not_empty(items: Items, path: Path) -> Items:
    if not len(items):
        raise DataError("the file is empty", "it must hold at least one line", file=path)
    return items


class _Targets:
    """Label numbers of all documents, flat; checked after the last one. Relevances are kept only where one is not 1.

    before: lines of the file before the first document.
    """

    def __init__(self, path: Path, before: int = 0) -> None:
        self.path, self.before = path, before
        self.numbers: list[Any] = []
        self.ends = [0]
        self.places: list[int] = []  # of the relevances among the numbers
        self.relevance: list[Any] = []

    def taken_from(self, records: Iterable[Record]) -> Iterator[Record]:
        """Takes the targets out of every record that passes."""
        numbers, end = self.numbers, self.ends.append
        for record in records:
            own, relevance = record.pop("target_ind", None), record.pop("target_rel", None)
            if type(own) is not list or (
                relevance is not None and (type(relevance) is not list or len(relevance) != len(own))
            ):
                raise self._not_lists(own, relevance)
            if relevance is not None and relevance.count(1.0) != len(own):
                self.places += range(len(numbers), len(numbers) + len(own))
                self.relevance += relevance
            numbers += own
            end(len(numbers))
            yield record

    def _not_lists(self, own: Any, relevance: Any) -> DataError:
        line = len(self.ends)
        if type(own) is not list:
            wrong = "there is no target_ind" if own is None else f"target_ind is {shown(own)}"
            return self._error(
                line, f"{wrong}, expected a list of label numbers", "write [] where a document has no label"
            )
        found = f"has {len(relevance)} entries" if type(relevance) is list else f"is {shown(relevance)}"
        return self._error(
            line, f"target_rel {found}, expected a list of {len(own)} numbers, one for each of target_ind", _ALL_ONES
        )

    def matrix(self, labels: int, repairs: Counter[str]) -> Csr:
        """(N, L) CSR of ones."""
        values, numbers, ends = self._relevances(), self._label_numbers(labels), np.array(self.ends)
        return as_targets(make_csr(values, numbers, ends, (len(ends) - 1, labels)), repairs)

    def _label_numbers(self, labels: int) -> I64:
        if not set(map(type, self.numbers)) <= {int}:
            place = next(place for place, number in enumerate(self.numbers) if type(number) is not int)
            raise self._error_at(
                place, f"target_ind holds {shown(self.numbers[place])}, expected label numbers", "write whole numbers"
            )
        try:
            numbers = np.array(self.numbers, dtype=np.int64)
            outside = (numbers < 0) | (numbers >= labels)
        except OverflowError:
            outside = np.array([not 0 <= number < labels for number in self.numbers])
        if outside.any():
            place = int(np.argmax(outside))
            hint = f"the file of labels has {labels} lines, and numbers count from 0"
            raise self._error_at(place, f"label {shown(self.numbers[place])} is outside 0..{labels - 1}", hint)
        return numbers

    def _relevances(self) -> F32:
        """1, 0 or less, per label number."""
        values = np.ones(len(self.numbers), dtype=np.float32)
        for place, value in zip(self.places, self.relevance, strict=True):
            if type(value) not in (int, float) or not math.isfinite(value):
                raise self._error_at(place, f"target_rel holds {shown(value)}, expected finite numbers", _ALL_ONES)
            values[place] = value > 0
        return values

    def _error_at(self, place: int, message: str, hint: str) -> DataError:
        return self._error(int(np.searchsorted(np.array(self.ends), place, side="right")), message, hint)

    def _error(self, line: int, message: str, hint: str) -> DataError:
        return DataError(message, hint, file=self.path, line=self.before + line)


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
        raise ConfigError(
            f"a text field cannot be called '{min(reserved)}' in the LF layout", "give the field another name"
        )


def _document_lines(split: Split) -> Iterator[str]:
    labels, indptr = split.targets.indices.tolist(), split.targets.indptr.tolist()
    for item, (start, end) in zip(item_lines(split.documents), pairwise(indptr), strict=True):
        # The object is continued rather than built twice: "{...}" loses its brace and gets the targets.
        yield (
            f'{item[:-1]}, "target_ind": {json.dumps(labels[start:end])}, "target_rel": '
            f"{json.dumps([1.0] * (end - start))}}}"
        )
