"""What several models of `direct` that were made one compute between words and rows. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from longtail.declared import Shaped
from longtail.kernels.arrays import frozen
from longtail.models.encoders import Refinement, each_by
from longtail.persistence import DataPart
from longtail.search.packed import ours_for_many, product
from longtail.types import F32


@dataclass(frozen=True)
class HiddenMap(DataPart, Refinement):
    """x = T v + S ReLU(H v).  straight: T, (D, D).  into: H, (M, D).  out: S, (D, M)."""

    KIND = "hidden-map"

    straight: Annotated[F32, Shaped("width", "width")]
    into: Annotated[F32, Shaped("hidden", "width")]
    out: Annotated[F32, Shaped("width", "hidden")]

    @property
    def width(self) -> int:
        return len(self.straight)

    def apply(self, vectors: F32) -> F32:
        turned = self._turned
        hidden = np.maximum(product(vectors, turned[1]), 0)
        x: F32 = product(vectors, turned[0]) + product(hidden, turned[2])
        return x

    def pulled(self, vectors: F32, directions: F32) -> F32:
        passes = product(vectors, self._turned[1]) > 0
        inner = each_by(directions, self.out) * passes[:, None]
        found: F32 = each_by(directions, self.straight) + each_by(inner, self.into)
        return found

    def row_by_row(self) -> bool:
        return all(map(ours_for_many, (self.straight, self.into, self.out)))

    @cached_property
    def _turned(self) -> tuple[F32, F32, F32]:
        return frozen(self.straight.T), frozen(self.into.T), frozen(self.out.T)
