"""What the kernels of keyword graphs are given and give back, and the words they know. No numba here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longtail.features.reading import encode
from longtail.features.settings import KeyGraphConfig
from longtail.features.tables import U64, KeyTable, Reader, frozen, key_table
from longtail.types import F32, I32, I64

SENTENCES, WINDOWS, AUTO = 0, 1, 2
_UNITS = {"sentence": SENTENCES, "window": WINDOWS, "auto": AUTO}

# PageRank over words. Paper: TextRank (Mihalcea, Tarau 2004).
DAMPING, ROUNDS, TOLERANCE = 0.85, 30, 1e-4

# Words that say nothing alone. Other languages are covered by `KeyGraphConfig.common`: what very many documents say
# is no keyword.
STOP_WORDS = """
a about above after again against all also am an and any are as at be because been before being below between both
but by can cannot could did do does doing down during each either etc few for from further had has have having he
her here hers him his how however i if in into is it its itself just may me might more most must my neither no nor
not now of off on once one only or other our ours out over own per same shall she should since so some such than
that the their theirs them then there these they this those through thus to too two under until up upon us use used
using very via was we were what when where whether which while who whom whose why will with within without would
yet you your yours
""".split()  # noqa: SIM905 (150 quoted words are harder to read)

# A point after one of these does not end a sentence; nor does one after a single letter (e.g., i.e., initials).
ABBREVIATIONS = """
al approx ca cf co corp dept dr ed eds est ext fig figs incl jr ltd mr mrs ms no nos nr prof resp sr st vol vols vs
""".split()  # noqa: SIM905


class Rules(NamedTuple):
    """How a document becomes a graph, as the kernel takes it; see `KeyGraphConfig`."""

    unit: int
    window: int
    most_windows: int
    span: int
    most: int
    share: float
    damping: float
    rounds: int
    tolerance: float
    stop: KeyTable
    abbreviations: KeyTable

    @classmethod
    def of(cls, config: KeyGraphConfig, common: Sequence[str], reader: Reader) -> Rules:
        """common: words of the corpus that are no keywords, beside the built-in ones."""
        return cls(
            _UNITS[config.unit],
            config.window,
            config.most_windows,
            config.span,
            config.keywords,
            config.share,
            DAMPING,
            ROUNDS,
            TOLERANCE,
            _word_table([*STOP_WORDS, *common], reader),
            _word_table(ABBREVIATIONS, reader),
        )


class Phrases(NamedTuple):
    """Named entities of a block of documents: document d has those numbered ``document_starts[d]`` to ``[d + 1]``,
    each a run of word keys.
    """

    document_starts: I64
    key_starts: I64
    keys: U64


class Blocks(NamedTuple):
    """The graphs of a block of documents. Numbers of vertices and sentences count from 0 in each document.

    vertices, sentences, words: (B,) how many a document has.  edges, attachments: (V,) how many a vertex has.
    neighbours, weights: (E,).  attached: (A,) sentences of each vertex.
    names: (V, 2) and spans: (S, 2), first code point of a keyword or sentence and the one after its last; (0, 0) for
        the empty vertex.
    """

    vertices: I32
    sentences: I32
    words: I32
    edges: I32
    neighbours: I32
    weights: F32
    attachments: I32
    attached: I32
    names: I64
    spans: I64


def word_keys(texts: Sequence[str], reader: Reader) -> tuple[U64, I64]:
    """Keys of the words of each text, one text after the other, and where each text's begin and the last's end."""
    from longtail.features.keygraph_kernels import keys_of_words

    return keys_of_words(*encode(texts), reader)


def _word_table(words: Sequence[str], reader: Reader) -> KeyTable:
    return key_table(np.unique(word_keys(words, reader)[0]))


def no_phrases(documents: int) -> Phrases:
    return Phrases(
        frozen(np.zeros(documents + 1, np.int64)), frozen(np.zeros(1, np.int64)), frozen(np.zeros(0, np.uint64))
    )
