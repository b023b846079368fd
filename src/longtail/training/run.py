"""A run: one folder in which a training saves its stages, so that it can be killed at any moment and started again.

    RUN/run.json        what this run is: recipe, settings, seed, data; the same command resumes, another one is refused
    RUN/config.toml     every setting, resolved
    RUN/metrics.jsonl   what happened: a JSON object per event (times live here, never in the bundle)
    RUN/files.jsonl     what the run wrote, with checksums (`file_list`): nothing else is ever removed
    RUN/stages/<name>/  the saved result of a finished stage; it appears by one rename, so it is whole or absent
    RUN/work/<name>/    checkpoints inside a stage of many epochs; removed when the stage is done
    RUN/members/<n>/    stages of the models of an ensemble
    RUN/analysis/<name>/ what training leaves for analyses; no stage and no bundle reads it
    RUN/bundle/         the trained model
    RUN/.processes/     a file for each of several processes at work (see `processes`)

A stage's result is always loaded back from disk, finished just now or yesterday: an interrupted run and an
uninterrupted one take the same path from there on. Randomness comes from generators named by (seed, name, keys...),
so that epoch 7 shuffles alike whether epochs 1 to 6 were run a second ago or loaded from a checkpoint: no generator
state is ever saved.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from longtail.bundle import contents
from longtail.config import differences
from longtail.errors import ConfigError, RunError, RunTaken
from longtail.persistence import (
    Part,
    load_part,
    map_arrays,
    no_room_is_an_error,
    read_json,
    save_part,
    write_arrays,
    write_json,
    written_aside,
)
from longtail.training.file_list import LOCK, FileList, is_listed
from longtail.training.file_list import NAME as LIST_NAME
from longtail.training.processes import FOLDER as PROCESSES_FOLDER
from longtail.training.processes import Processes
from longtail.training.progress import Display, SilentDisplay, Task
from longtail.writing import held_lock, is_aside, is_litter, make_folder, refuse_sealed

if TYPE_CHECKING:
    from longtail.nn.shards import Shard

Result = TypeVar("Result", bound=Part | None)

logger = logging.getLogger("longtail")

_DIGEST = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")  # SHA-256, of which the beginning tells two apart


class Run:
    """A locked run folder. Use as a context manager: ``with Run.open(folder, identity, seed=0) as run: ...``"""

    def __init__(
        self, folder: Path, *, seed: int, device: str, display: Display, processes: Processes | None = None
    ) -> None:
        self.folder, self.seed, self.requested_device, self.display = folder, seed, device, display
        self.processes = processes or Processes()
        self._lock: int | None = None
        self._stage = ""
        self._title = ""
        self._done_before: list[str] = []
        self._last: tuple[Any, Path] | None = None
        self.files = FileList(folder)

    @classmethod
    def open(
        cls,
        folder: Path,
        identity: Mapping[str, Any],
        *,
        seed: int = 0,
        device: str = "auto",
        restart: bool = False,
        display: Display | None = None,
        processes: Processes | None = None,
    ) -> Run:
        """Create the folder, or take up the run that lies there if it was begun by the same command.

        identity: everything that determines the result (recipe, settings, seed, data digest), as plain values.
        processes: those that train together, which all open the run; the first of them alone writes to it.
        """
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{folder}: is a file, not a folder", "choose another --out")
        _refuse_foreign(folder)
        refuse_sealed(folder)
        with no_room_is_an_error(folder):
            make_folder(folder)
        run = cls(folder, seed=seed, device=device, display=display or SilentDisplay(), processes=processes)
        run.processes.enter(folder)
        try:
            run.processes.check_same("data", json.dumps(identity.get("data"), sort_keys=True))
            run.processes.check_same("settings", json.dumps(identity, sort_keys=True))
            if run.processes.first:
                run._take_lock()
                run._begin_or_resume(dict(identity), restart)
            run.processes.wait()
        except BaseException as problem:
            run.__exit__(type(problem), problem)
            raise
        return run

    def _begin_or_resume(self, identity: dict[str, Any], restart: bool) -> None:
        self.files = FileList(self.folder)
        self.files.remove_leftovers()
        self.processes.forget_others(self.folder)
        if restart and (self.files.file.exists() or self._file.exists()):
            self._make_free()
        if not self._file.exists():
            if left := next((name for name in self.files.entries if (self.folder / name).exists()), None):
                raise RunError(
                    f"{self._file}: the file is missing, beside '{left}' of an earlier run",
                    "put it back, begin anew with --restart, or give another --out",
                )
            self.files.begin("metrics.jsonl")
            write_json(self._file, identity)
            return
        known = read_json(self._file, RunError)
        if not isinstance(known, dict):
            raise RunError(f"{self._file}: not what a run writes there", "it was altered; choose another --out")
        changed = [_DIGEST.sub(r"\1...", line) for line in differences(known, identity)]
        if changed and all(line.startswith("data.") for line in changed):
            raise RunError(
                f"{self.folder}: the run that lies there was begun with other data ({'; '.join(changed)})",
                "the files have changed since: --restart begins anew, or give another --out",
            )
        if changed:
            raise RunError(
                f"{self.folder}: the run that lies there was begun with other settings "
                f"({'; '.join(changed[:5])}{' ...' if len(changed) > 5 else ''})",
                "give the same command to resume it, --restart to begin anew, or another --out",
            )

    @property
    def _file(self) -> Path:
        return self.folder / "run.json"

    def _make_free(self) -> None:
        """Remove what the run wrote, if there is nothing else."""
        if not is_listed(self.folder):
            raise RunError(
                f"{self.folder}: has no list of what the run wrote ({LIST_NAME}), as those of earlier versions",
                "remove the folder yourself, or give another --out",
            )
        foreign = self.files.foreign()
        if foreign is not None:
            raise RunError(
                f"{foreign}: was not written by the run that lies in {self.folder}",
                "move it away, or give another --out",
            )
        self.files.remove()

    # ---- stages ----

    def stage(self, name: str, make: Callable[[], Result], *, together: bool = False) -> Result:
        """The result of stage `name`: loaded if it was finished before, else made, saved and loaded back.

        together: where several processes train, all of them make it; else the first does, and the others wait. The
        first one saves it.
        """
        folder = self._stage_folder(name, make, save_part, together=together)
        loaded: Result = load_part(folder)
        self._last = loaded, folder
        return loaded

    def stage_of_files(self, name: str, write: Callable[[Path], None]) -> Path:
        """The folder of stage `name`, which `write` makes where it is given: for what is larger than memory. It
        appears whole, is listed with checksums and is checked when it is used again, as that of any stage.
        """
        return self._stage_folder(name, lambda: None, lambda _, aside: write(aside), together=False)

    def _stage_folder(
        self, name: str, make: Callable[[], Any], write: Callable[[Any, Path], None], *, together: bool
    ) -> Path:
        """What `make` gives is written by `write`. It is made before anything is written: what goes wrong with it is
        not said to be wrong with the folder.
        """
        folder = self.folder / "stages" / name
        if self.processes.agreed(not folder.exists()):
            self._say_begin(name)
            # A stage may have stages inside it: the outer one goes on when an inner one is done.
            outer, self._stage = self._stage, name
            started = time.monotonic()
            made = make() if self.processes.first or together else None
            if self.processes.first:
                with written_aside(folder) as aside:
                    write(made, aside)
                    self.files.add(folder, files=contents(aside))
                self.files.remove(self.folder / "work" / name)
            self.processes.wait()
            self._stage = outer
            self._done_before.clear()
            self.log("stage", name=name, seconds=round(time.monotonic() - started, 3), peak_memory=peak_memory_so_far())
        else:
            if self.processes.first:
                self.files.check(folder)
                # Of a process that was killed between the end of the stage and the removal of its checkpoints.
                self.files.remove(self.folder / "work" / name)
            self._done_before.append(name + self._title)
        return folder

    def _say_begin(self, name: str) -> None:
        """Which stage begins; for the first one after an interruption also what need not be done again."""
        resumed = self._done_before or (self.folder / "work" / name).exists()
        done = f"; done before: {', '.join(self._done_before)}" if self._done_before else ""
        self.display.say(f"{'going on from ' if resumed else ''}stage {name}{self._title}{done}")
        self._done_before.clear()

    def folder_of(self, result: Any) -> Path:
        """Where the result of the last stage lies, so that it need not be written twice."""
        assert self._last is not None, "a run has stages"
        part, folder = self._last
        assert part is result, "the result of the last stage alone is kept"
        return folder

    def shard(self, labels: int) -> Shard:
        """Which of so many labels this process trains: all, unless several processes share them."""
        return self.processes.shard(labels)

    def leave(self, name: str, part: Part) -> None:
        """Save something for analyses under RUN/analysis; what an interrupted stage left there before is replaced."""
        folder = self.folder / "analysis" / name
        self.files.remove(folder)
        with written_aside(folder) as aside:
            save_part(part, aside)
            self.files.add(folder, files=contents(aside))

    def writes(self, name: str, **what: Any) -> Path:
        """Where something of the run is about to be written that is no stage; it is then in the list of its files.

        what: nothing for a file, else see `file_list`.
        """
        if self.processes.first:
            self.files.add(self.folder / name, **what)
        return self.folder / name

    def checkpoint(self, name: str = "fit") -> StageCheckpoint:
        """Where the stage at work keeps its progress. Gone once the stage is done."""
        if not self._stage:
            raise AssertionError("checkpoints exist only inside a stage")
        checkpoint = StageCheckpoint(self.folder / "work" / self._stage / name)
        if self.processes.first:
            self.files.add(checkpoint.file)
        return checkpoint

    def member(self, number: int) -> Run:
        """A run inside this one, with a seed of its own, for one model of an ensemble; this run's lock guards it."""
        inner = Run(
            self.folder / "members" / str(number),
            seed=self.seed_for("member", number),
            device=self.requested_device,
            display=self.display,
            processes=self.processes,
        )
        inner.folder.mkdir(parents=True, exist_ok=True)
        inner.files = self.files
        inner._title, inner._done_before = f" of model {number + 1}", self._done_before
        return inner

    # ---- randomness ----

    def seed_for(self, name: str, *keys: int) -> int:
        """A 63-bit seed for (run seed, name, keys): the same in every process, on every machine."""
        text = json.dumps([self.seed, name, *keys]).encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1

    def rng(self, name: str, *keys: int) -> np.random.Generator:
        """A numpy generator of its own for (run seed, name, keys), e.g. ``run.rng("shuffle", epoch)``."""
        return np.random.default_rng(self.seed_for(name, *keys))

    # ---- machine ----

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``; asks torch, so only recipes that train with torch should look."""
        if self.requested_device == "cpu":
            return "cpu"
        import torch

        if torch.cuda.is_available():
            return "cuda"
        if self.requested_device == "cuda":
            raise ConfigError(
                "--device cuda: torch sees no CUDA device",
                "use --device cpu, or a machine with a GPU and a CUDA build of torch",
            )
        return "cpu"

    def check_memory(self, needed: int, purpose: str) -> None:
        """Say before long work how much memory it will take, and refuse what cannot fit."""
        available = available_memory()
        self.log("memory", purpose=purpose, needed=needed, available=available)
        self.display.say(
            f"memory: about {readable_bytes(needed)} for {purpose}"
            + (f", {readable_bytes(available)} available" if available else "")
        )
        if available and needed > available:
            raise RunError(
                f"{purpose} needs about {readable_bytes(needed)} of memory, but only {readable_bytes(available)} "
                "are available",
                "use smaller settings ('longtail config RECIPE' lists them), documents from the disk (train --memory), "
                "or a machine with more memory",
            )

    # ---- talking ----

    def task(self, title: str, total: int) -> contextlib.AbstractContextManager[Task]:
        return self.display.task(title, total)

    def note(self, sentence: str) -> None:
        """Show a sentence, and keep it in the log."""
        self.display.say(sentence)
        self.log("note", text=sentence)

    def log(self, event: str, **values: Any) -> None:
        """Append one line to metrics.jsonl."""
        if not self.processes.first:
            return
        line = json.dumps(
            {"event": event, "time": round(time.time(), 3), "stage": self._stage, **values}, ensure_ascii=False
        )
        with (
            no_room_is_an_error(self.folder / "metrics.jsonl"),
            self.writes("metrics.jsonl").open("a", encoding="utf-8") as file,
        ):
            file.write(line + "\n")
        logger.info("%s", line)

    # ---- lock ----

    def _take_lock(self) -> None:
        taken = RunTaken(f"{self.folder}: another process is training here", "wait for it, or choose another --out")
        self._lock = held_lock(self.folder / LOCK, taken)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self.processes.leave()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, problem: BaseException | None = None, trace: object = None) -> None:
        explained = self.processes.explained(problem)
        if problem is not None:
            self.processes.leave(explained)
        self.close()
        if explained is not None and explained is not problem:
            raise explained from None


class StageCheckpoint:
    """The last finished epoch of a long stage: its number and every array needed to go on. Replaced by one rename.

    On a GPU an epoch can be shorter than the writing of its state. `due` is True where saving takes at most a tenth
    of the time, with the save that it asks for: a long epoch is always saved, so a kill loses at most one; of short
    epochs some are skipped, and a kill loses some twenty times what a save takes (seconds; minutes on a slow disk).
    When a save happened never changes the result.
    """

    # Bytes per second, before a save was timed: a copy from the GPU, and a write to the disk.
    FIRST_GUESS = 5e8

    def __init__(self, folder: Path) -> None:
        self.file = folder / "epoch.safetensors"
        self._opened = self._began = time.monotonic()
        self._saving = 0.0
        self._saved = 0

    def due(self, size: int) -> bool:
        """Whether to save now. size: in bytes. What happens between a True and the end of `save` counts as saving."""
        self._began = time.monotonic()
        expected = size * self._saving / self._saved if self._saved else size / self.FIRST_GUESS
        return self._saving + expected <= 0.1 * (self._began - self._opened)

    def load(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """(epochs done, arrays), or None at the beginning."""
        if not self.file.exists():
            return None
        arrays = map_arrays(self.file)
        saved = arrays.pop(_CHECKSUM, None)
        if saved is None or saved.tobytes() != _checksum(arrays):
            raise RunError(
                f"{self.file}: the checkpoint is not what was saved (its checksum differs)",
                "remove the file: the stage then begins anew",
            )
        return int(arrays.pop("epochs_done")[0]), arrays

    def save(self, epochs_done: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Arrays may share memory with the model, which goes on to change: they are written before this returns."""
        kept = {**arrays, "epochs_done": np.array([epochs_done], dtype=np.int64)}
        with written_aside(self.file) as aside:
            write_arrays(aside, {**kept, _CHECKSUM: np.frombuffer(_checksum(kept), dtype=np.uint8)})
        self._saving += time.monotonic() - self._began
        self._saved += sum(array.nbytes for array in arrays.values())


_CHECKSUM = "sha256"  # of the arrays of a checkpoint, beside them


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """SHA-256 of names and contents."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.digest()


def _refuse_foreign(folder: Path) -> None:
    """A folder is a run if it has a list of what a run wrote, or (of earlier versions) the values that one begins
    with. One that was made and locked, and nothing more, is as good as empty.
    """
    if not folder.is_dir() or is_listed(folder):
        return
    names = {path.name for path in folder.iterdir() if not is_litter(path.name) and not is_aside(path)}
    began = read_json(folder / "run.json", RunError) if (folder / "run.json").is_file() else None
    if names - {LOCK, PROCESSES_FOLDER} and not (isinstance(began, dict) and "recipe" in began):
        raise RunError(
            f"{folder}: the folder exists and is not a run of longtail",
            "choose another --out, or empty it yourself",
        )


def peak_memory_so_far() -> int:
    """The most bytes that this process held so far, mapped files included; 0 where that is not known.

    Not `getrusage`: there a new process begins with the peak of the one that started it.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration, ValueError):
        return 0


def available_memory() -> int:
    """Bytes this process may still take: what the machine has free, within its container; 0 if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return 0
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        return min(free, max(0, limit - used))
    except (OSError, ValueError):
        return free


def readable_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in ("B", "kB") else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
