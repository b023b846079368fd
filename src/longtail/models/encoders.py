"""Frozen encoders: what a trained network of `nn/` becomes for prediction. Each is a part and needs no torch.

ECLARE's document side, frozen: the sum of word embeddings, and the block that turns it into a vector.

A frozen encoder whose vectors have unit length. Needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import frozen
from longtail.kernels.threads import threads_for
from longtail.persistence import Part, State
from longtail.search.matrix import product, with_residual
from longtail.search.packed import Rows, rows_of_state, state_of_rows, stored
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

    table: Rows

    def encode(self, batch: Batch) -> F32:
        sums = np.zeros((len(batch), self.table.shape[1]), dtype=np.float32)
        add_bags(batch, self.table, sums)
        return np.maximum(sums, 0, out=sums)

    def state(self) -> State:
        return state_of_rows("table", self.table)

    @classmethod
    def from_state(cls, state: State) -> FrozenBag:
        return cls(rows_of_state(state, "table"))


@dataclass(frozen=True)
class ResidualMap:
    """x = v + ReLU(R v).  weight: R, (D, D), its spectral norm already bounded.

    Paper: Astec Sec. 4; Theorem 1 bounds how far x can be from v.
    """

    KIND = "residual-map"

    weight: F32

    def apply(self, vectors: F32) -> F32:
        return with_residual(vectors, self._turned)

    @cached_property
    def _turned(self) -> F32:
        return frozen(self.weight.T)

    def state(self) -> State:
        return State(arrays={"weight": self.weight})

    @classmethod
    def from_state(cls, state: State) -> ResidualMap:
        return cls(state.arrays["weight"])


@dataclass(frozen=True)
class FullMap:
    """x = ReLU(A v): the residual block without its residual.  weight: A, (D, D)."""

    KIND = "full-map"

    weight: F32

    def apply(self, vectors: F32) -> F32:
        return np.maximum(product(vectors, self._turned), 0)

    @cached_property
    def _turned(self) -> F32:
        return frozen(self.weight.T)

    def state(self) -> State:
        return State(arrays={"weight": self.weight})

    @classmethod
    def from_state(cls, state: State) -> FullMap:
        return cls(state.arrays["weight"])


@dataclass(frozen=True)
class FrozenDense:
    """v = ReLU(A x + b) of given vectors, or ReLU(x) without projection.  weight: (D, D_in) or None; bias: (D,)."""

    KIND = "frozen-dense"

    weight: F32 | None = None
    bias: F32 | None = None

    def encode(self, batch: Batch) -> F32:
        if batch.dense is None or (self.weight is not None and batch.dense.shape[1] != self.weight.shape[1]):
            raise ConfigError(
                "this model reads dense vectors as wide as those of its training", "give vectors made in the same way"
            )
        vectors = batch.dense if self.weight is None or self.bias is None else batch.dense @ self.weight.T + self.bias
        return np.maximum(vectors, 0).astype(np.float32)

    def state(self) -> State:
        return State(arrays={} if self.weight is None else {"weight": self.weight, "bias": self.bias})

    @classmethod
    def from_state(cls, state: State) -> FrozenDense:
        return cls(state.arrays.get("weight"), state.arrays.get("bias"))


@dataclass(frozen=True)
class FrozenMlp:
    """v = ReLU(A ReLU(E x + b) + c).  table: (V, H); hidden_bias: (H,); weight: (D, H); bias: (D,)."""

    KIND = "frozen-mlp"

    table: Rows
    hidden_bias: F32
    weight: F32
    bias: F32

    def encode(self, batch: Batch) -> F32:
        hidden = np.tile(self.hidden_bias, (len(batch), 1))
        add_bags(batch, self.table, hidden)
        return np.maximum(np.maximum(hidden, 0) @ self.weight.T + self.bias, 0)

    def state(self) -> State:
        return state_of_rows(
            "table", self.table, {"hidden_bias": self.hidden_bias, "weight": self.weight, "bias": self.bias}
        )

    @classmethod
    def from_state(cls, state: State) -> FrozenMlp:
        a = state.arrays
        return cls(rows_of_state(state, "table"), a["hidden_bias"], a["weight"], a["bias"])


@dataclass(frozen=True)
class FrozenCnn:
    """v = ReLU(A pooled + c): convolutions over token vectors, the maximum of each of `chunks` pieces of every map.

    table: (V, D_in); filters[i]: (F, D_in, span); filter_biases[i]: (F,); weight: (D, ...); bias: (D,).
    """

    KIND = "frozen-cnn"

    table: Rows
    filters: tuple[F32, ...]
    filter_biases: tuple[F32, ...]
    weight: F32
    bias: F32
    length: int
    chunks: int

    def encode(self, batch: Batch, block: int = 512) -> F32:
        if batch.tokens is None:
            raise ConfigError("this model reads token sequences", "let the bundle's featurizer make the batch")
        out = np.empty((len(batch), len(self.bias)), dtype=np.float32)
        for start in range(0, len(batch), block):
            tokens = batch.tokens[start : start + block, : self.length]
            x = np.zeros((len(tokens), self.length, self.table.shape[1]), dtype=np.float32)
            x[:, : tokens.shape[1]] = np.where(tokens[..., None] >= 0, self.table[tokens], 0)
            pooled = np.concatenate(
                [self._pooled(x, f, b) for f, b in zip(self.filters, self.filter_biases, strict=True)], axis=1
            )
            out[start : start + block] = np.maximum(pooled @ self.weight.T + self.bias, 0)
        return out

    def _pooled(self, x: F32, filters: F32, bias: F32) -> F32:
        span = filters.shape[2]
        windows = np.lib.stride_tricks.sliding_window_view(x, span, axis=1)  # (B, T - span + 1, D_in, span)
        maps = np.maximum(np.einsum("btds,fds->bft", windows, filters, optimize=True) + bias[:, None], 0)
        positions = maps.shape[2]
        edges = [
            (place * positions // self.chunks, -(-(place + 1) * positions // self.chunks))
            for place in range(self.chunks)
        ]
        pieces: F32 = np.stack([maps[:, :, low:high].max(axis=2) for low, high in edges], axis=2).reshape(len(x), -1)
        return pieces

    def state(self) -> State:
        arrays = {"weight": self.weight, "bias": self.bias}
        for number, (f, b) in enumerate(zip(self.filters, self.filter_biases, strict=True)):
            arrays |= {f"filters{number}": f, f"filter_bias{number}": b}
        return state_of_rows(
            "table", self.table, arrays, {"length": self.length, "chunks": self.chunks, "spans": len(self.filters)}
        )

    @classmethod
    def from_state(cls, state: State) -> FrozenCnn:
        a, spans = state.arrays, range(state.values["spans"])
        filters, biases = tuple(a[f"filters{n}"] for n in spans), tuple(a[f"filter_bias{n}"] for n in spans)
        return cls(
            rows_of_state(state, "table"),
            filters,
            biases,
            a["weight"],
            a["bias"],
            state.values["length"],
            state.values["chunks"],
        )


def add_bags(batch: Batch, table: Rows, sums: F32) -> None:
    """sums[b] += the weighted sum of the table's rows for the words of document b."""
    from longtail.models import kernels

    x = batch.sparse
    if x is None or x.shape[1] != table.shape[0]:
        raise ConfigError(
            f"this model reads sparse features of its own vocabulary of {table.shape[0]}",
            "let the bundle's featurizer make the batch",
        )
    with threads_for(len(batch)):
        kernels.add_bags(
            x.indptr.astype(np.int64), x.indices.astype(np.int32), x.data.astype(np.float32), *stored(table), sums
        )


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


@dataclass(frozen=True)
class FrozenUnit:
    """x / |x| with x = refinement(encoder(document)), of either sign. A document without features stays zero."""

    KIND = "frozen-unit"

    encoder: FrozenEncoder
    refinement: Refinement | None = None

    def encode(self, batch: Batch) -> F32:
        vectors = self.encoder.encode(batch)
        unit: F32 = unit_rows(vectors if self.refinement is None else self.refinement.apply(vectors))
        return unit

    def state(self) -> State:
        return State(parts={"encoder": self.encoder, "refinement": self.refinement})

    @classmethod
    def from_state(cls, state: State) -> FrozenUnit:
        parts: Any = state.parts
        return cls(parts["encoder"], parts["refinement"])
