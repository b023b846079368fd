"""Several processes train one model: what they make, and what happens when one of them is lost, fails or disagrees."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.scale import Training

from longtail.bundle import open_bundle
from longtail.cli import main
from longtail.errors import ConfigError, RunError, RunTaken
from longtail.persistence import load_part
from longtail.pipeline import check_processes
from longtail.recipes import make_recipe
from longtail.training import adapted_batch
from longtail.training import launch as launching
from longtail.training.processes import FOLDER, MEETING, Processes, ProcessLost, launched

SMALL = ["--device", "cpu", "--set", "encoder.width=16", "--set", "train.text_every=3", "--set", "train.smoothing=0.3"]


def command(data: Path, run: Path, processes: int, *more: str) -> list[str]:
    several = ["--devices", str(processes)] if processes > 1 else []
    return [sys.executable, "-m", "longtail", "train", str(data), "--out", str(run), *several, *SMALL, *more]


def rows_of(run: Path) -> tuple[Any, Any]:
    """Vectors of labels, and of words."""
    ranker: Any = open_bundle(run / "bundle").ranker
    indexed = getattr(ranker, "rows", ranker)
    return np.asarray(indexed.index.vectors), np.asarray(indexed.encoder.table)


def fit_of(run: Path) -> dict[str, Any]:
    return next(iter(fits_of(run).values()))


@pytest.fixture(scope="module")
def alone(planted_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    assert main(command(planted_folder, run, 1, "--set", "train.epochs=6")[3:]) == 0
    return run


def test_two_processes_make_the_model_of_one(alone: Path, planted_folder: Path, tmp_path: Path) -> None:
    """To rounding, dropout included; what one process began three can finish, and the run looks the same."""
    run = tmp_path / "run"
    done = subprocess.run(
        command(planted_folder, run, 2, "--set", "train.epochs=6"), check=True, capture_output=True, text=True
    )
    assert done.stdout.count("bundle:") == 1, "the first process alone speaks"
    assert not (run / FOLDER).exists()
    for mine, wanted in zip(rows_of(run), rows_of(alone), strict=True):
        assert mine.shape == wanted.shape
        np.testing.assert_allclose(mine, wanted, atol=0.02)
        assert np.abs(mine - wanted).mean() < 1e-3
    np.testing.assert_allclose(fit_of(run)["losses"], fit_of(alone)["losses"], rtol=2e-3)
    assert "sent" not in fit_of(alone)
    assert fit_of(run)["sent"] == predicted_sent(run, epochs=6) | {"rows": fit_of(run)["sent"]["rows"]}
    assert names_in(run) == names_in(alone)


def predicted_sent(run: Path, epochs: int) -> dict[str, int]:
    """By the cost model that docs/scale.md prints."""
    data: Any = load_part(run / "stages" / "0_prepare")
    documents, batch = data.n_documents, adapted_batch(data.n_documents, 512)
    sizes = [min(batch, documents - start) for start in range(0, documents, batch)] * epochs
    words = len(np.unique(data.label_texts.sparse.indices))
    return Training(data.n_labels, 16, batch, processes=2, text_words=words, text_every=3).sent(sizes)


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def wait_for(what: Any, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it never came to this"
        time.sleep(0.02)


@contextlib.contextmanager
def started(words: list[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_the_run_goes_on(
    planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = command(planted_folder, run, 2, "--set", "train.epochs=60")
    with started(words) as process:
        wait_for(lambda: (run / "work" / "4_classify" / "training" / "epoch.safetensors").exists())
        victim = int((run / FOLDER / "1").read_text().split()[0])
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        _, said = process.communicate(timeout=60)
        assert time.monotonic() - killed < 60
    assert process.returncode == 2
    assert "process 1 of 2 was killed, or ended without a word" in said, "by the process that is left"
    assert "process 1 of 2 was killed by SIGKILL; the others were ended" in said, "by whoever started them"
    assert "goes on from the last checkpoint" in said
    assert "Traceback" not in said
    # With another number of processes.
    assert main(command(planted_folder, run, 1, *words[-2:])[3:]) == 0
    assert "training: going on after epoch" in capsys.readouterr().err
    assert (run / "bundle").is_dir()
    assert not (run / FOLDER).exists()


FAILS = """
import sys
from longtail.cli import main
from longtail.training.processes import launched
if launched()[0] == 1:
    {change}
sys.exit(main())
"""
FULL_DISK = """
    import errno
    from pathlib import Path
    from longtail.persistence import no_room_is_an_error
    from longtail.recipes.direct.objective import AllLabels
    def full(*_):
        with no_room_is_an_error(Path("scratch")):
            raise OSError(errno.ENOSPC, "No space left on device")
    AllLabels.final_rows = full
"""
OTHER_DATA = """
    import longtail.pipeline
    longtail.pipeline.training_digest = lambda digest: "0" * 64
"""


@pytest.mark.parametrize(
    ("change", "own", "of_the_other"),
    [
        (FULL_DISK, "scratch: no space left on the disk", "process 1 of 2 failed: scratch: no space left on the disk"),
        (OTHER_DATA, "process 1 of 2 has other data than process 0", "process 1 of 2 has other data than process 0"),
    ],
    ids=["a full disk", "other data"],
)
def test_what_fails_in_one_process_is_said_by_all(
    change: str, own: str, of_the_other: str, planted_folder: Path, tmp_path: Path
) -> None:
    words = command(planted_folder, tmp_path / "run", 1, "--set", "train.epochs=2")[3:]
    shared = {**os.environ, "WORLD_SIZE": "2", MEETING: f"file://{tmp_path}/meeting"}
    code = [sys.executable, "-c", FAILS.format(change=change.strip()), *words]
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(started(code, env=shared | {"RANK": str(rank)})) for rank in range(2)]
        said = [process.communicate(timeout=100)[1] for process in both]
    assert [process.returncode for process in both] == [2, 2]
    assert own in said[1]
    assert of_the_other in said[0]
    assert "Traceback" not in "".join(said)
    assert not (tmp_path / "run" / "bundle").exists()


def test_a_recipe_of_one_process_refuses_several(capsys: pytest.CaptureFixture[str], planted_folder: Path) -> None:
    with pytest.raises(ConfigError, match="'galaxc' trains in one process, and 2 were asked for"):
        check_processes(make_recipe("galaxc"), 2)
    for recipe in ("direct", "astec", "eclare"):
        check_processes(make_recipe(recipe), 2)
    assert main(["train", str(planted_folder), "--out", "nowhere", "--recipe", "galaxc", "--devices", "3"]) == 2
    assert "the recipe 'galaxc' trains in one process, and 3 were asked for" in capsys.readouterr().err
    assert not Path("nowhere").exists()


@pytest.mark.parametrize(
    ("recipe", "setting"),
    [
        ("astec", "classify.learner=dismec"),
        ("astec", "classify.negatives=full"),
        ("eclare", "classify.negatives=full"),
    ],
)
def test_settings_that_need_one_process(recipe: str, setting: str) -> None:
    made = make_recipe(recipe, assignments=[setting])
    with pytest.raises(ConfigError, match=f"'{recipe}' with {setting} trains in one process, and 2 were asked for"):
        check_processes(made, 2)
    check_processes(made, 1)


# ---- stage IV of recipes with shortlists ----

STAGES = {
    "astec": [
        "surrogate.width=16",
        "surrogate.epochs=2",
        "classify.epochs=4",
        "classify.count=6",
        "classify.random=2",
        "reranker.epochs=2",
    ],
    # Dropout of labels is another with several processes.
    "eclare": [
        "surrogate.width=16",
        "surrogate.epochs=2",
        "shortlist.epochs=1",
        "classify.epochs=4",
        "training.dropout=0",
    ],
}


ONE_AFTER_THE_OTHER = """
import json, sys
from longtail.cli import main
sys.exit(max(main(words) for words in json.loads(sys.argv[1])))
"""


def of_recipe(recipe: str, data: Path, folder: Path) -> list[str]:
    settings = [word for setting in STAGES[recipe] for word in ("--set", setting)]
    return ["train", str(data), "--out", str(folder / recipe), "--recipe", recipe, "--device", "cpu", *settings]


@pytest.fixture(scope="module")
def both(planted_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two processes, which train one recipe after the other."""
    folder = tmp_path_factory.mktemp("both")
    words = json.dumps([of_recipe(recipe, planted_folder, folder) for recipe in STAGES])
    shared = {**os.environ, "WORLD_SIZE": "2", MEETING: f"file://{folder}/meeting"}
    code = [sys.executable, "-c", ONE_AFTER_THE_OTHER, words]
    with contextlib.ExitStack() as stack:
        pair = [stack.enter_context(started(code, env=shared | {"RANK": str(rank)})) for rank in range(2)]
        said = [process.communicate(timeout=200)[1] for process in pair]
    assert [process.returncode for process in pair] == [0, 0], said
    return folder


@pytest.mark.parametrize("recipe", STAGES)
def test_stage_four_of_two_processes_is_that_of_one(
    recipe: str, both: Path, planted_folder: Path, tmp_path: Path
) -> None:
    """The stages before it are those of the first process, and so is the re-ranker of Astec; what is saved looks the
    same.
    """
    assert main(of_recipe(recipe, planted_folder, tmp_path)) == 0
    runs = tmp_path / recipe, both / recipe
    alone, together = map(fits_of, runs)
    assert "sent" not in together["surrogate"], "the first process made it by itself"
    assert together["classify"]["sent"]["documents"] > 0
    np.testing.assert_allclose(together["classify"]["losses"], alone["classify"]["losses"], rtol=5e-3)
    rankers: list[Any] = [open_bundle(run / "bundle").ranker for run in runs]
    if recipe == "astec":
        assert "sent" not in together["reranker"], "the first process trained it by itself"
        assert len(together["reranker"]["losses"]) == 2
        rankers = [ranker.base for ranker in rankers]
    mine, wanted = (np.asarray(ranker.classifier.rows) for ranker in rankers)
    np.testing.assert_allclose(mine, wanted, atol=0.02)
    assert np.abs(mine - wanted).mean() < 1e-3
    assert names_in(runs[0]) == names_in(runs[1])


def fits_of(run: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["name"]: line for line in lines if line["event"] == "fit"}


def test_who_started_us() -> None:
    assert launched({}) == (0, 1)
    assert launched({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}) == (1, 4)
    assert launched({"RANK": "1", "WORLD_SIZE": "4"}) == (0, 1), "a batch system may set these for its own purposes"
    with pytest.raises(ConfigError, match="WORLD_SIZE=many"):
        launched({"RANK": "0", "WORLD_SIZE": "many"})


# ---- who is gone, told by locks ----


def member(rank: int, count: int, run: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    """One of several, with nobody else to wait for."""
    made = Processes(rank, count)
    monkeypatch.setattr(made, "wait", lambda: None)
    made.enter(run)
    return made


def test_locks_tell_who_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (member(rank, 3, tmp_path, monkeypatch) for rank in range(3))
    assert first._gone() is None
    with pytest.raises(RunTaken, match="other processes are training here"):
        member(1, 3, tmp_path, monkeypatch)
    third.leave(ProcessLost(1, "", 3))
    assert first._gone() is None, "one that ended because of another is not the cause"
    second.leave(RunError("no room"))
    assert first._gone() == (1, "no room")
    wait_for(lambda: first._lost is not None, 5)
    found = first.explained(RuntimeError("connection closed by peer"))
    assert isinstance(found, ProcessLost)
    assert found.message == "process 1 of 3 failed: no room"
    assert isinstance(first.explained(RunError("own")), RunError), "an error of its own stays what it is"
    first.leave()


def test_whoever_is_done_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (member(rank, 2, tmp_path, monkeypatch) for rank in range(2))
    second.leave()
    assert first._gone() is None
    first.leave()
    assert not (tmp_path / FOLDER).exists()


def test_a_process_that_is_not_told_is_ended(tmp_path: Path) -> None:
    """Where torch waits for a lost process without an end, as it may on GPUs."""
    code = (
        "import sys, time; from pathlib import Path; from longtail.training import processes as p\n"
        "p._SECONDS_TO_END = 0.1; p.Processes.wait = lambda self: None\n"
        "p.Processes(0, 2).enter(Path(sys.argv[1])); print('here', flush=True); time.sleep(60)"
    )
    (tmp_path / FOLDER).mkdir()
    lost = os.open(tmp_path / FOLDER / "1", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lost, fcntl.LOCK_EX)
    with started([sys.executable, "-c", code, str(tmp_path)]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        os.close(lost)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "process 1 of 2 was killed" in said


def test_the_launcher_gives_the_code_of_the_first_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "SECONDS_TO_END", 0.1)
    run = subprocess.Popen

    def stand_in(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        """The first process would wait for ever."""
        return run(
            [sys.executable, "-c", "import time; time.sleep(60)" if env["RANK"] == "0" else "raise SystemExit(7)"]
        )

    monkeypatch.setattr(subprocess, "Popen", stand_in)
    began = time.monotonic()
    assert launching.launch(["train"], 2) == 7
    assert time.monotonic() - began < 30
