"""Files of rows and columns: JSON lines, CSV, TSV, Parquet. What the columns mean is said in `tables`.

CSV is comma- (or semicolon-, or tab-) separated with quotes; TSV is tab-separated without quotes. Both have a header;
a TSV without one whose second column holds ``<uri>`` is read as an Annif corpus. All are UTF-8; ``.gz`` is read too.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from longtail.data.from_texts import shown
from longtail.data.lines import line_blocks, write_lines
from longtail.data.size_limits import COLUMNS, check_growth
from longtail.errors import DataError, MissingExtra
from longtail.report import first_line

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
URI_CELL = re.compile(r"\s*((<[^<>\s]+>|[a-z][a-z0-9+.-]*://[^<>\s|;,]+)(\s+|$|(?=<)))+", re.IGNORECASE)

CUT_ARRAY = "a JSON array can be cut into lines with: jq -c '.[]'"

RowBlock = tuple[Sequence[int], Mapping[str, Any]]

_BATCH = 1 << 14  # rows of Parquet that become Python's values at a time
_LONGEST_CELL = 1 << 30  # characters
_SAMPLE = 10_000  # records of a JSON file that are asked for their columns


def format_of(path: Path) -> str | None:
    """The format that the name of a file says, or None."""
    return SUFFIXES.get(Path(path.name.lower().removesuffix(".gz")).suffix)


class NamedSource(Protocol):
    def error(self, line: int | None, message: str, hint: str) -> DataError:
        """Names the source, and the line or row where one is given."""
        ...


class TableSource(NamedSource, Protocol):
    """Rows with named columns, from a file or from memory. Values are None, strings, numbers, or lists of them."""

    def columns(self) -> list[str]: ...

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        """Line (or row, where there are no lines), from 1, and the values of the wanted columns. May be asked often,
        and be left before the end.
        """
        ...


class TableFile(TableSource, Protocol):
    """Rows from a file, which may be longer than memory."""

    def blocks(self, wanted: Sequence[str], size: int) -> Iterator[RowBlock]:
        """All rows in order, `size` at a time; at the end, or before an error, fewer. Lines, and the values of the
        wanted columns: lists, or Arrow's arrays (`plain_values`).
        """
        ...


class NoValues(DataError):
    """A column of a Parquet file has values that Python cannot hold."""


def plain_values(column: Any, name: str, file: Path | None = None) -> Sequence[Any]:
    """The values of a column of a block as Python's own. name, file: of the column, for errors."""
    if not hasattr(column, "to_pylist"):
        return cast(Sequence[Any], column)
    _, arrow = arrow_modules()
    try:
        return cast(Sequence[Any], column.to_pylist())
    except UnicodeDecodeError as problem:
        raise NoValues(
            f"a text of the Parquet file is not valid UTF-8 ({problem.reason}), in the column '{name}'",
            "the file is broken; write it again",
            file=file,
        ) from None
    except OverflowError as problem:
        raise NoValues(
            f"a date or time of the Parquet file is beyond what Python knows ({problem}), in the column '{name}'",
            "write the column as text, or leave it out",
            file=file,
        ) from None
    except (arrow.ArrowException, ValueError) as problem:
        raise NoValues(
            f"the column '{name}' of the Parquet file holds values that Python does not know ({first_line(problem)})",
            "write the column as text, or leave it out",
            file=file,
        ) from None


def open_table(
    path: Path,
    on_read: Callable[[float], None] = lambda share: None,
    on_mended: Callable[[int], None] | None = None,
) -> TableFile:
    """on_read: told the share of the file that has been read, whenever more of it is. on_mended: as in
    `lines.decoded`; of one line it may be told several times.
    """
    kind = format_of(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise is_a_pipe(path)
    if kind is None:
        raise DataError(
            f"'{''.join(path.suffixes) or path.name}' is not a table that can be read",
            f"use one of {', '.join(SUFFIXES)}",
            file=path,
        )
    if not path.is_file():
        raise DataError("no such file" if not path.exists() else "is a folder", "give the path of a table", file=path)
    if kind == "parquet":
        return Parquet(path, on_read)
    return JsonLines(path, on_read, on_mended) if kind == "jsonl" else Delimited(path, on_read, on_mended)


def is_a_pipe(path: Path) -> DataError:
    """Data is looked at before it is read, and a pipe can be read but once."""
    return DataError(
        "is neither a file nor a folder (a pipe?)",
        "save it as a file with the ending of its format, e.g. .csv; documents to predict for may come from a pipe",
        file=path,
    )


@dataclass(frozen=True)
class _Lines:
    path: Path
    on_read: Callable[[float], None] = lambda share: None
    on_mended: Callable[[int], None] | None = None

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        raise NotImplementedError

    def blocks(self, wanted: Sequence[str], size: int) -> Iterator[RowBlock]:
        for rows in in_blocks(self.rows(wanted), size):
            lines, values = zip(*rows, strict=True)
            yield lines, dict(zip(wanted, zip(*values, strict=True), strict=True))

    def error(self, line: int | None, message: str, hint: str) -> DataError:
        return DataError(message, hint, file=self.path, line=line)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines with their line ends."""
        total = max(1, self.path.stat().st_size)
        for first, block in line_blocks(self.path, lambda place: self.on_read(place / total), self.on_mended):
            for number, line in enumerate(block, first):
                if "\0" in line:
                    raise self.error(
                        number,
                        "the line has a NUL byte",
                        "the file is broken, or not UTF-8 text: export it again as UTF-8",
                    )
                yield number, line + "\n"


class JsonLines(_Lines):
    """One object per line. Columns are the keys; a record may lack some."""

    def columns(self) -> list[str]:
        names: dict[str, None] = {}
        for number, (_, record) in enumerate(self._records()):
            if number == _SAMPLE:
                break
            names.update(dict.fromkeys(record))
        if not names:
            raise DataError("the file has no records", "write one JSON object per line", file=self.path)
        return list(names)

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        for line, record in self._records():
            yield line, [record.get(name) for name in wanted]

    def _records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in self.lines():
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as problem:
                at = (
                    f"{problem.msg}, column {problem.colno}"
                    if isinstance(problem, json.JSONDecodeError)
                    else str(problem)
                )
                array = f"; {CUT_ARRAY}" if number == 1 and line.startswith("[") else ""
                raise self.error(number, f"not valid JSON ({at})", f"write one JSON object per line{array}") from None
            if not isinstance(record, dict):
                array = CUT_ARRAY if isinstance(record, list) else 'e.g. {"text": "...", "labels": ["..."]}'
                raise self.error(
                    number, f"{shown(record)} is not a JSON object", f"write one JSON object per line; {array}"
                )
            yield number, record


class Delimited(_Lines):
    """CSV with quotes, or TSV without."""

    def columns(self) -> list[str]:
        """Several columns without a name, which spreadsheets leave at the end of every line, are none."""
        names = self._header()[0]
        return [name for name in names if name] if _nameless(names) else names

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        names, first = self._header()
        places = [names.index(name) for name in wanted]
        nameless = _nameless(names)
        for line, cells in self._split():
            if line < first or (not cells and len(names) > 1):  # in a single column, a blank line is an empty cell
                continue
            if len(cells or [""]) != len(names):
                raise self.error(
                    line,
                    f"{len(cells)} columns, the header has {len(names)} ({', '.join(names)})",
                    _COLUMNS_HINT[self._tabs],
                )
            if nameless and (filled := [place for place in nameless if cells[place].strip()]):
                raise self.error(
                    line,
                    f"{shown(cells[filled[0]])} stands in column {filled[0] + 1}, which the header does not name",
                    "name the column, or leave it empty",
                )
            yield line, [cells[place] for place in places] if cells else [""]

    @property
    def _tabs(self) -> bool:
        return format_of(self.path) == "tsv"

    def _header(self) -> tuple[list[str], int]:
        """Names of the columns, "" where there is none, and the line after them."""
        line, cells = next((row for row in self._split() if row[1]), (0, []))
        if not cells:
            raise DataError(
                "the file is empty",
                "write a header with the names of the columns, and a row per document",
                file=self.path,
            )
        if self._tabs and len(cells) == 2 and URI_CELL.fullmatch(cells[1]):
            return ["text", "uris"], line
        COLUMNS.check(len(cells), "columns", self.path, line)
        names = [cell.strip() for cell in cells]
        if not any(names):
            raise self.error(line, "the header names no column", "write the names of the columns on the first line")
        if twice := name_twice(filter(None, names)):
            raise self.error(line, f"the header names column '{twice}' twice", "give every column a name of its own")
        return names, line + 1

    def _split(self) -> Iterator[tuple[int, list[str]]]:
        """The cells of every row, none for a blank one, and the line it begins on."""
        if self._tabs:
            for number, line in self.lines():
                text = line.rstrip("\r\n")
                yield number, text.split("\t") if text else []
            return
        csv.field_size_limit(_LONGEST_CELL)
        reader = csv.reader((line for _, line in self.lines()), delimiter=self._delimiter(), strict=True)
        begin = 1
        try:
            for cells in reader:
                yield begin, cells
                begin = reader.line_num + 1
        except csv.Error as problem:
            raise self.error(
                begin,
                f"not valid CSV ({problem})",
                'a cell with " in it must be quoted, and each " in it doubled; every quote must be closed',
            ) from None

    def _delimiter(self) -> str:
        first = next((line for _, line in self.lines() if line.strip()), "")
        return max(",;\t", key=re.sub('"[^"]*("|$)', "", first).count)


def name_twice(names: Iterable[str]) -> str | None:
    """A name that occurs twice."""
    return min((name for name, times in Counter(names).items() if times > 1), default=None)


def _nameless(names: Sequence[str]) -> list[int]:
    """Places of columns without a name, where they are several: a single one is told from all others."""
    places = [place for place, name in enumerate(names) if not name]
    return places if len(places) > 1 else []


_COLUMNS_HINT = {
    True: "a TSV cell cannot hold a tab; write CSV or JSON lines",
    False: "put a cell that holds the delimiter in double quotes",
}


@dataclass(frozen=True)
class Parquet:
    """Columns of a Parquet file; rows are numbered from 1."""

    path: Path
    on_read: Callable[[float], None] = lambda share: None

    def columns(self) -> list[str]:
        with self._opened() as file:
            names = list(file.schema_arrow.names)
        COLUMNS.check(len(names), "columns", self.path)
        if (twice := name_twice(names)) is not None:
            raise self.error(None, f"two columns are called '{twice}'", "give every column a name of its own")
        return names

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        for numbers, columns in self.blocks(wanted, _BATCH):
            values = [plain_values(columns[name], name, self.path) for name in wanted]
            yield from zip(numbers, zip(*values, strict=True), strict=True)

    def blocks(self, wanted: Sequence[str], size: int) -> Iterator[RowBlock]:
        """An empty file gives an empty block, so that the types of its columns are known."""
        done = made = 0
        with self._opened() as file:
            total, packed = file.metadata.num_rows, self.path.stat().st_size
            empty = [] if total else [file.schema_arrow.empty_table()]
            for batch in chain(empty, file.iter_batches(size, columns=list(wanted))):
                made += sum(map(_bytes_of, batch.columns))
                check_growth(packed, made, self.path)
                yield range(done + 1, done + 1 + len(batch)), {name: batch[name] for name in wanted}
                done += len(batch)
                self.on_read(done / max(1, total))

    def error(self, line: int | None, message: str, hint: str) -> DataError:
        return DataError(message if line is None else f"row {line}: {message}", hint, file=self.path)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        parquet, _ = arrow_modules()
        with self._readable(), parquet.ParquetFile(self.path) as file:
            yield file

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        _, arrow = arrow_modules()
        try:
            yield
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as problem:
            raise DataError(
                f"not a readable Parquet file ({first_line(problem)})",
                "the file is truncated or of another format; write it again",
                file=self.path,
            ) from None


def _bytes_of(column: Any) -> int:
    """Of the values of an Arrow array, each by itself: in a file, texts that are repeated may stand once."""
    import pyarrow
    from pyarrow import compute

    types, kind = pyarrow.types, column.type
    if types.is_list(kind) or types.is_large_list(kind):
        return _bytes_of(column.flatten())
    if not types.is_dictionary(kind):
        return int(column.nbytes)
    values = column.dictionary
    if not (types.is_string(values.type) or types.is_large_string(values.type)):
        return int(column.indices.nbytes)
    return int(compute.sum(compute.binary_length(values).take(column.indices)).as_py() or 0)


def arrow_modules() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "reading and writing Parquet") from None
    return pyarrow.parquet, pyarrow


Row = TypeVar("Row")


def in_blocks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Rows in lists of `size`; the last may be shorter. What came before an error is given before it is raised."""
    block: list[Row] = []
    problem = None
    try:
        for row in rows:
            block.append(row)
            if len(block) == size:
                yield block
                block = []
    except DataError as error:
        problem = error
    if block:
        yield block
    if problem is not None:
        raise problem


# ---- writing ----


def _write_jsonl(path: Path, columns: Mapping[str, list[Any]]) -> None:
    write_lines(
        path,
        (
            json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False)
            for values in zip(*columns.values(), strict=True)
        ),
    )


def _write_csv(path: Path, columns: Mapping[str, list[Any]]) -> None:
    _refuse_nul(columns)
    with path.open("w", encoding="utf-8", newline="") as file:
        # The writer quotes only the line ends it uses itself, so it must know \r, too.
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _write_tsv(path: Path, columns: Mapping[str, list[Any]]) -> None:
    _refuse_nul(columns)
    write_lines(path, map(tab_separated, [tuple(columns), *zip(*columns.values(), strict=True)]))


def _refuse_nul(columns: Mapping[str, list[Any]]) -> None:
    """Readers take a NUL byte for a sign that a file is broken."""
    for value in chain(columns, *columns.values()):
        if "\0" in value:
            raise DataError(f"{shown(value)} holds a NUL character, which CSV and TSV cannot hold", "write jsonl")


def tab_separated(values: Sequence[str]) -> str:
    for value in values:
        if any(character in value for character in "\t\r\n"):
            raise DataError(
                f"{shown(value)} holds a tab or a line break, which TSV cannot hold", "write csv, jsonl or parquet"
            )
    return "\t".join(values)


def _write_parquet(path: Path, columns: Mapping[str, list[Any]]) -> None:
    parquet, arrow = arrow_modules()
    text = arrow.string()
    types = {name: arrow.list_(text) if name == "labels" and path.stem != "labels" else text for name in columns}
    parquet.write_table(
        arrow.table({name: arrow.array(values, type=types[name]) for name, values in columns.items()}), path
    )


WRITERS: Mapping[str, Callable[[Path, Mapping[str, list[Any]]], None]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "tsv": _write_tsv,
    "parquet": _write_parquet,
}
