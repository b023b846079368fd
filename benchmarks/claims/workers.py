"""Several processes that train what claims need, with one cache: ``run --workers N`` starts them and judges;
``train`` is one of them.

Every worker goes through the same list of trainings and makes those that are neither finished nor being made by
another. What tells is the lock of a run folder: the kernel drops it when a process dies, however it dies, so nothing
is left locked and the next who comes to it goes on with it. Workers take seeds, deadline and device from the same
options as `run`. Each has `--threads` threads; no result depends on their number.

The process that started them trains nothing while they are at work. It judges a claim as soon as its trainings are
there, but claims with probes when all workers have ended, because probes may measure time. What workers left undone
(one died, a training failed) it makes itself, or says why not. Workers whose starter was killed go on; a new `run`
waits for what they train at the time, and finds the rest finished.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from benchmarks.claims import runner
from benchmarks.claims.entries import Claim
from benchmarks.claims.workshop import OutOfTime, Workshop
from longtail.errors import LongtailError, RunTaken

PROGRAM: tuple[str, ...] = (sys.executable, "-m", "benchmarks.claims")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
LOOK_AGAIN = 0.5  # seconds


class Crew:
    """Workers at work; none where one process does everything."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]] = ()) -> None:
        self._processes = processes

    @property
    def is_at_work(self) -> bool:
        return any(process.poll() is None for process in self._processes)

    def wait_for(self, claim: Claim, workshop: Workshop, seeds: range) -> None:
        """Until the claim can be judged, or nobody is left to train for it."""
        needed = (
            {
                workshop.folder(each.variant, each.data, each.seed)
                for each in runner.trainings_and_those_of_probes(claim, seeds)
            }
            if self._processes
            else set()
        )
        alone = runner.has_probes(claim)
        while self.is_at_work and (alone or not all(map(workshop.is_finished, needed))):
            time.sleep(LOOK_AGAIN)

    def dismiss(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()


@contextmanager
def at_work(count: int, threads: int, options: Mapping[str, object], ids: Sequence[str]) -> Iterator[Crew]:
    """`count` processes of ``train IDS --option=value ...``; those still at work at the end are stopped."""
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    command = [*PROGRAM, "train", *ids, *given]
    crew = Crew([subprocess.Popen(command, env=environment) for _ in range(count)])
    try:
        yield crew
    finally:
        crew.dismiss()


def in_order(claims: Sequence[tuple[str, Claim]]) -> list[tuple[str, Claim]]:
    """(paper, claim): those with probes last, which wait for all others."""
    return sorted(claims, key=lambda of: runner.has_probes(of[1]))


def train_all(claims: Sequence[Claim], workshop: Workshop, seeds: int | None, first_seed: int) -> int:
    """Make what no other process makes, rankings of test documents included. Gives the number of trainings that failed.

    The list is gone through until nothing is left to do, so that what another worker died over is found. A training
    that fails stops no other: whoever judges meets it again.
    """
    todo = [
        (claim, each)
        for claim in claims
        for each in runner.trainings_and_those_of_probes(claim, runner.seeds_of(claim, seeds, first_seed))
    ]
    failed: list[runner.Training] = []
    try:
        while sum(_made(claim, training, workshop, failed) for claim, training in todo):
            pass
    except OutOfTime as stop:
        workshop.say(f"  out of time before {stop}")
    return len(failed)


def _made(claim: Claim, training: runner.Training, workshop: Workshop, failed: list[runner.Training]) -> bool:
    """Whether this training was to be made, and was made here."""
    try:
        if training in failed or workshop.is_trained(training.variant, training.data, training.seed):
            return False
        trained = workshop.trained(training.variant, training.data, training.seed, training.name, wait=False)
        if runner.is_ranked(claim):
            trained.predictions()
    except RunTaken:
        return False
    except OutOfTime:
        raise
    except Exception as problem:
        failed.append(training)
        why = str(problem) if isinstance(problem, LongtailError) else traceback.format_exc()
        workshop.say(f"  failed: '{training.name}' of {claim.id} with seed {training.seed}: {why}")
        return False
    return True
