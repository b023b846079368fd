"""One progress display for all long work: a bar of `rich` on a terminal, plain lines elsewhere (logs, CI)."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Iterator
from typing import Protocol, TextIO


class Task(Protocol):
    """A piece of long work that reports how far it is."""

    def advance(self, steps: int = 1, note: str = "") -> None: ...


class Count(Protocol):
    """Long work on things that nobody has counted."""

    def advance(self, things: int, share: float | None = None) -> None:
        """share: of the work that is done; None where nobody knows."""
        ...


class Display(Protocol):
    """Where progress is shown. `say` prints a line that stays."""

    def say(self, line: str) -> None: ...

    def task(self, title: str, total: int) -> contextlib.AbstractContextManager[Task]: ...

    def count(self, title: str) -> contextlib.AbstractContextManager[Count]: ...


class PlainDisplay:
    """Lines on a stream: at the start, at most every `seconds`, and at the end with the time it took."""

    def __init__(self, stream: TextIO | None = None, seconds: float = 5.0) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.seconds = seconds

    def say(self, line: str) -> None:
        print(line, file=self.stream, flush=True)

    @contextlib.contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        task = _PlainTask(self, title, total)
        yield task
        self.say(f"{title}: done in {time.monotonic() - task.started:.1f} s{task.note and '  ' + task.note}")

    @contextlib.contextmanager
    def count(self, title: str) -> Iterator[Count]:
        count = _PlainCount(self, title)
        yield count
        self.say(f"{title}: {count.rate} done in {time.monotonic() - count.started:.1f} s")


class _PlainCount:
    def __init__(self, display: PlainDisplay, title: str) -> None:
        self.display, self.title, self.done = display, title, 0
        self.started = self.shown = time.monotonic()
        self.warm_share, self.warm_at = 0.0, 0.0  # of the first report, as `_PlainTask.warm_done`

    @property
    def rate(self) -> str:
        return _rate(self.done, time.monotonic() - self.started)

    def advance(self, things: int, share: float | None = None) -> None:
        self.done += things
        now = time.monotonic()
        if share and not self.warm_share:
            self.warm_share, self.warm_at = share, now
        if now - self.shown >= self.display.seconds:
            self.shown = now
            since, left = (share or 0.0) - self.warm_share, ""
            if share and since > 0:
                left = f", about {(now - self.warm_at) / since * (1 - share):.0f} s left"
            self.display.say(f"{self.title}: {self.rate}{left}")


def _rate(things: int, seconds: float) -> str:
    return f"{things:,} ({things / max(seconds, 1e-3):,.0f} a second)"


class _PlainTask:
    def __init__(self, display: PlainDisplay, title: str, total: int) -> None:
        self.display, self.title, self.total = display, title, total
        self.done, self.note = 0, ""
        self.started = self.shown = time.monotonic()
        # Of the first report: until then code was compiled, memory was filled, or steps of an earlier process counted.
        self.warm_done, self.warm_at = 0, 0.0

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.done += steps
        self.note = note or self.note
        now = time.monotonic()
        if not self.warm_done:
            self.warm_done, self.warm_at = self.done, now
        if now - self.shown >= self.display.seconds and 0 < self.done < self.total:
            self.shown = now
            since, left = self.done - self.warm_done, ""
            if since:
                left = f", about {(now - self.warm_at) / since * (self.total - self.done):.0f} s left"
            self.display.say(f"{self.title}: {self.done}/{self.total}{left}{self.note and '  ' + self.note}")


class SilentDisplay:
    """For libraries and tests: nothing is shown."""

    def say(self, line: str) -> None: ...

    @contextlib.contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        yield _SilentTask()

    @contextlib.contextmanager
    def count(self, title: str) -> Iterator[Count]:
        yield _SilentCount()


class WarningDisplay(SilentDisplay):
    """Nothing but warnings."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def say(self, line: str) -> None:
        if line.startswith("warning:"):
            print(line, file=self.stream, flush=True)


class _SilentTask:
    def advance(self, steps: int = 1, note: str = "") -> None: ...


class _SilentCount:
    def advance(self, things: int, share: float | None = None) -> None: ...


class RichDisplay:
    """Bars on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False)

    def say(self, line: str) -> None:
        self.console.print(line, markup=False)

    @contextlib.contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        import rich.progress as bars

        columns = (
            *(bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn()),
            *(bars.TimeElapsedColumn(), bars.TimeRemainingColumn(), bars.TextColumn("{task.fields[note]}")),
        )
        with bars.Progress(*columns, console=self.console) as progress:
            number = progress.add_task(title, total=total, note="")

            class _RichTask:
                def advance(self, steps: int = 1, note: str = "") -> None:
                    if note:
                        progress.update(number, note=note)
                    progress.advance(number, steps)

            yield _RichTask()

    @contextlib.contextmanager
    def count(self, title: str) -> Iterator[Count]:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self.console) as progress:
            number, started = progress.add_task(title, total=None, note=""), time.monotonic()

            class _RichCount:
                done = 0

                def advance(self, things: int, share: float | None = None) -> None:
                    self.done += things
                    note = _rate(self.done, time.monotonic() - started)
                    progress.update(number, total=None if share is None else 1.0, completed=share or 0.0, note=note)

            yield _RichCount()


def in_notebook() -> bool:
    """Whether a notebook shows what is printed."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ in ("ZMQInteractiveShell", "Shell")  # Jupyter, Colab


def display_of_library(progress: bool | None = None) -> Display:
    """For calls from Python. progress: whether to show any; None: where a person sits, at a terminal or a notebook."""
    if progress is False or (progress is None and not sys.stderr.isatty() and not in_notebook()):
        return SilentDisplay()
    # Bars in a notebook need ipywidgets.
    if in_notebook() and not (bars_can_be_drawn() and importlib.util.find_spec("ipywidgets") is not None):
        return PlainDisplay(sys.stdout)
    return RichDisplay() if in_notebook() else display_for(sys.stderr)


def display_for(stream: TextIO) -> Display:
    """Bars where `stream` is a terminal and rich is installed, else lines."""
    return RichDisplay() if stream.isatty() and bars_can_be_drawn() else PlainDisplay(stream)


def bars_can_be_drawn() -> bool:
    return importlib.util.find_spec("rich") is not None
