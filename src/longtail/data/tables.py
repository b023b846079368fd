"""Tables: JSON lines, CSV, TSV and Parquet files with text columns and a labels column.

A table is a file, or a folder with ``train.*``, and where given ``test.*`` and ``labels.*`` (an id and a title per
label), filter files and graphs as in the LF layout (their label numbers are rows of ``labels.*``, or places among the
sorted ids).

What the columns mean is found out in `find_columns`. Every text column becomes a text field of that name.

Labels are a list (JSON, Parquet) or one string. A string is split at the separator the caller names ("" for one label
per cell). Without one, the whole column decides: ``["a", "b"]`` is read as JSON, ``<uri> <uri>`` as Annif writes it,
else it is split at ``|`` or ``;``, whichever occurs. Where both occur, or only commas do, the reader asks instead of
guessing. Test is split as training was.

`table_files` reads and writes the files themselves.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from longtail.data.columns import JSON, URIS, Columns
from longtail.data.dataset import Dataset, Items, Split
from longtail.data.find_columns import Asked, Found, find_columns, place_in, place_of, quoted
from longtail.data.folders import TEST, TRAIN, filter_pairs, with_known, write_shared
from longtail.data.from_texts import Labelled, Numbered, assembled, is_whole, numbered, shown
from longtail.data.graph_files import read_graphs
from longtail.data.lines import new_folder
from longtail.data.table_files import SUFFIXES, URI_CELL, WRITERS, NamedSource, TableSource, format_of, open_table
from longtail.data.vocabularies import Unknown, Vocabulary, attach_vocabulary
from longtail.errors import ConfigError, DataError

LABEL_ID_NAMES = ("uid", "id", "uri", "label")
LABEL_TITLE_NAMES = ("title", "name", "text", "preflabel", "label")

_SEPARATORS = ("|", ";")


def read_table(
    path: Path | str,
    asked: Asked | None = None,
    *,
    group: str | None = None,
    test: Path | str | None = None,
    label_texts: Path | str | None = None,
    vocabulary: Vocabulary | None = None,
    unknown: Unknown = "error",
) -> Dataset:
    """Read training documents, and where given test documents and label texts. Errors name file, line and column.

    path: the training file, or a folder as described above. asked: what is known of the columns.
    group: column that says which training documents belong together (`Split.groups`), e.g. the shop they are from.
    test, label_texts: files, in place of the folder's ``test.*`` and ``labels.*``.
    vocabulary, unknown: the labels that there are; see `attach_vocabulary`.
    """
    path = Path(path)
    train_file, found_test, found_labels = table_files(path)
    test_file = Path(test) if test is not None else found_test
    label_file = Path(label_texts) if label_texts is not None else found_labels
    return from_tables(
        open_table(train_file),
        None if test_file is None else open_table(test_file),
        None if label_file is None else open_table(label_file),
        asked,
        name=_name(path),
        folder=path if path.is_dir() else None,
        group=group,
        vocabulary=vocabulary,
        unknown=unknown,
    )


def from_tables(
    train: TableSource,
    test: TableSource | None = None,
    labels: TableSource | None = None,
    asked: Asked | None = None,
    *,
    name: str,
    folder: Path | None = None,
    group: str | None = None,
    vocabulary: Vocabulary | None = None,
    unknown: Unknown = "error",
) -> Dataset:
    """A data set from tables, wherever they lie. labels: an id and a title per label. folder: where filter files and
    graphs lie. group, vocabulary, unknown: as in `read_table`.

    Without an id column documents are called train-0, train-1, ... by row.
    Repairs, counted: see `numbered` and `assembled` in `from_texts`.
    """
    asked = asked or Asked()
    found = find_columns(train, asked)
    documents = _documents(train, found, "train")
    given = found.columns.separator if asked.separator is None else asked.separator
    cells = LabelCells(documents.table, documents.label_column, given)
    labels_of_each = cells.split(documents.table, documents.label_column)
    labelled = Labelled(documents.items, labels_of_each, None if group is None else _groups(train, group))
    if labels is None and not any(labelled.labels):
        raise train.error(
            None,
            f"no document has a label in column '{documents.label_column}'",
            "name the right column with --labels",
        )
    grouped = None if group is None else place_of(train.columns(), group)
    columns = replace(found.columns, separator=cells.separator, group=grouped)
    tested = None if test is None else _tested(test, columns)
    parts = numbered(labelled, tested, None if labels is None else read_labels(labels))
    made = assembled(name, parts) if folder is None else _with_folder(name, folder, parts)
    made = attach_vocabulary(made, vocabulary, unknown, None if tested is None else tested.labels)
    return replace(made, columns=columns, notes=(*found.notes, *cells.doubts(asked.separator)))


def _groups(source: TableSource, column: str) -> list[str]:
    return column_texts(read_rows(source, [place := place_in(source, source.columns(), column, "--group")]), place)


def _tested(source: TableSource, columns: Columns) -> Labelled:
    """Test documents, in the columns of the training documents; they may do without ids."""
    if columns.id is not None and place_of(source.columns(), columns.id) is None:
        columns = replace(columns, id=None)
    test = _documents(source, find_columns(source, Asked(remembered=columns)), "test")
    cells = LabelCells(test.table, test.label_column, columns.separator)
    return Labelled(test.items, cells.split(test.table, test.label_column))


def _with_folder(name: str, folder: Path, parts: Numbered) -> Dataset:
    """With the masked and known pairs and graphs that lie in the folder of the table."""
    test = None if parts.test is None else with_known(folder, _masked(parts.test, folder, TEST))
    parts = replace(parts, train=_masked(parts.train, folder, TRAIN), test=test)
    return assembled(name, parts, read_graphs(folder, len(parts.train), len(parts.labels), parts.repairs))


def _masked(split: Split, folder: Path, side: str) -> Split:
    """With the pairs of the filter file. Where there is none, nothing is masked: in a table a document may be called
    what its label is called.
    """
    pairs = filter_pairs(folder, side, split)
    return split if pairs is None else replace(split, masked=pairs)


def texts_of(source: TableSource, asked: Asked | None = None) -> tuple[Items, Columns]:
    """The documents of a table to predict for: its text fields and ids, every row in order; and what was read as
    what.
    """
    found = find_columns(source, asked or Asked(), labelled=False)
    return documents_of_rows(read_rows(source, list(dict.fromkeys(found.places.values()))), found), found.columns


def documents_of_rows(rows: Rows, found: Found, first: int = 0) -> Items:
    """first: number of the first row, where rows are numbered."""
    uid = found.columns.id
    uids = (
        [str(row) for row in range(first, first + len(rows))] if uid is None else column_texts(rows, found.places[uid])
    )
    return Items(uids, fields_of(rows, found))


class IdLists:
    """A column of ids, some per row, that is read as the labels column of a table is, block by block: how its cells
    are split is seen in the first block that shows it.

    option: what named the column, for errors. separator: None is to be found.
    """

    def __init__(self, column: str, option: str, separator: str | None = None) -> None:
        self.column, self.option, self.separator = column, option, separator

    def split(self, rows: Rows, place: str) -> list[list[str]]:
        cells = LabelCells(rows, place, self.separator)
        self.separator = cells.separator
        return cells.split(rows, place)


# ---- files ----


def table_files(path: Path) -> tuple[Path, Path | None, Path | None]:
    """Files of training, test and labels."""
    if path.is_file():
        return path, None, None
    if not path.is_dir():
        raise DataError(
            "no such file or folder",
            "give a table (.jsonl, .csv, .tsv, .parquet), or a folder with train.* and test.*",
            file=path,
        )
    found = {stem: _only(path, stem) for stem in ("train", "test", "labels")}
    if found["train"] is None:
        raise DataError(
            "the folder has no training file", f"name it train{', train'.join(SUFFIXES)} (or .gz of it)", file=path
        )
    return found["train"], found["test"], found["labels"]


def _only(folder: Path, stem: str) -> Path | None:
    files = sorted(file for file in folder.iterdir() if file.name.split(".")[0] == stem and format_of(file) is not None)
    if len(files) > 1:
        raise DataError(
            f"the folder has several {stem} files: {', '.join(file.name for file in files)}",
            "keep one of them",
            file=folder,
        )
    return files[0] if files else None


def _name(path: Path) -> str:
    return path.resolve().name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem


def is_table(path: Path) -> bool:
    """Whether `path` looks like a table by its name, or is a folder with a training table."""
    return _only(path, "train") is not None if path.is_dir() else format_of(path) is not None


# ---- columns ----


@dataclass(frozen=True)
class Rows:
    """The columns that are read, of all rows or of some, as they stand in the file."""

    source: NamedSource
    lines: Sequence[int]
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, rows: slice) -> Rows:
        return Rows(self.source, self.lines[rows], {name: values[rows] for name, values in self.columns.items()})

    def error(self, row: int, column: str, message: str, hint: str) -> DataError:
        return self.source.error(self.lines[row], f"column '{column}' {message}", hint)


@dataclass(frozen=True)
class _Documents:
    items: Items
    label_column: str
    table: Rows


def _documents(source: TableSource, found: Found, prefix: str) -> _Documents:
    places, labels, uid = found.places, found.columns.labels, found.columns.id
    assert labels is not None, "documents that have no labels are read by texts_of"
    table = read_rows(source, list(dict.fromkeys(places.values())))
    if not len(table):
        raise source.error(None, "the file has no rows", "write a row per document")
    uids = [f"{prefix}-{row}" for row in range(len(table))] if uid is None else document_ids(table, places[uid])
    return _Documents(Items(uids, fields_of(table, found)), places[labels], table)


def document_ids(table: Rows, column: str) -> list[str]:
    return unique_ids(table, column, "; or name another column, or number the rows with --id ''")


def read_rows(source: TableSource, wanted: list[str]) -> Rows:
    lines, columns = [], [list[Any]() for _ in wanted]
    for line, values in source.rows(wanted):
        lines.append(line)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    return Rows(source, lines, dict(zip(wanted, columns, strict=True)))


def fields_of(table: Rows, found: Found) -> dict[str, list[str]]:
    return {field: column_texts(table, found.places[field]) for field in found.columns.text}


def column_texts(table: Rows, column: str) -> list[str]:
    """A column as texts: nothing is "", a number is what it looks like."""
    values = table.columns[column]
    if set(map(type, values)) <= {str, type(None)} and is_whole("".join(filter(None, values))):
        return [value or "" for value in values]
    return [_text(table, row, column, value) for row, value in enumerate(values)]


def _text(table: Rows, row: int, column: str, value: Any) -> str:
    if isinstance(value, str):
        if not is_whole(value):
            raise table.error(
                row,
                column,
                f"has half a character: {shown(value)}",
                "the text was cut in the middle of an escaped character; export it again",
            )
        return value
    if value is None:
        return ""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return str(value)
    hint = "name the right column, write the value as text, or leave it empty"
    raise table.error(row, column, f"holds {shown(value)}, expected a text", hint)


def unique_ids(table: Rows, column: str, instead: str = "") -> list[str]:
    """instead: what else than mending the ids could be done, for errors."""
    seen: dict[str, int] = {}
    for row, text in enumerate(column_texts(table, column)):
        uid = text.strip()
        if not uid:
            raise table.error(row, column, "is empty, expected an id", f"give every row an id{instead}")
        if seen.setdefault(uid, row) != row:
            first = f"it stands at {table.lines[seen[uid]]} already"
            raise table.error(row, column, f"repeats the id {shown(uid)}: {first}", f"ids must be unique{instead}")
    return list(seen)


def _first(candidates: Sequence[str], names: Sequence[str]) -> str | None:
    """The first candidate that is a column, whatever its case."""
    by_lower = {name.strip().lower(): name for name in reversed(names)}
    return next((by_lower[name] for name in candidates if name in by_lower), None)


def read_labels(source: TableSource) -> Items:
    """Labels in the order of their file: an id, a title, and every other column as a further text field."""
    names = source.columns()
    uid = _first(LABEL_ID_NAMES, names)
    if uid is None:
        raise source.error(None, f"no id column among {quoted(names)}", "call it uid")
    others = [name for name in names if name != uid]
    title = _first(LABEL_TITLE_NAMES, others)
    if title is None:
        raise source.error(None, f"no title column among {quoted(names)}", "call it title")
    table = read_rows(source, [uid, title, *(name for name in others if name != title)])
    if not len(table):
        raise source.error(None, "the file has no rows", "write a row per label")
    fields = {"title" if name == title else name: column_texts(table, name) for name in others}
    return Items(unique_ids(table, uid), fields)


# ---- labels of a document ----


class LabelCells:
    """How label cells are split: at `separator`, a notation, or as all of the cells suggest. Decided on training, so
    that test agrees.
    """

    def __init__(self, table: Rows, column: str, separator: str | None) -> None:
        filled = [value for value in table.columns[column] if isinstance(value, str) and value.strip()]
        self.separator = _notation(filled, table.source) if separator is None else separator
        self.parts = _NOTATIONS.get(self.separator) or _at(self.separator)
        self.known = _LabelIds()
        self.filled, self.column = filled, column

    def doubts(self, asked: str | None) -> list[str]:
        """A separator that was asked for, and that no cell holds while another is there, is a slip."""
        if not asked or asked in _NOTATIONS or any(asked in cell for cell in self.filled):
            return []
        others = {other: next((cell for cell in self.filled if other in cell), None) for other in (*_SEPARATORS, ",")}
        return [
            f"no cell of '{self.column}' holds the separator '{asked}', so that {shown(cell)} is one label; "
            f"--separator '{other}' splits it"
            for other, cell in others.items()
            if cell is not None
        ][:1]

    def split(self, table: Rows, column: str) -> list[list[str]]:
        found = []
        for row, value in enumerate(table.columns[column]):
            try:
                found.append(
                    [
                        label
                        for part in self._listed(value)
                        if (label := self.known[part] if type(part) is str else _number(part))
                    ]
                )
            except ValueError as problem:
                raise table.error(
                    row, column, str(problem), 'labels are a list of texts, or one text such as "a|b"'
                ) from None
        return found

    def _listed(self, value: Any) -> Sequence[Any]:
        if value is None:
            return []
        return self.parts(value) if isinstance(value, str) else value if isinstance(value, list) else [value]


class _LabelIds(dict[str, str]):
    """Label ids without white space around them. A label occurs many times and is looked at once."""

    def __missing__(self, part: str) -> str:
        if not is_whole(part):
            raise ValueError(f"has half a character: {shown(part)}")
        self[part] = part.strip()
        return self[part]


def _number(part: Any) -> str:
    if type(part) is not int:
        raise ValueError(f"holds {shown(part)}, expected the id of a label")
    return str(part)


def _at(separator: str | None) -> Callable[[str], Sequence[Any]]:
    return (lambda cell: cell.split(separator)) if separator else (lambda cell: [cell])


def looks_like(notation: str, cell: str) -> bool:
    """notation: URIS or JSON."""
    if notation == URIS:
        return URI_CELL.fullmatch(cell) is not None
    return cell.strip().startswith("[") and cell.strip().endswith("]")


def _notation(cells: list[str], source: NamedSource) -> str | None:
    """How the cells of a column are written, seen from all of them; None if none of them has to be split."""
    for notation in (URIS, JSON):
        if cells and all(looks_like(notation, cell) for cell in cells):
            return notation
    used = [separator for separator in _SEPARATORS if any(separator in cell for cell in cells)]
    if len(used) > 1:
        raise source.error(
            None,
            "the labels column holds both | and ;",
            "say which one separates labels: --separator '|' or --separator ';'",
        )
    if not used and (example := next((cell for cell in cells if "," in cell), None)) is not None:
        raise source.error(
            None,
            f"the labels column holds commas, as in {shown(example)}: several labels or one?",
            "say --separator ',' to split at commas, or --separator '' for one label per cell",
        )
    return used[0] if used else None


def _json_list(cell: str) -> Sequence[Any]:
    if not cell.strip():
        return []
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        raise ValueError(f"holds {shown(cell)}, which is not a JSON list") from None
    return value if isinstance(value, list) else [value]


_NOTATIONS: Mapping[str | None, Callable[[str], Sequence[Any]]] = {
    JSON: _json_list,
    URIS: lambda cell: cell.replace("<", " ").replace(">", " ").split(),
}


# ---- writing ----


def write_table(dataset: Dataset, folder: Path | str, format: str = "jsonl", separator: str = "|") -> None:
    """Write ``train.*``, ``test.*`` and ``labels.*``, and masked pairs and graphs beside them, into a new folder.

    `read_table` gives the same data set back, where text columns beyond `TEXT_NAMES` must be named, and where one of
    them is called as labels or ids may be, the columns ``labels`` and ``uid``, too.
    format: jsonl, csv, tsv or parquet. separator: between labels in CSV and TSV; where a reader would not find it
    there, or would split labels at it, all cells are JSON lists.
    """
    if format not in WRITERS:
        raise ConfigError(f"unknown table format '{format}'", f"use one of {', '.join(WRITERS)}")
    splits = {name: split for name, split in (("train", dataset.train), ("test", dataset.test)) if split is not None}
    for items in (dataset.labels, *(split.documents for split in splits.values())):
        _check_can_be_held(items)
    # Both files have the columns of both: those that training has are looked for in test documents.
    fields = dict.fromkeys(name for split in splits.values() for name in split.documents.fields)
    lists = {name: _label_lists(split, dataset.labels) for name, split in splits.items()}
    cells: Mapping[str, Sequence[Any]] = lists
    if format in ("csv", "tsv"):
        _check_names([*fields, *dataset.labels.fields])
        cells = _joined(lists, separator)
    write = WRITERS[format]
    with new_folder(Path(folder)) as aside:
        for name, split in splits.items():
            write(aside / f"{name}.{format}", _document_columns(split, cells[name], fields))
        write(
            aside / f"labels.{format}",
            {
                "uid": list(dataset.labels.uids),
                **{name: list(texts) for name, texts in _with_title(dataset.labels).items()},
            },
        )
        if dataset.graphs or any(len(split.masked) for split in splits.values()):
            write_shared(aside, dataset)


def _check_can_be_held(items: Items) -> None:
    if items.vectors is not None:
        raise ConfigError("a table holds text, and the data has vectors", "write npz (or split) instead")
    if reserved := sorted({"uid", "labels"} & set(items.fields)):
        raise ConfigError(f"a text field cannot be called '{reserved[0]}' in a table", "give the field another name")
    if (padded := next((uid for uid in items.uids if uid != uid.strip()), None)) is not None:
        raise DataError(
            f"the id {shown(padded)} has white space around it, which readers of tables take away",
            "write lf or npz, or give it an id without",
        )


def _check_names(fields: Iterable[str]) -> None:
    """Headers have no white space around names."""
    if (padded := next((name for name in fields if name != name.strip()), None)) is not None:
        raise ConfigError(
            f"the text field {shown(padded)} has white space around its name, which CSV and TSV cannot hold",
            "write jsonl or parquet, or give the field another name",
        )


def _with_title(items: Items) -> Mapping[str, Sequence[str]]:
    return items.fields if "title" in items.fields else {"title": [""] * len(items), **items.fields}


def _document_columns(split: Split, labels: Sequence[Any], fields: Iterable[str]) -> dict[str, list[Any]]:
    return {
        "uid": list(split.documents.uids),
        **{name: list(split.documents.fields.get(name) or [""] * len(split)) for name in fields},
        "labels": list(labels),
    }


def _label_lists(split: Split, labels: Items) -> list[list[str]]:
    indices, indptr, uids = split.targets.indices.tolist(), split.targets.indptr.tolist(), list(labels.uids)
    return [[uids[label] for label in indices[start:end]] for start, end in itertools.pairwise(indptr)]


class _OwnTable:
    """The table that is being written, as a source of rows."""

    def error(self, line: int | None, message: str, hint: str) -> DataError:
        return DataError(message, hint)


def _joined(lists: Mapping[str, list[list[str]]], separator: str) -> Mapping[str, list[str]]:
    """Cells of labels, of training and test documents: joined by the separator if whoever reads them finds the same
    labels again, else JSON lists.
    """
    cells = {name: [separator.join(labels) for labels in each] for name, each in lists.items()}
    if _as_read(cells) == lists:
        return cells
    return {name: [json.dumps(labels, ensure_ascii=False) for labels in each] for name, each in lists.items()}


def _as_read(cells: Mapping[str, list[str]]) -> Mapping[str, list[list[str]]] | None:
    """The labels that a reader finds in these cells, those of training first; None where it would ask."""
    found: dict[str, list[list[str]]] = {}
    separator = None
    for name, column in cells.items():
        table = Rows(_OwnTable(), range(len(column)), {name: column})
        try:
            reader = LabelCells(table, name, separator)
            found[name], separator = reader.split(table, name), reader.separator
        except DataError:
            return None
    return found
