"""Frozen encoders: what a trained network of `nn/` becomes for prediction, and the maps that refine their vectors.

Each needs no torch. `FrozenGinLayer` is the twin of `longtail.nn.blocks.GinLayer`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from longtail.declared import Between, Shaped, Sized
from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import F64, frozen, pieces, steady_product
from longtail.kernels.threads import threads_for
from longtail.models.analysis import Look, link_recall
from longtail.persistence import DataPart, Part
from longtail.search.index import check_width
from longtail.search.packed import MANY, Packer, Rows, ours_for_many, product, stored, with_residual
from longtail.types import F32, Batch

if TYPE_CHECKING:
    from longtail.features.base import Featurizer


@runtime_checkable
class FrozenEncoder(Part, Protocol):
    """Documents in, vectors out: v, what a shortlist looks up.

    An encoder derives from this class; what it leaves out has the answer of one that cannot.
    UNIT: vectors have unit length and either sign, and label texts are read as documents are.
    """

    UNIT: ClassVar[bool] = False

    def encode(self, batch: Batch) -> F32: ...

    @property
    def width(self) -> int | None:
        """Numbers per vector; None where that follows from the documents."""
        return None

    def packed(self, packer: Packer) -> FrozenEncoder:
        """The same with its table in fewer bytes; itself where it has none."""
        return self

    def row_by_row(self) -> bool:
        """See `longtail.types.Ranker.row_by_row`."""
        return False

    def rectified(self, wished: bool) -> FrozenEncoder:
        """The same with a ReLU at its end or without; itself where that is no choice."""
        return self

    def for_features(self, theirs: Featurizer, ours: Featurizer) -> FrozenEncoder | None:
        """The same for features of `ours` in place of `theirs`, which it was trained with; None where it cannot be."""
        return None

    def shares(self, batch: Batch, directions: F32) -> tuple[F32, F32] | None:
        """What each feature of documents adds to the products of their vectors with directions (B, C, D): (E, C) for
        the E entries of the sparse rows, and (B, C) what is there without any. Both add up to the products.

        At these documents: what ReLU lets through, and lengths that vectors are divided by, are taken as they are.
        None where that says nothing, or where no sparse rows are read.
        """
        return None

    def diagnose(self, look: Look) -> dict[str, Any]:
        """See `longtail.types.Ranker.diagnose`."""
        return {}

    def onnx(self, *, unit: bool = False) -> bytes | None:
        """An ONNX graph of the encoder, with vectors of length 1 if `unit`; None where it is no transformer."""
        return None


@runtime_checkable
class Refinement(Part, Protocol):
    """From v to the vector that the classifier reads."""

    @property
    def width(self) -> int:
        """Numbers per vector, of both."""
        ...

    def apply(self, vectors: F32) -> F32: ...

    def pulled(self, vectors: F32, directions: F32) -> F32:
        """(B, C, D): directions whose products with `vectors` are those of ``apply(vectors)`` with `directions`."""
        ...

    def row_by_row(self) -> bool:
        """See `longtail.types.Ranker.row_by_row`."""
        return False


def pulled(vectors: F32, refinement: Refinement | None, directions: F32) -> F32:
    """As `Refinement.pulled`."""
    return directions if refinement is None else refinement.pulled(vectors, directions)


def refined(vectors: F32, refinement: Refinement | None) -> F32:
    """No refinement leaves vectors as they are."""
    if refinement is None:
        return vectors
    check_width(vectors, refinement.width)
    return refinement.apply(vectors)


# ---- encoders ----


@dataclass(frozen=True)
class WordTable(DataPart, FrozenEncoder):
    """What encoders with a table of words have in common.  table: (V, D)."""

    table: Annotated[Rows, Shaped("features", "_")]

    @property
    def width(self) -> int | None:
        return int(self.table.shape[1])

    def packed(self, packer: Packer) -> FrozenEncoder:
        return replace(self, table=packer.words(self.table))


class Bag(WordTable):
    """A weighted sum of the embeddings of a document's words. Words are known by their spelling."""

    def row_by_row(self) -> bool:
        return True

    def rectified(self, wished: bool) -> FrozenEncoder:
        return FrozenBag(self.table) if wished else FrozenSum(self.table)

    def for_features(self, theirs: Featurizer, ours: Featurizer) -> FrozenEncoder | None:
        """A word that they did not know has no vector (zeros)."""
        from longtail.features.sparse import SparseText

        if not isinstance(theirs, SparseText) or not isinstance(ours, SparseText):
            return None
        return replace(self, table=ours.rows_by_spelling(self.table, theirs))


class FrozenSum(Bag):
    """a = E x: the weighted sum of the embeddings of a document's words, of either sign."""

    KIND = "frozen-sum"

    def encode(self, batch: Batch) -> F32:
        sums = np.zeros((len(batch), self.table.shape[1]), dtype=np.float32)
        add_bags(batch, self.table, sums)
        return sums

    def shares(self, batch: Batch, directions: F32) -> tuple[F32, F32]:
        return bag_shares(batch, self.table, directions), np.zeros(directions.shape[:2], np.float32)


class FrozenBag(Bag):
    """v = ReLU(E x): the weighted sum of the embeddings of a document's words."""

    KIND = "frozen-bag"

    def encode(self, batch: Batch) -> F32:
        sums = np.zeros((len(batch), self.table.shape[1]), dtype=np.float32)
        add_bags(batch, self.table, sums)
        return np.maximum(sums, 0, out=sums)

    def shares(self, batch: Batch, directions: F32) -> tuple[F32, F32]:
        passed = directions * (self.encode(batch) > 0)[:, None]
        return bag_shares(batch, self.table, passed), np.zeros(directions.shape[:2], np.float32)


@dataclass(frozen=True)
class FrozenMlp(WordTable):
    """v = ReLU(A ReLU(E x + b) + c).  table: (V, H); hidden_bias: (H,); weight: (D, H); bias: (D,)."""

    KIND = "frozen-mlp"

    table: Annotated[Rows, Shaped("features", "hidden")]
    hidden_bias: Annotated[F32, Shaped("hidden")]
    weight: Annotated[F32, Shaped("width", "hidden")]
    bias: Annotated[F32, Shaped("width")]

    @property
    def width(self) -> int:
        return len(self.bias)

    def encode(self, batch: Batch) -> F32:
        return np.maximum(self._hidden(batch) @ self.weight.T + self.bias, 0)

    def shares(self, batch: Batch, directions: F32) -> tuple[F32, F32]:
        hidden = self._hidden(batch)
        outer = directions * (hidden @ self.weight.T + self.bias > 0)[:, None]
        inner = (outer @ self.weight) * (hidden > 0)[:, None]
        constant = (outer @ self.bias + inner @ self.hidden_bias).astype(np.float32)
        return bag_shares(batch, self.table, inner), constant

    def _hidden(self, batch: Batch) -> F32:
        hidden = np.tile(self.hidden_bias, (len(batch), 1))
        add_bags(batch, self.table, hidden)
        return np.maximum(hidden, 0)


@dataclass(frozen=True)
class FrozenCnn(WordTable):
    """v = ReLU(A pooled + c): convolutions over token vectors, the maximum of each of `chunks` pieces of every map.

    table: (V, D_in); filters[i]: (F, D_in, span); filter_biases[i]: (F,); weight: (D, ...); bias: (D,).
    """

    KIND = "frozen-cnn"

    table: Annotated[Rows, Shaped("features", "read")]
    filters: tuple[Annotated[F32, Shaped("maps", "read", "_")], ...]
    filter_biases: tuple[Annotated[F32, Shaped("maps")], ...]
    weight: Annotated[F32, Shaped("width", "_")]
    bias: Annotated[F32, Shaped("width")]
    length: Annotated[int, Between(1, 1 << 16)]
    chunks: Annotated[int, Between(1, 1 << 16)]

    def __post_init__(self) -> None:
        spans, pooled = [one.shape[2] for one in self.filters], sum(map(len, self.filters)) * self.chunks
        if len(self.filters) != len(self.filter_biases) or any(not 0 < span <= self.length for span in spans):
            raise ValueError(f"filters of spans {spans} over {self.length} tokens, or without biases")
        if self.weight.shape[1] != pooled:
            raise ValueError(f"{self.weight.shape[1]} weights for {pooled} numbers of all filters")

    @property
    def width(self) -> int:
        return len(self.bias)

    def encode(self, batch: Batch, block: int = 512) -> F32:
        if batch.tokens is None:
            raise ConfigError("this model reads token sequences", "let the bundle's featurizer make the batch")
        if batch.tokens.max(initial=-1) >= len(self.table):
            raise ConfigError(
                f"this model reads token numbers of its own vocabulary of {len(self.table)}",
                "let the bundle's featurizer make the batch",
            )
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


def add_bags(batch: Batch, table: Rows, sums: F32) -> None:
    """sums[b] += the weighted sum of the table's rows for the words of document b."""
    from longtail.search.kernels import packed as kernels

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


def bag_shares(batch: Batch, table: Rows, directions: F32) -> F32:
    """(E, C): what each entry of the documents' rows adds to the products of their sums with directions (B, C, D)."""
    from longtail.search.kernels import packed as kernels

    starts, features, values = pieces(batch.sparse)
    shares = np.empty((len(features), directions.shape[1]), dtype=np.float32)
    with threads_for(len(batch)):
        kernels.bag_shares(starts, features, values, *stored(table), frozen(directions), shares)
    return shares


@dataclass(frozen=True)
class FrozenDense(DataPart, FrozenEncoder):
    """v = ReLU(A x + b) of given vectors, or ReLU(x) without projection.  weight: (D, D_in) or None; bias: (D,)."""

    KIND = "frozen-dense"

    weight: Annotated[F32, Shaped("width", "_")] | None = None
    bias: Annotated[F32, Shaped("width")] | None = None

    def __post_init__(self) -> None:
        if (self.weight is None) != (self.bias is None):
            raise ValueError("a projection has weights and a bias, or neither")

    @property
    def width(self) -> int | None:
        return None if self.bias is None else len(self.bias)

    def encode(self, batch: Batch) -> F32:
        if batch.dense is None or (self.weight is not None and batch.dense.shape[1] != self.weight.shape[1]):
            raise ConfigError(
                "this model reads dense vectors as wide as those of its training", "give vectors made in the same way"
            )
        vectors = batch.dense if self.weight is None or self.bias is None else batch.dense @ self.weight.T + self.bias
        return np.maximum(vectors, 0).astype(np.float32)

    def for_features(self, theirs: Featurizer, ours: Featurizer) -> FrozenEncoder | None:
        return self if theirs.KIND == ours.KIND and theirs.width == ours.width else None


@dataclass(frozen=True)
class FrozenRectified(DataPart, FrozenEncoder):
    """v = ReLU(encoder(document)), for encoders whose vectors have either sign."""

    KIND = "frozen-rectified"

    encoder: Annotated[FrozenEncoder, Sized(width="width")]

    @property
    def width(self) -> int | None:
        return self.encoder.width

    def encode(self, batch: Batch) -> F32:
        return np.maximum(self.encoder.encode(batch), np.float32(0))

    def rectified(self, wished: bool) -> FrozenEncoder:
        return self if wished else self.encoder

    def shares(self, batch: Batch, directions: F32) -> tuple[F32, F32] | None:
        return self.encoder.shares(batch, directions * (self.encoder.encode(batch) > 0)[:, None])

    def packed(self, packer: Packer) -> FrozenRectified:
        return replace(self, encoder=self.encoder.packed(packer))


@dataclass(frozen=True)
class FrozenUnit(DataPart, FrozenEncoder):
    """x / |x| with x = refinement(encoder(document)), of either sign. A document without features stays zero."""

    KIND = "frozen-unit"
    UNIT = True

    encoder: Annotated[FrozenEncoder, Sized(width="width")]
    refinement: Annotated[Refinement, Sized(width="width")] | None = None

    @property
    def width(self) -> int | None:
        return self.encoder.width

    def encode(self, batch: Batch) -> F32:
        unit: F32 = unit_rows(refined(self.encoder.encode(batch), self.refinement))
        return unit

    def shares(self, batch: Batch, directions: F32) -> tuple[F32, F32] | None:
        vectors = self.encoder.encode(batch)
        lengths = np.linalg.norm(refined(vectors, self.refinement), axis=1)
        scaled = directions * inverse(lengths)[:, None, None]
        return self.encoder.shares(batch, pulled(vectors, self.refinement, scaled))

    def packed(self, packer: Packer) -> FrozenUnit:
        return replace(self, encoder=self.encoder.packed(packer))

    def diagnose(self, look: Look) -> dict[str, Any]:
        return {"link_recall": link_recall(self.encode, look)}

    def onnx(self, *, unit: bool = False) -> bytes | None:
        return self.encoder.onnx(unit=True)


def inverse(lengths: F32) -> F32:
    """1 / length; 0 of what has none."""
    return np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)


def each_by(directions: F32, matrix: F32) -> F32:
    """(B, C, E): directions (B, C, D) times a matrix (D, E)."""
    flat = directions.reshape(-1, directions.shape[2])
    # So many that our own kernels take them: for a few rows BLAS wakes all its threads, and waits for them.
    missing = max(MANY - len(flat), 0)
    rows = np.concatenate([flat, np.zeros((missing, flat.shape[1]), np.float32)]) if missing else flat
    return product(rows, frozen(matrix))[: len(flat)].reshape(*directions.shape[:2], -1)


# ---- refinements ----


@dataclass(frozen=True)
class SquareMap(DataPart, Refinement):
    """What maps by one matrix have in common.  weight: (D, D)."""

    weight: Annotated[F32, Shaped("width", "width")]

    @property
    def width(self) -> int:
        return len(self.weight)

    def row_by_row(self) -> bool:
        return ours_for_many(self.weight)

    @cached_property
    def _turned(self) -> F32:
        return frozen(self.weight.T)

    def _back(self, mapped: F32, directions: F32) -> F32:
        """Directions before ReLU(weight v), whose ReLU lets through what is above 0 in `mapped`."""
        return each_by(directions * (mapped > 0)[:, None], self.weight)


class ResidualMap(SquareMap):
    """x = v + ReLU(R v).  weight: R, its spectral norm already bounded.

    Paper: Astec Sec. 4; Theorem 1 bounds how far x can be from v.
    """

    KIND = "residual-map"

    def apply(self, vectors: F32) -> F32:
        return with_residual(vectors, self._turned)

    def pulled(self, vectors: F32, directions: F32) -> F32:
        return directions + self._back(product(vectors, self._turned), directions)


class FullMap(SquareMap):
    """x = ReLU(A v): the residual block without its residual.  weight: A."""

    KIND = "full-map"

    def apply(self, vectors: F32) -> F32:
        return np.maximum(product(vectors, self._turned), 0)

    def pulled(self, vectors: F32, directions: F32) -> F32:
        return self._back(product(vectors, self._turned), directions)


@dataclass(frozen=True)
class EmbeddingMap(SquareMap):
    """x = ReLU(a + lam R ReLU(a)).  weight: R, its spectral norm already 1; relu: whether the outer ReLU is there.

    Paper: ECLARE Sec. 3.3 (embedding block) and Fig. 2.
    """

    KIND = "embedding-map"

    lam: float = 1.0
    relu: bool = True

    def apply(self, vectors: F32) -> F32:
        out = product(np.maximum(vectors, 0), self._turned)
        out *= np.float32(self.lam)
        out += vectors
        return np.maximum(out, 0, out=out) if self.relu else out

    def pulled(self, vectors: F32, directions: F32) -> F32:
        outer = directions * (self.apply(vectors) > 0)[:, None] if self.relu else directions
        inner = each_by(outer, self.weight) * (vectors > 0)[:, None]
        inner *= np.float32(self.lam)
        return outer + inner


@dataclass(frozen=True)
class FrozenGinLayer:
    """h = ReLU(B ReLU(A a + c) + d) with a = (1 + epsilon) own + message, batch norm folded into A and c.

    first: A, (D, D_in); first_bias: c, (D,); second: B, (D, D); second_bias: d, (D,).
    """

    epsilon: float
    first: Annotated[F32, Shaped("width", "_")]
    first_bias: Annotated[F32, Shaped("width")]
    second: Annotated[F32, Shaped("width", "width")]
    second_bias: Annotated[F32, Shaped("width")]

    @property
    def width(self) -> int:
        return len(self.second_bias)

    def apply(self, own: F32, message: F32) -> F32:
        """own: (..., D_in) vectors of nodes.  message: the sum of their neighbours'.  Gives (..., D)."""
        gathered = np.float32(1 + self.epsilon) * own + message
        hidden = np.maximum(steady_product(gathered, self._first) + self.first_bias, 0)
        return np.maximum(steady_product(hidden, self._second) + self.second_bias, 0)

    @cached_property
    def _first(self) -> F64:
        return self.first.astype(np.float64)

    @cached_property
    def _second(self) -> F64:
        return self.second.astype(np.float64)
