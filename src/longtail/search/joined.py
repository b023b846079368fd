"""An index with more items behind those of another: what was there stays as it lies on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from longtail.declared import Sized
from longtail.kernels.threads import threads_for
from longtail.persistence import DataPart
from longtail.search.index import ExactIndex, Index, Similarity, build_index
from longtail.search.packed import PackedIndex, Packer
from longtail.types import F32, I64, TopK


@dataclass(frozen=True)
class JoinedIndex(DataPart, Index):
    """The items of `first`, and those of `second` numbered on from them; both by the same similarity."""

    KIND = "joined-index"

    first: Annotated[Index, Sized(width="width")]
    second: Annotated[ExactIndex | PackedIndex, Sized(width="width")]

    @classmethod
    def of(cls, first: Index, vectors: F32) -> JoinedIndex:
        """vectors: (n, D) as `first` would be built from."""
        similarity: Similarity = getattr(first, "similarity", "dot")
        second, width = ExactIndex.build(vectors, similarity), getattr(first, "width", None)
        if width not in (None, second.width):
            raise ValueError(f"vectors of {second.width} numbers behind ones of {width}")
        return cls(first, second)

    @property
    def width(self) -> int:
        """Numbers of a query."""
        return self.second.width

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def query(self, vectors: F32, k: int) -> TopK:
        from longtail.search.kernels.shortlist import best_listed

        found = self.first.query(vectors, min(k, len(self.first)))
        more = self.second.query(vectors, min(k, len(self.second)))
        moved = np.where(more.ids == TopK.PAD, TopK.PAD, more.ids + np.int32(len(self.first))).astype(np.int32)
        top = TopK.padding(len(vectors), k)
        with threads_for(len(vectors), each=64):
            best_listed(
                np.concatenate([found.ids, moved], axis=1),
                np.concatenate([found.scores, more.scores], axis=1),
                top.ids,
                top.scores,
            )
        return top

    def row_by_row(self) -> bool:
        return self.first.row_by_row() and self.second.row_by_row()

    def plain_vectors(self) -> F32 | None:
        first, second = self.first.plain_vectors(), self.second.plain_vectors()
        return None if first is None or second is None else np.concatenate([first, second])

    def read(self, part: slice | I64 = slice(None)) -> F32:
        numbers = np.arange(len(self))[part] if isinstance(part, slice) else np.asarray(part)
        later = numbers >= len(self.first)
        found = np.empty((len(numbers), self.second.width), dtype=np.float32)
        found[~later] = self.first.read(numbers[~later].astype(np.int64))
        found[later] = self.second.read(numbers[later].astype(np.int64) - len(self.first))
        return found

    def packed(self, packer: Packer, *, last_whole: bool = False) -> Index:
        """All items in one table, where both keep their vectors as they are."""
        plain = self.plain_vectors()
        if plain is not None:
            return build_index(plain, "exact", similarity=self.second.similarity).packed(packer, last_whole=last_whole)
        first = self.first.packed(packer, last_whole=last_whole)
        second = self.second.packed(packer, last_whole=last_whole)
        assert isinstance(second, ExactIndex | PackedIndex), "an exact index stays one"
        return JoinedIndex(first, second)
