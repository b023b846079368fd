"""The inner loops of `SparseText`: code points in, weighted features out.

A feature is known by a 64-bit key: its kind in the top two bits, a hash of its spelling below. Two of n features
share a key with a chance of about n^2 / 2^63: one in a hundred thousand for ten million features, so collisions are
not handled. Features are numbered in the order of their keys, hence sorted keys are sorted columns, and the kinds lie
one after the other.

All kernels run without the interpreter's lock on one thread each: `SparseText` gives every thread a block of
documents of its own. So results cannot depend on the number of threads, one short text costs no thread start, and a
server may call from many threads at once. Arrays that are only read are expected read-only (as memory maps are), so
that each kernel is compiled once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from longtail.features.reading import (
    CHARS,
    KIND_SHIFT,
    PAIRS,
    PIECES,
    SEPARATOR,
    U8,
    U32,
    U64,
    WORD,
    WORDS,
    KeyTable,
    Reader,
)
from longtail.kernels.compiled import compiled
from longtail.types import F32, I32, I64

# One seed per kind, so that a word and a pair are never alike; a piece inside a word is none at its start.
_SEEDS = (
    np.uint64(0x8CB92BA72F3D8DD7),
    np.uint64(0xD6E8FEB86659FD93),
    np.uint64(0xA24BAED4963EE407),
    np.uint64(0x9FB21C651E98DF25),
)
_SEED_INSIDE = np.uint64(0xC2B2AE3D27D4EB4F)

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_FINISH_1, _FINISH_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_S32, _S33, _S2 = np.uint64(32), np.uint64(33), np.uint64(2)
# The marks of word edges in character n-grams: no code point is that large.
_BEGIN, _END = np.uint64(0x110000), np.uint64(0x110001)
# Longer "words" are not cut into pieces (the limit of `tokenizers`): they are encoded data, not language.
LONGEST_CUT_WORD = 100


@compiled()
def _step(state: np.uint64, value: np.uint64) -> np.uint64:
    state = (state ^ value) * _MULTIPLIER
    return state ^ (state >> _S32)


@compiled()
def _finish(state: np.uint64, kind: int) -> np.uint64:
    """Mixes the last bits in (the finaliser of MurmurHash3) and puts the kind on top."""
    state = (state ^ (state >> _S33)) * _FINISH_1
    state = (state ^ (state >> _S33)) * _FINISH_2
    state ^= state >> _S33
    return (np.uint64(kind) << KIND_SHIFT) | (state >> _S2)


@compiled()
def find(table: KeyTable, key: np.uint64) -> int:
    """The number of `key` in the table, or -1."""
    bucket = np.int64(key >> table.shift)
    for i in range(table.buckets[bucket], table.buckets[bucket + 1]):
        if table.keys[i] == key:
            return i
    return -1


@compiled()
def _put(keys: U64, origins: I64, at: int, key: np.uint64, place: int, length: int, marks: int) -> int:
    """Notes a feature and where it is spelled: `origins` packs first code point, length and two flags for `spell`."""
    keys[at] = key
    origins[at] = (np.int64(place) << 32) | (np.int64(length) << 2) | np.int64(marks)
    return at + 1


@compiled()
def _put_gram(text: U32, begin: int, marked: int, first: int, length: int, keys: U64, origins: I64, at: int) -> int:
    """Notes the `length` characters from `first` on of a word that has `marked` characters with its edge marks."""
    state = _SEEDS[CHARS]
    for i in range(first, first + length):
        state = _step(state, _BEGIN if i == 0 else _END if i == marked - 1 else np.uint64(text[begin + i - 1]))
    at_begin, at_end = int(first == 0), int(first + length == marked)
    return _put(
        keys,
        origins,
        at,
        _finish(state, CHARS),
        begin + first - 1 + at_begin,
        length - at_begin - at_end,
        at_begin | at_end << 1,
    )


@compiled()
def _read_grams(text: U32, begin: int, end: int, sizes: I64, whole: bool, keys: U64, origins: I64, at: int) -> int:
    """N-grams of the word text[begin:end] with its edge marks. `whole`: a word too short for any counts as it is."""
    marked = end - begin + 2
    if whole and marked < sizes[0]:
        return _put_gram(text, begin, marked, 0, marked, keys, origins, at)
    for size in sizes:
        for first in range(marked - size + 1):
            at = _put_gram(text, begin, marked, first, size, keys, origins, at)
    return at


@compiled()
def _read_pieces(
    text: U32, begin: int, end: int, pieces: KeyTable, longest: int, keys: U64, origins: I64, at: int
) -> int:
    """WordPiece: the longest known piece first, then on from its end. A word with an unknown rest gives nothing."""
    if end - begin > LONGEST_CUT_WORD:
        return at
    start = at
    place = begin
    while place < end:
        state = _SEEDS[PIECES] if place == begin else _SEED_INSIDE
        best_key, best_end = np.uint64(0), -1
        for i in range(place, min(end, place + longest)):
            state = _step(state, np.uint64(text[i]))
            key = _finish(state, PIECES)
            if find(pieces, key) >= 0:
                best_key, best_end = key, i + 1
        if best_end < 0:
            return start
        at = _put(keys, origins, at, best_key, place, best_end - place, int(place > begin))
        place = best_end
    return at


@compiled()
def read_keys(text: U32, start: int, end: int, reader: Reader, keys: U64, origins: I64, at: int) -> int:
    """Writes the features of text[start:end] in reading order from `at` on; returns the position after them."""
    previous, previous_begin = np.uint64(0), -1
    i = start
    while i < end:
        kind_of_character = reader.classes[text[i]]
        if kind_of_character == SEPARATOR:
            i += 1
            continue
        begin = i
        state = _step(_SEEDS[WORDS], np.uint64(text[i]))
        i += 1
        if kind_of_character == WORD:
            while i < end and reader.classes[text[i]] == WORD:
                state = _step(state, np.uint64(text[i]))
                i += 1
        if reader.kinds & (1 << PAIRS) and previous_begin >= 0:
            key = _finish(_step(_step(_SEEDS[PAIRS], previous), state), PAIRS)
            at = _put(keys, origins, at, key, previous_begin, i - previous_begin, 0)
        if reader.kinds & (1 << WORDS):
            at = _put(keys, origins, at, _finish(state, WORDS), begin, i - begin, 0)
        if reader.kinds & (1 << CHARS):
            at = _read_grams(text, begin, i, reader.sizes, not reader.kinds & (1 << WORDS), keys, origins, at)
        if reader.kinds & (1 << PIECES):
            at = _read_pieces(text, begin, i, reader.pieces, reader.longest_piece, keys, origins, at)
        previous, previous_begin = state, begin
    return at


@compiled()
def _room(characters: int, reader: Reader) -> int:
    """No text has more features: a word has a character at least, and at most two n-grams of a size for each."""
    each = 0
    for kind in range(4):
        if reader.kinds & (1 << kind):
            each += 2 * len(reader.sizes) if kind == CHARS else 1
    return characters * each


@compiled()
def _sort_into(
    raw_keys: U64,
    raw_origins: I64,
    raw_counts: F32,
    n: int,
    heads: I32,
    keys: U64,
    origins: I64,
    counts: F32,
    start: int,
) -> None:
    """The first n raw features by increasing key, from `start` on. Keys are evenly spread hashes, so dealing them
    into buckets almost sorts them.

    heads: scratch of at least 8n + 1 entries.
    """
    bits = 3
    while (1 << bits) < 4 * n:
        bits += 1
    shift = np.uint64(64 - bits)
    heads[: (1 << bits) + 1] = 0
    for j in range(n):
        heads[np.int64(raw_keys[j] >> shift) + 1] += 1
    for bucket in range(1 << bits):
        heads[bucket + 1] += heads[bucket]
    for j in range(n):
        home = np.int64(raw_keys[j] >> shift)
        to = start + heads[home]
        heads[home] += 1
        keys[to], origins[to], counts[to] = raw_keys[j], raw_origins[j], raw_counts[j]
    for i in range(start + 1, start + n):
        key, origin, count = keys[i], origins[i], counts[i]
        j = i
        while j > start and keys[j - 1] > key:
            keys[j], origins[j], counts[j] = keys[j - 1], origins[j - 1], counts[j - 1]
            j -= 1
        keys[j], origins[j], counts[j] = key, origin, count


@compiled()
def _merge(keys: U64, origins: I64, counts: F32, start: int, end: int) -> int:
    """Adds up the counts of equal neighbours in place; returns the new end."""
    used = start
    for j in range(start, end):
        if used > start and keys[used - 1] == keys[j]:
            counts[used - 1] += counts[j]
        else:
            keys[used], origins[used], counts[used] = keys[j], origins[j], counts[j]
            used += 1
    return used


@compiled()
def bags(text: U32, edges: I64, weights: F32, reader: Reader) -> tuple[U64, F32, I64, I64]:
    """Features of each document with their counts: keys (increasing within a document), counts, origins, row pointers.

    text: code points.  edges: (documents * fields + 1,) positions around the texts, field by field within a document.
    weights: (fields,) what an occurrence in each field counts.
    """
    fields = len(weights)
    documents = (len(edges) - 1) // fields
    longest = 0
    for document in range(documents):
        longest = max(longest, edges[(document + 1) * fields] - edges[document * fields])
    row, room = _room(longest, reader), _room(len(text), reader)
    raw_keys, raw_counts, raw_origins, heads = (
        np.empty(row, np.uint64),
        np.empty(row, np.float32),
        np.empty(row, np.int64),
        np.empty(8 * row + 9, np.int32),
    )
    keys, counts, origins = np.empty(room, np.uint64), np.empty(room, np.float32), np.empty(room, np.int64)
    rows = np.zeros(documents + 1, np.int64)
    used = 0
    for document in range(documents):
        n = 0
        for f in range(fields):
            segment = document * fields + f
            before = n
            n = read_keys(text, edges[segment] + 1, edges[segment + 1], reader, raw_keys, raw_origins, n)
            raw_counts[before:n] = weights[f]
        _sort_into(raw_keys, raw_origins, raw_counts, n, heads, keys, origins, counts, used)
        used = _merge(keys, origins, counts, used, used + n)
        rows[document + 1] = used
    return keys[:used].copy(), counts[:used].copy(), origins[:used].copy(), rows


@compiled()
def weigh(
    keys: U64, counts: F32, rows: I64, features: KeyTable, idf: F32, sublinear: bool, apart: int
) -> tuple[F32, I32, I64]:
    """TF-IDF rows of unit length, as CSR pieces (data, indices, indptr); unknown features are dropped.

    Where fields are weighted, a count may be below one: it then stays as it is also with `sublinear` (1 + ln would
    turn negative).  apart: features from this one on have a length of their own, which is 1 as well.
    """
    documents = len(rows) - 1
    data, columns = np.empty(len(keys), np.float32), np.empty(len(keys), np.int32)
    values = np.empty(len(keys), np.float64)
    known_rows = np.zeros(documents + 1, np.int64)
    used = 0
    for document in range(documents):
        first, squares, squares_apart = used, 0.0, 0.0
        for j in range(rows[document], rows[document + 1]):
            column = find(features, keys[j])
            if column >= 0:
                count = np.float64(counts[j])
                value = (1.0 + math.log(count) if sublinear and count > 1.0 else count) * np.float64(idf[column])
                columns[used], values[used] = column, value
                if column < apart:
                    squares += value * value
                else:
                    squares_apart += value * value
                used += 1
        length, length_apart = math.sqrt(squares), math.sqrt(squares_apart)
        for j in range(first, used):
            data[j] = values[j] / (length if columns[j] < apart else length_apart)
        known_rows[document + 1] = used
    return data[:used].copy(), columns[:used].copy(), known_rows


@compiled()
def token_numbers(
    text: U32, edges: I64, fields: int, reader: Reader, features: KeyTable, base: int, numbers: I32
) -> None:
    """Known tokens in reading order, less `base`, into rows of `numbers` (documents, T); what is left stays."""
    longest = 0
    for segment in range(len(edges) - 1):
        longest = max(longest, edges[segment + 1] - edges[segment])
    keys, origins = np.empty(_room(longest, reader), np.uint64), np.empty(_room(longest, reader), np.int64)
    for document in range(len(numbers)):
        at = 0
        for segment in range(document * fields, (document + 1) * fields):
            for j in range(read_keys(text, edges[segment] + 1, edges[segment + 1], reader, keys, origins, 0)):
                number = find(features, keys[j])
                if number >= 0 and at < numbers.shape[1]:
                    numbers[document, at] = number - base
                    at += 1


@compiled()
def word_spans(text: U32, edges: I64, reader: Reader) -> tuple[I64, I64, I64]:
    """Every word of the texts between `edges`, known or not: its segment, its first code point, the one after its
    last. reader: of words alone.
    """
    keys, origins = np.empty(_room(len(text), reader), np.uint64), np.empty(_room(len(text), reader), np.int64)
    segments = np.empty(len(keys), np.int64)
    used = 0
    for segment in range(len(edges) - 1):
        before = used
        used = read_keys(text, edges[segment] + 1, edges[segment + 1], reader, keys, origins, used)
        segments[before:used] = segment
    starts = origins[:used] >> 32
    return segments[:used].copy(), starts, starts + ((origins[:used] & 0xFFFFFFFF) >> 2)


@compiled()
def occurrences(
    text: U32, edges: I64, weights: F32, reader: Reader, features: KeyTable, rows: I64, columns: I32
) -> tuple[I64, I64, I64, F32]:
    """Where the entries of the documents' rows stand: entry, first code point, the one after the last, and what an
    occurrence counts there.

    edges, weights: as for `bags`.  rows, columns: pointers and increasing columns of the rows that `weigh` made.
    """
    fields = len(weights)
    room = _room(len(text), reader)
    keys, origins = np.empty(room, np.uint64), np.empty(room, np.int64)
    entries, starts, ends = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    counts = np.empty(room, np.float32)
    used = 0
    for segment in range(len(edges) - 1):
        document, field = segment // fields, segment % fields
        n = read_keys(text, edges[segment] + 1, edges[segment + 1], reader, keys, origins, 0)
        for j in range(n):
            column = find(features, keys[j])
            if column < 0:
                continue
            low, high = rows[document], rows[document + 1]
            while low < high:
                middle = (low + high) // 2
                if columns[middle] < column:
                    low = middle + 1
                else:
                    high = middle
            start = origins[j] >> 32
            entries[used], starts[used], counts[used] = low, start, weights[field]
            ends[used] = start + ((origins[j] & 0xFFFFFFFF) >> 2)
            used += 1
    return entries[:used].copy(), starts[:used].copy(), ends[:used].copy(), counts[:used].copy()


@compiled()
def count_keys(keys: U64, side: int, slots: U64, counts: I32, least: I32) -> tuple[int, I64]:
    """Counts keys in an open-addressing table: (new keys, positions in `keys` where a key reached the least count of
    its kind).

    slots: (C,) a power of two, with room for all.  counts: (C, 2), one column per side; a slot with no count is free.
    least: (4,) per kind.
    """
    mask = np.uint64(len(slots) - 1)
    new, reached, positions = 0, 0, np.empty(len(keys), np.int64)
    for j in range(len(keys)):
        key = keys[j]
        slot = key & mask
        while counts[slot, 0] + counts[slot, 1] > 0 and slots[slot] != key:
            slot = (slot + np.uint64(1)) & mask
        if counts[slot, 0] + counts[slot, 1] == 0:
            slots[slot] = key
            new += 1
        counts[slot, side] += 1
        if counts[slot, 0] + counts[slot, 1] == least[np.int64(key >> KIND_SHIFT)]:
            positions[reached] = j
            reached += 1
    return new, positions[:reached].copy()


@compiled()
def move_counts(old_slots: U64, old_counts: I32, slots: U64, counts: I32) -> None:
    """Puts the counts of a table that became too small into a larger, empty one."""
    mask = np.uint64(len(slots) - 1)
    for old in range(len(old_slots)):
        if old_counts[old, 0] + old_counts[old, 1] > 0:
            slot = old_slots[old] & mask
            while counts[slot, 0] + counts[slot, 1] > 0:
                slot = (slot + np.uint64(1)) & mask
            slots[slot] = old_slots[old]
            counts[slot, 0], counts[slot, 1] = old_counts[old, 0], old_counts[old, 1]


@compiled()
def spell(text: U32, classes: U8, keys: U64, origins: I64) -> tuple[U32, I64]:
    """The spelling of features as code points, one after the other, and where each begins and the last ends.

    A pair is written with one space, n-grams with ``<`` and ``>`` at the edges of their word, a piece inside a word
    with ``##``.
    """
    room = 0
    for j in range(len(keys)):
        room += ((origins[j] & 0xFFFFFFFF) >> 2) + 2
    spelled, offsets = np.empty(room, np.uint32), np.zeros(len(keys) + 1, np.int64)
    at = 0
    for j in range(len(keys)):
        kind, marks = np.int64(keys[j] >> KIND_SHIFT), origins[j] & 3
        begin = origins[j] >> 32
        end = begin + ((origins[j] & 0xFFFFFFFF) >> 2)
        if marks & 1:
            spelled[at] = 60 if kind == CHARS else 35
            at += 1
            if kind == PIECES:
                spelled[at] = 35
                at += 1
        spaced = kind != PAIRS
        for i in range(begin, end):
            # A pair parts where its first word ends: at a separator, or right beside an unspaced character.
            if not spaced and i > begin and (classes[text[i]] != WORD or classes[text[i - 1]] != WORD):
                spelled[at] = 32
                at += 1
                spaced = True
            if classes[text[i]] != SEPARATOR:
                spelled[at] = text[i]
                at += 1
        if marks & 2:
            spelled[at] = 62
            at += 1
        offsets[j + 1] = at
    return spelled[:at].copy(), offsets


@compiled()
def keys_of_pieces(text: U32, edges: I64, inside: NDArray[np.bool_]) -> U64:
    """Feature keys of given pieces (see `bags` for text and edges); `inside` marks those that continue a word."""
    keys = np.empty(len(inside), np.uint64)
    for j in range(len(inside)):
        state = _SEED_INSIDE if inside[j] else _SEEDS[PIECES]
        for i in range(edges[j] + 1, edges[j + 1]):
            state = _step(state, np.uint64(text[i]))
        keys[j] = _finish(state, PIECES)
    return keys
