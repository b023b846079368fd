"""Texts as sparse TF-IDF rows over words, word pairs and sub-words; the vocabulary is learned once and travels with
the model.

Documents and label texts share one vocabulary. Features are chosen by the number of training documents and label
texts they occur in (label text is known before any document is tagged); idf = ln((1 + N) / (1 + df)) + 1 counts
training documents only. A row is tf * idf (damped for rare features, where `damping` asks), scaled to unit length.
Words that were never seen are dropped, so a row may be empty.

Numba is imported by the functions that run kernels, not on top: opening a model must not wait for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from longtail.data.dataset import Items
from longtail.declared import Shaped, Sized
from longtail.errors import ConfigError, DataError
from longtail.features.places import Places, spans
from longtail.features.reading import (
    CHARS,
    KIND_SHIFT,
    PAIRS,
    PIECES,
    U8,
    U64,
    WORDS,
    KeyBags,
    KeyTable,
    Reader,
    blocks,
    class_runs,
    class_table,
    encode,
    in_order,
    key_table,
)
from longtail.features.settings import SparseTextConfig
from longtail.kernels.arrays import csr, freeze, frozen, pieces, run_starts
from longtail.persistence import DataPart, StringTable
from longtail.types import F32, I32, I64, Batch, Csr

Side: TypeAlias = Literal["documents", "labels"]
Columns: TypeAlias = Sequence[Sequence[str]]
CsrPieces: TypeAlias = tuple[F32, I32, I64]
Job = TypeVar("Job")
KIND_NAMES = {WORDS: "word", PAIRS: "pair", CHARS: "chars", PIECES: "piece"}


class CountedParts(NamedTuple):
    """What `SparseText.fit_parts` met: documents, their features (entries of rows), and `Counted.forgotten`."""

    documents: int
    entries: int
    forgotten: int


# Weights of features: their squares, and sums of these, must be float32 numbers above 0.
_LEAST_WEIGHT = 1e-12


@dataclass(frozen=True)
class SparseText(DataPart):
    """A fitted vocabulary. Made by `fit` or `fit_transform`; after saving and loading it gives the same rows, bit by
    bit.

    keys: (V,) increasing: what a feature is, the same in every vocabulary.  idf: (V,), damped.  tokens: V spellings.
    class_starts, classes: see `class_runs`.
    pieces: of WordPiece; or those of a view (`features.view`): all of them are features, behind the others, and their
        part of a row has a length of its own.
    shares: (V,) of the training documents that a feature is in; None where the idf says it (`document_shares`).
    """

    KIND = "sparse-text"

    config: SparseTextConfig
    keys: Annotated[U64, Shaped("features", plain=True)]
    idf: Annotated[F32, Shaped("features")]
    tokens: Annotated[StringTable, Sized(len="features")]
    class_starts: Annotated[I32, Shaped("runs", plain=True)]
    classes: Annotated[U8, Shaped("runs", plain=True)]
    pieces: StringTable
    shares: Annotated[F32, Shaped("features")] | None = None

    def __post_init__(self) -> None:
        if not len(self.keys) == len(self.idf) == len(self.tokens) or (
            self.shares is not None and len(self.shares) != len(self.keys)
        ):
            raise ValueError(
                f"{len(self.keys)} keys, {len(self.idf)} weights and {len(self.tokens)} spellings of features, or "
                "shares of other features"
            )
        if any(array.ndim != 1 for array in (self.keys, self.idf, self.class_starts, self.classes)):
            raise ValueError("an array with more than one dimension")
        if len(self.idf) and not _LEAST_WEIGHT <= float(self.idf.min()) <= float(self.idf.max()) <= 1 / _LEAST_WEIGHT:
            raise ValueError("weights of features are not above 0 and finite: rows could not be scaled to unit length")
        try:
            _check(self.config)
        except ConfigError as problem:
            raise ValueError(problem.message) from problem
        freeze(self, "idf", "shares")
        # Kernels trust both, so what is wrong with them is found here.
        _ = self._class_of, self._features, self._reader

    @cached_property
    def _class_of(self) -> U8:
        """The class of every code point."""
        return class_table(self.class_starts, self.classes)

    @cached_property
    def _features(self) -> KeyTable:
        return key_table(self.keys)

    # ---- learning ----

    @classmethod
    def fit(cls, documents: Items, labels: Items | None, config: SparseTextConfig) -> SparseText:
        """Learn the vocabulary from training documents and, where given, label texts."""
        return cls._learn(documents, labels, config, keep_bags=False)[0]

    @classmethod
    def fit_transform(
        cls, documents: Items, labels: Items | None, config: SparseTextConfig, view: Sequence[str] = ()
    ) -> tuple[SparseText, Csr, Csr | None]:
        """`fit` and `transform` of the same documents and labels (None without label texts), reading them once."""
        part, bags = cls._learn(documents, labels, config, keep_bags=True, view=view)
        rows = [part._assembled(part._weigh, _emptied(source)) for source in bags]
        return part, rows[0], rows[1] if len(rows) > 1 else None

    @classmethod
    def fit_batches(
        cls, documents: Items, labels: Items | None, config: SparseTextConfig, view: Sequence[str] = ()
    ) -> tuple[SparseText, Batch, Batch | None]:
        """`fit_transform` with every form of the documents that the settings ask for.

        view: pieces of words that are features whether they occur or not; their vectors are given.
        """
        part, document_rows, label_rows = cls.fit_transform(documents, labels, config, view)
        document_batch = Batch(sparse=document_rows, tokens=part._tokens_view(part.document_columns(documents)))
        if labels is None or label_rows is None:
            return part, document_batch, None
        return part, document_batch, Batch(sparse=label_rows, tokens=part._tokens_view(part.label_columns(labels)))

    @classmethod
    def _learn(
        cls,
        documents: Items,
        labels: Items | None,
        config: SparseTextConfig,
        keep_bags: bool,
        view: Sequence[str] = (),
    ) -> tuple[SparseText, list[deque[KeyBags]]]:
        from longtail.features.vocabulary import DOCUMENTS, LABELS, Source, count_features

        config = config.for_documents(documents)
        _check(config)
        sources = [Source(*_document_columns(documents, config), DOCUMENTS)]
        if labels is not None and labels.fields:
            sources.append(Source(*_label_columns(labels, config), LABELS))
        class_of = class_table(*class_runs())
        pieces = StringTable.of(
            _learn_pieces(sources, class_of, config.piece_count) if config.subwords == "wordpiece" else list(view)
        )
        reader = _reader(config, class_of, pieces)
        least = [config.min_count if kind == WORDS else config.min_count_rest for kind in KIND_NAMES]
        counted, bags = count_features(sources, reader, least, keep_bags)
        return cls._of_counts(counted, len(documents), config, pieces, view), bags

    @classmethod
    def fit_parts(
        cls, parts: Iterable[Items], labels: Callable[[], Items], config: SparseTextConfig, room: int
    ) -> tuple[SparseText, CountedParts]:
        """`fit` of documents that come in parts, of which one at a time is in memory. labels: asked for when all parts
        were read.  room: features that are counted at a time (`vocabulary.count_features`).

        What is read where the settings do not say it, the first part decides; a field that a part lacks is empty.
        """
        from longtail.features.vocabulary import DOCUMENTS, LABELS, Source, count_features

        waiting = iter(parts)
        first = next(waiting, Items([]))
        config = config.for_documents(first)
        _check(config)
        pieces, count, seen = StringTable.of([]), 0, set[str]()
        reader = _reader(config, class_table(*class_runs()), pieces)

        def sources() -> Iterator[Source]:
            nonlocal count
            for part in chain([first], waiting):
                seen.update(part.fields)
                count += len(part)
                yield Source(*_document_columns(with_fields(part, config.fields), config), DOCUMENTS)
            if missing := [name for name in config.fields if name not in seen]:
                _texts(Items([], {name: [] for name in sorted(seen)}), missing, "documents", "features.fields")
            named = labels()
            if named.fields:
                yield Source(*_label_columns(named, config), LABELS)

        least = [config.min_count if kind == WORDS else config.min_count_rest for kind in KIND_NAMES]
        counted, _ = count_features(sources(), reader, least, room=room)
        entries = int(counted.documents.sum(dtype=np.int64))
        part = cls._of_counts(counted, count, config, pieces)
        return part, CountedParts(count, entries, counted.forgotten)

    @classmethod
    def _of_counts(
        cls, counted: Any, documents: int, config: SparseTextConfig, pieces: StringTable, view: Sequence[str] = ()
    ) -> SparseText:
        """counted: a `vocabulary.Counted` of so many documents."""
        class_starts, classes = class_runs()
        if config.max_features:
            counted = counted.most_frequent(config.max_features)
        if view:
            counted = counted.with_all_pieces(list(view))
        if not counted.total.any():
            raise DataError(
                f"no feature is left of {documents} documents: the fields {', '.join(config.fields)} are "
                "empty, or nothing occurs often enough",
                "read other fields (features.fields), or lower features.min_count and features.min_count_rest",
            )
        idf = np.log((1 + documents) / (1.0 + counted.documents)) + 1 if config.idf else np.ones(len(counted.keys))
        # A piece of a view that is rare here was met often enough elsewhere.
        trained = counted.keys >> KIND_SHIFT != PIECES if view else np.ones(len(idf), np.bool_)
        idf = idf * np.where(trained, counted.total / np.maximum(counted.total + config.damping, 1e-9), 1)
        weights, shares = idf.astype(np.float32), None
        if not _gives_shares(config):
            shares = ((1.0 + counted.documents) / (1 + documents)).astype(np.float32)
        return cls(config, counted.keys, weights, counted.spellings, class_starts, classes, pieces, shares)

    @property
    def can_be_extended(self) -> bool:
        return not len(self.pieces)

    def extended(self, documents: Items, labels: Items, seen: int) -> SparseText:
        """With words of further documents and label texts behind what it knows: features of before keep their weights.

        seen: documents that it was fitted on.  Pieces of words are a closed set, and stay as they are.
        """
        from longtail.features.vocabulary import DOCUMENTS, LABELS, Source, count_features

        sources = [Source(*_document_columns(documents, self.config), DOCUMENTS)]
        if labels.fields:
            sources.append(Source(*_label_columns(labels, self.config), LABELS))
        config = self.config
        least = [config.min_count if kind == WORDS else config.min_count_rest for kind in KIND_NAMES]
        counted, _ = count_features(sources, self._reader, least)
        new = np.flatnonzero(~np.isin(counted.keys, self.keys) & (counted.keys >> KIND_SHIFT != PIECES))
        total, there = counted.total[new], counted.documents[new]
        count = seen + len(documents)
        idf = np.log((1 + count) / (1.0 + there)) + 1 if config.idf else np.ones(len(new))
        idf = (idf * (total / np.maximum(total + config.damping, 1e-9))).astype(np.float32)
        keys = np.concatenate([self.keys, counted.keys[new]])
        order = np.argsort(keys)
        tokens = [*self.tokens, *(counted.spellings[number] for number in new.tolist())]
        shares = self.shares
        if shares is not None:
            shares = np.concatenate([shares, ((1.0 + there) / (1 + count)).astype(np.float32)])[order]
        return replace(
            self,
            keys=keys[order],
            idf=np.concatenate([self.idf, idf])[order],
            tokens=StringTable.of([tokens[number] for number in order.tolist()]),
            shares=shares,
        )

    def moved(self, rows: Csr, theirs: SparseText) -> Csr:
        """Rows over `theirs` features, all of which are ours, as rows over ours."""
        from scipy.sparse import csr_array

        places = np.searchsorted(self.keys, theirs.keys).astype(np.int32)
        return csr_array((rows.data, places[rows.indices], rows.indptr), shape=(rows.shape[0], self.width))

    # ---- use ----

    @property
    def width(self) -> int:
        """Number of features (V)."""
        return len(self.idf)

    @property
    def document_shares(self) -> F32 | None:
        """(V,) the share of training documents with each feature, to a scale; None where it was not saved."""
        if self.shares is None and _gives_shares(self.config):
            return np.exp(1 - self.idf)
        return self.shares

    def word_influence(self) -> F32 | None:
        """(V,) idf, times the fourth root of the share of documents that a word is in; None where the model keeps no
        idf. The power was chosen on held-out documents (`benchmarks.speed word-influence`).
        """
        if not self.config.idf:
            return None
        shares = self.document_shares
        return self.idf if shares is None else self.idf * shares**0.25

    def rows_by_spelling(self, table: Any, theirs: SparseText) -> F32:
        """(V, D): the rows of a table over `theirs` features in the order of ours, zeros where they lack one."""
        place = np.minimum(np.searchsorted(theirs.keys, self.keys), len(theirs.keys) - 1)
        found = theirs.keys[place] == self.keys
        rows = np.zeros((self.width, table.shape[1]), dtype=np.float32)
        rows[found] = table[place[found]]
        return rows

    def transform(self, items: Items, side: Side = "documents") -> Csr:
        """(n, V) CSR float32, sorted indices, rows of unit length or empty."""
        return self._rows(*self._columns(items, side))

    def transform_texts(self, texts: Sequence[str]) -> Csr:
        """As `transform`, for texts that count as the first field of documents."""
        return self._rows([texts], self._first_weight)

    def batch(self, items: Items) -> Batch:
        return self._batch(*self._columns(items, "documents"))

    def label_batch(self, labels: Items) -> Batch | None:
        """Label texts as documents are; None if labels have no text."""
        return self._batch(*self._columns(labels, "labels")) if labels.fields else None

    @property
    def fields(self) -> tuple[str, ...]:
        return self.config.fields

    def document_columns(self, items: Items) -> Columns:
        """The texts of documents that are read: one sequence per field."""
        return self._columns(items, "documents")[0]

    def label_columns(self, labels: Items) -> Columns:
        """The texts of labels that are read: one sequence per field."""
        return self._columns(labels, "labels")[0]

    def batch_of_texts(self, texts: Sequence[str]) -> Batch:
        return self._batch([texts], self._first_weight)

    def places(self, items: Items, batch: Batch) -> Places:
        """Where the words of documents stand, and the features of their rows in `batch`, which `batch` made of them."""
        from longtail.features.kernels import occurrences

        columns, weights = self._columns(items, "documents")
        texts = [text for document in zip(*columns, strict=True) for text in document]
        words, rows = spans(texts, len(columns), self.word_reader), pieces(batch.sparse)
        entries, starts, ends, counts = occurrences(
            *encode(texts), weights, self._reader, self._features, rows.indptr, rows.indices
        )
        parts = counts / np.bincount(entries, counts, minlength=len(rows.indices))[entries]
        first, last = (np.searchsorted(words.starts, at, side="right") - 1 for at in (starts, ends - 1))
        pairs = np.flatnonzero(first != last)
        parts[pairs] /= 2
        owner, entry = np.concatenate([first, last[pairs]]), np.concatenate([entries, entries[pairs]])
        order = np.argsort(owner, kind="stable")
        belongs = csr(
            np.concatenate([parts, parts[pairs]])[order],
            entry[order],
            run_starts(np.bincount(owner, minlength=len(words.starts))),
            (len(words.starts), len(rows.indices)),
        )
        return replace(words.places, belongs=belongs, feature=lambda number: (self.token(number), self.kind(number)))

    def token(self, feature: int) -> str:
        """The spelling: ``word``, ``two words``, ``<wor`` (n-gram at a word's edge), ``##rd`` (piece inside a word)."""
        return self.tokens[feature]

    def kind(self, feature: int) -> str:
        """One of `KIND_NAMES`."""
        return KIND_NAMES[int(self._features.keys[feature] >> KIND_SHIFT)]

    @property
    def token_range(self) -> range:
        """The features that `token_ids` numbers from 0 on: pieces where there are some, else words."""
        return self._features_of(self._token_kind)

    @property
    def view_range(self) -> range:
        """The features of a view: pieces of words whose vectors are given. Empty without one."""
        viewed = len(self.pieces) and self.config.subwords != "wordpiece"
        return self._features_of(PIECES) if viewed else range(self.width, self.width)

    @property
    def word_range(self) -> range:
        """The features that are whole words."""
        return self._features_of(WORDS)

    @property
    def word_reader(self) -> Reader:
        """How words are told apart in texts that `reading.encode` made code points of, for other kernels."""
        return self._reader._replace(kinds=1 << WORDS)

    # ---- inside ----

    @cached_property
    def _reader(self) -> Reader:
        return _reader(self.config, self._class_of, self.pieces)

    def _features_of(self, kind: int) -> range:
        first, last = kind << int(KIND_SHIFT), ((kind + 1) << int(KIND_SHIFT)) - 1
        keys = self._features.keys
        return range(
            int(np.searchsorted(keys, np.uint64(first))), int(np.searchsorted(keys, np.uint64(last), side="right"))
        )

    @property
    def _token_kind(self) -> int:
        return PIECES if self.config.subwords == "wordpiece" else WORDS

    @cached_property
    def _apart(self) -> int:
        return self.view_range.start

    @cached_property
    def _first_weight(self) -> F32:
        return _weights(self.config.weights or (1.0,))[:1]

    def _columns(self, items: Items, side: Side) -> tuple[Columns, F32]:
        return _document_columns(items, self.config) if side == "documents" else _label_columns(items, self.config)

    def _batch(self, columns: Columns, weights: F32) -> Batch:
        return Batch(sparse=self._rows(columns, weights), tokens=self._tokens_view(columns))

    def _tokens_view(self, columns: Columns) -> I32 | None:
        return self.token_ids(columns, self.config.max_tokens) if self.config.max_tokens else None

    def _rows(self, columns: Columns, weights: F32) -> Csr:
        from longtail.features import kernels as kernels

        def work(texts: list[str]) -> CsrPieces:
            keys, counts, _, rows = kernels.bags(*encode(texts), weights, self._reader)
            return self._weigh(KeyBags(keys, counts, rows))

        return self._assembled(work, blocks(columns))

    def _weigh(self, bags: KeyBags) -> CsrPieces:
        from longtail.features import kernels as kernels

        return kernels.weigh(*bags, self._features, self.idf, self.config.sublinear, self._apart)

    def _assembled(self, work: Callable[[Job], CsrPieces], jobs: Iterable[Job]) -> Csr:
        """The blocks of rows that `work` makes of `jobs`, as one CSR array."""
        from scipy.sparse import csr_array

        pieces = list(in_order(work, jobs))
        if not pieces:
            return csr_array((0, self.width), dtype=np.float32)
        data, indices, rows = pieces[0] if len(pieces) == 1 else _joined(pieces)
        return csr_array((data, indices, rows), shape=(len(rows) - 1, self.width))

    def token_ids(self, columns: Columns, max_length: int) -> I32:
        """(n, max_length) int32: known words (or pieces) in reading order, column after column; padded with -1, cut at
        the end. Numbers run from 0 to ``len(token_range) - 1``; unknown words are left out.
        """
        from longtail.features import kernels as kernels

        reader = self._reader._replace(kinds=self._reader.kinds & 1 << self._token_kind)
        if not reader.kinds:
            raise ConfigError(
                "token numbers are asked for, but neither words nor pieces are features",
                "set features.words=true or features.subwords=wordpiece",
            )
        first = self.token_range.start

        def number(texts: list[str]) -> I32:
            numbers = np.full((len(texts) // len(columns), max_length), -1, dtype=np.int32)
            kernels.token_numbers(*encode(texts), len(columns), reader, self._features, first, numbers)
            return numbers

        return np.concatenate([np.zeros((0, max_length), np.int32), *in_order(number, blocks(columns))])


def _gives_shares(config: SparseTextConfig) -> bool:
    """Whether idf = 1 - ln(share): damped, it rises and falls again with the share."""
    return config.idf and not config.damping


def _joined(pieces: Sequence[CsrPieces]) -> CsrPieces:
    """Blocks of rows one after the other. (For one block, a single text, this would cost more than reading it.)"""
    lengths = [np.zeros(1, np.int64), *(np.diff(rows) for _, _, rows in pieces)]
    return (
        np.concatenate([data for data, _, _ in pieces]),
        np.concatenate([indices for _, indices, _ in pieces]),
        np.cumsum(np.concatenate(lengths)),
    )


def _emptied(bags: deque[KeyBags]) -> Iterator[KeyBags]:
    """Each of the bags, which are given up on the way: their rows need the memory."""
    while bags:
        yield bags.popleft()


def _check(config: SparseTextConfig) -> None:
    """What no single setting can know."""
    if not config.fields:
        raise ConfigError("features.fields is empty", "name at least one text field, e.g. features.fields=title")
    if not (config.words or config.pairs or config.subwords != "none"):
        raise ConfigError("features: words, pairs and subwords are all switched off", "set features.words=true")
    if config.subwords == "chars" and not config.char_sizes:
        raise ConfigError(
            "features.char_sizes is empty while features.subwords is 'chars'", "e.g. features.char_sizes=4"
        )
    for name, weights, fields in (
        ("weights", config.weights, config.fields),
        ("label_weights", config.label_weights, config.label_fields),
    ):
        if weights and len(weights) != len(fields):
            raise ConfigError(
                f"features.{name} has {len(weights)} numbers for {len(fields)} fields",
                f"give one per field of {', '.join(fields) or '(none)'}, or none",
            )
        if any(not weight > 0 or math.isinf(weight) for weight in weights):
            raise ConfigError(
                f"features.{name} is {weights}, expected numbers above 0",
                "leave a field out of features.fields to ignore it",
            )


def with_fields(items: Items, names: Sequence[str]) -> Items:
    """With these fields, empty where there is none."""
    return replace(items, fields={name: items.fields.get(name) or [""] * len(items) for name in names})


def document_texts(items: Items, config: SparseTextConfig) -> Columns:
    """The texts of documents that the settings name: one sequence per field."""
    return _texts(items, config.fields, "documents", "features.fields")


def label_texts(items: Items, config: SparseTextConfig) -> Columns:
    """The texts of labels that the settings name: one sequence per field."""
    if config.label_fields:
        return _texts(items, config.label_fields, "labels", "features.label_fields")
    return _texts(items, list(_own_fields(items, config)), "labels", "features.fields")


def _document_columns(items: Items, config: SparseTextConfig) -> tuple[Columns, F32]:
    return document_texts(items, config), _weights(config.weights or (1.0,) * len(config.fields))


def _label_columns(items: Items, config: SparseTextConfig) -> tuple[Columns, F32]:
    if config.label_fields:
        return label_texts(items, config), _weights(config.label_weights or (1.0,) * len(config.label_fields))
    return label_texts(items, config), _weights(list(_own_fields(items, config).values()))


def _own_fields(items: Items, config: SparseTextConfig) -> dict[str, float]:
    """The fields of documents that labels have, too, the title of a label in any case (it is its name), and its other
    names; each with its weight.
    """
    weights = dict(zip(config.fields, config.weights or (1.0,) * len(config.fields), strict=True))
    wanted = weights if "title" in weights else {"title": 1.0, **weights}
    shared = {name: weight for name, weight in wanted.items() if name in items.fields}
    if not shared:
        raise ConfigError(
            f"labels have none of the fields {', '.join(config.fields)} (features.fields); they have: "
            f"{', '.join(items.fields) or 'no text'}",
            "name the fields of labels in features.label_fields",
        )
    if config.other_names and "other_names" in items.fields:
        shared.setdefault("other_names", config.other_names)
    return shared


def _texts(items: Items, names: Sequence[str], who: str, setting_name: str) -> Columns:
    for name in names:
        if name not in items.fields:
            raise ConfigError(
                f"{who} have no field '{name}' ({setting_name}); they have: {', '.join(items.fields) or 'no text'}",
                f"set {setting_name} to fields of the data",
            )
    return [items.fields[name] for name in names]


def _weights(values: Sequence[float]) -> F32:
    return frozen(np.array(values, dtype=np.float32))


def _reader(config: SparseTextConfig, classes: U8, pieces: StringTable) -> Reader:
    wanted = {
        WORDS: config.words,
        PAIRS: config.pairs,
        CHARS: config.subwords == "chars",
        PIECES: len(pieces) > 0,
    }
    sizes = frozen(np.unique(np.array(config.char_sizes, dtype=np.int64)))
    kinds = sum(1 << kind for kind, want in wanted.items() if want)
    return _reader_of_kinds(kinds, classes, sizes, pieces)


def _reader_of_kinds(kinds: int, classes: U8, sizes: I64, pieces: StringTable) -> Reader:
    if not len(pieces):
        return Reader(frozen(classes), kinds, sizes, key_table(np.zeros(0, np.uint64)), 0)
    from longtail.features.vocabulary import INSIDE, piece_keys

    longest = max(len(piece.removeprefix(INSIDE)) for piece in pieces)
    return Reader(frozen(classes), kinds, sizes, key_table(np.sort(piece_keys(list(pieces)))), longest)


def _learn_pieces(sources: Sequence[Any], classes: U8, size: int) -> list[str]:
    """A WordPiece vocabulary from all words of the sources; a word counts once per document or label it occurs in."""
    from longtail.features.vocabulary import count_features, train_pieces

    words, _ = count_features(
        sources,
        _reader_of_kinds(1 << WORDS, classes, frozen(np.zeros(0, np.int64)), StringTable.of([])),
        [1] * len(KIND_NAMES),
    )
    return train_pieces(list(words.spellings), words.total, size)
