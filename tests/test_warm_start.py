"""Warm start from end to end: the command that cuts data, files, training, evaluation beside the cold control, and
asking with known labels.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.test_cli import fails

import longtail
from longtail.cli import main
from longtail.data.dataset import Dataset
from longtail.data.protocols import warm_start
from longtail.data.read import read, write
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import ConfigError, DataError
from longtail.evaluation import Yardstick, context_of_test, evaluate
from longtail.metrics import inverse_propensities
from longtail.predictor import Predictor
from longtail.types import Context

pytestmark = pytest.mark.usefixtures("one_thread")

DATA = synthesise(
    SyntheticConfig(documents=400, test_documents=250, labels=60, topics=6, missing_rate=0.0, token_dropout=0.8), 0
).dataset
# Without votes, which go by the text alone, and stage IV: the graph is what knows about known labels.
SETTINGS = {
    "astec": {"width": 16, "epochs": 5},
    "hops": {"pre_relu": True},
    "surrogate": {"epochs": 5},
    "shortlist": {"voters": 0},
    "classify": {"epochs": 0},
    "features": {"subwords": "none", "pairs": False},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes."""
    home = tmp_path_factory.mktemp("warm")
    write(DATA, home / "data", "lf")
    assert main(["data", "warm-start", str(home / "data"), str(home / "cut"), "--seed", "3"]) == 0
    return home / "cut"


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    out = tmp_path_factory.mktemp("runs") / "galaxc"
    longtail.train(folder / "warm", out, "galaxc", settings=SETTINGS, device="cpu")
    return out


# ---- data ----


def test_the_command_writes_both_data_sets(folder: Path) -> None:
    made = warm_start(read(folder.parent / "data"), 3)
    for name, expected in (("warm", made.warm), ("cold", made.cold)):
        found = read(folder / name)
        assert found.digest == expected.digest
        np.testing.assert_array_equal(found.need_test().known, expected.need_test().known)
        np.testing.assert_array_equal(found.need_test().masked, expected.need_test().masked)
    known = made.cold.need_test().known
    assert len(known) == sum(n // 2 for n in np.diff(DATA.need_test().targets.indptr) if n >= 2)
    assert {tuple(pair) for pair in known.tolist()} <= {tuple(pair) for pair in made.cold.need_test().masked.tolist()}


def test_the_command_does_not_overwrite(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error, _ = fails(capsys, "data", "warm-start", str(folder.parent / "data"), str(folder))
    assert "not empty" in error


def test_data_without_two_labels_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single = Dataset.from_texts(["a", "b"], [["x"], ["y"]], test_texts=["c"], test_labels=[["x"]])
    write(single, tmp_path / "data", "lf")
    error, _ = fails(capsys, "data", "warm-start", str(tmp_path / "data"), str(tmp_path / "cut"))
    assert "two or more labels" in error
    assert not (tmp_path / "cut").exists()


@pytest.mark.parametrize("format", ["lf", "jsonl", "csv"])
def test_known_pairs_survive_every_format_of_texts(format: str, folder: Path, tmp_path: Path) -> None:
    cold = replace(read(folder / "cold"), graphs={})
    write(cold, tmp_path / "again", format)
    again = read(tmp_path / "again").need_test()
    np.testing.assert_array_equal(again.known, cold.need_test().known)
    np.testing.assert_array_equal(again.masked, cold.need_test().masked)


def test_known_pairs_are_part_of_the_digest_and_masked_when_read(folder: Path, tmp_path: Path) -> None:
    cold = read(folder / "cold")
    write(cold, tmp_path / "other", "lf")
    (tmp_path / "other" / "filter_labels_tst.txt").write_text("")
    other = read(tmp_path / "other")
    np.testing.assert_array_equal(other.need_test().masked, other.need_test().known)
    (tmp_path / "other" / "known_labels_tst.txt").unlink()
    without = read(tmp_path / "other")
    assert len(without.need_test().known) == 0
    assert len({cold.digest, other.digest, without.digest}) == 3
    (tmp_path / "other" / "known_labels_tst.txt").write_text("0 1\n0 99999\n")
    with pytest.raises(DataError, match=r"known_labels_tst.txt, line 2: label 99999"):
        read(tmp_path / "other")


def test_known_pairs_go_with_their_documents(folder: Path) -> None:
    test = read(folder / "cold").need_test()
    rows = np.array([5, 2, 9])
    chosen = test.rows(rows)
    for place, row in enumerate(rows.tolist()):
        assert chosen.known[chosen.known[:, 0] == place, 1].tolist() == test.known[test.known[:, 0] == row, 1].tolist()


# ---- evaluation ----


def test_propensities_are_those_of_the_control(folder: Path) -> None:
    warm, cold = (Yardstick.of(read(folder / name)) for name in ("warm", "cold"))
    np.testing.assert_array_equal(warm.inverse_propensity, cold.inverse_propensity)
    counts = DATA.train.targets.sum(axis=0)
    masked = np.bincount(DATA.train.masked[:, 1], minlength=60) * 0
    np.testing.assert_allclose(
        cold.inverse_propensity, inverse_propensities((counts - masked).astype(np.int64), 400, 0.55, 1.5)
    )


def test_warm_stands_beside_cold_on_the_same_documents(
    folder: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(run), str(folder / "warm"), "--json", str(tmp_path / "numbers.json")]) == 0
    shown = capsys.readouterr().out
    assert "galaxc, warm" in shown
    assert "galaxc, cold" in shown
    result = json.loads((tmp_path / "numbers.json").read_text())
    assert result["start"] == "warm"
    assert result["P@1"] > result["cold"]["P@1"] + 5, "half of the labels say more than the few words that are left"
    model, data = Predictor.open(run), read(folder / "warm")
    without = evaluate(model, replace(data, test=replace(data.need_test(), known=np.zeros((0, 2), np.int64))))
    assert "start" not in without
    assert without["P@1"] == pytest.approx(result["cold"]["P@1"])


def test_text_alone_is_cold(folder: Path, tmp_path: Path) -> None:
    model = longtail.train(folder / "warm", tmp_path / "tiny", "tiny")
    result = evaluate(model, read(folder / "warm"))
    assert result["start"] == "cold"
    assert "cold" not in result


def test_transductive_only_when_asked_and_then_recorded(
    folder: Path, run: Path, planted_folder: Path, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = Predictor.open(run), read(folder / "warm")
    plain, together = evaluate(model, data), evaluate(model, data, transductive=True)
    assert (plain["transductive"], together["transductive"]) == (False, True)
    assert plain["cold"] != together["cold"]
    context = context_of_test(model, Yardstick.of(data), transductive=True)
    assert context is not None
    assert context.together
    assert main(["evaluate", str(run), str(folder / "warm"), "--transductive"]) == 0
    assert "transductive" in capsys.readouterr().out
    error, _ = fails(capsys, "evaluate", str(tiny_run), str(planted_folder), "--transductive")
    assert "'tiny' reads text alone" in error


def test_together_documents_are_ranked_in_one_block(folder: Path, run: Path) -> None:
    model, documents = Predictor.open(run), read(folder / "warm").need_test().documents
    one, many = (model.rank(documents, 5, context=Context(together=True), block=block) for block in (10_000, 7))
    np.testing.assert_array_equal(one.ids, many.ids)
    alone, pieces = (model.rank(documents, 5, block=block) for block in (10_000, 7))
    np.testing.assert_array_equal(alone.ids, pieces.ids)


# ---- asking ----


def test_predict_with_known_labels(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Predictor.open(run)
    label, other = model.bundle.labels.uids[3], model.bundle.labels.uids[8]
    expected = model.predict(["some words"], k=4, known_labels=[[label, other]])[0]
    assert (
        main(["predict", str(run), "some words", "-k", "4", "--known", label, "--known", other, "--format", "jsonl"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["labels"] == [p.label for p in expected]
    lines = [
        {"title": "some words", "known": [label, other]},
        {"title": "some words", "known": []},
        {"title": "some words"},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert (
        main(
            [
                "predict",
                str(run),
                "--input",
                str(tmp_path / "in.jsonl"),
                "--known-field",
                "known",
                "-k",
                "4",
                "--format",
                "jsonl",
            ]
        )
        == 0
    )
    found = [json.loads(line)["labels"] for line in capsys.readouterr().out.splitlines()]
    assert found[0] == [p.label for p in expected]
    assert found[1] == found[2] == [p.label for p in model.predict(["some words"], k=4)[0]]
    (tmp_path / "in.csv").write_text(f"title,told\nsome words,{label}|{other}\nother words,\n")
    assert (
        main(
            [
                "predict",
                str(run),
                "--input",
                str(tmp_path / "in.csv"),
                "--known-field",
                "told",
                "-k",
                "4",
                "--format",
                "jsonl",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out.splitlines()[0])["labels"] == found[0]


def test_wrong_calls(run: Path, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text('{"title": "x", "known": [1.5]}\n')
    source = ["--input", str(tmp_path / "in.jsonl")]
    for wrong, message in (
        ([str(run), "a", "b", "--known", "l1"], "belongs to one text"),
        ([str(run), *source, "--known", "l1"], "belongs to one text"),
        ([str(run), "a", "--known-field", "known"], "names a field of --input"),
        ([str(run), *source, "--known-field", "knwon"], "no column 'knwon'"),
        ([str(run), *source, "--known-field", "known"], "line 1"),
        ([str(run), "a", "--known", "nobody"], "'nobody' is not a label of this model"),
        ([str(tiny_run), "a", "--known", "id-cat"], "known labels: a model of the recipe 'tiny' reads text alone"),
        ([str(run), "a", "--anchor", "x"], "knows no anchors"),
    ):
        error, _ = fails(capsys, "predict", *wrong)
        assert message in error


def test_a_context_must_fit_the_model(tiny_run: Path) -> None:
    model = Predictor.open(tiny_run)
    documents: Any = read_one()
    with pytest.raises(ConfigError, match="reads text alone"):
        model.rank(documents, 3, context=Context())


def read_one() -> Any:
    return DATA.need_test().documents.rows(np.array([0]))
