"""The command line: a thin skin over `pipeline`, `evaluation`, `packing` and their like, and the contract for scripts.

Exit codes: 0 success; 2 a user's error (``error:`` and ``hint:`` on standard error, no traceback); 130 interrupted;
1 a bug of ours. Results go to standard output, everything else to standard error.
``--quiet``, ``--verbose`` and ``--debug`` may stand anywhere on the line.

The commands stand in `training`, `asking`, `serving`, `measuring`, `sharing` and `data`; `base` is what they share.
A module of commands is imported when one of them is asked for, and imports nothing heavy, so that every command begins
at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from longtail import __version__
from longtail.cli.base import COMPLETE, Program, Talk
from longtail.errors import ConfigError, LongtailError

longtail = Program(
    name="longtail",
    help="Tags a short text with the most relevant of thousands to millions of labels.",
    examples=("longtail demo", "longtail train DATA --out runs/first", 'longtail predict runs/first "a text"'),
    modules={
        "Make a model": ("training",),
        "Ask it": ("asking", "serving"),
        "Measure it": ("measuring",),
        "Hand it on": ("sharing",),
        "Data": ("data",),
    },
    asked_most="asking",
)
click.version_option(__version__, prog_name="longtail", message="%(prog)s %(version)s")(longtail)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    talk = Talk()
    try:
        if os.environ.get(COMPLETE):
            return shell_complete(longtail, {}, "longtail", COMPLETE, os.environ[COMPLETE])
        # Not click's own main: it would end the process where the reader of a pipe has gone.
        words = list(sys.argv[1:] if arguments is None else arguments)
        talk.words = tuple(words)
        with longtail.make_context("longtail", words, obj=talk) as context:
            longtail.invoke(context)
        sys.stdout.flush()
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        hint = "use smaller settings or fewer documents, or a machine with more memory"
        return _failed(talk, LongtailError("out of memory", hint))
    except OSError as problem:
        message = f"{problem.filename or 'a file'}: {problem.strerror or problem}"
        return _failed(talk, LongtailError(message, "check the path, its rights and the space on the disk"))
    except Exception as problem:
        message = f"internal error: {type(problem).__name__}: {problem}"
        return _failed(
            talk, LongtailError(message, "this is a bug of longtail; --debug shows where, please report it"), 1
        )


def _failed(talk: Talk, problem: LongtailError, code: int = 2) -> int:
    if talk.debug:
        traceback.print_exc()
    print(f"error: {problem.message}", file=sys.stderr)
    if problem.hint:
        print(f"hint: {problem.hint}", file=sys.stderr)
    return code
