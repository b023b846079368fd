"""What the columns of a table mean: found, said or remembered, never guessed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data.columns import Columns
from longtail.data.find_columns import Asked, Found, find_columns
from longtail.data.inputs import documents_in_blocks
from longtail.data.read import read
from longtail.data.table_files import open_table
from longtail.errors import ConfigError, DataError

SHOP = {
    "sku": ["A-17", "B-2", "C-300", "D-4"],
    "product_name": ["Red running shoe", "Blue cup", "Oak table for six", "Running socks"],
    "price": ["12.99", "3.50", "1,200.00", "$4"],
    "brand": ["Acme", "Acme", "Umbra", "Acme"],
    "description": ["A light shoe for the road", "Holds tea or coffee", "Seats six people", "Keeps feet dry"],
    "keywords": ["shoes|running", "kitchen", "furniture", "running"],
    "created_at": ["2026-01-03 10:00", "Mon 5 January 2026", "2026-02-07T11:00:00Z", "7/8/2026 3 pm"],
}


@dataclass(frozen=True)
class Rows:
    """A table in memory."""

    values: Mapping[str, Sequence[Any]]

    def columns(self) -> list[str]:
        return list(self.values)

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        return enumerate(zip(*(self.values[name] for name in wanted), strict=True), 1)

    def error(self, line: int | None, message: str, hint: str) -> DataError:
        return DataError(message if line is None else f"row {line}: {message}", hint, file="shop")


def find(values: Mapping[str, Sequence[Any]], **asked: Any) -> Found:
    return find_columns(Rows(values), Asked(**asked))


def fails(values: Mapping[str, Sequence[Any]], **asked: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        find(values, **asked)
    assert caught.value.hint
    return caught.value


# ---- the shop ----


def test_a_shop_with_two_texts_is_asked_which() -> None:
    error = fails(SHOP)
    assert error.message == (
        "shop: two columns could be the text: 'product_name' (e.g. 'Red running shoe'), "
        "'description' (e.g. 'A light shoe for the road')"
    )
    assert "--text product_name, or --text product_name,description" in error.hint


def test_the_line_says_what_is_read_and_what_is_not() -> None:
    found = find(SHOP, text="product_name", id="sku")
    columns = replace(found.columns, separator="|")
    assert columns.line() == (
        "text: product_name; labels: keywords (split at |); id: sku; ignored: price, brand, description, created_at"
    )
    assert found.notes == (
        "the column 'description' (e.g. 'A light shoe for the road') looks like text and is not read; "
        "--text product_name,description reads it too",
    )
    both = find(SHOP, text="product_name:2,description").columns
    assert (both.text, both.weights, both.maybe_id) == (("product_name", "description"), (2.0, 1.0), "sku")
    assert both.line() == (
        "text: product_name:2, description; labels: keywords; id: none, rows are numbered (unless --id sku); "
        "ignored: sku, price, brand, created_at"
    )
    assert find(SHOP, text=["description"], id="").columns.maybe_id is None


def test_two_labels_columns_are_asked_for() -> None:
    error = fails({"title": ["A cup of tea"], "category": ["kitchen"], "keywords": ["cup|tea"]})
    assert "two columns could be the labels: 'category' (e.g. 'kitchen'), 'keywords' (e.g. 'cup|tea')" in error.message
    assert "--labels category" in error.hint
    assert find({"title": ["tea"], "category": [""], "keywords": ["cup"]}).columns.labels == "keywords"
    named = find({"title": ["tea"], "category": ["Home and garden"], "keywords": ["cup"]}, labels="keywords")
    assert named.columns.text == ("title",)
    assert "'category'" in named.notes[0]


def test_two_ids_are_asked_for() -> None:
    assert "could be the id" in fails({"title": ["tea"], "labels": ["cup"], "uid": ["1"], "id": ["2"]}).message
    assert find({"title": ["tea"], "labels": ["cup"], "uid": ["1"], "id": ["2"]}, id="id").columns.id == "id"


# ---- what looks like text ----


def test_known_names_are_all_read_if_nothing_else_looks_like_text() -> None:
    found = find({"Description": ["long", "x"], "price": [1.5, 2], "Title": ["short", "y"], "labels": ["a", "b"]})
    assert found.columns.text == ("title", "description")
    assert found.places == {"title": "Title", "description": "Description", "labels": "labels"}
    assert found.notes == ()


def test_the_only_column_that_looks_like_text_is_read() -> None:
    found = find({name: SHOP[name] for name in SHOP if name != "description"})
    assert found.columns.text == ("product_name",)


@pytest.mark.parametrize(
    ("values", "is_text"),
    [
        (["a red shoe", "a blue cup"], True),
        (["красная обувь", "синяя чашка"], True),
        (["1984", "2001"], False),
        ([1984, 2001.5], False),
        (["2026-01-03 10:00:00", "2026-01-03 11:00:00"], False),
        (["Mon 5 January 2026", "Tue 6 January 2026"], False),
        (["12.99 EUR", "3.50 EUR"], False),
        (["https://a.example/x-y", "https://a.example/z"], False),
        (["New Balance", "New Balance", "New Balance"], False),
        ([["a b", "c d"], ["e f"]], False),
        ([None, ""], False),
        ([True, False], False),
    ],
)
def test_what_looks_like_text(values: list[Any], is_text: bool) -> None:
    table = {"title": ["one", "two", "three"][: len(values)], "other": values, "labels": ["x"] * len(values)}
    if is_text:
        assert "two columns could be the text" in fails(table).message
    else:
        assert find(table).columns.text == ("title",)


def test_numbers_under_a_known_name_are_no_text() -> None:
    table = {"title": ["words"] * 12, "body": list(map(str, range(12))), "labels": ["x"] * 12}
    assert find(table).columns.text == ("title",)
    assert find({"title": list(map(str, range(12))), "labels": ["x"] * 12}).columns.text == ("title",)


@settings(max_examples=50, deadline=None)
@given(st.permutations(list(SHOP)), st.booleans(), st.sampled_from(["", "product_name", "product_name:2,description"]))
def test_neither_order_nor_case_matters(order: list[str], upper: bool, text: str) -> None:
    table = {name.upper() if upper else name: SHOP[name] for name in order}
    if not text:
        error = fails(table).message.lower()
        assert "'product_name' (e.g. 'red running shoe')" in error
        assert "'description'" in error
        return
    found = find(table, text=text, id="sku")
    read = [found.places[name].lower() for name in found.columns.text]
    assert read == [part.partition(":")[0] for part in text.split(",")]
    assert str(found.columns.labels).lower() == "keywords"
    assert {name.lower() for name in found.columns.ignored} == set(SHOP) - {*read, "keywords", "sku"}


def test_a_name_with_a_colon_is_a_name() -> None:
    table = {"dc:title": ["x"], "dc:2": ["y"], "labels": ["a"]}
    assert find(table, text="dc:title").columns.text == ("dc:title",)
    assert find(table, text="dc:2").columns.text == ("dc:2",)
    assert find(table, text="dc:2:3").columns.weights == (3.0,)
    for weight in ("0", "-1", "inf", "nan"):
        with pytest.raises(ConfigError, match="above 0"):
            find(table, text=f"dc:title:{weight}")


# ---- what is remembered ----

TRAINED = Columns(("product_name", "description"), (2.0, 1.0), "keywords", "sku", "|")


def test_remembered_columns_are_read_and_must_agree() -> None:
    found = find(SHOP, remembered=TRAINED)
    assert found.columns == TRAINED
    assert found.columns.ignored == ("price", "brand", "created_at")
    assert find(SHOP, remembered=TRAINED, text="description,product_name:2", labels="Keywords").columns == TRAINED
    for asked, words in (
        ({"text": "brand"}, ["--text says 'brand'", "product_name:2, description"]),
        ({"text": "product_name,description:3"}, ["description:3"]),
        ({"labels": "brand"}, ["--labels says 'brand'", "'keywords'"]),
        ({"separator": ";"}, ["--separator says ';'", "'|'"]),
    ):
        with pytest.raises(ConfigError) as caught:
            find(SHOP, remembered=TRAINED, **asked)
        assert all(word in caught.value.message for word in words), caught.value.message


@pytest.mark.parametrize("gone", ["product_name", "keywords", "sku"])
def test_a_remembered_column_that_is_not_there_is_an_error(gone: str) -> None:
    error = fails({name: values for name, values in SHOP.items() if name != gone}, remembered=TRAINED)
    assert f"no column '{gone}', which is the" in error.message
    assert "'created_at'" in error.message


def test_another_id_is_a_contradiction_and_none_is_not() -> None:
    with pytest.raises(ConfigError, match="brand"):
        find(SHOP, remembered=TRAINED, id="brand")
    assert find(SHOP, remembered=TRAINED, id="").columns.id is None
    without = {name: values for name, values in SHOP.items() if name not in ("sku", "keywords")}
    found = find_columns(Rows(without), Asked(remembered=TRAINED, id=""), labelled=False)
    assert found.columns.text == TRAINED.text
    assert "keywords" not in found.places


def test_columns_are_saved_and_joined() -> None:
    assert Columns.loaded(TRAINED.saved()) == TRAINED
    other = Columns(("brand",), (1.0,), "keywords", None, None)
    assert TRAINED.joined(other) == Columns(("product_name", "description", "brand"), (2, 1, 1), "keywords", None, "|")
    with pytest.raises(DataError, match=r"'keywords \(split at \|\)' and 'tags' are different labels"):
        TRAINED.joined(replace(other, labels="tags"))
    TRAINED.check_fit(replace(TRAINED, text=("description", "product_name", "brand"), weights=(1.0, 1.0, 1.0)))
    with pytest.raises(DataError, match="'product_name:2, description', the data was read for 'brand'"):
        TRAINED.check_fit(other)


# ---- torn files ----


def put(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = put(tmp_path / "d.csv", "\ufeffproduct_name,keywords\na red shoe,x|y\na blue cup,y\n")
    columns = read(path).columns
    assert columns is not None
    assert columns.line() == (
        "text: product_name; labels: keywords (split at |); id: none, rows are numbered; ignored: nothing"
    )


def test_a_name_twice_is_an_error(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pytest.raises(DataError, match="'product_name' twice"):
        read(put(tmp_path / "d.csv", "product_name,product_name,keywords\na,b,c\n"))
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "d.parquet")
    with pytest.raises(DataError, match="two columns are called 'text'"):
        read(tmp_path / "d.parquet")


@pytest.mark.parametrize(
    ("asked", "said"), [({"id": "sku"}, "name one of them: --id"), ({"labels": "sku"}, "name one of them: --labels")]
)
def test_what_is_asked_for_is_not_said_to_be_of_the_training_data(
    asked: dict[str, str], said: str, tmp_path: Path
) -> None:
    table, known = open_table(put(tmp_path / "d.csv", "title\na red shoe\n")), Columns(("title",), (1.0,), None)
    with pytest.raises(DataError, match=r"no column 'sku'; the columns are 'title'") as caught:
        find_columns(table, Asked(remembered=known, **asked), labelled="labels" in asked)
    assert said in caught.value.hint


def test_columns_without_a_name(tmp_path: Path) -> None:
    """One is left as it is (the row numbers of pandas); several are the delimiters that spreadsheets leave."""
    one = read(put(tmp_path / "d.csv", ",title,labels\n0,a red shoe,x\n1,a blue cup,y\n"))
    assert one.columns is not None
    assert one.columns.ignored == ("",)
    several = put(tmp_path / "e.csv", "title,labels,,\na red shoe,x,,\na blue cup,y,, \n")
    columns = read(several).columns
    assert columns is not None
    assert columns.ignored == ()
    assert [list(block.carried) for block in documents_in_blocks(str(several), carry=True)] == [["title", "labels"]]
    with pytest.raises(DataError, match="line 3: 'here' stands in column 4"):
        read(put(tmp_path / "f.csv", "title,labels,,\na red shoe,x,,\na blue cup,y,,here\n"))
    with pytest.raises(DataError, match="names no column"):
        read(put(tmp_path / "g.csv", ",,\na,b,c\n"))


def test_parquet_columns_without_a_name(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=["title", "", ""]), tmp_path / "d.parquet")
    with pytest.raises(DataError, match="two columns are called ''"):
        read(tmp_path / "d.parquet")


def test_a_column_that_python_does_not_know_may_be_left_unread(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = {"title": ["a red shoe", "a blue cup"], "labels": ["x", "y"]}
    for number, (value, kind) in enumerate(((1, pa.timestamp("us", tz="Nowhere/Zone")), (2**60, pa.timestamp("us")))):
        when = pa.array([value, 1], pa.int64()).cast(kind)
        pq.write_table(pa.table({**texts, "when": when}), path := tmp_path / f"{number}.parquet")
        columns = read(path).columns
        assert columns is not None
        assert (columns.text, columns.ignored) == (("title",), ("when",))
        assert [list(block.documents.fields) for block in documents_in_blocks(str(path))] == [["title"]]
        with pytest.raises(DataError, match="the column 'when'"):
            read(path, text="when")
    pq.write_table(pa.table({**texts, "tags": when}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match="two columns could be the labels"):
        read(tmp_path / "d.parquet")


def test_a_delimiter_between_quotes_is_none(tmp_path: Path) -> None:
    data = read(put(tmp_path / "d.csv", '"title, long, name, here";labels\na red shoe;x\na blue cup;y\n'))
    assert data.columns is not None
    assert (data.columns.text, data.columns.labels) == (("title, long, name, here",), "labels")


def test_empty_columns_are_nothing(tmp_path: Path) -> None:
    data = read(put(tmp_path / "d.csv", "product_name,summary,tags,keywords\na red shoe,,,x\na blue cup,,,y\n"))
    assert data.columns is not None
    assert (data.columns.text, data.columns.labels) == (("product_name",), "keywords")
    assert data.columns.ignored == ("summary", "tags")


def test_text_that_the_test_file_lacks(tmp_path: Path) -> None:
    train = put(tmp_path / "tr.csv", "title,body,labels\na red shoe,light,x\na blue cup,small,y\n")
    test = put(tmp_path / "te.csv", "title,labels\na green cup,y\n")
    with pytest.raises(DataError, match=r"te.csv: no column 'body', which is the text of the training data.*'title'"):
        read(train, test_file=test)
    assert read(train, test_file=test, text="title").need_test().documents.fields == {"title": ["a green cup"]}


def test_test_documents_may_do_without_ids_and_have_other_case(tmp_path: Path) -> None:
    train = put(tmp_path / "tr.csv", "id,Title,labels\n1,a red shoe,x\n2,a blue cup,y\n")
    test = put(tmp_path / "te.csv", "LABELS,TITLE\ny,a green cup\n")
    held = read(train, test_file=test).need_test()
    assert list(held.documents.uids) == ["test-0"]
    assert held.documents.fields == {"title": ["a green cup"]}


def test_a_separator_that_only_test_needs(tmp_path: Path) -> None:
    """Training says nothing of separators: no cell of it holds two labels."""
    train = put(tmp_path / "tr.csv", "title,labels\na red shoe,x\na blue cup,y\n")
    test = put(tmp_path / "te.csv", "title,labels\na green cup,x|y\n")
    data = read(train, test_file=test)
    assert data.need_test().targets.toarray().tolist() == [[1, 1]]
    assert data.columns is not None
    assert data.columns.separator is None


def test_read_takes_id_and_its_old_name(tmp_path: Path) -> None:
    path = put(tmp_path / "d.csv", "key,title,labels\n7,a red shoe,x\n8,a blue cup,y\n")
    for data in (read(path, id="key"), read(path, uid="key")):
        assert list(data.train.documents.uids) == ["7", "8"]
