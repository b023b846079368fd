"""A trained model at work: encode -> shortlist -> score -> fuse. And a second one that re-scores its best labels.

Every model is a `Ranker` and a part; none needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from longtail.kernels.threads import threads_for
from longtail.models.analysis import Look, list_overlap, shortlist_recall
from longtail.models.encoders import FrozenEncoder, Refinement, refined
from longtail.persistence import DataPart
from longtail.search.packed import Packer, Rows, stored
from longtail.types import F32, I32, Batch, Ranker, Shortlister, TopK


@dataclass(frozen=True)
class Classifier:
    """A linear classifier per label, materialised: score = rows[l] . x + bias[l].

    rows: (L, D), all stored; bias: (L,) or None.
    """

    rows: Rows
    bias: F32 | None = None

    def scores(self, vectors: F32, ids: I32) -> F32:
        """(B, C): each document against its own labels; 0 at padding."""
        from longtail.models.kernels import score_candidates

        found = np.empty(ids.shape, dtype=np.float32)
        with threads_for(len(ids), each=4):
            values, scales, _ = stored(self.rows)
            score_candidates(
                np.ascontiguousarray(vectors, dtype=np.float32), values, scales, np.ascontiguousarray(ids), found
            )
        return found if self.bias is None else found + np.where(ids >= 0, self.bias[ids], np.float32(0))

    def packed(self, packer: Packer) -> Classifier:
        return replace(self, rows=packer.rows(self.rows))


@dataclass(frozen=True, kw_only=True)
class Model(DataPart, Ranker):
    """score_l = alpha * sigmoid(classifier) + (1 - alpha) * sigmoid(similarity / temperature), for labels of the
    shortlist; a label outside it is never predicted.

    Paper: DeepXML Sec. 3 (prediction).
    """

    KIND = "model"

    encoder: FrozenEncoder
    refinement: Refinement | None
    shortlister: Shortlister
    classifier: Classifier
    shortlist_size: int
    alpha: float
    temperature: float = 1.0

    def rank(self, batch: Batch, k: int) -> TopK:
        search = self.encoder.encode(batch)
        shortlist = self.shortlist(search)
        score = refined(search, self.refinement)
        fused = self.alpha * sigmoid(self.classifier.scores(score, shortlist.ids)) + (1 - self.alpha) * sigmoid(
            shortlist.scores / self.temperature
        )
        # Of a document without a known word nothing can be said; any order would be made up.
        ids = np.where(batch.is_empty()[:, None], TopK.PAD, shortlist.ids)
        return best(ids, fused, min(k, len(self.classifier.rows)))

    def shortlist(self, vectors: F32) -> TopK:
        """The labels that are scored, for what the encoder made of documents."""
        return self.shortlister.query(vectors, min(self.shortlist_size, len(self.classifier.rows)))

    def packed(self, packer: Packer) -> Model:
        return replace(
            self,
            encoder=self.encoder.packed(packer),
            shortlister=self.shortlister.packed(packer, self.classifier.rows.shape[1]),
            classifier=self.classifier.packed(packer),
        )

    def diagnose(self, look: Look) -> dict[str, Any]:
        """The recall of shortlists, and how far x is from v: by its length, and by the labels near both."""
        found, v = self.encoder.diagnose(look), self.encoder.encode(look.batch)
        found["shortlist_recall"] = shortlist_recall(self.shortlist(v), self.shortlist_size, look)
        if self.refinement is None:
            return found
        overlap = self.list_overlap(v)
        if overlap is not None:
            found["overlap_of_top_100_lists_by_v_and_by_x"] = overlap
        moved = np.linalg.norm(self.refinement.apply(v) - v, axis=1) / np.maximum(np.linalg.norm(v, axis=1), 1e-12)
        found["largest_drift_of_x_from_v"] = round(float(moved.max(initial=0)), 6)
        return found

    def list_overlap(self, v: F32, k: int = 100) -> float | None:
        """See `analysis.list_overlap`; None where x is v, or where the shortlist keeps no vectors of documents."""
        voting = self.shortlister.voting_documents()
        if self.refinement is None or voting is None:
            return None
        documents, targets = voting
        x = self.refinement.apply(documents), self.refinement.apply(v)
        return list_overlap((documents, v), x, targets, k)

    def document_encoder(self) -> FrozenEncoder:
        return self.encoder

    def onnx(self) -> bytes | None:
        return self.encoder.onnx()


@dataclass(frozen=True)
class Reranked(DataPart, Ranker):
    """A second model with an encoder of its own re-scores the first one's best labels (Paper: Astec Sec. 4, re-ranker).

    score = beta * sigmoid(second) + (1 - beta) * first, within the first `depth` labels of the base; labels after
    these keep (1 - beta) * first, which leaves them behind.
    """

    KIND = "reranked"

    base: Ranker
    encoder: FrozenEncoder
    refinement: Refinement | None
    classifier: Classifier
    depth: int
    beta: float

    def rank(self, batch: Batch, k: int) -> TopK:
        first = self.base.rank(batch, max(self.depth, k))
        vectors = refined(self.encoder.encode(batch), self.refinement)
        # Labels beyond the depth, there only if more are asked for, get no second score: what is best must not depend
        # on k.
        seen = np.where(np.arange(first.k) < self.depth, first.ids, TopK.PAD).astype(np.int32)
        second = np.where(seen >= 0, sigmoid(self.classifier.scores(vectors, seen)), np.float32(0))
        return best(
            first.ids,
            self.beta * second + (1 - self.beta) * np.where(first.ids >= 0, first.scores, 0),
            min(k, len(self.classifier.rows)),
        )

    def document_encoder(self) -> FrozenEncoder:
        return self.encoder

    def packed(self, packer: Packer) -> Reranked:
        return replace(
            self,
            base=self.base.packed(packer),
            encoder=self.encoder.packed(packer),
            classifier=self.classifier.packed(packer),
        )

    def diagnose(self, look: Look) -> dict[str, Any]:
        return self.base.diagnose(look)


def sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def best(ids: I32, scores: Any, k: int) -> TopK:
    """The `k` best of each row's labels by (-score, label); padding last, and added where there are fewer than k."""
    ids, scores = np.asarray(ids), np.where(ids >= 0, scores, -np.inf).astype(np.float32)
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    missing = k - ids.shape[1]
    if missing > 0:
        ids = np.pad(ids, ((0, 0), (0, missing)), constant_values=TopK.PAD)
        scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
    return TopK(np.where(np.isneginf(scores), TopK.PAD, ids).astype(np.int32), scores)
