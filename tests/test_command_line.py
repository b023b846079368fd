"""How a line is read: options anywhere, help in sections, completion, how much is said, and start-up."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from longtail import cli
from longtail.cli import main
from longtail.cli.base import Group
from longtail.data.read import read


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = [(path, group)]
    for name in group.list_commands(click.Context(group)):
        command = group.commands[name]
        below = commands(command, (*path, name)) if isinstance(command, click.Group) else [((*path, name), command)]
        found += below
    return found


ALL = commands(cli.longtail)


def test_defaults_stand_in_the_code_once() -> None:
    """Help texts read them from there. Those of a vocabulary belong to `read`, which help does not import."""
    found: dict[str, str] = {}
    for path in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "option":
                written = re.search(r"\(default ([^:{)]+)\)", ast.unparse(node))
                found |= {} if written is None else {ast.literal_eval(node.args[0]): written[1]}
    known = inspect.signature(read).parameters
    names = "language", "unknown", "vocabulary_ids"
    assert found == {f"--{name.replace('_', '-')}": known[name].default for name in names}
    options = {option.name: option for _, command in ALL for option in command.params}
    assert getattr(options["resamples"], "help", "") == f"of the bootstrap (default {options['resamples'].default})"


@pytest.mark.parametrize(
    "line",
    [
        ["--format", "jsonl", "-k", "3", "an owl"],
        ["an owl", "--format", "jsonl", "-k", "3"],
        ["-k3", "an owl", "--format=jsonl"],
    ],
)
def test_options_stand_anywhere(line: list[str], tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(tiny_run), *line]) == 0
    assert main(["predict", *line, "--", str(tiny_run)]) == 2  # the first argument is the run
    shown = json.loads(capsys.readouterr().out.splitlines()[0])
    assert shown["labels"][0] == "id-owl"
    assert len(shown["labels"]) <= 3


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) or "longtail" for path, _ in ALL])
def test_every_command_explains_itself(
    path: tuple[str, ...], command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "On every command:" in shown
    for option in command.params:
        about = option.about if hasattr(option, "about") else getattr(option, "help", "")
        assert about, f"{option.name} is not explained"
    if not isinstance(command, Group) and command.params[3:]:
        assert "Options:" in shown or "Arguments:" in shown


def test_help_groups_commands_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for title in cli.longtail.sections:
        assert f"\n{title}:\n" in shown
    assert 'longtail predict runs/first "a text"' in shown
    assert main(["train", "-h"]) == 0
    assert "\nTables (CSV, TSV, JSON lines, Parquet):\n" in capsys.readouterr().out


def test_a_command_imports_no_module_of_others() -> None:
    """What nobody asked for is not waited for."""
    program = "import sys; from longtail.cli import main; main(['predict', '--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "longtail.cli.asking" in loaded
    assert not {f"longtail.cli.{name}" for name in ("training", "serving", "measuring", "sharing", "data")} & loaded


def test_a_wrong_option_is_named_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "x", "--outt", "y"]) == 2
    shown = capsys.readouterr().err
    assert "'--outt'" in shown
    assert "--out" in shown
    assert "hint: see 'longtail train --help'" in shown


def test_no_command_is_a_users_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("place", ["before", "after"])
def test_quiet_says_nothing_but_the_result(
    place: str, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", str(planted_folder), "--recipe", "tiny", "--out", str(tmp_path / "run")]
    assert main(["-q", *line] if place == "before" else [*line, "--quiet"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "bundle: " in shown.out


def test_verbose_says_what_a_run_logs(planted_folder: Path, tmp_path: Path) -> None:
    line = ["train", str(planted_folder), "--recipe", "tiny", "--out", str(tmp_path / "run")]
    shown = subprocess.run([sys.executable, "-m", "longtail", *line, "-v"], capture_output=True, text=True, check=True)
    logged = [line for line in shown.stderr.splitlines() if line.startswith('{"event"')]
    assert [json.loads(line)["event"] for line in logged][-1] == "finished"


def test_debug_shows_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(tmp_path / "none"), "x"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main(["predict", str(tmp_path / "none"), "x", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_LONGTAIL_COMPLETE" in capsys.readouterr().out


def test_the_tab_key_completes_commands_options_and_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(*words: str) -> set[str]:
        environment = {
            **os.environ,
            "_LONGTAIL_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["longtail", *words]),
            "COMP_CWORD": str(len(words)),
        }
        shown = subprocess.run(
            [sys.executable, "-m", "longtail"], env=environment, capture_output=True, text=True, check=True
        )
        return {line.split(",", 1)[1] for line in shown.stdout.splitlines()}

    assert "predict" in completed("pre")
    assert "--separator" in completed("train", "--se")
    assert {"astec"} == completed("train", "x", "--recipe", "ast")


def test_help_answers_at_once() -> None:
    """In processor time beside an empty Python, which is what a busy machine does not change."""

    def seconds(*words: str) -> float:
        return min(_seconds(words) for _ in range(3))

    def _seconds(words: tuple[str, ...]) -> float:
        before = os.times()
        subprocess.run([sys.executable, *words], capture_output=True, check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert seconds("-m", "longtail", "--help") - seconds("-c", "") < 0.3


def test_only_what_resumes_is_said_to_go_on(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("longtail.predictor.Predictor.rank", interrupted)
    assert main(["predict", str(tiny_run), "owl"]) == 130
    assert capsys.readouterr().err == "\ninterrupted\n"
    monkeypatch.setattr("longtail.data.read.read", interrupted)
    assert main(["train", str(tmp_path), "--out", str(tmp_path / "run")]) == 130
    assert "the same command goes on from here" in capsys.readouterr().err
