"""A cluster tree on top of a frozen encoder. Paper: Astec Sec. 5 (Parabel on the features of stage I)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from longtail.engine.encoders import FrozenEncoder, Refinement
from longtail.persistence import State
from longtail.search.gamed import Gamed
from longtail.search.tree import ClusterTree
from longtail.types import F32, Batch, TopK


@dataclass(frozen=True)
class EncodedTree:
    """encode -> (refine) -> rank with a tree that was fitted on such vectors. A `Ranker` and a part."""

    KIND = "encoded-tree"

    encoder: FrozenEncoder
    refinement: Refinement | None
    tree: ClusterTree | Gamed

    def rank(self, batch: Batch, k: int) -> TopK:
        return self.tree.rank(Batch(dense=self.encode(batch)), k)

    def encode(self, batch: Batch) -> F32:
        """(B, D): what the tree reads."""
        vectors = self.encoder.encode(batch)
        return vectors if self.refinement is None else self.refinement.apply(vectors)

    def state(self) -> State:
        return State(parts={"encoder": self.encoder, "refinement": self.refinement, "tree": self.tree})

    @classmethod
    def from_state(cls, state: State) -> EncodedTree:
        parts: Any = state.parts
        return cls(parts["encoder"], parts["refinement"], parts["tree"])
