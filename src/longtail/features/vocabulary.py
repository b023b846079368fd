"""Which features a corpus has: counting by document in one pass, choosing, spelling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail.features import sparse_kernels as kernels
from longtail.features.sparse_kernels import U32, U64, KeyTable, Reader
from longtail.persistence import StringTable
from longtail.types import I32, I64

# Which column a count goes to: idf needs the documents alone, the choice of features looks at both.
DOCUMENTS, LABELS = 0, 1
_KINDS = 4


@dataclass(frozen=True)
class Counted:
    """Features that occur often enough, by increasing key. documents, labels: in how many of each a feature occurs."""

    keys: U64
    documents: I32
    labels: I32
    spellings: StringTable

    def most_frequent(self, most: int) -> Counted:
        """The `most` features with the highest counts (documents and labels together); ties go by spelling, then by key."""
        if most >= len(self.keys):
            return self
        total = self.documents.astype(np.int64) + self.labels
        last = int(np.partition(total, len(total) - most)[len(total) - most])
        sure, ties = np.flatnonzero(total > last), np.flatnonzero(total == last).tolist()
        ties.sort(key=lambda i: (self.spellings[i].encode(), int(self.keys[i])))
        return self._rows(np.sort(np.concatenate([sure, np.array(ties[: most - len(sure)], dtype=np.int64)])))

    def _rows(self, rows: I64) -> Counted:
        return Counted(self.keys[rows], self.documents[rows], self.labels[rows], _reordered(self.spellings, rows))


class FeatureCounter:
    """Counts in how many documents and labels each feature occurs, block by block.

    A feature is spelled out at the moment it reaches the least count of its kind, so the many that never do cost 16 bytes each.
    """

    def __init__(self, least: tuple[int, int, int, int]) -> None:
        self._least = np.array(least, dtype=np.int32)
        self._slots, self._counts, self._used = _empty_table(1 << 16)
        self._spelled: list[tuple[U64, U32, I64]] = []

    def add(self, side: int, text: U32, reader: Reader, keys: U64, origins: I64) -> None:
        """Counts the features of a block (see `sparse_kernels.bags`), each at most once per document."""
        self._make_room(len(keys))
        new, reached = kernels.count_keys(keys, side, self._slots, self._counts, self._least)
        self._used += new
        if len(reached):
            self._spelled.append((keys[reached], *kernels.spell(text, reader.classes, keys[reached], origins[reached])))

    def _make_room(self, more: int) -> None:
        capacity = len(self._slots)
        while self._used + more > capacity // 2:
            capacity *= 2
        if capacity > len(self._slots):
            slots, counts, _ = _empty_table(capacity)
            kernels.move_counts(self._slots, self._counts, slots, counts)
            self._slots, self._counts = slots, counts

    def result(self) -> Counted:
        """What reached its least count. The counter cannot be used afterwards."""
        kept = np.flatnonzero(self._counts.sum(axis=1) >= self._least[(self._slots >> kernels.KIND_SHIFT).astype(np.int64)])
        kept = kept[np.argsort(self._slots[kept])]
        keys, counts = self._slots[kept], self._counts[kept]
        del self._slots, self._counts
        spelled_keys = np.concatenate([np.zeros(0, np.uint64), *(k for k, _, _ in self._spelled)])
        points = np.concatenate([np.zeros(0, np.uint32), *(p for _, p, _ in self._spelled)])
        lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(o) for _, _, o in self._spelled)])
        self._spelled.clear()
        spellings = _reordered(_utf8(points, lengths), np.argsort(spelled_keys))
        return Counted(keys, counts[:, DOCUMENTS].copy(), counts[:, LABELS].copy(), spellings)


def key_table(keys: U64) -> KeyTable:
    """A table over increasing `keys`, which must not change any more."""
    if np.any(keys[1:] <= keys[:-1]):
        raise ValueError("keys of features are not increasing")
    bits = max(1, int(len(keys)).bit_length())
    shift = np.uint64(64 - bits)
    buckets = np.zeros((1 << bits) + 1, dtype=np.int32)
    np.cumsum(np.bincount((keys >> shift).astype(np.int64), minlength=1 << bits), out=buckets[1:])
    keys.flags.writeable = buckets.flags.writeable = False
    return KeyTable(keys, buckets, shift)


def _empty_table(capacity: int) -> tuple[U64, I32, int]:
    return np.zeros(capacity, dtype=np.uint64), np.zeros((capacity, 2), dtype=np.int32), 0


def _utf8(points: U32, lengths: I64) -> StringTable:
    """Code points of many strings, one after the other, as a table."""
    blob = np.frombuffer(points.astype("<u4").tobytes().decode("utf-32-le").encode(), dtype=np.uint8)
    bytes_before = np.zeros(len(points) + 1, dtype=np.int64)
    np.cumsum(1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000), out=bytes_before[1:])
    return StringTable(blob, bytes_before[np.concatenate([[0], np.cumsum(lengths)])])


def _reordered(strings: StringTable, rows: I64) -> StringTable:
    """The strings at `rows`, in that order."""
    starts, lengths = strings.offsets[rows], np.diff(strings.offsets)[rows]
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return StringTable(strings.blob[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])], offsets)
