"""Tries a new version of a model before a worker opens it: ``python -m longtail.serve.trial``, with a line of JSON for
each trial on standard input, and one for each result on standard output.

Every trial is a process of its own. A version that ends whoever opens it (too large for the memory, say) ends that one,
and no worker. The process that starts them has imported all that is needed and opens nothing itself, so that a trial
begins at once; it has no threads, which would not survive a fork, and ends when nobody has asked for a while.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from longtail.serve.problems import sentence
from longtail.serve.worker import opened_version, plan_of

_IDLE_S = 300
_LONGEST_S = 600  # of a trial


def tried(order: dict[str, Any]) -> str:
    """What goes wrong when a version is opened in a new process; "" where nothing does."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        signal.alarm(_LONGEST_S)
        problem = _problem(order)
        with os.fdopen(writing, "w") as pipe:
            pipe.write(problem)
        os._exit(0)  # threads of kernels need not be waited for
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return said or (f"the process that tried to open it ended with code {code}" if code else "")


def _problem(order: dict[str, Any]) -> str:
    try:
        opened_version(order["name"], order["path"], order["sha"], plan_of(order["plan"]))
    except BaseException as problem:  # libraries in Rust raise what is no Exception
        return sentence(problem)
    return ""


def main() -> None:
    signal.alarm(_IDLE_S)
    for line in iter(sys.stdin.readline, ""):
        signal.alarm(0)
        print(json.dumps({"error": tried(json.loads(line))}), flush=True)
        signal.alarm(_IDLE_S)


if __name__ == "__main__":
    main()
