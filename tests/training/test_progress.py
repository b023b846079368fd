"""Progress is shown as bars on a terminal and as plain lines everywhere else."""

from __future__ import annotations

import importlib.machinery
import io
import re
import sys
import types

import pytest

import longtail
from longtail.data.dataset import Dataset
from longtail.training import progress
from longtail.training.progress import (
    Display,
    PlainDisplay,
    RichDisplay,
    SilentDisplay,
    display_for,
    display_of_library,
    in_notebook,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_what_nobody_counted_has_a_rate_and_a_share(clock: Clock) -> None:
    stream = io.StringIO()
    with PlainDisplay(stream, seconds=5).count("predicting") as count:
        for share in (None, 0.2, 0.4, None):
            clock.now += 5
            count.advance(5000, share)
    assert stream.getvalue().splitlines() == [
        "predicting: 5,000 (1,000 a second)",
        "predicting: 10,000 (1,000 a second)",
        "predicting: 15,000 (1,000 a second), about 15 s left",
        "predicting: 20,000 (1,000 a second)",
        "predicting: 20,000 (1,000 a second) done in 20.0 s",
    ]


def test_a_bar_of_what_nobody_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with RichDisplay().count("predicting") as count:
        count.advance(4096)
        count.advance(4096, 0.5)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert "predicting" in shown
    assert "50%" in shown
    assert "8,192 (" in shown
    with SilentDisplay().count("predicting") as count:
        count.advance(1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_every_few_seconds_and_one_at_the_end(clock: Clock) -> None:
    stream = io.StringIO()
    with PlainDisplay(stream, seconds=5).task("training", 10) as task:
        for _ in range(10):
            clock.now += 2
            task.advance(1, f"loss {clock.now:.0f}")
    assert stream.getvalue().splitlines() == [
        "training: 3/10, about 14 s left  loss 106",
        "training: 6/10, about 8 s left  loss 112",
        "training: 9/10, about 2 s left  loss 118",
        "training: done in 20.0 s  loss 120",
    ]


def test_what_compiling_took_is_no_part_of_the_rate(clock: Clock) -> None:
    stream = io.StringIO()
    with PlainDisplay(stream, seconds=5).task("training", 100) as task:
        clock.now += 60
        task.advance(1)
        for _ in range(2):
            clock.now += 5
            task.advance(10)
    assert stream.getvalue().splitlines()[:3] == [
        "training: 1/100",
        "training: 11/100, about 44 s left",
        "training: 21/100, about 40 s left",
    ]


def test_quick_work_is_one_line(clock: Clock) -> None:
    stream = io.StringIO()
    with PlainDisplay(stream).task("quick", 3) as task:
        task.advance(3)
    assert stream.getvalue() == "quick: done in 0.0 s\n"


def test_a_note_stays_until_the_next_one(clock: Clock) -> None:
    stream = io.StringIO()
    with PlainDisplay(stream).task("work", 3) as task:
        task.advance(1, "loss 1")
        task.advance(2)
    assert stream.getvalue().endswith("s  loss 1\n")


def test_progress_without_a_step_is_no_error(clock: Clock) -> None:
    stream = io.StringIO()
    with PlainDisplay(stream).task("work", 3) as task:
        clock.now += 60
        task.advance(0, "waiting")
    assert stream.getvalue() == "work: done in 60.0 s  waiting\n"


def test_work_that_fails_is_not_called_done() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), PlainDisplay(stream).task("work", 3):
        raise KeyboardInterrupt
    assert stream.getvalue() == ""


def test_no_control_characters_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    display = display_for(stream)
    assert isinstance(display, PlainDisplay)
    display.say("stage [1]")
    with display.task("training", 2) as task:
        task.advance(2, "loss 0.5")
    assert stream.getvalue().startswith("stage [1]\ntraining: done in ")
    assert not re.search(r"[^\n\x20-\x7e]", stream.getvalue())


def test_lines_are_written_at_once() -> None:
    class Flushed(io.StringIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    stream = Flushed()
    PlainDisplay(stream).say("a")
    assert stream.flushes == 1


def test_without_a_stream_lines_go_to_the_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    PlainDisplay().say("hello")
    assert capsys.readouterr() == ("", "hello\n")


def test_a_terminal_gets_bars(capsys: pytest.CaptureFixture[str]) -> None:
    display = display_for(Terminal())
    assert isinstance(display, RichDisplay)
    display.say("stage [bold]1[/bold]")
    with display.task("training", 4) as task:
        task.advance(1, "loss 0.7")
        task.advance(3)
    out, shown = capsys.readouterr()
    assert out == ""
    assert "stage [bold]1[/bold]" in shown, "what is said is not markup"
    assert "training" in shown
    assert "4/4" in shown
    assert "loss 0.7" in shown


def test_a_terminal_gets_lines_where_rich_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert isinstance(display_for(Terminal()), PlainDisplay)


@pytest.mark.parametrize("display", [PlainDisplay(io.StringIO()), SilentDisplay(), RichDisplay()])
def test_displays_pass_errors_on(display: Display, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="mine"), display.task("work", 1):
        raise ValueError("mine")


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    display = SilentDisplay()
    display.say("hello")
    with display.task("work", 1) as task:
        task.advance(1, "note")
    assert capsys.readouterr() == ("", "")


class ZMQInteractiveShell:
    """Jupyter's shell is called so."""


def notebook(monkeypatch: pytest.MonkeyPatch, widgets: bool) -> None:
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    found = importlib.machinery.ModuleSpec("ipywidgets", None) if widgets else None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: found)


def test_a_library_shows_progress_where_a_person_sits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(display_of_library(), SilentDisplay)
    assert isinstance(display_of_library(progress=True), PlainDisplay)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(display_of_library(), RichDisplay)
    assert isinstance(display_of_library(progress=False), SilentDisplay)


def test_a_notebook_gets_bars_where_it_has_widgets_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    notebook(monkeypatch, widgets=True)
    assert isinstance(display_of_library(), RichDisplay)
    notebook(monkeypatch, widgets=False)
    lines = display_of_library()
    assert isinstance(lines, PlainDisplay)
    assert lines.stream is sys.stdout
    assert isinstance(display_of_library(progress=False), SilentDisplay)


def test_training_shows_progress_when_asked(planted: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    longtail.train(planted, recipe="tiny", progress=True)
    assert "stage 4_classify" in capsys.readouterr().err
    longtail.train(planted, recipe="tiny")
    assert capsys.readouterr() == ("", "")
