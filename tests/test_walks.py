"""The walks in docs/ are walked: their files written, their commands given, and what they print compared.

What a method learns differs a little from one kind of processor to another; pages show such numbers as ``...``.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from longtail.cli import main

DOCS = Path(__file__).parents[1] / "docs"
WALKS = sorted(path.name for path in DOCS.glob("walk-*.md"))
BLOCKS = re.compile(r"^```(\w+)(?: ([\w./-]+))?\n(.*?)^```", flags=re.S | re.M)
STEPS = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", flags=re.M)


def given(command: str) -> tuple[int, str]:
    """The exit code of a command, and all that a terminal would show."""
    words = shlex.split(command)
    if words[0] != "longtail":
        words = [sys.executable if words[0] == "python" else words[0], *words[1:]]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout
    with io.StringIO() as shown, contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        return main(words[1:]), shown.getvalue()


def agrees(printed: str, shown: str) -> bool:
    """Whether a page shows what is printed. ``...`` stands for anything in a line, on a line of its own for lines."""
    lines = (
        r"(?:.*\n)*" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") + r"\n"
        for line in shown.splitlines()
    )
    # How far long work is, which a slow machine says more often.
    printed = re.sub(r"^(?:[^\n]*: \d+/\d+, about .* left.*|compiling once .*)\n", "", printed, flags=re.M)
    return re.fullmatch("".join(lines), printed) is not None


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_shows_what_is_printed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / name).read_text()
    for language, file, content in BLOCKS.findall(page):
        if file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(content)
            continue
        assert language == "console", f"a block of {language} that is neither a file nor commands"
        steps = STEPS.findall(content)
        assert "".join(f"$ {command}\n{shown}" for command, shown in steps) == content
        for command, shown in steps:
            code, printed = given(command)
            assert agrees(printed, shown), f"$ {command}\n{printed}\n--- but the page shows\n{shown}"
            assert code == (2 if re.search("^error: ", shown, flags=re.M) else 0), command


@pytest.mark.parametrize("name", WALKS)
def test_walks_are_short(name: str) -> None:
    """Beside the data that they write."""
    told = BLOCKS.sub(lambda block: "" if block.group(2) else block.group(), (DOCS / name).read_text())
    assert 60 <= len(told.splitlines()) <= 130


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("a 1.5 s\nb\nc\n", "a ... s\nb\nc\n", True),
        ("a\nb\nc\nd\n", "a\n...\nd\n", True),
        ("a\nd\n", "a\n...\nd\n", True),
        ("a\nb\n", "a\n", False),
        ("P@1 50.73\n", "P@1 50.74\n", False),
    ],
)
def test_dots_stand_for_what_is_left_out(printed: str, shown: str, same: bool) -> None:
    assert agrees(printed, shown) is same


def test_there_are_three_walks() -> None:
    assert WALKS == ["walk-library.md", "walk-researcher.md", "walk-shop.md"]
