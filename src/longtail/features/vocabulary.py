"""Which features a corpus has: counting by document in one pass, choosing, spelling; and a sub-word vocabulary that is
learned from its words, offline.

`tokenizers` learns the sub-words; cutting words into pieces is a kernel of ours (`kernels`), so prediction does
not need the library, and a test holds both to the same pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from longtail.features import kernels as kernels
from longtail.features.reading import KIND_SHIFT, U32, U64, KeyBags, Reader, blocks, code_points, encode, in_order
from longtail.persistence import StringTable
from longtail.types import F32, I32, I64

INSIDE = "##"
_LEAST_COUNT = 2
_REORDERED = 1 << 16  # strings that are put in order at a time


def train_pieces(words: Sequence[str], counts: I64, size: int) -> list[str]:
    """About `size` pieces, sorted; those that continue a word begin with ``##``. The same words and counts give the
    same pieces.

    The library's trainer alone does not: it numbers the characters that continue words in the order of a randomly
    seeded hash map, and these numbers break ties between merges. Handing it those characters, sorted, as given tokens
    fixes their numbers (checked: any order of words and any number of threads, equal pieces).
    """
    from longtail.features.pieces import tokenizers_for

    library = tokenizers_for("features.subwords=wordpiece")
    characters_inside = sorted({character for word in words for character in word[1:]})
    tokenizer = library.Tokenizer(library.models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    trainer = library.trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=_LEAST_COUNT,
        continuing_subword_prefix=INSIDE,
        special_tokens=[INSIDE + character for character in characters_inside],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeated(words, counts), trainer)
    return sorted(tokenizer.get_vocab())


def _repeated(words: Sequence[str], counts: I64) -> Iterator[str]:
    """Each word as often as it counts: the trainer only takes text."""
    for word, count in zip(words, counts.tolist(), strict=True):
        yield f"{word} " * count


def piece_keys(pieces: Sequence[str]) -> U64:
    """The feature keys of pieces, in their order."""
    inside = np.array([piece.startswith(INSIDE) for piece in pieces], dtype=np.bool_)
    return kernels.keys_of_pieces(*code_points([piece.removeprefix(INSIDE) for piece in pieces]), inside)


# Which column a count goes to: idf needs the documents alone, the choice of features looks at both.
DOCUMENTS, LABELS = 0, 1


class Source(NamedTuple):
    """Texts to learn from: one sequence per field, what an occurrence in each field counts, DOCUMENTS or LABELS."""

    columns: Sequence[Sequence[str]]
    weights: F32
    side: int


@dataclass(frozen=True)
class Counted:
    """Features that occur often enough, by increasing key. documents, labels: in how many of each a feature occurs.

    forgotten: counts may be too low by so much, where there was not room for all features; else 0.
    """

    keys: U64
    documents: I32
    labels: I32
    spellings: StringTable
    forgotten: int = 0

    @property
    def total(self) -> I64:
        return self.documents.astype(np.int64) + self.labels

    def most_frequent(self, most: int) -> Counted:
        """The `most` features with the highest counts of documents and labels; ties go by spelling, then by kind."""
        if most >= len(self.keys):
            return self
        total = self.total
        last = int(np.partition(total, len(total) - most)[len(total) - most])
        sure, ties = np.flatnonzero(total > last), np.flatnonzero(total == last).tolist()
        ties.sort(key=lambda i: self.spellings[i].encode())
        rows = np.sort(np.concatenate([sure, np.array(ties[: most - len(sure)], dtype=np.int64)]))
        spellings = _reordered(self.spellings, rows)
        return Counted(self.keys[rows], self.documents[rows], self.labels[rows], spellings, self.forgotten)

    def with_all_pieces(self, pieces: Sequence[str]) -> Counted:
        """With every one of `pieces`, those that never occurred as well."""
        keys = piece_keys(pieces)
        absent = np.flatnonzero(~np.isin(keys, self.keys))
        every = np.concatenate([self.keys, keys[absent]])
        order = np.argsort(every)
        none = np.zeros(len(absent), np.int32)
        spellings = StringTable.of([*self.spellings, *(pieces[i] for i in absent.tolist())])
        return Counted(
            every[order],
            np.concatenate([self.documents, none])[order],
            np.concatenate([self.labels, none])[order],
            _reordered(spellings, order),
        )


def count_features(
    sources: Iterable[Source], reader: Reader, least: Sequence[int], keep_bags: bool = False, room: int = 0
) -> tuple[Counted, list[deque[KeyBags]]]:
    """Reads the sources once. Gives the features that reach the least count of their kind, and per source its bags if
    they are to be kept.

    room: features that are counted at a time; 0: all. Blocks are read on all cores and counted in their order.
    """
    counter = _FeatureCounter(least, reader, room)
    kept: list[deque[KeyBags]] = []
    for source in sources:
        kept.append(deque())

        def read(texts: list[str], weights: F32 = source.weights) -> tuple[U32, I64, KeyBags]:
            text, edges = encode(texts)
            keys, counts, origins, rows = kernels.bags(text, edges, weights, reader)
            return text, origins, KeyBags(keys, counts, rows)

        for text, origins, bags in in_order(read, blocks(source.columns)):
            counter.add(source.side, text, bags.keys, origins)
            if keep_bags:
                kept[-1].append(bags)
    return counter.result(), kept


class _FeatureCounter:
    """Counts in how many documents and labels each feature occurs, block by block.

    A feature is spelled out at the moment it reaches the least count of its kind, so the many that never do cost 16
    bytes each.

    room: where there are more features than this, the rarest are forgotten: first those that were seen once, the next
        time those that were seen at most twice, and so on. A feature that comes back begins anew, so that its count is
        too low by at most the number of times. (Lossy counting: Manku and Motwani 2002.)  0: room for all.
    """

    def __init__(self, least: Sequence[int], reader: Reader, room: int = 0) -> None:
        self._reader, self._least, self._most, self._forgotten = reader, np.array(least, dtype=np.int32), room, 0
        self._slots, self._counts = _empty_table(1 << 16)
        self._used = 0
        self._keys, self._points = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint32)]
        self._lengths = [np.zeros(0, np.int64)]

    def add(self, side: int, text: U32, keys: U64, origins: I64) -> None:
        self._make_room(len(keys))
        new, reached = kernels.count_keys(keys, side, self._slots, self._counts, self._least)
        self._used += new
        points, offsets = kernels.spell(text, self._reader.classes, keys[reached], origins[reached])
        self._keys.append(keys[reached])
        self._points.append(points)
        self._lengths.append(np.diff(offsets))
        while self._most and self._used > self._most:
            self._forget()

    def _forget(self) -> None:
        self._forgotten += 1
        total = self._counts.sum(axis=1)
        kept = np.flatnonzero(total > self._forgotten)
        remembered = np.sort(self._slots[kept])
        counts = np.where((total > self._forgotten)[:, None], self._counts, 0)
        slots, empty = _empty_table(len(self._slots))
        kernels.move_counts(self._slots, counts, slots, empty)
        self._slots, self._counts, self._used = slots, empty, len(kept)
        keys, lengths = np.concatenate(self._keys), np.concatenate(self._lengths)
        spelled = np.isin(keys, remembered)
        self._points = [np.concatenate(self._points)[np.repeat(spelled, lengths)]]
        self._keys, self._lengths = [keys[spelled]], [lengths[spelled]]

    def _make_room(self, more: int) -> None:
        capacity = len(self._slots)
        while self._used + more > capacity // 2:
            capacity *= 2
        if capacity > len(self._slots):
            slots, counts = _empty_table(capacity)
            kernels.move_counts(self._slots, self._counts, slots, counts)
            self._slots, self._counts = slots, counts

    def result(self) -> Counted:
        """What reached its least count."""
        used = np.flatnonzero(self._counts[:, DOCUMENTS] + self._counts[:, LABELS])
        keys, counts = self._slots[used], self._counts[used]
        often = counts.sum(axis=1) >= self._least[(keys >> KIND_SHIFT).astype(np.int64)]
        keys, counts = keys[often], counts[often]
        order = np.argsort(keys)
        spellings = _utf8(np.concatenate(self._points), np.concatenate(self._lengths))
        return Counted(
            keys[order],
            counts[order, DOCUMENTS],
            counts[order, LABELS],
            _reordered(spellings, np.argsort(np.concatenate(self._keys))),
            self._forgotten,
        )


def _empty_table(capacity: int) -> tuple[U64, I32]:
    return np.zeros(capacity, dtype=np.uint64), np.zeros((capacity, 2), dtype=np.int32)


def _utf8(points: U32, lengths: I64) -> StringTable:
    """Code points of many strings, one after the other, as a table."""
    blob = np.frombuffer(points.astype("<u4").tobytes().decode("utf-32-le").encode(), dtype=np.uint8)
    sizes = np.uint8(1) + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    # No spelling is empty, so every sum is over the characters of exactly one.
    np.cumsum(np.add.reduceat(sizes, np.cumsum(lengths) - lengths, dtype=np.int64), out=offsets[1:])
    return StringTable(blob, offsets)


def _reordered(strings: StringTable, rows: I64) -> StringTable:
    """The strings at `rows`, in that order."""
    starts, lengths = strings.offsets[rows], np.diff(strings.offsets)[rows]
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    blob = np.empty(int(offsets[-1]), dtype=np.uint8)
    # Some at a time: a place takes eight bytes, what stands there one.
    for first in range(0, len(rows), _REORDERED):
        part = slice(first, first + _REORDERED)
        begin, end = int(offsets[first]), int(offsets[1:][part][-1])
        places = np.repeat(starts[part] - offsets[:-1][part], lengths[part]) + np.arange(begin, end)
        blob[begin:end] = strings.blob[places]
    return StringTable(blob, offsets)
