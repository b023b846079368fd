"""The LF layout: what is read from it, what is mended and counted, and what garbage gets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, save_npz

from longtail.data.dataset import Dataset, Graph, Items
from longtail.data.graph_files import drop_test_anchors, read_oracle
from longtail.data.lf import read_lf
from longtail.errors import DataError

LABELS = [{"uid": "l0", "title": "cat"}, {"uid": "l1", "title": "dog", "content": "barks"}, {"uid": "l2", "title": ""}]
TRAIN = [
    {"uid": "a", "title": "one", "target_ind": [2, 0], "target_rel": [1.0, 1.0]},
    {"uid": "b", "title": "two", "content": "more", "target_ind": []},
    {"uid": "c", "title": "three", "target_ind": [1]},
]
TEST = [{"uid": "t", "title": "four", "target_ind": [0]}, {"uid": "u", "title": "", "target_ind": []}]
EMPTY = {"filter_labels_trn.txt": "", "filter_labels_tst.txt": ""}


def lines(records: list[Any]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def put(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str | bytes | list):
            save_npz(path, content)
            continue
        raw = (
            content
            if isinstance(content, bytes)
            else (content if isinstance(content, str) else lines(content)).encode()
        )
        path.write_bytes(
            gzip.compress(raw, mtime=0) if name.endswith(".gz") and not isinstance(content, bytes) else raw
        )
    return folder


def planted(folder: Path, **changes: Any) -> Path:
    """The small data set; keyword ``trn``, ``tst`` or ``lbl`` replaces a file."""
    sides = {"trn": TRAIN, "tst": TEST, "lbl": LABELS, **changes}
    return put(
        folder, {**{f"{side}.json.gz": content for side, content in sides.items() if content is not None}, **EMPTY}
    )


def fails(folder: Path, *, test: bool = True) -> str:
    with pytest.raises(DataError) as caught:
        read_lf(folder, test=test)
    assert caught.value.hint
    return str(caught.value)


def matrix(*rows: list[float]) -> Any:
    return csr_array(np.array(rows, dtype=np.float32))


# ---- what is read ----


def check_planted(data: Dataset) -> None:
    assert list(data.labels.uids) == ["l0", "l1", "l2"]
    assert data.labels.fields == {"title": ["cat", "dog", ""], "content": ["", "barks", ""]}
    assert list(data.train.documents.uids) == ["a", "b", "c"]
    assert data.train.documents.fields == {"title": ["one", "two", "three"], "content": ["", "more", ""]}
    assert data.train.targets.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert data.train.targets.dtype == np.float32
    assert data.train.targets.indices.tolist() == [0, 2, 1]
    assert data.need_test().documents.fields == {"title": ["four", ""]}
    assert data.need_test().targets.toarray().tolist() == [[1, 0, 0], [0, 0, 0]]
    assert data.repairs == {}


def test_all_of_it(tmp_path: Path) -> None:
    data = read_lf(planted(tmp_path / "animals"))
    assert data.name == "animals"
    check_planted(data)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".jsonl.gz"])
def test_other_suffixes(tmp_path: Path, suffix: str) -> None:
    check_planted(
        read_lf(put(tmp_path, {f"trn{suffix}": TRAIN, f"lbl{suffix}": LABELS, f"tst{suffix}": TEST, **EMPTY}))
    )


def test_white_space_line_ends_and_blank_lines_at_the_end(tmp_path: Path) -> None:
    windows = "".join(f" {json.dumps(record)} \r\n" for record in TRAIN) + "\r\n\n  \n"
    check_planted(read_lf(planted(tmp_path, trn="\ufeff" + windows)))
    check_planted(read_lf(planted(tmp_path, trn=lines(TRAIN).removesuffix("\n"))))


def test_without_a_test_file(tmp_path: Path) -> None:
    assert read_lf(planted(tmp_path, tst=None)).test is None


def test_fields_that_come_and_go(tmp_path: Path) -> None:
    train = [
        {"uid": "a", "target_ind": [], "de": "eins"},
        {"uid": "b", "title": "two", "target_ind": [], "fi": None},
        {"uid": "c", "title": None, "target_ind": [], "fi": "kolme", "de": None},
    ]
    documents = read_lf(planted(tmp_path, trn=train)).train.documents
    assert documents.fields == {"title": ["", "two", ""], "de": ["eins", "", ""], "fi": ["", "", "kolme"]}


@pytest.mark.parametrize("name", ["filter_labels_{}.txt", "{}_filter_labels.txt"])
@pytest.mark.parametrize("sides", [("trn", "tst"), ("train", "test")])
def test_all_names_of_filter_files(tmp_path: Path, name: str, sides: tuple[str, str]) -> None:
    folder = put(tmp_path, {"trn.json": TRAIN, "tst.json": TEST, "lbl.json": LABELS})
    put(folder, {name.format(sides[0]): "2 1\n0 0\n\n0 0\n", name.format(sides[1]): "1 2\n"})
    data = read_lf(folder)
    assert data.train.masked.tolist() == [[0, 0], [2, 1]]
    assert data.need_test().masked.tolist() == [[1, 2]]
    assert data.repairs == {}


def test_graphs(tmp_path: Path) -> None:
    anchors = [{"uid": "p", "title": "point"}, {"uid": "q"}]
    edges = {"trn.npz": matrix([1, 0], [0, 0], [2, 3]), "lbl.npz": csc_array(matrix([0, 1], [0, 0], [1, 0]))}
    doubled = coo_array((np.array([1, 2, 5]), (np.array([0, 0, 2]), np.array([1, 1, 0]))), shape=(3, 3))
    folder = planted(tmp_path)
    put(folder / "graphs" / "linked", {"anchors.json.gz": anchors, "meta.json": "{}", **edges})
    put(folder / "graphs" / "labels", {"lbl_lbl.npz": doubled})
    put(folder / "graphs" / ".hidden", {"x": ""})
    graphs = read_lf(folder).graphs
    assert list(graphs) == ["labels", "linked"]
    assert graphs["linked"].anchors is not None
    assert list(graphs["linked"].anchors.uids) == ["p", "q"]
    sides: list[Any] = [graphs["linked"].documents, graphs["linked"].labels, graphs["labels"].label_label]
    assert sides[0].toarray().tolist() == [[1, 0], [0, 0], [2, 3]]
    assert sides[1].toarray().tolist() == [[0, 1], [0, 0], [1, 0]]
    assert sides[2].toarray().tolist() == [[0, 3, 0], [0, 0, 0], [5, 0, 0]]
    assert {side.dtype for side in sides} == {np.dtype(np.float32)}


# ---- the test side stays outside ----


def leaky(folder: Path) -> Path:
    """Of five anchors, q has a test uid and s a test title; the category that is named after document t stays."""
    anchors = [
        {"uid": "p", "title": ""},
        {"uid": "t", "title": "x"},
        {"uid": "domain::t", "title": "domain four"},
        {"uid": "s", "title": " FOUR  "},
        {"uid": "v", "title": "v"},
    ]
    wide = csr_array(np.arange(15, dtype=np.float32).reshape(3, 5))
    planted(folder)
    put(
        folder / "graphs" / "g",
        {"anchors.json.gz": anchors, "trn.npz": wide, "lbl.npz": wide, "oracle_tst.npz": wide[:2]},
    )
    return folder


@pytest.mark.parametrize("test", [True, False])
def test_anchors_that_are_test_documents_go(tmp_path: Path, test: bool) -> None:
    data = read_lf(leaky(tmp_path), test=test)
    graph = data.graphs["g"]
    assert graph.anchors is not None
    assert list(graph.anchors.uids) == ["p", "domain::t", "v"]
    sides: list[Any] = [graph.documents, graph.labels]
    for side in sides:
        assert side.toarray().tolist() == [[0, 2, 4], [5, 7, 9], [10, 12, 14]]
    assert data.repairs == {"anchors of graphs that are test documents, dropped": 2}
    assert (data.test is not None) == test


def test_nothing_of_the_test_side_is_in_the_result_without_it(tmp_path: Path) -> None:
    data = read_lf(planted(tmp_path), test=False)
    assert data.test is None
    assert data.digest == read_lf(tmp_path).digest.split("+")[0]
    # Without anchors to check, the file is not even opened.
    (tmp_path / "tst.json.gz").write_bytes(b"garbage")
    assert read_lf(tmp_path, test=False).digest == data.digest


def test_dropping_anchors_of_other_graphs_changes_nothing() -> None:
    graph = Graph("g", label_label=matrix([1]))
    assert drop_test_anchors(graph, Items(["t"])) == (graph, 0)
    linked = Graph("g", Items(["p"]), documents=matrix([1]))
    assert drop_test_anchors(linked, Items(["t"], {"title": [""]})) == (linked, 0)


def test_the_oracle_is_read_only_on_purpose(tmp_path: Path) -> None:
    folder = leaky(tmp_path)
    assert read_oracle(folder, "g").toarray().tolist() == [[0, 2, 4], [5, 7, 9]]
    (folder / "graphs" / "g" / "oracle_tst.npz").write_bytes(b"garbage")
    read_lf(folder)  # does not open it
    with pytest.raises(DataError, match=r"oracle_tst\.npz: cannot be read"):
        read_oracle(folder, "g")
    (folder / "graphs" / "g" / "oracle_tst.npz").unlink()
    with pytest.raises(DataError, match="missing"):
        read_oracle(folder, "g")
    with pytest.raises(DataError, match="anchors"):
        read_oracle(folder, "absent")


# ---- what is mended, and counted ----


def test_training_documents_without_text_go_from_everywhere(tmp_path: Path) -> None:
    train = [
        {"uid": "x", "title": " \t", "target_ind": [0]},
        TRAIN[0],
        {"uid": "y", "title": "", "content": "", "target_ind": [1]},
        TRAIN[1],
    ]
    folder = planted(tmp_path, trn=train)
    put(folder, {"filter_labels_trn.txt": "0 0\n1 2\n3 1\n"})
    put(folder / "graphs" / "g", {"anchors.json": [{"uid": "p"}], "trn.npz": matrix([1], [2], [3], [4])})
    data = read_lf(folder)
    assert list(data.train.documents.uids) == ["a", "b"]
    assert data.train.targets.toarray().tolist() == [[1, 0, 1], [0, 0, 0]]
    assert data.train.masked.tolist() == [[0, 2], [1, 1]]
    edges: Any = data.graphs["g"].documents
    assert edges.toarray().tolist() == [[2], [4]]
    assert data.repairs == {"training documents without text or vector, dropped": 2}
    assert list(data.need_test().documents.uids) == ["t", "u"]


def test_no_document_with_text_is_an_error(tmp_path: Path) -> None:
    assert "none of the 1 training documents" in fails(
        planted(tmp_path, trn=[{"uid": "x", "title": "", "target_ind": [0]}])
    )


def test_repeated_labels_are_merged(tmp_path: Path) -> None:
    data = read_lf(planted(tmp_path, trn=[{"uid": "a", "title": "one", "target_ind": [2, 0, 2, 2]}]))
    assert data.train.targets.toarray().tolist() == [[1, 0, 1]]
    assert data.repairs == {"labels given twice to one document, merged": 2}


def test_relevance(tmp_path: Path) -> None:
    train = [
        {"uid": "a", "title": "one", "target_ind": [0, 1, 2], "target_rel": [0.5, 0, 7]},
        {"uid": "b", "title": "two", "target_ind": [1], "target_rel": [1]},
        {"uid": "c", "title": "three", "target_ind": [0, 1], "target_rel": [-1, 1.0]},
    ]
    data = read_lf(planted(tmp_path, trn=train))
    assert data.train.targets.toarray().tolist() == [[1, 0, 1], [0, 1, 0], [0, 1, 0]]
    assert data.repairs == {"labels with a relevance of zero or less, dropped": 2}


def test_pairs_of_equal_titles_where_there_is_no_filter_file(tmp_path: Path) -> None:
    train = [
        {"uid": "a", "title": " A  Cat", "target_ind": []},
        {"uid": "b", "title": "\u212aanga", "target_ind": []},
        {"uid": "c", "title": "x", "target_ind": []},
    ]
    labels = [
        {"uid": "l", "title": "a cat"},
        {"uid": "m", "title": "kanga"},
        {"uid": "n", "title": "A CAT"},
        {"uid": "o", "title": ""},
    ]
    folder = planted(tmp_path, trn=train, lbl=labels)
    (folder / "filter_labels_trn.txt").unlink()
    data = read_lf(folder)
    assert data.train.masked.tolist() == [[0, 0], [0, 2], [1, 1]]
    assert data.need_test().masked.tolist() == []
    assert list(data.repairs.items()) == [
        ("pairs masked because document and label have the same title (there is no filter_labels_trn.txt)", 3)
    ]


def test_an_equal_title_that_the_truth_names_is_a_right_answer(tmp_path: Path) -> None:
    train = [{"uid": "a", "title": "Bees", "target_ind": [0]}, {"uid": "b", "title": "bees", "target_ind": [1]}]
    folder = planted(
        tmp_path, trn=train, lbl=[{"uid": "l", "title": "bees"}, {"uid": "m", "title": "x"}, {"uid": "n", "title": "y"}]
    )
    (folder / "filter_labels_trn.txt").unlink()
    data = read_lf(folder)
    assert data.train.masked.tolist() == [[1, 0]]
    assert data.train.targets.toarray().tolist() == [[1, 0, 0], [0, 1, 0]]


def test_fields_that_are_not_text_are_left_out(tmp_path: Path) -> None:
    train = [
        {"uid": "a", "title": "one", "target_ind": [], "year": 1999},
        {"uid": "b", "title": "two", "target_ind": [], "year": 2000, "tags": ["x"]},
    ]
    data = read_lf(planted(tmp_path, trn=train))
    assert data.train.documents.fields == {"title": ["one", "two"]}
    assert data.repairs == {
        "values of field 'year' in trn.json.gz that are not text, left out": 2,
        "values of field 'tags' in trn.json.gz that are not text, left out": 1,
    }


# ---- garbage ----

FINE = json.dumps(TRAIN[0])
DEEP = "[" * 100_000


@pytest.mark.claim("F6")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"uid": "z", "title"', "not valid JSON (Expecting ':' delimiter at column"),
        ('{"uid": "z"} {"uid": "y"}', "not valid JSON (Extra data at column 14)"),
        (DEEP, "not valid JSON (nested too deeply)"),
        ('{"uid": ' + "9" * 5000 + "}", "not valid JSON (Exceeds the limit"),
        ("", "the line is blank"),
        ("[1, 2]", "[1, 2] is not a JSON object"),
        ("null", "None is not a JSON object"),
        ('{"title": "two", "target_ind": []}', "there is no uid"),
        ('{"uid": 7, "title": "two", "target_ind": []}', "uid is 7, expected a string"),
        ('{"uid": "", "title": "two", "target_ind": []}', "uid is '', expected a string"),
        ('{"uid": "a", "title": "two", "target_ind": []}', "uid 'a' stands on line 1 already"),
        ('{"uid": "z\\ud800", "title": "two", "target_ind": []}', "uid has half a character"),
        ('{"uid": "z", "title": 2, "target_ind": []}', "title is 2, expected a string"),
        ('{"uid": "z", "title": "\\udc00 two", "target_ind": []}', "title has half a character"),
        ('{"uid": "z", "title": "two"}', "there is no target_ind"),
        ('{"uid": "z", "title": "two", "target_ind": 1}', "target_ind is 1, expected a list"),
        ('{"uid": "z", "title": "two", "target_ind": [0, "1"]}', "target_ind holds '1'"),
        ('{"uid": "z", "title": "two", "target_ind": [1.0]}', "target_ind holds 1.0"),
        ('{"uid": "z", "title": "two", "target_ind": [true]}', "target_ind holds True"),
        ('{"uid": "z", "title": "two", "target_ind": [0, 3]}', "label 3 is outside 0..2"),
        ('{"uid": "z", "title": "two", "target_ind": [-1]}', "label -1 is outside 0..2"),
        (
            '{"uid": "z", "title": "two", "target_ind": [0, 99999999999999999999]}',
            "label 99999999999999999999 is outside 0..2",
        ),
        (
            '{"uid": "z", "title": "two", "target_ind": [0, 1], "target_rel": [1.0]}',
            "target_rel has 1 entries, expected a list of 2",
        ),
        (
            '{"uid": "z", "title": "two", "target_ind": [0], "target_rel": 1.0}',
            "target_rel is 1.0, expected a list of 1",
        ),
        ('{"uid": "z", "title": "two", "target_ind": [0, 1], "target_rel": [1.0, NaN]}', "target_rel holds nan"),
        ('{"uid": "z", "title": "two", "target_ind": [0], "target_rel": [Infinity]}', "target_rel holds inf"),
        ('{"uid": "z", "title": "two", "target_ind": [0], "target_rel": ["1"]}', "target_rel holds '1'"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    folder = planted(tmp_path, trn=f"{FINE}\n{json.dumps(TRAIN[1])}\n{line}\n{json.dumps(TRAIN[2])}\n")
    error = fails(folder)
    assert error.startswith(f"{folder / 'trn.json.gz'}, line 3: ")
    assert message in error


@pytest.mark.parametrize("side", ["trn", "tst", "lbl"])
def test_broken_bytes_in_any_file(tmp_path: Path, side: str) -> None:
    path = planted(tmp_path) / f"{side}.json.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-12])
    assert f"{path}, line 1: the gzip file is truncated" in fails(tmp_path)
    path.write_bytes(b"{}\n")
    assert f"{path}, line 1: is not a gzip file" in fails(tmp_path)
    path.write_bytes(gzip.compress(b'{"uid": "z", "title": "\xff"}\n', mtime=0))
    assert f"{path}, line 1: byte 0xff is not valid UTF-8" in fails(tmp_path)
    for nothing in (b"", gzip.compress(b"", mtime=0), gzip.compress(b"\n", mtime=0)):
        path.write_bytes(nothing)
        assert f"{path}: the file is empty" in fails(tmp_path)


def test_duplicate_labels_are_named(tmp_path: Path) -> None:
    error = fails(planted(tmp_path, lbl=[*LABELS, {"uid": "l1", "title": "dog"}]))
    assert f"{tmp_path / 'lbl.json.gz'}, line 4: uid 'l1' stands on line 2 already" in error


def test_a_field_that_is_text_only_sometimes(tmp_path: Path) -> None:
    later = [
        {"uid": "a", "title": "one", "target_ind": [], "year": 1999},
        {"uid": "b", "title": "two", "target_ind": [], "year": "2000"},
    ]
    assert "line 1: field 'year' is not a text here" in fails(planted(tmp_path, trn=later))
    assert "line 2: year is 1999, expected a string" in fails(planted(tmp_path, trn=later[::-1]))


def test_missing_and_doubled_files(tmp_path: Path) -> None:
    error = fails(planted(tmp_path / "one", lbl=None))
    assert error.startswith(f"{tmp_path / 'one'}: lbl.json.gz is missing")
    assert "tst.json.gz" in error  # the hint says the layout
    assert "trn.json.gz is missing" in fails(planted(tmp_path / "two", trn=None))
    folder = put(planted(tmp_path / "three"), {"trn.json": TRAIN})
    assert "trn.json.gz and trn.json hold the same thing" in fails(folder)
    (folder / "trn.json").unlink()
    put(folder, {"tst_filter_labels.txt": ""})
    assert "filter_labels_tst.txt and tst_filter_labels.txt" in fails(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0 0\n1\n", "line 2: '1' is not a pair"),
        ("0 0\n\n1 2 3\n", "line 3: '1 2 3' is not a pair"),
        ("0 one\n", "line 1: '0 one' is not a pair"),
        ("0 0\n0 9999999999999999999999\n", "line 2: '0 9999999999999999999999' is not a pair"),
        ("0 0\n\n3 0\n", "line 3: document 3 is outside 0..2"),
        ("0 3\n", "line 1: label 3 is outside 0..2"),
        ("-1 0\n", "line 1: document -1 is outside 0..2"),
        (b"0 \xff\n", "line 1: byte 0xff is not valid UTF-8"),
    ],
)
def test_broken_filter_files(tmp_path: Path, content: str | bytes, message: str) -> None:
    folder = put(planted(tmp_path), {"filter_labels_trn.txt": content})
    assert f"{folder / 'filter_labels_trn.txt'}, {message}" in fails(folder)


POINTS = [{"uid": "p"}, {"uid": "q"}]
GOOD = matrix([1, 0], [0, 1], [0, 0])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"anchors.json": POINTS, "trn.npz": GOOD[:2]},
            "trn.npz: is 2 x 2, expected 3 x 2 (training documents x anchors)",
        ),
        ({"anchors.json": POINTS[:1], "lbl.npz": GOOD}, "lbl.npz: is 3 x 2, expected 3 x 1 (labels x anchors)"),
        ({"lbl_lbl.npz": GOOD}, "lbl_lbl.npz: is 3 x 2, expected 3 x 3 (labels x labels)"),
        ({"anchors.json": POINTS, "trn.npz": GOOD * np.float32("nan")}, "trn.npz: row 0, column 0 (from 0) holds nan"),
        (
            {"anchors.json": POINTS, "trn.npz": matrix([1, 0], [0, -2], [0, 0])},
            "trn.npz: row 1, column 1 (from 0) holds -2.0, expected weights",
        ),
        (
            {"anchors.json": POINTS, "trn.npz": GOOD.astype(np.float64) * 1e300},
            "trn.npz: row 0, column 0 (from 0) holds inf",
        ),
        ({"anchors.json": POINTS, "trn.npz": b"garbage"}, "trn.npz: cannot be read as .npz"),
        ({"anchors.json": POINTS}, "g: the graph has no edges"),
        ({"lbl_lbl.npz": matrix([0, 0, 0], [0, 0, 0], [0, 0, 0]), "meta.json": "{"}, "meta.json: not valid JSON"),
        (
            {"anchors.json": [*POINTS, POINTS[0]], "trn.npz": GOOD},
            "anchors.json, line 3: uid 'p' stands on line 1 already",
        ),
    ],
)
def test_broken_graphs(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    folder = planted(tmp_path)
    put(folder / "graphs" / "g", files)
    error = fails(folder)
    assert str(folder / "graphs" / "g") in error
    assert message in error


def test_edges_without_anchors(tmp_path: Path) -> None:
    folder = planted(tmp_path)
    put(folder / "graphs" / "g", {"trn.npz": GOOD})
    assert "anchors.json.gz is missing" in fails(folder)


def test_old_sparse_matrices_are_read(tmp_path: Path) -> None:
    folder = planted(tmp_path)
    put(folder / "graphs" / "g", {"anchors.json": POINTS, "trn.npz": csr_matrix(GOOD.toarray().astype(np.int8))})
    edges: Any = read_lf(folder).graphs["g"].documents
    assert edges.toarray().tolist() == GOOD.toarray().tolist()
