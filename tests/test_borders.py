"""Nothing that a user types or gives is an internal error, loses other answers, or is read as something else."""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

import longtail
from longtail.bundle import MANIFEST, content_digest, digest_of
from longtail.cli import main
from longtail.config import nearest, paths_in
from longtail.data.dataset import Dataset
from longtail.data.inputs import documents_in_blocks
from longtail.data.read import read, write
from longtail.errors import BundleError, ConfigError, LongtailError, RunError
from longtail.predictor import Predictor
from longtail.recipes import make_recipe


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """A command that must end as a user's error; gives what it said."""
    capsys.readouterr()
    assert main([str(word) for word in arguments]) == 2
    said = capsys.readouterr().err
    assert "internal error" not in said
    assert "error: " in said
    assert "hint: " in said
    assert len(said) < 5000
    return said


# ---- settings and numbers ----


@pytest.mark.parametrize(
    "toml",
    [
        "a=" + "[" * 5000 + "]" * 5000,
        "[" + ".".join("a" * 3000) + "]\nx=1",
        "classify.neighbours=" + "9" * 5000,
        "classify.neighbours=" + "9" * 400,
    ],
    ids=["deep", "deep keys", "5000 digits", "400 digits"],
)
def test_settings_that_no_machine_can_hold(
    toml: str, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.toml").write_text(toml)
    train = ("train", planted_folder, "--recipe", "tiny", "--out", tmp_path / "run")
    refused(capsys, *train, "--config", tmp_path / "x.toml")
    if toml.startswith("classify"):
        refused(capsys, *train, "--set", toml)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        "train DATA --recipe tiny --out OUT --seed -1",
        "train DATA --recipe tiny --out OUT --holdout nan",
        "train DATA --recipe tiny --out OUT --holdout inf",
        "tune DATA --recipe tiny --study OUT --share inf --budget 1s",
        "tune DATA --recipe tiny --study OUT --seed -1 --budget 1s",
        "compare RUN RUN DATA --seed -1",
        "data zero-shot DATA OUT --seed -1",
        "data warm-start DATA OUT --seed -1",
        "data synthetic OUT --seed -1",
        "evaluate RUN DATA --threshold nan",
        "evaluate RUN DATA --threshold inf",
        "evaluate RUN DATA --json ",
        "evaluate RUN DATA --json /",
        "predict RUN owl --output ",
        "train DATA --recipe tiny --out ",
    ],
)
def test_numbers_and_names_that_cannot_be(
    command: str, tiny_run: Path, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"DATA": str(planted_folder), "RUN": str(tiny_run), "OUT": str(tmp_path / "out")}
    refused(capsys, *(words.get(word, word) for word in command.split(" ")))
    assert not (tmp_path / "out").exists()


def test_a_seed_below_zero_is_refused_in_python(planted: Dataset) -> None:
    with pytest.raises(ConfigError, match="seed -1"):
        longtail.train(planted, recipe="tiny", seed=-1)


def test_a_hint_does_not_list_all_labels_of_a_large_model() -> None:
    hint = nearest("zzz", [f"label-{n}" for n in range(200_000)])
    assert len(hint) < 5000
    assert "199,900 more" in hint


# ---- files of another shape ----

_HEADERS = {
    "cut": b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4",
    "deep": b"(" * 5000,
    "large": b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999, 4), }",
    "keys": b"{1: 2, 'descr': 3}",
    "objects": b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "bytes": b"\xff\xfe",
}


@pytest.mark.parametrize("how", _HEADERS)
def test_broken_headers_of_arrays(how: str, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = _HEADERS[how]
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(48)
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("data.npy", content)
    for name in ("x.npy", "x.npz"):
        assert name in refused(capsys, "predict", tiny_run, "--input", tmp_path / name)


def test_a_manifest_without_sizes(tiny_run: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_run / "bundle", bundle)
    manifest = json.loads((bundle / MANIFEST).read_text())
    for entry in ({}, None, [1], {"bytes": 3}):
        head = {name: value for name, value in manifest.items() if name != "manifest_sha256"}
        head["files"] = {**manifest["files"], "config.toml": entry}
        (bundle / MANIFEST).write_text(json.dumps({**head, "manifest_sha256": digest_of(head)}))
        with pytest.raises(BundleError, match=r"neither size nor checksum of 'config\.toml'"):
            Predictor.open(bundle)


@pytest.mark.parametrize(
    "line", ['{"title": ' + "[" * 990 + "]" * 990 + "}", "[" * 100_000, '{"title": 1' + "0" * 5000]
)
def test_deep_and_long_json(line: str, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_text(line + "\n")
    refused(capsys, "predict", tiny_run, "--input", tmp_path / "x.jsonl")
    refused(capsys, "train", tmp_path / "x.jsonl", "--recipe", "tiny", "--out", tmp_path / "run")


def test_data_from_a_pipe_is_refused_with_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    said = refused(capsys, "train", tmp_path / "pipe", "--recipe", "tiny", "--out", tmp_path / "run")
    assert "neither a file nor a folder" in said
    (tmp_path / "x.csv").write_text("title,labels\nowl,a\n")
    for option in ("--test", "--label-texts"):
        assert "(a pipe?)" in refused(capsys, "data", "check", tmp_path / "x.csv", option, tmp_path / "pipe")


# ---- text that is no Unicode ----


def answered(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[list[list[str]], str]:
    capsys.readouterr()
    assert main([str(word) for word in arguments] + ["-k", "1", "--format", "jsonl"]) == 0
    shown = capsys.readouterr()
    return [json.loads(line)["labels"] for line in shown.out.splitlines()], shown.err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.txt", b"owl\ncat \xff\nhen\n"),
        ("x.csv", b"title\nowl\ncat \xff\nhen\n"),
        ("x.tsv", b"title\nowl\ncat \xff\nhen\n"),
        ("x.jsonl", b'{"title": "owl"}\n{"title": "cat \xff"}\n{"title": "hen"}\n'),
        ("x.jsonl", b'{"title": "owl"}\n{"title": "cat \\ud800"}\n{"title": "hen"}\n'),
        ("x.jsonl", b'"owl"\n"cat \\udfff"\n"hen"\n'),
    ],
)
def test_one_broken_text_costs_no_other_answer(
    name: str, content: bytes, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    found, said = answered(capsys, "predict", tiny_run, "--input", tmp_path / name)
    assert found == [["id-owl"], ["id-cat"], ["id-hen"]]
    assert "warning: 1 texts with bytes or characters that are no Unicode" in said
    (block,) = documents_in_blocks(str(tmp_path / name))
    assert "cat \ufffd" in next(iter(block.documents.fields.values()))


def test_bytes_of_the_command_line_that_are_no_text(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, said = answered(capsys, "predict", tiny_run, "owl \udcff", "cat")
    assert found == [["id-owl"], ["id-cat"]]
    assert "warning: 1 texts" in said


def test_bytes_that_are_no_text_go_into_no_file(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("rename", tiny_run, "--id", "id-owl", "--text", "owl \udcff"), ("retire", tiny_run, "owl \udcff")):
        assert "'owl \\udcff': bytes that are no UTF-8" in refused(capsys, "labels", *words)


def test_whole_characters_are_left_alone(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_text('{"title": "owl \\ud83d\\ude00 gr\\u00fcn"}\n')
    _, said = answered(capsys, "predict", tiny_run, "--input", tmp_path / "x.jsonl")
    assert "warning" not in said


def run_longtail(words: list[str], shell: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = " ".join(["exec", sys.executable, "-m", "longtail", *words, shell])
    return subprocess.run(["bash", "-c", command], capture_output=True, check=False, env={**os.environ, **environment})


def test_a_terminal_that_lacks_signs_shows_question_marks(tiny_run: Path) -> None:
    ended = run_longtail(["predict", str(tiny_run), "'grün owl'", "-k", "1"], PYTHONIOENCODING="ascii")
    assert ended.returncode == 0, ended.stderr.decode()
    assert b"gr?n owl" in ended.stdout
    assert b"id-owl" in ended.stdout
    assert b"note: 1 characters that ascii lacks were shown as '?'" in ended.stderr
    plain = run_longtail(["predict", str(tiny_run), "'grün owl'", "-k", "1"], PYTHONIOENCODING="utf-8")
    assert b"lacks" not in plain.stderr


@pytest.mark.parametrize(
    ("closed", "code"), [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 2), ("2>/dev/full", 0)]
)
def test_closed_and_full_streams(closed: str, code: int, tiny_run: Path) -> None:
    ended = run_longtail(["predict", str(tiny_run), "owl"], closed)
    assert ended.returncode == code, ended.stderr.decode()
    assert b"internal error" not in ended.stderr
    assert b"Exception ignored" not in ended.stderr


def test_a_closed_standard_input_is_named(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input" in refused(capsys, "predict", tiny_run, "--input", "-")


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (MemoryError(), "out of memory"),
        (OSError(12, "ENOMEM"), "out of memory"),
        (RuntimeError("can't start new thread"), "out of memory"),
        (ImportError("READ THIS\nx.so: failed to map segment from shared object"), "a library cannot be loaded: x.so"),
        (OSError("Could not find/load shared object file 'x.so'"), "a library cannot be loaded: Could not find"),
    ],
)
def test_a_machine_without_memory(
    problem: Exception, said: str, tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise problem

    monkeypatch.setattr(Predictor, "open", fail)
    assert f"error: {said}" in refused(capsys, "predict", tiny_run, "owl")


# ---- what is read as what ----


def test_endings_in_upper_case(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = b"title,tags\nowl,x\ncat,y\n"
    (tmp_path / "A.CSV").write_bytes(table)
    (tmp_path / "B.CSV.GZ").write_bytes(gzip.compress(table))
    (tmp_path / "C.JSONL").write_bytes(b'{"title": "owl"}\n{"title": "cat"}\n')
    (tmp_path / "D.TXT.GZ").write_bytes(gzip.compress(b"owl\ncat\n"))
    for name in ("A.CSV", "B.CSV.GZ", "C.JSONL", "D.TXT.GZ"):
        assert answered(capsys, "predict", tiny_run, "--input", tmp_path / name)[0] == [["id-owl"], ["id-cat"]]
    assert len(read(tmp_path / "B.CSV.GZ", text="title", labels="tags").train) == 2
    np.save(tmp_path / "e.npy", np.ones((2, 3), np.float32))
    (tmp_path / "e.npy").rename(tmp_path / "E.NPY")
    (block,) = documents_in_blocks(str(tmp_path / "E.NPY"))
    assert len(block.documents) == 2


def test_fields_that_are_not_the_models_are_named(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, says in (('{"titel": "owl"}', "the object has titel"), ('{"title": ["owl"]}', "expected a text")):
        (tmp_path / "x.jsonl").write_text(line)
        assert says in refused(capsys, "predict", tiny_run, "--input", tmp_path / "x.jsonl")


def test_labels_are_not_read_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("title,labels\nowl,a\ncat,b\n")
    train = ("train", tmp_path / "x.csv", "--recipe", "tiny", "--out", tmp_path / "run")
    for text in ("labels", "title,labels", "Labels:2"):
        assert "both text and labels" in refused(capsys, *train, "--text", text, "--labels", "labels")


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "parquet"])
def test_a_field_that_test_documents_lack_comes_back(format: str, tmp_path: Path) -> None:
    data = Dataset.from_texts(
        [{"title": "owl", "content": "bird"}, {"title": "cat", "content": "pet"}],
        [["a"], ["b"]],
        test_texts=[{"title": "an owl"}],
        test_labels=[["a"]],
    )
    write(data, tmp_path / "out", format)
    again = read(tmp_path / "out", text="title,content")
    assert list(again.train.documents.fields["content"]) == ["bird", "pet"]
    assert list(again.need_test().documents.fields["title"]) == ["an owl"]
    assert list(again.need_test().documents.fields["content"]) == [""]


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["title", "labels"], ["owl " * 50_000, "a"], ["cat", "b"]])
    limit = csv.field_size_limit(131_072)
    try:
        found = read(tmp_path / "x.csv", text="title", labels="labels")
    finally:
        csv.field_size_limit(limit)
    assert len(found.train.documents.fields["title"][0]) == 200_000


@pytest.mark.parametrize("kind", ["timestamp", "date32"])
def test_dates_that_python_does_not_know(
    kind: str, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    far = pyarrow.array([2**45], pyarrow.timestamp("s")) if kind == "timestamp" else pyarrow.array([2**30], "date32")
    parquet.write_table(pyarrow.table({"title": ["owl"], "labels": ["a"], "day": far}), tmp_path / "x.parquet")
    reads = ("predict", tiny_run, "--input", tmp_path / "x.parquet")
    train = ("train", tmp_path / "x.parquet", "--recipe", "tiny", "--labels", "labels", "--out", tmp_path / "run")
    carried = (*reads, "--format", "csv", "--output", tmp_path / "o.csv")
    for command in (carried, (*reads, "--id", "day"), (*train, "--text", "title,day")):
        said = refused(capsys, *command)
        assert "a date or time" in said
        assert "in the column 'day'" in said
        assert command is carried or "x.parquet: " in said
    assert main([str(word) for word in train]) == 0  # a column that nobody reads may hold anything


@pytest.mark.parametrize("column", ["id", "labels"])
def test_dates_are_neither_ids_nor_labels(column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"title": ["owl"], "labels": ["a"], column: pyarrow.array([1], "date32")}
    parquet.write_table(pyarrow.table(rows), tmp_path / "x.parquet")
    train = ("train", tmp_path / "x.parquet", "--recipe", "tiny", "--out", tmp_path / "run")
    assert f"row 1: column '{column}' holds datetime.date(1970, 1, 2), expected" in refused(capsys, *train)
    assert not (tmp_path / "run").exists()


# ---- what Python gives ----


def test_texts_in_whatever_can_be_gone_through(tiny_run: Path) -> None:
    model = Predictor.open(tiny_run)

    def generated() -> Iterator[str]:
        yield "owl"

    expected = model.predict(["owl"], 1)
    for texts in (generated(), iter(["owl"]), {"owl"}, {"owl": 1}.keys(), np.array(["owl"]), np.array("owl")):
        assert model.predict(texts, 1) == expected
    assert model.predict(map(str, ["owl"]), np.int64(1)) == expected  # type: ignore[call-overload]
    for wrong in ({"title": "owl"}, [b"owl"], None, 5, [["owl"]], np.array([1.0])):
        with pytest.raises(LongtailError):
            model.predict(wrong)
    for k in (True, 1.5, "2", -1, None):
        with pytest.raises(ConfigError, match="whole number"):
            model.predict(["owl"], k)  # type: ignore[arg-type]


@pytest.mark.parametrize("sparse", [False, True])
def test_vectors_too_small_for_their_inverse(sparse: bool, tmp_path: Path) -> None:
    folder, rows = tmp_path / "data", np.eye(4, dtype=np.float32)[np.arange(20) % 4]
    folder.mkdir()
    save_npz(folder / "trn_Y.npz", csr_array(rows))
    np.save(folder / "trn_X.npy", rows) if not sparse else save_npz(folder / "trn_X.npz", csr_array(rows))
    model = longtail.train(folder, recipe="tiny")
    for scale in (1e-45, 1e-40, 1e-30, 1e30):
        asked = rows[:4] * np.float32(scale)
        name = "q.npz" if sparse else "q.npy"
        np.save(tmp_path / name, asked) if not sparse else save_npz(tmp_path / name, csr_array(asked))
        top = model.rank(model.documents(str(tmp_path / name)), 1)
        np.testing.assert_array_equal(top.ids[:, 0], np.arange(4))
        assert np.isfinite(top.scores).all()


# ---- files that settings name ----


def test_the_content_of_files_that_settings_name_is_part_of_a_run(planted_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "words.npy"
    settings = {"surrogate": {"vectors": str(file), "epochs": 1, "width": 8}, "classify": {"epochs": 1}}
    rows = np.load(_features(planted_folder, tmp_path))
    np.save(file, np.ones((int(rows), 8), np.float32))
    recipe = make_recipe("astec", settings=settings)
    assert paths_in(recipe.config) == {"surrogate.vectors": file}
    longtail.train(planted_folder, tmp_path / "run", recipe, device="cpu")
    longtail.train(planted_folder, tmp_path / "run", recipe, device="cpu")
    np.save(file, np.full((int(rows), 8), 2, np.float32))
    with pytest.raises(RunError, match=r"content\.surrogate\.vectors"):
        longtail.train(planted_folder, tmp_path / "run", recipe, device="cpu")


def _features(data: Path, home: Path) -> Path:
    """How many features Astec sees, in a file."""
    from longtail.training.prepare import prepare

    found = prepare(read(data, test=False), make_recipe("astec").config.features).featurizer.width
    np.save(home / "count.npy", np.array(found))
    return home / "count.npy"


def test_a_folder_is_its_files(tmp_path: Path, tiny_run: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x").write_text("1")
    before = content_digest(tmp_path / "a")
    (tmp_path / "a" / ".DS_Store").write_text("litter")
    assert content_digest(tmp_path / "a") == before
    (tmp_path / "a" / "b" / "x").write_text("2")
    assert content_digest(tmp_path / "a") != before
    assert content_digest(tiny_run) == content_digest(tiny_run / "bundle")
    assert content_digest(tmp_path / "a" / "b" / "x") != before
