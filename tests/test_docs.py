"""The documents tell the truth: symbols, files and commands that they name exist."""

from __future__ import annotations

import argparse
import importlib
import io
import re
import shlex
import sys
import tokenize
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from benchmarks.speed.__main__ import NAMES

from longtail import cli
from longtail.cli.base import Command
from longtail.recipes.base import Recipe

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "longtail"
RESULTS = ROOT / "benchmarks" / "results"
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PYTHON = [
    path.relative_to(ROOT).as_posix()
    for folder in ("src", "tests", "benchmarks", "scripts", "examples")
    for path in (ROOT / folder).rglob("*.py")
]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# A log: names of modules in it are those of the day.
OF_TODAY = [path for path in DOCUMENTS if path.name != "experiments.md"]
ROOMS = "|".join(sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"))
STAGES = ("surrogate", "shortlist", "transfer")
GROUPS = ("longtail.recipes", "longtail.parts")  # of entry points: names, not modules


def missing_names(text: str) -> list[str]:
    """Names ``longtail.x.y`` in a text that do not exist."""
    return [name for name in set(re.findall(r"\blongtail(?:\.\w+)+", text)) - set(GROUPS) if not exists(name)]


def exists(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        return all((found := own(found, name)) is not None for name in parts[cut:])
    return False


def own(found: object, name: str) -> object:
    """An attribute that a module or a class has of its own: stages that `Recipe` has for all say nothing of one."""
    value = getattr(found, name, None)
    return None if found is not Recipe and name in STAGES and value is getattr(Recipe, name) else value


def missing_files(text: str) -> list[str]:
    """Files ``folder/name.py`` in a text that do not exist, under whatever folder."""
    named = set(re.findall(r"(?<![\w/.*])(?:[\w.-]+/)*[a-z]\w*\.py\b", text))
    return [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in PYTHON)]


@pytest.mark.parametrize("document", OF_TODAY, ids=lambda p: p.name)
def test_symbols_exist(document: Path) -> None:
    text = re.sub(r"runs?/\S+", "", document.read_text())
    written = set(re.findall(r"^```python (\S+)$", text, flags=re.M))  # files of the reader
    assert not missing_names(text)
    assert not set(missing_files(text)) - written


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pointers_of_the_source_exist(path: Path) -> None:
    """Docstrings and comments name files, `modules` and `functions` that are there."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    said = "\n".join(token.string for token in tokens if token.type == tokenize.COMMENT or '"""' in token.string)
    assert not missing_names(said)
    assert not missing_files(said)
    words = names_in_use()
    # Names in single quotes of this kind are ours; those in double ones are what a user or a file says.
    for name in re.findall(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)`(?!`)", said):
        assert set(name.split(".")) <= words, f"{name}: no such name"


# Of other libraries, and of what Python and numba call things.
FOREIGN = {"nopython", "getrusage"}


@cache
def names_in_use() -> set[str]:
    """Every name in the code of this repository, and the names of its modules and records."""
    code = "\n".join(path.read_text() for path in SOURCES)
    code = re.sub(r'"""(?:.|\n)*?"""|#.*', "", code)
    files = {*(Path(path).stem for path in PYTHON), *(part for path in PYTHON for part in Path(path).parts)}
    records = {part for path in (ROOT / "benchmarks" / "results").iterdir() for part in path.name.split(".")}
    return {*re.findall(r"\w+", code), *files, *records, *FOREIGN}


@pytest.mark.parametrize("path", [*OF_TODAY, ROOT / "CHANGELOG.md", *SOURCES], ids=lambda p: str(p.relative_to(ROOT)))
def test_benchmarks_that_are_named_exist(path: Path) -> None:
    text = path.read_text()
    for name in re.findall(r"\bbenchmarks(?:\.[a-z_]\w*)+", text):
        assert exists(name), name
    for case in re.findall(r"\bbenchmarks\.speed ([a-z][\w-]*)", text):
        assert case in (*NAMES, "list"), case


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_and_files_exist(document: Path) -> None:
    text = document.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (document.parent / target).exists(), target
    for name in re.findall(r"`((?:docs|tests|benchmarks|configs|scripts|examples)/[\w./*-]+)`", text):
        assert list(ROOT.glob(name.rstrip("/"))), name


@pytest.mark.parametrize("document", OF_TODAY, ids=lambda p: p.name)
def test_modules_exist(document: Path) -> None:
    """`training/fit.py`, `nn/full.py` and `pipeline.py` are files of the house."""
    text = document.read_text()
    for name in re.findall(rf"`(?:src/longtail/)?((?:{ROOMS})/[\w/]*(?:\.py)?)`", text):
        assert "NAME" in name or (SOURCE / name).exists(), name
    for name in re.findall(r"`(\w+\.py)`", text):
        assert any(root.glob(f"**/{name}") for root in (SOURCE, ROOT / "examples", ROOT / "tests")), name


@pytest.mark.parametrize("document", [p for p in DOCUMENTS if p.parent == ROOT / "docs"], ids=lambda p: p.name)
def test_files_of_results_exist(document: Path) -> None:
    if document.name in ("data-formats.md", "add-a-recipe.md"):  # their JSON files are data
        return
    for name in re.findall(r"`([\w*/-]+\.json)`", document.read_text()):
        assert list(RESULTS.glob(name.removeprefix("benchmarks/results/"))), name


def test_every_result_is_cited() -> None:
    """A result that no document speaks of helps nobody."""
    named = {
        name for document in DOCUMENTS for name in re.findall(r"[\w*/-]+\.(?:json|svg|md)\b", document.read_text())
    }
    cited = {path for name in named for path in RESULTS.glob(name.removeprefix("benchmarks/results/").lstrip("/"))}
    assert sorted(path.name for path in RESULTS.iterdir() if path.is_file() and path not in cited) == []


def typed(document: Path) -> list[str]:
    """Lines of a document that are for a terminal."""
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", document.read_text(), flags=re.S)
    lines = "".join(blocks).splitlines()
    return [line.strip().removeprefix("$ ").removeprefix(".venv/bin/") for line in lines]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_commands_parse(document: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for line in typed(document):
        words = re.match(r"(?:torchrun \S+ -m )?longtail ([^#|]+)", line)
        if words:
            monkeypatch.setattr(Command, "invoke", lambda *_: None)
            asked = shlex.split(words.group(1).replace("[", "").replace("]", ""))
            assert cli.main(asked) == 0, (line, capsys.readouterr().err)


class Parsed(Exception):
    """A benchmark knows what it was asked for, and goes no further."""


@pytest.mark.parametrize("document", OF_TODAY, ids=lambda p: p.name)
def test_commands_of_benchmarks_parse(
    document: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parse = argparse.ArgumentParser.parse_args

    def parse_alone(*given: Any) -> None:
        parse(*given)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_alone)
    wrong = []
    for line in typed(document):
        found = re.match(r"python -m (benchmarks[\w.]*)([^#|]*)", line)
        if found:
            program = importlib.import_module(found[1])
            if hasattr(program, "__path__"):
                program = importlib.import_module(f"{found[1]}.__main__")
            monkeypatch.setattr(sys, "argv", [found[1], *shlex.split(found[2])])
            try:
                wrong.append((line, program.main()))
            except SystemExit:
                wrong.append((line, capsys.readouterr().err))
            except Parsed:
                pass
    assert not wrong
