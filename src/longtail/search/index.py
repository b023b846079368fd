"""Nearest vectors: one protocol, an exact index (the oracle) and an approximate one for many vectors.

An index that runs elsewhere (on a GPU) is any other object with the same methods, given to the shortlister that uses
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    get_args,
    runtime_checkable,
)

import numpy as np
from numpy.typing import NDArray

from longtail.config import setting
from longtail.declared import Between, Shaped
from longtail.errors import ConfigError, DataError, MissingExtra
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import freeze, frozen
from longtail.kernels.threads import threads_for
from longtail.persistence import DataPart, State, read_arrays
from longtail.search.hnsw_file import check_hnsw
from longtail.types import F32, I32, I64, TopK

if TYPE_CHECKING:
    from longtail.search.packed import PackedIndex, Packer

Similarity: TypeAlias = Literal["cosine", "dot"]
IndexKind: TypeAlias = Literal["auto", "exact", "hnsw"]

# Queries per matrix product, and similarities that one yields (16 MB: they stay near the processor).
_QUERIES, _SIMILARITIES = 512, 4_194_304
# Products that are nearly right name candidates: so many more than are asked for; and how many times the largest error
# met among them may lie between the last of them and the last answer before a query meets all items.
_MORE_CANDIDATES, _SAFETY = 8, 3.0
# Up to so many queries one pass over the items is faster than a matrix product, which packs the items anew for each
# (docs/cost-model.md).
FEW_QUERIES = 8
# Bytes that a thread should have to read before another one is woken: half a millisecond or more, as waking may take
# as long on a busy machine.
_BYTES_PER_THREAD = 1 << 24
# Items that faiss may be asked to look at per query: it counts by int32.
_MOST_EFFORT = 1 << 30
# From this many numbers (vectors x dimensions) on, HNSW is faster than exact search in all: see `choose_index`.
_HNSW_FROM = 45_000_000


@runtime_checkable
class Index(Protocol):
    """Finds the items whose vectors are most similar to a query. A `Part`: it can be saved and loaded.

    An index derives from this class; what it leaves out has the answer of one that cannot.
    """

    KIND: str

    def __len__(self) -> int: ...

    def query(self, vectors: F32, k: int) -> TopK:
        """vectors: (B, D) float32. The k best items of each, ties by number, padded where there are fewer than k."""
        ...

    def row_by_row(self) -> bool:
        """See `longtail.types.Ranker.row_by_row`."""
        return False

    def plain_vectors(self) -> F32 | None:
        """(n, D): the vectors of the items; None where they are not kept as they are."""
        return None

    def read(self, part: slice | I64 = slice(None)) -> F32:
        """Vectors of items `part`, as queries meet them."""
        ...

    def packed_rows(self) -> PackedIndex | None:
        """Itself, where it is exact search over packed rows: other ways to search them can be built from it."""
        return None

    def packed(self, packer: Packer, *, last_whole: bool = False) -> Index:
        """The same with its vectors in fewer bytes; itself where it keeps none that could be packed.

        last_whole: the last number of each vector is a bias and is kept as it is.
        """
        return self

    def shards(self, count: int) -> tuple[Index, ...]:
        """Item n as item n // count of index n % count; `longtail.search.split.SplitIndex` puts them together."""
        raise ConfigError(
            f"an index of the kind '{self.KIND}' finds items through each other and cannot be split",
            "split the model before it is packed, or pack it with --index exact",
        )

    def state(self) -> State: ...

    @classmethod
    def from_state(cls, state: State) -> Self: ...


# How a shortlister makes its index; a GPU index comes in this way.
IndexBuilder: TypeAlias = Callable[[F32], Index]


@dataclass(frozen=True)
class HnswSettings:
    """How thorough an HNSW index is. The defaults are Astec's for label centroids."""

    neighbours: int = setting(100, "links per item (M)", low=2, high=1024)
    build_effort: int = setting(300, "items looked at when one is inserted (efConstruction)", low=1)
    query_effort: int = setting(300, "items looked at per query, at least twice the number asked for (efSearch)", low=1)


# Paper: Astec App. A.1. Differs: the paper gives the larger numbers to documents; the released code, as here, to
# centroids, where the recall of labels is decided. Its query effort of 100 for documents finds too few.
CENTROIDS = HnswSettings()
DOCUMENTS = HnswSettings(neighbours=50, build_effort=50, query_effort=300)


class Heaps:
    """Room for the k best of each query, filled by kernels."""

    def __init__(self, queries: int, k: int) -> None:
        if k < 0:
            raise ConfigError(f"the best {k} asked for", "ask for at least 0")
        self.ids, self.scores = np.empty((queries, k), np.int32), np.empty((queries, k), np.float32)
        self.sizes = np.zeros(queries, np.int64)

    @property
    def arrays(self) -> tuple[I32, F32, I64]:
        return self.ids, self.scores, self.sizes

    def rows(self, part: slice) -> tuple[I32, F32, I64]:
        """The room of some of the queries."""
        return self.ids[part], self.scores[part], self.sizes[part]

    def ranked(self) -> TopK:
        from longtail.search.kernels.shortlist import rank

        with threads_for(len(self.ids)):
            rank(self.ids, self.scores, self.sizes)
        return TopK(self.ids, self.scores)


class Table(NamedTuple):
    """Vectors to compare with, as kernels take them: (n, D), and scales and offsets (n,), or none of these (see
    `longtail.kernels.products.scan`).
    """

    values: NDArray[Any]
    scales: F32
    offsets: F32


@contextlib.contextmanager
def in_pieces(work: int, answer: Heaps, *, pools: bool = False) -> Iterator[tuple[I32, F32, I64]]:
    """Heaps (pieces, B, k) for threads that each look at a piece of the items; what they hold in the end goes to the
    empty `answer`.

    work: bytes to read.  pools: (pieces, B, 2 k) in place of heaps, with the k best of each in any order in the end.
    The best of all are the best of the pieces' best, so the number of pieces changes nothing.
    """
    from numba import get_num_threads

    from longtail.kernels.products import gather

    with threads_for(work, each=_BYTES_PER_THREAD):
        pieces = get_num_threads()
        if pieces == 1 and not pools:
            yield answer.ids[None], answer.scores[None], answer.sizes[None]
            return
        shape = (pieces, len(answer.ids), answer.ids.shape[1] * (2 if pools else 1))
        ids, scores, sizes = np.empty(shape, np.int32), np.empty(shape, np.float32), np.zeros(shape[:2], np.int64)
        yield ids, scores, sizes
        gather(ids, scores, sizes, *answer.arrays)


# Queries (B, D), and what offsets are multiplied with (B,).
Split: TypeAlias = tuple[F32, F32]


def scan_few(table: Table, queries: F32, lasts: F32, answer: Heaps) -> None:
    """Compare all items with a few queries (B, D) in one pass. lasts: (B,) what offsets are multiplied with."""
    from longtail.kernels.products import scan

    with in_pieces(table.values.nbytes, answer) as pieces:
        scan(*table, queries, lasts, *pieces)


def best_of_products(table: Table, vectors: Callable[[slice], F32], queries: F32, split: Split, answer: Heaps) -> None:
    """Compare all items with many queries (B, D), block by block. vectors: gives the vectors of some items, as these
    queries meet them.  split: the queries as `scan_few` takes them.

    BLAS adds up in an order of its own, which on some processors depends on where an item stands in its block, so its
    products only name candidates: answers are the same for few queries, many, and shards of the items.
    """
    from longtail.search.kernels.shortlist import keep_best

    n = len(table.values)
    items = _SIMILARITIES // max(min(len(queries), _QUERIES), 1)
    for row in range(0, len(queries), _QUERIES):
        rows = slice(row, row + _QUERIES)
        candidates = Heaps(len(queries[rows]), min(answer.ids.shape[1] + _MORE_CANDIDATES, n))
        for item in range(0, n, items):
            similarities = queries[rows] @ vectors(slice(item, item + items)).T
            with threads_for(len(similarities)):
                keep_best(similarities, item, *candidates.arrays)
        settle_candidates(table, (split[0][rows], split[1][rows]), candidates, answer.rows(rows))


def settle_candidates(table: Table, split: Split, candidates: Heaps, answer: tuple[I32, F32, I64]) -> None:
    """The best candidates by their products, in the empty `answer`. A query whose last answer could have been missed
    meets all items.
    """
    from longtail.kernels.products import choose_among

    (queries, lasts), (ids, scores, sizes) = split, answer
    doubtful = np.zeros(len(queries), dtype=np.bool_)
    with threads_for(len(queries)):
        choose_among(*table, queries, lasts, *candidates.arrays, _SAFETY, ids, scores, sizes, doubtful)
    if doubtful.any():
        again = Heaps(int(doubtful.sum()), ids.shape[1])
        scan_few(table, queries[doubtful], lasts[doubtful], again)
        ids[doubtful], scores[doubtful], sizes[doubtful] = again.arrays


@dataclass(frozen=True)
class ExactIndex(DataPart, Index):
    """Compares a query with every item. vectors: (n, D) float32, of unit length if the similarity is the cosine."""

    KIND = "exact-index"

    vectors: Annotated[F32, Shaped("items", "width")]
    similarity: Similarity

    @classmethod
    def build(cls, vectors: F32, similarity: Similarity = "cosine") -> ExactIndex:
        return cls(ready(vectors, similarity), similarity)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        """Numbers of a query."""
        return int(self.vectors.shape[1])

    def query(self, vectors: F32, k: int) -> TopK:
        queries, answer = ready(vectors, self.similarity, self.width), Heaps(len(vectors), k)
        none = frozen(np.zeros(0, np.float32))
        table, lasts = Table(frozen(self.vectors), none, none), np.zeros(len(queries), np.float32)
        if k and len(self):
            if len(queries) <= FEW_QUERIES:
                scan_few(table, queries, lasts, answer)
            else:
                best_of_products(table, self.read, queries, (queries, lasts), answer)
        return answer.ranked()

    def read(self, part: slice | I64 = slice(None)) -> F32:
        """Vectors as queries meet them."""
        return self.vectors[part]

    def plain_vectors(self) -> F32:
        return self.vectors

    def packed(self, packer: Packer, *, last_whole: bool = False) -> Index:
        return packer.index(self, last_whole=last_whole)

    def shards(self, count: int) -> tuple[Index, ...]:
        return tuple(ExactIndex(np.ascontiguousarray(self.vectors[n::count]), self.similarity) for n in range(count))


@dataclass(frozen=True)
class HnswIndex(Index):
    """A navigable graph of neighbours (Malkov, Yashunin 2016) by faiss: query time grows with the logarithm of the
    items.

    The build runs on one thread, as faiss inserts in parallel without a fixed order; so equal vectors give equal
    indices. Equal vectors are inserted once: labels with the same only document have equal centroids, and a crowd of
    equal items fills each other's links and cuts the graph. group_ptr, group_items (CSR): the items behind each
    inserted vector.
    """

    KIND = "hnsw-index"

    graph: Any  # of faiss; saved as its bytes
    group_ptr: Annotated[I64, Shaped("groups", points_into="items")]
    group_items: Annotated[I32, Shaped("items", numbers_of="items", once=True)]
    query_effort: Annotated[int, Between(1)]
    similarity: Similarity

    def __post_init__(self) -> None:
        freeze(self, "group_ptr", "group_items")

    @classmethod
    def build(cls, vectors: F32, settings: HnswSettings = CENTROIDS, similarity: Similarity = "cosine") -> HnswIndex:
        faiss = _faiss()
        items = ready(vectors, similarity)
        firsts, group_ptr, group_items = _groups(items)
        graph = faiss.IndexHNSWFlat(items.shape[1], settings.neighbours, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = settings.build_effort
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            graph.add(items[firsts])
        finally:
            faiss.omp_set_num_threads(threads)
        return cls(graph, group_ptr, group_items, settings.query_effort, similarity)

    def __len__(self) -> int:
        return len(self.group_items)

    @property
    def width(self) -> int:
        return int(self.graph.d)

    def read(self, part: slice | I64 = slice(None)) -> F32:
        if not isinstance(part, slice):  # a few of very many
            group = np.empty(len(self), dtype=np.int64)
            group[self.group_items] = np.repeat(np.arange(self.graph.ntotal), np.diff(self.group_ptr))
            found: F32 = self.graph.reconstruct_batch(group[part])
            return found
        different = self.graph.reconstruct_n(0, self.graph.ntotal)
        vectors = np.empty((len(self), different.shape[1]), dtype=np.float32)
        vectors[self.group_items] = np.repeat(different, np.diff(self.group_ptr), axis=0)
        return vectors[part]

    def query(self, vectors: F32, k: int) -> TopK:
        from longtail.search.kernels.shortlist import unfold

        queries, answer = ready(vectors, self.similarity, self.width), Heaps(len(vectors), k)
        groups = min(k, self.graph.ntotal)
        if groups and len(queries):
            from longtail.kernels.forked import is_forked

            if is_forked():  # the threads of OpenMP, which faiss would wait for, are not here
                _faiss().omp_set_num_threads(1)
            effort = _faiss().SearchParametersHNSW(efSearch=max(self.query_effort, 2 * groups))
            similarities, found = self.graph.search(queries, groups, params=effort)
            with threads_for(len(queries)):
                unfold(found, similarities, self.group_ptr, self.group_items, *answer.arrays)
        return answer.ranked()

    def state(self) -> State:
        graph = _faiss().serialize_index(self.graph)
        values = {"query_effort": self.query_effort, "similarity": self.similarity}
        return State(values, {"graph": graph, "group_ptr": self.group_ptr, "group_items": self.group_items})

    @classmethod
    def from_state(cls, state: State) -> HnswIndex:
        groups, values = read_arrays(cls, state), state.values
        saved = np.array(state.arrays["graph"])  # faiss reads no memory map
        check_hnsw(saved, items=len(groups["group_ptr"]) - 1)
        try:
            graph = _faiss().deserialize_index(saved)
        except RuntimeError as problem:
            raise ValueError(f"faiss cannot read the index: {problem}") from problem
        effort = values["query_effort"]
        if (
            values["similarity"] not in get_args(Similarity)
            or type(effort) is not int
            or not 0 < effort <= _MOST_EFFORT
        ):
            raise ValueError(f"the similarity {values['similarity']!r} with an effort of {effort!r}")
        return cls(graph, **groups, query_effort=effort, similarity=values["similarity"])


def choose_index(n: int, dim: int) -> Literal["exact", "hnsw"]:
    """Exact where that is faster in all, build and a query of every item, or faiss is absent; HNSW above."""
    if n * dim < _HNSW_FROM:
        return "exact"
    try:
        _faiss()
    except MissingExtra:
        return "exact"
    return "hnsw"


def build_index(
    vectors: F32,
    kind: IndexKind = "auto",
    *,
    hnsw: HnswSettings = CENTROIDS,
    similarity: Similarity = "cosine",
) -> ExactIndex | HnswIndex:
    """An index over the rows of (n, D) vectors, of the kind asked for or chosen by size."""
    if kind == "auto":
        kind = choose_index(len(vectors), vectors.shape[1])
    return HnswIndex.build(vectors, hnsw, similarity) if kind == "hnsw" else ExactIndex.build(vectors, similarity)


def check_width(vectors: NDArray[Any], width: int) -> None:
    """Kernels read as many numbers of a vector as a row has."""
    if vectors.shape[1] != width:
        raise ConfigError(
            f"vectors of {vectors.shape[1]} numbers, expected {width}",
            "use the encoder that the model was trained with; the bundle was altered if you did",
        )


def ready(vectors: NDArray[Any], similarity: Similarity, width: int | None = None) -> F32:
    """Contiguous float32, of unit length for the cosine. Refuses what is not a number: it would poison the order
    silently.  width: of the items that they are compared with.
    """
    if width is not None:
        check_width(vectors, width)
    if not np.isfinite([vectors.min(initial=0), vectors.max(initial=0)]).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise DataError(
            f"vector {row} of {len(vectors)} holds a value that is not a finite number",
            "training diverged: lower the learning rate",
        )
    return np.ascontiguousarray(unit_rows(vectors) if similarity == "cosine" else vectors, dtype=np.float32)


def _groups(vectors: F32) -> tuple[I64, I64, I32]:
    """Equal rows together: the first row of each group, and the rows of each group as CSR pointers and numbers."""
    rows = vectors + np.float32(0)  # turns -0.0 into 0.0, which has other bits
    bits = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, firsts, group, sizes = np.unique(bits, return_index=True, return_inverse=True, return_counts=True)
    pointers = np.zeros(len(firsts) + 1, dtype=np.int64)
    np.cumsum(sizes, out=pointers[1:])
    return firsts, pointers, np.argsort(group, kind="stable").astype(np.int32)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss-cpu", "hnsw", "an HNSW index") from None
    return faiss
