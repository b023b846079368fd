"""Several processes train for claims: each training is made once, by whoever comes first, and the verdict is that of
one process.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.claims import papers, results, runner, workers
from benchmarks.claims.__main__ import COMPLETE, MISSING, WRONG, main, parser, workers_of
from benchmarks.claims.entries import Probe
from benchmarks.claims.verdict import Estimate
from benchmarks.claims.workshop import OutOfTime, Workshop
from tests.benchmarks.small_claims import BLIND, PROGRAM, READS, SEES, WORLD, as_a_paper

from longtail import pipeline
from longtail.errors import RunTaken

TRAININGS = 12  # 2 variants, 2 worlds, 3 seeds


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(papers, "PAPERS", as_a_paper(READS))
    monkeypatch.setattr(results, "PAPERS", papers.PAPERS)
    monkeypatch.setattr(workers, "PROGRAM", PROGRAM)
    monkeypatch.setenv("LONGTAIL_COMMIT", "abc")
    return "test"


def verdicts(out: Path) -> list[dict[str, Any]]:
    """Without what differs between any two runs."""
    return [
        {key: value for key, value in record.items() if key not in ("trainings", "command", "date")}
        for record in results.read(out / "test.json")
    ]


def finished(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if Workshop.is_finished(path)]


def test_two_workers_come_to_the_verdict_of_one(paper: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["run", "F17", "--device", "cpu", "--cache", str(tmp_path / "one"), "--out", str(tmp_path / "of-one")])
        == COMPLETE
    )
    assert (
        main(
            [
                "run",
                "F17",
                "--device",
                "cpu",
                "--cache",
                str(tmp_path / "two"),
                "--out",
                str(tmp_path / "of-two"),
                "--workers",
                "2",
            ]
        )
        == COMPLETE
    )
    printed = capfd.readouterr().out
    assert verdicts(tmp_path / "of-two") == verdicts(tmp_path / "of-one")
    assert verdicts(tmp_path / "of-two")[0]["verdict"] == "pass"
    assert "0 trainings made beside those of workers" in printed
    made = finished(tmp_path / "two")
    assert len(made) == TRAININGS
    assert all((folder / "run" / "metrics.jsonl").read_text().count('"event": "finished"') == 1 for folder in made), (
        "each is trained once"
    )
    assert len(list((tmp_path / "two").glob("*/predictions-*.npz"))) == TRAININGS


def test_after_the_deadline_workers_begin_nothing(
    paper: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["F17", "--device", "cpu", "--cache", str(tmp_path / "cache"), "--max-minutes", "0"]
    assert main(["run", *options, "--out", str(tmp_path / "out"), "--workers", "2", "--threads", "2"]) == MISSING
    printed = capfd.readouterr().out
    assert (
        f"missing: F17: out of time before training 'sees' with seed 0; {TRAININGS} of {TRAININGS} trainings to do"
        in printed
    )
    assert printed.count("  out of time before") == 2, "of two workers"
    assert not (tmp_path / "cache").exists()
    assert main(["train", *options]) == MISSING


def test_workers_get_the_options_and_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []

    class Started:
        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            started.append((command, env))

        def poll(self) -> int:
            return 0

        terminate = wait = poll

    monkeypatch.setattr(subprocess, "Popen", Started)
    options = {"--paper": None, "--device": "cuda", "--max-minutes": 3.0}
    with workers.at_work(3, 2, options, ["A6", "A8"]) as crew:
        assert not crew.is_at_work
    assert [command for command, _ in started] == [
        [sys.executable, "-m", "benchmarks.claims", "train", "A6", "A8", "--device=cuda", "--max-minutes=3.0"]
    ] * 3
    assert {env[name] for _, env in started for name in workers.THREAD_VARIABLES} == {"2"}


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], 0),
        (["--workers", "1"], 0),
        (["--workers", "3"], 3),
        (["--threads", "2"], 1),
        (["--workers", "1", "--threads", "1"], 1),
    ],
)
def test_one_process_does_everything_itself(options: list[str], count: int) -> None:
    assert workers_of(parser().parse_args(["run", *options])) == count


@pytest.mark.parametrize("options", [["--workers", "0"], ["--workers", "2", "--threads", "0"]])
def test_numbers_that_mean_nothing_are_refused(
    paper: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "F17", "--device", "cpu", *options]) == WRONG
    assert "hint:" in capsys.readouterr().err


# ---- one training, two processes ----


def taken(folder: Path) -> int:
    """The lock of a run folder, as another process has it that trains there."""
    (folder / "run").mkdir(parents=True)
    lock = os.open(folder / "run" / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_what_another_process_trains_is_left_to_it_or_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Workshop(tmp_path, device="cpu")
    lock = taken(shop.folder(SEES, WORLD, 0))
    with pytest.raises(RunTaken):
        shop.trained(SEES, WORLD, 0, wait=False)
    waits: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr("time.sleep", waits.append)
        patch.setattr(shop, "check_time", lambda what: over(what) if waits else None)
        with pytest.raises(OutOfTime):
            shop.trained(SEES, WORLD, 0)
    assert waits, "it waits, but not beyond the deadline"
    only = replace(READS, variants={"sees": SEES, "blind": BLIND}, controls=())
    assert workers.train_all([only], shop, 1, 0) == 0
    assert not shop.is_trained(SEES, WORLD, 0), "a worker goes on to the next"
    assert shop.is_trained(BLIND, WORLD, 0)
    threading.Timer(0.3, os.close, [lock]).start()  # as the kernel does when the other process dies
    shop.trained(SEES, WORLD, 0)
    assert shop.is_trained(SEES, WORLD, 0)


def over(what: str) -> None:
    raise OutOfTime(what)


def test_a_worker_finds_what_another_died_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop(tmp_path, device="cpu")
    lock = taken(shop.folder(SEES, WORLD, 0))
    train = pipeline.train

    def the_other_dies_meanwhile(*arguments: Any, **options: Any) -> Any:
        done = train(*arguments, **options)
        if not released:
            os.close(lock)
            released.append(True)
        return done

    released: list[bool] = []
    monkeypatch.setattr(pipeline, "train", the_other_dies_meanwhile)
    workers.train_all([replace(READS, controls=())], shop, 1, 0)
    assert shop.is_trained(SEES, WORLD, 0)


def test_a_training_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    shop, train = Workshop(tmp_path, device="cpu", say=said.append), pipeline.train

    def not_with_seed_0(*arguments: Any, seed: int, **options: Any) -> Any:
        if seed == 0:
            raise ZeroDivisionError("planted")
        return train(*arguments, seed=seed, **options)

    monkeypatch.setattr(pipeline, "train", not_with_seed_0)
    assert workers.train_all([replace(READS, controls=())], shop, 2, 0) == 2
    assert len(finished(tmp_path)) == 2
    assert sum("failed: 'sees' of F17 with seed 0" in line and "planted" in line for line in said) == 1, (
        "and is not tried again"
    )


def test_trainings_of_probes_are_made_beforehand(tmp_path: Path) -> None:
    measured = Probe("P", lambda workshop: (Estimate(1.0, 1.0, 1.0), {}), 0.0, needs=((SEES, WORLD, 7),))
    probing = replace(READS, variants={}, data=None, all_of=(measured,), controls=())
    shop = Workshop(tmp_path, device="cpu")
    workers.train_all([probing], shop, None, 0)
    assert [json.loads((path / "identity.json").read_text())["seed"] for path in finished(tmp_path)] == [7]
    assert workers.in_order([("a", probing), ("b", READS)]) == [("b", READS), ("a", probing)], (
        "probes may measure time: they come when workers have ended"
    )
    assert runner.has_probes(probing)


@pytest.mark.parametrize(("of", "waited"), [("finished", False), ("missing", True), ("probe", True)])
def test_a_claim_is_judged_when_its_trainings_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str, waited: bool
) -> None:
    class Process:
        polls = 0

        def poll(self) -> int | None:
            self.polls += 1
            return 0 if self.polls > 3 else None

    process: Any = Process()  # a process as far as it is looked at
    shop, waits = Workshop(tmp_path, device="cpu"), list[float]()
    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr(Workshop, "is_finished", staticmethod(lambda folder: of != "missing"))
    claim = (
        replace(READS, all_of=(Probe("P", lambda workshop: (Estimate(1.0, 1.0, 1.0), {}), 0.0),))
        if of == "probe"
        else READS
    )
    workers.Crew([process]).wait_for(claim, shop, range(3))
    assert bool(waits) == waited
    assert process.polls == (4 if waited else 1), "it waits until workers have ended"
