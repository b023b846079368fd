"""Every state of the disk that a kill of a training can leave, from one training that nobody kills.

A killed process leaves nothing but files. So a training runs once, whole, with an eye on its folder: Python tells of
every file that is opened for writing, renamed, linked or removed and of every folder that is made or removed
(`sys.addaudithook`), and a picture of the folder is taken before each. What is written to a file between two of them is
also pictured in the middle: empty, begun, half of it there. Nothing may change that the hook did not tell of, else the
pictures would not be all there are (`Film.unseen`).

Each picture is then put into a folder and opened as a training opens it that goes on, which tidies it. Pictures that
are one folder after that are one case; one of each is trained to the end, and must give what the whole training gave.
Real kills, at fewer moments, are in `kills`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults.kills import EVENTS, WRITING
from longtail.training.run import Run

# What lies below a folder, by paths; None: a folder. The folder itself has the path "".
Picture = frozenset[tuple[str, bytes | None]]

_EVENTS = {*EVENTS, "os.chmod"}
# The log is written and never read by a training, so what is in it makes no difference (which is checked).
_LOG, _LIST = re.compile(r"(members/\d+/)?metrics\.jsonl"), "files.jsonl"
_JUST_NOW = 0.05  # seconds in which a file may change without another time of change


class Camera:
    """Takes pictures of a folder; files that did not change since the last one are not read again."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self._known: dict[str, tuple[tuple[int, int, int], bytes]] = {}
        self._contents: dict[bytes, bytes] = {}

    def take(self) -> Picture:
        found: list[tuple[str, bytes | None]] = []
        if os.path.isdir(self.folder):
            found.append(("", None))
            self._look("", found)
        return frozenset(found)

    def _look(self, below: str, found: list[tuple[str, bytes | None]]) -> None:
        for entry in os.scandir(os.path.join(self.folder, below)):
            name = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                found.append((name, None))
                self._look(name, found)
            else:
                found.append((name, self._content(name, entry)))

    def _content(self, name: str, entry: os.DirEntry[str]) -> bytes:
        status = entry.stat(follow_symlinks=False)
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._known.get(name)
        if known is not None and known[0] == seen:
            return known[1]
        content = Path(entry.path).read_bytes()
        content = self._contents.setdefault(content, content)
        if time.time() - status.st_mtime > _JUST_NOW:
            self._known[name] = seen, content
        return content


@dataclass(frozen=True)
class Operation:
    """What a process is about to do to files below a folder. paths: below it; None: elsewhere."""

    event: str
    paths: tuple[str | None, ...]
    flags: int = 0

    @classmethod
    def told(cls, event: str, arguments: tuple[Any, ...], folder: str) -> Operation | None:
        """What Python tells of, if that is a file below the folder."""
        if event != "open" and event not in _EVENTS:
            return None
        flags = arguments[2] if event == "open" and isinstance(arguments[2], int) else 0
        paths = tuple(_below(path, folder) for path in _paths(event, arguments))
        return None if all(path is None for path in paths) else cls(event, paths, flags)

    @property
    def changes(self) -> bool:
        return self.event != "open" or bool(self.flags & WRITING)

    def applied(self, picture: Picture) -> Picture:
        """The folder after it, if it succeeds and nothing is written to a file."""
        before, path = dict(picture), self.paths[0]
        match self.event:
            case "open" if path is not None:
                new = path not in before and self.flags & os.O_CREAT
                if new or (path in before and self.flags & os.O_TRUNC):
                    before[path] = b""
            case "os.mkdir" if path is not None:
                before.setdefault(path, None)
            case "os.remove" | "os.rmdir" if path is not None:
                before.pop(path, None)
            case "os.rename" | "os.link":
                self._moved(before)
        return frozenset(before.items())

    def _moved(self, files: dict[str, bytes | None]) -> None:
        source, target = self.paths
        if source is None or source not in files:
            return
        moved = {name: files[name] for name in files if name == source or name.startswith(f"{source}/")}
        if self.event == "os.rename":
            for name in moved:
                del files[name]
        if target is not None:
            files.update({target + name[len(source) :]: content for name, content in moved.items()})

    def __str__(self) -> str:
        return f"{self.event} {' '.join(str(path) for path in self.paths)}"


class Film:
    """Every picture of a folder, in order, each with what was done when it was first met."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._camera = str(folder.absolute()), Camera(folder)
        self.pictures: dict[Picture, str] = {}
        self.operations, self.unseen = 0, list[str]()
        self.read: set[str] = set()
        self._before, self._operation = self._camera.take(), Operation("the beginning", (None,))
        self._keep(self._before, "before the beginning")

    @contextmanager
    def rolling(self) -> Iterator[None]:
        with _told(self._saw):
            yield
        self._go_on(Operation("the end", (None,)))

    def _saw(self, event: str, arguments: tuple[Any, ...]) -> None:
        operation = Operation.told(event, arguments, self.folder)
        if operation is not None and operation.changes:
            self.operations += 1
            self._go_on(operation)
        elif operation is not None:
            self.read.update(path for path in operation.paths if path is not None)

    def _go_on(self, coming: Operation) -> None:
        now = self._camera.take()
        done = self._operation.applied(self._before)
        # It may have failed: then there is what was there before.
        start = min(done, self._before, key=lambda picture: len({name for name, _ in picture ^ now}))
        self._keep(start, str(self._operation))
        before, after = dict(start), dict(now)
        written = [name for name in after if after[name] != before.get(name)]
        if before.keys() != after.keys() or len(written) > 1:
            names = sorted({*(before.keys() ^ after.keys()), *written})
            self.unseen.append(f"between {self._operation} and {coming}: {names[:5]}")
        for name in written:
            for torn in _torn(name, before.get(name) or b"", after[name] or b""):
                self._keep(frozenset({**before, **torn}.items()), f"{name} was being written after {self._operation}")
        self._keep(now, f"before {coming}")
        self._before, self._operation = now, coming

    def _keep(self, picture: Picture, when: str) -> None:
        self.pictures.setdefault(picture, when)


def _torn(name: str, old: bytes, new: bytes) -> Iterator[dict[str, bytes]]:
    """States of a file that is being written: cut to what stays, begun, half of it there; and the file beside it that
    safetensors writes first, which has its full length at once.
    """
    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    middle = same + (len(new) - same) // 2
    for length in sorted({same, min(same + 1, middle), middle}):
        yield {name: new[:length]}
    if name.endswith(".safetensors"):
        beside = os.path.join(os.path.dirname(name), ".tmpAbCdEf")
        for length in (0, middle, len(new)):
            yield {beside: new[:length].ljust(len(new), b"\0"), name: old}


def _paths(event: str, arguments: tuple[Any, ...]) -> Iterator[str]:
    """Absolute paths that an event names; some as a name and the descriptor of its folder (`shutil.rmtree`)."""
    given = arguments[:2] if event in ("os.rename", "os.link", "os.symlink") else arguments[:1]
    folder = arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
    for one in given:
        if isinstance(one, int):
            yield _opened(one)
        elif isinstance(one, str | bytes | os.PathLike):
            name = os.fsdecode(one)
            yield os.path.join(_opened(folder) if folder >= 0 else os.getcwd(), name)


def _below(path: str, folder: str) -> str | None:
    if path == folder:
        return ""
    return path[len(folder) + 1 :] if path.startswith(folder + "/") else None


def _opened(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


# A hook cannot be taken away again: there is one, which tells whoever listens.
_listeners: list[Callable[[str, tuple[Any, ...]], None]] = []
_hooked = False


def _tell(event: str, arguments: tuple[Any, ...]) -> None:
    if _listeners:
        listener = _listeners.pop()  # what it does itself is not told
        try:
            listener(event, arguments)
        finally:
            _listeners.append(listener)


@contextmanager
def _told(listener: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    global _hooked
    if not _hooked:
        sys.addaudithook(_tell)
        _hooked = True
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class Screen:
    """A folder in which pictures are shown."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._camera = folder, Camera(folder)

    def show(self, picture: Picture) -> None:
        here, there = dict(self._camera.take()), dict(picture)
        for name in sorted(here, reverse=True):  # what is in a folder goes before it
            if here[name] is None and name not in there:
                (self.folder / name).rmdir()
            elif here[name] is not None and here[name] != there.get(name):
                (self.folder / name).unlink()
        for name in sorted(there):
            content = there[name]
            if content is None:
                (self.folder / name).mkdir(exist_ok=True)
            elif here.get(name) != content:
                (self.folder / name).write_bytes(content)

    def seen(self) -> Picture:
        """What is there now, as far as a training looks at it: without the log, and whole lines of its list."""
        kept = {name: content for name, content in self._camera.take() if not _LOG.fullmatch(name)}
        if listed := kept.get(_LIST):
            kept[_LIST] = listed[: listed.rfind(b"\n") + 1]
        return frozenset(kept.items())


@dataclass
class Found:
    """What became of the pictures of one training. cases: different folders after tidying; moments: see `moments`."""

    operations: int = 0
    pictures: int = 0
    cases: int = 0
    stages: int = 0
    moments: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def moments(picture: Picture) -> Iterator[str]:
    """Where a training stands, by what is there."""
    names = {name for name, _ in picture}
    if "run.json" not in names:
        yield "nothing yet"
    yield f"{len(_stages(picture))} stages"
    for name in names:
        if inside := re.fullmatch(r"(?:members/\d+/)?work/([^.]+)/epoch\.safetensors", name):
            yield f"a checkpoint of {inside[1]}"
        if re.fullmatch(r"\.bundle\.[0-9a-f]{8}\.tmp/bundle/manifest\.json", name):
            yield "a bundle written aside"
    if "bundle/manifest.json" in names:
        yield "a bundle"


def _stages(picture: Picture) -> list[str]:
    return [name for name, content in picture if content is None and _STAGE.fullmatch(name)]


_STAGE = re.compile(r"(?:members/\d+/)?stages/[^./]+")


def explored(train: Callable[[Path], object], home: Path, *, enough: int = 20) -> Found:
    """Train into folders below `home`: once whole, and once from each case that a kill can leave. enough: problems
    after which no more are looked for.
    """
    whole = home / "whole"
    film = Film(whole)
    with film.rolling():
        train(whole)
    found = Found(film.operations, len(film.pictures), problems=film.unseen)
    finished, read = Screen(whole), set(film.read)
    expected, identity = _result(finished.seen()), json.loads((whole / "run.json").read_text())
    found.stages = len(_stages(finished.seen()))
    cases: dict[Picture, tuple[Picture, str]] = {}
    tried = Screen(home / "tried")
    for picture, when in film.pictures.items():
        if len(found.problems) >= enough:
            break
        tried.show(picture)
        found.moments.update(moments(picture))
        try:
            Run.open(tried.folder, identity, seed=identity["seed"], device="cpu").close()
        except Exception as problem:
            found.problems.append(f"{when}: cannot be opened: {problem!r}")
            continue
        cases.setdefault(tried.seen(), (picture, when))
    found.cases = len(cases)
    for picture, when in cases.values():
        if len(found.problems) >= enough:
            break
        tried.show(picture)
        try:
            with _told(partial(_read, read, str(tried.folder))):
                train(tried.folder)
        except Exception as problem:
            found.problems.append(f"{when}: cannot be resumed: {problem!r}")
            continue
        if wrong := sorted(name for name, _ in _result(tried.seen()) ^ expected):
            found.problems.append(f"{when}: resumed to something else: {wrong[:5]}")
    if logs := [name for name in read if _LOG.fullmatch(name)]:
        found.problems.append(f"{logs} were read: what is in them may make a difference")
    shutil.rmtree(home)
    return found


def _read(names: set[str], folder: str, event: str, arguments: tuple[Any, ...]) -> None:
    """Add what is opened for reading."""
    operation = Operation.told(event, arguments, folder) if event == "open" else None
    if operation is not None and not operation.changes:
        names.update(path for path in operation.paths if path is not None)


def _result(picture: Picture) -> Picture:
    """What a training must give again: everything but the order of the lines in its list."""
    files = dict(picture)
    listed = files.pop(_LIST) or b""
    return frozenset([*files.items(), *((f"{_LIST}: {line!r}", b"") for line in listed.splitlines())])
