"""Texts with labels that are read in parts, because all of them would not fit into memory.

A `LargeData` stands for files; it holds the labels, and gives the training documents part by part, as often as it is
asked. LF folders, tables (JSON lines, CSV, TSV, Parquet) and fastText files can be read so. Each file is read several
times: tables and fastText files for their labels first, then for the vocabulary, then for the features.

What a part cannot know is not done: ids are not compared over parts, and graphs beside the data are left out.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data import tables
from longtail.data.columns import JSON, URIS, Columns
from longtail.data.dataset import Items, Split
from longtail.data.fasttext import no_label, texts_and_labels
from longtail.data.find_columns import Asked, Found, find_columns
from longtail.data.folders import TRAIN, filter_file, masked_by_title, read_pairs
from longtail.data.from_texts import label_space, targets_of
from longtail.data.graph_files import graph_folders
from longtail.data.identity import numbers_by_title
from longtail.data.lf import needed_files, split_of
from longtail.data.lines import ItemColumns, in_parts, records
from longtail.data.read import recognise
from longtail.data.table_files import TableFile, open_table
from longtail.errors import ConfigError, DataError
from longtail.persistence import StringTable
from longtail.types import I64

# Bytes of memory that training in memory takes at its peak for a byte of a file of texts with the features of `direct`
# (docs/scale.md), and bytes of texts in a byte of a compressed file.
MEMORY_OF_TEXT, TEXT_OF_COMPRESSED = 30, 4
# Characters of a part: few parts are slow, large ones take memory. A part takes about so many times as many bytes.
FEWEST_CHARACTERS, MOST_CHARACTERS, PART_OF_MEMORY = 1 << 15, 1 << 23, 128
_NO_LIMIT = 1 << 62


@dataclass
class LargeData(ABC):
    """Files that hold the labels and the training documents of a data set.

    path: of the data.  memory: bytes that documents may take at a time.
    repairs: as of a `Dataset`; counted by the first reading of all parts.
    """

    path: Path
    memory: int
    repairs: Counter[str] = field(default_factory=Counter)
    columns: Columns | None = None
    notes: tuple[str, ...] = ()
    vocabulary: str = ""

    @property
    def name(self) -> str:
        return self.path.resolve().name if self.path.is_dir() else Path(self.path.name.removesuffix(".gz")).stem

    @abstractmethod
    def files(self) -> list[Path]:
        """Those that are read."""

    @cached_property
    @abstractmethod
    def labels(self) -> Items:
        """All labels; ids and texts are `StringTable`s."""

    @abstractmethod
    def splits(self, repairs: Counter[str]) -> Iterator[tuple[Split, int]]:
        """Parts, in the order of the file, without masked pairs that a file lists; and the number of their first
        document.
        """

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the files; it is not that of the same data when it is read as a whole."""
        whole = hashlib.sha256()
        for file in self.files():
            with file.open("rb") as opened:
                whole.update(f"{file.name} {hashlib.file_digest(opened, 'sha256').hexdigest()}\n".encode())
        return whole.hexdigest()

    @property
    def characters(self) -> int:
        """Of a part, about."""
        return int(np.clip(self.memory // PART_OF_MEMORY, FEWEST_CHARACTERS, MOST_CHARACTERS))

    def remarks(self) -> list[str]:
        """As of a `Dataset`."""
        return [*([] if self.columns is None else [self.columns.line()]), *(f"warning: {note}" for note in self.notes)]

    def parts(self, repairs: Counter[str] | None = None) -> Iterator[Split]:
        """The training documents that have a text, in order, some at a time. repairs: what was mended is added."""
        repairs = Counter() if repairs is None else repairs
        if self.path.is_dir() and (graphs := graph_folders(self.path)):
            repairs["graphs beside the data, left out: they would have to be in memory"] += len(graphs)
        listed, documents = self._listed_pairs, 0
        for split, first in self.splits(repairs):
            documents = first + len(split)
            if listed is not None:
                own = listed[slice(*np.searchsorted(listed[:, 0], [first, documents]))]
                split = replace(split, masked=own - np.array([first, 0]))
            yield _with_text(split, repairs)
        if listed is not None and len(listed) and int(listed[-1, 0]) >= documents:
            raise DataError(
                f"document {int(listed[-1, 0])} is outside 0..{documents - 1}",
                "the file belongs to other data, or counts from 1",
                file=filter_file(self.path, TRAIN),
            )

    @cached_property
    def _listed_pairs(self) -> I64 | None:
        """Pairs of the filter file, by document; None where there is none."""
        file = filter_file(self.path, TRAIN) if self.path.is_dir() else None
        return None if file is None else read_pairs(file, _NO_LIMIT, len(self.labels))


def _with_text(split: Split, repairs: Counter[str]) -> Split:
    filled = np.zeros(len(split), dtype=bool)
    for texts in split.documents.fields.values():
        filled |= np.fromiter(map(bool, map(str.strip, texts)), dtype=bool, count=len(texts))
    if filled.all():
        return split
    repairs["training documents without text or vector, dropped"] += int((~filled).sum())
    return split.rows(np.flatnonzero(filled))


# ---- formats ----


class LargeFolder(LargeData):
    """A folder in the LF layout."""

    def files(self) -> list[Path]:
        listed = filter_file(self.path, TRAIN)
        return [*needed_files(self.path), *([] if listed is None else [listed])]

    @cached_property
    def labels(self) -> Items:
        file = needed_files(self.path)[0]
        tables, lines = Tables(), 0
        for part in in_parts(records(file), self.characters):
            columns = ItemColumns(file, before=lines)
            columns.fill(part)
            tables.add(columns.items(Counter()))
            lines += len(part)
        found = tables.items()
        if not len(found):
            raise DataError("the file is empty", "it must hold at least one line", file=file)
        if (twice := _first_twice(found.uids)) is not None:
            raise DataError(f"uid '{twice}' stands on two lines", "give every line a uid of its own", file=file)
        return found

    def splits(self, repairs: Counter[str]) -> Iterator[tuple[Split, int]]:
        file, lines = needed_files(self.path)[1], 0
        titles = numbers_by_title(self.labels) if self._listed_pairs is None else {}
        for part in in_parts(records(file), self.characters):
            split = split_of(file, part, len(self.labels), repairs, lines)
            if self._listed_pairs is None:
                split = replace(split, masked=masked_by_title(TRAIN, split, titles, repairs))
            yield split, lines
            lines += len(split)


@dataclass
class LargeText(LargeData):
    """A file of fastText."""

    def files(self) -> list[Path]:
        return [self.path]

    @cached_property
    def labels(self) -> Items:
        used = {label for _, own in texts_and_labels(self.path) for label in own}
        if not used:
            raise no_label(self.path)
        return _compact(label_space([list(used)], None)[0])

    def splits(self, repairs: Counter[str]) -> Iterator[tuple[Split, int]]:
        numbers, first = _numbers(self.labels), 0
        found = ({"title": text, "labels": own} for text, own in texts_and_labels(self.path))
        for part in in_parts(found, self.characters):
            texts = [record["title"] for record in part]
            items = Items([f"train-{row}" for row in range(first, first + len(part))], {"title": texts})
            yield _numbered(items, [record["labels"] for record in part], numbers, repairs), first
            first += len(part)


@dataclass
class LargeTable(LargeData):
    """A table, or a folder with one. asked, label_texts: as in `tables.read_table`."""

    asked: Asked = field(default_factory=Asked)
    label_texts: Path | None = None

    def __post_init__(self) -> None:
        """Reads the labels column once: how its cells are split is seen from all of them."""
        label_column = self._found.columns.labels
        assert label_column is not None, "a table without labels is refused before"
        given = self._found.columns.separator if self.asked.separator is None else self.asked.separator
        seen = _Witnesses(given)
        for rows in self._rows([label_column]):
            seen.look_at(rows.columns[label_column])
        self._cells = tables.LabelCells(seen.rows(self._table, label_column), label_column, given)
        self.columns = replace(self._found.columns, separator=self._cells.separator)
        self.notes = (*self._found.notes, *self._cells.doubts(self.asked.separator))

    @cached_property
    def _files(self) -> tuple[Path, Path | None]:
        train, _, labels = tables.table_files(self.path)
        return train, labels if self.label_texts is None else self.label_texts

    @cached_property
    def _table(self) -> TableFile:
        return open_table(self._files[0])

    @cached_property
    def _found(self) -> Found:
        return find_columns(self._table, self.asked)

    def files(self) -> list[Path]:
        listed = filter_file(self.path, TRAIN) if self.path.is_dir() else None
        return [file for file in (*self._files, listed) if file is not None]

    @cached_property
    def labels(self) -> Items:
        file = self._files[1]
        known = None if file is None else tables.read_labels(open_table(file))
        column, used = str(self._found.columns.labels), set[str]()
        for rows in self._rows([column]):
            used.update(label for own in self._cells.split(rows, column) for label in own)
        if known is None and not used:
            raise self._table.error(
                None, f"no document has a label in column '{column}'", "name the right column with --labels"
            )
        found, added = label_space([list(used)], known)
        self.repairs["labels of training documents without an entry among the label texts, added without text"] += added
        return _compact(found)

    def splits(self, repairs: Counter[str]) -> Iterator[tuple[Split, int]]:
        numbers, first, column = _numbers(self.labels), 0, str(self._found.columns.labels)
        for rows in self._rows(list(dict.fromkeys(self._found.places.values()))):
            uid = self._found.columns.id
            numbered = [f"train-{row}" for row in range(first, first + len(rows))]
            uids = numbered if uid is None else tables.document_ids(rows, self._found.places[uid])
            items = Items(uids, tables.fields_of(rows, self._found))
            yield _numbered(items, self._cells.split(rows, column), numbers, repairs), first
            first += len(rows)

    def _rows(self, wanted: list[str]) -> Iterator[tables.Rows]:
        """The wanted columns, some rows at a time."""
        found = ({"line": line, "values": values, **_texts_of(values)} for line, values in self._table.rows(wanted))
        for part in in_parts(found, self.characters):
            columns = list(zip(*(record["values"] for record in part), strict=True))
            lines = [record["line"] for record in part]
            yield tables.Rows(self._table, lines, dict(zip(wanted, columns, strict=True)))


def _texts_of(values: Sequence[Any]) -> dict[str, str]:
    """By which a row is counted."""
    return {str(place): value for place, value in enumerate(values) if type(value) is str}


class _Witnesses:
    """Of all cells of a labels column those few that say how cells are split: the first that holds each sign, the
    first that is not written in each notation, and the first of all.
    """

    def __init__(self, separator: str | None) -> None:
        self._signs = {"|", ";", ",", *([separator] if separator else [])}
        self._notations = {JSON, URIS}
        self._cells: list[str] = []

    def look_at(self, cells: Iterable[Any]) -> None:
        for cell in cells:
            if isinstance(cell, str) and cell.strip():
                signs = {sign for sign in self._signs if sign in cell}
                others = {notation for notation in self._notations if not tables.looks_like(notation, cell)}
                if signs or others or not self._cells:
                    self._cells.append(cell)
                    self._signs -= signs
                    self._notations -= others

    def rows(self, source: TableFile, column: str) -> tables.Rows:
        return tables.Rows(source, [1] * len(self._cells), {column: self._cells})


def _numbered(
    documents: Items, labels: Sequence[Sequence[str]], numbers: Mapping[str, int], repairs: Counter[str]
) -> Split:
    targets, _, repeated = targets_of(labels, numbers)
    repairs["labels given twice to one document, merged"] += repeated
    return Split(documents, targets)


def _numbers(labels: Items) -> dict[str, int]:
    return {uid: number for number, uid in enumerate(labels.uids)}


def _compact(items: Items) -> Items:
    fields = {name: StringTable.of(texts) for name, texts in items.fields.items()}
    return Items(StringTable.of(items.uids), fields)


def _first_twice(uids: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for uid in uids:
        if uid in seen:
            return uid
        seen.add(uid)
    return None


class Tables:
    """Items that come in parts, kept as bytes: ids and texts of all fields, "" where a part lacks one."""

    def __init__(self) -> None:
        self._count = 0
        self._columns: dict[str, list[StringTable]] = {"uid": []}

    def add(self, items: Items) -> None:
        for name in items.fields:
            if f"field {name}" not in self._columns:
                self._columns[f"field {name}"] = [_empty(self._count)]
        for name, column in self._columns.items():
            texts = items.uids if name == "uid" else items.fields.get(name.removeprefix("field "))
            column.append(_empty(len(items)) if texts is None else StringTable.of(texts))
        self._count += len(items)

    def items(self) -> Items:
        whole = {name: _joined(column) for name, column in self._columns.items()}
        uids = whole.pop("uid")
        return Items(uids, {name.removeprefix("field "): texts for name, texts in whole.items()})


def _empty(count: int) -> StringTable:
    return StringTable(np.zeros(0, np.uint8), np.zeros(count + 1, np.int64))


def _joined(pieces: Sequence[StringTable]) -> StringTable:
    offsets = np.zeros(1 + sum(map(len, pieces)), dtype=np.int64)
    np.cumsum(np.concatenate([np.zeros(0, np.int64), *(np.diff(piece.offsets) for piece in pieces)]), out=offsets[1:])
    return StringTable(np.concatenate([np.zeros(0, np.uint8), *(piece.blob for piece in pieces)]), offsets)


# ---- which data is large ----

_READERS: dict[str, type[LargeData]] = {"lf": LargeFolder, "fasttext": LargeText, "table": LargeTable}
_TABLE_OPTIONS = ("text", "labels", "id", "separator")


def large_data(path: Path, memory: int, **options: Any) -> LargeData | None:
    """The data at `path` to be read in parts; None where training on it would take at most `memory` bytes.

    options: as in `read.read`.
    """
    kind = recognise(path)
    texts = {"lf": needed_files, "table": lambda path: tables.table_files(path)[:1]}.get(kind, _all_files)(path)
    if memory_of(texts) <= memory:
        return None
    if kind not in _READERS:
        raise _refused(path, f"data in the format '{kind}'", memory)
    for name in ("vocabulary", "group"):
        if options.get(name) is not None:
            raise _refused(path, f"data with --{name}", memory)
    if kind != "table":
        return _READERS[kind](path, memory)
    label_texts = options.get("label_texts")
    if not isinstance(label_texts, str | Path | None):
        raise _refused(path, "data with label texts that are no file", memory)
    asked = Asked(**{name: options.get(name) for name in _TABLE_OPTIONS})
    return LargeTable(path, memory, asked=asked, label_texts=None if label_texts is None else Path(label_texts))


def _refused(path: Path, what: str, memory: int) -> ConfigError:
    return ConfigError(
        f"{path}: {what} cannot be read in parts, and would take more memory than {memory:,} bytes (--memory)",
        "give more memory, or an LF folder, a table or a fastText file without these options",
    )


def _all_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def memory_of(files: Iterable[Path]) -> int:
    """Bytes of memory that training on texts takes that are all in memory, about."""
    grown = (file.stat().st_size * (TEXT_OF_COMPRESSED if file.suffix in (".gz", ".parquet") else 1) for file in files)
    return MEMORY_OF_TEXT * sum(grown)
