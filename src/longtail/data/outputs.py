"""Answers to documents, written block by block as they are found.

    text      for people
    jsonl     an object per document
    csv, tsv  the columns that the documents came with, then labels and scores
    parquet   the same; columns keep their types, labels and scores are lists
    npz       a CSR array of scores, documents x labels, as SciPy reads it, and ``ids`` of the documents in UTF-8; it
              is held in memory until all are found

With `Answering.long`, jsonl and tables have a row per label. A file appears complete or not at all.
"""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol, TypeAlias

import numpy as np

from longtail.data.columns import JSON, URIS
from longtail.data.inputs import InputBlock, heading
from longtail.data.lines import text_file
from longtail.data.matrices import save_csr, stacked
from longtail.data.table_files import arrow_modules, format_of, plain_values, tab_separated
from longtail.errors import ConfigError, DataError
from longtail.explanation import Explanation
from longtail.metrics import to_csr
from longtail.report import one_line
from longtail.types import Csr, TopK
from longtail.writing import json_writer, no_room_is_an_error, open_through, written_aside

ROWS = 1 << 15  # that Parquet holds together
PREFIX = "predicted_"  # of our columns, where the documents have columns of the same names


class NamesLabels(Protocol):
    """What is asked of a model: its labels."""

    @property
    def labels(self) -> Sequence[str]: ...

    @property
    def label_names(self) -> Sequence[str]: ...

    def named(self, top: TopK) -> Sequence[Sequence[tuple[str, str, float]]]:
        """Labels as id, name and score."""
        ...


@dataclass(frozen=True)
class Answering:
    """How answers are written.

    separator: between labels in a cell (`Columns.separator`).  threshold: that labels had to reach; to be said where
    none did.  long: a row per label.  note: told what a person should know.  explained: reasons come with the labels.
    precision: that was asked for, where the threshold follows from it.
    """

    model: NamesLabels
    separator: str | None = None
    threshold: float | None = None
    long: bool = False
    note: Callable[[str], None] = lambda line: None
    explained: bool = False
    precision: float | None = None


# Binary formats that a user may well ask for by name.
NOT_WRITTEN = (".xlsx", ".xls", ".ods", ".arrow", ".feather", ".npy")

# Why the labels of a list were given, document by document.
Why: TypeAlias = Sequence[Sequence[Explanation]]


class Answers(Protocol):
    def write(self, block: InputBlock, top: TopK, why: Why | None = None) -> None: ...

    def end(self) -> None:
        """All has been written."""
        ...


def format_for(output: Path | None) -> str:
    """The format that the name of a file says, else text. A name of a format that is not written is refused: text under
    it could be opened by nothing.
    """
    if output is None:
        return "text"
    if output.name.lower().endswith(".npz.gz"):
        raise ConfigError(f"{output}: npz is compressed in itself", f"name it {output.stem}")
    if output.suffix.lower() in NOT_WRITTEN:
        hint = "name it .csv, .tsv, .parquet, .jsonl or .npz, or say what it is to hold: --format text"
        raise ConfigError(f"{output}: {output.suffix.lower()} files are not written here", hint)
    return "npz" if output.suffix.lower() == ".npz" else format_of(output) or "text"


@contextlib.contextmanager
def answers_to(output: Path | None, format: str, asked: Answering) -> Iterator[Answers]:
    """output: None is standard output."""
    kind = FORMATS[format]
    if asked.long and not issubclass(kind, _Rows):
        raise ConfigError(f"{format} has no form with a row per label", "write csv, tsv, parquet or jsonl")
    if asked.explained and not kind.EXPLAINS:
        raise ConfigError(f"{format} has no place for explanations", "write text or jsonl")
    if output is None:
        if kind.BINARY:
            raise ConfigError(
                f"{format} needs --output FILE", f"{format} is a binary format; it cannot go to the terminal"
            )
        yield _Flushed(kind(asked, sys.stdout), sys.stdout)
        return
    packed = output.suffix.lower() == ".gz" and not kind.BINARY
    through = None if kind.BINARY or packed else open_through(output)
    if through is not None:
        with no_room_is_an_error(output), io.TextIOWrapper(through, encoding="utf-8", newline="\n") as file:
            yield _Flushed(kind(asked, file), file)
        return
    with written_aside(output) as aside:
        opened: Any = aside.open("wb") if kind.BINARY else text_file(aside, compressed=packed)
        with opened as file:
            answers = kind(asked, file)
            try:
                yield answers
                answers.end()
            finally:
                answers.close()


class _Flushed:
    """Standard output, or a pipe: whoever reads it has each answer at once."""

    def __init__(self, answers: Answers, file: IO[str]) -> None:
        self.answers, self.file = answers, file

    def write(self, block: InputBlock, top: TopK, why: Why | None = None) -> None:
        self.answers.write(block, top, why)
        self.file.flush()

    def end(self) -> None: ...


class _Format:
    BINARY: ClassVar[bool] = False
    EXPLAINS: ClassVar[bool] = False

    def __init__(self, asked: Answering, file: IO[Any]) -> None:
        self.asked, self.file = asked, file

    def write(self, block: InputBlock, top: TopK, why: Why | None = None) -> None:
        raise NotImplementedError

    def end(self) -> None: ...

    def close(self) -> None:
        """Whether all was well or not."""


class _Text(_Format):
    EXPLAINS = True

    def write(self, block: InputBlock, top: TopK, why: Why | None = None) -> None:
        threshold = self.asked.threshold
        none = ": none of the words is known" if threshold is None else f" above {threshold:g}"
        if self.asked.precision is not None:
            none = f": none is sure enough for a precision of {self.asked.precision:g}"
        for row, found in enumerate(self.asked.model.named(top)):
            print(heading(block.documents, row, block.first), file=self.file)
            for place, (label, name, score) in enumerate(found):
                print(f"  {score:8.4f}  {one_line(label if name == label else f'{label}  {name}')}", file=self.file)
                for line in _reasons(why[row][place]) if why is not None else ():
                    print(f"            {one_line(line)}", file=self.file)
            if not found:
                print(f"  (no label{none})", file=self.file)


# Words, features behind a word, and training documents that are shown of each label.
_SHOWN, _SHOWN_FEATURES, _SHOWN_EXAMPLES = 10, 4, 2


def _reasons(why: Explanation) -> Iterator[str]:
    """An explanation in a few lines: words by their share, whatever else counted, and how it was found out."""
    ordered = why.by_share()
    words = [f"{word.text} {word.share:+.3f}" for word in ordered[:_SHOWN]]
    left = sum(word.share for word in ordered[_SHOWN:])
    more = [f"{len(ordered) - _SHOWN} more words {left:+.3f}"] if len(ordered) > _SHOWN else []
    bias = [f"bias {why.bias:+.3f}"] if why.method == "exact" else []
    yield ", ".join([*words, *more, *bias]) + f" ({_method(why)})"
    for word in ordered[:_SHOWN]:
        if word.features:
            shown = (f"{one.text} [{one.kind}] {one.share:+.3f}" for one in word.features[:_SHOWN_FEATURES])
            yield f"  {word.text}: {', '.join(shown)}"
    for title, shares in (("also", why.others), (why.formula, why.terms)):
        if shares:
            yield f"{title}: {', '.join(f'{one.name} {one.share:+.3f}' for one in shares)}"
    if why.examples:
        yield f"seen in: {'; '.join(one.text for one in why.examples[:_SHOWN_EXAMPLES])}"
    if why.note:
        yield why.note


def _method(why: Explanation) -> str:
    if why.method == "exact":
        return f"exact, total {why.total:+.3f}"
    return f"occlusion, {why.predictions} more predictions"


class _Matrix(_Format):
    BINARY = True

    def __init__(self, asked: Answering, file: IO[Any]) -> None:
        super().__init__(asked, file)
        self.parts: list[Csr] = []
        self.ids: list[bytes] = []

    def write(self, block: InputBlock, top: TopK, why: Why | None = None) -> None:
        self.ids += [uid.encode() for uid in block.documents.uids]
        self.parts.append(to_csr(top, len(self.asked.model.labels)))

    def end(self) -> None:
        # An open file: SciPy would put .npz after a name that lacks it.
        save_csr(self.file, stacked(self.parts), ids=np.array(self.ids, dtype=np.bytes_))


class _Rows(_Format):
    """Rows and columns: those that documents came with, then ours."""

    def __init__(self, asked: Answering, file: IO[Any]) -> None:
        super().__init__(asked, file)
        self.names: list[str] | None = None  # of the columns of the documents, as the first of them have them
        self.prefix = ""
        self.left_out: set[str] = set()

    def write(self, block: InputBlock, top: TopK, why: Why | None = None) -> None:
        found = self.asked.model.named(top)
        if self.asked.long:
            uids = [uid for uid, each in zip(block.documents.uids, found, strict=True) for _ in each]
            carried: Mapping[str, Any] = {"id": uids}
            ours: dict[str, list[Any]] = {
                "rank": [rank for each in found for rank in range(1, len(each) + 1)],
                **{
                    name: [one[n] for each in found for one in each]
                    for n, name in enumerate(("label", "name", "score"))
                },
            }
        else:
            uids = list(block.documents.uids)
            carried = self.carried(block)
            ours = {
                name: [[one[n] for one in each] for each in found]
                for name, n in (("labels", 0), ("names", 1), ("scores", 2))
                if name != "names" or self.has_names
            }
        if why is not None:
            reasons = [[one.as_json() for one in each] for each in why]
            ours["why"] = [one for each in reasons for one in each] if self.asked.long else reasons
        first = self.names is None
        if first:
            self._begin(list(carried), list(ours))
        assert self.names is not None
        if new := carried.keys() - self.names - self.left_out:
            self.left_out |= new
            self.asked.note(
                f"warning: the fields {', '.join(sorted(new))} were not in the first documents, and are left out"
            )
        self.write_rows(
            {name: carried.get(name, [None] * len(uids)) for name in self.names},
            {self.prefix + name: column for name, column in ours.items()},
            first,
        )

    def _begin(self, names: list[str], ours: list[str]) -> None:
        self.names = names
        while any(self.prefix + name in names for name in ours):
            self.prefix += PREFIX
        if self.prefix:
            new = ", ".join(self.prefix + name for name in ours)
            self.asked.note(f"the documents have such columns already; the answers are in {new}")

    def carried(self, block: InputBlock) -> Mapping[str, Any]:
        return block.carried

    @cached_property
    def has_names(self) -> bool:
        """Whether labels have names that are not their ids."""
        model = self.asked.model
        return any(label != name for label, name in zip(model.labels, model.label_names, strict=True))

    def write_rows(self, carried: Mapping[str, Any], ours: Mapping[str, list[Any]], first: bool) -> None:
        raise NotImplementedError


class _JsonLines(_Rows):
    EXPLAINS = True
    has_names = True

    def carried(self, block: InputBlock) -> Mapping[str, Any]:
        return {"uid": list(block.documents.uids)}

    def write_rows(self, carried: Mapping[str, Any], ours: Mapping[str, list[Any]], first: bool) -> None:
        names = (*carried, *ours)
        rows = zip(*carried.values(), *ours.values(), strict=True)
        self.file.writelines(_as_json(dict(zip(names, values, strict=True))) + "\n" for values in rows)


class _Csv(_Rows):
    def __init__(self, asked: Answering, file: IO[Any]) -> None:
        super().__init__(asked, file)
        # The writer quotes only the line ends that it uses itself, so it must know \r, too.
        self.writer = csv.writer(_LineFeeds(file), lineterminator="\r\n")
        separator = asked.separator
        self.join: dict[str, Callable[[Sequence[str]], str]] = {}
        if not asked.long:
            self.join["labels"] = _joiner(asked.model.labels, separator)
            self.join["scores"] = _scores_joiner(separator)
            self.join["names"] = _joiner(asked.model.label_names, "|" if separator == URIS else separator)

    def write_rows(self, carried: Mapping[str, Any], ours: Mapping[str, list[Any]], first: bool) -> None:
        columns = {name: [_cell(value) for value in plain_values(column, name)] for name, column in carried.items()}
        for name, column in ours.items():
            plain = name.removeprefix(self.prefix)
            if plain == "score":
                columns[name] = list(map(_number, column))
            elif plain == "scores":
                columns[name] = [self.join[plain](list(map(_number, scores))) for scores in column]
            else:
                columns[name] = list(map(self.join.get(plain, _cell), column))
        if first:
            self.write_line(list(columns))
        for cells in zip(*columns.values(), strict=True):
            self.write_line(cells)

    def write_line(self, cells: Sequence[str]) -> None:
        self.writer.writerow(cells)


class _Tsv(_Csv):
    def write_line(self, cells: Sequence[str]) -> None:
        self.file.write(tab_separated(cells) + "\n")


class _Parquet(_Rows):
    BINARY = True

    def __init__(self, asked: Answering, file: IO[Any]) -> None:
        super().__init__(asked, file)
        self.parquet, self.arrow = arrow_modules()
        self.writer: Any = None
        self.schema: Any = None
        self.held: list[Any] = []

    def write_rows(self, carried: Mapping[str, Any], ours: Mapping[str, list[Any]], first: bool) -> None:
        types = {} if first else dict(zip(self.schema.names, self.schema.types, strict=True))
        arrays = {name: self._array(name, column, types.get(name)) for name, column in carried.items()}
        for name, column in ours.items():
            arrays[name] = self.arrow.array(column, type=self._type(name.removeprefix(self.prefix)))
        table = self.arrow.table(arrays)
        if first:
            self.schema = table.schema
            self.writer = self.parquet.ParquetWriter(self.file, table.schema)
        self.held.append(table)
        if sum(map(len, self.held)) >= ROWS:
            self._write()

    def _write(self) -> None:
        self.writer.write_table(self.arrow.concat_tables(self.held), row_group_size=2 * ROWS)
        self.held = []

    def end(self) -> None:
        self._write()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()

    def _type(self, name: str) -> Any:
        """Of our own columns."""
        text, number = self.arrow.string(), self.arrow.float32()
        if name in ("labels", "names", "scores"):
            return self.arrow.list_(number if name == "scores" else text)
        return {"rank": self.arrow.int32(), "score": number}.get(name, text)

    def _can_hold(self, type: Any) -> bool:
        """Arrow knows types that Parquet does not, e.g. objects without fields."""
        nothing = self.arrow.schema([("", type)]).empty_table()
        try:
            self.parquet.write_table(nothing, io.BytesIO())
        except self.arrow.ArrowNotImplementedError:
            return False
        return True

    def _array(self, name: str, column: Any, type: Any) -> Any:
        """type: that of the first block; None where this is it. What Arrow has no one type for is text."""
        if hasattr(column, "to_pylist"):
            return column
        text = self.arrow.string()
        try:
            if type != text:
                array = self.arrow.array(column, type=type)
                if "null" not in str(array.type) and self._can_hold(array.type):
                    return array
        except (ValueError, TypeError, OverflowError) as problem:
            if type is not None:
                raise DataError(
                    f"the field '{name}' holds values that are no {type}, as those before were ({problem})",
                    "write csv or jsonl",
                ) from None
        return self.arrow.array([None if value is None else _cell(value) for value in column], type=text)


FORMATS: Mapping[str, type[_Format]] = {
    "text": _Text,
    "jsonl": _JsonLines,
    "csv": _Csv,
    "tsv": _Tsv,
    "parquet": _Parquet,
    "npz": _Matrix,
}
_as_json = json_writer()
WITH_COLUMNS = ("csv", "tsv", "parquet")  # formats that have the columns that documents came with


@dataclass(frozen=True)
class _LineFeeds:
    """A file whose rows end as lines do everywhere else."""

    file: IO[str]

    def write(self, row: str) -> None:
        self.file.write(row.removesuffix("\r\n") + "\n")


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        return _as_json(value)
    return str(value)


def _number(score: float) -> str:
    return f"{score:.6g}"


def _joiner(strings: Sequence[str], separator: str | None) -> Callable[[Sequence[str]], str]:
    """How the strings of a cell are put together, so that they can be told apart: as in training, or as JSON."""
    if separator == URIS:
        return lambda parts: " ".join(f"<{part}>" for part in parts)
    between = _between(separator)
    if separator == JSON or any(between in string for string in strings):
        return lambda parts: _as_json(list(parts))
    return between.join


def _scores_joiner(separator: str | None) -> Callable[[Sequence[str]], str]:
    if separator == JSON:
        return lambda parts: f"[{', '.join(parts)}]"
    return " ".join if separator == URIS else _between(separator).join


def _between(separator: str | None) -> str:
    """TSV cannot hold a tab in a cell."""
    return "|" if separator in (None, "", "\t") else str(separator)
