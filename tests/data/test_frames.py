"""Tables that Python holds become data sets and documents, and predictions become frames."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import longtail
from longtail.data import frames
from longtail.data.dataset import Dataset
from longtail.data.frames import columns_of, documents_of, read_frame, values_of
from longtail.errors import ConfigError, DataError, MissingExtra
from longtail.predictor import Predictor

TITLES = ["a cat purrs", "a dog barks", "", "cat and dog"]
LISTS = [["cat"], ["dog"], ["dog"], ["cat", "dog"]]
JOINED = ["cat", "dog", "dog", "cat|dog"]
COLUMNS: dict[str, list[Any]] = {"headline": TITLES, "pages": [1, 2, 3, 4], "tags": LISTS, "joined": JOINED}

FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": lambda columns: pd.DataFrame(columns, index=[f"row {n}" for n in range(len(columns["headline"]))]),
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
    "columns": dict,
    "dicts": lambda columns: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
}
SERIES: dict[str, Callable[[list[Any]], Any]] = {
    "pandas": pd.Series,
    "pandas arrow": lambda values: pd.Series(values, dtype="string[pyarrow]"),
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow chunks": lambda values: pa.chunked_array([values]),
    "array": np.array,
    "object array": lambda values: np.array(values, dtype=object),
    "column": lambda values: np.array(values, dtype=object)[:, None],
    "list": list,
    "tuple": tuple,
}


def expected() -> Dataset:
    return Dataset.from_texts(TITLES, LISTS)


def content(data: Dataset) -> tuple[Any, ...]:
    return (
        list(data.labels.uids),
        [list(texts) for texts in data.train.documents.fields.values()],
        data.train.targets.toarray().tolist(),
        dict(data.repairs).get("training documents without text, dropped"),
    )


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("labels", ["tags", "joined"])
def test_a_frame_is_read_as_a_table_is(kind: str, labels: str) -> None:
    found = longtail.read(FRAMES[kind](COLUMNS), text="headline", labels=labels)
    assert content(found) == content(expected())
    assert len(found.train) == 3  # the one without text is dropped, as everywhere


@pytest.mark.parametrize("kind", SERIES)
def test_texts_with_labels_beside_them(kind: str) -> None:
    assert content(read_frame(SERIES[kind](TITLES), labels=LISTS)) == content(expected())
    assert content(read_frame(SERIES[kind](TITLES), labels=SERIES[kind](JOINED))) == content(expected())


@pytest.mark.parametrize("kind", FRAMES)
def test_labels_can_be_given_beside_a_frame(kind: str) -> None:
    frame = FRAMES[kind]({"headline": TITLES, "pages": COLUMNS["pages"]})
    assert content(read_frame(frame, text="headline", labels=LISTS)) == content(expected())


def test_cells_of_all_kinds() -> None:
    cells = pd.Series([["b", "a"], ("c",), {"e", "d"}, np.array(["f"]), None, np.nan, pd.NA])
    assert values_of(cells) == [["b", "a"], ["c"], ["d", "e"], ["f"], None, None, None]
    assert values_of(pd.Series([1, 2])) == [1, 2]
    assert values_of(pd.Series(["x", None], dtype="string")) == ["x", None]
    assert columns_of(pd.DataFrame({0: ["x"], "y": [np.float32(0.5)]})) == {"0": ["x"], "y": [0.5]}
    found = read_frame({"title": ["x", "y"], "labels": [[1, 2], [3]]})
    assert list(found.labels.uids) == ["1", "2", "3"]


def test_label_texts_and_ids() -> None:
    for texts in (
        {"dog": "the dog", "cat": "the cat"},
        pl.DataFrame({"id": ["dog", "cat"], "name": ["the dog", "the cat"]}),
    ):
        found = read_frame(pd.DataFrame(COLUMNS), text="headline", labels="tags", label_texts=texts)
        assert list(found.labels.uids) == ["dog", "cat"]
        assert found.labels.titles() == ["the dog", "the cat"]
    named = read_frame({"headline": ["a", "b"], "tags": ["x", "y"], "key": ["k1", "k2"]}, text="headline", id="key")
    assert list(named.train.documents.uids) == ["k1", "k2"]


def test_a_model_remembers_the_columns_of_a_frame() -> None:
    """Asked with a frame it reads what it was trained on, and an id is not needed."""
    frame = pd.DataFrame({"headline": TITLES, "blurb": TITLES[::-1], "tags": JOINED, "id": range(4)})
    model = longtail.train(frame, recipe="tiny", text={"headline": 2, "blurb": 1}, labels="tags")
    assert model.columns is not None
    assert model.columns.text == ("headline", "blurb")
    assert model.columns.weights == (2.0, 1.0)
    asked = pl.DataFrame({"other words": ["hen"], "blurb": ["barks"], "headline": ["dog"]})
    assert model.predict(asked, k=1) == model.predict([{"headline": "dog", "blurb": "barks"}], k=1)
    with pytest.raises(DataError, match="no column 'headline', which is the text of the training data"):
        model.predict(asked.select("blurb"))
    assert model.predict(pd.Series(["dog"]), k=1)[0][0].label == "dog"


def test_texts_alone_leave_no_columns() -> None:
    model = longtail.train(TITLES, labels=LISTS, recipe="tiny")
    assert model.columns is None
    assert model.predict({"headline": ["a dog barks"]}, k=1)[0][0].label == "dog"
    beside = longtail.train({"headline": TITLES, "pages": [1, 2, 3, 4]}, labels=LISTS, recipe="tiny", text="headline")
    assert beside.columns is not None
    assert (beside.columns.text, beside.columns.labels) == (("headline",), None)


def test_large_frames_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "PART", 3)
    for make in FRAMES.values():
        found = read_frame(make({"headline": TITLES * 3}), labels=LISTS * 3)
        assert len(found.train) == 9
        assert list(found.train.documents.uids[:3]) == ["train-0", "train-1", "train-3"]


def test_several_text_columns_become_fields() -> None:
    frame = pd.DataFrame({"title": ["cat"], "content": [None], "tags": ["a"]})
    assert documents_of(frame).fields == {"title": ["cat"], "content": [""]}
    assert read_frame(frame, text=["title", "content"]).train.documents.fields.keys() == {"title", "content"}


@pytest.mark.parametrize(
    ("given", "options", "message", "hint"),
    [
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), {}, "no labels column among 'a' (e.g. 'x')", "labels='COLUMN'"),
        (pd.DataFrame({"a": ["x"], "tags": ["y"]}), {"text": "b"}, "no column 'b'", "text='COLUMN'"),
        (
            pd.DataFrame({"A name": ["red shoe", "big cup"], "text": ["it is red", "it is big"], "tags": ["y", "z"]}),
            {},
            "two columns could be the text: 'A name'",
            "text='A name', or text='A name,text' for all",
        ),
        (pl.DataFrame({"a": ["x"], "tags": ["y,z"]}), {}, "holds commas, as in 'y,z'", "separator=','"),
        (pd.DataFrame({"a": ["x", "y"], "tags": [["y"], [0.5]]}), {}, "row 1: column 'tags' holds 0.5", "a list of"),
        (pd.DataFrame({"a": [], "tags": []}), {}, "no rows", ""),
        (
            pd.DataFrame([["x", "y"]], columns=["tags", "tags"]),
            {},
            "two columns are called 'tags'",
            "a name of its own",
        ),
        (pa.table([["x"], ["y"]], names=["tags", "tags"]), {}, "two columns are called 'tags'", "a name of its own"),
        (pd.Series(["x", "y"]), {"labels": [["a"]]}, "2 texts and 1 labels", "as many labels as texts"),
        ({"title": ["x"], "tags": ["a", "b"]}, {}, "1 in 'title', 2 in 'tags'", "a cell per row"),
        (["x", 5], {"labels": [["a"], ["b"]]}, "text 1 is 5, expected a string", "list of strings"),
        ([{"title": "x", "tags": "a"}, "y"], {}, "row 1 is 'y', expected a dict", "dicts"),
        (np.ones((3, 4)), {"labels": [["a"]] * 3}, "an array of shape (3, 4)", "an array of texts"),
        (pl.LazyFrame({"title": ["x"]}), {"labels": [["a"]]}, "LazyFrame of polars", ".collect()"),
        (5, {}, "5 is no table", "give a frame"),
    ],
)
def test_what_is_wrong_is_said(given: Any, options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(DataError) as problem:
        read_frame(given, **options)
    assert message in problem.value.message
    assert hint in problem.value.hint
    assert "--" not in problem.value.hint


# ---- predictions ----

ASKED = ["the cat", "", "a dog and a hen"]


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Predictor:
    return Predictor.open(tiny_run)


@pytest.mark.parametrize("kind", SERIES)
def test_series_are_answered_as_lists_are(kind: str, model: Predictor) -> None:
    assert model.predict(SERIES[kind](ASKED), k=2) == model.predict(ASKED, k=2)


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_are_answered_as_lists_are(kind: str, model: Predictor) -> None:
    frame = FRAMES[kind]({"headline": ASKED, "pages": [1, 2, 3]})
    assert model.predict(frame, k=2, text="headline") == model.predict(ASKED, k=2)


def rows_of(model: Predictor) -> list[dict[str, Any]]:
    """What a long frame holds."""
    return [
        {"row": row, "label": one.label, "name": one.name, "score": one.score, "rank": rank}
        for row, answer in enumerate(model.predict(ASKED, k=2))
        for rank, one in enumerate(answer, 1)
    ]


def test_pandas_comes_back_with_its_index(model: Predictor) -> None:
    frame = pd.DataFrame({"title": ASKED, "pages": [1, 2, 3]}, index=pd.Index(["x", "y", "z"], name="key"))
    found = model.predict(frame, k=2, as_frame=True)
    assert isinstance(found, pd.DataFrame)
    assert found.index.tolist() == ["xyz"[row["row"]] for row in rows_of(model)]
    assert found.index.name == "key"
    assert "y" not in found.index  # nothing can be said of an empty text
    assert [
        {"row": "xyz".index(key), **row} for key, row in zip(found.index, found.to_dict("records"), strict=True)
    ] == (rows_of(model))
    pd.testing.assert_frame_equal(model.predict(frame["title"], k=2, as_frame=True), found)
    assert frame.join(found).loc["z", "label"].tolist() == ["id-dog", "id-hen"]


def test_polars_and_arrow_come_back_with_row_numbers(model: Predictor) -> None:
    found = model.predict(pl.DataFrame({"title": ASKED}), k=2, as_frame=True)
    assert isinstance(found, pl.DataFrame)
    assert found.to_dicts() == rows_of(model)
    table = model.predict(pa.table({"title": ASKED}), k=2, as_frame=True)
    assert isinstance(table, pa.Table)
    assert table.to_pylist() == rows_of(model)


def test_ids_of_the_user_come_back() -> None:
    columns = {"sku": [7, 8], "headline": ["the cat", "a dog"], "tags": ["cat", "dog|pet"]}
    model = longtail.train(columns, recipe="tiny", id="sku")
    for make in FRAMES.values():
        found = model.predict(make({"headline": ["dog", "cat"], "SKU": [1, 2]}), k=5, as_frame="polars")
        assert found.columns == ["row", "id", "label", "name", "score", "rank"]
        assert found["id"].to_list() == [1 if row == 0 else 2 for row in found["row"]]
        assert set(found["row"]) == {0, 1}
    assert "id" not in model.predict(["dog"], as_frame=True)
    assert "id" not in model.predict(pd.Series(["dog"]), as_frame=True)


def test_weights_of_a_file_may_be_a_dict(tmp_path: Path) -> None:
    pd.DataFrame({"a": ["x y"], "b": ["z"], "tags": ["t"]}).to_csv(tmp_path / "d.csv", index=False)
    columns = longtail.read(tmp_path / "d.csv", text={"a": 2, "b": 1}).columns
    assert columns is not None
    assert (columns.text, columns.weights) == (("a", "b"), (2.0, 1.0))


def test_frames_have_test_documents_and_vocabularies(tmp_path: Path) -> None:
    """So that a model can be measured on another frame, and no vocabulary is passed over in silence."""
    train = pd.DataFrame({"title": ["the cat", "a dog"], "tags": ["cat", "dog"]})
    test = pd.DataFrame({"title": ["one dog", "cats", "an owl"], "tags": ["dog", "cat", "owl"]})
    model = longtail.train(train, recipe="tiny")
    with pytest.raises(ConfigError, match="a DataFrame to be measured on") as caught:
        longtail.evaluate(model, test)
    assert "test_file=" in (caught.value.hint or "")
    data = longtail.read(train, test_file=test, columns=model.columns)
    assert longtail.evaluate(model, data)["n_test"] == 3
    test.to_csv(tmp_path / "test.csv", index=False)
    assert longtail.read(train, test_file=tmp_path / "test.csv").digest == data.digest
    assert longtail.read(train, test_file=test, test=False).test is None
    (tmp_path / "v.tsv").write_text("<cat>\tcats\n<dog>\tdogs\n<owl>\towls\n")
    known = longtail.read(train, test_file=test, vocabulary=tmp_path / "v.tsv")
    assert (list(known.labels.uids), known.vocabulary) == (["cat", "dog", "owl"], "v.tsv")
    assert known.need_test().targets.nnz == 3


def test_a_frame_of_another_library_can_be_asked_for(model: Predictor) -> None:
    assert model.predict(pd.Series(ASKED), k=2, as_frame="polars").to_dicts() == rows_of(model)
    assert model.predict(ASKED, k=2, as_frame=True).reset_index().to_dict("records") == rows_of(model)
    assert model.predict(ASKED, k=2, as_frame="arrow").to_pylist() == rows_of(model)
    assert model.predict("the cat", k=1, as_frame=True)["label"].tolist() == ["id-cat"]


@pytest.mark.parametrize(
    "given", [[], pd.Series([], dtype="str"), pl.DataFrame({"title": []}), pa.table({"title": []})]
)
def test_no_documents_no_rows(given: Any, model: Predictor) -> None:
    assert model.predict(given) == []
    found = model.predict(given, as_frame=True)
    assert len(found) == 0
    assert model.predict([""], as_frame=True).columns.tolist() == ["label", "name", "score", "rank"]


def test_an_unknown_kind_is_refused(model: Predictor) -> None:
    unknown: Any = "panda"
    with pytest.raises(ConfigError, match="expected one of pandas, polars, arrow"):
        model.predict(ASKED, as_frame=unknown)


def test_a_missing_library_is_named(model: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtra, match="needs the package 'polars'"):
        model.predict(ASKED, as_frame="polars")


def test_no_library_is_imported_that_was_not_given(tiny_run: Path) -> None:
    code = (
        "import sys, longtail; from longtail import Predictor; model = Predictor.open(sys.argv[1])\n"
        "model.predict(['cat']); model.predict([{'title': 'cat'}]); longtail.read(['a'], labels=[['b']])\n"
        "assert not {'pandas', 'polars', 'pyarrow', 'sklearn', 'IPython'} & set(sys.modules)\n"
        "import polars; model.predict(polars.Series(['cat']), as_frame=True)\n"
        "assert not {'pandas', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tiny_run)], check=True)
