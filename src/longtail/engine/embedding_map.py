"""ECLARE's document side, frozen: the sum of word embeddings, and the block that turns it into a vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from longtail.engine.encoders import add_bags
from longtail.graph.arrays import frozen
from longtail.persistence import State
from longtail.search.matrix import product
from longtail.search.packed import Rows, rows_of_state, state_of_rows
from longtail.types import F32, Batch


@dataclass(frozen=True)
class FrozenSum:
    """a = E x: the weighted sum of the embeddings of a document's words, of any sign.  table: (V, D)."""

    KIND = "frozen-sum"

    table: Rows

    def encode(self, batch: Batch) -> F32:
        sums = np.zeros((len(batch), self.table.shape[1]), dtype=np.float32)
        add_bags(batch, self.table, sums)
        return sums

    def state(self) -> State:
        return state_of_rows("table", self.table)

    @classmethod
    def from_state(cls, state: State) -> FrozenSum:
        return cls(rows_of_state(state, "table"))


@dataclass(frozen=True)
class EmbeddingMap:
    """x = ReLU(a + lam R ReLU(a)).  weight: R, (D, D), its spectral norm already 1; relu: whether the outer ReLU is
    there.

    Paper: ECLARE Sec. 3.3 (embedding block) and Fig. 2.
    """

    KIND = "embedding-map"

    weight: F32
    lam: float = 1.0
    relu: bool = True

    def apply(self, vectors: F32) -> F32:
        out = product(np.maximum(vectors, 0), self._turned)
        out *= np.float32(self.lam)
        out += vectors
        return np.maximum(out, 0, out=out) if self.relu else out

    @cached_property
    def _turned(self) -> F32:
        return frozen(self.weight.T)

    def state(self) -> State:
        return State({"lam": self.lam, "relu": self.relu}, {"weight": self.weight})

    @classmethod
    def from_state(cls, state: State) -> EmbeddingMap:
        return cls(state.arrays["weight"], **state.values)
