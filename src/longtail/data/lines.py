"""Text files line by line, plain or gzip, and folders that appear complete or not at all.

Lines end at ``\\n`` only (a title may hold any other separator that Unicode knows); a byte order mark is skipped.
Whatever is wrong with the bytes is a `DataError` that names the line. Equal lines are written as equal bytes: gzip
without name and time.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from longtail.errors import DataError, RunError
from longtail.persistence import no_room_is_an_error, written_aside

BLOCK = 1 << 18  # bytes: large enough that work per block does not count, small enough to stay in the cache

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# ---- reading ----


def byte_blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """The file as blocks of whole lines, each with the number of its first line (from 1). Decompresses ``*.gz``."""
    line, unfinished = 1, [b""]
    try:
        with _opened(path) as file:
            first = file.read(BLOCK)
            chunk = first.removeprefix(_BYTE_ORDER_MARK)
            while chunk:
                cut = chunk.rfind(b"\n") + 1
                if cut:
                    block = b"".join([*unfinished, chunk[:cut]])
                    yield line, block
                    line += block.count(b"\n")
                    unfinished = []
                unfinished.append(chunk[cut:])
                chunk = file.read(BLOCK)
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
        raise DataError(
            f"cannot be read ({os.strerror(problem.errno or 0)})",
            "check the path and the rights of the file",
            file=path,
        ) from None
    if last := b"".join(unfinished):
        yield line, last


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def line_blocks(path: Path) -> Iterator[tuple[int, list[str]]]:
    """As `byte_blocks`, as lists of lines without their ends."""
    for first, block in byte_blocks(path):
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError as problem:
            line = first + block.count(b"\n", 0, problem.start)
            raise DataError(
                f"byte 0x{block[problem.start]:02x} is not valid UTF-8", "save the file as UTF-8", file=path, line=line
            ) from None
        yield first, text.removesuffix("\n").split("\n")


def open_text_lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 without their ends."""
    for _, lines in line_blocks(path):
        for line in lines:
            yield line.removesuffix("\r")


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
    with (
        path.open("wb") as file,
        _compressing(path, file) as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as text,
    ):
        for line in lines:
            text.write(line + "\n")


def _compressing(path: Path, file: BinaryIO) -> BinaryIO:
    return (
        cast(BinaryIO, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6))
        if path.suffix == ".gz"
        else file
    )


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
            raise RunError(f"{folder}: the folder exists and is not empty", new)
        with written_aside(target) as aside:
            aside.mkdir()
            yield aside
