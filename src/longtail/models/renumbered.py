"""A model that shows its labels under other numbers: some hidden, some several of which became one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from longtail.declared import Shaped, Sized
from longtail.explanation import Cause, Reasons
from longtail.models.rankers import best
from longtail.persistence import DataPart
from longtail.search.packed import Packer
from longtail.types import F32, I32, I64, Batch, Context, Csr, Ranker, TopK


@dataclass(frozen=True)
class RenumberedLabels(DataPart, Ranker):
    """The labels of `base` under other numbers; the score of one that several became is the highest of theirs.

    places: (labels of the base,) the number that each is shown under; -1 for one that is hidden.
    firsts: (labels shown,) for each the one of the base whose row and name it has.
    """

    KIND = "renumbered-labels"

    base: Annotated[Ranker, Sized(n_labels="labels")]
    places: Annotated[I32, Shaped("labels", numbers_of="shown", least=-1)]
    firsts: Annotated[I32, Shaped("shown", numbers_of="labels")]

    def __post_init__(self) -> None:
        if not np.array_equal(self.places[self.firsts], np.arange(len(self.firsts))):
            raise ValueError("labels are not shown under their own numbers")

    @property
    def n_labels(self) -> int:
        return len(self.firsts)

    def rank(self, batch: Batch, k: int) -> TopK:
        return self._shown(lambda depth: self.base.rank(batch, depth), k)

    def _shown(self, ranked: Any, k: int) -> TopK:
        """Deeper until every document has `k` labels that are shown, or all that the base would ever say."""
        k, most = min(k, len(self.firsts)), len(self.places)
        depth = min(k + min(self._more, 64), most)
        while True:
            top: TopK = ranked(depth)
            found = self._moved(top, k)
            whole = top.ids[:, -1] == TopK.PAD if top.k == depth else np.ones(len(top), np.bool_)
            if depth >= most or bool((whole | (found.ids[:, -1] != TopK.PAD)).all()):
                return found
            depth = min(4 * depth, most)

    @cached_property
    def _more(self) -> int:
        """Labels of the base that are not shown by themselves."""
        return len(self.places) - len(self.firsts)

    @cached_property
    def _after_all(self) -> I32:
        """`places`, with one more entry at the end for padding."""
        return np.append(self.places, np.int32(TopK.PAD))

    def _moved(self, top: TopK, k: int) -> TopK:
        ids = self._after_all[top.ids]
        # Lists are sorted by falling score: of labels that became one the first counts.
        order = np.argsort(ids, axis=1, kind="stable")
        sorted_ids = np.take_along_axis(ids, order, axis=1)
        again = np.zeros(ids.shape, dtype=np.bool_)
        np.put_along_axis(again, order[:, 1:], sorted_ids[:, 1:] == sorted_ids[:, :-1], axis=1)
        return best(np.where(again, np.int32(TopK.PAD), ids), top.scores, k)

    # ---- what is asked of labels by their numbers ----

    @cached_property
    def _members(self) -> tuple[I64, I64]:
        """The labels of the base behind each that is shown: starts (shown + 1,), and their numbers."""
        order = np.argsort(self.places, kind="stable")[np.count_nonzero(self.places < 0) :]
        starts = np.searchsorted(self.places[order], np.arange(len(self.firsts) + 1))
        return starts.astype(np.int64), order.astype(np.int64)

    def _behind(self, batch: Batch, ids: I32, context: Context | None) -> I32:
        """(B, C): for labels that are shown those of the base that make their scores."""
        found = np.where(ids >= 0, self.firsts[np.maximum(ids, 0)], np.int32(TopK.PAD)).astype(np.int32)
        starts, members = self._members
        for row, place in zip(*np.nonzero((ids >= 0) & (np.diff(starts)[np.maximum(ids, 0)] > 1)), strict=True):
            several = members[starts[ids[row, place]] : starts[ids[row, place] + 1]].astype(np.int32)
            one, known = batch.rows(slice(row, row + 1)), None if context is None else context.rows(slice(row, row + 1))
            found[row, place] = several[self.base.scores_of(one, several[None], len(self.places), known)[0].argmax()]
        return found

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """Of the label of the base that made the score."""
        inner = self._inner(context)
        reasons: Reasons | None = self.base.explain(batch, self._behind(batch, ids, inner), inner)
        if reasons is None:
            return None
        return replace(reasons, others=self._causes(reasons.others), links=self._causes(reasons.links))

    def _causes(self, causes: Mapping[tuple[int, int], Sequence[Cause]]) -> dict[tuple[int, int], list[Cause]]:
        """With the numbers that labels are shown under; one that is hidden is named in words."""
        return {key: [self._cause(cause) for cause in some] for key, some in causes.items()}

    def _cause(self, cause: Cause) -> Cause:
        if cause.kind != "label":
            return cause
        place = int(self._after_all[cause.number])
        hidden = Cause("labels", -1, "a label that is hidden", cause.share)
        return hidden if place < 0 else cause._replace(number=place)

    def scores_of(self, batch: Batch, ids: I32, n_labels: int, context: Context | None = None) -> F32:
        inner = self._inner(context)
        return self.base.scores_of(batch, self._behind(batch, ids, inner), len(self.places), inner)

    def _inner(self, context: Context | None) -> Context | None:
        """Known labels under the numbers of the base: of several that became one, all."""
        if context is None or context.labels is None:
            return context
        return replace(context, labels=self._as_base(context.labels))

    def _as_base(self, labels: Csr) -> Csr:
        from scipy.sparse import csr_array

        shown = np.flatnonzero(self.places >= 0)
        moves = csr_array(
            (np.ones(len(shown), np.float32), (self.places[shown], shown)),
            shape=(len(self.firsts), len(self.places)),
        )
        return csr_array(labels @ moves)

    def row_by_row(self) -> bool:
        return self.base.row_by_row()

    def packed(self, packer: Packer) -> Any:
        return replace(self, base=self.base.packed(packer))

    def label_space(self) -> Any:
        """New labels are made from those of the base, and go behind them."""
        return self.base.label_space()

    def label_encoder(self) -> Any:
        return self.base.label_encoder()

    def document_encoder(self) -> Any:
        return self.base.document_encoder()

    def label_vectors(self, part: slice = slice(None)) -> F32 | None:
        """Of labels that several became the vector of the one whose name it has."""
        numbers = self.firsts[part]
        if not len(numbers):
            return self.base.label_vectors(slice(0, 0))
        low, high = int(numbers.min()), int(numbers.max()) + 1
        rows = self.base.label_vectors(slice(low, high))
        return None if rows is None else rows[numbers - low]

    def document_vectors(self, batch: Batch) -> F32 | None:
        return self.base.document_vectors(batch)

    def onnx(self) -> bytes | None:
        return self.base.onnx()


@dataclass(frozen=True)
class RenumberedInContext(RenumberedLabels):
    """The same over a model that can use what is known of documents beside their text."""

    KIND = "renumbered-labels-in-context"

    @property
    def anchor_uids(self) -> Sequence[str]:
        base: Any = self.base
        found: Sequence[str] = base.anchor_uids
        return found

    def rank_in_context(self, batch: Batch, k: int, context: Context) -> TopK:
        asked: Any = self.base
        inner = self._inner(context)
        return self._shown(lambda depth: asked.rank_in_context(batch, depth, inner), k)


def renumbered(base: Ranker, groups: I64) -> tuple[Ranker, I64]:
    """The base with labels hidden and joined, itself where nothing is; and which of its labels are shown, in order.

    groups: (labels,) for each label the one that it became, itself mostly; -1: hidden.
    """
    shown = np.flatnonzero(groups == np.arange(len(groups)))
    if len(shown) == len(groups):
        return base, shown
    number = np.full(len(groups) + 1, TopK.PAD, dtype=np.int32)
    number[shown] = np.arange(len(shown))
    kind = RenumberedInContext if hasattr(base, "rank_in_context") else RenumberedLabels
    return kind(base, number[groups], shown.astype(np.int32)), shown
