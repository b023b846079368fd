"""The check of a saved HNSW graph before faiss reads it: faiss follows links without looking where they lead.

What is saved is faiss's own form of an `IndexHNSWFlat` by inner products, little-endian:

    "IHNf", head; HNSW: five lists, each a count (uint64) and its entries: float64 chances of levels, int32 links up to
    each level, int32 levels of items, uint64 where the links of items begin, int32 links; five int32: entry point,
    highest level, two efforts, width of the beam above; "IxFI", head; count (uint64) and float32 vectors

    head: int32 width, int64 items, two int64 that are not used, uint8 whether trained, int32 metric
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEAD = struct.Struct("<iqqqBi")
_INNER_PRODUCT = 0
_MOST_LEVELS = 64


def check_hnsw(saved: NDArray[Any], items: int) -> None:
    """A ValueError where faiss would follow a link, or read a vector, outside of what is there."""
    if saved.ndim != 1 or saved.dtype != np.uint8:
        raise ValueError("a saved graph is a list of bytes")
    try:
        _check(_Bytes(saved.tobytes()), items)
    except (struct.error, IndexError) as problem:
        raise ValueError(f"the saved graph ends too early ({problem})") from problem


class _Bytes:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        found = form.unpack_from(self.raw, self.at)
        self.at += form.size
        return found

    def mark(self, expected: bytes) -> None:
        _expect(self.raw[self.at : self.at + 4] == expected, f"not marked {expected!r}")
        self.at += 4

    def list_of(self, dtype: Any) -> NDArray[Any]:
        (count,) = self.take(struct.Struct("<Q"))
        _expect(count * np.dtype(dtype).itemsize <= len(self.raw) - self.at, f"a list of {count}")
        found = np.frombuffer(self.raw, dtype, count, self.at)
        self.at += found.nbytes
        return found

    def head(self, items: int) -> int:
        width, count, _, _, trained, metric = self.take(_HEAD)
        _expect(width > 0 and count == items and trained == 1 and metric == _INNER_PRODUCT, f"{count} items")
        return int(width)


def _check(saved: _Bytes, items: int) -> None:
    saved.mark(b"IHNf")
    width = saved.head(items)
    chances, links_up_to, levels = saved.list_of("<f8"), saved.list_of("<i4"), saved.list_of("<i4")
    starts, links = saved.list_of("<u8").astype(np.int64), saved.list_of("<i4")
    entry, highest, _, _, _ = saved.take(struct.Struct("<5i"))
    depth = len(links_up_to) - 1
    _expect(0 < depth <= _MOST_LEVELS and len(chances) == depth, f"{depth} levels")
    _expect(links_up_to[0] == 0 and bool(np.all(np.diff(links_up_to) >= 0)), "links that belong to no level")
    _expect(len(levels) == items and len(starts) == items + 1, "levels or links of other items")
    if items:
        _expect(1 <= int(levels.min()) <= int(levels.max()) <= depth, "items on levels that are not there")
        _expect(0 <= entry < items and 0 <= highest < int(levels[entry]), f"it begins at item {entry}")
    else:
        _expect(entry == -1, "it begins at an item, and has none")
    _expect(starts[0] == 0 and starts[-1] == len(links), "pointers to links")
    _expect(bool(np.all(np.diff(starts) == links_up_to[levels])), "items with more or fewer links than their levels")
    _expect(not len(links) or -1 <= int(links.min()) <= int(links.max()) < items, "links to items that are not there")
    _check_levels(links, starts, levels, links_up_to)
    saved.mark(b"IxFI")
    _expect(saved.head(items) == width, "vectors of another width")
    _expect(len(saved.list_of("<f4")) == items * width and saved.at == len(saved.raw), "more or fewer vectors")


def _check_levels(links: NDArray[Any], starts: NDArray[Any], levels: NDArray[Any], links_up_to: NDArray[Any]) -> None:
    """A link on a level must lead to an item that has this level: there its links of the same level are read."""
    place = np.arange(len(links)) - np.repeat(starts[:-1], np.diff(starts))
    level = np.searchsorted(links_up_to, place, side="right") - 1
    there = links >= 0
    _expect(bool(np.all(levels[links[there]] > level[there])), "links to items that are not on their level")


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(f"the saved graph does not fit its items: {otherwise}")
