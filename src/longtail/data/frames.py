"""Tables that a Python program holds: frames and series of pandas, polars and Arrow, arrays, lists of texts or dicts.

    read_frame(frame, text="title", labels="tags")      a `Dataset` to train on
    documents_of(frame, text="title")                   documents to predict for
    long_frame("pandas", frame, ...)                    predictions as a frame

No library is imported before the caller has: what an object is, its type's module says.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from longtail.config import nearest
from longtail.data.columns import Columns
from longtail.data.dataset import Dataset, Items
from longtail.data.find_columns import Asked, place_of
from longtail.data.from_texts import shown
from longtail.data.table_files import TableSource, name_twice, open_table
from longtail.data.tables import from_tables, texts_of
from longtail.data.vocabularies import Unknown, Vocabulary
from longtail.errors import ConfigError, DataError, MissingExtra
from longtail.types import I64, Frame, FrameKind

TEXT, LABELS = "title", "labels"  # columns that a series of texts, and labels given beside a table, become
PART = 4096  # rows that become Python's values at a time: to see what columns hold takes no more than the first


# An option of the command line and its value, as hints name them.
_OPTION = re.compile(r"--(\w+) ('[^']*'|\S*[^\s,;)])")


class Lists:
    """Lists and arrays, dicts of columns, and lists of dicts; and what the frames of each library do alike."""

    NAME = "list"
    MODULE = ""
    FRAMES: tuple[str, ...] = ()

    def is_frame(self, data: Any) -> bool:
        return isinstance(data, Mapping) or (len(data) > 0 and isinstance(data[0], Mapping))

    def names(self, data: Any) -> list[str]:
        if isinstance(data, Mapping):
            return list(data)
        for number, row in enumerate(data):
            if not isinstance(row, Mapping):
                raise DataError(f"row {number} is {shown(row)}, expected a dict, as the first", "give dicts everywhere")
        return list(dict.fromkeys(name for row in data for name in row))

    def length(self, data: Any) -> int:
        if not isinstance(data, Mapping):
            return len(data)
        lengths = {name: len(column) for name, column in data.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{count} in '{name}'" for name, count in lengths.items())
            raise DataError(f"columns of different lengths: {counts}", "give every column a cell per row")
        return max(lengths.values(), default=0)

    def part(self, data: Any, rows: slice) -> Any:
        """Some of the rows."""
        return {name: column[rows] for name, column in data.items()} if isinstance(data, Mapping) else data[rows]

    def column(self, data: Any, name: str) -> list[Any]:
        return self.values(data[name]) if isinstance(data, Mapping) else [plain(row.get(name)) for row in data]

    def values(self, series: Any) -> list[Any]:
        """The cells of a series."""
        if getattr(series, "ndim", 1) == 2 and series.shape[1] == 1:
            series = series.reshape(-1)
        if getattr(series, "ndim", 1) != 1:
            raise DataError(
                f"an array of shape {series.shape}, expected one text per document",
                "give an array of texts; vectors are read from files (.npy, .npz)",
            )
        return [plain(value) for value in (series.tolist() if hasattr(series, "tolist") else series)]

    def frame(self, rows: I64, columns: Mapping[str, Sequence[Any]], given: Any) -> Any:
        """A new frame. rows: the row of `given` that each of its rows is about."""
        raise NotImplementedError


class _Library(Lists):
    def is_frame(self, data: Any) -> bool:
        return type(data).__name__ in self.FRAMES

    def module(self) -> Any:
        try:
            return importlib.import_module(self.MODULE)
        except ModuleNotFoundError as problem:
            raise MissingExtra(self.MODULE, "", f"a frame of {self.NAME}") from problem


class Pandas(_Library):
    NAME = MODULE = "pandas"
    FRAMES = ("DataFrame", "GeoDataFrame")

    def names(self, data: Any) -> list[str]:
        return [str(name) for name in data.columns]

    def part(self, data: Any, rows: slice) -> Any:
        return data.iloc[rows]

    def column(self, data: Any, name: str) -> list[Any]:
        return self.values(data.iloc[:, self.names(data).index(name)])

    def values(self, series: Any) -> list[Any]:
        missing = series.isna().tolist()
        return [None if gone else plain(cell) for cell, gone in zip(series.tolist(), missing, strict=True)]

    def frame(self, rows: I64, columns: Mapping[str, Sequence[Any]], given: Any) -> Any:
        """The index of `given` is kept, so that the two can be joined."""
        pandas = self.module()
        index = given.index.take(rows) if hasattr(given, "iloc") else pandas.Index(rows, name="row")
        return pandas.DataFrame(columns, index=index)


class Polars(_Library):
    NAME = MODULE = "polars"
    FRAMES = ("DataFrame",)

    def names(self, data: Any) -> list[str]:
        return list(data.columns)

    def column(self, data: Any, name: str) -> list[Any]:
        return self.values(data[name])

    def values(self, series: Any) -> list[Any]:
        if not hasattr(series, "to_list"):
            raise DataError(f"a {type(series).__name__} of polars holds no rows yet", "call .collect() first")
        found: list[Any] = series.to_list()
        return found

    def frame(self, rows: I64, columns: Mapping[str, Sequence[Any]], given: Any) -> Any:
        return self.module().DataFrame({"row": rows, **columns})


class Arrow(_Library):
    NAME, MODULE = "arrow", "pyarrow"
    FRAMES = ("Table", "RecordBatch")

    def names(self, data: Any) -> list[str]:
        return list(data.schema.names)

    def part(self, data: Any, rows: slice) -> Any:
        return data.slice(rows.start, rows.stop - rows.start)

    def column(self, data: Any, name: str) -> list[Any]:
        return self.values(data[name])

    def values(self, series: Any) -> list[Any]:
        found: list[Any] = series.to_pylist()
        return found

    def frame(self, rows: I64, columns: Mapping[str, Sequence[Any]], given: Any) -> Any:
        return self.module().table({"row": rows, **columns})


LISTS = Lists()
KINDS: dict[str, Lists] = {kind.MODULE: kind for kind in (Pandas(), Polars(), Arrow())}


def kind_of(data: Any) -> Lists:
    """The library that an object, or a class that it derives from, comes from."""
    modules = (parent.__module__.partition(".")[0] for parent in type(data).__mro__)
    return next((KINDS[module] for module in modules if module in KINDS), LISTS)


def plain(cell: Any) -> Any:
    """A cell as Python's own values: arrays, tuples and sets are lists."""
    if isinstance(cell, set | frozenset):
        return sorted(cell, key=str)
    if isinstance(cell, tuple):
        return list(cell)
    return cell.tolist() if hasattr(cell, "tolist") else cell


@dataclass(frozen=True)
class Held:
    """A table in memory. Its rows count from 0, as they do in Python."""

    data: Any
    kind: Lists
    beside: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, data: Frame, **beside: Sequence[Any]) -> Held:
        """beside: further columns."""
        if (not hasattr(data, "__len__") and kind_of(data) is LISTS) or isinstance(data, str | bytes):
            raise DataError(f"{shown(data)} is no table", "give a frame, a series, an array, or a list of texts")
        if is_frame(data):
            return cls(data, kind_of(data), beside)
        values = kind_of(data).values(data)
        for row, value in enumerate(values if kind_of(data) is LISTS else ()):
            if not isinstance(value, str):
                raise DataError(f"text {row} is {shown(value)}, expected a string", "give a list of strings")
        return cls({TEXT: values}, LISTS, beside)

    def columns(self) -> list[str]:
        names = self.kind.names(self.data)
        if (twice := name_twice(names)) is not None:
            raise self.error(None, f"two columns are called '{twice}'", "give every column a name of its own")
        return list(dict.fromkeys([*names, *self.beside]))

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        total = self.kind.length(self.data)
        for name, cells in self.beside.items():
            if len(cells) != total:
                raise DataError(f"{total} texts and {len(cells)} {name}", f"give as many {name} as texts")
        for start in range(0, total, PART):
            part = slice(start, start + PART)
            data, beside = self.kind.part(self.data, part), {name: cells[part] for name, cells in self.beside.items()}
            columns = [beside[name] if name in beside else self.kind.column(data, name) for name in wanted]
            yield from enumerate(zip(*columns, strict=True), start)

    def error(self, line: int | None, message: str, hint: str) -> DataError:
        """What the command line calls --text is `text=` here."""
        where = "" if line is None else f"row {line}: "
        return DataError(where + message, _OPTION.sub(lambda said: f"{said[1]}={_in_quotes(said[2])}", hint))


def _in_quotes(value: str) -> str:
    return value if value.startswith("'") else f"'{value}'"


def is_frame(data: Frame) -> bool:
    """Whether an object has named columns."""
    return kind_of(data).is_frame(data)


def values_of(series: Frame) -> list[Any]:
    """The cells of a series, an array or a list as Python's own values; None where one is missing."""
    return kind_of(series).values(series)


def columns_of(frame: Frame) -> dict[str, list[Any]]:
    """All columns of a frame, by name."""
    kind = kind_of(frame)
    return {name: kind.column(frame, name) for name in kind.names(frame)}


def documents_of(
    data: Frame, text: str | Sequence[str] | Mapping[str, float] | None = None, columns: Columns | None = None
) -> Items:
    """Documents to predict for: every row in order, none dropped.

    text: as in `read_frame`.  columns: those that a model was trained on, which a frame must have.
    """
    if isinstance(data, Items):
        return data
    source = Held.of(data)
    asked = Asked(text, id="", remembered=columns) if is_frame(data) else Asked([TEXT], id="")
    return texts_of(source, asked)[0]


def ids_of(data: Frame, columns: Columns | None) -> list[Any] | None:
    """The cells of the id column that a model was trained with; None where there is none, or the frame lacks it."""
    if columns is None or columns.id is None or not is_frame(data):
        return None
    place = place_of(kind_of(data).names(data), columns.id)
    return None if place is None else kind_of(data).column(data, place)


def read_frame(
    data: Frame,
    *,
    text: str | Sequence[str] | Mapping[str, float] | None = None,
    labels: str | Frame | None = None,
    id: str | None = None,
    separator: str | None = None,
    label_texts: Mapping[str, str] | Frame | None = None,
    columns: Columns | None = None,
    group: str | None = None,
    test_file: Path | str | Frame | None = None,
    vocabulary: Vocabulary | None = None,
    unknown: Unknown = "error",
    name: str = "frame",
) -> Dataset:
    """A data set from a table in memory. What its columns mean is found out as for files (`find_columns`).

    data: a frame of pandas, polars or Arrow, a dict of columns or a list of dicts; or texts alone: a series, an array,
        a list.
    text: names of columns, or a dict of names and weights.
    labels: the column whose cells are lists, or strings with a separator; or these cells themselves: lists, a series.
    label_texts: a text per label id, or a frame with an id and a title per label.
    columns: what a model was trained on.  group, vocabulary, unknown: as in `tables.read_table`.
    test_file: test documents, a frame or a file with the same columns.
    """
    beside = labels is not None and not isinstance(labels, str)
    indices: list[Any] = [getattr(one, "index", None) for one in (data, labels)]
    if beside and all(hasattr(index, "equals") for index in indices) and not indices[0].equals(indices[1]):
        raise ConfigError(
            "the labels have another index than the documents", "give them in the same order, or as a column"
        )
    source = Held.of(data, **({LABELS: values_of(labels)} if beside else {}))
    wanted = text if is_frame(data) else [TEXT]
    asked = Asked(wanted, LABELS if beside else labels, id, separator, columns)
    found = from_tables(
        source,
        _tested(test_file),
        _labels(label_texts),
        asked,
        name=name,
        group=group,
        vocabulary=vocabulary,
        unknown=unknown,
    )
    if not is_frame(data):
        return replace(found, columns=None)  # the columns are our own
    return replace(found, columns=replace(found.columns, labels=None)) if beside and found.columns else found


def _tested(test: Path | str | Frame | None) -> TableSource | None:
    if test is None or not isinstance(test, str | Path):
        return None if test is None else Held.of(test)
    return open_table(Path(test))


def _labels(label_texts: Mapping[str, str] | Frame | None) -> Held | None:
    if label_texts is None or not isinstance(label_texts, Mapping):
        return None if label_texts is None else Held.of(label_texts)
    return Held.of({"uid": list(label_texts), "title": list(label_texts.values())})


def long_frame(kind: FrameKind | bool, given: Frame, rows: I64, columns: Mapping[str, Sequence[Any]]) -> Any:
    """A frame of the kind of `given`, or of the kind that is named; pandas where `given` is a list.

    rows: the row of `given` that each row is about: the index (pandas keeps that of `given`), or the column ``row``.
    """
    own = kind_of(given)
    kinds = {one.NAME: one for one in KINDS.values()}
    if isinstance(kind, str) and kind not in kinds:
        raise ConfigError(f"a frame of '{kind}', expected one of {', '.join(kinds)}", nearest(kind, list(kinds)))
    chosen = kinds[kind] if isinstance(kind, str) else kinds["pandas"] if own is LISTS else own
    return chosen.frame(np.asarray(rows), columns, given)
