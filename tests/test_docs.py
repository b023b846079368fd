"""The documents tell the truth: symbols, files and commands that they name exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from longtail.cli import parser

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_symbols_exist(document: Path) -> None:
    for symbol in re.findall(r"`(longtail(?:\.\w+)+)`", document.read_text()):
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_commands_parse(document: Path) -> None:
    for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", document.read_text(), flags=re.S):
        for line in block.splitlines():
            words = re.match(r"(?:\$ )?(?:\.venv/bin/)?longtail ([^#|]+)", line.strip())
            if words:
                import shlex

                parser().parse_args(shlex.split(words.group(1).replace("[", "").replace("]", "")))
