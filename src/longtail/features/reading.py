"""From texts to code points and words, in every script: in blocks, on all cores, in order. No numba here: opening
a model must not wait for it.

Each of the 1,114,112 code points has a class. Letters, numbers and marks build words; ideographs, Hiragana and Katakana
are words of one character, because those scripts put no spaces (adjacent ones meet again as word pairs);
everything else separates. Thai, Lao, Khmer and Myanmar put no spaces either and are read as long words: switch on
character n-grams for them.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain, islice, pairwise
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.arrays import frozen
from longtail.types import F32, I32, I64

CODE_POINTS = 0x110000
SEPARATOR, WORD, SINGLE = 0, 1, 2

# Iteration mark and zero, Hiragana and Katakana with extensions, ideographs (BMP, compatibility, planes 2 and 3).
_UNSPACED = (
    (0x3005, 0x3008),
    (0x3040, 0x3100),
    (0x31F0, 0x3200),
    (0x3400, 0x4DC0),
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),
    (0x1AFF0, 0x1B170),
    (0x20000, 0x40000),
)

# Invisible characters inside words: soft hyphen, joiners, direction marks, variation selectors. (U+200B *is* a word
# boundary.)
_INVISIBLE = re.compile("[\u00ad\u200c-\u200f\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]")


def normalise(text: str) -> str:
    """Lower case in compatibility normal form (NFKC), without invisible characters. ASCII takes the short way.

    Normalised before *and* after: before, so that e.g. full-width capitals become plain ones; after, because some
    letters have one code point with their accent only in lower case.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).lower())


# What follows another character and may become one with it: marks (by their category), vowels and ends of Hangul
# syllables, sound marks of half-width Katakana.
_FOLLOWS = re.compile("[\u1160-\u11ff\ud7b0-\ud7fb\uff9e\uff9f]")


def origins(text: str) -> tuple[I64, I64]:
    """Where each character of ``normalise(text)`` comes from: first character in `text`, and the one after the last.

    Characters that become one, or one that becomes several, stand for each other as a whole.
    """
    if text.isascii():
        place = np.arange(len(text), dtype=np.int64)
        return place, place + 1
    starts = [n for n, character in enumerate(text) if n == 0 or not _joins(character)]
    known = normalise(text)
    for edges in (starts, [0, *(found.end() for found in re.finditer(" +", text))], [0]):
        edges = [*dict.fromkeys(edges), len(text)]
        parts = [normalise(text[start:end]) for start, end in pairwise(edges)]
        # A final sigma is told by what stands around it.
        if "".join(parts).replace("\u03c2", "\u03c3") == known.replace("\u03c2", "\u03c3"):
            break
    lengths = list(map(len, parts))
    return (
        np.repeat(np.array(edges[:-1], dtype=np.int64), lengths),
        np.repeat(np.array(edges[1:], dtype=np.int64), lengths),
    )


def _joins(character: str) -> bool:
    """Whether a character may change what is made of the one before it."""
    return (
        unicodedata.category(character)[0] == "M"
        or _INVISIBLE.match(character) is not None
        or _FOLLOWS.match(character) is not None
    )


@cache
def class_runs() -> tuple[I32, NDArray[np.uint8]]:
    """The class of every code point as runs: first code point and class of each. Taken from this Python's Unicode
    tables.

    A fitted vocabulary keeps its own runs: another Python with newer tables must not split words elsewhere.
    """
    classes = np.zeros(CODE_POINTS, dtype=np.uint8)
    # Above plane 3 there are only variation selectors, tags and private characters.
    classes[: 4 << 16] = [unicodedata.category(chr(c))[0] in "LNM" for c in range(4 << 16)]
    for start, end in _UNSPACED:
        classes[start:end] *= SINGLE
    starts = np.flatnonzero(np.diff(classes, prepend=np.uint8(255)))
    return starts.astype(np.int32), classes[starts]


def class_table(starts: I32, classes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Runs spread out to one class per code point: (1114112,) uint8. Refuses runs that kernels could not trust."""
    edges = [*starts.tolist(), CODE_POINTS]
    if (
        len(starts) != len(classes)
        or edges[0] != 0
        or any(a >= b for a, b in pairwise(edges))
        or np.any(classes > SINGLE)
    ):
        raise ValueError("character classes are not runs over all code points")
    return np.repeat(classes, np.diff(edges))


U64: TypeAlias = NDArray[np.uint64]
U32: TypeAlias = NDArray[np.uint32]
U8: TypeAlias = NDArray[np.uint8]

# Kinds of features, as numbered in the top two bits of a key.
WORDS, PAIRS, CHARS, PIECES = 0, 1, 2, 3
KIND_SHIFT = np.uint64(62)


class KeyTable(NamedTuple):
    """Sorted keys, and where those begin that share their top bits: finding one reads two places of memory."""

    keys: U64
    buckets: I32
    shift: np.uint64


class Reader(NamedTuple):
    """How text becomes keys.

    classes: (1114112,) uint8 per code point.  kinds: bit k is set if kind k is wanted.
    sizes: (S,) int64 increasing lengths of character n-grams.  pieces: keys of the sub-word vocabulary.
    """

    classes: U8
    kinds: int
    sizes: I64
    pieces: KeyTable
    longest_piece: int


class KeyBags(NamedTuple):
    """Features of a block of documents before weighting: keys (increasing within a document), counts, row pointers."""

    keys: U64
    counts: F32
    rows: I64


def key_table(keys: U64) -> KeyTable:
    """A table over increasing `keys`, which must not change any more."""
    if np.any(keys[1:] <= keys[:-1]):
        raise ValueError("keys of features are not increasing")
    bits = max(1, len(keys).bit_length())
    shift = np.uint64(64 - bits)
    buckets = np.zeros((1 << bits) + 1, dtype=np.int32)
    np.cumsum(np.bincount((keys >> shift).astype(np.int64), minlength=1 << bits), out=buckets[1:])
    return KeyTable(frozen(keys), frozen(buckets), shift)


# Small enough for the caches, large enough that the interpreter's share per block vanishes.
BLOCK_CHARACTERS = 1 << 19

Job = TypeVar("Job")
Result = TypeVar("Result")


def blocks(columns: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Documents in runs of about `BLOCK_CHARACTERS`; the texts of a document, one per column, lie side by side."""
    documents = zip(*columns, strict=True)
    block: list[str] = []
    size = 0
    # A few documents at a time: counting characters one by one would cost more than reading them.
    while chunk := list(chain.from_iterable(islice(documents, 64))):
        block += chunk
        size += sum(map(len, chunk))
        if size >= BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


def encode(texts: Sequence[str]) -> tuple[U32, I64]:
    """`code_points` of the normalised texts."""
    # `normalise` does the same with ASCII; not calling it half a million times saves a tenth of the time.
    return code_points([text.lower() if text.isascii() else normalise(text) for text in texts])


def code_points(texts: Sequence[str]) -> tuple[U32, I64]:
    """Code points of texts with a NUL around each, and the positions of these NULs (one more than texts).

    A NUL within a text becomes a space, which separates words as well; a lone surrogate stays what it is, a separator.
    """
    joined = "\0".join(["", *texts, ""])
    if joined.count("\0") != len(texts) + 1:
        joined = "\0".join(["", *(text.replace("\0", " ") for text in texts), ""])
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return points, np.flatnonzero(points == 0)


def in_order(work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    """`work` on each job, on as many threads as numba may use; results in the order of jobs, few jobs in flight.

    `work` should spend its time in kernels, which release the interpreter's lock. A single job runs right here.
    """
    import numba

    jobs = iter(jobs)
    first = list(islice(jobs, 2))
    threads = numba.get_num_threads()
    if len(first) < 2 or threads == 1:
        yield from map(work, first)
        yield from map(work, jobs)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque(pool.submit(work, job) for job in first)
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
