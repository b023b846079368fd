"""The command line: a thin skin over `pipeline`, `evaluation`, `packing` and their like, and the contract for scripts.

Exit codes: 0 success; 2 a user's error (``error:`` and ``hint:`` on standard error, no traceback); 130 interrupted;
1 a bug of ours. Results go to standard output, everything else to standard error.
``--quiet``, ``--verbose`` and ``--debug`` may stand anywhere on the line.

The commands stand in `training`, `asking`, `serving`, `measuring`, `changing`, `sharing` and `data`; `base` is what
they share.
A module of commands is imported when one of them is asked for, and imports nothing heavy, so that every command begins
at once.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import shell_complete

from longtail import __version__
from longtail.cli.base import COMPLETE, Program, Talk
from longtail.errors import ConfigError, LongtailError
from longtail.report import cut

longtail = Program(
    name="longtail",
    help="Tags a short text with the most relevant of thousands to millions of labels.",
    examples=("longtail demo", "longtail train DATA --out runs/first", 'longtail predict runs/first "a text"'),
    modules={
        "Make a model": ("training",),
        "Ask it": ("asking", "serving"),
        "Measure it": ("measuring", "changing"),
        "Hand it on": ("sharing",),
        "Data": ("data",),
    },
    asked_most="asking",
)
click.version_option(__version__, prog_name="longtail", message="%(prog)s %(version)s")(longtail)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    talk = Talk()
    _make_streams_safe()
    try:
        if os.environ.get(COMPLETE):
            return shell_complete(longtail, {}, "longtail", COMPLETE, os.environ[COMPLETE])
        # Not click's own main: it would end the process where the reader of a pipe has gone.
        words = list(sys.argv[1:] if arguments is None else arguments)
        talk.words = tuple(words)
        with longtail.make_context("longtail", words, obj=talk) as context:
            longtail.invoke(context)
        sys.stdout.flush()
        if lost := _signs.replaced:
            print(f"note: {lost:,} characters that {sys.stdout.encoding} lacks were shown as '?'", file=sys.stderr)
        return 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as problem:
        path = problem.ctx.command_path if problem.ctx else "longtail"
        return _failed(talk, ConfigError(problem.format_message(), f"see '{path} --help'"))
    except LongtailError as problem:
        return _failed(talk, problem)
    except (KeyboardInterrupt, click.Abort):
        resumes = "; the same command goes on from here" if talk.resumes else ""
        print(f"\ninterrupted{resumes}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone. Give Python something to flush into, or it complains on exit.
        _let_go(sys.stdout)
        return 0
    except Exception as problem:
        known = _of_the_machine(problem)
        if known is not None:
            return _failed(talk, known)
        message = f"internal error: {type(problem).__name__}: {problem}"
        return _failed(
            talk, LongtailError(message, "this is a bug of longtail; --debug shows where, please report it"), 1
        )


# What libraries say that wrap it in an error of another kind (torch; threads).
_NO_MEMORY = ("can't allocate memory", "out of memory", "can't start new thread", "Cannot allocate memory")
# What the system says of a library that does not fit into memory, or is missing or broken.
_NOT_LOADED = ("failed to map segment", "cannot open shared object", "Could not find/load shared object")


def _of_the_machine(problem: Exception) -> LongtailError | None:
    """What is wrong with the machine, or its limits, and not with longtail."""
    said, code = str(problem), getattr(problem, "errno", None)
    if isinstance(problem, MemoryError) or code == errno.ENOMEM or any(sign in said for sign in _NO_MEMORY):
        return LongtailError(
            "out of memory", "use smaller settings or fewer documents, or a machine with more memory or higher limits"
        )
    line = next((line for line in said.splitlines() if any(sign in line for sign in _NOT_LOADED)), None)
    if line is not None:
        hint = "the memory may be too small, or limited (ulimit -v); else install longtail again"
        return LongtailError(f"a library cannot be loaded: {line}", hint)
    if isinstance(problem, OSError):
        message = f"{problem.filename or 'a file'}: {problem.strerror or problem}"
        return LongtailError(message, "check the path, its rights and the space on the disk")
    return None


class _Signs:
    """Counts what a terminal has no sign for: a question mark is shown in its place."""

    replaced = 0

    def replace(self, problem: UnicodeError) -> tuple[str, int]:
        assert isinstance(problem, UnicodeEncodeError), "only asked for what is written"
        count = problem.end - problem.start
        self.replaced += count
        return "?" * count, problem.end


_signs = _Signs()
codecs.register_error("longtail.counted", _signs.replace)


def _make_streams_safe() -> None:
    """A stream that was closed leads nowhere, and what a terminal has no sign for is a question mark there: neither may
    cost the answers.
    """
    _signs.replaced = 0
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process lives)
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="longtail.counted" if name == "stdout" else "replace")


def _let_go(stream: Any) -> None:
    """Give Python something else to flush into on exit, or it complains."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _flushes(stream: Any) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _failed(talk: Talk, problem: LongtailError, code: int = 2) -> int:
    if talk.debug:
        traceback.print_exc()
    lines = [f"error: {cut(problem.message)}", *([f"hint: {cut(problem.hint)}"] if problem.hint else [])]
    with contextlib.suppress(OSError):
        print("\n".join(lines), file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if not _flushes(stream):
            _let_go(stream)
    return code
