"""Tables of vectors in fewer bytes: float16, or int8 or int4 with a scale per row. Prediction is bound by the bytes
it reads.

`PackedRows` stands wherever a (n, D) float32 table of a model may stand, but in 4 bits only as a table of words, of
which documents are sums; `PackedIndex` is exact search over one. At the end: rows of bytes in the order in which
kernels of sketches read them, and products of vectors with one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from longtail.declared import Shaped, Sized
from longtail.errors import BundleError, ConfigError
from longtail.kernels.arrays import freeze, frozen
from longtail.kernels.threads import threads_for
from longtail.persistence import DataPart
from longtail.search.index import (
    FEW_QUERIES,
    ExactIndex,
    Heaps,
    Index,
    Similarity,
    Split,
    Table,
    best_of_products,
    in_pieces,
    ready,
    scan_few,
    settle_candidates,
)
from longtail.types import F32, I32, I64, BoolArray, TopK

PackedType: TypeAlias = Literal["float16", "int8", "int4"]
_LARGEST_BYTE, _LARGEST_QUERY_BYTE = 127, 255
# The largest number of 4 bits, what is added so that none is negative, and where rows are cut: at this share of their
# largest number. Numbers of a row are spread like a bell, for which fifteen even steps lose least when they end at
# about 2.35 times the standard deviation (Max, IRE Trans. 1960); the largest of 512 lies at about 3.1.
_LARGEST_NIBBLE, NIBBLE_SHIFT, _CUT_AT = 7, 8, 0.75
# Candidates of rounded products, beside twice as many as asked for.
_MORE_CANDIDATES = 20
_NO_NUMBERS: F32 = frozen(np.zeros(0, np.float32))
_NO_PLACES: I32 = frozen(np.zeros(0, np.int32))


class Stored(NamedTuple):
    """A table as kernels take it: float16 as its bits; no scales, no places where there are none.

    values: (m, D), or (m, D / 2) uint8: number d in the lower half of byte d, number D / 2 + d in its upper half,
        each with NIBBLE_SHIFT added.
    scales: (m,).  places: (n,) the row of `values` that is vector i; -1: the vector is zero.
    """

    values: NDArray[Any]
    scales: F32
    places: I32


@dataclass(frozen=True)
class PackedRows(DataPart):
    """n vectors of D numbers.  See `Stored` for the arrays, of which `scales` and `places` may be missing."""

    KIND = "packed-rows"

    values: Annotated[NDArray[Any], Shaped("stored", "_", plain=True)]
    scales: Annotated[F32, Shaped("stored")] | None = None
    places: Annotated[I32, Shaped("_", numbers_of="stored", least=-1)] | None = None

    def __post_init__(self) -> None:
        stored, whole = len(self.values), self.values.dtype in (np.int8, np.uint8)
        if (
            self.values.ndim != 2
            or self.values.dtype not in (np.float16, np.int8, np.uint8)
            or whole != (self.scales is not None)
        ):
            raise ValueError(
                f"packed rows of {self.values.dtype} with {self.values.ndim} dimensions, "
                f"{'with' if whole else 'without'} scales expected"
            )
        if self.scales is not None and (self.scales.shape != (stored,) or self.scales.dtype != np.float32):
            raise ValueError(f"{len(self.scales)} scales of {self.scales.dtype} for {stored} rows")
        if self.places is not None and (
            self.places.dtype != np.int32 or self.places.min(initial=-1) < -1 or self.places.max(initial=-1) >= stored
        ):
            raise ValueError(f"places outside the {stored} rows")

    @classmethod
    def of(cls, rows: F32, dtype: PackedType, keep: BoolArray | None = None) -> PackedRows:
        """rows: (n, D).  keep: (n,) which vectors are stored, the others being zero from now on; None: all."""
        if dtype not in get_args(PackedType):
            raise ConfigError(
                f"dtype '{dtype}', expected {' or '.join(get_args(PackedType))}",
                "float16 halves a model, int8 quarters it, int4 halves words again",
            )
        places = None if keep is None or keep.all() else np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
        rows = np.asarray(rows if places is None else rows[keep], dtype=np.float32)
        if dtype == "float16":
            largest = np.abs(rows).max(initial=0)
            if largest > np.finfo(np.float16).max:
                raise ConfigError(f"the model holds the number {largest:g}, too large for float16", "pack it as int8")
            return cls(rows.astype(np.float16), None, places)
        largest = np.abs(rows).max(axis=1, initial=0)
        if dtype == "int4":
            return cls(*_nibbles(rows, (_CUT_AT * largest / _LARGEST_NIBBLE).astype(np.float32)), places)
        scales = (largest / _LARGEST_BYTE).astype(np.float32)
        return cls(np.rint(rows / _divisors(scales)).astype(np.int8), scales, places)

    def __len__(self) -> int:
        return len(self.values) if self.places is None else len(self.places)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), int(self.values.shape[1]) * (2 if self.values.dtype == np.uint8 else 1)

    @cached_property
    def stored(self) -> Stored:
        values = self.values.view(np.uint16) if self.values.dtype == np.float16 else self.values
        return Stored(
            frozen(values),
            _NO_NUMBERS if self.scales is None else frozen(self.scales),
            _NO_PLACES if self.places is None else frozen(self.places),
        )

    def __getitem__(self, index: Any) -> F32:
        """Vectors as float32, chosen by a slice or an integer array."""
        if self.places is not None:
            places = self.places[index]
            return np.where((places >= 0)[..., None], self._whole(places), np.float32(0))
        return self._whole(index)

    def _whole(self, index: Any) -> F32:
        values = self.values[index]
        if values.dtype == np.uint8:
            values = np.concatenate([values & 15, values >> 4], axis=-1).astype(np.int8) - np.int8(NIBBLE_SHIFT)
        values = values.astype(np.float32)
        return values if self.scales is None else values * self.scales[index][..., None]


def _divisors(scales: F32) -> F32:
    """(n, 1): a row of zeros, whose scale is 0, is divided by 1."""
    return np.where(scales > 0, scales, np.float32(1))[:, None]


def _nibbles(rows: F32, scales: F32) -> tuple[NDArray[np.uint8], F32]:
    """Rows (n, D), D even, as two numbers per byte, and their scales."""
    if rows.shape[1] % 2:
        raise ConfigError(f"vectors of {rows.shape[1]} numbers cannot be packed two to a byte", "pack them as int8")
    rounded = np.clip(np.rint(rows / _divisors(scales)), -_LARGEST_NIBBLE, _LARGEST_NIBBLE).astype(np.int8) + np.int8(
        NIBBLE_SHIFT
    )
    lower, upper = np.split(rounded.view(np.uint8), 2, axis=1)
    return lower | upper << 4, scales


# A table of vectors: plain, or packed.
Rows: TypeAlias = F32 | PackedRows


def stacked_rows(rows: Rows, more: F32) -> Rows:
    """`more` rows behind those of a table, in its own type."""
    if not isinstance(rows, PackedRows):
        return np.concatenate([rows, more.astype(np.float32)])
    dtype: PackedType = "float16" if rows.values.dtype == np.float16 else "int8"
    packed = PackedRows.of(more, dtype)
    scales = None
    if rows.scales is not None and packed.scales is not None:
        scales = np.concatenate([rows.scales, packed.scales])
    return PackedRows(np.concatenate([rows.values, packed.values]), scales, None)


def stored(rows: Rows) -> Stored:
    """Any table as kernels take it."""
    return rows.stored if isinstance(rows, PackedRows) else Stored(frozen(rows), _NO_NUMBERS, _NO_PLACES)


def as_bytes(queries: F32) -> tuple[NDArray[np.uint8], F32]:
    """Queries (B, D) without negative numbers as bytes, and the scale of each. (B rounded up to whole tiles of
    `kernels.packed`, or 1; D) and (B,).
    """
    from longtail.search.kernels.packed import TILE

    scales = (queries.max(axis=1) / _LARGEST_QUERY_BYTE).astype(np.float32)
    rounded = np.zeros((1 if len(queries) == 1 else -(-len(queries) // TILE) * TILE, queries.shape[1]), dtype=np.uint8)
    rounded[: len(queries)] = np.rint(queries / _divisors(scales))
    return rounded, scales


@dataclass(frozen=True)
class PackedIndex(DataPart, Index):
    """Compares a query with every item, in packed form. An `Index`.

    rows: (n, D), all stored, of unit length before they were packed if the similarity is the cosine.
    offsets: (n,) float32 or None, the last number of each vector, kept whole: a classifier's bias is far larger than
    its weights and would spoil the scale of a row of bytes. Queries then have D + 1 numbers.

    Bytes meet rounded queries first where the machine can multiply bytes; the best of them are looked at again with
    the queries as they are, and a query whose last answer could have been missed is asked anew. So answers are those
    of the packed rows.
    """

    KIND = "packed-index"

    rows: Annotated[PackedRows, Sized(len="items")]
    offsets: Annotated[F32, Shaped("items")] | None
    similarity: Similarity

    def __post_init__(self) -> None:
        if self.rows.places is not None or (self.offsets is not None and self.offsets.shape != (len(self.rows),)):
            raise ValueError("an index needs every row stored, and an offset for each or none")
        if self.rows.values.dtype == np.uint8:
            raise ValueError("rows of 4 bits cannot be searched: they are for words alone")
        freeze(self, "offsets")

    @classmethod
    def of(cls, index: ExactIndex | PackedIndex, dtype: PackedType, *, last_whole: bool) -> PackedIndex:
        """last_whole: the last number of each vector is kept as it is (`offsets`)."""
        vectors = not_packed(index.plain_vectors())
        if not last_whole:
            return cls(PackedRows.of(vectors, dtype), None, index.similarity)
        return cls(PackedRows.of(vectors[:, :-1], dtype), np.ascontiguousarray(vectors[:, -1]), index.similarity)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """Numbers of a query."""
        return self.rows.shape[1] + (self.offsets is not None)

    def query(self, vectors: F32, k: int) -> TopK:
        queries, answer = ready(vectors, self.similarity, self.width), Heaps(len(vectors), k)
        if len(queries) and k and len(self):
            if self.multiplies_bytes():
                self._through_candidates(queries, answer)
            elif len(queries) <= FEW_QUERIES:
                scan_few(self.table(), *self.split(queries), answer)
            else:
                best_of_products(self.table(), self.read, queries, self.split(queries), answer)
        return answer.ranked()

    def packed_rows(self) -> PackedIndex:
        return self

    def shards(self, count: int) -> tuple[Index, ...]:
        values, scales = self.rows.values, self.rows.scales
        return tuple(
            PackedIndex(
                PackedRows(
                    np.ascontiguousarray(values[n::count]),
                    None if scales is None else np.ascontiguousarray(scales[n::count]),
                ),
                None if self.offsets is None else np.ascontiguousarray(self.offsets[n::count]),
                self.similarity,
            )
            for n in range(count)
        )

    def read(self, part: slice | I64 = slice(None)) -> F32:
        """Vectors as queries meet them: with their last number."""
        return (
            self.rows[part]
            if self.offsets is None
            else np.concatenate([self.rows[part], self.offsets[part, None]], axis=1)
        )

    def table(self) -> Table:
        """The rows as kernels take them."""
        values, scales, _ = self.rows.stored
        return Table(values, scales, _NO_NUMBERS if self.offsets is None else self.offsets)

    def split(self, queries: F32) -> Split:
        """(B, D) and what offsets are multiplied with (B,)."""
        if self.offsets is None:
            return queries, np.zeros(len(queries), np.float32)
        return np.ascontiguousarray(queries[:, :-1]), np.ascontiguousarray(queries[:, -1])

    def multiplies_bytes(self) -> bool:
        """Whether queries are answered by products of bytes; else many of them go through BLAS."""
        if self.rows.scales is None:
            return False
        from longtail.search.kernels.packed import LANE_BYTES, available

        return self.rows.shape[1] % LANE_BYTES == 0 and available()

    def row_by_row(self) -> bool:
        return self.multiplies_bytes()

    @cached_property
    def _totals(self) -> F32:
        """(n,) the sum of the numbers of each row: what takes back a shift of queries."""
        values, scales, _ = self.rows.stored
        return frozen(values.sum(axis=1, dtype=np.int32).astype(np.float32) * scales)

    def _through_candidates(self, queries: F32, answer: Heaps) -> None:
        from longtail.search.kernels.packed import TILE, scan_bytes

        table, (vectors, lasts) = self.table(), self.split(queries)
        shifts = np.maximum(-vectors.min(axis=1), 0).astype(np.float32)
        rounded, scales = as_bytes(vectors + shifts[:, None])
        candidates = Heaps(len(vectors), min(2 * answer.ids.shape[1] + _MORE_CANDIDATES, len(self)))
        offsets = np.zeros(len(self), np.float32) if self.offsets is None else self.offsets
        rows = table.values, table.scales, frozen(offsets), self._totals
        with in_pieces(table.values.nbytes * max(1, len(queries) // TILE), candidates, pools=True) as pieces:
            scan_bytes(rows, (rounded, scales, lasts, shifts), *pieces)
        settle_candidates(table, (vectors, lasts), candidates, answer.arrays)


@dataclass(frozen=True)
class Packer:
    """How the tables of a model are packed: those of words, the classifiers of labels and of clusters, and the vectors
    of exact indices. What is small beside them, and the links of an HNSW graph, stay as they are.

    dtype: of the packed numbers; int4 is for vectors of words, of which a document has many, and those of labels are
        then int8.
    features: how many word vectors are kept, the most useful; 0: all that are not zero.
    influence: (V,) how much a word's vector matters beside its length, to any scale. None: all alike.
    """

    dtype: PackedType
    features: int = 0
    influence: F32 | None = None

    @property
    def label_dtype(self) -> PackedType:
        return "int8" if self.dtype == "int4" else self.dtype

    def rows(self, rows: Rows) -> PackedRows:
        """Rows of labels or clusters, every one of them."""
        return PackedRows.of(not_packed(rows), self.label_dtype)

    def words(self, table: Rows) -> PackedRows:
        """Vectors of words, those that are worth keeping."""
        plain = not_packed(table)
        return PackedRows.of(plain, self.dtype, self.worth_keeping(plain))

    def index(self, index: ExactIndex | PackedIndex, *, last_whole: bool = False) -> PackedIndex:
        return PackedIndex.of(index, self.label_dtype, last_whole=last_whole)

    def worth_keeping(self, table: F32) -> BoolArray:
        """(V,) which vectors of words are kept: none that is zero; the `features` that move documents most."""
        length = np.sqrt(np.einsum("vd,vd->v", table, table, dtype=np.float32))
        keep: BoolArray = length > 0
        if self.influence is not None and len(self.influence) != len(length):
            raise BundleError(
                f"a table of {len(length):,} features, and a featurizer of {len(self.influence):,}",
                "the parts of the bundle do not fit together; copy it anew",
            )
        if self.features and self.features < np.count_nonzero(keep):
            weight = length if self.influence is None else length * self.influence
            keep = np.zeros_like(keep)
            keep[np.argsort(-weight, kind="stable")[: self.features]] = True
        return keep


def not_packed(table: Rows | None) -> F32:
    """None: the vectors of an index that does not keep them as they were."""
    if table is None or isinstance(table, PackedRows):
        raise ConfigError("the model is packed already", "pack the run or bundle that it was made from")
    return table


# ---- interleaved bytes, and products with one matrix: many rows by our own kernels, few by BLAS ----

# Rows of a block, numbers of each that stand together, and rows that tables are filled up to a multiple of: as many
# as a word has bits.
LANES, TOGETHER, GROUP = 16, 4, 64
# From so many rows on, and for columns in multiples of so many (`kernels.matrix.COLUMNS`), our own kernels multiply.
MANY, _COLUMNS = 16, 32


def interleave(rows: NDArray[np.int8]) -> NDArray[np.int8]:
    """(blocks, 16 D) of (n, D) rows, D a multiple of 4, filled up with rows of zeros.

    Sixteen rows stand side by side, four numbers of each in turn.
    """
    n, width = rows.shape
    blocks = -(-n // GROUP) * (GROUP // LANES)
    filled = np.pad(rows, ((0, blocks * LANES - n), (0, 0)))
    found = filled.reshape(blocks, LANES, width // TOGETHER, TOGETHER).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(found).reshape(blocks, LANES * width)


def deinterleave(interleaved: NDArray[np.int8], rows: I64) -> NDArray[np.int8]:
    """(n, D): some rows as they were."""
    width = interleaved.shape[1] // LANES
    by_row = interleaved.reshape(len(interleaved), width // TOGETHER, LANES, TOGETHER)
    return np.ascontiguousarray(by_row[rows // LANES, :, rows % LANES].reshape(len(rows), width))


def product(rows: F32, matrix: F32) -> F32:
    """(B, E): rows (B, D) @ matrix (D, E), contiguous."""
    return _by_kernel(rows, matrix, residual=False) if _ours(rows, matrix) else rows @ matrix


def with_residual(rows: F32, matrix: F32) -> F32:
    """(B, D): rows + ReLU(rows @ matrix), matrix (D, D), contiguous."""
    return _by_kernel(rows, matrix, residual=True) if _ours(rows, matrix) else rows + np.maximum(rows @ matrix, 0)


def _by_kernel(rows: F32, matrix: F32, *, residual: bool) -> F32:
    from numba import get_num_threads

    from longtail.search.kernels.matrix import multiply

    found = np.empty((len(rows), matrix.shape[1]), np.float32)
    with threads_for(len(rows)):
        multiply(np.ascontiguousarray(rows), matrix, found, residual, get_num_threads())
    return found


def ours_for_many(matrix: F32) -> bool:
    """Whether our own kernels multiply many rows (16 or more) with a square matrix, or its transpose."""
    return matrix.shape[1] % _COLUMNS == 0 and matrix.dtype == np.float32


def _ours(rows: F32, matrix: F32) -> bool:
    return len(rows) >= MANY and rows.dtype == np.float32 and ours_for_many(matrix)
