"""Trainings that end at a file operation: by SIGKILL, by a full disk, by too little memory; then they are resumed.

A training runs in a process that is forked off one which has everything loaded. Python tells of every file that is
opened for writing, renamed, linked or removed, and of every folder that is made (`sys.addaudithook`): at the one chosen
the process dies, or the operation fails. Given again, the same command must make the same bundle, bit by bit, and leave
nothing behind.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults.models import train_small
from longtail.errors import LongtailError

EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.symlink", "os.utime"}
NEEDS_ROOM = {"os.mkdir", "os.link", "os.symlink"}
REFUSED, NO_MEMORY, BROKEN = 3, 4, 5


class Operations:
    """Counts what a process does to files below a folder, and acts at the one that is chosen."""

    def __init__(self, folder: Path, at: int, act: Callable[[], None]) -> None:
        self.folder, self.at, self.act, self.count = str(folder), at, act, 0
        self.events = NEEDS_ROOM if act is disk_full else EVENTS
        sys.addaudithook(self.saw)

    def saw(self, event: str, arguments: tuple[Any, ...]) -> None:
        writes = event in self.events or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING)
        if not writes or not any(isinstance(one, str | Path) and str(one).startswith(self.folder) for one in arguments):
            return
        self.count += 1
        if self.count == self.at:
            self.act()


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def in_child(work: Callable[[], None], log: Path) -> int:
    """The exit code of `work` in a forked process; below 0: the signal that ended it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = BROKEN
    try:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        work()
        code = 0
    except LongtailError as problem:
        print(problem, file=sys.stderr, flush=True)
        code = REFUSED
    except MemoryError:
        code = NO_MEMORY
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


class Trainings:
    """One recipe, trained whole once, and then with faults."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.home = name, folder / name
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.log = self.home / "log"
        train_small(name, self.home / "warm")  # here, so that every process that is forked off has all kernels
        self.operations = self._counted(die)
        self.expected = content(self.home / "whole" / "bundle")

    def _counted(self, act: Callable[[], None]) -> int:
        """Operations of a whole training: those at which `act` can be done."""
        whole, counted = self.home / "whole", self.home / "count"

        def counting() -> None:
            seen = Operations(whole, 0, act)
            train_small(self.name, whole)
            counted.write_text(str(seen.count))

        shutil.rmtree(whole, ignore_errors=True)
        if in_child(counting, self.log):
            raise RuntimeError(f"{self.name} does not train: {self.log.read_text()[-500:]}")
        return int(counted.read_text())

    def attempt(self, kind: str, seed: int) -> tuple[int, str]:
        """How many faults there were, and what is wrong ("" for nothing)."""
        chance, run = random.Random(seed), self.home / "broken"
        shutil.rmtree(run, ignore_errors=True)
        places = [chance.randrange(1, self.operations + 1) for _ in range(chance.choice((1, 1, 2, 3)))]
        # Memory is scarce at some moment of the training, not at an operation.
        faults, said = self.at(kind, places[:1] if kind == "memory" else places, chance.randrange(1 << 24))
        return 1 if kind == "memory" else faults, said

    def at(self, kind: str, places: list[int], room: int = 0) -> tuple[int, str]:
        run, faults = self.home / "broken", 0
        shutil.rmtree(run, ignore_errors=True)
        for place in places:
            code = in_child(partial(self._with, kind, place, room, run), self.log)
            faults += code != 0
            allowed = {"kill": (0, -signal.SIGKILL), "disk": (0, REFUSED), "memory": (0, REFUSED, NO_MEMORY)}[kind]
            if code not in allowed:
                return faults, f"{kind} at operation {place}: exit code {code}: {self.log.read_text()[-800:]}"
        code = in_child(lambda: train_small(self.name, run), self.log)
        if code:
            return faults, f"{kind} at {places}: cannot be resumed, exit code {code}: {self.log.read_text()[-800:]}"
        if content(run / "bundle") != self.expected:
            return faults, f"{kind} at {places}: another bundle"
        left = [str(path.relative_to(run)) for path in run.rglob("*") if path.name.endswith((".tmp", ".old"))]
        return faults, f"{kind} at {places}: left behind {left}" if left else ""

    def full_everywhere(self) -> tuple[int, str]:
        """A disk that is full at one operation after the other that needs room: each is refused, and leaves what can be
        gone on with. Of states that many operations leave one is trained to the end.
        """
        run, ended = self.home / "broken", set[str]()
        operations = self._counted(disk_full)
        for place in range(1, operations + 1):
            shutil.rmtree(run, ignore_errors=True)
            code = in_child(partial(self._with, "disk", place, 0, run), self.log)
            if code not in (0, REFUSED):
                return place, f"operation {place}: exit code {code}: {self.log.read_text()[-800:]}"
            state = "\n".join(sorted(str(path.relative_to(run)) for path in run.rglob("*")))
            if state in ended:
                continue
            ended.add(state)
            code = in_child(lambda: train_small(self.name, run), self.log)
            if code or content(run / "bundle") != self.expected:
                return place, f"operation {place}: cannot be resumed to the same bundle, exit code {code}"
        return operations, ""

    def _with(self, kind: str, place: int, room: int, run: Path) -> None:
        if kind == "memory":
            limit_memory(room)
        else:
            Operations(run, place, die if kind == "kill" else disk_full)
        train_small(self.name, run)


def limit_memory(more: int) -> None:
    """No more than so many bytes beside what the process has already."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more,) * 2)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def one_thread() -> Iterator[None]:
    """Processes are forked: nothing here may start threads of OpenMP."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
