"""An index in parts: item n is item n // parts of part n % parts. Answers are those of one index over all items.

Parts may lie on several machines: `ShardLists` is what the one that has a part says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from longtail.persistence import DataPart
from longtail.search.index import Index
from longtail.types import F32, I64, TopK

if TYPE_CHECKING:
    from longtail.search.packed import Packer


@dataclass(frozen=True)
class SplitIndex(DataPart, Index):
    """Each part is asked for its k best; the k best of these are the answer, ties by the number of the item.

    Parts in one process are asked one after the other: whoever looks through a part uses all threads for it.
    """

    KIND = "split-index"

    parts: tuple[Index, ...]

    def __post_init__(self) -> None:
        sizes, items = [len(part) for part in self.parts], sum(len(part) for part in self.parts)
        if not sizes or sizes != [len(range(number, items, len(sizes))) for number in range(len(sizes))]:
            raise ValueError(f"parts of {sizes} items are not those of one index")

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def query(self, vectors: F32, k: int) -> TopK:
        return merged([part.query(vectors, k) for part in self.parts], k)

    def read(self, part: slice | I64 = slice(None)) -> F32:
        numbers = np.arange(len(self))[part] if isinstance(part, slice) else np.asarray(part)
        count, found = len(self.parts), [part.read(slice(0, 0)) for part in self.parts]
        rows = np.empty((len(numbers), found[0].shape[1]), np.float32)
        for number, one in enumerate(self.parts):
            mine = numbers % count == number
            rows[mine] = one.read(numbers[mine] // count)
        return rows

    def row_by_row(self) -> bool:
        return all(part.row_by_row() for part in self.parts)

    def packed(self, packer: Packer, *, last_whole: bool = False) -> Index:
        return SplitIndex(tuple(part.packed(packer, last_whole=last_whole) for part in self.parts))


@dataclass(frozen=True)
class ShardLists:
    """What a shard of a model finds for documents: `longtail.models.gathered.ranked` makes the ranking of the whole of
    what all shards found.

    lists: for each model inside the best labels by the scores of their rows, as an index gives them.
    votes: for each list what every label is voted, where labels are voted on.
    depth: of several models each lists so many labels at least.  voted, weight: so many of the first labels are voted
    on, and what votes count.
    """

    lists: tuple[TopK, ...]
    votes: tuple[F32, ...] = ()
    depth: int = 0
    voted: int = 0
    weight: float = 0.0

    def __post_init__(self) -> None:
        shapes = {top.ids.shape for top in self.lists} | {votes.shape for votes in self.votes}
        if len(shapes) != 1 or len(self.votes) not in (0, len(self.lists)):
            raise ValueError(f"lists and votes of the shapes {sorted(shapes)}")

    def rows(self, start: int, end: int) -> ShardLists:
        """The same of some of the documents."""
        lists = tuple(TopK(top.ids[start:end], top.scores[start:end]) for top in self.lists)
        return replace(self, lists=lists, votes=tuple(votes[start:end] for votes in self.votes))

    @staticmethod
    def stacked(parts: Sequence[ShardLists]) -> ShardLists:
        """One after the other."""
        lists = (
            TopK(np.concatenate([top.ids for top in same]), np.concatenate([top.scores for top in same]))
            for same in zip(*(part.lists for part in parts), strict=True)
        )
        votes = (np.concatenate(same) for same in zip(*(part.votes for part in parts), strict=True))
        return replace(parts[0], lists=tuple(lists), votes=tuple(votes))


def merged(found: Sequence[TopK], k: int) -> TopK:
    """The k best of what each part found, which has its own numbers, by (-score, number)."""
    count = len(found)
    ids = np.concatenate(
        [np.where(top.ids >= 0, top.ids * count + number, TopK.PAD) for number, top in enumerate(found)], axis=1
    )
    scores = np.concatenate([top.scores for top in found], axis=1)
    # Padding has no score, and the largest number of all: it comes last.
    order = np.lexsort((np.where(ids >= 0, ids, np.iinfo(np.int32).max), -scores), axis=1)[:, :k]
    return TopK(
        np.take_along_axis(ids, order, axis=1).astype(np.int32),
        np.take_along_axis(scores, order, axis=1).astype(np.float32),
    )
