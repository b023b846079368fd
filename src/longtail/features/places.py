"""Where the words of documents stand in their texts, and which features stand in which word.

What is read is normalised text, which may be shorter or longer than the text as it is written; positions here are
those of the text as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from longtail.features.reading import WORDS, Reader, class_runs, class_table, encode, key_table, origins
from longtail.kernels.arrays import frozen, run_starts
from longtail.types import I32, I64, Csr


@dataclass(frozen=True)
class Places:
    """The words of B documents, in reading order.

    starts: (B + 1,) the words of document b are starts[b] : starts[b + 1].
    fields: (W,) the field that a word is in.  begins, ends: (W,) where it stands in the text of this field.
    belongs: (W, E) CSR, what part of each of the E entries of the documents' sparse rows belongs to each word: of a
        feature that occurs several times each place has its part (also within a word: an entry may stand there
        twice), of a pair of words each word has half. Columns sum to one. None where documents are not read as
        features.
    feature: the spelling and the kind of a feature, by its column.
    """

    starts: I64
    fields: I32
    begins: I64
    ends: I64
    belongs: Csr | None = None
    feature: Callable[[int], tuple[str, str]] | None = None


@dataclass(frozen=True)
class Spans:
    """Words of texts that were read as code points.

    starts, stops: (W,) code points, increasing; the rest as in `Places`.
    """

    starts: I64
    stops: I64
    places: Places


def word_reader() -> Reader:
    """Words as this Python's Unicode tables tell them apart, for texts that are read in another way."""
    none = frozen(np.zeros(0, np.int64))
    return Reader(frozen(class_table(*class_runs())), 1 << WORDS, none, key_table(np.zeros(0, np.uint64)), 0)


def spans(texts: Sequence[str], fields: int, reader: Reader) -> Spans:
    """The words of documents.  texts: the fields of a document side by side.  reader: of words alone."""
    from longtail.features.kernels import word_spans

    text, edges = encode(texts)
    segments, starts, stops = word_spans(text, edges, reader)
    first, last = starts - edges[segments] - 1, stops - edges[segments] - 2
    begins, ends = first, last + 1
    bounds = np.searchsorted(segments, np.arange(len(texts) + 1))
    for number, one in enumerate(texts):
        if not one.isascii():
            part = slice(int(bounds[number]), int(bounds[number + 1]))
            came_from, came_to = origins(one)
            begins[part], ends[part] = came_from[first[part]], came_to[last[part]]
    counts = np.bincount(segments // fields, minlength=len(texts) // fields)
    places = Places(run_starts(counts), (segments % fields).astype(np.int32), begins, ends)
    return Spans(starts, stops, places)
