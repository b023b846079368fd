"""`longtail predict` on streams and long files: answers come as lines do, in constant memory."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from longtail.cli import main
from longtail.cli.asking import LONG
from longtail.errors import ConfigError
from longtail.predictor import Predictor

WITHOUT_BUFFERS = {**os.environ, "PYTHONUNBUFFERED": ""}


def piped(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_answers_come_before_the_next_line(tiny_run: Path) -> None:
    """And an interrupt is not said to be something that goes on."""
    command = [sys.executable, "-m", "longtail", "predict", str(tiny_run), "-k", "1", "--format", "jsonl"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=WITHOUT_BUFFERS
    ) as process:
        stdin, stdout, stderr = map(_there, (process.stdin, process.stdout, process.stderr))
        for number, animal in enumerate(("owl", "cat")):
            stdin.write(animal + "\n")
            stdin.flush()
            answer = json.loads(stdout.readline())  # waits for ever where the next line is read first
            assert (answer["uid"], answer["labels"]) == (str(number), [f"id-{animal}"])
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert stderr.read().strip() == "interrupted"


def _there(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


MEASURE = """
import io, os, resource, sys
from longtail.cli import main

class Lines(io.RawIOBase):
    def __init__(self, count):
        self.left = count
    def readable(self):
        return True
    def readinto(self, buffer):
        some = min(self.left, 1000)
        self.left -= some
        content = b"".join(b"the owl number %d\\n" % n for n in range(some))
        buffer[: len(content)] = content
        return len(content)

sys.stdout = open(os.devnull, "w")
for count in (30_000, 300_000):
    sys.stdin = io.TextIOWrapper(io.BufferedReader(Lines(count)))
    assert main(["predict", sys.argv[1], "-k", "1", "--format", "csv", "--quiet"]) == 0
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def test_memory_does_not_grow_with_the_input(tiny_run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tiny_run)], capture_output=True, text=True, check=True, env=os.environ
    )
    some, many = (int(line) for line in done.stderr.split())
    assert many - some < 8 * 1024, "kilobytes"


def test_standard_input_is_read_where_nothing_else_is_given(
    tiny_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for more in ([], ["--input", "-"]):
        piped(monkeypatch, b"owl\ncat")
        assert main(["predict", str(tiny_run), "-k", "1", *more]) == 0
        assert [line for line in capsys.readouterr().out.splitlines() if line[:1] != " "] == ["owl", "cat"]
    piped(monkeypatch, b"")
    assert main(["predict", str(tiny_run)]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (b'{"title": "owl"}\n' * 6 + b"no JSON\n" + b'{"title": "owl"}\n', 7),
        (b'"owl"\n\n' * 3 + b'{"title": 5.5}\n{"title": []}\n', 8),
        (b"owl\n" * 5 + b'{"title": "owl"}\nowl\n', 6),
    ],
)
def test_what_comes_before_an_error_is_answered(
    tiny_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lines: bytes,
    line: int,
) -> None:
    piped(monkeypatch, lines)
    assert main(["predict", str(tiny_run), "--format", "jsonl"]) == 2
    shown = capsys.readouterr()
    assert f"standard input, line {line}: " in shown.err
    before = [one for one in lines.split(b"\n")[: line - 1] if one]
    assert [json.loads(one)["uid"] for one in shown.out.splitlines()] == [str(row) for row in range(len(before))]
    piped(monkeypatch, lines)
    assert main(["predict", str(tiny_run), "--output", str(tmp_path / "answers.jsonl")]) == 2
    assert not list(tmp_path.iterdir())


def test_a_broken_table_is_answered_up_to_the_break(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the 1000th row on: the first ones are looked at to find the columns."""
    rows = [[animal, str(n)] for n in range(600) for animal in ("owl", "cat")]
    (tmp_path / "in.csv").write_text("title,n\n" + "".join(",".join(row) + "\n" for row in rows) + "owl\nowl,1\n")
    assert main(["predict", str(tiny_run), "--input", str(tmp_path / "in.csv"), "--format", "csv", "-k", "1"]) == 2
    shown = capsys.readouterr()
    assert "in.csv, line 1202: 1 columns" in shown.err
    found = [row[:3] for row in csv.reader(io.StringIO(shown.out))]
    assert found == [["title", "n", "labels"], *([*row, f"id-{row[0]}"] for row in rows)]


def test_many_blocks_are_one_answer(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the same order, with ids that go on, and none is said to have an id of its own."""
    texts = [f"{animal} number {n}" for n in range(3000) for animal in ("owl", "cat", "dog")]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    for name in ("out.jsonl", "out.txt"):
        more = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / name), "-k", "1"]
        assert main(["predict", str(tiny_run), *more]) == 0
        assert capsys.readouterr().err.splitlines()[-1].startswith("predicting: 9,000 (")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["uid"] for line in lines] == [str(row) for row in range(9000)]
    alone = Predictor.open(tiny_run).predict(texts, 1)
    assert [line["labels"] for line in lines] == [[p.label for p in found] for found in alone]
    assert (tmp_path / "out.txt").read_text().splitlines()[::2] == texts
    (tmp_path / "in.txt").write_text("owl\n" * LONG)
    assert main(["predict", str(tiny_run), "--input", str(tmp_path / "in.txt"), "-k", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_documents_of_small_blocks_are_all_counted(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    title = pyarrow.array(["owl"] * 1200).dictionary_encode()  # has a block for each group of rows
    parquet.write_table(pyarrow.table({"title": title}), tmp_path / "in.parquet", row_group_size=300)
    assert main(["predict", str(tiny_run), "--input", str(tmp_path / "in.parquet"), "-k", "1"]) == 0
    assert capsys.readouterr().err.splitlines()[-1].startswith("predicting: 1,200 (")


def test_a_pipe_with_a_name(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["bash", "-c", f"echo owl > {tmp_path / 'pipe'}"]):
        assert main(["predict", str(tiny_run), "--input", str(tmp_path / "pipe"), "-k", "1"]) == 0
    assert "id-owl" in capsys.readouterr().out
    assert main(["predict", str(tiny_run), "--input", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_a_dash_is_no_file(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["predict", str(tiny_run), "owl", "--output", "-"]) == 2
    assert "standard output is /dev/stdout" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_threshold(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Predictor.open(tiny_run)
    (every,) = model.predict("owl and cat", 5)
    middle = (every[0].score + every[-1].score) / 2
    some = [p for p in every if p.score >= middle]
    assert 0 < len(some) < len(every)
    assert model.predict("owl and cat", 5, threshold=middle) == [some]
    assert model.predict([{"title": "owl and cat"}], 5, threshold=middle) == [some]
    assert model.predict("owl and cat", 5, threshold=every[0].score) == [
        [p for p in every if p.score == every[0].score]
    ]
    assert main(["predict", str(tiny_run), "owl and cat", "--threshold", str(middle), "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == [p.label for p in some]
    assert main(["predict", str(tiny_run), "owl", "--threshold", "99"]) == 0
    assert capsys.readouterr().out == "owl\n  (no label above 99)\n"
    assert main(["predict", str(tiny_run), "owl", "--threshold", "nan"]) == 2
    with pytest.raises(ConfigError, match="the threshold nan, expected a number"):
        model.predict("owl", threshold=float("nan"))


def test_formats_follow_the_name_of_the_output(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, begin in (("a.jsonl", b'{"uid"'), ("a.csv", b"text,labels,"), ("a.npz", b"PK"), ("a.out", b"owl\n ")):
        assert main(["predict", str(tiny_run), "owl", "--output", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(begin)
    assert main(["predict", str(tiny_run), "owl", "--output", str(tmp_path / "plain"), "--format", "npz"]) == 0
    with np.load(tmp_path / "plain") as arrays:
        assert arrays["ids"].tolist() == [b"0"]
    assert (tmp_path / "plain").is_file()
    assert not (tmp_path / "plain.npz").exists()
    assert main(["predict", str(tiny_run), "owl", "--format", "parquet"]) == 2
    assert "parquet needs --output" in capsys.readouterr().err
    assert main(["predict", str(tiny_run), "owl", "--output", str(tmp_path / "a.npz.gz")]) == 2
    assert "npz is compressed in itself" in capsys.readouterr().err
    assert not (tmp_path / "a.npz.gz").exists()
