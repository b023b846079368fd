"""Documents to predict for: which lines are JSON, which fields are read, and which ids come back."""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

from longtail.data.columns import Columns
from longtail.data.dataset import Items
from longtail.data.inputs import documents_in_blocks, heading, read_documents
from longtail.data.table_files import open_table
from longtail.data.tables import IdLists
from longtail.errors import ConfigError, DataError

TRAINED = Columns(("product_name", "description"), (1.0, 1.0), "keywords", "sku", "|")
FIELDS = ("product_name", "description")


def piped(monkeypatch: pytest.MonkeyPatch, lines: str, **options: Any) -> Items:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    return read_documents("-", **options)


def test_json_lines_on_standard_input_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = '\n{"product_name": "cup", "sku": "B-2", "price": 3}\n\n"a shoe"\n{"description": null, "sku": 7}\n'
    found = piped(monkeypatch, lines, columns=TRAINED, fields=FIELDS)
    assert found.fields == {"product_name": ["cup", "a shoe", ""], "description": ["", "", ""]}
    assert list(found.uids) == ["B-2", "1", "7"]
    assert piped(monkeypatch, '\ufeff{"title": "cup"}\n', fields=["title"]).fields == {"title": ["cup"]}


def test_ids_of_json_lines_are_texts_or_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ['{"title": "a", "uid": null}', '{"title": "b", "uid": 17}', '{"title": "c", "uid": null, "id": "x"}']
    assert list(piped(monkeypatch, "\n".join(lines), fields=["title"]).uids) == ["0", "17", "x"]
    for wrong in ('["a"]', '{"a": 1}', "true", "NaN"):
        with pytest.raises(DataError, match="line 1: 'uid' holds"):
            piped(monkeypatch, f'{{"title": "a", "uid": {wrong}}}\n', fields=["title"])


def test_fields_of_json_lines_are_found_as_columns_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any case; a model remembers the column Title as title."""
    lines, said = '{"Product_Name": "cup", "SKU": "B-2", "Price": "3"}\n', list[Columns]()
    found = piped(monkeypatch, lines, columns=TRAINED, fields=FIELDS, on_columns=said.append)
    assert found.fields == {"product_name": ["cup"], "description": [""]}
    assert list(found.uids) == ["B-2"]
    assert (said[0].id, said[0].ignored) == ("SKU", ("Price",))
    assert list(piped(monkeypatch, lines, columns=TRAINED, fields=FIELDS, id="sku").uids) == ["B-2"]
    assert piped(monkeypatch, '{"Title": "cup", "ID": "x"}\n').fields == {"Title": ["cup"]}


def test_an_id_that_is_asked_for_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = '{"title": "a", "sku": "x"}\n{"title": "b", "sku": null}\n'
    assert list(piped(monkeypatch, lines, id="sku", fields=["title"]).uids) == ["x", "1"]
    with pytest.raises(DataError, match="line 3: the object has title, and no 'sku', which --id names") as caught:
        piped(monkeypatch, lines + '{"title": "c"}\n', id="sku", fields=["title"])
    assert caught.value.hint == 'write {"sku": "...", "title": "..."} on every line'


@pytest.mark.parametrize("lines", ['[\n  {"title": "cup"}\n]\n', '[{"title": "cup"}]\n'])
def test_a_json_array_is_to_be_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: str) -> None:
    with pytest.raises(DataError) as caught:
        piped(monkeypatch, lines, fields=["title"])
    assert "jq -c '.[]'" in caught.value.hint
    (tmp_path / "d.jsonl").write_text(lines)
    with pytest.raises(DataError) as caught:
        open_table(tmp_path / "d.jsonl").columns()
    assert "jq -c '.[]'" in caught.value.hint


def test_plain_lines_stay_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ['"Emma" by Austen', "{x} is a set", "1984", "[update] a fix", "true"]
    for first in texts:
        found = piped(monkeypatch, f"{first}\n{{a, b}} is a set\n", columns=TRAINED, fields=FIELDS)
        assert found.fields == {"product_name": [first, "{a, b} is a set"]}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('{"product_name": "cup"}\na shoe\n', ["line 2", "not valid JSON", "'a shoe'"]),
        ('"a cup"\na shoe\n', ["line 2", "not valid JSON"]),
        ('{"product_name": "cup"\n', ["line 1", "not valid JSON"]),
        ("{\n", ["line 1", "not valid JSON"]),
        ("[\n", ["line 1", "not valid JSON"]),
        ('[{"product_name": "cup"}]\n', ["line 1", "neither an object nor a string"]),
        ('{"product_name": "cup"}\n17\n', ["line 2", "17 is neither"]),
        ('{"name": "cup", "price": 3}\n', ["line 1", "the object has name, price; the model reads product_name, desc"]),
        ("{}\n", ["line 1", "the object has nothing"]),
        ('{"product_name": ["cup"]}\n', ["line 1", "'product_name' holds ['cup']"]),
        ('a shoe\na cup\n{"product_name": "cup"}\n', ["line 3", "a JSON object, where lines of text came before"]),
    ],
)
def test_json_that_cannot_be_read_names_the_line(monkeypatch: pytest.MonkeyPatch, lines: str, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        piped(monkeypatch, lines, columns=TRAINED, fields=FIELDS)
    for word in ["standard input", *words]:
        assert word in caught.value.message
    assert caught.value.hint


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), min_size=1))
@example(['{"', '"'])
def test_every_text_comes_back_from_json(texts: list[str]) -> None:
    for values in ([{"title": text} for text in texts], texts):
        with pytest.MonkeyPatch.context() as patch:
            found = piped(patch, "".join(json.dumps(value) + "\n" for value in values), fields=["title"])
        assert found.fields == {"title": texts}


def test_a_model_without_columns_takes_title_or_text(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"text": "cup", "id": 5}\n{"title": "shoe", "uid": "s"}\n')
    found = read_documents(str(tmp_path / "d.jsonl"), fields=["title"])
    assert found.fields == {"title": ["cup", "shoe"]}
    assert list(found.uids) == ["5", "s"]
    (tmp_path / "d.jsonl").write_text('{"headline": "cup"}\n')
    assert read_documents(str(tmp_path / "d.jsonl"), "headline", fields=["title"]).fields == {"headline": ["cup"]}


def test_tables_are_read_as_training_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new.csv"
    path.write_text("price,sku,description,PRODUCT_NAME\n3,B-2,holds tea,blue cup\n9,A-1,is light,red shoe\n")
    told: list[Columns] = []
    found = read_documents(str(path), columns=TRAINED, fields=FIELDS, on_columns=told.append)
    assert found.fields == {"product_name": ["blue cup", "red shoe"], "description": ["holds tea", "is light"]}
    assert list(found.uids) == ["B-2", "A-1"]
    assert told[0].line().endswith("id: sku; ignored: price")
    with pytest.raises(ConfigError, match=r"--text says 'description'.*'product_name, description'"):
        read_documents(str(path), "description", columns=TRAINED)
    with pytest.raises(ConfigError, match="--text says"):
        piped(monkeypatch, '"x"\n', text="description", columns=TRAINED, fields=FIELDS)
    path.write_text("sku,name\n1,cup\n")
    with pytest.raises(DataError, match=r"no column 'product_name', which is the text.*'sku', 'name'"):
        read_documents(str(path), columns=TRAINED)
    path.write_text("product_name,description\ncup,tea\n")
    with pytest.raises(DataError, match="no column 'sku', which is the id") as caught:
        read_documents(str(path), columns=TRAINED)
    assert "--id ''" in caught.value.hint
    assert list(read_documents(str(path), columns=TRAINED, id="").uids) == ["0"]


def test_a_heading_has_the_id_of_the_user(tmp_path: Path) -> None:
    assert heading(Items(["B-2"], {"product_name": ["cup"]}), 0) == "B-2  cup"
    assert heading(Items(["0"], {"product_name": ["cup"]}), 0) == "cup"
    assert heading(Items(["B-2"], {"product_name": [""]}), 0) == "B-2"
    assert heading(Items(["B\n2"], {"product_name": ["cup\r\nof\u2028tea\r"]}), 0) == "B 2  cup of tea"


# ---- blocks ----


def test_blocks_are_of_the_size_asked_for(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"".join(b"text %d\r\n" % n for n in range(7)))
    blocks = list(documents_in_blocks(str(tmp_path / "in.txt"), size=3, carry=True))
    assert [list(block.documents.uids) for block in blocks] == [["0", "1", "2"], ["3", "4", "5"], ["6"]]
    assert [block.first for block in blocks] == [0, 3, 6]
    assert blocks[2].carried == {"text": ["text 6"]}
    assert blocks[-1].share == 1
    assert read_documents(str(tmp_path / "in.txt")).fields == {"title": [f"text {n}" for n in range(7)]}


def test_the_share_is_that_of_the_bytes(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "in.csv.gz", "wt") as file:
        numbers = random.Random(0)
        file.write("title\n")
        file.writelines(f"{numbers.getrandbits(400):x}\n" for _ in range(9000))
    shares = [block.share or 0 for block in documents_in_blocks(str(tmp_path / "in.csv.gz"), "title", size=1000)]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert 0.2 < shares[3] < 0.8
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"title": ["x"] * 8}), tmp_path / "in.parquet")
    blocks = documents_in_blocks(str(tmp_path / "in.parquet"), size=2)
    assert [(block.first, len(block.documents)) for block in blocks] == [(0, 2), (2, 2), (4, 2), (6, 2)]


def test_vectors_come_in_blocks(tmp_path: Path) -> None:
    dense = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.save(tmp_path / "x.npy", dense)
    sparse.save_npz(tmp_path / "x.npz", sparse.csr_array(dense))
    for name in ("x.npy", "x.npz"):
        blocks = list(documents_in_blocks(str(tmp_path / name), size=2))
        assert [list(block.documents.uids) for block in blocks] == [["0", "1"], ["2", "3"], ["4"]]
        found: Any = blocks[2].documents.vectors
        np.testing.assert_array_equal(found if name == "x.npy" else found.toarray(), dense[4:])


def test_lists_of_ids_are_split_as_any_block_shows(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("title,known\nx,a\ny,\nz,a;b\nw,c\nv,a;c\n")
    known = IdLists("Known", "--known-field")
    blocks = list(documents_in_blocks(str(tmp_path / "in.csv"), "title", lists=[known], size=2))
    assert [block.lists["Known"] for block in blocks] == [[["a"], []], [["a", "b"], ["c"]], [["a", "c"]]]


def test_lists_of_ids_of_json_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [{"title": "x", "known": ["a", 1]}, *({"title": "y"} for _ in range(3)), {"title": "v", "known": "b"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def found(column: str) -> list[list[str]]:
        lists = [IdLists(column, "--known-field")]
        blocks = documents_in_blocks(str(tmp_path / "in.jsonl"), fields=["title"], lists=lists, size=2)
        return [ids for block in blocks for ids in block.lists[column]]

    assert found("known") == [["a", "1"], [], [], [], ["b"]]
    with pytest.raises(DataError, match=r"no column 'knwon'; the columns are 'title', 'known'"):
        found("knwon")
    (tmp_path / "in.jsonl").write_text("plain text\n")
    with pytest.raises(DataError, match="not valid JSON"):
        found("known")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"plain text\n")))
    with pytest.raises(DataError, match="lines of text have no field 'known'"):
        list(documents_in_blocks("-", lists=[IdLists("known", "--known-field")]))


def test_a_wrong_cell_is_an_error_after_the_rows_before_it(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table({"title": ["x"] * 6, "known": arrow.array([["a"]] * 5 + [[None]], arrow.list_(arrow.string()))}),
        tmp_path / "in.parquet",
    )
    blocks = documents_in_blocks(str(tmp_path / "in.parquet"), lists=[IdLists("known", "--known-field")])
    done: list[int] = []
    with pytest.raises(DataError, match="row 6: column 'known' holds None"):
        done.extend(len(block.documents) for block in blocks)
    assert sum(done) == 5
