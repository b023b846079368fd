"""Documents to predict for, block by block: a text file, JSON lines, a table, vectors, or standard input. None is
dropped.

A file may be longer than memory. The lines of a pipe are given as soon as they are there.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from longtail.data.columns import Columns
from longtail.data.dataset import Items
from longtail.data.find_columns import ID_NAMES, Asked, agreed_text, find_columns, place_in, place_of
from longtail.data.from_texts import is_whole, mended, shown
from longtail.data.lines import BLOCK, NOT_UNICODE, decoded, line_blocks, unreadable, whole_lines
from longtail.data.matrices import stacked
from longtail.data.table_files import CUT_ARRAY, RowBlock, open_table, plain_values
from longtail.data.tables import IdLists, Rows, documents_of_rows
from longtail.errors import DataError
from longtail.report import one_line

Fields = Sequence[str]
Lines = tuple[int, list[str]]  # and the number of the first
Some = TypeVar("Some")
Several = TypeVar("Several", list[tuple[int, str]], Rows)
SIZE = 4096  # documents of a block: as many as a model is asked at a time
TEXT = "text"  # what a column of plain lines is called


@dataclass(frozen=True)
class InputBlock:
    """Documents that were read together.

    first: number of the first of them.
    carried: the columns that they came with, by name, as they came: lists, or arrays of Arrow.
    lists: for each `IdLists`, by its column, the ids of each document.
    share: of the file that has been read; None where nobody knows how long it is.
    """

    documents: Items
    first: int = 0
    carried: Mapping[str, Any] = field(default_factory=dict)
    lists: Mapping[str, list[list[str]]] = field(default_factory=dict)
    share: float | None = None

    def every(self, number: int, of: int) -> InputBlock:
        """The documents whose numbers in the whole input are `number`, `number + of`, `number + 2 of`, ..."""
        rows = np.arange((number - self.first) % of, len(self.documents), of, dtype=np.int64)

        def taken(column: Any) -> Any:
            return column.take(rows) if hasattr(column, "take") else [column[row] for row in rows.tolist()]

        return replace(
            self,
            documents=self.documents.rows(rows),
            carried={name: taken(column) for name, column in self.carried.items()},
            lists={name: taken(column) for name, column in self.lists.items()},
        )


@dataclass
class _Share:
    """How much of a file has been read."""

    done: float = 0.0

    def set(self, share: float) -> None:
        self.done = min(1.0, share)


def read_documents(
    source: str,
    text: str | Sequence[str] | None = None,
    *,
    id: str | None = None,
    columns: Columns | None = None,
    fields: Fields = (),
    on_columns: Callable[[Columns], None] = lambda columns: None,
) -> Items:
    """All documents of `documents_in_blocks`."""
    blocks = documents_in_blocks(source, text, id=id, columns=columns, fields=fields, on_columns=on_columns)
    return _joined([block.documents for block in blocks])


def _joined(parts: Sequence[Items]) -> Items:
    if len(parts) == 1:
        return parts[0]
    vectors = [part.vectors for part in parts if part.vectors is not None]
    names = dict.fromkeys(name for part in parts for name in part.fields)
    return Items(
        [uid for part in parts for uid in part.uids],
        {name: [text for part in parts for text in part.fields.get(name) or [""] * len(part)] for name in names},
        stacked(vectors) if vectors else None,
    )


def documents_in_blocks(
    source: str,
    text: str | Sequence[str] | None = None,
    *,
    id: str | None = None,
    columns: Columns | None = None,
    fields: Fields = (),
    lists: Sequence[IdLists] = (),
    carry: bool = False,
    on_columns: Callable[[Columns], None] = lambda columns: None,
    size: int = SIZE,
    repairs: Counter[str] | None = None,
) -> Iterator[InputBlock]:
    """The documents in `source`: ``-`` (standard input),
    ``*.json[l][.gz]``, ``*.csv``/``*.tsv``/``*.parquet``, ``*.npy``/``*.npz`` (vectors), else one text per line.

    text, id: columns of a table, by default found as in training. columns: what the model was trained on.
    fields: what the model reads. lists: fields or columns of ids. carry: whether to keep all columns.
    on_columns: told what a table was read as. repairs: what was mended is added to it.
    size: documents of a block, at most; on standard input a block is what is there. There is one block at least. What
    comes before an error is given before it is raised.

    A JSON line is an object with text fields (and an id), or just a string. Lines are JSON if the first one is. A
    document without text stays in its place and gets what the model says of an empty text.
    """
    asked = Asked(text=text or None, id=id, remembered=columns)
    repairs = Counter() if repairs is None else repairs
    path = Path(source)
    name = path.name.lower().removesuffix(".gz")
    if source != "-" and (path.is_dir() or not path.exists()):
        raise DataError(
            "is a folder" if path.exists() else "no such file",
            "give a file of texts, JSON lines or a table, or - for standard input",
            file=path,
        )
    if source != "-" and name.endswith((".csv", ".tsv", ".parquet")):
        yield from _from_table(path, asked, lists, carry, on_columns, size, repairs)
        return
    if source != "-" and name.endswith((".npy", ".npz")):
        yield from _from_vectors(path, lists, size)
        return
    where = str(path) if source != "-" else "standard input"
    reader = _LineReader(where, asked, fields, lists, carry, on_columns, repairs)
    if source != "-" and path.is_file():
        share, total = _Share(), max(1, path.stat().st_size)
        lines = _regrouped(line_blocks(path, lambda place: share.set(place / total), reader.mended_line), size)
        read = reader.blocks(lines, as_json=True if name.endswith((".json", ".jsonl", ".ndjson")) else None)
        yield from (replace(block, share=share.done) for block in read)
    else:
        yield from reader.blocks(_stream(source, size, reader.mended_line))


# ---- lines ----


def _stream(source: str, size: int, on_mended: Callable[[int], None]) -> Iterator[Lines]:
    """What a pipe brings, as it comes."""
    if source == "-" and sys.stdin is None:
        raise DataError("is closed", "give texts on the command line, or --input FILE", file="standard input")
    name = "standard input" if source == "-" else source
    try:
        # Standard input is typed as any binary file, which need not have read1.
        standard = contextlib.nullcontext(cast(BufferedReader, sys.stdin.buffer)) if source == "-" else None
        with standard or Path(source).open("rb") as pipe:
            for first, lines in decoded(whole_lines(partial(pipe.read1, BLOCK), name), name, on_mended):
                yield from _cut(first, lines, size)
    except OSError as problem:
        raise unreadable(name, problem) from None


def _is_object(line: str) -> bool:
    """Whether a line is a JSON object, from its first sign to its last."""
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _without_labels(line: str) -> str:
    """A line of fastText without the labels before its text: they are what is asked for."""
    while line.startswith("__label__"):
        line = line.partition(" ")[2].lstrip()
    return line


def _cut(first: int, lines: list[str], size: int) -> Iterator[Lines]:
    for start in range(0, len(lines), size):
        yield first + start, lines[start : start + size]


def _regrouped(blocks: Iterable[Lines], size: int) -> Iterator[Lines]:
    """Blocks of `size` lines, and what is left."""
    held: list[str] = []
    number, problem = 1, None
    try:
        for _, lines in blocks:
            held += lines
            full = len(held) - len(held) % size
            yield from _cut(number, held[:full], size)
            held, number = held[full:], number + full
    except DataError as error:
        problem = error
    if held:
        yield number, held
    if problem is not None:
        raise problem


@dataclass(frozen=True)
class _LineReader:
    """Lines as documents: plain texts, or JSON."""

    source: str
    asked: Asked
    fields: Fields = ()
    lists: Sequence[IdLists] = ()
    carry: bool = False
    on_columns: Callable[[Columns], None] = lambda columns: None
    repairs: Counter[str] = field(default_factory=Counter)

    def error(self, line: int | None, message: str, hint: str) -> DataError:
        return DataError(message, hint, file=self.source, line=line)

    def mended_line(self, line: int) -> None:
        self.repairs[NOT_UNICODE] += 1

    def blocks(self, lines: Iterator[Lines], as_json: bool | None = None) -> Iterator[InputBlock]:
        """as_json: None where the first line that is not blank says so."""
        blank: list[Lines] = []
        if as_json is None:
            first = ""
            for number, block in lines:
                blank.append((number, block))
                first = next((line.strip() for line in block if line.strip()), "")
                if first:
                    break
            as_json = _begins_json(first)
            self._refuse_table(first)
        yield from (self._of_json if as_json else self._of_texts)(_or_this(chain(blank, lines), (1, [])))

    def _refuse_table(self, first: str) -> None:
        """Lines of a table are no texts."""
        known = () if self.asked.remembered is None else self.asked.remembered.text
        for delimiter in ",;\t":
            names = [name.strip(' "').lower() for name in first.split(delimiter)]
            if len(names) > 1 and known and {name.lower() for name in known} <= set(names):
                raise self.error(
                    1,
                    f"names the columns {', '.join(known)}: a table, read as lines of text",
                    "give a table as a file: --input FILE.csv (.tsv, .parquet), or give JSON lines",
                )

    @property
    def first_field(self) -> str:
        """What a plain text is: the first field that the model reads."""
        return next(iter(text_names(self.asked, self.fields)), "title")

    def _of_texts(self, blocks: Iterable[Lines]) -> Iterator[InputBlock]:
        if self.lists:
            raise self.error(
                None,
                f"lines of text have no field '{self.lists[0].column}'",
                f"give JSON lines or a table, or leave out {self.lists[0].option}",
            )
        name = self.first_field
        for number, lines in blocks:
            wrong = next((row for row, line in enumerate(lines) if _is_object(line)), len(lines))
            texts = [_without_labels(line.removesuffix("\r")) for line in lines[:wrong]]
            uids = [str(row) for row in range(number - 1, number - 1 + len(texts))]
            if texts or wrong == len(lines):
                yield InputBlock(Items(uids, {name: texts}), number - 1, {TEXT: texts} if self.carry else {})
            if wrong < len(lines):
                raise self.error(
                    number + wrong,
                    f"a JSON object, where lines of text came before: {shown(lines[wrong])}",
                    'give JSON on every line, where a text is a string: "a text"',
                )

    def _of_json(self, blocks: Iterable[Lines]) -> Iterator[InputBlock]:
        done = 0

        def made(lines: list[tuple[int, str]]) -> InputBlock:
            return self._objects(lines, done)

        for number, lines in blocks:
            numbered = [(line, text) for line, text in enumerate(lines, number) if text.strip()]
            for block in _before_error(made, numbered):
                yield block
                done += len(block.documents)

    def _say(self, first: dict[str, Any], names: Sequence[str]) -> None:
        """What the fields of the first object are read as."""
        keys = tuple(first)
        uid = next(iter(_places(keys, _id_names(self.asked)).values()), None)
        ignored = tuple(key for key in keys if key not in (uid, *_places(keys, tuple(names)).values()))
        known = self.asked.remembered
        weights = {} if known is None else dict(zip(known.text, known.weights, strict=True))
        counted = tuple(weights.get(name, 1.0) for name in names)
        self.on_columns(Columns(tuple(names), counted, None, uid, ignored=ignored))

    def _objects(self, lines: list[tuple[int, str]], done: int) -> InputBlock:
        """Objects or strings, one per line. A string is the first field that the model reads."""
        wanted, first = text_names(self.asked, self.fields), self.first_field
        records: list[dict[str, Any]] = []
        rows: list[dict[str, str]] = []
        uids: list[str] = []
        for number, line in lines:
            try:
                value: Any = json.loads(line)
                if "\\u" in line and not is_whole(written := json.dumps(value, ensure_ascii=False)):
                    self.mended_line(number)
                    value = json.loads(mended(written))
                value = {first: value} if isinstance(value, str) else value
                row, uid = _record(value, wanted, self.asked)
            except json.JSONDecodeError as problem:
                raise self.error(
                    number,
                    f"not valid JSON ({problem.msg} at column {problem.colno}): {shown(line)}",
                    f"every line must be a JSON object or string, as the first is{_about_array(number, line)}",
                ) from None
            except (ValueError, RecursionError) as problem:
                expected = json.dumps(dict.fromkeys([*filter(None, [self.asked.id]), first], "..."), ensure_ascii=False)
                hint = f"write {expected} on every line{_about_array(number, line)}"
                raise self.error(number, str(problem), hint) from None
            uids.append(str(done + len(rows)) if uid is None else uid)
            rows.append(row)
            records.append(value)
        names = wanted or list(dict.fromkeys(name for row in rows for name in row)) or [first]
        if done == 0 and records and self.asked.remembered is not None:
            self._say(records[0], names)
        documents = Items(uids, {name: [row.get(name, "") for row in rows] for name in names})
        if not (self.carry or self.lists):
            return InputBlock(documents, done)
        keys = dict.fromkeys(key for record in records for key in record)
        table = Rows(
            self, [number for number, _ in lines], {key: [record.get(key) for record in records] for key in keys}
        )
        lists = {one.column: self._listed(one, table, done) for one in self.lists}
        return InputBlock(documents, done, table.columns if self.carry else {}, lists)

    def _listed(self, ids: IdLists, table: Rows, done: int) -> list[list[str]]:
        """A later block may lack the field: its documents have no such ids."""
        names = list(table.columns)
        if not len(table) or (done and place_of(names, ids.column) is None):
            return [[] for _ in table.lines]
        return ids.split(table, place_in(self, names, ids.column, ids.option))


def _before_error(make: Callable[[Several], InputBlock], rows: Several) -> Iterator[InputBlock]:
    """One block of all rows, if none of them is wrong; else blocks of those before it, then the error."""
    try:
        block = make(rows)
    except DataError:
        if len(rows) <= 1:
            raise
    else:
        yield block
        return
    half = len(rows) // 2
    yield from _before_error(make, rows[:half])
    yield from _before_error(make, rows[half:])


def _about_array(number: int, line: str) -> str:
    return f"; {CUT_ARRAY}" if number == 1 and line.startswith("[") else ""


def _begins_json(line: str) -> bool:
    """Whether a line is JSON, or the beginning of it, and not a text that begins with the same sign."""
    if line.startswith("{"):
        return line[1:].lstrip()[:1] in ('"', "}", "")
    if line == "[":
        return True
    try:
        return line.startswith(('"', "[")) and isinstance(json.loads(line), str | list)
    except (ValueError, RecursionError):
        return False


def text_names(asked: Asked, fields: Fields) -> list[str]:
    """The text fields that are read of an object; none where nobody knows. Settings may leave columns unread."""
    named = agreed_text(asked)
    return list(fields if asked.remembered is not None and fields else named or fields)


def _id_names(asked: Asked) -> tuple[str, ...]:
    """Names that the id of an object may have."""
    if asked.id is not None:
        return (asked.id,) if asked.id else ()
    known = asked.remembered
    return ID_NAMES if known is None or known.id is None else (known.id, *ID_NAMES)


@lru_cache(maxsize=16)  # objects of a file mostly have the same keys
def _places(keys: tuple[str, ...], names: tuple[str, ...]) -> Mapping[str, str]:
    """The keys of an object that have these names, as the columns of a table are found."""
    places = {name: place_of(keys, name) for name in names}
    return {name: place for name, place in places.items() if place is not None}


def _record(value: Any, wanted: Sequence[str], asked: Asked) -> tuple[dict[str, str], str | None]:
    """The texts of an object that are read, and its id."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is neither an object nor a string")
    keys = tuple(value)
    ids = _places(keys, _id_names(asked)).values()
    if asked.id and not ids:
        raise ValueError(f"the object has {', '.join(value) or 'nothing'}, and no '{asked.id}', which --id names")
    uid = next((_text(name, value[name]) for name in ids if value[name] is not None), None)
    if not wanted:
        return {name: text for name, text in value.items() if isinstance(text, str) and name not in ids}, uid
    found = {name: _text(place, value[place]) for name, place in _places(keys, tuple(wanted)).items()}
    if not found and asked.remembered is None and not asked.text and "text" in value:
        found = {wanted[0]: _text("text", value["text"])}  # a model that has no names of its own
    if not found:
        raise ValueError(f"the object has {', '.join(value) or 'nothing'}; the model reads {', '.join(wanted)}")
    return found, uid


def _text(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return str(value)
    raise ValueError(f"'{name}' holds {shown(value)}, expected a text")


# ---- tables and vectors ----


def _from_table(
    path: Path,
    asked: Asked,
    lists: Sequence[IdLists],
    carry: bool,
    on_columns: Callable[[Columns], None],
    size: int,
    repairs: Counter[str],
) -> Iterator[InputBlock]:
    share = _Share()
    mended_lines: set[int] = set()
    source = open_table(path, share.set, mended_lines.add)
    names = source.columns()
    found = find_columns(source, asked, labelled=False)
    on_columns(found.columns)
    places = {one.column: place_in(source, names, one.column, one.option) for one in lists}
    wanted = list(dict.fromkeys([*found.places.values(), *places.values()]))
    done = 0

    def made(rows: Rows) -> InputBlock:
        read = Rows(source, rows.lines, {name: plain_values(rows.columns[name], name, path) for name in wanted})
        return InputBlock(
            documents_of_rows(read, found, done),
            done,
            rows.columns if carry else {},
            {one.column: one.split(read, places[one.column]) for one in lists},
            share.done,
        )

    nothing: RowBlock = [], {name: [] for name in names}
    for lines, columns in _or_this(source.blocks(names if carry else wanted, size), nothing):
        for block in _before_error(made, Rows(source, lines, columns)):
            yield block
            done += len(block.documents)
    if mended_lines:
        repairs[NOT_UNICODE] += len(mended_lines)


def _from_vectors(path: Path, lists: Sequence[IdLists], size: int) -> Iterator[InputBlock]:
    from longtail.data.matrices import read_vectors

    if lists:
        raise DataError(f"vectors have no field '{lists[0].column}'", f"leave out {lists[0].option}", file=path)
    vectors = read_vectors(path)
    rows = vectors.shape[0]
    for start in range(0, max(1, rows), size):
        end = min(start + size, rows)
        uids = [str(row) for row in range(start, end)]
        yield InputBlock(Items(uids, vectors=vectors[start:end]), start, {"id": uids}, share=end / max(1, rows))


def _or_this(blocks: Iterator[Some], nothing: Some) -> Iterator[Some]:
    """Where there are no blocks, an empty one."""
    first = next(blocks, None)
    yield nothing if first is None else first
    yield from blocks


def heading(documents: Items, row: int, first: int = 0) -> str:
    """A document for people, in one line: its text, with the id before it where the documents came with ids. first:
    number of the first of them, where rows are numbered.
    """
    uid, name = documents.uids[row], documents.name(row)
    return one_line(name if uid in (str(first + row), name) else f"{uid}  {name}")
