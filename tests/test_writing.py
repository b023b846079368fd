"""What is written replaces plain files alone, appears complete or not at all, and leaves nothing behind for ever."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import load_npz

from longtail import writing
from longtail.cli import main
from longtail.errors import RunError
from longtail.explanation import Explanation
from longtail.persistence import write_arrays, write_json
from longtail.predictor import Predictor
from longtail.training.file_list import _BEGINNING, NAME, _lines, is_listed
from longtail.training.run import Run
from longtail.writing import (
    LOCK,
    json_writer,
    no_room_is_an_error,
    open_through,
    remove_at_once,
    written_aside,
)

OUTSIDERS = 65534


def write(path: Path, text: str = "new") -> None:
    with written_aside(path) as aside:
        aside.write_text(text)


def answer(run: Path, *options: str) -> int:
    return main(["predict", str(run), "an owl", "a cat", "-k", "1", *options])


# ---- what is not a plain file ----


def device(path: Path, name: str) -> Path:
    """A device of the test's own, as a regression would destroy that of the machine: the null or the full one."""
    if os.getuid() == 0:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, {"null": 3, "full": 7}[name]))
    else:
        path.symlink_to(f"/dev/{name}")
    return path


@pytest.mark.parametrize("options", [["--format", "jsonl"], ["--format", "text"], ["--format", "npz"]])
def test_a_device_is_written_to_and_stays_a_device(options: list[str], tiny_run: Path, tmp_path: Path) -> None:
    null = device(tmp_path / "null", "null")
    assert answer(tiny_run, "--output", str(null), *options) == 0
    write_json(null, {"numbers": 1})
    assert stat.S_ISCHR(null.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["null"]


@pytest.mark.parametrize("format", ["jsonl", "npz"])
def test_a_full_device_is_an_error(
    format: str, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = device(tmp_path / "full", "full")
    assert answer(tiny_run, "--output", str(full), "--format", format) == 2
    assert f"error: {full}: no space left" in capsys.readouterr().err
    assert stat.S_ISCHR(full.stat().st_mode)


@pytest.mark.parametrize("options", [["--format", "jsonl"], ["--format", "npz"]])
def test_a_pipe_with_a_name_is_written_through(options: list[str], tiny_run: Path, tmp_path: Path) -> None:
    pipe, came = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: came.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert answer(tiny_run, "--output", str(pipe), *options) == 0
    reader.join(timeout=10)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    if "jsonl" in options:
        assert [json.loads(line)["labels"] for line in came[0].splitlines()] == [["id-owl"], ["id-cat"]]
    else:
        (tmp_path / "copy.npz").write_bytes(came[0])
        assert load_npz(tmp_path / "copy.npz").nnz == 2


def test_a_pipe_has_each_answer_at_once(tmp_path: Path) -> None:
    """What is written through is not held back until all is there."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = open_through(pipe)
    assert file is not None
    with file:
        file.write(b"first\n")
        file.flush()
        assert os.read(reader, 100) == b"first\n"
    os.close(reader)
    assert open_through(tmp_path / "new") is None


def test_a_link_is_followed_and_stays_a_link(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name, target in (("one.jsonl", "real/one.jsonl"), ("two.jsonl", str(tmp_path / "real" / "two.jsonl"))):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "real" / "one.jsonl").write_text("old")
    assert answer(tiny_run, "--output", str(tmp_path / "one.jsonl")) == 0
    assert answer(tiny_run, "--output", str(tmp_path / "two.jsonl")) == 0, "a link to a file that is not there yet"
    assert all((tmp_path / name).is_symlink() for name in ("one.jsonl", "two.jsonl"))
    assert len((tmp_path / "real" / "one.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "real" / "two.jsonl").read_text().splitlines()) == 2
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(RunError, match="cannot be written"):
        write(tmp_path / "loop")


def test_standard_output_by_its_path_goes_where_the_rest_goes(tmp_path: Path) -> None:
    """Also into a file, where a second opening would write over what is there."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    script = (
        "from longtail.persistence import write_json; from pathlib import Path\n"
        f"print('before'); write_json(Path({str(tmp_path / 'stdout')!r}), [1]); print('after')"
    )
    with (tmp_path / "all.txt").open("w") as file:
        subprocess.run([sys.executable, "-c", script], stdout=file, check=True)
    assert (tmp_path / "all.txt").read_text() == "before\n[\n 1\n]\nafter\n"
    piped = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert piped.stdout == "before\n[\n 1\n]\nafter\n"


# ---- rights ----


def test_a_file_keeps_its_mode(tmp_path: Path, tiny_run: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("old")
    secret.chmod(0o600)
    write_json(secret, {"new": 1})
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert answer(tiny_run, "--output", str(secret), "--format", "jsonl") == 0
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_nobody_can_look_at_what_stands_aside(tmp_path: Path) -> None:
    with written_aside(tmp_path / "secret.json") as aside:
        aside.write_text("new")
        assert stat.S_IMODE(aside.parent.stat().st_mode) == 0o700
        assert aside.name == "secret.json", "programs that look at the suffix see the right one"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("old")
    os.chown(tmp_path / "theirs", OUTSIDERS, OUTSIDERS)
    write(tmp_path / "theirs")
    found = (tmp_path / "theirs").stat()
    assert (found.st_uid, found.st_gid) == (OUTSIDERS, OUTSIDERS)


@pytest.mark.parametrize("problem", [PermissionError(errno.EPERM, "not yours"), OSError(errno.EBUSY, "a mount")])
def test_a_file_that_no_rename_can_replace_is_written_through(
    problem: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise problem

    (tmp_path / "theirs").write_text("old and longer")
    before = (tmp_path / "theirs").stat().st_ino
    monkeypatch.setattr(writing, "_make_alike" if problem.errno == errno.EPERM else "os", _Os(refuse))
    write(tmp_path / "theirs")
    assert (tmp_path / "theirs").read_text() == "new"
    assert (tmp_path / "theirs").stat().st_ino == before
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


class _Os:
    """`os`, whose `replace` is refused; or a function that is."""

    def __init__(self, refuse: Any) -> None:
        self.replace = self.refuse = refuse

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def __call__(self, *arguments: Any) -> Any:
        return self.refuse(*arguments)


def test_a_file_that_is_not_to_be_written_to_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(RunError, match="Permission denied"):
        write(tmp_path / "theirs")
    assert (tmp_path / "theirs").read_text() == "old"


# ---- what the disk refuses ----


def test_a_file_of_npz_is_replaced_when_it_is_complete(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "plain"
    assert answer(tiny_run, "--output", str(out), "--format", "npz") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["plain"], "no .npz was put after the name"
    assert load_npz(out).shape[0] == 2, "and all of it is under the name that was asked for"
    whole = out.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(np, "savez_compressed", full)
    assert answer(tiny_run, "--output", str(out), "--format", "npz") == 2
    assert out.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


def test_a_file_larger_than_allowed_is_an_error(tmp_path: Path) -> None:
    """Also where a library wraps what the system says."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1][1]))
    try:
        with pytest.raises(RunError, match=r"cannot be written \(File too large\)"):
            write_arrays(tmp_path / "a", {"numbers": np.zeros(10_000)})
        with pytest.raises(RunError, match=r"cannot be written \(File too large\)"):
            write(tmp_path / "b", "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[1])
        signal.signal(signal.SIGXFSZ, before[0])


def test_what_counts_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def replaced(source: Path, target: Path) -> None:
        events.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with written_aside(tmp_path / "deep" / "new") as aside:
        (aside / "inner").mkdir(parents=True)
        (aside / "inner" / "file").write_text("")
    assert events == [tmp_path.name, "file", "inner", "new", "rename", "deep"]


# ---- what a killed process leaves ----


def test_a_folder_is_gone_at_once_and_what_is_left_of_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is killed while files are removed leaves the lock that says whose they were; the loss of power, no folder."""
    (tmp_path / "old" / "inner").mkdir(parents=True)
    events: list[str] = []
    remove = shutil.rmtree
    monkeypatch.setattr(os, "fsync", lambda file: events.append(os.readlink(f"/proc/self/fd/{file}")))

    def removed(path: Path, **more: Any) -> None:
        assert not (tmp_path / "old").exists()
        events.append("removed with a lock" if any(tmp_path.rglob(LOCK)) else "removed")
        remove(path, **more)

    monkeypatch.setattr(shutil, "rmtree", removed)
    remove_at_once(tmp_path / "old")
    assert events == [str(tmp_path), "removed with a lock", "removed with a lock"]
    assert not any(tmp_path.iterdir())


def left_by_a_killed_process(target: Path) -> Path:
    script = (
        "import os, signal, sys; from pathlib import Path; from longtail.writing import written_aside\n"
        "with written_aside(Path(sys.argv[1])) as aside:\n"
        "    aside.mkdir(); (aside / 'half').write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    (left,) = (path for path in target.parent.iterdir() if path.name.startswith(f".{target.name}."))
    return left


def test_what_a_killed_process_left_is_removed_when_its_place_is_written_to(tmp_path: Path) -> None:
    left = left_by_a_killed_process(tmp_path / "out")
    other = left_by_a_killed_process(tmp_path / "other")
    foreign = [tmp_path / ".out.1234.tmp", tmp_path / ".out.0123abcd.tmp"]
    foreign[0].write_text("not ours")
    foreign[1].mkdir()
    (foreign[1] / "precious").write_text("no lock of longtail here")
    write(tmp_path / "out")
    assert not left.exists()
    assert other.exists(), "of another place: whoever writes there removes it"
    assert all(path.exists() for path in foreign)


def test_what_was_to_be_written_through_is_removed_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    left = tmp_path / "temporary" / ".null.0123abcd.tmp"
    left.mkdir()
    (left / LOCK).touch()
    (left / "null").touch()
    write(device(tmp_path / "null", "null"))
    assert not any((tmp_path / "temporary").iterdir())


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    with written_aside(tmp_path / "out") as aside:
        aside.write_text("first")
        write(tmp_path / "out", "second")
        assert (tmp_path / "out").read_text() == "second"
    assert (tmp_path / "out").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_was_removed_before_it_was_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that write to one place at once each may take what the other has just begun for a leftover."""
    lock, removed = fcntl.flock, list[Path]()

    def late(file: int, how: int) -> None:
        if not removed:
            removed.extend(tmp_path.iterdir())
            shutil.rmtree(removed[0])
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    write(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "new"


def test_a_folder_that_was_begun_and_never_locked_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".out.0123abcd.tmp").mkdir()
    locked = tmp_path / ".out.0123abce.tmp"
    locked.mkdir()
    with (locked / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [locked.name, "out"]


def test_a_killed_conversion_leaves_nothing_for_ever(planted_folder: Path, tmp_path: Path) -> None:
    left = left_by_a_killed_process(tmp_path / "table")
    assert main(["data", "convert", str(planted_folder), str(tmp_path / "table"), "--format", "csv"]) == 0
    assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize("command", [["pack", "RUN"], ["split", "RUN", "--shards", "2"], ["data", "sample"]])
def test_who_was_killed_when_the_folder_was_there_leaves_nothing_for_ever(
    command: list[str], direct_run: Path, tmp_path: Path
) -> None:
    left = left_by_a_killed_process(tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    words = [str(direct_run) if word == "RUN" else word for word in command]
    assert main([*words, str(tmp_path / "out")]) == 2
    assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# ---- bundles ----


@pytest.mark.parametrize(
    "command",
    [
        ["pack", "RUN", "RUN/bundle/x"],
        ["predict", "RUN", "owl", "--output", "RUN/bundle/x"],
        ["data", "stats", "DATA", "--json", "RUN/bundle/ranker/x.json"],
        ["data", "sample", "RUN/bundle/x"],
        ["data", "convert", "DATA", "RUN/bundle/x"],
        ["train", "DATA", "--recipe", "tiny", "--out", "RUN/bundle/x"],
        ["card", "RUN", "--out", "RUN/bundle/x"],
        ["predict", "RUN", "owl", "--output", "RUN/bundle/config.toml"],
        ["serve", "RUN", "--port", "0", "--corrections", "RUN/bundle/c.jsonl"],
    ],
)
def test_nothing_is_written_into_a_bundle(
    command: list[str], tiny_run: Path, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    before = sorted((run / "bundle").rglob("*"))
    words = [word.replace("RUN", str(run)).replace("DATA", str(planted_folder)) for word in command]
    assert main(words) == 2
    assert "inside the bundle" in capsys.readouterr().err
    assert sorted((run / "bundle").rglob("*")) == before
    Predictor.open(run)


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "RUN", "DATA", "--json", "DATA"],
        ["evaluate", "RUN", "DATA", "--test", "TEST", "--json", "TEST"],
        ["data", "stats", "DATA", "--json", "DATA"],
        ["report", "RUN", "DATA", "--output", "DATA"],
        ["report", "RUN", "DATA", "--output", "new", "--card", "new"],
        ["predict", "RUN", "--input", "DATA", "--output", "DATA"],
        ["predict", "RUN", "owl", "--output", "RUN/run.json"],
        ["predict", "RUN", "owl", "--output", "RUN/files.jsonl"],
        ["evaluate", "RUN", "DATA", "--json", "RUN/stages/STAGE/part.json"],
        ["data", "convert", "DATA", "DATA"],
    ],
)
def test_nothing_is_written_over_what_is_read_or_over_files_of_a_run(
    command: list[str], tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"RUN": tmp_path / "run", "DATA": tmp_path / "data.csv", "TEST": tmp_path / "test.csv"}
    shutil.copytree(tiny_run, names["RUN"])
    for name in ("DATA", "TEST"):
        names[name].write_text("title,labels\nan owl,id-owl\n")
    names["STAGE"] = Path(min(path.name for path in (tiny_run / "stages").iterdir()))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    words = [str(names.get(word, word)) for word in command]
    words = [word.replace("RUN", str(names["RUN"])).replace("STAGE", names["STAGE"].name) for word in words]
    words = [str(tmp_path / word) if word == "new" else word for word in words]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert " is both " in said or "is a file of the run" in said
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_nothing_is_written_into_what_is_written_beside_it(
    direct_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the work is done, not after it."""
    (tmp_path / "link").symlink_to("out")
    out, inside = str(tmp_path / "out"), str(tmp_path / "link" / "numbers.json")
    assert main(["pack", str(direct_run), out, "--json", inside]) == 2
    assert f"{inside}: --json lies in OUT" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_number_that_is_no_open_file_is_named(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(tiny_run, "--output", "/dev/fd/77") == 2
    assert "error: /dev/fd/77: cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["data", "convert", "DATA", "LOOP"],
        ["data", "sample", "LOOP/x"],
        ["train", "DATA", "--recipe", "tiny", "--out", "LOOP"],
        ["predict", "RUN", "owl", "--output", "LOOP"],
        ["pack", "RUN", "LOOP/x"],
    ],
)
def test_a_loop_of_links_is_an_error(
    command: list[str], tiny_run: Path, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    places = {"RUN": tiny_run, "DATA": planted_folder, "LOOP": tmp_path / "loop", "LOOP/x": tmp_path / "loop" / "x"}
    assert main([str(places.get(word, word)) for word in command]) == 2
    assert "Too many levels of symbolic links" in capsys.readouterr().err
    with pytest.raises(RunError, match="symbolic links"):
        Run.open(tmp_path / "loop", {})


def test_errors_name_the_place_and_not_what_stands_aside(tmp_path: Path) -> None:
    aside = tmp_path / ".new.01234567.tmp" / "new"
    with pytest.raises(RunError) as caught, no_room_is_an_error(aside / "part.json"):
        raise OSError(errno.ENOSPC, "full")
    assert str(tmp_path / "new" / "part.json") in caught.value.message
    with pytest.raises(RunError) as caught, no_room_is_an_error(aside / "part.json"):
        raise OSError(errno.EACCES, "not yours")
    assert str(tmp_path / "new" / "part.json") in caught.value.message


@pytest.mark.skipif(not Path("/proc/1").is_dir(), reason="there is no /proc")
def test_where_nothing_can_be_made_is_said_by_its_name() -> None:
    with pytest.raises(RunError, match=r"^/proc/1/x: cannot be written"):
        write(Path("/proc/1/x"))


def test_a_file_beside_those_of_a_run_is_replaced(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    for _ in range(2):
        assert answer(tmp_path / "run", "--output", str(tmp_path / "run" / "answers.txt")) == 0
    assert main(["predict", str(tiny_run), "--output", "/dev/null", "--input", "/dev/null"]) == 0


def test_a_list_of_somebody_else_is_none_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above what is written there may lie a pipe of that name, or a file that we may not read."""
    os.mkfifo(tmp_path / NAME)
    pipe = os.open(tmp_path / NAME, os.O_RDWR)
    os.write(pipe, _lines(_BEGINNING))  # else a reader would wait for ever
    assert not is_listed(tmp_path)
    os.close(pipe)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).write_bytes(_lines(_BEGINNING))
    assert is_listed(tmp_path)

    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "not yours")

    monkeypatch.setattr(Path, "open", refuse)
    assert not is_listed(tmp_path)


def test_what_systems_leave_in_a_folder_does_not_spoil_a_bundle(tiny_run: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_run / "bundle", bundle)
    for name in (".DS_Store", "ranker/.DS_Store", ".nfs00000000071a2b3c00000001"):
        (bundle / name).write_bytes(b"litter")
    assert Predictor.open(bundle).predict("an owl", 1)[0][0].label == "id-owl"


def test_json_is_what_every_reader_can_read(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No NaN and no infinite number, whatever a model says."""
    odd = {"a": [float("nan"), 1.5, {"b": float("-inf")}], "c": (True, 1 << 20_000)}
    assert json_writer()(odd) == '{"a": [null, 1.5, {"b": null}], "c": [true, null]}'
    assert json_writer(",", ":")({"a": [1, 2.5]}) == '{"a":[1,2.5]}'
    deep: Any = float("nan")
    for _ in range(900):
        deep = [deep]
    assert json_writer(",", ":")(deep) == "[" * 100 + "null" + "]" * 100
    share = Explanation.by_share
    monkeypatch.setattr(Explanation, "as_json", lambda self: {"total": float("nan"), "words": len(share(self))})
    assert answer(tiny_run, "--explain", "--output", str(tmp_path / "x.jsonl")) == 0
    assert '"why": [{"total": null, ' in (tmp_path / "x.jsonl").read_text()
