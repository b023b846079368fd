"""Training documents as numbers on the disk: rows of features and of labels, of which only what is asked for is read.

Arrays are files of plain numbers, memory-mapped. Documents come in a shuffled order of blocks: blocks (documents that
lie side by side) are shuffled, some of them at a time are a window, and documents are shuffled inside it. So the disk
is read in long pieces, and what is in memory is one window.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from longtail.errors import RunError
from longtail.persistence import put_json, read_json
from longtail.types import I64, Csr

_HEAD = "documents.json"
# Documents of a block, at most: about a megabyte of features. A window has so many blocks at least.
BLOCK, BLOCKS_OF_WINDOW = 2048, 16
# What a pair of a document and a label is: a target; neither right nor wrong; that because the document is the label.
TARGET, MASKED, SAME = 1, -1, -2
_PIECES: dict[str, tuple[DTypeLike, ...]] = {
    "features": (np.int64, np.int32, np.float32),
    "targets": (np.int64, np.int32, np.int8),
}


class RowsOnDisk:
    """A CSR array in three files, where rows begin, column numbers and values."""

    def __init__(self, folder: Path, name: str, rows: int, columns: int) -> None:
        self.columns = columns
        files = [folder / f"{name}.{piece}" for piece in ("starts", "numbers", "values")]
        starts, numbers, values = (_mapped(file, kind) for file, kind in zip(files, _PIECES[name], strict=True))
        if len(starts) != rows + 1 or len(numbers) != len(values) or len(numbers) != int(starts[-1]):
            raise RunError(f"{folder}: '{name}' is not of {rows} documents", "--restart begins anew")
        self.starts, self.numbers, self.values = starts, numbers, values

    def __len__(self) -> int:
        return len(self.starts) - 1

    def pieces(self, index: I64) -> tuple[I64, NDArray[Any], NDArray[Any]]:
        """Starts, column numbers and values of the rows at `index`, in that order."""
        begin = self.starts[index]
        lengths = self.starts[index + 1] - begin
        starts = np.zeros(len(index) + 1, dtype=np.int64)
        np.cumsum(lengths, out=starts[1:])
        places = np.arange(starts[-1]) + np.repeat(begin - starts[:-1], lengths)
        return starts, self.numbers[places], self.values[places]

    def rows(self, index: I64) -> Csr:
        from scipy.sparse import csr_array

        starts, numbers, values = self.pieces(index)
        return csr_array((values, numbers, starts), shape=(len(index), self.columns))

    def let_go(self) -> None:
        """What was read need no longer be in memory; it is read again when it is asked for."""
        for array in (self.starts, self.numbers, self.values):
            opened = getattr(array, "_mmap", None)
            if opened is not None and hasattr(mmap, "MADV_DONTNEED"):
                opened.madvise(mmap.MADV_DONTNEED)


def _mapped(file: Path, kind: DTypeLike) -> NDArray[Any]:
    try:
        return np.memmap(file, dtype=kind, mode="r")
    except (OSError, ValueError) as problem:
        raise RunError(f"{file}: cannot be read ({problem})", "--restart begins anew") from None


class DocumentsOnDisk:
    """All N training documents of a run.

    features: (N, V).  targets: (N, L), `TARGET`, `MASKED` or `SAME` each.  counts: (L,) documents of each label.
    window: documents that are in memory at a time.
    """

    def __init__(self, folder: Path) -> None:
        head = read_json(folder / _HEAD, RunError)
        documents, self.window = int(head["documents"]), int(head["window"])
        self.features = RowsOnDisk(folder, "features", documents, int(head["features"]))
        self.targets = RowsOnDisk(folder, "targets", documents, int(head["labels"]))
        self.counts: I64 = np.array(_mapped(folder / "labels.counts", np.int64))

    def __len__(self) -> int:
        return len(self.features)

    @property
    def pairs(self) -> int:
        """Of a document and one of its labels."""
        return int(self.counts.sum())

    def labels_of(self, index: I64) -> tuple[Csr, I64, I64]:
        """As `labels_by_marks`, of the documents at `index`."""
        return labels_by_marks(self.targets.rows(index))

    def order(self, rng: np.random.Generator) -> I64 | BlockOrder:
        """Every document once, in a shuffled order: of all where they fit into a window."""
        if self.window >= len(self):
            return rng.permutation(len(self))
        return BlockOrder(len(self), self.window, rng, self.let_go)

    def let_go(self) -> None:
        self.features.let_go()
        self.targets.let_go()


def labels_by_marks(marked: Csr) -> tuple[Csr, I64, I64]:
    """(n, L) CSR of ones, masked pairs (P, 2), and those of them where the document is the label.

    marked: see `DocumentsOnDisk.targets`.
    """
    from scipy.sparse import csr_array

    documents, marks = marked.shape[0], marked.data
    owners, kept = np.repeat(np.arange(documents), np.diff(marked.indptr)), marks == TARGET
    ends = np.zeros(documents + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners[kept], minlength=documents), out=ends[1:])
    targets = csr_array((np.ones(int(ends[-1]), np.float32), marked.indices[kept], ends), shape=marked.shape)
    hidden = np.flatnonzero(marks < 0)
    masked = np.stack([owners[hidden], marked.indices[hidden].astype(np.int64)], axis=1)
    return targets, masked, masked[marks[hidden] == SAME]


class BlockOrder:
    """Numbers of documents in a shuffled order of blocks, made window by window; asked for by slices, one after the
    other.

    on_window: called before a new window.
    """

    def __init__(
        self, documents: int, window: int, rng: np.random.Generator, on_window: Callable[[], None] = lambda: None
    ) -> None:
        self.documents, self.on_window = documents, on_window
        self.block = int(np.clip(window // BLOCKS_OF_WINDOW, 1, BLOCK))
        blocks, each = rng.permutation(-(-documents // self.block)), max(1, window // self.block)
        self.windows = [blocks[first : first + each] for first in range(0, len(blocks), each)]
        short = -documents % self.block
        sizes = [self.block * len(own) - short * int((own == len(blocks) - 1).any()) for own in self.windows]
        self.edges = np.concatenate([[0], np.cumsum(sizes)])
        self._seed = int(rng.integers(2**63 - 1))
        self._at, self._order = -1, np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self.documents

    def __getitem__(self, part: slice, /) -> I64:
        start, stop, _ = part.indices(self.documents)
        pieces = [np.zeros(0, np.int64)]
        while start < stop:
            window = int(np.searchsorted(self.edges, start, side="right")) - 1
            end = min(stop, int(self.edges[window + 1]))
            first = int(self.edges[window])
            pieces.append(self._window(window)[start - first : end - first])
            start = end
        return np.concatenate(pieces)

    def _window(self, number: int) -> I64:
        if number != self._at:
            self.on_window()
            inside = (self.windows[number][:, None] * self.block + np.arange(self.block)).ravel()
            inside = inside[inside < self.documents]
            self._at, self._order = number, np.random.default_rng([self._seed, number]).permutation(inside)
        return self._order


class DocumentsWriter:
    """Puts documents into a new folder, some at a time. Use as a context manager."""

    def __init__(self, folder: Path, labels: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.documents, self.entries = folder, 0, 0
        self.counts = np.zeros(labels, dtype=np.int64)
        self._opened, self._ends = ExitStack(), {"features": 0, "targets": 0}
        self._files: dict[str, tuple[BinaryIO, ...]] = {
            name: tuple(
                self._opened.enter_context((folder / f"{name}.{piece}").open("wb"))
                for piece in ("starts", "numbers", "values")
            )
            for name in _PIECES
        }
        for files in self._files.values():
            files[0].write(np.zeros(1, np.int64).tobytes())

    def add(self, features: Csr, targets: Csr) -> None:
        """Rows of both, of the same documents; targets: see `DocumentsOnDisk`."""
        self.documents += features.shape[0]
        self.entries += features.nnz
        self.counts += np.bincount(targets.indices[targets.data == TARGET], minlength=len(self.counts))
        for name, matrix in (("features", features), ("targets", targets)):
            ends = self._ends[name] + matrix.indptr[1:].astype(np.int64)
            self._ends[name] += int(matrix.indptr[-1])
            for file, kind, piece in zip(
                self._files[name], _PIECES[name], (ends, matrix.indices, matrix.data), strict=True
            ):
                file.write(np.ascontiguousarray(piece, dtype=kind).data)

    def finish(self, features: int, window: int) -> None:
        """features: V.  window: see `DocumentsOnDisk`."""
        self._opened.close()
        (self.folder / "labels.counts").write_bytes(self.counts.tobytes())
        head = {"documents": self.documents, "features": features, "labels": len(self.counts), "window": window}
        put_json(self.folder / _HEAD, head)

    def __enter__(self) -> DocumentsWriter:
        return self

    def __exit__(self, *problem: object) -> None:
        self._opened.close()
