"""A trained model at work: encode -> shortlist -> score -> fuse. And two ways to put models together.

Every class is a `Ranker` and a part; none needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from longtail.kernels.threads import threads_for
from longtail.models.encoders import FrozenEncoder, Refinement
from longtail.persistence import State
from longtail.search.packed import Rows, rows_of_state, state_of_rows, stored
from longtail.types import F32, I32, Batch, Ranker, Shortlister, TopK


@dataclass(frozen=True)
class Classifier:
    """A linear classifier per label, materialised: score = rows[l] . x + bias[l].  rows: (L, D), all stored; bias:
    (L,) or None.
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

    def state(
        self, values: Mapping[str, Any], parts: Mapping[str, Any], arrays: Mapping[str, Any] | None = None
    ) -> State:
        """The state of the model that it belongs to, with its own arrays in it."""
        own = state_of_rows("rows", self.rows, {} if self.bias is None else {"bias": self.bias})
        return State(values, {**own.arrays, **(arrays or {})}, {**own.parts, **parts})

    @classmethod
    def from_state(cls, state: State) -> Classifier:
        return cls(rows_of_state(state, "rows"), state.arrays.get("bias"))


@dataclass(frozen=True)
class Model:
    """Paper: DeepXML Sec. 3 (prediction).

    score_l = alpha * sigmoid(classifier) + (1 - alpha) * sigmoid(similarity / temperature), for labels of the
    shortlist; a label outside it is never predicted.
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
        shortlist = self.shortlister.query(search, min(self.shortlist_size, len(self.classifier.rows)))
        score = search if self.refinement is None else self.refinement.apply(search)
        fused = self.alpha * sigmoid(self.classifier.scores(score, shortlist.ids)) + (1 - self.alpha) * sigmoid(
            shortlist.scores / self.temperature
        )
        # Of a document without a known word nothing can be said; any order would be made up.
        ids = np.where(batch.is_empty()[:, None], TopK.PAD, shortlist.ids)
        return best(ids, fused, min(k, len(self.classifier.rows)))

    def state(self) -> State:
        values = {"shortlist_size": self.shortlist_size, "alpha": self.alpha, "temperature": self.temperature}
        parts: dict[str, Any] = {
            "encoder": self.encoder,
            "refinement": self.refinement,
            "shortlister": self.shortlister,
        }
        return self.classifier.state(values, parts)

    @classmethod
    def from_state(cls, state: State) -> Model:
        parts: Any = state.parts
        return cls(
            parts["encoder"], parts["refinement"], parts["shortlister"], Classifier.from_state(state), **state.values
        )


@dataclass(frozen=True)
class Reranked:
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
        vectors = self.encoder.encode(batch)
        # Labels beyond the depth, there only if more are asked for, get no second score: what is best must not depend
        # on k.
        seen = np.where(np.arange(first.k) < self.depth, first.ids, TopK.PAD).astype(np.int32)
        scores = self.classifier.scores(vectors if self.refinement is None else self.refinement.apply(vectors), seen)
        second = np.where(seen >= 0, sigmoid(scores), np.float32(0))
        return best(
            first.ids,
            self.beta * second + (1 - self.beta) * np.where(first.ids >= 0, first.scores, 0),
            min(k, len(self.classifier.rows)),
        )

    def state(self) -> State:
        parts: dict[str, Any] = {"base": self.base, "encoder": self.encoder, "refinement": self.refinement}
        return self.classifier.state({"depth": self.depth, "beta": self.beta}, parts)

    @classmethod
    def from_state(cls, state: State) -> Reranked:
        parts: Any = state.parts
        return cls(parts["base"], parts["encoder"], parts["refinement"], Classifier.from_state(state), **state.values)


@dataclass(frozen=True)
class Ensemble:
    """Mean of the members' scores over the union of their labels; a label that a member did not find counts 0 there."""

    KIND = "ensemble"

    members: tuple[Ranker, ...]
    depth: int = 100

    def rank(self, batch: Batch, k: int) -> TopK:
        found = [member.rank(batch, max(self.depth, k)) for member in self.members]
        ids = np.concatenate([top.ids for top in found], axis=1)
        scores = np.concatenate([np.where(top.ids >= 0, top.scores, 0) for top in found], axis=1)
        # Equal labels stand side by side after sorting; their scores are summed at the first of them.
        order = np.argsort(ids, axis=1, kind="stable")
        ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
        first = np.ones(ids.shape, dtype=bool)
        first[:, 1:] = ids[:, 1:] != ids[:, :-1]
        group = np.cumsum(first, axis=1) - 1
        summed = np.zeros(scores.shape, dtype=np.float32)
        np.add.at(summed, (np.arange(len(ids))[:, None], group), scores.astype(np.float32))
        merged = np.where(first, np.take_along_axis(summed, group, axis=1) / np.float32(len(self.members)), -np.inf)
        return best(np.where(first, ids, TopK.PAD), merged, min(k, max(top.k for top in found)))

    def state(self) -> State:
        members: dict[str, Any] = {f"member{number}": member for number, member in enumerate(self.members)}
        return State({"depth": self.depth}, parts=members)

    @classmethod
    def from_state(cls, state: State) -> Ensemble:
        members: Any = [state.parts[f"member{number}"] for number in range(len(state.parts))]
        return cls(tuple(members), state.values["depth"])


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
