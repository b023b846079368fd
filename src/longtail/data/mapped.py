"""Training documents as numbers on the disk: rows of features and of labels, of which only what is asked for is read.

Arrays are files of plain numbers, memory-mapped. Documents come in a shuffled order of blocks: blocks (documents that
lie side by side) are shuffled, some of them at a time are a window, and documents are shuffled inside it. A window is
copied from the map when it begins, block by block: the disk is read in long pieces, and what is in memory is known.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from longtail.errors import RunError
from longtail.persistence import put_json, read_json
from longtail.types import I64, BoolArray, Csr

Pieces: TypeAlias = tuple[I64, NDArray[Any], NDArray[Any]]

_HEAD = "documents.json"
# Documents of a block, at most: about a megabyte of features. A window has so many blocks at least.
BLOCK, BLOCKS_OF_WINDOW = 2048, 16
# What a pair of a document and a label is: a target; neither right nor wrong; that because the document is the label.
TARGET, MASKED, SAME = 1, -1, -2
_PIECES: dict[str, tuple[DTypeLike, ...]] = {
    "features": (np.int64, np.int32, np.float32),
    "targets": (np.int64, np.int32, np.int8),
}


class CsrRows:
    """A CSR array of so many columns: where rows begin, column numbers and values."""

    def __init__(self, starts: I64, numbers: NDArray[Any], values: NDArray[Any], columns: int) -> None:
        self.starts, self.numbers, self.values, self.columns = starts, numbers, values, columns

    def __len__(self) -> int:
        return len(self.starts) - 1

    def pieces(self, index: I64) -> Pieces:
        """Starts, column numbers and values of the rows at `index`, in that order."""
        begin = self.starts[index]
        lengths = self.starts[index + 1] - begin
        starts = np.zeros(len(index) + 1, dtype=np.int64)
        np.cumsum(lengths, out=starts[1:])
        places = np.arange(starts[-1]) + np.repeat(begin - starts[:-1], lengths)
        return starts, self.numbers[places], self.values[places]


class RowsOnDisk(CsrRows):
    """In three files, mapped into memory."""

    def __init__(self, folder: Path, name: str, rows: int, columns: int) -> None:
        files = [folder / f"{name}.{piece}" for piece in ("starts", "numbers", "values")]
        starts, numbers, values = (_mapped(file, kind) for file, kind in zip(files, _PIECES[name], strict=True))
        if len(starts) != rows + 1 or len(numbers) != len(values) or len(numbers) != int(starts[-1]):
            raise RunError(f"{folder}: '{name}' is not of {rows} documents", "--restart begins anew")
        super().__init__(starts, numbers, values, columns)

    def copied(self, blocks: I64, size: int) -> CsrRows:
        """The rows of blocks of `size` rows each, one after the other, in memory of their own."""
        begins = blocks * size
        ends = np.minimum(begins + size, len(self))
        starts = np.zeros(1 + int((ends - begins).sum()), dtype=np.int64)
        lengths = [np.diff(self.starts[begin : end + 1]) for begin, end in zip(begins, ends, strict=True)]
        np.cumsum(np.concatenate(lengths), out=starts[1:])
        numbers, values = (np.empty(int(starts[-1]), array.dtype) for array in (self.numbers, self.values))
        at = 0
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            first, last = self.starts[[begin, end]].tolist()
            part = slice(at, at + last - first)
            numbers[part], values[part] = self.numbers[first:last], self.values[first:last]
            at = part.stop
            self.let_go()
        return CsrRows(starts, numbers, values, self.columns)

    def let_go(self) -> None:
        """What was read need no longer be in memory; it is read again when it is asked for.

        The kernel maps more than was asked for, megabytes around each place, and keeps it as long as there is room.
        """
        for array in (self.starts, self.numbers, self.values):
            opened = getattr(array, "_mmap", None)
            if opened is not None and hasattr(mmap, "MADV_DONTNEED"):
                opened.madvise(mmap.MADV_DONTNEED)


def _mapped(file: Path, kind: DTypeLike) -> NDArray[Any]:
    try:
        return np.memmap(file, dtype=kind, mode="r")
    except (OSError, ValueError) as problem:
        raise RunError(f"{file}: cannot be read ({problem})", "--restart begins anew") from None


class Window:
    """Some blocks of documents, in memory.  blocks: their numbers, ascending."""

    def __init__(self, rows: Mapping[str, RowsOnDisk], blocks: I64, size: int) -> None:
        self.rows = {name: own.copied(blocks, size) for name, own in rows.items()}
        self._size = size
        self._places = np.full(-(-len(rows["features"]) // size), -1, dtype=np.int64)
        self._places[blocks] = np.arange(len(blocks)) * size

    def where(self, index: I64) -> I64:
        """The rows of documents here; -1 for those that are not."""
        places = self._places[index // self._size]
        return np.where(places >= 0, places + index % self._size, -1)


class DocumentsOnDisk:
    """All N training documents of a run.

    rows: "features", (N, V), and "targets", (N, L), each of which is `TARGET`, `MASKED` or `SAME`.
    counts: (L,) documents of each label.  window: documents of a window; at most two of them are in memory.
    """

    def __init__(self, folder: Path) -> None:
        head = read_json(folder / _HEAD, RunError)
        self._documents, self.window = int(head["documents"]), int(head["window"])
        widths = {"features": int(head["features"]), "targets": int(head["labels"])}
        self.rows = {name: RowsOnDisk(folder, name, self._documents, width) for name, width in widths.items()}
        self.counts: I64 = np.array(_mapped(folder / "labels.counts", np.int64))
        self._windows: list[Window] = []

    def __len__(self) -> int:
        return self._documents

    @property
    def pairs(self) -> int:
        """Of a document and one of its labels."""
        return int(self.counts.sum())

    def pieces(self, name: str, index: I64) -> Pieces:
        """Starts, column numbers and values of `rows[name]` at `index`: out of windows, where they have them."""
        places = [window.where(index) for window in self._windows]
        if places and (places[-1] >= 0).all():
            del self._windows[:-1]
            return self._windows[-1].rows[name].pieces(places[-1])
        if not places or (np.max(places, axis=0) < 0).any():
            return self.rows[name].pieces(index)
        # The end of a window and the beginning of the next.
        return _merged(
            [
                (own >= 0, window.rows[name].pieces(own[own >= 0]))
                for window, own in zip(self._windows, places, strict=True)
            ]
        )

    def labels_of(self, index: I64) -> tuple[Csr, I64, I64]:
        """As `labels_by_marks`, of the documents at `index`."""
        from scipy.sparse import csr_array

        starts, numbers, values = self.pieces("targets", index)
        return labels_by_marks(csr_array((values, numbers, starts), shape=(len(index), len(self.counts))))

    def order(self, rng: np.random.Generator) -> I64 | BlockOrder:
        """Every document once, in a shuffled order: of all where they fit into a window."""
        self.let_go()
        if self.window >= len(self):
            return rng.permutation(len(self))
        return BlockOrder(len(self), self.window, rng, self._begin)

    def _begin(self, blocks: I64, size: int) -> None:
        """Documents of the window before may still be asked for: until the first batch of new ones alone."""
        del self._windows[:-1]
        self._windows.append(Window(self.rows, np.sort(blocks), size))

    def let_go(self) -> None:
        """Nothing need be in memory any more."""
        self._windows.clear()
        for rows in self.rows.values():
            rows.let_go()


def _merged(parts: Sequence[tuple[BoolArray, Pieces]]) -> Pieces:
    """Rows out of several places: which they are, and their pieces."""
    lengths = np.zeros(len(parts[0][0]), dtype=np.int64)
    for which, (starts, _, _) in parts:
        lengths[which] = np.diff(starts)
    whole = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=whole[1:])
    numbers, values = (np.empty(int(whole[-1]), parts[0][1][piece].dtype) for piece in (1, 2))
    for which, (starts, own_numbers, own_values) in parts:
        at = np.repeat(whole[:-1][which] - starts[:-1], np.diff(starts)) + np.arange(len(own_numbers))
        numbers[at], values[at] = own_numbers, own_values
    return whole, numbers, values


def labels_by_marks(marked: Csr) -> tuple[Csr, I64, I64]:
    """(n, L) CSR of ones, masked pairs (P, 2), and those of them where the document is the label.

    marked: as the targets of `DocumentsOnDisk`.
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

    on_window: called before a new window, with its blocks and their size.
    """

    def __init__(
        self,
        documents: int,
        window: int,
        rng: np.random.Generator,
        on_window: Callable[[I64, int], None] = lambda blocks, size: None,
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
            self.on_window(self.windows[number], self.block)
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
