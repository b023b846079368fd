"""Sparse ``.npz`` (as `scipy.sparse.save_npz` writes it) and dense ``.npy`` files, with every number checked.

Nothing is ever unpickled, and no index is trusted: SciPy's own loader lets indices pass that later read foreign memory.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from longtail.data.size_limits import check_growth
from longtail.errors import DataError
from longtail.persistence import csr_from_pieces
from longtail.types import F32, Csr

_UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    MemoryError,
    # of a broken header
    TypeError,
    AttributeError,
    SyntaxError,
    OverflowError,
    RecursionError,
    IndexError,
    tokenize.TokenError,
)
_SAVE_AGAIN = "save it again with scipy.sparse.save_npz"


Shape = tuple[int | None, int | None]


def make_csr(values: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, ...]) -> Csr:
    """A CSR array whose indices take half the memory where 32 bits suffice (SciPy keeps what it is given)."""
    from scipy.sparse import csr_array

    index = np.int32 if max(*shape, len(indices)) < 2**31 else np.int64
    return csr_array((values, indices.astype(index, copy=False), indptr.astype(index, copy=False)), shape=shape)


def load_csr(
    path: Path, shape: Shape = (None, None), of: str = "rows x columns", *, sum_duplicates: bool = True
) -> Csr:
    """A sparse matrix as CSR float32, finite, rows sorted unless duplicates are kept. CSC and COO are converted.

    shape: what is expected; None leaves a side open. of: what rows and columns are, for the message.
    """
    pieces = _pieces(path)
    try:
        matrix = _assembled(pieces).tocsr()
        matrix = make_csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape)
    except KeyError as problem:
        raise DataError(
            f"holds no sparse matrix: {problem} is missing among {', '.join(sorted(pieces))}", _SAVE_AGAIN, file=path
        ) from None
    except (ValueError, TypeError, IndexError, AttributeError, MemoryError) as problem:
        raise DataError(f"is not a usable sparse matrix ({problem})", _SAVE_AGAIN, file=path) from None
    check_shape(path, matrix.shape, shape, of)
    if not np.isfinite(matrix.data).all():
        raise _bad_entry(path, matrix, ~np.isfinite(matrix.data), "expected finite numbers")
    if sum_duplicates:
        matrix.sum_duplicates()
    return matrix


def load_ids(path: Path) -> list[str] | None:
    """The ids of rows that stand beside a matrix, where they do."""
    found = _pieces(path, "ids").get("ids")
    if found is None:
        return None
    try:
        if found.ndim != 1 or found.dtype.kind not in "SU":
            raise ValueError("expected texts in a flat array")
        return [uid.decode() for uid in found.tolist()] if found.dtype.kind == "S" else list(found.tolist())
    except ValueError as problem:
        raise DataError(
            f"the ids of its rows cannot be read ({problem})", "write the file again, or leave ids out", file=path
        ) from None


def _pieces(path: Path, *wanted: str) -> dict[str, NDArray[Any]]:
    """The arrays of an archive: all, or the wanted ones that are there."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ValueError("it holds one dense array")
        with loaded as file:
            sizes = [(one.compress_size, one.file_size) for one in file.zip.infolist()]
            check_growth(sum(packed for packed, _ in sizes), sum(size for _, size in sizes), path)
            return {name: file[name] for name in file.files if not wanted or name in wanted}
    except FileNotFoundError:
        raise DataError("the file is missing", "check the path", file=path) from None
    except _UNREADABLE as problem:
        raise DataError(
            f"cannot be read as .npz ({_said(problem)})",
            f"the file is truncated, altered or of another kind; {_SAVE_AGAIN}",
            file=path,
        ) from None


def _said(problem: Exception) -> str:
    """NumPy takes every file that it does not know for a pickle, and says how to load it, which would run its code."""
    return "neither arrays of NumPy nor an archive of them" if "pickled" in str(problem) else str(problem)


def _assembled(pieces: dict[str, NDArray[Any]]) -> Csr:
    """The matrix in the format it was saved in, after checking what SciPy would trust."""
    from scipy.sparse import coo_array

    kind = pieces["format"].item()
    kind = kind.decode() if isinstance(kind, bytes) else kind
    rows, columns = (int(n) for n in pieces["shape"])
    data = pieces["data"]
    numbers = [pieces[name] for name in (("row", "col") if kind == "coo" else ("indices", "indptr"))]
    if (
        any(array.dtype.kind not in "iu" or array.ndim != 1 for array in numbers)
        or data.dtype.kind not in "fiub"
        or data.ndim != 1
    ):
        raise ValueError("indices must be whole numbers and values numbers, in flat arrays")
    numbers = [array.astype(np.int64) for array in numbers]  # differences of unsigned numbers are never negative
    with np.errstate(over="ignore"):
        data = data.astype(np.float32)  # here, since SciPy's astype would also sum duplicates
    if kind == "csr":
        return csr_from_pieces(data, numbers[0], numbers[1], (rows, columns))
    if kind == "csc":
        return csr_from_pieces(data, numbers[0], numbers[1], (columns, rows)).T
    if kind == "coo":
        return coo_array((data, (numbers[0], numbers[1])), shape=(rows, columns))
    raise ValueError(f"format '{kind}', expected csr, csc or coo")


def load_dense(path: Path) -> F32:
    """(n, D) float32 from a ``.npy`` file, all finite."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError("the file is missing", "check the path", file=path) from None
    except _UNREADABLE as problem:
        raise DataError(
            f"cannot be read as .npy ({_said(problem)})", "save it again with numpy.save, as numbers", file=path
        ) from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiub":
        found = (
            f"shape {array.shape} of {array.dtype}" if isinstance(array, np.ndarray) else "an archive of several arrays"
        )
        raise DataError(
            f"holds {found}, expected a 2-D array of numbers",
            "save vectors as an array of shape (items, dimensions)",
            file=path,
        )
    with np.errstate(over="ignore"):
        vectors = np.ascontiguousarray(array, dtype=np.float32)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        column = int(np.argmin(np.isfinite(vectors[row])))
        raise DataError(
            f"row {row} (from 0), column {column} holds {vectors[row, column]}, expected finite numbers",
            "mend or drop the row",
            file=path,
        )
    return vectors


def read_vectors(path: Path) -> Csr | F32:
    """(n, D) float32, dense from ``.npy`` or sparse from ``.npz``."""
    return load_dense(path) if path.suffix.lower() == ".npy" else load_csr(path)


def save_csr(path: Path | IO[bytes], matrix: Csr, **more: NDArray[Any]) -> None:
    """As SciPy writes it, which reads it back and passes over `more`. Equal matrices give equal bytes, whatever types
    their arrays have: NumPy writes archives without times.
    """
    whole = make_csr(matrix.data.astype(np.float32, copy=False), matrix.indices, matrix.indptr, matrix.shape)
    arrays: dict[str, Any] = {
        "indices": whole.indices,
        "indptr": whole.indptr,
        "format": np.array(b"csr"),
        "shape": whole.shape,
    }
    arrays |= {"data": whole.data, "_is_array": np.array(True), **more}
    np.savez_compressed(path, allow_pickle=False, **arrays)


def stacked(vectors: Sequence[Csr | F32]) -> Csr | F32:
    """The rows of all, dense or CSR as the first."""
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack(vectors, format="csr")) if hasattr(vectors[0], "indptr") else np.concatenate(vectors)


def check_shape(path: Path, found: tuple[int, ...], expected: Shape, of: str) -> None:
    if any(wanted is not None and have != wanted for have, wanted in zip(found, expected, strict=True)):
        wanted = " x ".join("any" if side is None else str(side) for side in expected)
        raise DataError(
            f"is {' x '.join(str(side) for side in found)}, expected {wanted} ({of})",
            "the file belongs to other data; write it for this one",
            file=path,
        )


def check_not_negative(path: Path, matrix: Csr) -> None:
    if (matrix.data < 0).any():
        raise _bad_entry(path, matrix, matrix.data < 0, "expected weights of zero or more")


def _bad_entry(path: Path, matrix: Csr, bad: NDArray[np.bool_], expected: str) -> DataError:
    position = int(np.argmax(bad))
    row, column = int(np.searchsorted(matrix.indptr, position, side="right")) - 1, int(matrix.indices[position])
    return DataError(
        f"row {row}, column {column} (from 0) holds {matrix.data[position]}, {expected}",
        "mend or drop the entry",
        file=path,
    )


def as_targets(matrix: Csr, repairs: Counter[str]) -> Csr:
    """A documents x labels matrix of relevances (finite, but in any order and with duplicates) as ones; the rest is
    counted as repaired.
    """
    stored = matrix.nnz
    if not (matrix.data > 0).all():
        matrix.data[matrix.data < 0] = 0
        matrix.eliminate_zeros()
        repairs["labels with a relevance of zero or less, dropped"] += stored - matrix.nnz
        stored = matrix.nnz
    matrix.sum_duplicates()
    repairs["labels given twice to one document, merged"] += stored - matrix.nnz
    matrix.data = np.ones(matrix.nnz, dtype=np.float32)
    return matrix
