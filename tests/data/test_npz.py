"""Folders of npz and npy files, and how single matrices are loaded."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, dia_array, save_npz

from longtail.data.matrices import load_csr, load_dense, read_vectors, save_csr
from longtail.data.matrix_folders import read_npz
from longtail.data.read import read, recognise
from longtail.errors import DataError


def put(folder: Path, **files: Any) -> Path:
    """``trn_X__npz`` becomes the file ``trn_X.npz``."""
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        if isinstance(content, str):
            path.write_text(content)
        elif isinstance(content, np.ndarray):
            np.save(path, content)
        else:
            save_npz(path, content)
    return folder


def matrix(*rows: list[float]) -> Any:
    return csr_array(np.array(rows, dtype=np.float32))


X, Y = matrix([1, 0, 2], [0, 3, 0]), matrix([0, 1], [1, 1])


def fails(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(folder)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.claim("F6")
def test_sparse_vectors(tmp_path: Path) -> None:
    put(
        tmp_path,
        trn_X__npz=X,
        trn_Y__npz=Y,
        tst_X__npz=X[:1],
        tst_Y__npz=csc_array(Y[:1]),
        lbl_X__npz=X,
        Y__txt="cat\ndog\n",
        trn_X__txt="one\n\n",
    )
    assert recognise(tmp_path) == "npz"
    data = read(tmp_path)
    train: Any = data.train.documents.vectors
    assert train.toarray().tolist() == X.toarray().tolist()
    assert data.train.targets.toarray().tolist() == [[0, 1], [1, 1]]
    assert data.need_test().targets.toarray().tolist() == [[0, 1]]
    labels: Any = data.labels.vectors
    assert labels.toarray().tolist() == X.toarray().tolist()
    assert data.train.documents.fields == {"title": ["one", ""]}
    assert data.labels.fields == {"title": ["cat", "dog"]}
    assert data.repairs == {}
    assert read(tmp_path, test=False).test is None


def test_dense_vectors_are_never_empty(tmp_path: Path) -> None:
    put(tmp_path, trn_X__npy=np.array([[0.0, 0.0], [1.5, 2.0]]), trn_Y__npz=Y)
    vectors = read(tmp_path).train.documents.vectors
    assert isinstance(vectors, np.ndarray)
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[0.0, 0.0], [1.5, 2.0]]


def test_rows_without_vector_or_text_are_dropped_from_training_only(tmp_path: Path) -> None:
    holes = matrix([0, 0, 0], [0, 3, 0])
    put(tmp_path, trn_X__npz=holes, trn_Y__npz=Y, tst_X__npz=holes, tst_Y__npz=Y)
    data = read(tmp_path)
    assert list(data.train.documents.uids) == ["trn-1"]
    assert list(data.need_test().documents.uids) == ["tst-0", "tst-1"]
    assert data.repairs == {"training documents without text or vector, dropped": 1}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
def test_targets_are_made_ones_and_counted(tmp_path: Path, dtype: type) -> None:
    doubled = csr_array(
        (np.array([3.0, 1, 1, -1], dtype=dtype), np.array([1, 1, 0, 1]), np.array([0, 2, 4])), shape=(2, 2)
    )
    data = read(put(tmp_path, trn_X__npz=X, trn_Y__npz=doubled))
    assert data.train.targets.toarray().tolist() == [[0, 1], [1, 0]]
    assert data.repairs == {
        "labels with a relevance of zero or less, dropped": 1,
        "labels given twice to one document, merged": 1,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trn_X__npz": X[:1]}, "1 documents of 'trn' have features, 2 have labels"),
        ({"trn_X__npy": np.zeros((2, 3))}, "trn_X.npz and trn_X.npy hold the same thing"),
        ({"tst_X__npz": X[:, :2], "tst_Y__npz": Y}, "training documents have 3 features, test documents 2"),
        ({"tst_X__npy": np.zeros((2, 3)), "tst_Y__npz": Y}, "features of different kinds"),
        ({"lbl_X__npz": X[:1]}, "training counts 2 labels, and 1 have features"),
        ({"trn_Y__npz": Y * np.float32("nan")}, "trn_Y.npz: row 0, column 1 (from 0) holds nan"),
        ({"trn_X__npz": X * np.float32("inf")}, "trn_X.npz: row 0, column 0 (from 0) holds inf"),
        ({"lbl__txt": "one\n"}, "lbl.txt: has 1 lines, expected 2"),
    ],
)
def test_files_that_do_not_fit_together(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    error = fails(put(tmp_path, **{"trn_X__npz": X, "trn_Y__npz": Y, **changes}))
    assert str(tmp_path) in error
    assert message in error


def test_missing_files(tmp_path: Path) -> None:
    assert "trn_Y.npz is missing" in fails(put(tmp_path, trn_X__npz=X))
    (tmp_path / "trn_X.npz").unlink()
    assert "neither vectors nor texts" in fails(put(tmp_path, trn_Y__npz=Y))
    with pytest.raises(DataError, match=r"trn_Y\.npz is missing"):
        read_npz(tmp_path / "absent")


# ---- single matrices ----


class Bomb:
    """Unpickling this would be noticed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


def npz(path: Path, **pieces: Any) -> Path:
    base = {
        "format": np.array(b"csr"),
        "shape": np.array([2, 2]),
        "data": np.ones(2),
        "indices": np.array([0, 1]),
        "indptr": np.array([0, 1, 2]),
    }
    np.savez(path, **{name: piece for name, piece in {**base, **pieces}.items() if piece is not None})
    return path


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ({"indices": np.array([0, 2])}, "column numbers of a sparse array are outside 0..1"),
        ({"indices": np.array([0, -1])}, "column numbers"),
        ({"indices": np.array([0, 2**64 - 1], dtype=np.uint64)}, "column numbers"),
        ({"indices": np.array([0.0, 1.0])}, "whole numbers"),
        ({"indices": np.array([0])}, "row pointers"),
        ({"indptr": np.array([0, 5, 2])}, "row pointers"),
        ({"indptr": np.array([0, 5, 2], dtype=np.uint8)}, "row pointers"),
        ({"indptr": np.array([0, 2])}, "row pointers"),
        ({"indptr": np.array([], dtype=int), "shape": np.array([-1, 2])}, "not a usable sparse matrix"),
        ({"data": np.array(["a", "b"])}, "values numbers"),
        ({"data": np.ones((2, 1))}, "flat arrays"),
        ({"shape": np.array([2])}, "not a usable sparse matrix"),
        ({"format": np.array(b"bsr")}, "format 'bsr', expected csr, csc or coo"),
        ({"format": None}, "'format' is missing among data, indices, indptr, shape"),
        ({"indptr": None}, "'indptr' is missing"),
        ({"format": np.array("csc"), "indices": np.array([0, 2])}, "column numbers"),
        ({"format": np.array("coo"), "row": np.array([0, 2]), "col": np.array([0, 1])}, "not a usable sparse matrix"),
        ({"format": np.array("coo"), "row": np.array([0]), "col": np.array([0, 1])}, "not a usable sparse matrix"),
        (
            {
                "format": np.array("coo"),
                "row": np.array([0, 1]),
                "col": np.array([0, 1]),
                "shape": np.array([2**60, 2]),
            },
            "not a usable sparse matrix",
        ),
        ({"data": np.array([Bomb(), Bomb()], dtype=object)}, "cannot be read as .npz (Object arrays"),
    ],
)
def test_sparse_files_that_cannot_be_trusted(tmp_path: Path, pieces: dict[str, Any], message: str) -> None:
    path = npz(tmp_path / "x.npz", **pieces)
    with pytest.raises(DataError) as caught:
        load_csr(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_files_that_are_not_sparse(tmp_path: Path) -> None:
    path = npz(tmp_path / "x.npz")
    whole = path.read_bytes()
    buffer = io.BytesIO()
    np.save(buffer, np.eye(2))
    for garbage in (b"", b"garbage", whole[: len(whole) // 2], buffer.getvalue(), pickle.dumps(Bomb())):
        path.write_bytes(garbage)
        with pytest.raises(DataError, match=r"x\.npz: cannot be read as \.npz") as caught:
            load_csr(path)
        assert "pickled" not in str(caught.value), "nobody is told to load one"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "no arrays here")
    with pytest.raises(DataError, match=r"'format' is missing among readme\.txt"):
        load_csr(path)
    with pytest.raises(DataError, match="the file is missing"):
        load_csr(tmp_path / "absent.npz")
    save_npz(path, dia_array(np.eye(2)))
    with pytest.raises(DataError):
        load_csr(path)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_duplicates_are_summed_and_rows_sorted(tmp_path: Path, dtype: type) -> None:
    path = npz(
        tmp_path / "x.npz",
        data=np.array([1.0, 2.0, 4.0], dtype=dtype),
        indices=np.array([1, 0, 1]),
        indptr=np.array([0, 3, 3]),
    )
    loaded = load_csr(path)
    assert loaded.indices.tolist() == [0, 1]
    assert loaded.data.tolist() == [2.0, 5.0]


def test_equal_matrices_give_equal_bytes(tmp_path: Path) -> None:
    save_csr(tmp_path / "a.npz", X)
    save_csr(tmp_path / "b.npz", X.copy())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), "holds shape (3,) of float64, expected a 2-D array of numbers"),
        (np.array([["a"]]), "expected a 2-D array of numbers"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), "row 1 (from 0), column 1 holds nan"),
        (np.array([[1e300, 2.0]]), "row 0 (from 0), column 0 holds inf"),
    ],
)
def test_dense_files_that_cannot_be_used(tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataError) as caught:
        read_vectors(tmp_path / "x.npy")
    assert str(caught.value).startswith(f"{tmp_path / 'x.npy'}: ")
    assert message in str(caught.value)


def test_dense_files_that_are_no_arrays(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.eye(3))
    whole = path.read_bytes()
    objects = io.BytesIO()
    np.save(objects, np.array([[Bomb()]], dtype=object), allow_pickle=True)
    for garbage in (b"", b"garbage", whole[:90], pickle.dumps(Bomb()), objects.getvalue()):
        path.write_bytes(garbage)
        with pytest.raises(DataError, match=r"x\.npy: cannot be read as \.npy") as caught:
            load_dense(path)
        assert "pickled" not in str(caught.value), "nobody is told to load one"
    path.write_bytes(npz(tmp_path / "y.npz").read_bytes())
    with pytest.raises(DataError, match="an archive of several arrays"):
        load_dense(path)
    with pytest.raises(DataError, match="the file is missing"):
        load_dense(tmp_path / "absent.npy")
