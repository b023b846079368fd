"""A frozen encoder whose vectors have unit length. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from longtail.engine.encoders import FrozenEncoder, Refinement
from longtail.graph.ops import unit_rows
from longtail.persistence import State
from longtail.types import F32, Batch


@dataclass(frozen=True)
class FrozenUnit:
    """x / |x| with x = refinement(encoder(document)), of either sign. A document without features stays zero."""

    KIND = "frozen-unit"

    encoder: FrozenEncoder
    refinement: Refinement | None = None

    def encode(self, batch: Batch) -> F32:
        vectors = self.encoder.encode(batch)
        unit: F32 = unit_rows(vectors if self.refinement is None else self.refinement.apply(vectors))
        return unit

    def state(self) -> State:
        return State(parts={"encoder": self.encoder, "refinement": self.refinement})

    @classmethod
    def from_state(cls, state: State) -> FrozenUnit:
        parts: Any = state.parts
        return cls(parts["encoder"], parts["refinement"])
