"""What people say about answers, kept as lines of JSON that ``longtail train`` reads. Nothing is learnt here."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from longtail.data.columns import Columns
from longtail.errors import ConfigError
from longtail.serve.limits import Limits
from longtail.serve.problems import Problem, as_json, busy

ENDINGS = (".jsonl", ".ndjson")  # what readers of data know as lines of JSON
_MINUTE = 60.0
# Breaks of lines for some readers, though not for JSON.
_BREAKS = {number: f"\\u{number:04x}" for number in (0x85, 0x2028, 0x2029)}


def check_file(path: Path) -> None:
    """An error where corrections could not be kept; the file is made if it is not there."""
    if not path.name.endswith(ENDINGS):
        raise ConfigError(
            f"{path}: corrections are kept as lines of JSON, expected a name that ends with {' or '.join(ENDINGS)}",
            "longtail train tells formats by names: --corrections corrections.jsonl",
        )
    try:
        os.close(_opened(path))
    except OSError as problem:
        raise ConfigError(
            f"{path}: cannot be written ({problem.strerror or problem})", "give a file in a folder that can be written"
        ) from problem


def _opened(path: str | Path) -> int:
    """For its owner alone to read: the texts are of people who ask the server."""
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def as_row(
    text: str,
    right: Sequence[str],
    wrong: Sequence[str],
    *,
    fields: Sequence[str],
    columns: Columns | None,
    model: str,
    version: str,
) -> dict[str, Any]:
    """A corrected text as a row of the table that the model was trained on, with what is wrong beside it.

    fields: those that the model reads; the text counts as the first, as in predictions. columns: the names that the run
    remembers; None: those that every reader of tables knows.
    """
    now = datetime.now(UTC)
    facts = {"model": model, "version": version, "time": now.isoformat(timespec="seconds").replace("+00:00", "Z")}
    uid, labels = (columns and columns.id) or "uid", (columns and columns.labels) or "labels"
    others = [name for name in (() if columns is None else columns.text) if name != fields[0]]
    row = {
        uid: f"correction-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(6)}",
        fields[0]: text,
        **dict.fromkeys(others, ""),
        labels: list(right),
        "not_labels": list(wrong),
    }
    # Columns of the table keep their meaning where one of them is called "model" or "time".
    return {**row, **{name: fact for name, fact in facts.items() if name not in row}}


class Corrections:
    """The file, as one worker sees it. All workers append to it: a lock, and one write for a line."""

    def __init__(self, path: str, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self._lately: deque[float] = deque()

    def check_rate(self) -> None:
        """Raises 503 where more than people can click come in a minute."""
        now = time.monotonic()
        while self._lately and now - self._lately[0] > _MINUTE:
            self._lately.popleft()
        if len(self._lately) >= self.limits.corrections_per_minute:
            raise busy("too many corrections within a minute", _MINUTE - (now - self._lately[0]))
        self._lately.append(now)

    def append(self, row: dict[str, Any]) -> None:
        """The whole line, or nothing of it. The file is opened anew each time: it may have been moved away."""
        line = as_json(row).decode().translate(_BREAKS).encode() + b"\n"
        try:
            file = _opened(self.path)
        except OSError as problem:
            raise _not_kept(str(problem.strerror or problem)) from problem
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line  # whatever wrote the last line, ours is one of its own
            if size + len(line) > self.limits.corrections_bytes:
                raise _not_kept(f"the file has {size:,} bytes, at most {self.limits.corrections_bytes:,} are kept")
            try:
                written = os.write(file, line)
                os.fsync(file)  # a power cut does not take back what is said to be kept
            except OSError as problem:
                raise _not_kept(str(problem.strerror or problem)) from problem
            if written < len(line):
                os.ftruncate(file, size)
                raise _not_kept("no space is left")
        finally:
            os.close(file)  # frees the lock


def _not_kept(why: str) -> Problem:
    return Problem(507, f"the correction was not kept: {why}")
