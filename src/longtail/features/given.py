"""Vectors that came with the data, sparse or dense: checked, and scaled to unit length if wished. Nothing is learned
but the width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from longtail.data.dataset import Items
from longtail.errors import ConfigError, DataError
from longtail.persistence import DataPart
from longtail.types import F32, Batch, Csr


def is_sparse(vectors: Any) -> bool:
    return hasattr(vectors, "indptr")


@dataclass(frozen=True)
class _Given(DataPart):
    """What sparse and dense vectors have in common."""

    FORM: ClassVar[str]
    fields: ClassVar[tuple[str, ...]] = ()

    width: int
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

    def batch_of_texts(self, texts: Sequence[str]) -> Batch:
        raise ConfigError(
            f"this model was trained on given vectors of {self.width} columns and cannot read text",
            "give documents with vectors of the same kind, or train with features.source=text",
        )

    def word_influence(self) -> None:
        """Columns of given vectors are no words."""

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

    def batch(self, items: Items) -> Batch:
        return Batch(sparse=self._rows(items, "documents"))

    def label_batch(self, labels: Items) -> Batch | None:
        return None if labels.vectors is None else Batch(sparse=self._rows(labels, "labels"))

    def _rows(self, items: Items, who: str) -> Csr:
        """(n, width) CSR float32 with sorted indices and without duplicates; never the caller's own memory."""
        from scipy.sparse import csr_array

        rows = csr_array(self._vectors(items, who), dtype=np.float32, copy=True)
        rows.sum_duplicates()
        lengths = np.diff(rows.indptr)
        owners = np.repeat(np.arange(rows.shape[0]), lengths)
        _refuse_strange(~np.isfinite(rows.data), owners, items, who)
        if self.unit:
            squares = np.bincount(owners, weights=rows.data.astype(np.float64) ** 2, minlength=rows.shape[0])
            rows.data *= np.repeat(_inverse(np.sqrt(squares)), lengths)
        return rows


class GivenDense(_Given):
    """Dense vectors: ``Batch.dense``."""

    KIND = "given-dense"
    FORM = "dense"

    def batch(self, items: Items) -> Batch:
        return Batch(dense=self._rows(items, "documents"))

    def label_batch(self, labels: Items) -> Batch | None:
        return None if labels.vectors is None else Batch(dense=self._rows(labels, "labels"))

    def _rows(self, items: Items, who: str) -> F32:
        """(n, width) float32; never the caller's own memory."""
        rows: F32 = np.array(self._vectors(items, who), dtype=np.float32, order="C")
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        # A sum of squares is finite exactly if every number is (float32 squares cannot overflow float64).
        _refuse_strange(~np.isfinite(squares), np.arange(len(rows)), items, who)
        if self.unit:
            rows *= _inverse(np.sqrt(squares))[:, None]
        return rows


def _refuse_strange(strange: Any, owners: Any, items: Items, who: str) -> None:
    if np.any(strange):
        row = int(owners[int(np.argmax(strange))])
        raise DataError(
            f"the vectors of {who} hold NaN or infinity, first in row {row} ('{items.uids[row]}')",
            "replace such numbers, or drop the row",
        )


def _inverse(lengths: Any) -> F32:
    """1 / length, and 0 for rows without length, which stay as they are."""
    return np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0).astype(np.float32)
