"""JSON objects, one per line, as columns. This is the fast path of reading: per line it only parses and appends.

Everything that can be checked on a whole column is checked after the loop; only when such a check fails is the line
sought.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from longtail.data.dataset import Items
from longtail.data.from_texts import is_whole, shown
from longtail.data.lines import line_blocks
from longtail.errors import DataError

Record = dict[str, Any]


def records(path: Path) -> Iterator[Record]:
    """The objects of a file in order: record i stands on line i + 1. Blank lines are allowed at the end only."""
    parse = json.JSONDecoder().raw_decode
    blocks = line_blocks(path)
    for first, lines in blocks:
        for line, text in enumerate(lines, first):
            try:
                record, end = parse(text)
            except (ValueError, RecursionError):
                if not text.strip():
                    _expect_blank(path, line, lines[line - first :], blocks)
                    return
                record, end = _parsed_with_care(path, line, text), len(text)
            if end != len(text):
                record = _parsed_with_care(path, line, text)
            if type(record) is not dict:
                raise DataError(
                    f"{shown(record)} is not a JSON object",
                    'write one object per line: {"uid": "...", "title": "..."}',
                    file=path,
                    line=line,
                )
            yield record


def _parsed_with_care(path: Path, line: int, text: str) -> Any:
    """A line that is not exactly one JSON value: with white space around it, or broken."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as problem:
        reason = f"{problem.msg} at column {problem.colno}"
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as problem:
        reason = str(problem)
    raise DataError(f"not valid JSON ({reason}): {shown(text)}", "write one JSON object per line", file=path, line=line)


def _expect_blank(path: Path, line: int, rest: list[str], blocks: Iterator[tuple[int, list[str]]]) -> None:
    if any(text.strip() for text in rest) or any(text.strip() for _, lines in blocks for text in lines):
        raise DataError(
            "the line is blank",
            "remove blank lines: the number of a line is the number of its item",
            file=path,
            line=line,
        )


def read_items(path: Path, repairs: Counter[str], unwanted: Sequence[str] = ()) -> Items:
    """Labels, anchors, or documents without what is unwanted. What was mended is added to `repairs`."""
    columns = ItemColumns(path, unwanted)
    columns.fill(records(path))
    return columns.items(repairs)


class ItemColumns:
    """Collects ``uid`` and text fields of records, then checks them.

    A field is text if it is a string on some line; elsewhere it may be missing or null, which is "". A field that is
    never a string is left out and counted, unless it is among `unwanted`. ``title`` is always a field.
    """

    def __init__(self, path: Path, unwanted: Sequence[str] = ()) -> None:
        self.path, self.unwanted = path, frozenset(unwanted)
        self.uids: list[Any] = []
        self.columns: dict[str, list[Any]] = {}
        self._takers: list[tuple[str, Callable[[Any], None]]] = []
        self._other: dict[str, list[int]] = {}  # lines on which a field is neither text nor null
        self._add_column("title")

    def fill(self, records: Iterable[Record]) -> None:
        """Takes all records apart."""
        uid, takers = self.uids.append, self._takers
        for record in records:
            take = record.pop
            for name, append in takers:
                append(take(name, ""))
            uid(take("uid", None))
            if record:
                self._meet(record)

    def _meet(self, rest: Record) -> None:
        """Fields of the last record that have no column yet."""
        for name, value in rest.items():
            if type(value) is str and name not in self.unwanted:
                self._add_column(name)[-1] = value
            elif value is not None and name not in self.unwanted:
                self._other.setdefault(name, []).append(len(self.uids))

    def _add_column(self, name: str) -> list[Any]:
        column = self.columns[name] = [""] * len(self.uids)
        self._takers.append((name, column.append))
        return column

    def items(self, repairs: Counter[str]) -> Items:
        self._check_uids()
        for name, lines in self._other.items():
            if name in self.columns:
                raise DataError(
                    f"field '{name}' is not a text here, but is one on other lines",
                    "make it a text on every line",
                    file=self.path,
                    line=lines[0],
                )
            repairs[f"values of field '{name}' in {self.path.name} that are not text, left out"] += len(lines)
        return Items(self.uids, {name: self._texts(name, column) for name, column in self.columns.items()})

    def _check_uids(self) -> None:
        if not set(map(type, self.uids)) <= {str} or not all(self.uids):
            line = _line_where(lambda uid: type(uid) is not str or not uid, self.uids)
            value = self.uids[line - 1]
            wrong = "there is no uid" if value is None else f"uid is {shown(value)}"
            raise DataError(
                f"{wrong}, expected a string that is not empty",
                'give every line a "uid" of its own',
                file=self.path,
                line=line,
            )
        self._check_whole("uid", self.uids)
        if len(set(self.uids)) < len(self.uids):
            first: dict[str, int] = {}
            line = _line_where(lambda pair: first.setdefault(pair[1], pair[0]) != pair[0], enumerate(self.uids, 1))
            uid = self.uids[line - 1]
            raise DataError(
                f"uid {shown(uid)} stands on line {first[uid]} already",
                "give every line a uid of its own",
                file=self.path,
                line=line,
            )

    def _texts(self, name: str, column: list[Any]) -> Sequence[str]:
        types = set(map(type, column))
        if not types <= {str, type(None)}:
            line = _line_where(lambda value: value is not None and type(value) is not str, column)
            raise DataError(
                f"{name} is {shown(column[line - 1])}, expected a string",
                'write texts in quotes; "" where there is none',
                file=self.path,
                line=line,
            )
        texts = column if types <= {str} else [text or "" for text in column]
        self._check_whole(name, texts)
        return texts

    def _check_whole(self, name: str, texts: Sequence[str]) -> None:
        """JSON escapes can hold half a character, which no file and no tokenizer could take later."""
        if not is_whole("".join([text for text in texts if not text.isascii()])):
            line = _line_where(lambda text: not is_whole(text), texts)
            raise DataError(
                f"{name} has half a character: {shown(texts[line - 1])}",
                "the text was cut in the middle of an escape",
                file=self.path,
                line=line,
            )


def _line_where(wrong: Callable[[Any], bool], values: Iterable[Any]) -> int:
    return next(line for line, value in enumerate(values, 1) if wrong(value))
