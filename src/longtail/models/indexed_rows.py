"""All labels compared with a document at once, through an index over their classifier rows. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from longtail.models.analysis import Look
from longtail.models.encoders import FrozenEncoder, Refinement, refined
from longtail.models.shortlisted import sigmoid
from longtail.persistence import DataPart
from longtail.search.index import Index, IndexKind, build_index
from longtail.search.packed import Packer
from longtail.types import F32, Batch, Ranker, TopK


@dataclass(frozen=True)
class IndexedRows(DataPart, Ranker):
    """score_l = sigmoid(w_l . x + b_l), of the labels that the index finds; an exact index finds the best of all.

    index: over (L, D + 1) rows, the last number of each being b_l, by their dot product.
    """

    KIND = "indexed-rows"

    encoder: FrozenEncoder
    refinement: Refinement | None
    index: Index

    @classmethod
    def by_cosine(cls, encoder: FrozenEncoder, labels: F32, temperature: float, kind: IndexKind) -> IndexedRows:
        """score = sigmoid(cosine / temperature).  labels: (L, D), of unit length; one without a vector comes last."""
        scale = np.float32(1 / temperature)
        nameless = ~np.any(labels != 0, axis=1, keepdims=True)
        rows = np.concatenate([labels * scale, np.where(nameless, -scale - 1, 0)], axis=1).astype(np.float32)
        return cls(encoder, None, build_index(rows, kind, similarity="dot"))

    def rank(self, batch: Batch, k: int) -> TopK:
        found = self.index.query(self.queries(batch), min(k, len(self.index)))
        empty, scores = batch.is_empty(), sigmoid(found.scores)
        if not empty.any() and (found.ids[:, -1:] >= 0).all():
            return TopK(found.ids, scores)
        # Of a document without a known word nothing can be said; any order would be made up.
        ids = np.where(empty[:, None], TopK.PAD, found.ids).astype(np.int32)
        return TopK(ids, np.where(ids >= 0, scores, -np.inf).astype(np.float32))

    def queries(self, batch: Batch) -> F32:
        """(B, D + 1): what documents ask the index."""
        return with_one(refined(self.encoder.encode(batch), self.refinement))

    def row_by_row(self) -> bool:
        refines = self.refinement is None or self.refinement.row_by_row()
        return self.encoder.row_by_row() and refines and self.index.row_by_row()

    def packed(self, packer: Packer) -> IndexedRows:
        return replace(self, encoder=self.encoder.packed(packer), index=self.index.packed(packer, last_whole=True))

    def diagnose(self, look: Look) -> dict[str, Any]:
        return self.encoder.diagnose(look)

    def label_encoder(self) -> FrozenEncoder | None:
        return self.encoder if self.encoder.UNIT else None

    def document_encoder(self) -> FrozenEncoder:
        return self.encoder

    def onnx(self) -> bytes | None:
        return self.encoder.onnx()


def with_one(vectors: F32) -> F32:
    """(B, D + 1): a last number that is always 1, which the bias of a row is multiplied with."""
    return np.concatenate([vectors, np.ones((len(vectors), 1), dtype=np.float32)], axis=1)
