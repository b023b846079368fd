"""Frozen encoders: what a trained network of `nn/` becomes for prediction. Each is a part and needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from longtail.errors import ConfigError
from longtail.persistence import Part, State
from longtail.types import F32, Batch


class FrozenEncoder(Part, Protocol):
    """Documents in, non-negative vectors out: v, what a shortlist looks up."""

    def encode(self, batch: Batch) -> F32: ...


class Refinement(Part, Protocol):
    """From v to the vector that the classifier reads."""

    def apply(self, vectors: F32) -> F32: ...


@dataclass(frozen=True)
class FrozenBag:
    """v = ReLU(E x): the weighted sum of the embeddings of a document's words.  table: (V, D)."""

    KIND = "frozen-bag"

    table: F32

    def encode(self, batch: Batch) -> F32:
        from longtail.engine.kernels import embed_bags

        x = batch.sparse
        if x is None or x.shape[1] != self.table.shape[0]:
            raise ConfigError(f"this model reads sparse features of its own vocabulary of {self.table.shape[0]}", "let the bundle's featurizer make the batch")
        out = np.empty((len(batch), self.table.shape[1]), dtype=np.float32)
        embed_bags(x.indptr.astype(np.int64), x.indices.astype(np.int32), x.data.astype(np.float32), self.table, out)
        return out

    def state(self) -> State:
        return State(arrays={"table": self.table})

    @classmethod
    def from_state(cls, state: State) -> FrozenBag:
        return cls(state.arrays["table"])


@dataclass(frozen=True)
class ResidualMap:
    """x = v + ReLU(R v).  weight: R, (D, D), its spectral norm already bounded.

    Paper: Astec Sec. 3.1; Theorem 1 bounds how far x can be from v.
    """

    KIND = "residual-map"

    weight: F32

    def apply(self, vectors: F32) -> F32:
        return vectors + np.maximum(vectors @ self.weight.T, 0)

    def state(self) -> State:
        return State(arrays={"weight": self.weight})

    @classmethod
    def from_state(cls, state: State) -> Any:
        return cls(state.arrays["weight"])
