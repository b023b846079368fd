"""Kernels are compiled ahead, once, and kept where they can be: nobody waits in silence, no installation must be
writable.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import longtail
from longtail import warming
from longtail.cli import main
from longtail.kernels import compiled
from longtail.kernels.compiled import cache_folder
from longtail.predictor import Predictor

SOURCE = Path(longtail.__file__).parent


def unwritable(tmp_path: Path) -> Path:
    """A folder that even root cannot write to."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "__pycache__"


def test_beside_the_sources_where_they_can_be_written(tmp_path: Path) -> None:
    assert cache_folder(tmp_path / "__pycache__", iter([])) is None


def test_else_the_first_folder_that_can_be_written(tmp_path: Path) -> None:
    beside = unwritable(tmp_path)
    assert cache_folder(beside, iter([beside / "x", tmp_path / "a", tmp_path / "b"])) == tmp_path / "a"
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0  # what lies there is run: nobody else may put it there
    assert cache_folder(beside, iter([beside / "x"])) == Path()


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert cache_folder(unwritable(tmp_path), iter([tmp_path / "link"])) == Path()
    if os.getuid() == 0:
        (tmp_path / "foreign").mkdir()
        os.chown(tmp_path / "foreign", 4242, 4242)
        assert cache_folder(unwritable(tmp_path), iter([tmp_path / "foreign"])) == Path()


def test_what_was_compiled_while_an_image_was_built_is_taken_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "package" / "kernels" / "__pycache__"
    made.mkdir(parents=True)
    (made / "heap.offer-1.py311.nbi").write_bytes(b"index")
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path / "package")
    compiled._seed(tmp_path / "kept")
    place = compiled.PLACES.get_suitable_cache_subpath(str(tmp_path / "package" / "kernels" / "heap.py"))
    assert (tmp_path / "kept" / place / "heap.offer-1.py311.nbi").read_bytes() == b"index"


@pytest.mark.slow
def test_a_read_only_installation_answers_with_a_note(tiny_run: Path, tmp_path: Path) -> None:
    """A real process; a __pycache__ is a file, which is read-only even for root, and there is no home. Machine code of
    the search came with the installation, as in an image; that of reading texts is compiled.
    """
    Predictor.open(tiny_run).predict(["an owl"])  # the search is compiled beside our own sources
    package, leave = tmp_path / "site" / "longtail", shutil.ignore_patterns("__pycache__", "sample")
    shutil.copytree(SOURCE, package, ignore=leave)
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("")
    brought = package / "search" / "kernels" / "__pycache__"
    brought.unlink()
    brought.mkdir()
    for file in (SOURCE / "search" / "kernels" / "__pycache__").glob("nearest.*.nb[ic]"):
        shutil.copy2(file, brought)
    (brought / "nearest.brought-1.py311.nbi").write_bytes(b"index")
    (tmp_path / "tmp").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(package.parent),
        "XDG_CACHE_HOME": str(package / "__pycache__"),
        "TMPDIR": str(tmp_path / "tmp"),
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    line = [sys.executable, "-m", "longtail", "predict", str(tiny_run), "an owl", "-k", "1"]
    first = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert "id-owl" in first.stdout
    assert f"kept in {tmp_path / 'tmp' / 'longtail-kernels'}" in first.stderr
    assert "compiling once" in first.stderr
    kept = {path.name.partition("-")[0] for path in (tmp_path / "tmp").rglob("*.nbi")}
    assert {"nearest.brought", "nearest.rank_sparse"} <= kept, "taken along"
    assert any(name.startswith("kernels.") for name in kept), "compiled"
    again = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert again.stdout == first.stdout
    assert again.stderr == ""


EVERY_WAY = """
import sys
from pathlib import Path
from typing import get_args
from longtail import warming
from longtail.cli import main

def loaded():
    kernels = {id(one): one for name, module in list(sys.modules.items()) if name.startswith("longtail")
               for one in vars(module).values() if hasattr(one, "py_func")}
    return {f"{one.py_func.__module__}.{one.py_func.__name__}{kind}" for one in kernels.values()
            for kind in one.signatures}

plain, trained = Path(sys.argv[1]), Path(sys.argv[2])
warming.write_model(plain)
warming.ask(plain)
before = loaded()
assert len(before) > 5  # those that Python calls; others only where they were compiled just now
assert main(["predict", str(trained), "an owl", "-k", "1"]) == 0
warming.ask(trained)
assert loaded() == before, loaded() - before
for way in warming.PACKED:
    warming.ask_packed(plain, *way)
before = loaded()
assert len(before) > 10
for dtype in get_args(warming.PackedType):
    for index in get_args(warming.SearchKind):
        if (dtype, index) not in warming.PACKED:
            warming.ask_packed(plain, dtype, index)
    warming.pack(trained, plain.with_name(dtype), dtype)
    warming.ask(plain.with_name(dtype))
assert loaded() == before, loaded() - before
"""


@pytest.mark.slow
def test_after_warming_up_nothing_is_left_to_compile(direct_run: Path, tmp_path: Path) -> None:
    """What `warm_up` asks its own model, plain and packed, takes every kernel that a trained model of the default
    recipe takes, however it is packed.

    A process of its own, which has loaded no kernel for another test. Machine code comes from where it is kept: what
    counts is which kernels are asked for, and with which kinds of arguments.
    """
    line = [sys.executable, "-c", EVERY_WAY, str(tmp_path / "plain"), str(direct_run)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "id-" in done.stdout


def test_training_is_short_where_a_recipe_counts_epochs() -> None:
    tables = {"epochs": 9, "train": {"epochs": 30, "rate": 0.1}, "other": {"rate": 0.1}, "far": {"in": {"epochs": 2}}}
    assert warming.one_epoch(tables) == {"epochs": 1, "train": {"epochs": 1}, "far": {"in": {"epochs": 1}}}


def test_warm_up_counts_and_needs_torch_to_train(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Path] = []
    trained: list[str] = []
    monkeypatch.setattr(warming, "ask", asked.append)
    monkeypatch.setattr(warming, "pack", lambda *_, **__: None)
    monkeypatch.setattr(warming, "_train", lambda name, out: trained.append(name))
    with caplog.at_level(logging.WARNING):
        assert main(["warm-up", "--recipe", "tiny", "-q"]) == 0
    assert "compiled" in capsys.readouterr().out
    assert trained == ["tiny"]
    assert len({path.name for path in asked}) == len(asked) == 1 + len(warming.PACKED)
    assert main(["warm-up", "--recipe", "tiny", "--recipe", "tinny", "-q"]) == 2
    assert len(trained) == 1, "an unknown recipe is named before anything is compiled"
    monkeypatch.setattr("longtail.warming.importlib.util.find_spec", lambda name: None)
    assert main(["warm-up", "--recipe", "tiny", "-q"]) == 2
    assert "longtail[train]" in capsys.readouterr().err
