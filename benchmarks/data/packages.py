"""What Debian offers: an unpacked package, and the lists of a release, by apt's own tools (``apt-get``, ``dpkg``)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

RELEASE = "bookworm"


class CannotBuild(SystemExit):
    """What is missing, in words."""


def _ran(command: Sequence[str], folder: Path) -> bytes:
    try:
        return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout
    except FileNotFoundError as problem:
        raise CannotBuild(
            f"error: {command[0]} is missing; run this on Debian 12 (or in a container of it)"
        ) from problem
    except subprocess.CalledProcessError as problem:
        said = problem.stderr.decode(errors="replace").strip()
        raise CannotBuild(f"error: {' '.join(command)}\n{said}\nhint: apt-get update, as root, may help") from problem


@contextmanager
def unpacked(name: str) -> Iterator[Path]:
    """The files of the package `name`, fetched by apt."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _ran(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name], folder)
        file = next(folder.glob("*.deb"), None)
        if file is None:
            raise CannotBuild(f"error: apt-get download gave no file of the package {name}")
        _ran(["dpkg", "-x", str(file), "files"], folder)
        yield folder / "files"


def fetch_lists(folder: Path) -> None:
    """Package lists with English descriptions, into a folder of their own: the system's lists stay as they are."""
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    options = [
        f"Dir::State::Lists={folder}",
        "Acquire::Languages=en",
        "Dir::Cache::pkgcache=",
        "Dir::Cache::srcpkgcache=",
    ]
    _ran(["apt-get", "-qq", *(word for option in options for word in ("-o", option)), "update"], folder)


@contextmanager
def lists_at(folder: Path | None) -> Iterator[Path]:
    """`folder`; lists that are fetched, and gone afterwards, where it is None."""
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        fetch_lists(Path(temporary))
        yield Path(temporary)


def read_list(folder: Path, kind: str) -> str:
    """kind: e.g. ``main_binary-amd64_Packages``. Of the release itself, not of its updates."""
    ending = f"_debian_dists_{RELEASE}_{kind}"
    for file in sorted(folder.iterdir()):
        if file.name.split(".lz4")[0].split(".gz")[0].endswith(ending):
            return _ran(["/usr/lib/apt/apt-helper", "cat-file", str(file)], folder).decode("utf-8", "replace")
    raise CannotBuild(
        f"error: {folder}: no list that ends in {ending}\nhint: Debian 12 has them; other releases give another set"
    )


def release_date(folder: Path) -> tuple[str, str]:
    """Version and date of the lists, e.g. ``("12.15", "2026-07-11")``."""
    found: dict[str, str] = {}
    for file in folder.iterdir():
        if file.name.endswith((f"dists_{RELEASE}_InRelease", f"dists_{RELEASE}_Release")):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                key, colon, value = line.partition(": ")
                if colon and key in ("Version", "Date"):
                    found.setdefault(key, value.strip())
    return found.get("Version", "unknown"), found.get("Date", "unknown")


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Blocks of ``Field: value``; lines that begin with a blank belong to the field before."""
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        last = ""
        for line in block.split("\n"):
            if line[:1] in (" ", "\t"):
                if last:
                    fields[last] += "\n" + line
            elif line:
                last, _, value = line.partition(":")
                fields[last] = value.strip()
        if fields:
            yield fields
