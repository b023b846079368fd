"""The sparse text formats: what is read, against plain Python; what is mended; and what garbage gets."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtail.data import lines
from longtail.data import matrix_folders as sparse_text
from longtail.data.dataset import Dataset
from longtail.data.kernels import real_number
from longtail.data.matrix_folders import read_sparse, read_split_form
from longtail.data.read import read, recognise, write
from longtail.errors import DataError


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    return path


def folder_of(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        put(folder / f"{name}.txt", content)
    return folder


def fails(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.hint
    return str(caught.value)


# ---- one file ----


@pytest.mark.claim("F6")
@pytest.mark.parametrize("name", ["toy.txt", "toy.txt.gz"])
def test_a_file(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, "4 3 5\n0,4 0:1.5 2:-2e-1\n 1:1\r\n3\n2 2:1 0:0.25 2:0.5\n")
    data = read(path)
    assert recognise(path) == "sparse"
    assert data.name == "toy"
    assert list(data.labels.uids) == ["0", "1", "2", "3", "4"]
    assert list(data.train.documents.uids) == ["trn-0", "trn-1", "trn-3"]
    vectors: Any = data.train.documents.vectors
    assert vectors.toarray().tolist() == [[1.5, 0, np.float32(-0.2)], [0, 1, 0], [0.25, 0, 1.5]]
    assert vectors.indices.tolist() == [0, 2, 1, 0, 2]
    assert vectors.dtype == np.float32
    assert data.train.targets.toarray().tolist() == [[1, 0, 0, 0, 1], [0] * 5, [0, 0, 1, 0, 0]]
    # Document 2 has a label but no feature: there is nothing to learn from.
    assert data.repairs == {"training documents without text or vector, dropped": 1}


def test_repeated_labels_are_merged(tmp_path: Path) -> None:
    data = read(put(tmp_path / "x.txt", "1 1 3\n2,0,2 0:1\n"))
    assert data.train.targets.toarray().tolist() == [[1, 0, 1]]
    assert data.repairs == {"labels given twice to one document, merged": 1}


def test_blank_lines_may_follow(tmp_path: Path) -> None:
    assert len(read(put(tmp_path / "x.txt", "1 1 1\n0 0:1\n\n \n\n")).train) == 1


NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.from_regex(
    r"[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,3})?", fullmatch=True
)


@settings(max_examples=200, deadline=None)
@given(NUMBERS)
@example("0.1234567890123456789012345")
@example("12345678901234567890123.45e-20")
def test_numbers_are_those_of_python(text: str) -> None:
    """To 32 bits, or the neighbour where 64 bits round the other way."""
    value, end = real_number(np.frombuffer(text.encode(), dtype=np.uint8), 0)
    assert end == len(text)
    with np.errstate(over="ignore"):
        got, wanted = np.float32(value), np.float32(float(text))
    assert got == wanted or abs(np.nextafter(got, wanted) - wanted) == 0


@settings(max_examples=100, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_what_32_bits_can_hold_is_read_exactly(value: float) -> None:
    text = str(np.float32(value))
    assert np.float32(real_number(np.frombuffer(text.encode(), dtype=np.uint8), 0)[0]) == np.float32(value)


ROW = st.tuples(
    st.lists(st.integers(0, 6), max_size=3),
    st.lists(st.tuples(st.integers(0, 8), st.floats(-9, 9, width=16)), max_size=4),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=8), st.integers(1, 40))
def test_any_rows_in_any_blocks(rows: list[tuple[list[int], list[tuple[int, float]]]], block: int) -> None:
    """Oracle: a dense matrix filled in Python."""
    rows = [*rows, ([0], [(0, 1.0)])]
    text = [f"{len(rows)} 9 7"] + [
        ",".join(map(str, labels)) + " " + " ".join(f"{f}:{v}" for f, v in pairs) for labels, pairs in rows
    ]
    features, targets = np.zeros((len(rows), 9)), np.zeros((len(rows), 7))
    for number, (labels, pairs) in enumerate(rows):
        targets[number, labels] = 1
        for feature, value in pairs:
            features[number, feature] += value
    kept = [number for number, (_, pairs) in enumerate(rows) if pairs]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as home:
        patch.setattr(lines, "BLOCK", block)
        train = read_sparse(put(Path(home) / "x.txt", "\n".join(text) + "\n")).train
    vectors: Any = train.documents.vectors
    assert np.allclose(vectors.toarray(), features[kept])
    assert train.targets.toarray().tolist() == targets[kept].tolist()


@pytest.mark.claim("F6")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 1:2 3", "'3' is not a pair feature:value"),
        ("0 1:", "'1:' is not a pair feature:value"),
        ("0 :1", "':1' is not a pair"),
        ("0 1:2:3", "'1:2:3' is not a pair"),
        ("0 1:x", "'1:x' is not a pair"),
        ("0 1:1e", "'1:1e' is not a pair"),
        ("0 1:.", "'1:.' is not a pair"),
        ("0 -1:2", "'-1:2' is not a pair"),
        ("0 1:nan", "feature 1 has the value nan, expected a finite number"),
        ("0 1:-inf", "feature 1 has the value -inf"),
        ("0 1:1e39", "feature 1 has the value 1e39"),
        ("0 4:1", "feature 4 is outside 0..3"),
        ("0 99999999999999999999:1", "feature 99999999999999999999 is outside 0..3"),
        ("0 18446744073709551616:1", "feature 18446744073709551616 is outside 0..3"),
        ("0,5 1:1", "label 5 is outside 0..4"),
        ("0,,1 1:1", "'' is not a label number"),
        ("0, 1:1", "'' is not a label number"),
        ("x 1:1", "'x' is not a label number"),
        ("1:1", "'1:1' is not a label number"),
        ("-1 1:1", "'-1' is not a label number"),
        ("\ufffd", "is not a label number"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = put(tmp_path / "x.txt", f"3 4 5\n0 0:1\n{line}\n1 1:1\n")
    error = fails(path)
    assert error.startswith(f"{path}, line 3: ")
    assert message in error


def test_a_broken_line_in_a_later_block(tmp_path: Path) -> None:
    many = 60_000
    path = put(tmp_path / "x.txt.gz", f"{many} 2 2\n" + "0 1:0.5\n" * (many - 1) + "0 7:1\n")
    assert f"{path}, line {many + 1}: feature 7" in fails(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("3 4\n", "line 1: the header is '3 4', expected 3 counts: documents, features, labels"),
        ("3 4 x\n", "line 1: the header is '3 4 x'"),
        ("2 1 1\n0 0:1\n", "line 1: the header says 2 documents, the file has 1"),
        ("1 1 1\n0 0:1\n0 0:1\n", "line 1: the header says 1 documents, the file has 2"),
        ("1 1 1\n", "line 1: the header says 1 documents, the file has 0"),
    ],
)
def test_wrong_headers(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_sparse(put(tmp_path / "x.txt", content))
    assert str(caught.value).startswith(f"{tmp_path / 'x.txt'}")
    assert message in str(caught.value)


def test_rows_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_text, "_ROWS", 2)
    content = "5 3 2\n0 0:1.0\n1 1:2.0 2:3.0\n 0:4.0\n0,1 2:5.0\n0 1:6.0\n"
    write(read(put(tmp_path / "x.txt", content)), tmp_path / "new", "sparse")
    assert (tmp_path / "new" / "trn.txt").read_text() == content


# ---- folders ----


def test_a_folder_of_files(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        train="1 2 2\n0 1:1\n",
        test="2 2 2\n1 \n 0:1\n",
        Y="cat\ndog\n",
        Yf="2 2\n0:1\n\n",
        filter_labels_test="1 0\n",
    )
    data = read(folder)
    assert data.name == tmp_path.name
    assert data.labels.fields == {"title": ["cat", "dog"]}
    vectors: Any = data.labels.vectors
    assert vectors.toarray().tolist() == [[1, 0], [0, 0]]
    assert len(data.need_test()) == 2  # also the one without features
    assert data.need_test().masked.tolist() == [[1, 0]]
    assert read(folder, test=False).test is None


SPLIT = {
    "trn_X_Xf": "2 3\n0:1 2:0.5\n1:1 1:1\n",
    "trn_X_Y": "2 2\n1:1.0\n\n",
    "tst_X_Xf": "1 3\n\n",
    "tst_X_Y": "1 2\n0:1.0 1:1.0\n",
}


@pytest.mark.claim("F6")
def test_the_split_form(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, **SPLIT, trn_X="one\ntwo\n", tst_X="three\n", lbl="cat\ndog\n")
    data = read(folder)
    vectors: Any = data.train.documents.vectors
    assert vectors.toarray().tolist() == [[1, 0, 0.5], [0, 2, 0]]
    assert data.train.targets.toarray().tolist() == [[0, 1], [0, 0]]
    assert data.need_test().targets.toarray().tolist() == [[1, 1]]
    assert data.train.documents.fields == {"title": ["one", "two"]}
    assert data.need_test().documents.fields == {"title": ["three"]}
    assert data.labels.fields == {"title": ["cat", "dog"]}
    assert data.repairs == {}


def test_split_targets_are_mended(tmp_path: Path) -> None:
    data = read(folder_of(tmp_path, trn_X="one\n", trn_X_Y="1 4\n1:1 0:0 3:-1 1:1 2:0.5\n"))
    assert data.train.targets.toarray().tolist() == [[0, 1, 1, 0]]
    assert data.repairs == {
        "labels with a relevance of zero or less, dropped": 2,
        "labels given twice to one document, merged": 1,
    }


def test_raw_texts_that_are_not_utf8_are_mended_and_counted(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, trn_X_Y="1 1\n0:1\n")
    put(folder / "trn_X.txt", b"f\xfcr\n")
    data = read(folder)
    assert data.train.documents.fields == {"title": ["f\ufffdr"]}
    assert data.repairs == {"texts of trn_X.txt with bytes that are not UTF-8, replaced": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trn_X_Xf": "1 3\n0:1\n"}, "1 documents of 'trn' have features, 2 have labels"),
        ({"tst_X_Xf": "1 4\n0:1\n"}, "training documents have 3 features, test documents 4"),
        ({"tst_X_Y": "1 3\n0:1\n"}, "training counts 2 labels, test 3"),
        ({"Yf": "2 4\n\n\n"}, "training documents have 3 features, labels 4"),
        ({"trn_X_Y": "2 2\n2:1\n\n"}, "trn_X_Y.txt, line 2: label 2 is outside 0..1"),
        ({"trn_X_Y": "2 2\n0:nan\n\n"}, "trn_X_Y.txt, line 2: label 0 has the value nan"),
        ({"trn_X_Y": "2 2 2\n0:1\n\n"}, "trn_X_Y.txt, line 1: the header is '2 2 2', expected 2 counts: rows, labels"),
        ({"trn_X": "one\n"}, "trn_X.txt: has 1 lines, expected 2"),
        ({"trn_X": "one\ntwo\nthree\n"}, "trn_X.txt: has 3 lines, expected 2"),
        ({"Y": "a\nb\n", "lbl": "a\nb\n"}, "Y.txt and lbl.txt hold the same thing"),
        ({"lbl_uid": "a\na\n"}, "lbl_uid.txt, line 2: uid 'a' stands on line 1 already"),
        ({"lbl_uid": "a\n\n"}, "lbl_uid.txt, line 2: the uid is empty"),
        ({"Yf": "3 3\n\n\n\n"}, "training counts 2 labels, and 3 have features"),
    ],
)
def test_split_files_that_do_not_fit_together(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    error = fails(folder_of(tmp_path, **{**SPLIT, **changes}))
    assert str(tmp_path) in error
    assert message in error


def test_missing_files(tmp_path: Path) -> None:
    assert "trn_X_Y.txt is missing" in fails(folder_of(tmp_path / "a", trn_X_Xf=SPLIT["trn_X_Xf"]))
    assert "documents of 'trn' have neither vectors nor texts" in fails(
        folder_of(tmp_path / "b", trn_X_Y=SPLIT["trn_X_Y"])
    )
    mixed = folder_of(tmp_path / "c", **SPLIT, tst_X="x\n")
    (mixed / "tst_X_Xf.txt").unlink()
    assert "features of different kinds" in fails(mixed)
    with pytest.raises(DataError, match=r"trn\.txt is missing"):
        read_sparse(tmp_path)
    with pytest.raises(DataError, match=r"trn_X_Y\.txt is missing"):
        read_split_form(tmp_path)


# ---- files of labels ----


@pytest.mark.parametrize("name", ["Yf.txt", "Yf.txt.gz", "lbl_X_Xf.txt", "lbl_X_Xf.txt.gz"])
def test_either_name_holds_features_or_texts_of_labels(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path / "split", **SPLIT)
    put(folder / name, "2 3\n0:1\n1:2\n")
    with_features = read(folder)
    vectors: Any = with_features.labels.vectors
    assert vectors.toarray().tolist() == [[1, 0, 0], [0, 2, 0]]
    assert not with_features.labels.fields
    put(folder / name, "bees\r\nwild roses\r\n")
    with_texts = read(folder)
    assert with_texts.labels.fields == {"title": ["bees", "wild roses"]}
    assert with_texts.labels.vectors is None
    assert with_features.repairs == with_texts.repairs == read(folder_of(tmp_path / "none", **SPLIT)).repairs


def test_texts_and_features_of_labels_may_lie_side_by_side(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, **SPLIT, Yf="bees\nroses\n", lbl_X_Xf="2 3\n0:1\n1:2\n")
    assert read(folder).labels.fields == {"title": ["bees", "roses"]}
    assert read(folder).labels.vectors is not None
    put(folder / "Yf.txt", "bees\n")
    assert "Yf.txt: has 1 lines, expected 2" in fails(folder)
    put(folder / "Yf.txt", "2 3\n\n\n")
    assert "Yf.txt and lbl_X_Xf.txt hold the same thing" in fails(folder)


@pytest.mark.parametrize("format", ["lf", "npz"])
@pytest.mark.parametrize("name", ["Yf.txt", "lbl_X_Xf.txt", "lbl_X_Xf.txt.gz"])
def test_a_file_of_labels_that_is_not_read_is_named(tmp_path: Path, format: str, name: str) -> None:
    write(Dataset.from_texts(["bees"], [["a"]], {"a": "hives"}), tmp_path / "d", format)
    put(tmp_path / "d" / name, "1 1\n0:1\n")
    assert read(tmp_path / "d").repairs == {f"file of label texts or features that is not read, {name}": 1}


def test_texts_of_labels_beside_json_are_named(tmp_path: Path) -> None:
    write(Dataset.from_texts(["bees"], [["a"]], {"a": "hives"}), tmp_path / "d", "lf")
    put(tmp_path / "d" / "Y.txt", "hives\n")
    assert read(tmp_path / "d").repairs == {"file of label texts or features that is not read, Y.txt": 1}
