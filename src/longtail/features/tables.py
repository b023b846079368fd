"""What the kernels of `SparseText` are given. No numba here: opening a model must not wait for it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from longtail.types import F32, I32, I64

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


class Bags(NamedTuple):
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


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array, read-only from now on: kernels are compiled for read-only arrays, as memory maps are."""
    array.flags.writeable = False
    return array
