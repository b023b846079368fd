"""A run resumes what it began, refuses what it did not begin, and is never left half-written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from longtail.errors import RunError
from longtail.persistence import StringTable, load_part, write_json
from longtail.training.progress import PlainDisplay
from longtail.training.run import Run, StageCheckpoint, peak_memory_so_far, readable_bytes

IDENTITY = {"recipe": "x", "config": {"a": 1}, "seed": 0}


def words(*strings: str) -> StringTable:
    return StringTable.of(strings)


def test_what_goes_wrong_in_a_stage_is_not_said_of_its_folder(tmp_path: Path) -> None:
    """The memory that processes share is full, say, and the disk is not."""

    def fail() -> StringTable:
        raise OSError(errno.ENOSPC, "No space left on device", "/dev/shm/torch_1")

    with Run.open(tmp_path / "r", IDENTITY) as run, pytest.raises(OSError, match="/dev/shm/torch_1"):
        run.stage("1_first", fail)


def test_a_finished_stage_is_loaded_not_made_again(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> StringTable:
        made.append(1)
        return words("a")

    for _ in range(2):
        with Run.open(tmp_path / "r", IDENTITY) as run:
            assert list(run.stage("1_first", make)) == ["a"]
    assert len(made) == 1


def test_a_stage_may_have_nothing_to_say(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        assert run.stage("1_none", lambda: None) is None
        assert run.stage("1_none", lambda: None) is None


def test_a_stage_that_fails_leaves_no_result(tmp_path: Path) -> None:
    def fail() -> StringTable:
        raise ValueError("broken")

    with Run.open(tmp_path / "r", IDENTITY) as run:
        with pytest.raises(ValueError, match="broken"):
            run.stage("1_first", fail)
        assert list(run.stage("1_first", lambda: words("b"))) == ["b"]


def test_what_is_left_for_analyses_can_be_left_again(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        for text in ("a", "b"):
            run.leave("labels", words(text))
            assert list(load_part(run.folder / "analysis" / "labels")) == [text]
        assert [path.name for path in (run.folder / "analysis").iterdir()] == ["labels"]


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    Run.open(tmp_path / "r", IDENTITY).close()
    with pytest.raises(RunError, match=r"config\.a: 1 -> 2") as caught:
        Run.open(tmp_path / "r", {**IDENTITY, "config": {"a": 2}})
    assert "--restart" in caught.value.hint


def test_restart_begins_anew(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
    with Run.open(tmp_path / "r", {**IDENTITY, "seed": 1}, restart=True) as run:
        assert list(run.stage("1_first", lambda: words("b"))) == ["b"]


def test_a_foreign_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    for restart in (False, True):
        with pytest.raises(RunError, match="not a run of longtail"):
            Run.open(tmp_path, IDENTITY, restart=restart)
    assert (tmp_path / "thesis.txt").read_text() == "precious"
    with pytest.raises(RunError, match="is a file"):
        Run.open(tmp_path / "thesis.txt", IDENTITY)


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    Run.open(tmp_path, IDENTITY).close()
    assert (tmp_path / "run.json").exists()


def test_two_processes_cannot_share_a_run(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY):
        code = (
            "from pathlib import Path; from longtail.training.run import Run; "
            f"Run.open(Path({str(tmp_path / 'r')!r}), {IDENTITY!r})"
        )
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another process is training here" in other.stderr
    Run.open(tmp_path / "r", IDENTITY).close()


def test_a_file_system_without_locks_is_no_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(RunError, match="No locks available"):
        Run.open(tmp_path / "r", IDENTITY)


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
    script = (
        "import os, signal, sys; from pathlib import Path; from longtail.writing import written_aside\n"
        "with written_aside(Path(sys.argv[1])) as aside:\n"
        "    aside.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    for name in ("stages/2_second", "config.toml"):
        subprocess.run([sys.executable, "-c", script, str(tmp_path / "r" / name)], check=False)
    theirs = [tmp_path / "r" / ".notes.tmp", tmp_path / "r" / "stages" / ".1_first.123.old"]
    for path in theirs:
        path.write_text("of another program")
    assert len(list((tmp_path / "r").rglob(".*.tmp"))) == 3
    Run.open(tmp_path / "r", IDENTITY).close()
    assert list((tmp_path / "r").rglob(".*.tmp")) == theirs[:1]
    assert theirs[1].exists()


# ---- only what a run wrote is removed ----


@pytest.mark.parametrize("names", [[".lock"], ["run.json"], [".lock", "run.json"]])
@pytest.mark.parametrize("restart", [True, False])
def test_a_lock_or_a_file_of_that_name_does_not_make_a_folder_a_run(
    names: list[str], restart: bool, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).write_text('{"scripts": {"start": "of another program"}}')
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(RunError, match="not a run of longtail"):
        Run.open(tmp_path, IDENTITY, restart=restart)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "thesis.txt"])


@pytest.mark.parametrize("more", ['{"path": "p1.txt"}', '{"path": "p1.txt", "size": 9}', '{"path": "run.json"}', ""])
@pytest.mark.parametrize("restart", [True, False])
def test_a_list_of_other_files_does_not_make_a_folder_a_run(more: str, restart: bool, tmp_path: Path) -> None:
    (tmp_path / "files.jsonl").write_text(more + "\n")
    (tmp_path / "p1.txt").write_text("precious")
    with pytest.raises(RunError, match="not a run of longtail"):
        Run.open(tmp_path, IDENTITY, restart=restart)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files.jsonl", "p1.txt"]


@pytest.mark.parametrize("restart", [True, False])
def test_a_list_beside_values_of_a_run_does_not_make_all_that_it_names_a_run(restart: bool, tmp_path: Path) -> None:
    (tmp_path / "files.jsonl").write_text('{"path": "run.json"}\n{"path": "p1.txt"}\n')
    (tmp_path / "run.json").write_text('{"recipe": "soup"}')
    (tmp_path / "p1.txt").write_text("precious")
    with pytest.raises(RunError):
        Run.open(tmp_path, IDENTITY, restart=restart)
    assert (tmp_path / "p1.txt").exists()


def test_folders_of_processes_of_others_are_left_alone(tmp_path: Path) -> None:
    """What a killed training of several processes leaves are files that are numbers."""
    for name in ("r", "elsewhere"):
        (tmp_path / name / ".processes").mkdir(parents=True)
    ours = [tmp_path / name / ".processes" / "1" for name in ("r", "elsewhere")]
    theirs = tmp_path / "r" / ".processes" / "notes.txt"
    for file in (*ours, theirs):
        file.write_text("precious")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / ".processes").symlink_to(tmp_path / "elsewhere" / ".processes")
    for name in ("r", "linked"):
        Run.open(tmp_path / name, IDENTITY).close()
    assert [file.exists() for file in (*ours, theirs)] == [False, True, True]


def test_what_systems_leave_in_folders_of_a_run_is_not_in_the_way_of_another(tmp_path: Path) -> None:
    for text in ("a", "b"):
        with Run.open(tmp_path / "r", {**IDENTITY, "seed": text}, restart=True) as run:
            assert list(run.stage("1_first", partial(words, text))) == [text]
        (tmp_path / "r" / "stages" / "1_first" / ".DS_Store").write_text("litter")


def test_a_new_run_folder_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    Run.open(tmp_path / "deep" / "r", IDENTITY).close()
    assert synced[:2] == [str(tmp_path), str(tmp_path / "deep")]


def test_a_run_inside_a_run_is_known_by_its_list(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        inside = run.writes("trials/1", holds="run")
    inside.mkdir(parents=True)
    (inside / "files.jsonl").write_text('{"path": "p1.txt"}\n')
    (inside / "p1.txt").write_text("precious")
    with pytest.raises(RunError, match="was not written by the run"):
        Run.open(tmp_path / "r", IDENTITY, restart=True)
    assert (inside / "p1.txt").exists()


def test_a_run_that_was_locked_and_killed_is_begun(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    with Run.open(tmp_path, IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))


@pytest.mark.parametrize("place", ["notes.txt", "stages/notes.txt", "stages/1_first/notes.txt", "mine/.hidden.tmp"])
def test_restart_refuses_a_folder_with_anything_else(place: str, tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
        run.log("something")
    (tmp_path / "r" / place).parent.mkdir(exist_ok=True)
    (tmp_path / "r" / place).write_text("precious")
    before = sorted((tmp_path / "r").rglob("*"))
    with pytest.raises(RunError, match="was not written by the run") as caught:
        Run.open(tmp_path / "r", {**IDENTITY, "seed": 1}, restart=True)
    assert str(tmp_path / "r" / place) in caught.value.message
    assert sorted((tmp_path / "r").rglob("*")) == before
    (tmp_path / "r" / place).unlink()
    with Run.open(tmp_path / "r", {**IDENTITY, "seed": 1}, restart=True):
        assert sorted(path.name for path in (tmp_path / "r").iterdir() if path.name != "mine") == [
            ".lock",
            "files.jsonl",
            "run.json",
        ]


@pytest.mark.parametrize("call", ["unlink", "rmdir"])
def test_a_restart_that_was_killed_can_be_given_again(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists are removed after what they name: of a bundle, and of a run inside a run."""
    with Run.open(tmp_path / "whole", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
        with Run.open(run.writes("trials/1", holds="run"), IDENTITY) as inner:
            inner.stage("1_first", lambda: words("a"))
        for folder in (run.writes("bundle", holds="bundle"), inner.folder / "bundle"):
            (folder / "labels").mkdir(parents=True)
            (folder / "labels" / "part.json").touch()
            write_json(folder / "manifest.json", {"files": {"labels/part.json": {}}})
        inner.writes("bundle", holds="bundle")
    left, plain = 0, getattr(Path, call)

    def killed_in_time(path: Path, **more: bool) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        plain(path, **more)

    for number in range(100):
        folder, left = tmp_path / str(number), number
        shutil.copytree(tmp_path / "whole", folder)
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(Path, call, killed_in_time)
            Run.open(folder, IDENTITY, restart=True).close()
            break
        Run.open(folder, IDENTITY, restart=True).close()
        assert sorted(path.name for path in folder.iterdir()) == [".lock", "files.jsonl", "run.json"]
    assert number > 5


def test_what_a_killed_calibration_left_in_the_bundle_is_the_runs_own(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        bundle = run.writes("bundle", holds="bundle")
    (bundle / "calibration-0123456789ab").mkdir(parents=True)
    (bundle / "calibration-0123456789ab" / "part.json").touch()
    write_json(bundle / "manifest.json", {"files": {}})
    Run.open(tmp_path / "r", IDENTITY, restart=True).close()
    assert not bundle.exists()


def test_empty_folders_of_others_stay(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
    mine = tmp_path / "r" / "mine" / "for later"
    mine.mkdir(parents=True)
    Run.open(tmp_path / "r", IDENTITY, restart=True).close()
    assert mine.exists()


def test_an_empty_folder_in_a_stage_is_refused_before_anything_is_removed(tmp_path: Path) -> None:
    """The next stage of that name could not take its place."""
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
    (tmp_path / "r" / "stages" / "1_first" / "mine").mkdir()
    with pytest.raises(RunError, match="mine: was not written by the run"):
        Run.open(tmp_path / "r", IDENTITY, restart=True)
    assert (tmp_path / "r" / "stages" / "1_first" / "part.json").exists()


def test_restart_follows_no_link(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
    (tmp_path / "r" / "stages").rename(tmp_path / "elsewhere")
    (tmp_path / "r" / "stages").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="was not written by the run"):
        Run.open(tmp_path / "r", IDENTITY, restart=True)
    assert (tmp_path / "elsewhere" / "1_first" / "part.json").exists()


@pytest.mark.parametrize(
    "line", ['{"path": "../../precious"}', '{"path": "/etc"}', "[1]", '{"path": 3}', '{"path": "p", "size": 1}', "x"]
)
def test_a_list_that_was_altered_is_refused(line: str, tmp_path: Path) -> None:
    Run.open(tmp_path / "r", IDENTITY).close()
    (tmp_path / "precious").write_text("")
    with (tmp_path / "r" / "files.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RunError, match=r"files\.jsonl, line 4"):
        Run.open(tmp_path / "r", IDENTITY, restart=True)
    assert (tmp_path / "precious").exists()


def test_a_list_whose_last_line_was_cut_goes_on(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
    with (tmp_path / "r" / "files.jsonl").open("a") as file:
        file.write('{"path": "stages/2_sec')
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("never"))
        run.stage("2_second", lambda: words("b"))
    with Run.open(tmp_path / "r", IDENTITY) as run:
        assert list(run.stage("2_second", lambda: words("never"))) == ["b"]


def test_a_run_without_its_values_is_not_mixed_with_another(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
    (tmp_path / "r" / "run.json").unlink()
    with pytest.raises(RunError, match=r"beside 'metrics\.jsonl' of an earlier run") as caught:
        Run.open(tmp_path / "r", {**IDENTITY, "seed": 1})
    assert "--restart" in caught.value.hint
    Run.open(tmp_path / "r", {**IDENTITY, "seed": 1}, restart=True).close()


@pytest.mark.parametrize("content", ["[1]", "3", '"x"', "null", "[" * 100_000, "{"])
def test_values_of_another_shape_are_an_error(content: str, tmp_path: Path) -> None:
    Run.open(tmp_path / "r", IDENTITY).close()
    (tmp_path / "r" / "run.json").write_text(content)
    with pytest.raises(RunError, match=r"run\.json"):
        Run.open(tmp_path / "r", IDENTITY)


# ---- finished stages are what they were ----


def flipped(path: Path, place: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["arrays.safetensors", "part.json"])
def test_a_flipped_bit_in_a_finished_stage_is_found(name: str, tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("abc"))
    flipped(tmp_path / "r" / "stages" / "1_first" / name)
    with Run.open(tmp_path / "r", IDENTITY) as run, pytest.raises(RunError, match="checksum differs") as caught:
        run.stage("1_first", lambda: words("never"))
    assert f"1_first/{name}" in caught.value.message
    assert "--restart" in caught.value.hint


def test_stages_that_lack_a_file_or_have_one_more_are_refused(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("abc"))
    stage = tmp_path / "r" / "stages" / "1_first"
    (stage / "more").write_text("")
    with Run.open(tmp_path / "r", IDENTITY) as run, pytest.raises(RunError, match="did not write"):
        run.stage("1_first", lambda: words("never"))
    (stage / "more").unlink()
    (stage / "arrays.safetensors").unlink()
    with Run.open(tmp_path / "r", IDENTITY) as run, pytest.raises(RunError, match="is missing"):
        run.stage("1_first", lambda: words("never"))
    (tmp_path / "r" / "stages" / "2_second").mkdir()
    with Run.open(tmp_path / "r", IDENTITY) as run, pytest.raises(RunError, match="does not say that it wrote"):
        run.stage("2_second", lambda: words("never"))


def test_members_of_an_ensemble_are_checked_as_well(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.member(1).stage("1_first", lambda: words("abc"))
    with Run.open(tmp_path / "r", IDENTITY) as run:
        assert list(run.member(1).stage("1_first", lambda: words("never"))) == ["abc"]
    flipped(tmp_path / "r" / "members" / "1" / "stages" / "1_first" / "arrays.safetensors")
    with Run.open(tmp_path / "r", IDENTITY) as run, pytest.raises(RunError, match="checksum differs"):
        run.member(1).stage("1_first", lambda: words("never"))


def test_a_flipped_bit_in_a_checkpoint_is_found(tmp_path: Path) -> None:
    checkpoint = StageCheckpoint(tmp_path / "fit")
    checkpoint.save(3, {"numbers": np.arange(10.0)})
    assert (checkpoint.load() or (0, {}))[0] == 3
    flipped(checkpoint.file)
    with pytest.raises(RunError, match="checksum differs"):
        checkpoint.load()


def test_checkpoints_survive_and_vanish_with_the_stage(tmp_path: Path) -> None:
    def interrupted() -> StringTable:
        with Run.open(tmp_path / "r", IDENTITY) as run:
            return run.stage("1_long", lambda: work(run, fail_at=2))

    def work(run: Run, fail_at: int) -> StringTable:
        checkpoint = run.checkpoint()
        done, arrays = checkpoint.load() or (0, {"sum": np.zeros(1)})
        total = np.array(arrays["sum"])
        for epoch in range(done, 4):
            if epoch == fail_at:
                raise KeyboardInterrupt
            total += run.rng("noise", epoch).random(1)
            checkpoint.save(epoch + 1, {"sum": total})
        return words(repr(total[0]))

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with Run.open(tmp_path / "r", IDENTITY) as run:
        resumed = list(run.stage("1_long", lambda: work(run, fail_at=-1)))
        assert not (tmp_path / "r" / "work" / "1_long").exists()
    with Run.open(tmp_path / "s", IDENTITY) as run:
        assert list(run.stage("1_long", lambda: work(run, fail_at=-1))) == resumed


def test_checkpoints_of_a_stage_that_was_finished_before_a_kill_vanish(tmp_path: Path) -> None:
    """The stage has its name before they are removed."""
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_long", lambda: words("a"))
        left = StageCheckpoint(tmp_path / "r" / "work" / "1_long" / "fit")
        run.files.add(left.file)
        left.save(1, {"x": np.zeros(1)})
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_long", lambda: words("never"))
        assert not (tmp_path / "r" / "work" / "1_long").exists()


def test_a_stage_may_have_stages_inside(tmp_path: Path) -> None:
    """The inner one is saved for itself; the outer one, interrupted, finds it and its own checkpoints again."""
    made: list[str] = []

    def inner(run: Run) -> StringTable:
        made.append("inner")
        run.checkpoint().save(1, {"x": np.zeros(1)})
        return words("b")

    def outer(run: Run, fails: bool) -> StringTable:
        found = run.stage("1_inner", lambda: inner(run))
        checkpoint = run.checkpoint()
        if fails:
            checkpoint.save(1, {"x": np.ones(1)})
            raise RuntimeError("killed")
        saved = checkpoint.load()
        assert saved is not None
        assert saved[1]["x"][0] == 1, "its own, not the inner one's"
        return found

    with Run.open(tmp_path / "r", IDENTITY) as run, pytest.raises(RuntimeError, match="killed"):
        run.stage("1_outer", lambda: outer(run, fails=True))
    with Run.open(tmp_path / "r", IDENTITY) as run:
        assert list(run.stage("1_outer", lambda: outer(run, fails=False))) == ["b"]
    assert made == ["inner"]
    assert {path.name for path in (tmp_path / "r" / "stages").iterdir()} == {"1_inner", "1_outer"}


def test_a_checkpoint_outside_a_stage_is_a_bug(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run, pytest.raises(AssertionError):
        run.checkpoint()


def test_generators_are_named_and_reproducible(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY, seed=5) as run:
        first = run.rng("shuffle", 0).random(3)
        np.testing.assert_array_equal(run.rng("shuffle", 0).random(3), first)
        assert not np.array_equal(run.rng("shuffle", 1).random(3), first)
        assert not np.array_equal(run.rng("dropout", 0).random(3), first)
        # Pinned: another machine or version must shuffle alike, or resumed runs differ.
        assert run.seed_for("shuffle", 0) == Run(Path(), seed=5, device="cpu", display=PlainDisplay()).seed_for(
            "shuffle", 0
        )
    with Run.open(tmp_path / "s", IDENTITY, seed=6) as run:
        assert not np.array_equal(run.rng("shuffle", 0).random(3), first)


def test_events_are_logged_as_json_lines(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.stage("1_first", lambda: words("a"))
        run.log("note", loss=0.5)
    lines = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["stage", "note"]
    assert lines[0]["name"] == "1_first"
    assert lines[1]["loss"] == 0.5


def test_memory_is_checked_before_long_work(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        run.check_memory(1000, "training")
        with pytest.raises(RunError, match=r"needs about 1000\.0 TB"):
            run.check_memory(10**15, "training")


def test_device_cuda_without_a_gpu_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with (
        Run.open(tmp_path / "r", IDENTITY, device="cuda") as run,
        pytest.raises(Exception, match="sees no CUDA device"),
    ):
        _ = run.device
    with Run.open(tmp_path / "s", IDENTITY, device="auto") as run:
        assert run.device == "cpu"


def test_bytes_are_readable() -> None:
    assert [readable_bytes(n) for n in (12, 34_000, 5_600_000, 7.8e9, 9.1e12)] == [
        "12 B",
        "34 kB",
        "5.6 MB",
        "7.8 GB",
        "9.1 TB",
    ]


def test_a_run_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        Run.open(tmp_path / "file" / "run", IDENTITY)


def test_members_have_seeds_and_stages_of_their_own(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", IDENTITY) as run:
        first, second = run.member(0), run.member(1)
        assert len({run.seed, first.seed, second.seed}) == 3
        assert first.seed == run.member(0).seed
        first.stage("1_first", lambda: words("a"))
        assert list(second.stage("1_first", lambda: words("b"))) == ["b"]
        assert list(first.stage("1_first", lambda: words("c"))) == ["a"]


def test_saving_takes_a_tenth_of_the_time_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("longtail.training.run.time.monotonic", lambda: now)
    monkeypatch.setattr("longtail.training.run.write_arrays", lambda path, arrays: slow_write(path))
    checkpoint = StageCheckpoint(tmp_path)

    def slow_write(path: Path) -> None:
        nonlocal now
        now += 5.0
        path.write_bytes(b"")

    size = int(StageCheckpoint.FIRST_GUESS)  # a second, as far as is known
    arrays = {"a": np.zeros(size // 8)}
    now = 9.0
    assert not checkpoint.due(size)
    now = 10.0
    assert checkpoint.due(size)
    checkpoint.save(1, arrays)  # it takes 5 seconds
    now = 99.0
    assert not checkpoint.due(size)  # two saves of 5 seconds are more than a tenth
    assert checkpoint.due(size // 2)
    now = 101.0
    assert checkpoint.due(size)


def test_the_peak_of_memory_is_known() -> None:
    held = np.ones(2**24)  # 128 MB
    assert peak_memory_so_far() >= held.nbytes


def test_a_resumed_run_says_from_where(tmp_path: Path) -> None:
    class Killed(BaseException):
        """Like a kill: nothing catches it."""

    def fail() -> StringTable:
        run.checkpoint().save(2, {})
        raise Killed

    def staged(last: Callable[[], StringTable]) -> None:
        run.stage("0_prepare", lambda: words("a"))
        run.stage("1_surrogate", lambda: None)
        run.member(1).stage("4_classify", lambda: words("b"))
        run.stage("5_last", last)
        run.stage("6_after", lambda: None)

    said = io.StringIO()
    for last in (fail, fail, lambda: words("c")):
        with (
            contextlib.suppress(Killed),
            Run.open(tmp_path / "r", IDENTITY, display=PlainDisplay(said)) as run,
        ):
            staged(last)
    resumed = "going on from stage 5_last; done before: 0_prepare, 1_surrogate, 4_classify of model 2"
    assert said.getvalue().splitlines() == [
        "stage 0_prepare",
        "stage 1_surrogate",
        "stage 4_classify of model 2",
        "stage 5_last",
        resumed,
        resumed,
        "stage 6_after",
    ]


def test_a_stage_that_was_begun_and_has_a_checkpoint_goes_on(tmp_path: Path) -> None:
    said = io.StringIO()
    with Run.open(tmp_path / "r", IDENTITY, display=PlainDisplay(said)) as run:
        (run.folder / "work" / "4_classify").mkdir(parents=True)
        run.stage("4_classify", lambda: None)
    assert said.getvalue() == "going on from stage 4_classify\n"


def test_digests_are_cut_where_settings_differ(tmp_path: Path) -> None:
    Run.open(tmp_path / "r", {"data": {"digest": "0123456789abcdef" * 4}}).close()
    with pytest.raises(RunError) as problem:
        Run.open(tmp_path / "r", {"data": {"digest": "fedcba9876543210" * 4}})
    assert "(data.digest: '01234567...' -> 'fedcba98...')" in problem.value.message
