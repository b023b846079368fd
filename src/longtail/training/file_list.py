"""``RUN/files.jsonl``: what a run wrote. Nothing else in its folder is ever removed, and what is listed with checksums
is compared with them before it is used again.

A line is an object with a ``path`` and what lies there:

    {"path": "run.json"}                                        a file, which may change
    {"path": "stages/0_prepare", "files": {"part.json": ...}}   a folder: size and SHA-256 of each file
    {"path": "bundle", "holds": "bundle"}                       a bundle, whose manifest lists its files
    {"path": "trials/0123", "holds": "run"}                     a run of its own

A list begins with the lines of ``run.json`` and ``config.toml``. A folder with a list that begins otherwise is no run:
data sets may have a file of this name, too. A line is on the disk before what it tells of appears. Where two lines have
one path, the later one counts.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from longtail.bundle import MANIFEST, is_left_behind, sha256
from longtail.errors import BundleError, RunError
from longtail.persistence import read_json
from longtail.training.processes import FOLDER as PROCESSES_FOLDER
from longtail.training.processes import is_of_process
from longtail.writing import is_aside, is_litter, no_room_is_an_error, remove_dead, to_disk, written_aside

NAME = "files.jsonl"
LOCK = ".lock"
_BEGINNING = ("run.json", "config.toml")  # what the list of every run names first
_KEYS, _KINDS = {"path", "files", "holds"}, (None, "bundle", "run")


def is_listed(folder: Path) -> bool:
    """Whether the folder has a list that begins as that of a run does."""
    beginning = _lines(_BEGINNING)
    try:
        if not (folder / NAME).is_file():  # a pipe would be waited for
            return False
        with (folder / NAME).open("rb") as file:
            return file.read(len(beginning)) == beginning
    except PermissionError:  # of somebody else
        return False


def _lines(names: Iterable[str]) -> bytes:
    return "".join(json.dumps({"path": name}) + "\n" for name in names).encode()


class FileList:
    """What a run wrote, by paths below its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / NAME
        self.entries: dict[str, Mapping[str, Any]] = {}
        self._whole = 0  # bytes of whole lines
        if self.file.is_file():
            self._read()

    def _read(self) -> None:
        content = self.file.read_bytes()
        self._whole = content.rfind(b"\n") + 1
        lines = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            # The last line has no end if the process was killed while it was written: what it tells of is not there.
            if line and number < len(lines):
                entry = _parsed(line)
                if entry is None:
                    raise RunError(
                        f"{self.file}, line {number}: not what a run writes there",
                        "it was altered or damaged; choose another --out",
                    )
                self.entries[entry["path"]] = entry

    def begin(self, *names: str) -> None:
        """A new list, of files directly in the folder beside those that every run has."""
        names = (*_BEGINNING, *names)
        self.entries, content = {name: {"path": name} for name in names}, _lines(names)
        with written_aside(self.file) as aside:
            aside.write_bytes(content)
        self._whole = len(content)

    def add(self, path: Path, **what: Any) -> None:
        """`path`, in the folder, is about to appear. what: see the top of this file."""
        name = path.relative_to(self.folder).as_posix()
        entry = {"path": name, **what}
        if self.entries.get(name) == entry:
            return
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        with no_room_is_an_error(self.file):
            self.folder.mkdir(parents=True, exist_ok=True)
            with self.file.open("r+b" if self.file.exists() else "wb") as file:
                file.truncate(self._whole)
                file.seek(self._whole)
                file.write(line)
            self._whole += len(line)
            to_disk(self.file)
        self.entries[name] = entry

    def check(self, folder: Path) -> None:
        """A folder holds what it held when it was listed: nothing missing, altered or foreign."""
        entry = self.entries.get(folder.relative_to(self.folder).as_posix(), {})
        again = "--restart begins anew, or give another --out"
        if "files" not in entry:
            raise RunError(f"{folder}: the run does not say that it wrote this ({NAME})", again)
        found = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
        for name, file in entry["files"].items():
            path = found.pop(name, None)
            if path is None:
                raise RunError(f"{folder / name}: the file is missing", again)
            if path.is_symlink() or path.stat().st_size != file["bytes"] or sha256(path) != file["sha256"]:
                raise RunError(f"{path}: the content is not what the run wrote (its checksum differs)", again)
        if found:
            raise RunError(f"{min(found.values())}: a file that the run did not write", "move it away")

    def foreign(self) -> Path | None:
        """Something below the folder that the run did not write; None where there is nothing. Folders with nothing in
        them count inside stages and bundles, which they would keep from being replaced.
        """
        known = set(self._known())
        own = self._own_folders(known)
        found = [path for path in _files(self.folder) if path not in known]
        for folder, kind in self._listed_folders():
            found += [path for path in _folders(folder) if kind != "run" and path not in own]
        return min(found, default=None)

    def _listed_folders(self) -> Iterator[tuple[Path, str]]:
        """Each with what it holds; also those of runs inside this one."""
        for name, entry in self.entries.items():
            path = self.folder / name
            if "files" in entry or "holds" in entry:
                yield path, entry.get("holds", "files")
            if entry.get("holds") == "run" and is_listed(path):
                yield from FileList(path)._listed_folders()

    def _own_folders(self, known: Iterable[Path]) -> set[Path]:
        """Folders that the run made: those that are listed, and that hold what is listed."""
        listed = [*known, *(folder / "any" for folder, _ in self._listed_folders())]
        own = {above for path in listed for above in path.parents}
        return {folder for folder in own if folder != self.folder and folder.is_relative_to(self.folder)}

    def _known(self) -> Iterator[Path]:
        yield from (self.file, self.folder / LOCK)
        for name, entry in self.entries.items():
            path, kind = self.folder / name, entry.get("holds")
            if path.is_symlink():
                continue
            if kind == "run":
                if is_listed(path):
                    yield from FileList(path)._known()
            elif kind == "bundle":
                yield from (path / name for name in _listed_in_bundle(path))
            elif "files" in entry:
                yield from (path / name for name in entry["files"])
            else:
                yield path

    def names(self, path: Path) -> bool:
        """Whether the run wrote this file."""
        return path in set(self._known())

    def remove(self, below: Path | None = None) -> None:
        """Remove what the run wrote, all of it or what lies below a folder, with the folders that this empties. A list
        (the manifest of a bundle, the list of a run inside this one) goes after all that it names: whoever goes on
        where this was interrupted knows by it whose the rest is. ``run.json`` goes last: as long as it is there,
        nothing of another run can be begun beside what is left of this one.
        """
        root = self.folder if below is None else below
        for walked, _, _ in os.walk(root):
            remove_dead(Path(walked))
        known = [path for path in self._known() if path not in (self.file, self.folder / LOCK)]
        own = {folder for folder in self._own_folders(known) if folder.is_relative_to(root)}
        for path in sorted((path for path in known if path.is_relative_to(root)), key=self._turn):
            if not path.is_symlink():
                path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder not in own or not _remove_empty(folder):
                    break
        for folder in sorted(own, reverse=True):
            _remove_empty(folder)

    def _turn(self, path: Path) -> tuple[bool, bool, int]:
        """By which files are sorted that are removed: inner lists before outer ones."""
        is_list = path.name in (MANIFEST, NAME)
        return path == self.folder / "run.json", is_list, -len(path.parts) if is_list else 0

    def remove_leftovers(self) -> None:
        """What a killed process had written aside and not yet renamed. Safe: the run is locked."""
        for folder, _, _ in os.walk(self.folder):
            remove_dead(Path(folder))


def _remove_empty(folder: Path) -> bool:
    """A folder with nothing in it but what systems leave anywhere: that would be in the way of the next of its name.
    Gives whether it is gone.
    """
    with contextlib.suppress(OSError):
        left = [] if folder.is_symlink() else list(folder.iterdir())
        if all(is_litter(path.name) for path in left):
            for path in left:
                path.unlink()
            folder.rmdir()
    return not folder.exists()


def remove_run(folder: Path) -> None:
    """Remove a whole run, if there is nothing else in its folder."""
    FileList(folder).remove()
    for name in (NAME, LOCK):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """An entry, if it is one of a run: a path below its folder, names of files below that, and nothing else."""
    try:
        entry = json.loads(line)
        names = [entry["path"], *entry.get("files", {})]
        sound = all(_is_below(name) for name in names)
        sound &= entry.keys() <= _KEYS and entry.get("holds") in _KINDS
        sound &= all({"bytes", "sha256"} <= file.keys() for file in entry.get("files", {}).values())
        return entry if sound else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_below(name: Any) -> bool:
    pure = PurePosixPath(name)
    return bool(pure.parts) and not pure.is_absolute() and ".." not in pure.parts


def _files(folder: Path) -> Iterator[Path]:
    """Files and links below a folder; neither what systems leave anywhere, nor what is written aside."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _passes(Path(place) / name)]
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        yield from (Path(place) / name for name in [*files, *links] if not is_litter(name))


def _folders(folder: Path) -> Iterator[Path]:
    """Folders below a folder, but those that pass."""
    for place, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if not _passes(Path(place) / name)]
        yield from (Path(place) / name for name in folders)


def _passes(folder: Path) -> bool:
    """Folders that come and go while a run is at work: what is written aside, and locks of processes that train
    together (`processes`).
    """
    if folder.name == PROCESSES_FOLDER and not folder.is_symlink():
        return all(map(is_of_process, folder.iterdir()))
    return is_aside(folder)


def _listed_in_bundle(folder: Path) -> list[str]:
    try:
        files = read_json(folder / MANIFEST)["files"]
        present = {path.relative_to(folder).as_posix() for path in _files(folder)}
        return [MANIFEST, *filter(_is_below, files), *filter(is_left_behind, present - files.keys())]
    except (BundleError, KeyError, TypeError, AttributeError):
        return []
