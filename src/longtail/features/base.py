"""What every kind of features can do, how the data chooses one, and vectors that came with the data.

Given vectors, sparse or dense, are checked, and scaled to unit length if wished; nothing is learned but the width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np

from longtail.data.dataset import Items
from longtail.declared import Between
from longtail.errors import ConfigError, DataError
from longtail.features.places import Places
from longtail.features.settings import FeaturesConfig
from longtail.persistence import DataPart, Part
from longtail.types import F32, Batch, Csr


@runtime_checkable
class Featurizer(Part, Protocol):
    """Turns documents and labels into numbers, always the same for the same text. Fitted on training data, saved with
    the model.

    width: number of features, the columns of a batch.
    """

    @property
    def width(self) -> int: ...

    @property
    def fields(self) -> tuple[str, ...]:
        """Text fields of a document that are read; none where vectors are."""
        ...

    def batch(self, items: Items) -> Batch:
        """Documents as numbers."""

    def label_batch(self, labels: Items) -> Batch | None:
        """Labels as numbers of the same kind; None where labels have nothing to read."""

    def batch_of_texts(self, texts: Sequence[str]) -> Batch:
        """Plain texts as documents; a ConfigError where the model was trained on given vectors."""

    def places(self, items: Items, batch: Batch) -> Places:
        """Where the words of documents stand; a ConfigError where documents are no texts.  batch: `batch` of them."""

    def word_influence(self) -> F32 | None:
        """(V,) how much each word matters to documents, to a scale; None where it is not known."""


# A featurizer, and documents and labels as it reads them.
Fitted: TypeAlias = tuple[Featurizer, Batch, Batch | None]


def make_featurizer(documents: Items, labels: Items | None, config: FeaturesConfig) -> Fitted:
    """A featurizer fitted on training documents (and label texts), with the batches of both."""
    if not _reads_vectors(documents, labels, config):
        return config.fit(documents, labels)
    if config.NEEDS_TEXT:
        raise ConfigError(config.NEEDS_TEXT, "use features.source=text, or another recipe")
    given = (GivenSparse if is_sparse(documents.vectors) else GivenDense).fit(documents, config.unit_vectors)
    _check_label_vectors(labels, given)
    return given, given.batch(documents), None if labels is None else given.label_batch(labels)


def _reads_vectors(documents: Items, labels: Items | None, config: FeaturesConfig) -> bool:
    """The decision, with every mixture that cannot work refused."""
    if config.source == "vectors" and documents.vectors is None:
        raise ConfigError(
            "features.source is 'vectors', but documents came without",
            "set features.source=text, or add vectors to the data",
        )
    if config.source != "text" and documents.vectors is not None:
        return True
    if not documents.fields:
        raise ConfigError(
            "documents have no text"
            + (" (features.source is 'text')" if config.source == "text" else " and no vectors"),
            "set features.source=vectors, or add text to the data"
            if documents.vectors is not None
            else "add a text field or vectors to the data",
        )
    if labels is not None and labels.vectors is not None and not labels.fields:
        raise ConfigError(
            "documents are read as text, but labels came as vectors without text",
            "give both as vectors, or add label texts",
        )
    return False


def _check_label_vectors(labels: Items | None, given: GivenSparse | GivenDense) -> None:
    if labels is None or labels.vectors is None:
        return
    form = "sparse" if is_sparse(labels.vectors) else "dense"
    if form != given.FORM or labels.vectors.shape[1] != given.width:
        raise ConfigError(
            f"documents have {given.FORM} vectors of {given.width} columns, labels {form} ones of "
            f"{labels.vectors.shape[1]}",
            "give both the same kind of vectors, or leave those of labels out",
        )


# ---- vectors that came with the data ----


def is_sparse(vectors: Any) -> bool:
    return hasattr(vectors, "indptr")


@dataclass(frozen=True)
class _Given(DataPart):
    """What sparse and dense vectors have in common."""

    FORM: ClassVar[str]
    fields: ClassVar[tuple[str, ...]] = ()

    width: Annotated[int, Between(1)]
    unit: bool

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"vectors of {self.width} columns")

    @classmethod
    def fit(cls, documents: Items, unit: bool) -> Self:
        """Takes the width from the vectors of training documents."""
        if documents.vectors is None:
            raise ConfigError("documents have no vectors", "give vectors, or set features.source=text")
        if documents.vectors.shape[1] < 1:
            raise DataError("the vectors of documents have no columns", "give vectors of at least one column")
        return cls(int(documents.vectors.shape[1]), unit)

    def batch(self, items: Items) -> Batch:
        return Batch(**{self.FORM: self._rows(items, "documents")})

    def label_batch(self, labels: Items) -> Batch | None:
        return None if labels.vectors is None else Batch(**{self.FORM: self._rows(labels, "labels")})

    def batch_of_texts(self, texts: Sequence[str]) -> Batch:
        raise ConfigError(
            f"this model was trained on given vectors of {self.width} columns and cannot read text",
            "give documents with vectors of the same kind, or train with features.source=text",
        )

    def places(self, items: Items, batch: Batch) -> Places:
        raise ConfigError(
            f"this model was trained on given vectors of {self.width} columns: it knows no words that could explain a "
            "label",
            "train with features.source=text to have explanations",
        )

    def word_influence(self) -> None:
        """Columns of given vectors are no words."""

    def _rows(self, items: Items, who: str) -> Any:
        """(n, width) float32, checked; never the caller's own memory."""
        raise NotImplementedError

    def _vectors(self, items: Items, who: str) -> Any:
        vectors = items.vectors
        hint = f"give {who} the kind of vectors the model was trained on: {self.FORM}, {self.width} columns"
        if vectors is None:
            raise DataError(f"{who} have no vectors", hint)
        if is_sparse(vectors) != (self.FORM == "sparse"):
            raise DataError(f"{who} have {'sparse' if is_sparse(vectors) else 'dense'} vectors", hint)
        if vectors.ndim != 2 or vectors.shape[1] != self.width:
            raise DataError(f"{who} have vectors of shape {vectors.shape}", hint)
        return vectors


class GivenSparse(_Given):
    """Sparse vectors: ``Batch.sparse``."""

    KIND = "given-sparse"
    FORM = "sparse"

    def _rows(self, items: Items, who: str) -> Csr:
        """CSR with sorted indices and without duplicates."""
        from scipy.sparse import csr_array

        rows = csr_array(self._vectors(items, who), dtype=np.float32, copy=True)
        rows.sum_duplicates()
        lengths = np.diff(rows.indptr)
        owners = np.repeat(np.arange(rows.shape[0]), lengths)
        _refuse_strange(~np.isfinite(rows.data), owners, items, who)
        if self.unit:
            squares = np.bincount(owners, weights=rows.data.astype(np.float64) ** 2, minlength=rows.shape[0])
            long = np.sqrt(squares)
            tiny = np.repeat(_is_tiny(long), lengths)
            rows.data[tiny] = rows.data[tiny] / np.repeat(long, lengths)[tiny]
            rows.data *= np.repeat(_inverse(long), lengths)
        return rows


class GivenDense(_Given):
    """Dense vectors: ``Batch.dense``."""

    KIND = "given-dense"
    FORM = "dense"

    def _rows(self, items: Items, who: str) -> F32:
        rows: F32 = np.array(self._vectors(items, who), dtype=np.float32, order="C")
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        # A sum of squares is finite exactly if every number is (float32 squares cannot overflow float64).
        _refuse_strange(~np.isfinite(squares), np.arange(len(rows)), items, who)
        if self.unit:
            long = np.sqrt(squares)
            tiny = _is_tiny(long)
            rows[tiny] = rows[tiny] / long[tiny, None]
            rows *= _inverse(long)[:, None]
        return rows


def _refuse_strange(strange: Any, owners: Any, items: Items, who: str) -> None:
    if np.any(strange):
        row = int(owners[int(np.argmax(strange))])
        raise DataError(
            f"the vectors of {who} hold NaN or infinity, first in row {row} ('{items.uids[row]}')",
            "replace such numbers, or drop the row",
        )


def _is_tiny(lengths: Any) -> Any:
    """Rows that are divided in double precision: one over such a length is more than float32 holds."""
    return (lengths > 0) & (lengths < 2.0**-120)


def _inverse(lengths: Any) -> F32:
    """1 / length, and 0 for rows without length, which stay as they are; 1 for those that are tiny."""
    ordinary = (lengths > 0) & ~_is_tiny(lengths)
    return np.divide(1.0, lengths, out=_is_tiny(lengths).astype(np.float64), where=ordinary).astype(np.float32)
