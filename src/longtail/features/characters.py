"""What a word is made of, in every script: clean spelling of a text, and a class for each of the 1,114,112 code points.

Letters, numbers and marks build words; ideographs, Hiragana and Katakana are words of one character, because those
scripts put no spaces (adjacent ones meet again as word pairs); everything else separates. Thai, Lao, Khmer and
Myanmar put no spaces either and are read as long words: switch on character n-grams for them.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from longtail.types import I32

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
