"""Machine code that is kept: used where it fits, forgotten where it is broken or was made of other sources."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest

from longtail.kernels import compiled as compiling_of

ROOT = compiling_of.PACKAGE


class Renamed:
    """Stands for a class that a later version no longer has."""


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Gives the same kernel, as in a new process, with its files in a folder of the test."""
    monkeypatch.setattr(compiling_of.SETTINGS, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling_of, "KEPT", True)

    def make() -> Any:
        def doubled(number: int) -> int:
            return 2 * number

        return compiling_of.compiled()(doubled)

    return make


def only(folder: Path, ending: str) -> Path:
    (found,) = folder.rglob(f"*.{ending}")
    return found


def answers(kernel: Any) -> tuple[int, int]:
    """Its answer for 21, and how often it was found in the cache."""
    return kernel(21), sum(kernel.stats.cache_hits.values())


def test_what_fits_is_used(fresh: Callable[[], Any]) -> None:
    assert answers(fresh()) == (42, 0)
    assert answers(fresh()) == (42, 1)


def broken_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"no pickle at all")


def cut_off_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def index_of_a_class_that_is_gone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = pickle.dumps(numba.__version__)
    path.write_bytes(version + pickle.dumps(("stamp", {Renamed: "name"})))
    monkeypatch.delattr(f"{__name__}.Renamed")


@pytest.mark.parametrize("spoil", [broken_index, cut_off_index, index_of_a_class_that_is_gone])
def test_a_broken_index_is_forgotten(
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
    fresh: Callable[[], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert answers(fresh()) == (42, 0)
    spoil(only(tmp_path, "nbi"), monkeypatch)
    assert answers(fresh()) == (42, 0)
    assert answers(fresh()) == (42, 1)  # and written anew


def test_broken_machine_code_is_forgotten(fresh: Callable[[], Any], tmp_path: Path) -> None:
    assert answers(fresh()) == (42, 0)
    only(tmp_path, "nbc").write_bytes(b"no pickle at all")
    assert answers(fresh()) == (42, 0)
    assert answers(fresh()) == (42, 1)


def test_a_change_in_another_file_of_kernels_counts(
    fresh: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answers(fresh()) == (42, 0)
    copy = tmp_path / "package"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__", "sample"))
    monkeypatch.setattr(compiling_of, "PACKAGE", copy)
    assert compiling_of._sources() == compiling_of.SOURCES
    with (copy / "kernels" / "heap.py").open("a") as file:
        file.write("# changed\n")
    monkeypatch.setattr(compiling_of, "SOURCES", compiling_of._sources())
    assert answers(fresh()) == (42, 0)


def test_kernels_stand_in_files_of_that_name() -> None:
    """`_sources` reads these; a kernel that stands elsewhere would go unseen."""
    for path in ROOT.rglob("*.py"):
        if "@compiled(" in path.read_text():
            assert path.name == "kernels.py" or path.parent.name == "kernels", path
