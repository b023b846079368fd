"""Files and folders that appear complete or not at all, also when the power fails.

What is written stands aside first: in a folder ``.NAME.xxxxxxxx.tmp`` beside its place, with a lock that the kernel
drops when the process dies, however it dies. It is then put on the disk (fsync) and takes its place by one rename.
What a killed process left aside is removed when its place is next written to: its lock is free, and nothing of another
program looks like it.

Only plain files are replaced. A link is followed, and a file keeps its mode and its owner. Whatever else may have the
name (a device, a pipe, a file that no rename can replace without changing its owner) is opened and written to. What is
written is first made whole, then among the temporary files of the system.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from longtail.errors import ConfigError, RunError, RunTaken

LOCK = ".longtail.lock"
_ASIDE = re.compile(r"\..+\.[0-9a-f]{8}\.tmp", re.DOTALL)
_LONGEST = 60  # characters of a name that the folder aside repeats: a name may have 255 bytes

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.EBUSY, errno.ETXTBSY, errno.ENXIO),
    *(errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.EFBIG, errno.EIO, errno.ENODEV),
    *(errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF),  # a file system without locks
}
# Libraries written in Rust wrap errors of the system in exceptions of their own.
_WRAPPED = re.compile(r"\(os error (\d+)\)")


@contextlib.contextmanager
def no_room_is_an_error(path: Path) -> Iterator[None]:
    """A full disk, a missing right or a read-only folder becomes one sentence."""
    try:
        yield
    except RunError:
        raise
    except Exception as problem:
        wrapped = _WRAPPED.search(str(problem))
        code = problem.errno if isinstance(problem, OSError) else int(wrapped[1]) if wrapped else None
        if isinstance(problem, RuntimeError) and str(problem).startswith("Symlink loop"):  # pathlib's, before 3.13
            code = errno.ELOOP
        if code in _FULL:
            raise RunError(
                f"{_place_of(path)}: no space left on the disk", "free some space and run the same command again"
            ) from problem
        if code == errno.ENOMEM:
            raise MemoryError(f"{path}: {os.strerror(errno.ENOMEM)}") from problem
        if code in _REFUSED:
            raise RunError(
                f"{_place_of(path)}: cannot be written ({os.strerror(code)})",
                "choose another place, or change the rights and limits of this one",
            ) from problem
        raise


def _place_of(path: Path) -> Path:
    """Where something will lie that is written aside."""
    return Path(*(part for part in path.parts if not _ASIDE.fullmatch(part)))


@contextlib.contextmanager
def written_aside(path: Path, *, sealed: Path | None = None) -> Iterator[Path]:
    """Yields a path that is not there yet, for a file or a folder; on success that takes the place of `path`.

    On failure it vanishes. A file replaces an old one; a folder needs its place free. sealed: the bundle that `path`
    lies in, for who changes its manifest, too; what is written stands beside the bundle meanwhile.
    """
    with no_room_is_an_error(path):
        place = _Place(path, sealed)
        with place.aside() as aside:
            yield aside
            place.take(aside)


def open_through(path: Path) -> BinaryIO | None:
    """Where `path` is no file that can be replaced (a device, a pipe), it is opened to be written to; else None."""
    with no_room_is_an_error(path):
        place = _Place(path)
        return place.open() if place.through else None


class _Place:
    """Where something is to be written. through: what is there cannot be replaced, and is written through."""

    def __init__(self, path: Path, sealed: Path | None = None) -> None:
        self.path, self.own_stream = _followed(path)
        self.home = self.path.parent if sealed is None else sealed.resolve().parent
        if sealed is None:
            refuse_sealed(self.path)
        self.before = _status(self.path)
        kind = None if self.before is None else self.before.st_mode
        self.is_file = kind is not None and stat.S_ISREG(kind)
        self.through = self.own_stream is not None or not (kind is None or self.is_file or stat.S_ISDIR(kind))

    @contextlib.contextmanager
    def aside(self) -> Iterator[Path]:
        """A path that is not there yet, in a folder that goes afterwards."""
        if self.is_file and not os.access(self.path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with _held(self._folder_aside()) as home:
            yield home / self.path.name

    def _folder_aside(self) -> Path:
        """A new folder beside the place; among the temporary files of the system for what is written through."""
        if not self.through:
            if not self.path.name:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            make_folder(self.home)
            try:
                return _made_aside(self.home, self.path.name)
            except FileNotFoundError:  # a file system of the kernel, where nothing can be made
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
            except PermissionError:
                # The file may be written to, though the folder that holds it may not.
                if not self.is_file:
                    raise
                self.through = True
        return _made_aside(Path(tempfile.gettempdir()), self.path.name)

    def take(self, aside: Path) -> None:
        """Put in place what was written."""
        if self.through:
            self._pour(aside)
            return
        to_disk(aside)
        try:
            if self.before is not None and self.is_file and aside.is_file():
                _make_alike(aside, self.before)
            os.replace(aside, self.path)
        except OSError as problem:
            # Another's file, which we may write to but not own; or a file that is mounted by itself.
            if not self.is_file or problem.errno not in (errno.EPERM, errno.EBUSY, errno.EXDEV):
                raise
            self._pour(aside)
            return
        to_disk(self.path.parent, inside=False)

    def _pour(self, aside: Path) -> None:
        if aside.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with aside.open("rb") as source, self.open() as target:
            shutil.copyfileobj(source, target)

    def open(self) -> BinaryIO:
        if self.own_stream is None:
            return self.path.open("wb")
        # Not opened a second time: what this process wrote to it before would be overwritten.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return os.fdopen(os.dup(self.own_stream), "wb")


def _followed(path: Path) -> tuple[Path, int | None]:
    """What a link leads to; and its number, where it is an open file of this process (``/dev/stdout``)."""
    for _ in range(40):
        if path.parent.name == "fd" and path.name.isdigit():
            owner = os.path.realpath(path.parent)
            if owner == f"/proc/{os.getpid()}/fd":
                return path, int(path.name)
        if not path.is_symlink():
            resolved = path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()
            return resolved, None
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _made_aside(folder: Path, name: str) -> Path:
    """A new folder in which to write what is to be called `name`; those that killed processes left are removed."""
    remove_dead(folder, name)
    home = folder / f".{name[:_LONGEST]}.{secrets.token_hex(4)}.tmp"
    home.mkdir(mode=0o700)
    return home


@contextlib.contextmanager
def _held(home: Path) -> Iterator[Path]:
    """A folder that was made aside: locked meanwhile, and removed afterwards."""
    lock = _locked(home)
    try:
        yield home
    finally:
        _remove(home)
        os.close(lock)


def _locked(folder: Path) -> int:
    """A new file in `folder`, locked: as long as this process lives, nobody takes the folder for a leftover. Another
    process may do so before the lock is held, and remove the folder; it is then made again.
    """
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue
        with contextlib.suppress(OSError):  # file systems without locks: then leftovers stay
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits for who is removing it
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)


def is_aside(path: Path) -> bool:
    """Whether this is a folder in which something is written, or was when its process died."""
    return (
        _ASIDE.fullmatch(path.name) is not None
        and path.is_dir()
        and not path.is_symlink()
        and ((path / LOCK).is_file() or not any(path.iterdir()))
    )


def remove_dead(folder: Path, name: str = "") -> None:
    """Remove what killed processes left aside in `folder`. name: only of what was to be called so."""
    prefix = f".{name[:_LONGEST]}." if name else "."
    with contextlib.suppress(FileNotFoundError):
        for path in [Path(entry.path) for entry in os.scandir(folder) if entry.name.startswith(prefix)]:
            with contextlib.suppress(OSError):
                if is_aside(path):
                    _remove_if_dead(path)


def _remove(home: Path) -> None:
    """With its lock last: if this process is killed meanwhile, the lock tells that the rest is ours to remove."""
    with contextlib.suppress(OSError):
        for path in home.iterdir():
            if path.name == LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
    shutil.rmtree(home, ignore_errors=True)


def _remove_if_dead(home: Path) -> None:
    if not (home / LOCK).exists():
        home.rmdir()
        return
    lock = os.open(home / LOCK, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused where its process lives
        _remove(home)
    finally:
        os.close(lock)


def refuse_taken(path: Path, hint: str = "name a folder that does not exist") -> None:
    """Where a folder is to be made, nothing is. What was left by who was killed just when it was there goes as well."""
    with no_room_is_an_error(path):
        if path.exists():
            remove_dead(path.resolve().parent, path.resolve().name)
            raise ConfigError(f"{path}: exists already", hint)


def remove_at_once(folder: Path) -> None:
    """Remove a folder: it is gone by one rename. What a killed process leaves of it is removed by `remove_dead`."""
    with no_room_is_an_error(folder), _held(_made_aside(folder.parent, folder.name)) as home:
        os.replace(folder, home / folder.name)
        to_disk(folder.parent, inside=False)


def held_lock(file: Path, taken: RunTaken) -> int:
    """The open file, with its lock; `taken` is raised where another process holds that.

    The kernel drops a lock when its process dies, however it dies: none is left by a kill.
    """
    with no_room_is_an_error(file.parent):
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(lock)
            if isinstance(problem, BlockingIOError):
                raise taken from None
            raise
        return lock


def _make_alike(path: Path, before: os.stat_result) -> None:
    """Mode and owner of the file that is replaced."""
    now = path.stat()
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.chown(path, before.st_uid, before.st_gid)
    path.chmod(stat.S_IMODE(before.st_mode))


# ---- JSON ----


def json_writer(*separators: str) -> Callable[[Any], str]:
    """What makes JSON that every reader can read, whatever a stranger's file held: what is no finite number is null,
    and so is what lies too deep; what JSON has no form for (dates) is a string.
    """
    # Made once: `json.dumps` would make one for every value.
    between = (separators[0], separators[1]) if separators else None
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str, separators=between).encode

    def written(value: Any) -> str:
        try:
            return encode(value)
        except (ValueError, RecursionError):
            return encode(_plain(value))

    return written


_BITS, _DEPTH = 10_000, 100  # of whole numbers (Python writes no longer ones in decimals), and of what lies in another


def _plain(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict | list | tuple) and depth == _DEPTH:
        return None
    if isinstance(value, dict):
        return {name: _plain(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if isinstance(value, int) and value.bit_length() > _BITS else value


# ---- folders that are checked file by file ----

SEAL = "manifest.json"  # of a bundle: it lists all files of its folder, with their checksums


def refuse_sealed(path: Path) -> None:
    """Nothing is put into a bundle: it would no longer be what its manifest says."""
    with no_room_is_an_error(path):
        folders = path.resolve().parents
    for folder in folders:
        if (folder / SEAL).is_file() and (folder / "ranker").is_dir():
            raise RunError(
                f"{path}: lies inside the bundle {folder}, which would no longer match its checksums",
                "choose a place outside of the bundle",
            )


def is_litter(name: str) -> bool:
    """Whether a file of this name is what the Finder, or a file system of the network, leaves wherever it has been."""
    return name == ".DS_Store" or name.startswith(".nfs")


# ---- what survives a loss of power ----


def to_disk(path: Path, *, inside: bool = True) -> None:
    """Return when a file, or a folder (and all that is inside it), is on the disk and not only in memory."""
    if inside and path.is_dir():
        for folder, _, files in os.walk(path, topdown=False):
            for name in files:
                _sync(Path(folder) / name)
            _sync(Path(folder))
    else:
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """With its parents, on the disk; nothing where it is there."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        to_disk(folder.parent, inside=False)
