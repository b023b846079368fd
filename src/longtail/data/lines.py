"""Text files line by line, plain or gzip; JSON objects, one per line, as columns; and folders that appear
complete or not at all.

Lines end at a line feed only (a title may hold any other separator that Unicode knows); a byte order mark is skipped.
Whatever is wrong with the bytes is a `DataError` that names the line. Equal lines are written as equal bytes: gzip
without name and time. Reading JSON is the fast path: per line it only parses and appends, what can be checked on a
whole column is checked after the loop, and only when such a check fails is the line sought.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from longtail.data.dataset import Items
from longtail.data.from_texts import is_whole, shown
from longtail.data.size_limits import COLUMNS, LINE, check_growth
from longtail.errors import DataError, RunError
from longtail.persistence import no_room_is_an_error, written_aside
from longtail.writing import remove_dead

BLOCK = 1 << 18  # bytes: large enough that work per block does not count, small enough to stay in the cache

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NO_TEXT = {
    b"\xff\xfe": ("is UTF-16, not UTF-8", "save it as UTF-8, or: iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("is UTF-16, not UTF-8", "save it as UTF-8, or: iconv -f UTF-16 -t UTF-8"),
    b"PK\x03\x04": ("is a zip archive (or a spreadsheet, .xlsx), not lines of text", "save it as CSV, in UTF-8"),
    b"\x1f\x8b": ("is compressed by gzip, and its name does not say so", "add .gz to its name; of a pipe: | gunzip |"),
    b"PAR1\x15": ("is a Parquet file, not lines of text", "let its name end in .parquet"),
}

# ---- reading ----


def byte_blocks(path: Path, on_read: Callable[[int], None] = lambda place: None) -> Iterator[tuple[int, bytes]]:
    """The file as blocks of whole lines, each with the number of its first line (from 1). Decompresses ``*.gz``.

    on_read: told how far in the file reading is, in bytes (of the compressed file).
    """
    line = 1
    try:
        with path.open("rb") as raw, _decompressing(path, raw) as file:
            made = 0

            def read() -> bytes:
                nonlocal made
                chunk = file.read(BLOCK)
                made += len(chunk)
                if raw is not file:
                    check_growth(raw.tell(), made, path)
                on_read(raw.tell())
                return chunk

            for first, block in whole_lines(read, path):
                yield first, block
                line = first + block.count(b"\n")
    except gzip.BadGzipFile as problem:
        raise DataError(
            f"is not a gzip file, or is broken ({problem})",
            "compress it again with gzip, or drop .gz from its name",
            file=path,
            line=line,
        ) from None
    except (EOFError, zlib.error) as problem:
        raise DataError(
            f"the gzip file is truncated or broken ({problem})", "copy or download the file again", file=path, line=line
        ) from None
    except FileNotFoundError:
        raise DataError("the file is missing", "check the path", file=path) from None
    except OSError as problem:
        raise unreadable(path, problem) from None


def unreadable(source: Path | str, problem: OSError) -> DataError:
    """What the system says of reading it."""
    said = os.strerror(problem.errno or 0)
    return DataError(f"cannot be read ({said})", "check the path and the rights of the file", file=source)


def whole_lines(read: Callable[[], bytes], source: Path | str = "standard input") -> Iterator[tuple[int, bytes]]:
    """Chunks of bytes, until an empty one, as blocks of whole lines, each with the number of its first line (from 1).
    A block is what its chunk brought, so that the lines of a pipe are there as soon as they are written.
    """
    line, unfinished, length, longest = 1, [b""], 0, LINE.most()
    chunk = read()
    # What tells a kind of file may come in pieces, and a mark may come alone: that is no end.
    while chunk and any(mark.startswith(chunk) for mark in (_BYTE_ORDER_MARK, *_NO_TEXT)) and (more := read()):
        chunk += more
    chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
    for beginning, (wrong, hint) in _NO_TEXT.items():
        if chunk.startswith(beginning):
            raise DataError(wrong, hint, file=source)
    while chunk:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            block = b"".join([*unfinished, chunk[:cut]])
            yield line, block
            line += block.count(b"\n")
            unfinished, length = [], 0
        unfinished.append(chunk[cut:])
        length += len(unfinished[-1])
        if length > longest:
            LINE.check(length, "bytes without an end of line", source, line)
        chunk = read()
    if last := b"".join(unfinished):
        if line == 1 and b"\r" in last.rstrip(b"\r"):
            raise DataError(
                "lines end in carriage returns alone, expected line feeds",
                "convert it: tr '\\r' '\\n' < FILE > NEW",
                file=source,
            )
        yield line, last


def _decompressing(path: Path, file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if path.suffix.lower() == ".gz" else file


def line_blocks(
    path: Path,
    on_read: Callable[[int], None] = lambda place: None,
    on_mended: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """As `byte_blocks`, as lists of lines without their ends. on_mended: as in `decoded`."""
    return decoded(byte_blocks(path, on_read), path, on_mended)


NOT_UNICODE = "texts with bytes or characters that are no Unicode, which were replaced by U+FFFD"


def decoded(
    blocks: Iterable[tuple[int, bytes]], source: Path | str, on_mended: Callable[[int], None] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Blocks of whole lines as lists of lines without their ends. source: where they come from, for errors; the lines
    before a wrong one are given first.

    on_mended: where it is given, nothing is wrong: bytes that are not UTF-8 are replaced, and it is told the number of
    each line with some.
    """
    for first, block in blocks:
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError as problem:
            if on_mended is not None:
                lines = block.removesuffix(b"\n").split(b"\n")
                for number, line in enumerate(lines, first):
                    if not _is_utf8(line):
                        on_mended(number)
                yield first, [line.decode("utf-8", "replace") for line in lines]
                continue
            before = block[: block.rfind(b"\n", 0, problem.start) + 1]
            if before:
                yield first, before.decode("utf-8").removesuffix("\n").split("\n")
            raise DataError(
                f"byte 0x{block[problem.start]:02x} is not valid UTF-8",
                "save the file as UTF-8; of Windows: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW",
                file=source,
                line=first + before.count(b"\n"),
            ) from None
        yield first, text.removesuffix("\n").split("\n")


def _is_utf8(line: bytes) -> bool:
    try:
        return line.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def open_text_lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 without their ends."""
    for _, lines in line_blocks(path):
        for line in lines:
            yield line.removesuffix("\r")


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of UTF-8 that are not blank, without their ends, each with its number (from 1)."""
    return ((number, line) for number, line in enumerate(open_text_lines(path), 1) if line.strip())


def read_raw_texts(path: Path) -> tuple[list[str], int]:
    """One text per line, and the number of texts where bytes that are not UTF-8 were replaced by U+FFFD.

    Released raw texts are not always clean UTF-8 (GalaXC's are read as latin-1), and a broken character harms nothing.
    """
    texts, mended = [], 0
    for _, block in byte_blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                text, mended = line.decode("utf-8", "replace"), mended + 1
            texts.append(text.removesuffix("\r"))
    return texts, mended


# ---- writing ----


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of UTF-8, gzipped if the name ends in ``.gz``. Not atomic: write into a `new_folder`."""
    with text_file(path, compressed=path.suffix == ".gz") as text:
        for line in lines:
            text.write(line + "\n")


@contextlib.contextmanager
def text_file(path: Path, *, compressed: bool) -> Iterator[TextIO]:
    """A new file for text in UTF-8; line ends are written as they are given."""
    with (
        path.open("wb") as file,
        _compressing(file) if compressed else file as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as text,
    ):
        yield text


def _compressing(file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6))


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder aside; on success it appears as `folder`, which must not exist or be empty."""
    new = "name a folder that does not exist yet"
    with no_room_is_an_error(folder):
        target = folder.resolve()
        obstacle = next((path for path in (target, *target.parents) if path.exists() and not path.is_dir()), None)
        if obstacle is not None:
            raise RunError(f"{folder}: {obstacle} is a file, a folder was expected", new)
        if target.is_dir() and any(target.iterdir()):
            remove_dead(target.parent, target.name)  # of who was killed just when the folder was there
            raise RunError(f"{folder}: the folder exists and is not empty", new)
        # The new folder would take its place, and a shell that stands in it would not notice.
        if target.is_dir() and target.samefile("."):
            raise RunError(f"{folder}: is the current folder", f"{new}, for example {folder / 'new'}")
        with written_aside(target) as aside:
            aside.mkdir()
            yield aside


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


def in_parts(records: Iterable[Record], characters: int) -> Iterator[list[Record]]:
    """Records in lists of about so many characters of text each."""
    part: list[Record] = []
    size = 0
    for record in records:
        part.append(record)
        size += 64 + sum(len(value) for value in record.values() if type(value) is str)
        if size >= characters:
            yield part
            part, size = [], 0
    if part:
        yield part


def read_items(path: Path, repairs: Counter[str], unwanted: Sequence[str] = ()) -> Items:
    """Labels, anchors, or documents without what is unwanted. What was mended is added to `repairs`."""
    columns = ItemColumns(path, unwanted)
    columns.fill(records(path))
    return columns.items(repairs)


class ItemColumns:
    """Collects ``uid`` and text fields of records, then checks them.

    A field is text if it is a string on some line; elsewhere it may be missing or null, which is "". A field that is
    never a string is left out and counted, unless it is among `unwanted`. ``title`` is always a field.
    before: lines of the file before the first record.
    """

    def __init__(self, path: Path, unwanted: Sequence[str] = (), before: int = 0) -> None:
        self.path, self.unwanted, self.before = path, frozenset(unwanted), before
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
                self._other.setdefault(name, []).append(self.before + len(self.uids))

    def _add_column(self, name: str) -> list[Any]:
        COLUMNS.check(len(self.columns) + 1, "different fields", self.path, self.before + max(len(self.uids), 1))
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
                line=self.before + line,
            )
        self._check_whole("uid", self.uids)
        if len(set(self.uids)) < len(self.uids):
            first: dict[str, int] = {}
            line = _line_where(lambda pair: first.setdefault(pair[1], pair[0]) != pair[0], enumerate(self.uids, 1))
            uid = self.uids[line - 1]
            raise DataError(
                f"uid {shown(uid)} stands on line {self.before + first[uid]} already",
                "give every line a uid of its own",
                file=self.path,
                line=self.before + line,
            )

    def _texts(self, name: str, column: list[Any]) -> Sequence[str]:
        types = set(map(type, column))
        if not types <= {str, type(None)}:
            line = _line_where(lambda value: value is not None and type(value) is not str, column)
            raise DataError(
                f"{name} is {shown(column[line - 1])}, expected a string",
                'write texts in quotes; "" where there is none',
                file=self.path,
                line=self.before + line,
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
                line=self.before + line,
            )


def _line_where(wrong: Callable[[Any], bool], values: Iterable[Any]) -> int:
    return next(line for line, value in enumerate(values, 1) if wrong(value))
