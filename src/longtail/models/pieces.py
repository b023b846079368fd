"""Which models answer a batch piece by piece on several threads, and how it is cut. Needs no torch."""

from __future__ import annotations

from typing import Any

from longtail.models.clusters import ClusterModel
from longtail.models.encoders import EmbeddingMap, FrozenBag, FrozenSum, FullMap, ResidualMap
from longtail.models.rows import IndexedRows
from longtail.models.shortlisted import Ensemble
from longtail.search.matrix import ours_for_many
from longtail.search.packed import PackedIndex
from longtail.search.sketch import SketchIndex

# Documents of a piece. Fewer than `_MOST` cost more each, as they share less of what is in the caches: 5% with half
# as many, 16% with a quarter. At least `_LEAST`, so that a piece takes far longer than waking a thread, and so many
# that products go the way of `matrix.ours_for_many`.
_MOST, _LEAST = 512, 64


def stands_alone(ranker: Any) -> bool:
    """Whether no step has threads of its own, and what is said of a document does not depend on those beside it, to
    the last bit.

    (In a batch of `_LEAST` or more.) So it is where all steps are our kernels: bags of words, and rows in bytes. BLAS
    adds up in another order where there are fewer rows, and BLAS and faiss have threads of their own, which would
    stand in the way of ours.
    """
    match ranker:
        case IndexedRows(encoder=FrozenBag() | FrozenSum()):
            return _map_stands_alone(ranker.refinement) and _index_stands_alone(ranker.index)
        case ClusterModel(encoder=FrozenBag() | FrozenSum()):
            return (
                _map_stands_alone(ranker.shortlist_map)
                and _map_stands_alone(ranker.rank_map)
                and _index_stands_alone(ranker.beam.index)
            )
        case Ensemble():
            return all(map(stands_alone, ranker.members))
        case _:
            return False


def _map_stands_alone(refinement: Any) -> bool:
    return refinement is None or (
        isinstance(refinement, ResidualMap | FullMap | EmbeddingMap) and ours_for_many(refinement.weight)
    )


def _index_stands_alone(index: Any) -> bool:
    return isinstance(index, SketchIndex) or (isinstance(index, PackedIndex) and index.multiplies_bytes())


def cut(documents: int, threads: int) -> list[slice]:
    """Even pieces, as many for each thread; fewer than `threads` where documents are few."""
    together = max(1, min(threads, documents // _LEAST))
    pieces = together * max(1, -(-documents // (_MOST * together)))
    return [slice(n * documents // pieces, (n + 1) * documents // pieces) for n in range(pieces)]
