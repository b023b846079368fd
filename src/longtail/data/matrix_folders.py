"""Data sets whose documents are rows of matrices. All numbers count from 0.

Sparse text of the Extreme Classification Repository; files may be gzipped.
    ``N D L``: a header with three counts, then per document ``l1,l2 f1:v1 f2:v2``; one without labels starts with a
    space. A file is a training set; a folder holds ``trn.txt`` (or ``train.txt``) and where given ``tst.txt``
    (``test.txt``).
    Split form: a folder with ``trn_X_Xf.txt`` (header ``N D``, then ``f:v`` pairs), ``trn_X_Y.txt`` (``N L``, then
    ``l:1.0``), the same for ``tst``.
    Both may hold label features ``Yf.txt`` (``L D``).

NumPy and SciPy files: ``trn_Y.npz`` (documents x labels), ``trn_X.npz`` or ``trn_X.npy`` (documents x features, sparse
or dense), the same for ``tst``, and ``lbl_X.npz`` or ``lbl_X.npy`` (labels x features).

Folders of all forms may hold label features ``Yf.txt`` or ``lbl_X_Xf.txt`` (``L D``; without such a header they are
texts); raw texts ``trn_X.txt``, ``tst_X.txt``, ``Y.txt`` (or ``lbl.txt``), which may replace features; ids that are not
the line numbers (``trn_uid.txt``, ``tst_uid.txt``, ``lbl_uid.txt``); filter files; graphs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.data.dataset import Dataset, Items, Split
from longtail.data.folders import (
    LABEL_FILES,
    LABELS,
    TEST,
    TRAIN,
    Side,
    assemble_matrices,
    default_uids,
    finished,
    has_features,
    write_raw_items,
    write_shared,
)
from longtail.data.from_texts import shown
from longtail.data.graph_files import find_one
from longtail.data.lines import byte_blocks, new_folder, write_lines
from longtail.data.matrices import as_targets, load_csr, make_csr, read_vectors, save_csr
from longtail.errors import ConfigError, DataError
from longtail.types import F32, I64, Csr

FILES = {
    TRAIN: ("trn.txt", "trn.txt.gz", "train.txt", "train.txt.gz"),
    TEST: ("tst.txt", "tst.txt.gz", "test.txt", "test.txt.gz"),
}

_ROWS = 4096  # rows that are written at once


# ---- data sets ----


def read_sparse(path: Path | str, *, test: bool = True) -> Dataset:
    """Read a file with an ``N D L`` header as a training set, or a folder of such files."""
    path, repairs = Path(path), Counter[str]()
    if path.is_file():
        side = _read_side(path, repairs)
        documents = Items(default_uids(TRAIN, side.targets.shape[0]), vectors=side.vectors)
        labels = Items(default_uids(LABELS, side.targets.shape[1]))
        return finished(
            path.name.removesuffix(".gz").removesuffix(".txt"),
            labels,
            Split(documents, side.targets),
            None,
            {},
            repairs,
        )

    def side_of(name: str) -> Side | None:
        found = find_one(path, *FILES[name])
        if found is None and name == TRAIN:
            raise DataError(
                "trn.txt is missing", "a folder of sparse text holds trn.txt, and where given tst.txt", file=path
            )
        return None if found is None else _read_side(found, repairs)

    label_vectors, feature_file = _label_features(path)
    return assemble_matrices(path, side_of, label_vectors, repairs, test=test, feature_file=feature_file)


def read_split_form(folder: Path | str, *, test: bool = True) -> Dataset:
    """Read a folder with ``trn_X_Y.txt``, and ``trn_X_Xf.txt`` or raw texts."""
    folder, repairs = Path(folder), Counter[str]()

    def side_of(name: str) -> Side | None:
        found = _plain_or_gzip(folder, f"{name}_X_Y.txt")
        if found is None:
            if name == TEST:
                return None
            raise DataError(
                "trn_X_Y.txt is missing",
                "the split form holds trn_X_Y.txt and trn_X_Xf.txt (or trn_X.txt)",
                file=folder,
            )
        targets = as_targets(_matrix(found, "label", sum_duplicates=False), repairs)
        features = _plain_or_gzip(folder, f"{name}_X_Xf.txt")
        return Side(targets, None if features is None else _matrix(features, "feature"))

    label_vectors, feature_file = _label_features(folder)
    return assemble_matrices(folder, side_of, label_vectors, repairs, test=test, feature_file=feature_file)


def write_sparse(dataset: Dataset, folder: Path | str) -> None:
    """Write a new folder with ``trn.txt`` and where given ``tst.txt``, with ``N D L`` headers."""
    with new_folder(Path(folder)) as aside:
        for name, split in _sides(dataset):
            vectors = _sparse_vectors(split.documents)
            if vectors is None:
                raise ConfigError(
                    "the sparse format holds features, and the data has only texts",
                    "write split, npz, lf or jsonl instead",
                )
            rows = zip(_label_lists(split.targets), _pairs(vectors), strict=True)
            write_lines(
                aside / FILES[name][0],
                _headed(
                    f"{len(split)} {vectors.shape[1]} {len(dataset.labels)}", (f"{own} {pairs}" for own, pairs in rows)
                ),
            )
        _write_rest(aside, dataset)


def write_split_form(dataset: Dataset, folder: Path | str) -> None:
    """Write a new folder in the split form."""
    with new_folder(Path(folder)) as aside:
        for name, split in _sides(dataset):
            vectors = _sparse_vectors(split.documents)
            if vectors is not None:
                _write_matrix(aside / f"{name}_X_Xf.txt", vectors)
            _write_matrix(aside / f"{name}_X_Y.txt", split.targets)
        _write_rest(aside, dataset)


def read_npz(folder: Path | str, *, test: bool = True) -> Dataset:
    """Read a folder with ``trn_Y.npz``."""
    folder, repairs = Path(folder), Counter[str]()

    def side(name: str) -> Side | None:
        found = folder / f"{name}_Y.npz"
        if not found.is_file():
            if name == TEST:
                return None
            raise DataError(
                "trn_Y.npz is missing",
                "a folder of npz files holds trn_Y.npz and trn_X.npz (or trn_X.npy, trn_X.txt)",
                file=folder,
            )
        targets = as_targets(load_csr(found, of="documents x labels", sum_duplicates=False), repairs)
        return Side(targets, _vectors(folder, name))

    return assemble_matrices(folder, side, _vectors(folder, LABELS), repairs, test=test)


def _vectors(folder: Path, side: str) -> Csr | F32 | None:
    found = find_one(folder, f"{side}_X.npz", f"{side}_X.npy")
    return None if found is None else read_vectors(found)


def write_npz(dataset: Dataset, folder: Path | str) -> None:
    """Write a new folder that `read_npz` reads back as the same data set. Equal data gives equal bytes."""
    with new_folder(Path(folder)) as aside:
        _write_items(aside, LABELS, dataset.labels)
        for name, split in _sides(dataset):
            _write_items(aside, name, split.documents)
            save_csr(aside / f"{name}_Y.npz", split.targets)
        write_shared(aside, dataset)


def _write_items(folder: Path, side: str, items: Items) -> None:
    write_raw_items(folder, side, items)
    if isinstance(items.vectors, np.ndarray):
        np.save(folder / f"{side}_X.npy", items.vectors, allow_pickle=False)
    elif items.vectors is not None:
        save_csr(folder / f"{side}_X.npz", items.vectors)


def _sides(dataset: Dataset) -> list[tuple[str, Split]]:
    return [(name, split) for name, split in ((TRAIN, dataset.train), (TEST, dataset.test)) if split is not None]


def _write_rest(folder: Path, dataset: Dataset) -> None:
    label_vectors = _sparse_vectors(dataset.labels)
    if label_vectors is not None:
        _write_matrix(folder / "Yf.txt", label_vectors)
    for name, items in [(LABELS, dataset.labels), *((name, split.documents) for name, split in _sides(dataset))]:
        write_raw_items(folder, name, items)
    write_shared(folder, dataset)


def _sparse_vectors(items: Items) -> Csr | None:
    if isinstance(items.vectors, np.ndarray):
        raise ConfigError("sparse text holds sparse features, and the data has dense vectors", "write npz instead")
    return items.vectors


def _label_features(folder: Path) -> tuple[Csr | None, Path | None]:
    """Features of labels, and the file that they come from. A file of that name may hold texts: `raw_items` reads
    those.
    """
    found = find_one(folder, *(name for name in LABEL_FILES if _holds_features(folder / name)))
    return (None, None) if found is None else (_matrix(found, "feature"), found)


def _holds_features(path: Path) -> bool:
    return path.is_file() and has_features(path)


def _plain_or_gzip(folder: Path, name: str) -> Path | None:
    return find_one(folder, name, f"{name}.gz")


# ---- files ----


def _read_side(path: Path, repairs: Counter[str]) -> Side:
    """A file with the header ``N D L``."""
    rows = _ParsedRows(path, ("documents", "features", "labels"))
    n, n_features, n_labels = rows.counts
    vectors = make_csr(rows.values, rows.columns, rows.column_ends, (n, n_features))
    vectors.sum_duplicates()
    targets = make_csr(np.ones(len(rows.labels), dtype=np.float32), rows.labels, rows.label_ends, (n, n_labels))
    return Side(as_targets(targets, repairs), vectors)


def _matrix(path: Path, column: str, *, sum_duplicates: bool = True) -> Csr:
    """A file with a header of two counts and ``column:value`` pairs, as CSR float32."""
    rows = _ParsedRows(path, ("rows", f"{column}s"))
    matrix = make_csr(rows.values, rows.columns, rows.column_ends, rows.counts)
    if sum_duplicates:
        matrix.sum_duplicates()
    return matrix


class _ParsedRows:
    """The numbers of a file, flat, checked by the kernel while it reads them.

    counts: the header. labels: label numbers, and label_ends where each document's end (from 0). columns, values,
    column_ends: the ``column:value`` pairs.
    """

    def __init__(self, path: Path, header: tuple[str, ...]) -> None:
        self.path, self.header = path, header
        blocks = byte_blocks(self.path)
        first = next(blocks, None)
        if first is None:
            raise DataError(
                "the file is empty", f"the first line must hold the numbers of {', '.join(self.header)}", file=self.path
            )
        head, _, rest = first[1].partition(b"\n")
        self.counts = self._header(head)
        pieces = [self._parsed(line, block) for line, block in ((2, rest), *blocks) if block]
        self.labels, self.columns = _joined(pieces, 0, np.int64), _joined(pieces, 2, np.int64)
        self.values = _joined(pieces, 3, np.float32)
        self.label_ends, self.column_ends = _ends([piece[1] for piece in pieces]), _ends([piece[4] for piece in pieces])
        self._check_count()

    def _header(self, head: bytes) -> tuple[int, ...]:
        words = head.split()
        if len(words) != len(self.header) or not all(word.isdigit() and len(word) < 13 for word in words):
            text = shown(head.decode("utf-8", "replace").strip())
            wanted = ", ".join(self.header)
            raise DataError(
                f"the header is {text}, expected {len(self.header)} counts: {wanted}",
                "write whole numbers, divided by spaces",
                file=self.path,
                line=1,
            )
        return tuple(int(word) for word in words)

    def _parsed(self, first: int, block: bytes) -> tuple[I64, I64, I64, NDArray[np.float32], I64]:
        from longtail.data.kernels import FINE, parse_rows

        rows, pairs = block.count(b"\n") + 1, block.count(b":")
        has_labels = len(self.counts) == 3
        labels = np.empty(block.count(b",") + rows if has_labels else 0, dtype=np.int64)
        label_ends, column_ends = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        columns, values = np.empty(pairs, dtype=np.int64), np.empty(pairs, dtype=np.float32)
        text = np.frombuffer(block, dtype=np.uint8)
        code, place, found = parse_rows(
            text, has_labels, self.counts[-1], self.counts[1], labels, label_ends, columns, values, column_ends
        )
        if code != FINE:
            raise self._error(code, block, place, first)
        label_ends, column_ends = label_ends[:found], column_ends[:found]
        return (
            labels[: label_ends[-1]].copy(),
            label_ends,
            columns[: column_ends[-1]],
            values[: column_ends[-1]],
            column_ends,
        )

    def _error(self, code: int, block: bytes, place: int, first: int) -> DataError:
        from longtail.data.kernels import BAD_LABEL, BAD_PAIR, LABEL_OUTSIDE

        word = re.split(rb"\s", block[place:], maxsplit=1)[0].decode("utf-8", "replace")
        column = self.header[1].removesuffix("s")
        if code == BAD_LABEL:
            message = f"{shown(word.split(',')[0])} is not a label number"
            hint = "labels are whole numbers joined by commas; a document without labels starts with a space"
        elif code == BAD_PAIR:
            message, hint = _wrong_pair(word, column), f"write {column}:value, with a whole number and a finite number"
        else:
            noun, count = ("label", self.counts[-1]) if code == LABEL_OUTSIDE else (column, self.counts[1])
            message = f"{noun} {word.split(',')[0].split(':')[0]} is outside 0..{count - 1}, as the header says"
            hint = f"numbers count from 0; correct the number of {noun}s in line 1 if it is wrong"
        return DataError(message, hint, file=self.path, line=first + block.count(b"\n", 0, place))

    def _check_count(self) -> None:
        """As many rows as the header says; blank lines may follow."""
        wanted, found = self.counts[0], len(self.column_ends) - 1
        nothing_more = (
            found > wanted
            and self.column_ends[wanted] == self.column_ends[-1]
            and self.label_ends[wanted] == self.label_ends[-1]
        )
        if found != wanted and not nothing_more:
            raise DataError(
                f"the header says {wanted} {self.header[0]}, the file has {found}",
                "the file is cut off, or its header wrong",
                file=self.path,
                line=1,
            )
        self.label_ends, self.column_ends = self.label_ends[: wanted + 1], self.column_ends[: wanted + 1]


def _wrong_pair(word: str, column: str) -> str:
    number, colon, value = word.partition(":")
    try:
        with np.errstate(over="ignore"):
            finite = bool(np.isfinite(np.float32(value)))
    except ValueError:
        finite = True
    if colon and number.isdigit() and not finite:
        return f"{column} {number} has the value {value}, expected a finite number"
    return f"{shown(word)} is not a pair {column}:value"


def _joined(pieces: Sequence[tuple[NDArray[Any], ...]], place: int, dtype: type) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype=dtype), *(piece[place] for piece in pieces)])


def _ends(pieces: list[I64]) -> I64:
    """Where each row ends, over all pieces, with a 0 in front: a CSR row pointer."""
    ends, total = [np.zeros(1, dtype=np.int64)], 0
    for piece in pieces:
        ends.append(piece + total)
        total += int(piece[-1])
    return np.concatenate(ends)


def _write_matrix(path: Path, matrix: Csr) -> None:
    write_lines(path, _headed(f"{matrix.shape[0]} {matrix.shape[1]}", _pairs(matrix)))


def _headed(header: str, lines: Iterator[str]) -> Iterator[str]:
    yield header
    yield from lines


def _pairs(matrix: Csr) -> Iterator[str]:
    """``column:value`` pairs per row; values in the shortest form that gives the same 32-bit number back."""
    for start in range(0, matrix.shape[0], _ROWS):
        ends = matrix.indptr[start : start + _ROWS + 1]
        part = slice(ends[0], ends[-1])
        pairs = [
            f"{column}:{value}"
            for column, value in zip(
                matrix.indices[part].tolist(), matrix.data[part].astype(np.float32).astype(str).tolist(), strict=True
            )
        ]
        for begin, end in pairwise((ends - ends[0]).tolist()):
            yield " ".join(pairs[begin:end])


def _label_lists(targets: Csr) -> Iterator[str]:
    labels = list(map(str, targets.indices.tolist()))
    return (",".join(labels[begin:end]) for begin, end in pairwise(targets.indptr.tolist()))
