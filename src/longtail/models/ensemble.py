"""Several models that answer together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from longtail.models.analysis import Look
from longtail.models.shortlisted import best
from longtail.persistence import DataPart
from longtail.search.packed import Packer
from longtail.types import Batch, Ranker, TopK


@dataclass(frozen=True)
class Ensemble(DataPart, Ranker):
    """Mean of the members' scores over the union of their labels; a label that a member did not find counts 0 there."""

    KIND = "ensemble"

    members: tuple[Ranker, ...]
    depth: int = 100

    def rank(self, batch: Batch, k: int) -> TopK:
        found = [member.rank(batch, max(self.depth, k)) for member in self.members]
        ids = np.concatenate([top.ids for top in found], axis=1)
        scores = np.concatenate([np.where(top.ids >= 0, top.scores, 0) for top in found], axis=1)
        # Equal labels stand side by side after sorting; their scores are summed at the first of them.
        order = np.argsort(ids, axis=1, kind="stable")
        ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
        first = np.ones(ids.shape, dtype=bool)
        first[:, 1:] = ids[:, 1:] != ids[:, :-1]
        group = np.cumsum(first, axis=1) - 1
        summed = np.zeros(scores.shape, dtype=np.float32)
        np.add.at(summed, (np.arange(len(ids))[:, None], group), scores.astype(np.float32))
        merged = np.where(first, np.take_along_axis(summed, group, axis=1) / np.float32(len(self.members)), -np.inf)
        return best(np.where(first, ids, TopK.PAD), merged, min(k, max(top.k for top in found)))

    def row_by_row(self) -> bool:
        return all(member.row_by_row() for member in self.members)

    def packed(self, packer: Packer) -> Ensemble:
        return replace(self, members=tuple(member.packed(packer) for member in self.members))

    def document_encoder(self) -> Any:
        """Of the first member."""
        return self.members[0].document_encoder()

    def diagnose(self, look: Look) -> dict[str, Any]:
        """Of the first member; the others were made in the same way."""
        return self.members[0].diagnose(look)
