"""The command line is a contract: outputs, exit codes, and errors that say what to do."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import load_npz

from longtail import __version__
from longtail.cli import main
from longtail.data.dataset import Dataset


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """Run a command that must fail as a user's error; gives its error and hint."""
    assert main(arguments) == 2
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    error = next(line for line in lines if line.startswith("error: "))
    hint = next((line for line in lines if line.startswith("hint: ")), "")
    assert "Traceback" not in shown.err
    assert hint
    return error, hint


def test_train_evaluate_predict_as_a_newcomer_would(
    planted_folder: Path, planted: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, numbers = tmp_path / "run", tmp_path / "numbers.json"
    assert main(["train", str(planted_folder), "--recipe", "tiny", "--out", str(run)]) == 0
    said = capsys.readouterr().out
    assert f"longtail predict {run}" in said
    assert f"measure it: longtail evaluate {run} {planted_folder}" in said
    assert main(["evaluate", str(run), str(planted_folder), "--json", str(numbers), "--baselines"]) == 0
    shown = capsys.readouterr().out
    assert "A=0.55 B=1.5" in shown
    assert "most frequent labels" in shown
    result = json.loads(numbers.read_text())
    assert result["P@1"] > 80
    assert result["P@1"] > result["baselines"]["most frequent labels"]["P@1"]
    assert result["n_test"] == len(planted.need_test())
    assert result["propensity"] == {"A": 0.55, "B": 1.5, "family": result["propensity"]["family"]}
    assert result["data_hash"]
    assert result["model"]["recipe"] == "tiny"
    assert main(["predict", str(run), "an owl", "a cat", "-k", "1"]) == 0
    shown = capsys.readouterr().out
    assert "id-owl" in shown
    assert "id-cat" in shown


def test_a_folder_without_a_test_side_is_not_to_be_measured_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("title,labels\nowl,a\nhen,b\n")
    assert main(["train", str(tmp_path / "data"), "--recipe", "tiny", "--out", str(tmp_path / "run")]) == 0
    assert "measure it" not in capsys.readouterr().out


def test_predict_npz_has_a_row_per_document_and_masks_nothing(
    tiny_run: Path, planted_folder: Path, planted: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "p.npz"
    assert (
        main(
            [
                "predict",
                str(tiny_run),
                "--input",
                str(planted_folder / "tst.json.gz"),
                "--format",
                "npz",
                "-k",
                "3",
                "--output",
                str(out),
            ]
        )
        == 0
    )
    matrix = load_npz(out)
    assert matrix.format == "csr"
    assert matrix.shape == (len(planted.need_test()), len(planted.labels))
    assert np.diff(matrix.indptr).max() <= 3
    best = np.asarray(matrix.argmax(axis=1)).ravel()
    truth = planted.need_test().targets
    assert np.mean([truth[row, label] for row, label in enumerate(best)]) > 0.8


def test_predict_keeps_empty_and_unknown_documents(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "texts.txt"
    source.write_text("owl\n\nxyzzy\ncat\n")
    assert main(["predict", str(tiny_run), "--input", str(source), "--format", "jsonl", "-k", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["labels"] for line in lines] == [["id-owl"], [], [], ["id-cat"]]
    assert [line["uid"] for line in lines] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_shards_of_a_prediction_answer_every_document_once(tiny_run: Path, tmp_path: Path, ending: str) -> None:
    """Whatever is read in blocks: 10,000 documents are three of them. Numbers of documents stay those of the file."""
    from longtail.data.table_files import open_table

    pytest.importorskip("pyarrow") if ending == "parquet" else None
    source = tmp_path / "in.csv"
    source.write_text("id,title\n" + "".join(f"d{n},{'an owl' if n % 3 else 'a cat'}\n" for n in range(10_000)))
    whole = tmp_path / f"whole.{ending}"
    command = ["predict", str(tiny_run), "--input", str(source), "--text", "title", "--id", "id", "-k", "1", "-q"]
    assert main([*command, "--output", str(whole)]) == 0
    parts = [tmp_path / f"{number}.{ending}" for number in (1, 2, 3)]
    for number, part in enumerate(parts, 1):
        assert main([*command, "--output", str(part), "--shard", f"{number}/3"]) == 0

    def answers(path: Path) -> list[tuple[str, str]]:
        if ending == "jsonl":
            return [(one["uid"], str(one["labels"])) for one in map(json.loads, path.read_text().splitlines())]
        blocks = open_table(path, lambda share: None).blocks(["id", "labels"], 4096)
        return [
            (str(uid), str(labels))
            for _, columns in blocks
            for uid, labels in zip(columns["id"], columns["labels"], strict=True)
        ]

    shards = [answers(part) for part in parts]
    assert [len(found) for found in shards] == [3334, 3333, 3333]
    assert [shards[n % 3][n // 3] for n in range(10_000)] == answers(whole)


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/0", "-1/3", "1/" + "9" * 4400, "\u0661/3"])
def test_a_shard_that_does_not_exist_is_refused(tiny_run: Path, capsys: pytest.CaptureFixture[str], shard: str) -> None:
    error, _ = fails(capsys, "predict", str(tiny_run), "an owl", "--shard", shard)
    assert f"--shard {shard[:100]}" in error
    assert ", expected I/N with I from 1 to N" in error


def test_predict_reads_json_lines_with_strings_and_objects(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "d.jsonl.gz"
    with gzip.open(source, "wt") as file:
        file.write('"owl"\n{"uid": "x", "title": "cat"}\n')
    assert main(["predict", str(tiny_run), "--input", str(source), "--format", "jsonl", "-k", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["uid"], line["labels"]) for line in lines] == [("0", ["id-owl"]), ("x", ["id-cat"])]


def test_predict_reads_standard_input(
    tiny_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"owl\ncat\n")))
    assert main(["predict", str(tiny_run), "--input", "-", "-k", "1"]) == 0
    assert "id-owl" in capsys.readouterr().out


def test_an_input_that_cannot_be_read_is_not_said_of_the_output(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder, say: longtail predict RUN --output answers.jsonl < FOLDER"""

    class Folder(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Folder())))
    error, _ = fails(capsys, "predict", str(tiny_run), "--input", "-", "--output", str(tmp_path / "answers.jsonl"))
    assert error == "error: standard input: cannot be read (Is a directory)"
    assert not (tmp_path / "answers.jsonl").exists()


def test_predict_output_file_is_whole_or_absent(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answers.txt"
    assert main(["predict", str(tiny_run), "owl", "--output", str(out)]) == 0
    assert "id-owl" in out.read_text()
    fails(capsys, "predict", str(tiny_run), "owl", "--output", str(out / "below"))


def test_predict_writes_no_text_under_the_name_of_a_spreadsheet(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answers.XLSX"
    error, hint = fails(capsys, "predict", str(tiny_run), "owl", "--output", str(out))
    assert "answers.XLSX" in error
    assert ".xlsx files are not written" in error
    assert ".csv" in hint
    assert not out.exists()
    assert main(["predict", str(tiny_run), "owl", "--output", str(out), "--format", "text"]) == 0, "said knowingly"


def test_compare_two_models_and_prediction_files(
    tiny_run: Path, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, numbers = tmp_path / "other", tmp_path / "c.json"
    assert (
        main(["train", str(planted_folder), "--recipe", "tiny", "--out", str(other), "--set", "classify.neighbours=1"])
        == 0
    )
    assert (
        main(["compare", str(tiny_run), str(other), str(planted_folder), "--resamples", "200", "--json", str(numbers)])
        == 0
    )
    assert "95% interval of 200 resamples" in capsys.readouterr().out
    result = json.loads(numbers.read_text())
    assert set(result["quantiles"]) == {"equal_count", "equal_volume", "by_frequency"}
    difference = result["metrics"]["P@5"]
    assert difference["low"] <= difference["difference"] <= difference["high"]
    assert difference["difference"] == pytest.approx(difference["a"] - difference["b"])
    parts = result["quantiles"]["equal_volume"]["P@5"]
    assert sum(part["difference"] for part in parts) == pytest.approx(difference["difference"])
    # The same model as a prediction file differs by nothing at all.
    npz = tmp_path / "p.npz"
    main(
        [
            "predict",
            str(tiny_run),
            "--input",
            str(planted_folder / "tst.json.gz"),
            "--format",
            "npz",
            "-k",
            "100",
            "--output",
            str(npz),
        ]
    )
    assert main(["compare", str(tiny_run), str(npz), str(planted_folder), "--json", str(numbers)]) == 0
    assert all(
        d["difference"] == d["low"] == d["high"] == 0 for d in json.loads(numbers.read_text())["metrics"].values()
    )


def test_the_same_command_again_opens_what_is_finished(
    tiny_run: Path, planted_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(planted_folder), "--recipe", "tiny", "--out", str(tiny_run)]) == 0
    assert "this run is finished" in capsys.readouterr().err


def test_config_prints_toml_that_can_be_given_back(
    planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "tiny"]) == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["classify"]["neighbours"] > 0
    (tmp_path / "c.toml").write_text(text)
    assert (
        main(
            [
                "train",
                str(planted_folder),
                "--recipe",
                "tiny",
                "--config",
                str(tmp_path / "c.toml"),
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )


def test_recipes_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    assert "tiny" in capsys.readouterr().out
    done = subprocess.run([sys.executable, "-m", "longtail", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"longtail {__version__}"


def test_data_commands(planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "sample", str(tmp_path / "sample")]) == 0
    assert (tmp_path / "sample" / "trn.json.gz").exists()
    assert main(["data", "stats", str(planted_folder), "--json", str(tmp_path / "s.json")]) == 0
    assert json.loads((tmp_path / "s.json").read_text())
    assert main(["data", "check", str(planted_folder)]) == 0
    assert "usable" in capsys.readouterr().out
    for kind in ("lf", "npz", "csv", "tsv", "jsonl"):
        assert main(["data", "convert", str(planted_folder), str(tmp_path / kind), "--format", kind]) == 0, kind
        assert main(["data", "check", str(tmp_path / kind)]) == 0, kind
    assert main(["data", "synthetic", str(tmp_path / "syn"), "--size", "tiny", "--set", "missing_rate=0.3"]) == 0
    assert main(["data", "check", str(tmp_path / "syn")]) == 0


def test_own_csv_in_three_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the README promises."""
    table = tmp_path / "titles.csv"
    table.write_text(
        "text,labels\n"
        + "".join(f"{animal} number {n},{animal}|animal\n" for animal in ("cat", "dog", "owl") for n in range(5))
    )
    run = tmp_path / "run"
    assert main(["train", str(table), "--recipe", "tiny", "--out", str(run)]) == 0
    assert main(["predict", str(run), "my cat", "-k", "2", "--format", "jsonl"]) == 0
    assert set(json.loads(capsys.readouterr().out.splitlines()[-1])["labels"]) == {"animal", "cat"}


def test_predict_for_a_model_that_reads_several_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text(
        "title,content,labels\n" + "".join(f"{a} {n},about {a}s,{a}\n" for a in ("cat", "dog", "owl") for n in range(4))
    )
    run = str(tmp_path / "run")
    assert (
        main(
            [
                "train",
                str(table),
                "--recipe",
                "tiny",
                "--text",
                "title,content",
                "--set",
                "features.fields=content,title",
                "--out",
                run,
            ]
        )
        == 0
    )
    (tmp_path / "only_title.jsonl").write_text('{"title": "owl"}\n')
    (tmp_path / "text.ndjson").write_text('{"text": "owl"}\n')
    for more in (["owl"], ["--input", str(tmp_path / "only_title.jsonl")]):
        capsys.readouterr()
        assert main(["predict", run, *more, "-k", "1", "--format", "jsonl"]) == 0
        assert json.loads(capsys.readouterr().out)["labels"] == ["owl"]
    error, _ = fails(capsys, "predict", run, "--input", str(tmp_path / "text.ndjson"))
    assert "the object has text; the model reads content, title" in error


def test_one_label_per_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text("text,labels\n" + "".join(f"{a} {n},{a}; small|big\n" for a in ("cat", "dog") for n in range(4)))
    run = str(tmp_path / "run")
    assert main(["train", str(table), "--recipe", "tiny", "--separator", "", "--out", run]) == 0
    capsys.readouterr()
    assert main(["predict", run, "cat", "-k", "1", "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["cat; small|big"]


def test_predict_reads_sparse_and_dense_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, name in ((sparse.csr_array, "tst_X.npz"), (np.asarray, "tst_X.npy")):
        folder = tmp_path / name
        folder.mkdir()
        x, y = np.eye(3, dtype=np.float32), sparse.csr_array(np.eye(3, dtype=np.float32))
        for side in ("trn", "tst"):
            sparse.save_npz(folder / f"{side}_Y.npz", y)
            sparse.save_npz(folder / f"{side}_X.npz", kind(x)) if name.endswith("npz") else np.save(
                folder / f"{side}_X.npy", x
            )
        run = str(folder / "run")
        assert main(["train", str(folder), "--recipe", "tiny", "--out", run]) == 0
        said = capsys.readouterr().out
        assert '"a text"' not in said, "it reads vectors"
        assert f"ask it: longtail predict {run} --input vectors.npz" in said
        assert main(["predict", run, "--input", str(folder / name), "-k", "1", "--format", "jsonl"]) == 0
        assert [json.loads(line)["labels"] for line in capsys.readouterr().out.splitlines()] == [["0"], ["1"], ["2"]]
        error, hint = fails(capsys, "predict", run, "a text")
        assert "documents have no vectors" in error
        assert "the model was trained on" in hint


# ---- wrong calls ----


@pytest.mark.parametrize("option", [("--language", "fi"), ("--unknown", "drop"), ("--vocabulary-ids", "local")])
def test_what_is_for_vocabularies_needs_one(
    option: tuple[str, str], planted_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error, hint = fails(capsys, "data", "check", str(planted_folder), *option)
    assert f"{option[0]} without --vocabulary" in error
    assert "--vocabulary FILE" in hint


def test_wrong_settings_name_the_nearest(
    planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", str(planted_folder), "--out", str(tmp_path / "r"), "--recipe")
    error, hint = fails(capsys, *train, "tiny", "--set", "classify.neighbors=3")
    assert "classify.neighbors" in error
    assert "classify.neighbours" in hint
    error, hint = fails(capsys, *train, "tinny")
    assert "did you mean 'tiny'?" in hint
    assert not (tmp_path / "r").exists()


def test_wrong_calls(tiny_run: Path, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'trian'" in fails(capsys, "trian")[0]
    assert "--out" in fails(capsys, "train", str(planted_folder))[0]
    assert "no such" in fails(capsys, "train", str(tmp_path / "absent"), "--out", str(tmp_path / "r"))[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", None)  # closed; a terminal is nothing to be read, either
        assert "either texts or --input" in fails(capsys, "predict", str(tiny_run))[0]
    assert "either texts or --input" in fails(capsys, "predict", str(tiny_run), "x", "--input", "y")[0]
    assert "-k 0" in fails(capsys, "predict", str(tiny_run), "x", "-k", "0")[0]
    assert "npz needs --output" in fails(capsys, "predict", str(tiny_run), "x", "--format", "npz")[0]
    assert "no such file" in fails(capsys, "predict", str(tiny_run), "--input", str(tmp_path / "absent.txt"))[0]
    assert "no such run or bundle" in fails(capsys, "evaluate", str(tmp_path / "absent"), str(planted_folder))[0]
    for resamples in ("0", "9" * 20):
        compare = ("compare", str(tiny_run), str(tiny_run), str(planted_folder), "--resamples", resamples)
        assert "'--resamples'" in fails(capsys, *compare)[0]
    tune = ("tune", str(planted_folder), "--study", str(tmp_path / "r"), "--trials", "-1")
    assert "at most -1 trials" in fails(capsys, *tune)[0]
    assert not (tmp_path / "r").exists()


def test_another_data_set_in_the_same_run_is_refused(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["data", "synthetic", str(tmp_path / "syn")])
    error, hint = fails(capsys, "train", str(tmp_path / "syn"), "--recipe", "tiny", "--out", str(tiny_run))
    assert "data.digest" in error
    assert "--restart" in hint


def test_a_model_of_other_labels_is_refused(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "synthetic", str(tmp_path / "syn")])
    assert "none of the labels" in fails(capsys, "evaluate", str(tiny_run), str(tmp_path / "syn"))[0]


def test_garbage_inputs_name_file_and_line(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    garbage = tmp_path / "g.jsonl"
    garbage.write_text('{"title": "owl"}\n{"title": \n')
    assert f"{garbage}, line 2" in fails(capsys, "predict", str(tiny_run), "--input", str(garbage))[0]
    garbage.write_text("[1]\n")
    assert "line 1" in fails(capsys, "predict", str(tiny_run), "--input", str(garbage))[0]


def test_debug_shows_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tmp_path / "absent"), str(tmp_path), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_of_ours_is_exit_1_without_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtail.recipes.RECIPES", None)
    assert main(["recipes"]) == 1
    shown = capsys.readouterr().err
    assert "internal error" in shown
    assert "Traceback" not in shown


def test_a_reader_that_goes_away_is_no_error(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("owl\n" * 20000)
    command = (
        f"{sys.executable} -m longtail predict {tiny_run} --input {tmp_path / 'many.txt'} | head -n 1; echo "
        f"${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.splitlines() == ["owl", "0"]
    assert "error" not in done.stderr


def test_runs_from_src_without_installation(tmp_path: Path) -> None:
    """-S hides site-packages, and with them the installed longtail: the command line itself needs click alone."""
    (tmp_path / "click").symlink_to(Path(click.__file__).parent)
    code = "import sys, runpy; sys.path[:0] = ['.', sys.argv.pop(1)]; runpy.run_module('longtail', run_name='__main__')"
    source = Path(__file__).parents[1] / "src"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(source), "recipes"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "tiny" in done.stdout, done.stderr


def test_a_full_disk_stops_kindly_and_the_same_command_goes_on(
    planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import safetensors.numpy

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    train = ["train", str(planted_folder), "--recipe", "tiny", "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(safetensors.numpy, "save_file", full)
        error, hint = fails(capsys, *train)
        assert "no space left on the disk" in error
        assert "same command again" in hint
        assert not (tmp_path / "run" / "bundle").exists()
        assert not list((tmp_path / "run").glob("stages/*"))
    assert main(train) == 0
    assert not list((tmp_path / "run").rglob("*.tmp"))
