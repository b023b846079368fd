"""JSON lines, CSV, TSV and Parquet: what is found by itself, what round-trips, and what garbage gets."""

from __future__ import annotations

import builtins
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.find_columns import Asked
from longtail.data.table_files import open_table
from longtail.data.tables import is_table, read_table, texts_of, write_table
from longtail.errors import ConfigError, DataError, MissingExtra, RunError


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def labels_of(data: Dataset, row: int, side: str = "train") -> list[str]:
    split = data.train if side == "train" else data.need_test()
    return [data.labels.uids[label] for label in split.targets[[row]].indices]


def fails(path: Path, asked: Asked | None = None, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        read_table(path, asked, **options)
    assert caught.value.hint
    return str(caught.value)


# ---- columns and labels that are found by themselves ----


def test_csv(tmp_path: Path) -> None:
    path = put(tmp_path / "titles.csv", 'text,labels\n"a cat, asleep",cat|animal\na dog,dog\n\n"two\nlines",\n')
    data = read_table(path)
    assert data.name == "titles"
    assert list(data.labels.uids) == ["animal", "cat", "dog"]
    assert data.labels.name(0) == "animal"
    assert data.train.documents.fields == {"text": ["a cat, asleep", "a dog", "two\nlines"]}
    assert list(data.train.documents.uids) == ["train-0", "train-1", "train-2"]
    assert [labels_of(data, row) for row in range(3)] == [["animal", "cat"], ["dog"], []]
    assert data.digest
    assert data.test is None


def test_a_byte_order_mark_windows_line_ends_and_semicolons(tmp_path: Path) -> None:
    path = put(tmp_path / "excel.csv", "\ufeffID;Title;Tags\r\n7;Äpfel;a|b\r\n8;Birnen;b\r\n".encode())
    data = read_table(path)
    assert list(data.train.documents.uids) == ["7", "8"]
    assert data.train.documents.fields == {"title": ["Äpfel", "Birnen"]}
    assert labels_of(data, 0) == ["a", "b"]


def test_json_lines(tmp_path: Path) -> None:
    rows = [
        {"uid": 5, "title": "one", "content": "more", "labels": ["b", "a", "a"]},
        {"uid": 6, "title": 10**400, "labels": [3]},
        {"uid": 9, "title": None, "content": "only", "labels": None},
    ]
    data = read_table(put(tmp_path / "d.jsonl", "\n".join(map(json.dumps, rows))))
    assert data.train.documents.fields == {"title": ["one", "1" + "0" * 400, ""], "content": ["more", "", "only"]}
    assert list(data.train.documents.uids) == ["5", "6", "9"]
    assert [labels_of(data, row) for row in range(3)] == [["a", "b"], ["3"], []]
    assert list(data.repairs.values()) == [1]


def test_gzip(tmp_path: Path) -> None:
    data = read_table(put(tmp_path / "d.csv.gz", gzip.compress(b"text,labels\nx,a\n", mtime=0)))
    assert data.name == "d"
    assert labels_of(data, 0) == ["a"]


@pytest.mark.parametrize("kind", ["list", "string", "number"])
def test_parquet(tmp_path: Path, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels = {"list": [["b", "a"], None], "string": ["b;a", ""], "number": [12, None]}[kind]
    pq.write_table(
        pa.table({"extra": [1.5, 2.5], "text": ["x", "1984"], "abstract": [None, "long"], "labels": labels}),
        tmp_path / "d.parquet",
    )
    data = read_table(tmp_path / "d.parquet")
    assert data.train.documents.fields == {"text": ["x", "1984"], "abstract": ["", "long"]}
    assert [labels_of(data, row) for row in range(2)] == [["12"] if kind == "number" else ["a", "b"], []]


def test_annif_tsv_without_header(tmp_path: Path) -> None:
    path = put(tmp_path / "corpus.tsv", 'A "quoted" title\t<http://x/p1> <http://x/p2>\nAnother\t<http://x/p2>\n')
    data = read_table(path)
    assert data.train.documents.fields["text"] == ['A "quoted" title', "Another"]
    assert labels_of(data, 0) == ["http://x/p1", "http://x/p2"]


@pytest.mark.parametrize(
    ("cells", "separator", "expected"),
    [
        (["a|b", "c"], None, [["a", "b"], ["c"]]),
        (["a; b ;;", "c"], None, [["a", "b"], ["c"]]),
        (["Paris, France|b", "c"], None, [["Paris, France", "b"], ["c"]]),
        (['["a", "b|c"]', "[]"], None, [["a", "b|c"], []]),
        (["<u:1> <u:2>", "<u:1>"], None, [["u:1", "u:2"], ["u:1"]]),
        (["a b", "c"], None, [["a b"], ["c"]]),
        (["a b", "c"], " ", [["a", "b"], ["c"]]),
        (["a,b", "c"], ",", [["a", "b"], ["c"]]),
        (["a,b", "c"], "", [["a,b"], ["c"]]),
        (["a|b;c", "d"], "|", [["a", "b;c"], ["d"]]),
    ],
)
def test_label_notations(tmp_path: Path, cells: list[str], separator: str | None, expected: list[list[str]]) -> None:
    path = put(tmp_path / "d.tsv", "text\tlabels\n" + "".join(f"x\t{cell}\n" for cell in cells))
    data = read_table(path, Asked(separator=separator))
    assert [labels_of(data, row) for row in range(2)] == expected


def test_columns_by_name(tmp_path: Path) -> None:
    path = put(tmp_path / "d.csv", "key,headline,story,section,title\n1,a,b,x|y,T\n2,c,d,y,U\n")
    data = read_table(path, Asked(text="headline,story", labels="section", id="key"))
    assert data.train.documents.fields == {"headline": ["a", "c"], "story": ["b", "d"]}
    assert list(data.train.documents.uids) == ["1", "2"]
    same = put(tmp_path / "e.csv", "Text,text,labels\na,b,x\n")
    assert read_table(same, Asked(text="Text,text")).train.documents.fields == {"Text": ["a"], "text": ["b"]}
    assert read_table(path, Asked(text=["headline", "title"], labels="section")).train.documents.fields == {
        "headline": ["a", "c"],
        "title": ["T", "U"],
    }


def test_known_text_columns_all_become_fields(tmp_path: Path) -> None:
    data = read_table(put(tmp_path / "d.csv", "Abstract,Text,Subjects\nlong,short,x\n"))
    assert data.train.documents.fields == {"text": ["short"], "abstract": ["long"]}


def test_the_only_other_column_is_the_text(tmp_path: Path) -> None:
    assert read_table(put(tmp_path / "d.csv", "utterance,labels\nhello,x\n")).train.documents.fields == {
        "utterance": ["hello"]
    }


def test_a_folder_with_test_and_labels(tmp_path: Path) -> None:
    folder = tmp_path / "LF-AmazonTitles-1.3M"
    put(folder / "train.csv", "text,labels\nx,b|a\ny,c\n")
    put(folder / "test.jsonl", '{"text": "z", "labels": ["a", "unseen", "spare"]}\n')
    put(folder / "labels.tsv", "uid\tname\tcontent\nspare\tSpare\t\nb\tBee\tbuzz\na\tAnt\t\n")
    data = read_table(folder)
    assert data.name == "LF-AmazonTitles-1.3M"
    assert list(data.labels.uids) == ["spare", "b", "a", "c"]
    assert data.labels.fields == {"title": ["Spare", "Bee", "Ant", ""], "content": ["", "buzz", "", ""]}
    assert labels_of(data, 0, "test") == ["spare", "a"]
    assert list(data.need_test().documents.uids) == ["test-0"]
    assert sorted(data.repairs.values()) == [1, 1]


def test_files_by_name(tmp_path: Path) -> None:
    train, test = put(tmp_path / "a.csv", "text,labels\nx,a;b\n"), put(tmp_path / "b.csv", "text,labels\ny,b;a\n")
    names = put(tmp_path / "c.csv", "uri,label\nb,Bee\na,Ant\n")
    data = read_table(train, test=test, label_texts=names)
    assert data.labels.fields["title"] == ["Bee", "Ant"]
    assert labels_of(data, 0, "test") == ["b", "a"]


def test_test_cells_are_split_as_in_training(tmp_path: Path) -> None:
    put(tmp_path / "train.csv", "text,labels\nx,a|b\ny,c;d\n".replace("c;d", "c"))
    put(tmp_path / "test.csv", "text,labels\nx,b;c\ny,a|c\n")
    data = read_table(tmp_path)
    assert labels_of(data, 0, "test") == []
    assert labels_of(data, 1, "test") == ["a", "c"]
    assert list(data.repairs.values()) == [1]


def test_texts_to_predict_for(tmp_path: Path) -> None:
    path = put(tmp_path / "d.csv", "title,labels,id\nx,a,7\n,b,7\n")
    documents, columns = texts_of(open_table(path))
    assert (columns.text, columns.labels, columns.id) == (("title",), None, "id")
    assert documents.fields == {"title": ["x", ""]}
    assert list(documents.uids) == ["7", "7"]
    bare = put(tmp_path / "e.tsv", "anything\nx\ny\n")
    assert texts_of(open_table(bare))[0].fields == {"anything": ["x", "y"]}
    assert list(texts_of(open_table(bare))[0].uids) == ["0", "1"]
    for name in ("f.tsv", "f.csv"):  # none is dropped, so that predictions stay in line with the file
        path = put(tmp_path / name, "\ntitle\n\nx\n\ny\n")
        assert texts_of(open_table(path))[0].fields == {"title": ["", "x", "", "y"]}
    with pytest.raises(DataError, match=r"'missing'.*'anything'"):
        texts_of(open_table(bare), Asked(text="missing"))


def test_what_is_a_table(tmp_path: Path) -> None:
    assert is_table(Path("x.CSV"))
    assert is_table(Path("x.jsonl.gz"))
    assert not is_table(Path("x.txt"))
    assert not is_table(tmp_path)
    put(tmp_path / "train.tsv", "")
    assert is_table(tmp_path)


# ---- round trip ----

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\r\n"), max_size=12)
LABEL = st.text("abcäöü ,.:/-", min_size=1, max_size=5).map(lambda uid: f"l{uid}l")


@st.composite
def datasets(draw: st.DrawFn, text: st.SearchStrategy[str]) -> Dataset:
    uids = draw(st.lists(LABEL, min_size=1, max_size=5, unique=True))

    def side(start: str) -> tuple[list[dict[str, str]], list[list[str]]]:
        rows = draw(
            st.lists(
                st.tuples(text, text, st.lists(st.sampled_from(uids), max_size=3, unique=True)), min_size=1, max_size=5
            )
        )
        return [{"title": start + title, "content": content} for title, content, _ in rows], [
            labels for _, _, labels in rows
        ]

    # training documents without text would be dropped
    (texts, labels), (test_texts, test_labels) = side("t"), side("")
    label_texts = {uid: draw(text) for uid in uids}
    return Dataset.from_texts(texts, labels, label_texts, test_texts=test_texts, test_labels=test_labels)


def assert_same(a: Dataset, b: Dataset) -> None:
    assert list(a.labels.uids) == list(b.labels.uids)
    assert {name: list(texts) for name, texts in a.labels.fields.items()} == {
        name: list(texts) for name, texts in b.labels.fields.items()
    }
    for one, two in ((a.train, b.train), (a.need_test(), b.need_test())):
        assert list(one.documents.uids) == list(two.documents.uids)
        assert one.documents.fields == two.documents.fields
        np.testing.assert_array_equal(one.targets.toarray(), two.targets.toarray())


@pytest.mark.claim("F6")
@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "parquet"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, format: str, data: st.DataObject) -> None:
    dataset = data.draw(datasets(PLAIN if format == "tsv" else TEXT))
    folder = tmp_path_factory.mktemp("table") / "out"
    write_table(dataset, folder, format)
    assert sorted(path.name for path in folder.iterdir()) == [f"labels.{format}", f"test.{format}", f"train.{format}"]
    assert_same(dataset, read_table(folder))


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize(
    "labels",
    [
        [["a;b"], ["c"]],
        [["a;b", "c"], ["c"]],
        [["a,b"], ["c"]],
        [["a|b", "c"], []],
        [['["x"]'], ['["y"]']],
        [["http://a/1 http://b/2"], ["http://a/3"]],
        [["<http://a/1>"], ["<http://a/3>"]],
        [["http://a/1"], ["http://a/2"]],
        [["c"], ["d"]],
    ],
)
def test_labels_that_look_like_several_come_back_as_they_are(
    tmp_path: Path, labels: list[list[str]], format: str
) -> None:
    data = Dataset.from_texts(
        ["x", "y"], labels, test_texts=["z"], test_labels=[sorted({label for each in labels for label in each})]
    )
    write_table(data, tmp_path / "out", format)
    assert_same(data, read_table(tmp_path / "out"))


def test_plain_labels_are_joined_by_the_separator(tmp_path: Path) -> None:
    data = Dataset.from_texts(["x", "y"], [["a", "b"], ["c"]])
    for separator, cell in (("|", "a|b"), (";", "a;b"), (",", '["a", "b"]')):
        write_table(data, tmp_path / cell, "tsv", separator=separator)
        assert (tmp_path / cell / "train.tsv").read_text().splitlines()[1] == f"train-0\tx\t{cell}"
        assert_same(replace(data, test=data.train), replace(again := read_table(tmp_path / cell), test=again.train))


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_line_ends_quotes_and_separators_in_texts_survive(tmp_path: Path, format: str) -> None:
    texts = ["\rx", "x\r", "a\r\nb\n", 'say "so"', '"', "a,b;c\td|e", " spaces ", "\u2028\x85", "\ufeffmark"]
    data = Dataset.from_texts(texts, [["a"]] * len(texts), test_texts=texts, test_labels=[["a"]] * len(texts))
    write_table(data, tmp_path / "out", format)
    assert_same(data, read_table(tmp_path / "out"))


def test_masked_pairs_and_graphs_travel_beside_the_table(tmp_path: Path) -> None:
    anchors = Items(["p", "q"], {"title": ["P", "Q"]})
    edges, near = (
        csr_array(np.array([[1, 0], [0, 2]], dtype=np.float32)),
        csr_array(np.array([[0, 1], [0, 0]], dtype=np.float32)),
    )
    graphs = {"links": Graph("links", anchors, edges, edges), "near": Graph("near", label_label=near)}
    plain = Dataset.from_texts(
        ["x", "b"], [["b"], ["a"]], {"b": "bee", "a": "ant"}, graphs, test_texts=["y"], test_labels=[["a"]]
    )
    data = replace(
        plain,
        train=replace(plain.train, masked=np.array([[1, 0]], dtype=np.int64)),
        test=replace(plain.need_test(), masked=np.array([[0, 0], [0, 1]], dtype=np.int64)),
    )
    write_table(data, tmp_path / "out", "csv")
    again = read_table(tmp_path / "out")
    assert_same(data, again)
    np.testing.assert_array_equal(again.train.masked, [[1, 0]])
    np.testing.assert_array_equal(again.need_test().masked, [[0, 0], [0, 1]])
    links: Any = again.graphs["links"]
    np.testing.assert_array_equal(links.documents.toarray(), edges.toarray())
    np.testing.assert_array_equal(links.labels.toarray(), edges.toarray())
    assert (tmp_path / "out" / "filter_labels_tst.txt").read_text() == "0 0\n0 1\n"
    put(tmp_path / "out" / "filter_labels_tst.txt", "1 0\n")
    assert "filter_labels_tst.txt, line 1" in fails(tmp_path / "out")


def test_nothing_is_masked_without_a_filter_file(tmp_path: Path) -> None:
    """A document may well be called what its label is called."""
    put(tmp_path / "train.csv", "text,labels\nphysics,physics\n")
    assert len(read_table(tmp_path).train.masked) == 0


def test_refusals_of_the_writer_leave_nothing_behind(tmp_path: Path) -> None:
    data = Dataset.from_texts(["a\ttab"], [["one|two"]])
    for kind in ("csv", "tsv", "jsonl", "parquet"):
        with pytest.raises(DataError, match="' padded'"):
            write_table(Dataset.from_texts(["x"], [[" padded"]]), tmp_path / "out", kind)
    for kind in ("csv", "tsv"):
        for text, label in (("x\0", "a"), ("x", "a\0")):
            with pytest.raises(DataError, match="NUL"):
                write_table(Dataset.from_texts([text], [[label]]), tmp_path / "out", kind)
        with pytest.raises(DataError, match="NUL"):
            write_table(Dataset.from_texts([{"a\0": "x"}], [["a"]]), tmp_path / "out", kind)
        padded = Dataset.from_texts([{" title": "x"}], [["a"]])
        for wrong in (padded, replace(data, labels=Items(data.labels.uids, {" title": ["x"]}))):
            with pytest.raises(ConfigError, match="' title'"):
                write_table(wrong, tmp_path / "out", kind)
    with pytest.raises(DataError, match="tab"):
        write_table(data, tmp_path / "out", "tsv", separator=";")
    with pytest.raises(ConfigError, match="xlsx"):
        write_table(data, tmp_path / "out", "xlsx")
    vectors = Dataset(
        "v", data.labels, Split(Items(["d"], vectors=np.ones((1, 2), dtype=np.float32)), data.train.targets)
    )
    with pytest.raises(ConfigError, match="vectors"):
        write_table(vectors, tmp_path / "out")
    clash = Dataset.from_texts([{"title": "x", "labels": "y"}], [["a"]])
    with pytest.raises(ConfigError, match="'labels'"):
        write_table(clash, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    put(tmp_path / "out" / "precious", "")
    with pytest.raises(RunError, match="not empty"):
        write_table(data, tmp_path / "out")
    assert (tmp_path / "out" / "precious").exists()


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dumps", full)
    with pytest.raises(RunError, match="no space left"):
        write_table(Dataset.from_texts(["x"], [["a"]]), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# ---- garbage ----


@pytest.mark.claim("F6")
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.csv", b"", ["empty"]),
        ("d.csv", b"\n\n", ["empty"]),
        ("d.csv", b"text,labels\n", ["no rows"]),
        ("d.csv", b"text,labels\nx,a\ny\n", ["line 3", "1 columns", "2 (text, labels)"]),
        ("d.csv", b'text,labels\n"two\nlines",a\ny,b,c\n', ["line 4", "3 columns"]),
        ("d.csv", b'text,labels\nx,a\n"open,b\n', ["line 3", "not valid CSV"]),
        ("d.csv", b'text,labels\n"x" y,a\n', ["line 2", "not valid CSV"]),
        ("d.csv", b"text,labels\nx,a\ny\0z,b\n", ["line 3", "NUL"]),
        ("d.csv", b"text,labels\nx,a\ny\xff,b\n", ["line 3", "UTF-8"]),
        ("d.csv", b"text,text,labels\nx,y,a\n", ["line 1", "'text' twice"]),
        (
            "d.csv",
            b"name,labels,more\nx,a,b\n",
            ["'name' (e.g. 'x'), 'labels' (e.g. 'a'), 'more' (e.g. 'b')", "--text COLUMN"],
        ),
        ("d.csv", b"text,more\nx,a\n", ["'text' (e.g. 'x'), 'more' (e.g. 'a')", "--labels COLUMN"]),
        ("d.csv", b"id,text,labels\n1,x,a\n2,y,b\n1,z,c\n", ["line 4", "'id'", "'1'", "stands at 2 already"]),
        ("d.csv", b"id,text,labels\n1,x,a\n,y,b\n", ["line 3", "'id'", "empty"]),
        ("d.csv", b"text,labels\nx,\ny,\n", ["'labels'", "no document has a label"]),
        ("d.csv", b'text,labels\nx,"a,b"\n', ["commas", "'a,b'", "--separator ','"]),
        ("d.csv", b"text,labels\nx,a|b\ny,c;d\n", ["both | and ;", "--separator"]),
        ("d.csv", b"text,labels\nx,\"['a', 'b']\"\n", ["line 2", "'labels'", "not a JSON list"]),
        ("d.tsv", b"text\tlabels\nx\ty\ta\n", ["line 2", "3 columns", "tab"]),
        ("d.jsonl", b"", ["no records"]),
        ("d.jsonl", b'{"text": "x", "labels": ["a"]}\n{"text": "x", \n', ["line 2", "not valid JSON", "column"]),
        ("d.jsonl", b'{"text": "x", "labels": ["a"]}\n7\n', ["line 2", "7", "not a JSON object"]),
        ("d.json", b'[{"text": "x", "labels": ["a"]}]', ["line 1", "JSON object per line", "jq"]),
        ("d.json", b'[\n{"text": "x"},\n', ["line 1", "JSON array"]),
        ("d.jsonl", b"[" * 100_000, ["line 1", "not valid JSON"]),
        ("d.jsonl", b'{"text": ["x"], "labels": ["a"]}\n', ["line 1", "'text'", "['x']"]),
        ("d.jsonl", b'{"text": true, "labels": ["a"]}\n', ["line 1", "'text'", "True"]),
        ("d.jsonl", b'{"text": NaN, "labels": ["a"]}\n', ["line 1", "'text'", "nan"]),
        ("d.jsonl", b'{"text": -Infinity, "labels": ["a"]}\n', ["line 1", "'text'", "-inf"]),
        (
            "d.jsonl",
            b'{"text": "x", "labels": ["a"]}\n{"text": "\\ud83d", "labels": ["a"]}\n',
            ["line 2", "'text'", "half a character"],
        ),
        ("d.jsonl", b'{"text": "x", "labels": ["\\ud83d"]}\n', ["line 1", "'labels'", "half a character"]),
        ("d.jsonl", b'{"text": "x", "labels": ["a", 1.5]}\n', ["line 1", "'labels'", "1.5"]),
        ("d.jsonl", b'{"text": "x", "labels": [null]}\n', ["line 1", "'labels'", "None"]),
        ("d.jsonl", b'{"text": "x", "labels": {"a": 1}}\n', ["line 1", "'labels'", "{'a': 1}"]),
        ("d.jsonl", b'{"text": "x", "labels": [true]}\n', ["line 1", "'labels'", "True"]),
        ("d.parquet", b"", ["Parquet"]),
        ("d.parquet", b"PAR1 not really PAR1", ["Parquet"]),
        ("d.csv.gz", gzip.compress(b"text,labels\nx,a\n" * 50, mtime=0)[:-12], ["gz"]),
        ("d.csv.gz", b"text,labels\nx,a\n", ["gz"]),
        ("d.xlsx", b"", ["xlsx", ".csv"]),
    ],
)
def test_garbage_names_the_file_the_place_and_the_value(
    tmp_path: Path, name: str, content: bytes, words: list[str]
) -> None:
    message = fails(put(tmp_path / name, content))
    for word in [name, *words]:
        assert word in message


def test_garbage_in_parquet_names_the_row(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["x", "y"], "labels": [["a"], [None]]}), tmp_path / "d.parquet")
    message = fails(tmp_path / "d.parquet")
    assert "row 2" in message
    assert "'labels'" in message
    pq.write_table(
        pa.table({"text": pa.array([b"x", b"\xff"]).view(pa.string()), "labels": ["a", "b"]}), tmp_path / "d.parquet"
    )
    assert "Parquet" in fails(tmp_path / "d.parquet")


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = put(tmp_path / "d.csv", "text,labels\nx,a\n")
    assert "no column 'headline'; the columns are 'text', 'labels'" in fails(path, Asked(text="headline"))
    assert "--labels" in fails(path, Asked(labels="tags"))
    assert "--id" in fails(path, Asked(id="key"))
    with pytest.raises(ConfigError, match="twice"):
        read_table(path, Asked(text="text,text"))


def test_folders_and_files_that_are_not_there(tmp_path: Path) -> None:
    assert "no training file" in fails(tmp_path)
    assert "no such file or folder" in fails(tmp_path / "nowhere")
    train = put(tmp_path / "train.csv", "text,labels\nx,a\n")
    assert "no such file" in fails(train, test=tmp_path / "nowhere.csv")
    assert "is a folder" in fails(train, test=put(tmp_path / "sub.csv" / "x", "").parent)
    put(tmp_path / "test.csv", "title,abstract,labels\nx,y,a\n")
    message = fails(tmp_path)
    assert "test.csv" in message
    assert "no column 'text', which is the text of the training data" in message
    assert "'title', 'abstract'" in message
    (tmp_path / "test.csv").unlink()
    put(tmp_path / "train.jsonl", "")
    assert "several train files: train.csv, train.jsonl" in fails(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("name,count\nx,1\n", ["no id column", "'name', 'count'"]),
        ("uid,count\nx,1\n", ["no title column", "'uid', 'count'"]),
        ("uid,title\n", ["no rows"]),
        ("uid,title\na,Ant\na,Again\n", ["line 3", "'uid'", "'a'", "stands at 2 already"]),
        ("uid,title\n ,Ant\n", ["line 2", "'uid'", "empty"]),
    ],
)
def test_garbage_in_the_labels_file(tmp_path: Path, content: str, words: list[str]) -> None:
    put(tmp_path / "train.csv", "text,labels\nx,a\n")
    put(tmp_path / "labels.csv", content)
    message = fails(tmp_path)
    for word in ["labels.csv", *words]:
        assert word in message


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"longtail\[parquet\]"):
        read_table(put(tmp_path / "d.parquet", b"PAR1"))


@pytest.mark.parametrize(
    ("cells", "separator", "doubt"),
    [
        (["a|b", "a"], ",", "no cell of 'labels' holds the separator ',', so that 'a|b' is one label; --separator '|'"),
        (["a", "b,c"], ";", "no cell of 'labels' holds the separator ';', so that 'b,c' is one label; --separator ','"),
        (["a|b,c", "a"], ",", None),
        (["a|b", "a"], "", None),
        (["a", "b"], ",", None),
    ],
)
def test_a_separator_that_no_cell_holds_is_doubted(
    tmp_path: Path, cells: list[str], separator: str, doubt: str | None
) -> None:
    file = tmp_path / "t.tsv"
    file.write_text("title\tlabels\n" + "".join(f"text {n}\t{cell}\n" for n, cell in enumerate(cells)))
    warnings = [line for line in read_table(file, Asked(separator=separator)).remarks() if line.startswith("warning")]
    assert len(warnings) == (doubt is not None)
    assert not doubt or doubt in warnings[0]
