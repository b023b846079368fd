"""Several processes that train one model: how they meet, how they agree, and what happens when one of them ends.

A launcher starts the processes and tells each its number: ``torchrun``, ``longtail train --devices`` (`launch`), or
Ray. The first process (0) writes the run folder; all of them read it.

Every process holds a lock on a file of its own in RUN/.processes while it works. The kernel drops a lock when its
process dies, however it dies, so the others know who is gone. One that ends with an error leaves the error in its file.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from longtail.errors import ConfigError, LongtailError, RunError, RunTaken
from longtail.persistence import no_room_is_an_error
from longtail.writing import held_lock

if TYPE_CHECKING:
    from longtail.nn.shards import Shard

FOLDER = ".processes"
# Where processes of `launch` meet; others meet where MASTER_ADDR and MASTER_PORT say.
MEETING = "LONGTAIL_MEETING"
# Whoever is lost is known by the lock; a long stage of the first process alone is nothing to be impatient about.
_PATIENCE = timedelta(days=7)
_SECONDS_BETWEEN_LOOKS = 0.5
# How long a process may take to end by itself after another is gone.
_SECONDS_TO_END = 20.0
# In the file of a process that ended because another did.
_AFTER_ANOTHER = "ended because another process did"
HINT = "the same command goes on from the last checkpoint, with any number of processes"


def launched(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """(number of this process, how many there are), as a launcher says; (0, 1) without one."""
    try:
        rank, count = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    except ValueError:
        raise ConfigError(
            f"RANK={environment.get('RANK')} WORLD_SIZE={environment.get('WORLD_SIZE')}, expected whole numbers",
            "start processes with torchrun or --devices, which set both; unset them for one process",
        ) from None
    where = MEETING in environment or "MASTER_ADDR" in environment
    return (rank, count) if count > 1 and where else (0, 1)


def is_of_process(file: Path) -> bool:
    """Whether this is a file that one of several processes holds a lock on."""
    return file.name.isascii() and file.name.isdigit() and file.is_file() and not file.is_symlink()


class Processes:
    """The processes of a training, as one of them sees them. Without arguments: this one alone."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count
        self._folder: Path | None = None
        self._lock: int | None = None
        self._ended = threading.Event()
        self._lost: tuple[int, str] | None = None

    @classmethod
    def joined(cls, device: str) -> Processes:
        """Meet the others, where a launcher started several."""
        rank, count = launched()
        if count == 1:
            return cls()
        import torch
        from torch import distributed

        on_gpu = device != "cpu" and torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
        if not distributed.is_initialized():
            # A group that ends with the interpreter may end it by a signal, and its exit code would be lost.
            atexit.register(_leave_group)
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
                init_method=os.environ.get(MEETING, "env://"),
                rank=rank,
                world_size=count,
                timeout=_PATIENCE,
            )
        return cls(rank, count)

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.rank == 0

    def shard(self, labels: int) -> Shard:
        from longtail.nn.shards import Shard

        return Shard(labels, self.rank, self.count)

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            self.shard(0).said_by_all(0)

    def agreed(self, value: int) -> int:
        """What the first process says."""
        return value if self.count == 1 else self.shard(0).agreed(value)

    def check_same(self, what: str, identity: str) -> None:
        """Refuse to begin where another process was given something else."""
        if self.count == 1:
            return
        number = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "little") >> 1
        said = self.shard(0).said_by_all(number)
        other = next((rank for rank, value in enumerate(said) if value != said[0]), None)
        if other is not None:
            raise RunError(
                f"process {other} of {self.count} has other {what} than process 0",
                "every process must be given the same command, and see the same files",
            )

    # ---- who is there ----

    def enter(self, run: Path) -> None:
        """Hold the lock of this process in a run folder, and look after those of the others from now on."""
        if self.count == 1:
            return
        self._folder = run / FOLDER
        with no_room_is_an_error(run):
            self._folder.mkdir(parents=True, exist_ok=True)
        taken = RunTaken(f"{run}: other processes are training here", "wait for them, or give another --out")
        self._lock = held_lock(self._folder / str(self.rank), taken)
        self._write(f"{os.getpid()}\n")
        self.wait()
        threading.Thread(target=self._look_after, name="longtail-processes", daemon=True).start()

    def forget_others(self, run: Path) -> None:
        """What more processes than these have left of an earlier attempt. Safe where the lock of the run is held."""
        folder = run / FOLDER
        if folder.is_symlink() or not folder.is_dir():
            return
        for file in filter(is_of_process, list(folder.iterdir())):
            if self.count == 1 or int(file.name) >= self.count:
                file.unlink()
        if self.count == 1:
            with contextlib.suppress(OSError):  # something else is in it
                folder.rmdir()

    def leave(self, problem: BaseException | None = None) -> None:
        """The work of this process is done, or has failed; the others learn why."""
        self._ended.set()
        if self._lock is None or self._folder is None:
            return
        with contextlib.suppress(OSError):
            if problem is None:
                (self._folder / str(self.rank)).unlink()
                self._folder.rmdir()  # the last one succeeds
            else:
                after = isinstance(problem, ProcessLost)
                text = problem.message if isinstance(problem, LongtailError) else f"{type(problem).__name__}: {problem}"
                self._write(f"{os.getpid()}\n{_AFTER_ANOTHER if after else text}\n")
        os.close(self._lock)
        self._lock = None

    def explained(self, problem: BaseException | None) -> BaseException | None:
        """`problem`, or where it is that another process is gone, an error that names it."""
        if self.count == 1 or self._folder is None or problem is None or isinstance(problem, LongtailError):
            return problem
        # torch says that a connection is closed a moment before the lock is free.
        until = time.monotonic() + 5
        while isinstance(problem, RuntimeError) and self._lost is None and time.monotonic() < until:
            time.sleep(0.05)
        return problem if self._lost is None else ProcessLost(*self._lost, self.count)

    def _look_after(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            self._lost = self._gone()
            if self._lost is not None:
                break
        # Whatever this process waits for from the lost one will not come: usually it is told, else it is ended here.
        if self._lost is not None and not self._ended.wait(_SECONDS_TO_END):
            problem = ProcessLost(*self._lost, self.count)
            print(f"error: {problem.message}\nhint: {problem.hint}", file=sys.stderr, flush=True)
            os._exit(2)

    def _gone(self) -> tuple[int, str] | None:
        """(number, what it said last) of a process that ended before its work was done, and not because of another."""
        assert self._folder is not None
        for rank in range(self.count):
            if rank == self.rank:
                continue
            try:
                file = os.open(self._folder / str(rank), os.O_RDONLY)
            except OSError:  # it is done
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:  # it lives
                continue
            finally:
                said = os.read(file, 10_000).decode(errors="replace").partition("\n")[2].strip()
                os.close(file)
            if said != _AFTER_ANOTHER:
                return rank, said
        return None

    def _write(self, text: str) -> None:
        assert self._lock is not None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, text.encode(), 0)


def _leave_group() -> None:
    from torch import distributed

    if distributed.is_initialized():
        with contextlib.suppress(RuntimeError):
            distributed.destroy_process_group()


class ProcessLost(RunError):
    """Another process of the training ended before its work was done."""

    def __init__(self, rank: int, said: str, count: int) -> None:
        how = f"failed: {said}" if said else "was killed, or ended without a word"
        super().__init__(f"process {rank} of {count} {how}", HINT)
