"""A run remembers the columns of its table: evaluation, comparison and prediction read what training read."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from longtail.bundle import Bundle
from longtail.compare import compare
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import ConfigError, DataError, RunError
from longtail.evaluation import columns_of_models, evaluate
from longtail.failures import weak_labels
from longtail.pipeline import train
from longtail.predictor import Predictor
from longtail.training.progress import PlainDisplay

WORDS = ("shoe", "cup", "table", "lamp")


def write_shop(path: Path, rows: int, seed: int) -> Path:
    """The name says what the labels are, the description says the opposite."""
    rng = np.random.default_rng(seed)
    lines = ["sku,product_name,price,brand,description,keywords,created_at"]
    for row in range(rows):
        word = WORDS[row % 4]
        other = WORDS[(row + 1) % 4]
        number = rng.integers(1000)
        lines.append(
            f"S-{seed}-{row},fine {word} number {number},{number}.50,Acme,this is no {other} but {number},"
            f"{word}|things,2026-01-{row % 28 + 1:02}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder / "tr.csv", 40, 1)
    write_shop(folder / "te.csv", 12, 2)
    return folder


@pytest.fixture(scope="module")
def named(shop: Path) -> Predictor:
    return train(read(shop / "tr.csv", text="product_name", id="sku"), shop / "named", "tiny")


def test_nothing_is_trained_on_a_guess(shop: Path) -> None:
    with pytest.raises(DataError, match=r"two columns could be the text: 'product_name' .*'description'"):
        train(shop / "tr.csv", shop / "guessed", "tiny")
    assert not (shop / "guessed").exists()


def test_training_says_what_is_read(shop: Path) -> None:
    said = io.StringIO()
    data = read(shop / "tr.csv", text="product_name", id="sku")
    train(data, shop / "said", "tiny", display=PlainDisplay(said))
    lines = said.getvalue().splitlines()
    assert lines[0] == (
        "text: product_name; labels: keywords (split at |); id: sku; ignored: price, brand, description, created_at"
    )
    assert lines[1].startswith("warning: the column 'description' (e.g. 'this is no cup but")


def test_the_bundle_holds_the_columns(shop: Path, named: Predictor) -> None:
    manifest = json.loads((shop / "named" / "bundle" / "manifest.json").read_text())
    assert manifest["columns"] == {
        "text": ["product_name"],
        "weights": [1.0],
        "labels": "keywords",
        "id": "sku",
        "separator": "|",
    }
    assert named.columns == read(shop / "tr.csv", text="product_name", id="sku").columns
    assert named.bundle.featurizer.fields == ("product_name",)


def test_evaluation_reads_what_training_read(shop: Path, named: Predictor) -> None:
    data = read(shop / "tr.csv", test_file=shop / "te.csv", columns=named.columns)
    said = io.StringIO()
    assert evaluate(named, data, PlainDisplay(said))["P@1"] == 100
    assert said.getvalue().startswith("text: product_name; labels: keywords (split at |); id: sku; ignored: price")
    assert list(data.need_test().documents.uids)[:2] == ["S-2-0", "S-2-1"]
    with pytest.raises(ConfigError, match=r"--text says 'description', and the model was trained on 'product_name'"):
        read(shop / "tr.csv", columns=named.columns, text="description")


def test_evaluation_by_path(shop: Path, named: Predictor, tmp_path: Path) -> None:
    for stem, name in (("train", "tr.csv"), ("test", "te.csv")):
        (tmp_path / f"{stem}.csv").write_bytes((shop / name).read_bytes())
    assert evaluate(named, tmp_path)["P@1"] == 100
    assert weak_labels(named, tmp_path, at=2) == []


def test_data_that_was_read_otherwise_is_refused(shop: Path, named: Predictor) -> None:
    data = read(shop / "tr.csv", test_file=shop / "te.csv", text="description")
    with pytest.raises(DataError, match="trained on the text 'product_name', the data was read for 'description'"):
        evaluate(named, data)


def test_the_file_lacks_the_column(shop: Path, named: Predictor, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("sku,name,keywords\n1,cup,cup\n")
    with pytest.raises(DataError, match=r"no column 'product_name', which is the text.*'sku', 'name', 'keywords'"):
        evaluate(named, read(tmp_path / "other.csv", columns=named.columns))


def test_all_text_columns_are_read_with_their_weights(shop: Path) -> None:
    data = read(shop / "tr.csv", text="product_name:3,description")
    model = train(data, shop / "both", "tiny")
    assert model.bundle.featurizer.fields == ("product_name", "description")
    config = (shop / "both" / "config.toml").read_text()
    assert "fields = []" in config
    tested = read(shop / "tr.csv", test_file=shop / "te.csv", columns=model.columns)
    assert evaluate(model, tested)["P@1"] == 100, "the name weighs more than the description"
    chosen = train(data, shop / "chosen", "tiny", settings={"features": {"fields": ["description"]}})
    assert chosen.bundle.featurizer.fields == ("description",)
    with pytest.raises(ConfigError, match=r"no field 'body'.*they have: product_name, description"):
        train(data, shop / "absent", "tiny", settings={"features": {"fields": ["body"]}})


def test_the_columns_are_part_of_what_a_run_is(shop: Path) -> None:
    data = read(shop / "tr.csv", text="product_name:3,description")
    train(data, shop / "weighed", "tiny")
    assert data.columns is not None
    other = replace(data, columns=replace(data.columns, weights=(1.0, 3.0)))
    with pytest.raises(RunError, match=r"columns\.weights"):
        train(other, shop / "weighed", "tiny")


def test_models_of_different_columns_are_compared(shop: Path, named: Predictor) -> None:
    described = train(read(shop / "tr.csv", text="description"), shop / "described", "tiny")
    columns = columns_of_models(named, described)
    assert columns is not None
    assert columns.text == ("product_name", "description")
    data = read(shop / "tr.csv", test_file=shop / "te.csv", columns=columns)
    result = compare(shop / "named", shop / "described", data, resamples=20)
    assert result["metrics"]["P@1"]["a"] == 100
    assert evaluate(named, data)["P@1"] == 100


def test_a_text_goes_into_the_first_field(named: Predictor) -> None:
    assert named.predict(["a shoe"], k=1)[0][0].label in ("shoe", "things")
    assert {p.label for p in named.predict(["a shoe"], k=2)[0]} == {"shoe", "things"}


def test_ids_come_back(shop: Path, named: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(named.documents(str(shop / "te.csv")).uids)[:2] == ["S-2-0", "S-2-1"]
    line = b'{"sku": "X", "product_name": "a lamp"}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line)))
    documents = named.documents("-")
    assert list(documents.uids) == ["X"]
    assert {p.label for p in named.named(named.rank(documents, 2))[0]} == {"lamp", "things"}


def test_prediction_reads_no_labels(shop: Path, named: Predictor) -> None:
    said: list[str] = []
    named.documents(str(shop / "te.csv"), on_columns=lambda columns: said.append(columns.line()))
    assert said == ["text: product_name; id: sku; ignored: price, brand, description, keywords, created_at"]


def test_label_texts_are_found_whatever_the_text_column_is_called(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("uid,title\nshoe,a shoe\ncup,a cup\nbarely,unheard of\n")
    data = read(shop / "tr.csv", text="product_name", label_texts=tmp_path / "labels.csv")
    model = train(data, tmp_path / "run", "tiny")
    batch = model.bundle.featurizer.label_batch(data.labels)
    assert batch is not None
    assert batch.sparse is not None
    assert batch.sparse[[0]].nnz > 0


def test_data_that_is_no_table_has_no_columns(named: Predictor, tmp_path: Path) -> None:
    lists = Dataset.from_texts(["a shoe", "a cup"], [["shoe"], ["cup"]], test_texts=["a cup"], test_labels=[["cup"]])
    model = train(lists, tmp_path / "run", "tiny")
    assert model.columns is None
    assert "columns" not in model.bundle.manifest
    assert evaluate(named, lists)["n_test"] == 1, "a title is a plain text to a model of a table"
    (tmp_path / "d.csv").write_text("utterance,labels\na shoe,shoe\na cup,cup\n")
    table = read(tmp_path / "d.csv", test_file=tmp_path / "d.csv", columns=model.columns)
    assert evaluate(model, table)["P@1"] == 100, "a model without columns reads the only text there is"


def test_a_bundle_of_an_older_version_has_no_columns(named: Predictor) -> None:
    manifest = {name: value for name, value in named.bundle.manifest.items() if name != "columns"}
    old: Bundle = replace(named.bundle, manifest=manifest)
    assert Predictor(old).columns is None
