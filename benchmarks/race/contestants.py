"""Who races: a recipe of ours that is trained here, a model of ours that exists, or a peer. Each is trained once, and
served by a process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np

from benchmarks.race.training_record import training_record
from benchmarks.record import ROOT
from longtail.bundle import bytes_by_part, find_bundle
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, RunError
from longtail.evaluation import Yardstick, rank_test
from longtail.metrics import drop_masked_targets
from longtail.packing import pack
from longtail.persistence import read_json, write_json, written_aside
from longtail.predictor import Predictor
from longtail.training.progress import PlainDisplay
from longtail.types import TopK

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
DONE = "done.json"


@dataclass(frozen=True)
class Course:
    """What all race on.  source: where the data lies.  texts: raw texts of the test documents.  work: holds all that
    is trained.
    """

    data: Dataset
    source: str
    fields: tuple[str, ...]
    yardstick: Yardstick
    texts: list[str]
    work: Path
    threads: int

    @classmethod
    def of(cls, data: Dataset, source: str, fields: tuple[str, ...], work: Path, threads: int) -> Course:
        return cls(
            data, source, fields, Yardstick.of(data), texts_of(data.need_test().documents.fields, fields), work, threads
        )

    def folder(self, name: str, identity: Any) -> Path:
        """Of one contestant: other data or settings get another folder, so what lies there is never taken for
        something else.
        """
        text = json.dumps([self.data.digest, self.fields, identity], sort_keys=True)
        return self.work / f"{name.replace(':', '-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def log(self, name: str) -> Path:
        """What the libraries of a contestant say."""
        return self.work / f"{name.replace(':', '-')}.log"


def texts_of(fields: Any, names: tuple[str, ...]) -> list[str]:
    missing = [name for name in names if name not in fields]
    if missing:
        raise ConfigError(
            f"documents have no field '{missing[0]}'; they have: {', '.join(fields)}", "name other --fields"
        )
    return [" ".join(parts) for parts in zip(*(fields[name] for name in names), strict=True)]


class Contestant(Protocol):
    """about(): what a reader must know; training seconds and memory, bytes.  rank(): of all test documents.
    command(): serves predictions.
    """

    @property
    def name(self) -> str: ...

    def prepare(self) -> None: ...

    def about(self) -> dict[str, Any]: ...

    def rank(self) -> TopK: ...

    def command(self, threads: int) -> list[str]: ...


@dataclass(frozen=True)
class Ours:
    """A run or bundle of longtail. recipe: trained into `folder` where it is not there yet; empty: it was trained
    before or elsewhere.
    """

    name: str
    course: Course
    folder: Path
    recipe: str = ""
    settings: tuple[str, ...] = ()

    @classmethod
    def of_recipe(cls, recipe: str, course: Course, settings: list[str]) -> Ours:
        given = (f"features.fields={','.join(course.fields)}", *settings)
        return cls(recipe, course, course.folder(recipe, given), recipe, given)

    def prepare(self) -> None:
        if self.recipe:
            # Resumes what was interrupted, and does nothing where the run is finished.
            command = [
                sys.executable,
                "-m",
                "benchmarks.race.our_system",
                "train",
                self.course.source,
                str(self.folder),
                self.recipe,
                *self.settings,
            ]
            run_child(command, self.course.threads)
        fields = tuple(Predictor.open(self.folder).bundle.featurizer.fields)
        if fields != self.course.fields:
            raise ConfigError(
                f"{self.folder}: this model reads the fields {', '.join(fields)}, the race "
                f"{', '.join(self.course.fields)}",
                "say --fields",
            )

    @property
    def trained_here(self) -> bool:
        return bool(self.recipe)

    def about(self) -> dict[str, Any]:
        return {
            **training_record(self.folder),
            "trained_here": self.trained_here,
            "bytes": sum(bytes_by_part(self.folder).values()),
            "recipe": Predictor.open(self.folder).bundle.manifest.get("recipe"),
        }

    def rank(self) -> TopK:
        return rank_test(Predictor.open(self.folder), self.course.yardstick, PlainDisplay(seconds=30))

    def command(self, threads: int) -> list[str]:
        return [sys.executable, "-m", "benchmarks.race.our_system", "serve", str(self.folder)]


@dataclass(frozen=True)
class Packed(Ours):
    """Another of ours in fewer bytes, as `longtail pack` writes it."""

    dtype: Any = "int8"
    whole: Any = field(default=None)

    @classmethod
    def of(cls, whole: Ours, dtype: str) -> Packed:
        manifest = read_json(find_bundle(whole.folder) / "manifest.json")["manifest_sha256"]
        return cls(
            f"{whole.name}, {dtype}",
            whole.course,
            whole.course.folder(f"{whole.name}-{dtype}", manifest),
            dtype=dtype,
            whole=whole,
        )

    def prepare(self) -> None:
        if not self.folder.exists():
            print(pack(self.whole.folder, self.folder, self.dtype).render(), file=sys.stderr)

    @property
    def trained_here(self) -> bool:
        return bool(self.whole.trained_here)

    def about(self) -> dict[str, Any]:
        return {**super().about(), **training_record(self.whole.folder)}


@dataclass(frozen=True)
class PeerContestant:
    """A system of `peer_systems`, in the environment of `python`. versions: of what it needs."""

    name: str
    course: Course
    python: str
    versions: Any

    @classmethod
    def found(cls, name: str, course: Course, python: str) -> PeerContestant | str:
        """The peer, or why it cannot take part."""
        try:
            done = subprocess.run(
                [python, "-m", "benchmarks.race.peer_systems", "check", name],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as problem:
            return f"{python} cannot be started ({problem.strerror})"
        if done.returncode:
            return f"not installed for {python} ({(done.stderr.strip().splitlines() or ['no reason given'])[-1]})"
        return cls(name, course, python, json.loads(done.stdout.splitlines()[-1])["versions"])

    @property
    def folder(self) -> Path:
        return self.course.folder(self.name, self.versions)

    @property
    def inputs(self) -> Path:
        return self.course.folder("inputs", "")

    def prepare(self) -> None:
        """Train, unless that is done. What a kill left half-done is removed: peers cannot resume."""
        if (self.folder / DONE).exists():
            return
        write_inputs(self.course, self.inputs)
        with written_aside(self.folder) as aside:
            aside.mkdir(parents=True)
            report = json.loads(
                run_child(
                    self._command("train", aside, self.course.threads), self.course.threads, self.course.log(self.name)
                ).splitlines()[-1]
            )
            size = sum(path.stat().st_size for path in aside.rglob("*") if path.is_file())
            write_json(
                aside / DONE,
                {
                    "training_seconds": report["seconds"],
                    "training_peak_mb": report["peak_mb"],
                    "bytes": size,
                    "versions": self.versions,
                    "trained_here": True,
                },
            )

    def about(self) -> dict[str, Any]:
        return dict(read_json(self.folder / DONE))

    def rank(self) -> TopK:
        """Kept beside the model: with its default beam, deep enough for R@100 and masked pairs."""
        kept = self.folder / f"ranking-{len(self.course.texts)}.npz"
        if not kept.exists():
            with (
                written_aside(kept) as aside,
                Child(
                    self.name, self.command(self.course.threads), self.course.threads, self.course.log(self.name)
                ) as child,
            ):
                child.ask(do="open")
                child.ask(
                    do="rank",
                    texts=self.course.texts,
                    k=min(self.course.yardstick.depth, len(self.course.data.labels)),
                    out=f"{aside}.npz",
                )
                os.replace(f"{aside}.npz", aside)
        with np.load(kept, allow_pickle=False) as arrays:
            return TopK(arrays["ids"], arrays["scores"])

    def command(self, threads: int) -> list[str]:
        return self._command("serve", self.folder, threads)

    def _command(self, what: str, folder: Path, threads: int) -> list[str]:
        return [
            self.python,
            "-m",
            "benchmarks.race.peer_systems",
            what,
            self.name,
            *(str(path.resolve()) for path in (self.inputs, folder)),
            str(threads),
        ]


def write_inputs(course: Course, folder: Path) -> None:
    """Raw training texts, their labels (masked pairs removed, documents without labels left out) and label names, for
    peers.
    """
    if folder.exists():
        return
    train = course.data.train
    targets = drop_masked_targets(train.targets, train.masked)
    rows = np.flatnonzero(np.diff(targets.indptr) > 0)
    texts, kept = texts_of(train.documents.fields, course.fields), targets[rows]
    with written_aside(folder) as aside:
        aside.mkdir(parents=True)
        write_json(aside / "train.json", [texts[row] for row in rows.tolist()])
        write_json(
            aside / "labels.json", [course.data.labels.name(number) for number in range(len(course.data.labels))]
        )
        np.savez(
            aside / "targets.npz",
            indices=kept.indices.astype(np.int32),
            indptr=kept.indptr.astype(np.int32),
            shape=np.array(kept.shape),
        )


# ---- processes ----


def environment(threads: int | None) -> dict[str, str]:
    """Of a process that finds this repository's packages, with so many threads (None: as many as here)."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    limits = {} if threads is None else dict.fromkeys(THREADS, str(threads))
    return {**os.environ, **limits, "PYTHONPATH": os.pathsep.join(paths)}


def run_child(command: list[str], threads: int, log: Path | None = None) -> str:
    """What it printed. log: a file for what libraries say beside; None: it is shown."""
    with contextlib.ExitStack() as stack:
        said = None if log is None else stack.enter_context(opened_log(log))
        done = subprocess.run(
            command, env=environment(threads), stdout=subprocess.PIPE, stderr=said, text=True, check=False
        )
    if done.returncode:
        where = "what it said stands above" if log is None else f"the end of {log}:\n{tail(log)}"
        raise RunError(f"{shlex.join(command)}: failed (exit status {done.returncode})", where)
    return done.stdout


def opened_log(log: Path) -> TextIO:
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("a", encoding="utf-8")


def tail(log: Path, lines: int = 12) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])[-2000:]


class Child:
    """A system at work in its process (`serving.serve`), pinned to as many cores as it has threads."""

    def __init__(self, name: str, command: list[str], threads: int, log: Path) -> None:
        self.name, self.log = name, log
        cores = sorted(os.sched_getaffinity(0))[:threads]
        with opened_log(log) as said:
            self.process = subprocess.Popen(
                command,
                env=environment(threads),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RunError(
                f"{self.name} stopped while asked to {request['do']}", f"the end of {self.log}:\n{tail(self.log)}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()
