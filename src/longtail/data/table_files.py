"""Files of rows and columns: JSON lines, CSV, TSV, Parquet. What the columns mean is said in `tables`.

CSV is comma- (or semicolon-, or tab-) separated with quotes; TSV is tab-separated without quotes. Both have a header;
a TSV without one whose second column holds ``<uri>`` is read as an Annif corpus. All are UTF-8; ``.gz`` is read too.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from longtail.data.from_texts import shown
from longtail.data.lines import line_blocks, write_lines
from longtail.errors import DataError, MissingExtra

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
URI_CELL = re.compile(r"\s*((<[^<>\s]+>|[a-z][a-z0-9+.-]*://[^<>\s|;,]+)(\s+|$|(?=<)))+", re.IGNORECASE)

_SAMPLE = 10_000  # records of a JSON file that are asked for their columns


def format_of(path: Path) -> str | None:
    """The format that the name of a file says, or None."""
    return SUFFIXES.get(Path(path.name.lower().removesuffix(".gz")).suffix)


class TableSource(Protocol):
    """Rows with named columns, from a file or from memory. Values are None, strings, numbers, or lists of them."""

    def columns(self) -> list[str]: ...

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        """Line (or row, where there are no lines), from 1, and the values of the wanted columns. May be asked often,
        and be left before the end.
        """
        ...

    def error(self, line: int | None, message: str, hint: str) -> DataError:
        """Names the source, and the line or row where one is given."""
        ...


def open_table(path: Path) -> TableSource:
    kind = format_of(path)
    if kind is None:
        raise DataError(
            f"'{''.join(path.suffixes) or path.name}' is not a table that can be read",
            f"use one of {', '.join(SUFFIXES)}",
            file=path,
        )
    if not path.is_file():
        raise DataError("no such file" if not path.exists() else "is a folder", "give the path of a table", file=path)
    if kind == "parquet":
        return Parquet(path)
    return JsonLines(path) if kind == "jsonl" else Delimited(path)


@dataclass(frozen=True)
class _Lines:
    path: Path

    def error(self, line: int | None, message: str, hint: str) -> DataError:
        return DataError(message, hint, file=self.path, line=line)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines with their line ends."""
        for first, block in line_blocks(self.path):
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
                array = "this is a JSON array; " if number == 1 and line.startswith("[") else ""
                raise self.error(number, f"not valid JSON ({at})", f"{array}write one JSON object per line") from None
            if not isinstance(record, dict):
                array = (
                    "a JSON array can be cut into lines with: jq -c '.[]'"
                    if isinstance(record, list)
                    else 'e.g. {"text": "...", "labels": ["..."]}'
                )
                raise self.error(
                    number, f"{shown(record)} is not a JSON object", f"write one JSON object per line; {array}"
                )
            yield number, record


class Delimited(_Lines):
    """CSV with quotes, or TSV without."""

    def columns(self) -> list[str]:
        return self._header()[0]

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        names, first = self._header()
        places = [names.index(name) for name in wanted]
        for line, cells in self._split():
            if line < first or (not cells and len(names) > 1):  # in a single column, a blank line is an empty cell
                continue
            if len(cells or [""]) != len(names):
                raise self.error(
                    line,
                    f"{len(cells)} columns, the header has {len(names)} ({', '.join(names)})",
                    _COLUMNS_HINT[self._tabs],
                )
            yield line, [cells[place] for place in places] if cells else [""]

    @property
    def _tabs(self) -> bool:
        return format_of(self.path) == "tsv"

    def _header(self) -> tuple[list[str], int]:
        """Names of the columns, and the line after them."""
        line, cells = next((row for row in self._split() if row[1]), (0, []))
        if not cells:
            raise DataError(
                "the file is empty",
                "write a header with the names of the columns, and a row per document",
                file=self.path,
            )
        if self._tabs and len(cells) == 2 and URI_CELL.fullmatch(cells[1]):
            return ["text", "uris"], line
        names = [cell.strip() for cell in cells]
        if twice := _twice(names):
            raise self.error(line, f"the header names column '{twice}' twice", "give every column a name of its own")
        return names, line + 1

    def _split(self) -> Iterator[tuple[int, list[str]]]:
        """The cells of every row, none for a blank one, and the line it begins on."""
        if self._tabs:
            for number, line in self.lines():
                text = line.rstrip("\r\n")
                yield number, text.split("\t") if text else []
            return
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
        return max(",;\t", key=first.count)


def _twice(names: list[str]) -> str:
    """A name that occurs twice, or ""."""
    return min((name for name in names if names.count(name) > 1), default="")


_COLUMNS_HINT = {
    True: "a TSV cell cannot hold a tab; write CSV or JSON lines",
    False: "put a cell that holds the delimiter in double quotes",
}


@dataclass(frozen=True)
class Parquet:
    """Columns of a Parquet file; rows are numbered from 1."""

    path: Path

    def columns(self) -> list[str]:
        with self._opened() as file:
            names = list(file.schema_arrow.names)
        if twice := _twice(names):
            raise self.error(None, f"two columns are called '{twice}'", "give every column a name of its own")
        return names

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        done = 0
        with self._opened() as file:
            for batch in file.iter_batches(columns=list(wanted)):
                yield from enumerate(zip(*(batch[name].to_pylist() for name in wanted), strict=True), done + 1)
                done += len(batch)

    def error(self, line: int | None, message: str, hint: str) -> DataError:
        return DataError(message if line is None else f"row {line}: {message}", hint, file=self.path)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        parquet, arrow = _pyarrow()
        try:
            with parquet.ParquetFile(self.path) as file:
                yield file
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as problem:
            reason = str(problem).strip().split("\n")[0]
            raise DataError(
                f"not a readable Parquet file ({reason})",
                "the file is truncated or of another format; write it again",
                file=self.path,
            ) from None


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "reading and writing Parquet") from None
    return pyarrow.parquet, pyarrow


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
    with path.open("w", encoding="utf-8", newline="") as file:
        # The writer quotes only the line ends it uses itself, so it must know \r, too.
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _write_tsv(path: Path, columns: Mapping[str, list[Any]]) -> None:
    write_lines(path, map(_tab_separated, [tuple(columns), *zip(*columns.values(), strict=True)]))


def _tab_separated(values: Sequence[str]) -> str:
    for value in values:
        if any(character in value for character in "\t\r\n"):
            raise DataError(
                f"{shown(value)} holds a tab or a line break, which TSV cannot hold", "write csv, jsonl or parquet"
            )
    return "\t".join(values)


def _write_parquet(path: Path, columns: Mapping[str, list[Any]]) -> None:
    parquet, arrow = _pyarrow()
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
