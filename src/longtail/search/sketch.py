"""Search in two steps: the first numbers of rotated vectors, as bytes, say which items are worth a look; these are
compared whole.

Rows of a trained classifier point into few directions, so the first step reads an eighth to a quarter of the bytes.
Among many more items even that is too much: they are put into leaves (k-means, two levels), and only the leaves whose
centres are best are looked into.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from longtail.declared import Between, Shaped, Sized
from longtail.errors import ConfigError
from longtail.kernels.arrays import freeze, frozen
from longtail.kernels.threads import threads_for
from longtail.persistence import DataPart
from longtail.search.cluster import first_centres, nearest_centres
from longtail.search.index import Heaps, Index, Similarity, ready
from longtail.search.packed import GROUP, LANES, PackedIndex, PackedRows, as_bytes, deinterleave, interleave, product
from longtail.types import F32, I32, I64, TopK

# Numbers of the first step, or a multiple of them: what one instruction multiplies (`LANE_BYTES` of `kernels.packed`).
WIDTH = 64
# Rows at a time where all are looked at, and rows that the rotation is learned from.
_BLOCK, _SAMPLE = 1 << 16, 1 << 18
# Rows that tell beforehand how good a candidate must be.
_SCOUTS = 1024
# Rows per leaf and centre that k-means looks at, and its rounds: leaves need not be perfect.
_ROWS_PER_CENTRE, _ROUNDS = 64, 8
_NO_PLACES: I32 = frozen(np.zeros(0, np.int32))
_NO_LEAVES: I64 = frozen(np.zeros(1, np.int64))


@dataclass(frozen=True)
class Heads:
    """A table of the first step, as kernels take it: n rows of bytes, interleaved, and of each its scale, offset, sum.

    Filled up to a multiple of GROUP rows; an offset that is no number (NaN) beats nothing, so those that fill up are
    never found.
    """

    n: Annotated[int, Between(0)]
    interleaved: Annotated[NDArray[np.int8], Shaped("_", "_", plain=True)]
    scales: Annotated[F32, Shaped("filled")]
    offsets: Annotated[F32, Shaped("filled")]
    totals: Annotated[F32, Shaped("filled")]

    def __post_init__(self) -> None:
        filled = -(-self.n // GROUP) * GROUP
        if (
            self.interleaved.dtype != np.int8
            or self.interleaved.ndim != 2
            or len(self.interleaved) * LANES != filled
            or self.interleaved.shape[1] % (LANES * WIDTH)
        ):
            raise ValueError(f"interleaved rows of shape {self.interleaved.shape} for {self.n} items")
        freeze(self, "interleaved", "scales", "offsets", "totals")
        if any(
            array.shape != (filled,) or array.dtype != np.float32 for array in (self.scales, self.offsets, self.totals)
        ):
            raise ValueError(f"scales, offsets or totals do not fit {self.n} items")
        if not np.isnan(self.offsets[self.n :]).all():
            raise ValueError(f"rows after the {self.n} items could be found")

    @classmethod
    def of(cls, heads: F32, offsets: F32 | None) -> Heads:
        values, scales = np.empty(heads.shape, np.int8), np.empty(len(heads), np.float32)
        for start in range(0, len(heads), _BLOCK):
            part = slice(start, start + _BLOCK)
            values[part], scales[part], _ = PackedRows.of(heads[part], "int8").stored
        return cls.of_bytes(values, scales, np.zeros(len(heads), np.float32) if offsets is None else offsets)

    @classmethod
    def of_bytes(cls, values: NDArray[np.int8], scales: F32, offsets: F32) -> Heads:
        """values: (n, width), not interleaved yet."""
        n, more = len(values), -len(values) % GROUP
        totals = values.sum(axis=1, dtype=np.int32).astype(np.float32) * scales
        filled = (
            np.pad(scales, (0, more)),
            np.pad(offsets, (0, more), constant_values=np.nan),
            np.pad(totals, (0, more)),
        )
        return cls(n, frozen(interleave(values)), *(frozen(array) for array in filled))

    @property
    def arrays(self) -> tuple[NDArray[np.int8], F32, F32, F32]:
        return self.interleaved, self.scales, self.offsets, self.totals

    def every(self, step: int) -> Heads:
        """Every so many-th row."""
        rows = np.arange(0, self.n, step)
        return Heads.of_bytes(deinterleave(self.interleaved, rows), self.scales[rows], self.offsets[rows])

    @property
    def width(self) -> int:
        return self.interleaved.shape[1] // LANES

    def __len__(self) -> int:
        return self.n


@dataclass(frozen=True)
class SketchIndex(DataPart, Index):
    """An `Index` over packed rows that looks at all of them in short, or at those of some leaves, and at the best of
    these in whole.

    whole: the rows, leaf after leaf.  basis: (width, D) orthonormal, width a multiple of WIDTH.  heads: of the rows.
    numbers: (n,) the item behind each row; none: row i is item i.
    leaf_ptr: (leaves + 1,) rows of each leaf, centres: of the leaves; no leaves: all rows are looked at.
    more: candidates beside twice as many as asked for.  effort: rows to look at in leaves.
    """

    KIND = "sketch-index"

    whole: Annotated[PackedIndex, Sized(len="rows")]
    basis: Annotated[F32, Shaped("sketch", "_")]
    heads: Annotated[Heads, Sized(len="rows", width="sketch")]
    centres: Annotated[Heads, Sized(len="leaves", width="sketch")] | None = None
    leaf_ptr: Annotated[I64, Shaped("leaves", points_into="_")] = field(default_factory=lambda: _NO_LEAVES)
    numbers: Annotated[I32, Shaped("_", numbers_of="rows", once=True)] = field(default_factory=lambda: _NO_PLACES)
    more: Annotated[int, Between(0)] = field(default=200, kw_only=True)
    effort: Annotated[int, Between(0)] = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        n, shape, centres = len(self.whole), self.basis.shape, self.centres
        if len(self.heads) != n or shape != (self.heads.width, self.whole.rows.shape[1]) or shape[0] % WIDTH:
            raise ValueError(f"{len(self.heads)} heads and a basis of shape {shape} for {self.whole.rows.shape} rows")
        if (centres is not None) != (self.leaves > 0) or (
            centres is not None and (len(centres) != self.leaves or self.leaf_ptr[-1] != n)
        ):
            raise ValueError("leaves and their centres do not fit")
        if (
            len(self.numbers) not in (0, n)
            or self.numbers.min(initial=0) < 0
            or self.numbers.max(initial=-1) >= n
            or np.any(np.diff(self.leaf_ptr) < 0)
        ):
            raise ValueError("the items behind the rows do not fit")
        freeze(self, "leaf_ptr", "numbers")

    @cached_property
    def _turned_basis(self) -> F32:
        return frozen(self.basis.T)

    @cached_property
    def _scouts(self) -> Heads:
        looked_at = self.heads if self.centres is None else self.centres
        return looked_at.every(max(1, len(looked_at) // _SCOUTS))

    @classmethod
    def build(
        cls, whole: PackedIndex, *, width: int = WIDTH, leaves: int = 0, rng: np.random.Generator | None = None
    ) -> SketchIndex:
        """leaves: 0 looks at all rows; else about so many leaves (`rng`)."""
        if whole.rows.shape[1] < width:
            raise ConfigError(f"rows of {whole.rows.shape[1]} numbers have no sketch of {width}", "use the exact index")
        basis, mean = _rotation(whole.rows, width)
        if not leaves:
            return cls(whole, basis, Heads.of(_heads(whole.rows, basis, mean), whole.offsets))
        if rng is None:
            raise ValueError("k-means needs a generator")
        owners = two_level_clusters(_heads(whole.rows, basis, mean), leaves, rng)
        numbers = np.argsort(owners, kind="stable").astype(np.int32)
        leaf_ptr = np.zeros(int(owners.max()) + 2, np.int64)
        np.cumsum(np.bincount(owners), out=leaf_ptr[1:])
        ordered = _reordered(whole, numbers)
        # Made anew: of ten million rows, heads in one order take 5 GB, and both orders would be there at the same time.
        heads = _heads(ordered.rows, basis, mean)
        centres = Heads.of(
            _means(heads, leaf_ptr),
            None if ordered.offsets is None else _means(ordered.offsets[:, None], leaf_ptr)[:, 0],
        )
        return cls(ordered, basis, Heads.of(heads, ordered.offsets), centres, leaf_ptr, numbers)

    def tuned(self, *, more: int, effort: int = 0) -> SketchIndex:
        """The same index, looking at more or fewer rows."""
        return replace(self, more=more, effort=effort if self.leaves else 0)

    @property
    def similarity(self) -> Similarity:
        return self.whole.similarity

    @property
    def width(self) -> int:
        """Numbers of a query."""
        return self.whole.width

    @property
    def leaves(self) -> int:
        return len(self.leaf_ptr) - 1

    def read(self, part: slice | I64 = slice(None)) -> F32:
        if not len(self.numbers):
            return self.whole.read(part)
        place = np.empty(len(self), dtype=np.int64)
        place[self.numbers] = np.arange(len(self))
        return self.whole.read(place[part])

    def __len__(self) -> int:
        return len(self.whole)

    def query(self, vectors: F32, k: int) -> TopK:
        queries, answer = ready(vectors, self.similarity, self.width), Heaps(len(vectors), k)
        if not len(queries) or not k or not len(self):
            return answer.ranked()
        keep = min(2 * k + self.more, len(self))
        whole, lasts = self.whole.split(queries)
        pool = self._candidates(product(whole, self._turned_basis), lasts, keep)
        self._look_again(whole, lasts, pool, keep, answer)
        top = answer.ranked()
        self._fill_up(queries, np.flatnonzero(pool.sizes < min(k, len(self))), top)
        return top

    def row_by_row(self) -> bool:
        return True

    def _look_again(self, queries: F32, lasts: F32, pool: Heaps, keep: int, answer: Heaps) -> None:
        """The best of the `keep` best candidates by their whole products.

        Row by row, for all queries together: candidates lie anywhere in the table, and are read from its beginning to
        its end.
        """
        from numba import get_num_threads

        from longtail.search.kernels.sketch import best_of_pools, by_row, cut, score_whole

        with threads_for(len(queries)):
            cut(*pool.arrays, keep)
            order = by_row(pool.ids, pool.sizes, len(self))
            score_whole(*self.whole.table(), queries, lasts, pool.ids, order, get_num_threads(), pool.scores)
            best_of_pools(*pool.arrays, self.numbers, *answer.arrays)

    def _fill_up(self, queries: F32, short: I64, top: TopK) -> None:
        """Compare queries for which too few candidates were found with every row."""
        if len(short):
            exact = self.whole.query(queries[short], top.k)
            ids = np.where(exact.ids >= 0, self.numbers[exact.ids], exact.ids) if len(self.numbers) else exact.ids
            # Rows stand in another order than items: those of equal scores are put in order again.
            order = np.lexsort((ids, -exact.scores), axis=1)
            top.ids[short], top.scores[short] = (
                np.take_along_axis(ids, order, axis=1),
                np.take_along_axis(exact.scores, order, axis=1),
            )

    def _candidates(self, heads: F32, lasts: F32, keep: int) -> Heaps:
        """Pools with about the `keep` best rows or more, by heads (B, width) of queries."""
        from numba import get_num_threads

        from longtail.search.kernels.sketch import collect_all, collect_from_leaves

        shifts = np.maximum(-heads.min(axis=1), 0).astype(np.float32)
        rounded, scales = as_bytes(heads + shifts[:, None])
        queries = rounded, scales, lasts, shifts
        with threads_for(len(heads), each=8):
            if self.centres is None:
                pool = Heaps(len(heads), 3 * keep)
                thresholds = self._thresholds(queries, keep, len(self))
                collect_all(self.heads.arrays, queries, thresholds, get_num_threads(), *pool.arrays)
                return pool
            wanted = min(self.leaves, math.ceil(max(self.effort, 2 * keep) * self.leaves / len(self)))
            pool, room = Heaps(len(heads), 2 * keep), Heaps(len(heads), 2 * wanted + 8)
            thresholds = self._thresholds(queries, wanted, self.leaves)
            tables = self.heads.arrays, self.centres.arrays, self.leaf_ptr
            collect_from_leaves(*tables, queries, thresholds, get_num_threads(), room.ids, room.scores, *pool.arrays)
            return pool

    def _thresholds(self, queries: tuple[NDArray[np.uint8], F32, F32, F32], wanted: int, n: int) -> F32:
        """(B,) what about `wanted` of n rows (or centres) beat, by what the scouts say; a few more, as that is
        uncertain.
        """
        from longtail.search.kernels.sketch import promising

        thresholds, expected = np.full(len(queries[1]), np.float32(-3.0e38)), wanted * len(self._scouts) / n
        if wanted < n:
            best = Heaps(len(thresholds), min(len(self._scouts), math.ceil(expected + 2 * expected**0.5) + 1))
            promising(self._scouts.arrays, queries, best.ids, best.scores, thresholds)
        return thresholds


def two_level_clusters(rows: F32, clusters: int, rng: np.random.Generator) -> I32:
    """The cluster of every row, (n,) int32, none empty: k-means into the root of `clusters`, and each of these again,
    by its share of the rows.

    Every row meets two times the root of the clusters in place of all: ten million rows find one of 32,768 in minutes.
    """
    tops = max(1, round(clusters**0.5))
    first = _clustered(rows, min(tops, len(rows)), rng)
    owners = np.empty(len(rows), np.int32)
    start = 0
    for top in range(int(first.max()) + 1):
        members = np.flatnonzero(first == top)
        inner = _clustered(rows[members], max(1, min(len(members), round(clusters * len(members) / len(rows)))), rng)
        owners[members] = start + inner
        start += int(inner.max()) + 1
    return owners


def _clustered(rows: F32, clusters: int, rng: np.random.Generator) -> I32:
    """k-means of a sample, then the nearest centre of all. (n,) int32 in 0..c-1, c <= clusters, none empty."""
    sample = rows
    if len(rows) > _ROWS_PER_CENTRE * clusters:
        sample = rows[np.sort(rng.choice(len(rows), _ROWS_PER_CENTRE * clusters, replace=False))]
    centres = first_centres(sample, clusters, rng)
    for _ in range(_ROUNDS):
        owners = _numbered(nearest_centres(sample, centres)[0])
        centres = _means(
            sample[np.argsort(owners, kind="stable")], np.concatenate([[0], np.cumsum(np.bincount(owners))])
        )
    return _numbered(nearest_centres(rows, centres)[0])


def _numbered(owners: I32) -> I32:
    """Without the numbers of centres that are nobody's nearest."""
    return np.unique(owners, return_inverse=True)[1].astype(np.int32)


def _means(rows: F32, bounds: I64) -> F32:
    """(groups, D): the mean of the rows of each group, none empty; rows stand group after group."""
    return (np.add.reduceat(rows, bounds[:-1], axis=0) / np.diff(bounds)[:, None]).astype(np.float32)


def _rotation(rows: PackedRows, width: int) -> tuple[F32, F32]:
    """The directions (width, D) in which rows differ most, and their mean: what all rows have in common ranks none of
    them.
    """
    step = max(1, len(rows) // _SAMPLE)
    sample = rows[::step]
    mean = sample.mean(axis=0)
    centred = sample - mean
    _, vectors = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    return np.ascontiguousarray(vectors[:, ::-1][:, :width].T, dtype=np.float32), mean


def _heads(rows: PackedRows, basis: F32, mean: F32) -> F32:
    """(n, width)"""
    found = np.empty((len(rows), len(basis)), np.float32)
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        found[part] = (rows[part] - mean) @ basis.T
    return found


def _reordered(index: PackedIndex, order: I32) -> PackedIndex:
    rows = PackedRows(index.rows.values[order], None if index.rows.scales is None else index.rows.scales[order])
    return PackedIndex(rows, None if index.offsets is None else index.offsets[order], index.similarity)
