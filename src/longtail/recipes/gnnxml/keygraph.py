"""Keyword graphs of documents. No numba here: `kernels.py` makes them. Paper: GNN-XML Sec. 3.1 (KeyGraph).

A vertex is a keyword; a sentence is attached to every keyword that it contains, and to the one empty vertex if it
contains none. Two vertices are joined if they share a sentence, with the number of shared sentences as weight. A
vertex's features are the sum of the vectors of its sentences. Texts of one sentence (titles) have windows of a few
words in place of sentences, as all their keywords would look the same otherwise.

Keywords are found by TextRank, and by a recogniser of named entities where the settings name one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from longtail.config import setting
from longtail.declared import Shaped
from longtail.errors import ConfigError
from longtail.features.reading import (
    U64,
    WORDS,
    KeyTable,
    Reader,
    blocks,
    class_runs,
    class_table,
    encode,
    in_order,
    key_table,
)
from longtail.kernels.arrays import csr, frozen, run_starts, taken_runs
from longtail.persistence import DataPart
from longtail.types import F32, I32, I64, BoolArray, Csr

# What keywords share, as kernels know it.
SENTENCES, WINDOWS, AUTO = 0, 1, 2
_UNITS = {"sentence": SENTENCES, "window": WINDOWS, "auto": AUTO}


@dataclass(frozen=True)
class KeyGraphConfig:
    """How a document becomes a graph of its keywords. Paper: GNN-XML Sec. 3.1."""

    unit: Literal["auto", "sentence", "window"] = setting(
        "auto", "what keywords share: sentences, or windows of words; auto: windows in texts of one sentence"
    )
    window: int = setting(5, "words of a window", low=1)
    most_windows: int = setting(256, "windows per text at most; those of long texts are wider", low=2)
    span: int = setting(
        4, "TextRank: words occur together if they are less than so many content words apart", low=2, high=100
    )
    keywords: int = setting(64, "keywords per document at most", low=1, high=1000)
    share: float = setting(
        0.3333333333333333, "keywords are at most this share of a document's different content words", low=0.0, high=1.0
    )
    common: float = setting(
        0.2,
        "a word in more than this share of the training documents (and in 50 at least) is no keyword",
        low=0.0,
        high=1.0,
    )
    ner: str = setting(
        "", "a recogniser of named entities, which are keywords too: 'capitals', or one registered by name; empty: none"
    )
    encoder: str = setting(
        "svd", "vectors of sentences: svd (learnt from the documents), wordllama, minilm, or one registered by name"
    )
    model: str = setting("", "folder of the encoder's model; empty: that of its installed package", is_path=True)
    width: int = setting(256, "svd: numbers per sentence vector", low=2)
    cache: str = setting(
        "", "a folder where graphs of training documents are written as they are made, and found again; empty: none"
    )


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


# ---- what kernels are given and give back ----


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
            unit=_UNITS[config.unit],
            window=config.window,
            most_windows=config.most_windows,
            span=config.span,
            most=config.keywords,
            share=config.share,
            damping=DAMPING,
            rounds=ROUNDS,
            tolerance=TOLERANCE,
            stop=_word_table([*STOP_WORDS, *common], reader),
            abbreviations=_word_table(ABBREVIATIONS, reader),
        )


class Phrases(NamedTuple):
    """Named entities of a block of documents, each a run of word keys.

    Document d has those numbered ``document_starts[d]`` to ``document_starts[d + 1]``.
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
    from longtail.recipes.gnnxml.kernels import keys_of_words

    return keys_of_words(*encode(texts), reader)


def _word_table(words: Sequence[str], reader: Reader) -> KeyTable:
    return key_table(np.unique(word_keys(words, reader)[0]))


def no_phrases(documents: int) -> Phrases:
    return Phrases(
        frozen(np.zeros(documents + 1, np.int64)), frozen(np.zeros(1, np.int64)), frozen(np.zeros(0, np.uint64))
    )


# ---- named entities ----

Recogniser: TypeAlias = Callable[[str], Iterable[tuple[int, int]]]
"""A text in, (first character, character after the last) of every entity out."""

_WORDS = re.compile(r"\w[\w-]*")
_SENTENCE_ENDS = frozenset(".!?\n")
# Of one document: names in lists must not crowd out everything else.
_MOST_ENTITIES = 64


def capitals(text: str) -> list[tuple[int, int]]:
    """Runs of capitalised words inside sentences: crude, but offline and for every language that capitalises names."""
    spans: list[tuple[int, int]] = []
    before = 0
    for match in _WORDS.finditer(text):
        gap = text[before : match.start()]
        if match.group()[0].isupper() and before and not _SENTENCE_ENDS & set(gap):
            joined = bool(spans) and spans[-1][1] == before and gap == " "
            spans[-1:] = [(spans[-1][0], match.end())] if joined else [*spans[-1:], match.span()]
        before = match.end()
    return spans


_RECOGNISERS: dict[str, Recogniser] = {"capitals": capitals}


def register_recogniser(name: str, recognise: Recogniser) -> None:
    """Make ``features.keygraph.ner=name`` known, e.g. a wrapper around spaCy.

    A model that was trained with it predicts only where it is registered too.
    """
    _RECOGNISERS[name] = recognise


def entities(name: str, texts: Sequence[str]) -> list[str]:
    """The entities of one document's fields, as they are spelled, at most 64."""
    if name not in _RECOGNISERS:
        raise ConfigError(
            f"features.keygraph.ner is '{name}', which is not known here (known: {', '.join(_RECOGNISERS)})",
            "register it with longtail.recipes.gnnxml.keygraph.register_recogniser before training and before "
            "predicting",
        )
    found = [text[begin:end] for text in texts for begin, end in _RECOGNISERS[name](text)]
    return found[:_MOST_ENTITIES]


# ---- graphs ----

# Half precision: sentences are the largest thing by far, and their vectors are unit rows of a frozen encoder.
SENTENCE_TYPE = np.float16


@dataclass(frozen=True, kw_only=True)
class KeyGraphs(DataPart):
    """The keyword graphs of B documents, flat. Numbers of vertices and sentences count from 0 in each document.

    vertex_starts, sentence_starts: (B + 1,) int64.  words: (B,) int32, words of the document.
    edge_starts: (V + 1,) int64; neighbours: (E,) int32; weights: (E,) float32, shared sentences. Edges stand in both
        directions.
    attach_starts: (V + 1,) int64; attached: (A,) int32, the sentences of each vertex.
    sentences: (S, D) float16, their vectors.
    """

    KIND = "keygraphs"

    vertex_starts: Annotated[I64, Shaped("documents", points_into="vertices")]
    sentence_starts: Annotated[I64, Shaped("documents", points_into="sentences_in_all")]
    words: Annotated[I32, Shaped("documents", plain=True)]
    edge_starts: Annotated[I64, Shaped("vertices", points_into="edges")]
    neighbours: Annotated[I32, Shaped("edges", numbers_of="vertices")]
    weights: Annotated[F32, Shaped("edges")]
    attach_starts: Annotated[I64, Shaped("vertices", points_into="attachments")]
    attached: Annotated[I32, Shaped("attachments", numbers_of="sentences_in_all")]
    sentences: Annotated[NDArray[Any], Shaped("sentences_in_all", "_", plain=True)]

    def __post_init__(self) -> None:
        """Kernels trust these numbers."""
        for name, starts, count, total in (
            ("vertices", self.vertex_starts, len(self.words), len(self.edge_starts) - 1),
            ("sentences", self.sentence_starts, len(self.words), len(self.sentences)),
            ("edges", self.edge_starts, self.n_vertices, len(self.neighbours)),
            ("attachments", self.attach_starts, self.n_vertices, len(self.attached)),
        ):
            if len(starts) != count + 1 or starts[0] != 0 or starts[-1] != total or np.any(np.diff(starts) < 0):
                raise ValueError(f"pointers to {name} do not fit")
        if len(self.weights) != len(self.neighbours):
            raise ValueError(f"{len(self.weights)} weights of {len(self.neighbours)} edges")
        per_vertex = np.diff(self.vertex_starts)
        for name, numbers, starts, limits in (
            ("neighbours", self.neighbours, self.edge_starts, per_vertex),
            ("sentences", self.attached, self.attach_starts, np.diff(self.sentence_starts)),
        ):
            limit = np.repeat(np.repeat(limits, per_vertex), np.diff(starts))
            if np.any(numbers < 0) or np.any(numbers >= limit):
                raise ValueError(f"numbers of {name} outside their document")

    def __len__(self) -> int:
        return len(self.vertex_starts) - 1

    @property
    def width(self) -> int:
        """Numbers per sentence vector (D)."""
        return int(self.sentences.shape[1])

    @property
    def n_vertices(self) -> int:
        return int(self.vertex_starts[-1])

    def is_empty(self) -> BoolArray:
        """(B,) whether a document has no sentence of which the encoder knows anything."""
        known = np.any(np.asarray(self.sentences) != 0, axis=1)
        return _sums_of_runs(known.astype(np.int64), self.sentence_starts) == 0

    def rows(self, index: Any) -> KeyGraphs:
        """The graphs of the documents at `index` (a slice or an integer array), in that order."""
        chosen = np.arange(len(self))[index]
        if len(chosen) == len(self) and np.array_equal(chosen, np.arange(len(self))):
            return self
        vertex_starts, vertices = taken_runs(self.vertex_starts, chosen)
        sentence_starts, sentences = taken_runs(self.sentence_starts, chosen)
        edge_starts, edges = taken_runs(self.edge_starts, vertices)
        attach_starts, attachments = taken_runs(self.attach_starts, vertices)
        return KeyGraphs(
            vertex_starts=vertex_starts,
            sentence_starts=sentence_starts,
            words=self.words[chosen],
            edge_starts=edge_starts,
            neighbours=self.neighbours[edges],
            weights=self.weights[edges],
            attach_starts=attach_starts,
            attached=self.attached[attachments],
            sentences=self.sentences[sentences],
        )

    def adjacency(self, weighted: bool = False) -> Csr:
        """(V, V) CSR float32, block-diagonal: ones, or the numbers of shared sentences."""
        first = np.repeat(self.vertex_starts[:-1], np.diff(self.vertex_starts))
        columns = self.neighbours + np.repeat(first, np.diff(self.edge_starts))
        values = self.weights if weighted else np.ones(len(columns), dtype=np.float32)
        return csr(values, columns, self.edge_starts, (self.n_vertices, self.n_vertices))

    def vertices(self) -> F32:
        """(V, D): the sum of the vectors of each vertex's sentences."""
        first = np.repeat(self.sentence_starts[:-1], np.diff(self.vertex_starts))
        columns = self.attached + np.repeat(first, np.diff(self.attach_starts))
        ones, shape = np.ones(len(columns), np.float32), (self.n_vertices, len(self.sentences))
        attach = csr(ones, columns, self.attach_starts, shape)
        sums: F32 = attach @ np.asarray(self.sentences, dtype=np.float32)
        return sums

    def mean_sentences(self, block: int = 4096) -> F32:
        """(B, D): a document's own vector, the mean of those of its sentences; zero without sentences."""
        counts = np.diff(self.sentence_starts)
        means = np.zeros((len(self), self.width), dtype=np.float32)
        for start in range(0, len(self), block):
            starts = self.sentence_starts[start : start + block + 1]
            vectors = np.asarray(self.sentences[starts[0] : starts[-1]], dtype=np.float32)
            means[start : start + block] = _sums_of_runs(vectors, starts - starts[0])
        means /= np.maximum(counts, 1).astype(np.float32)[:, None]
        return means


# ---- how graphs are made ----


@dataclass(frozen=True)
class MadeBlock:
    """The graphs of a block of documents, with the text of their sentences."""

    pieces: Blocks
    sentences: list[str]
    text: str

    @property
    def names(self) -> list[str]:
        """How each vertex is spelled; "" for the empty one."""
        return [self.text[begin:end] for begin, end in self.pieces.names.tolist()]


class GraphBuilder:
    """Makes the graphs of documents, block by block on all cores."""

    def __init__(self, config: KeyGraphConfig, common: Sequence[str], reader: Reader) -> None:
        """common: words of the corpus that are no keywords. reader: how words are told apart."""
        self.config, self.reader = config, reader
        self.rules = Rules.of(config, common, reader)

    def blocks(self, columns: Sequence[Sequence[str]]) -> Iterator[MadeBlock]:
        """columns: one sequence of texts per field."""
        return in_order(lambda texts: self.block(texts, len(columns)), blocks(columns))

    def block(self, texts: Sequence[str], n_fields: int) -> MadeBlock:
        """texts: the fields of a document side by side, document after document."""
        from longtail.recipes.gnnxml.kernels import keygraphs

        points, edges = encode(texts)
        phrases = self._phrases(texts, n_fields) if self.config.ner else no_phrases(len(texts) // n_fields)
        made = keygraphs(frozen(points), frozen(edges), n_fields, self.reader, phrases, self.rules)
        spelled = points.tobytes().decode("utf-32-le", "surrogatepass")
        return MadeBlock(made, [spelled[begin:end] for begin, end in made.spans.tolist()], spelled)

    def _phrases(self, texts: Sequence[str], n_fields: int) -> Phrases:
        """What the recogniser finds in each document, as keys of words; each entity once."""
        found = [
            list(dict.fromkeys(entities(self.config.ner, texts[start : start + n_fields])))
            for start in range(0, len(texts), n_fields)
        ]
        keys, starts = word_keys([entity for document in found for entity in document], self.reader)
        return Phrases(frozen(np.cumsum([0, *map(len, found)]).astype(np.int64)), frozen(starts), frozen(keys))


def assembled(made: Iterable[tuple[Blocks, F32]], width: int) -> KeyGraphs:
    """The graphs of blocks, with the vectors of their sentences, as one. width: of the vectors."""
    kept = [empty_arrays(width), *(split_pieces(pieces, vectors) for pieces, vectors in made)]
    return graphs_of_arrays({name: np.concatenate([arrays[name] for arrays in kept]) for name in kept[0]})


def graphs_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> KeyGraphs:
    """The graphs of the arrays of all blocks, joined by name. Counts become pointers."""
    return KeyGraphs(
        vertex_starts=run_starts(arrays["vertices"]),
        sentence_starts=run_starts(arrays["n_sentences"]),
        words=arrays["words"],
        edge_starts=run_starts(arrays["edges"]),
        neighbours=arrays["neighbours"],
        weights=arrays["weights"],
        attach_starts=run_starts(arrays["attachments"]),
        attached=arrays["attached"],
        sentences=arrays["vectors"],
    )


def empty_arrays(width: int) -> dict[str, NDArray[Any]]:
    """What is kept of no document at all: types and shapes."""
    number, weight, span = np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros((0, 2), np.int64)
    nothing = Blocks(
        **dict.fromkeys(("vertices", "sentences", "words", "edges", "neighbours", "attachments", "attached"), number),
        weights=weight,
        names=span,
        spans=span,
    )
    return split_pieces(nothing, np.zeros((0, width), np.float32))


def split_pieces(pieces: Blocks, vectors: F32) -> dict[str, NDArray[Any]]:
    """What is kept of a block, by name: how its words are spelled and where its sentences stand is not."""
    kept = {name: array for name, array in pieces._asdict().items() if name not in ("names", "spans")}
    return {"n_sentences": kept.pop("sentences"), "vectors": vectors.astype(SENTENCE_TYPE), **kept}


def plain_reader() -> Reader:
    """Words of any script, by this Python's Unicode tables; a fitted vocabulary brings its own."""
    return Reader(
        frozen(class_table(*class_runs())),
        1 << WORDS,
        frozen(np.zeros(0, np.int64)),
        key_table(np.zeros(0, np.uint64)),
        0,
    )


def _sums_of_runs(values: NDArray[Any], starts: I64) -> NDArray[Any]:
    """The sum of each run of rows; zero for an empty one."""
    sums = np.zeros((len(starts) - 1, *values.shape[1:]), dtype=values.dtype)
    full = np.flatnonzero(np.diff(starts) > 0)
    if len(full):
        sums[full] = np.add.reduceat(values, starts[full], axis=0)
    return sums
