"""The documents tell the truth: symbols, files and commands that they name exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from longtail.cli import parser

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "longtail"
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# A log: names of modules in it are those of the day.
OF_TODAY = [path for path in DOCUMENTS if path.name != "experiments.md"]
ROOMS = "|".join(sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"))
WALK_AT_MOST = 20
GROUPS = ("longtail.recipes", "longtail.parts")  # of entry points: names, not modules


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_symbols_exist(document: Path) -> None:
    for symbol in re.findall(r"`(longtail(?:\.\w+)+)`", document.read_text()):
        if symbol in GROUPS:
            continue
        parts = symbol.split(".")
        for cut in range(len(parts), 0, -1):
            try:
                found: object = importlib.import_module(".".join(parts[:cut]))
            except ModuleNotFoundError:
                continue
            for name in parts[cut:]:
                found = getattr(found, name)
            break
        else:
            pytest.fail(f"{document.name} names {symbol}, which does not exist")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_and_files_exist(document: Path) -> None:
    text = document.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (document.parent / target).exists(), target
    for name in re.findall(r"`((?:docs|tests|benchmarks|configs|scripts|examples)/[\w./*-]+)`", text):
        assert list(ROOT.glob(name.rstrip("/"))), name


@pytest.mark.parametrize("document", OF_TODAY, ids=lambda p: p.name)
def test_modules_exist(document: Path) -> None:
    """`training/fit.py`, `nn/full` and `pipeline.py` are files of the house."""
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_no_document_knows_the_folders_of_one_machine(document: Path) -> None:
    assert "../shared" not in document.read_text(), "say DATA"


def test_the_walk_of_a_newcomer() -> None:
    """At most twenty files from the command line to a prediction, in an order that begins and ends there."""
    (block,) = re.findall(r"^```\nwalk:\n(.*?)^```", (ROOT / "docs" / "architecture.md").read_text(), flags=re.S | re.M)
    steps = [line.split("  ", 1) for line in block.splitlines()]
    assert all(len(step) == 2 and step[1].strip() for step in steps), "path, two spaces, what to see there"
    paths = [path for path, _ in steps]
    assert len(paths) == len(set(paths)) <= WALK_AT_MOST
    assert (paths[0], paths[-1]) == ("cli.py", "predictor.py")
    missing = [path for path in paths if not (SOURCE / path).is_file()]
    assert not missing, f"the walk names files that are not there: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_commands_parse(document: Path) -> None:
    for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", document.read_text(), flags=re.S):
        for line in block.splitlines():
            words = re.match(r"(?:\$ )?(?:\.venv/bin/)?longtail ([^#|]+)", line.strip())
            if words:
                import shlex

                parser().parse_args(shlex.split(words.group(1).replace("[", "").replace("]", "")))
