"""What models of `direct` compute beside what recipes share: words with a view of whole texts, and what several models
that were made one have between words and rows. No torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from longtail.declared import Shaped, Sized
from longtail.kernels.arrays import frozen
from longtail.models.encoders import FrozenEncoder, FrozenSum, Refinement, each_by
from longtail.persistence import DataPart
from longtail.search.packed import Packer, ours_for_many, product
from longtail.types import F32, Batch


@dataclass(frozen=True)
class BagWithView(DataPart, FrozenEncoder):
    """v = E x + u P, or ReLU of it: words, and a pretrained vector u of the whole text.

    words: E x.  view: u.  matrix: P, (H, D).  relu: whether there is one.
    Which word a text's vector comes from is not known, so there are no `shares`: to explain a label, words are left out
    in turn.
    """

    KIND = "bag-with-view"

    words: Annotated[FrozenSum, Sized(width="width")]
    view: Annotated[FrozenEncoder, Sized(width="given")]
    matrix: Annotated[F32, Shaped("given", "width")]
    relu: bool

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    def encode(self, batch: Batch) -> F32:
        sums: F32 = self.words.encode(batch) + product(self.view.encode(batch), self._matrix)
        return np.maximum(sums, 0, out=sums) if self.relu else sums

    def packed(self, packer: Packer) -> BagWithView:
        """Words and the transformer in fewer bytes; the matrix is small."""
        return replace(self, words=FrozenSum(packer.words(self.words.table)), view=self.view.packed(packer))

    def rectified(self, wished: bool) -> BagWithView:
        return replace(self, relu=wished)

    @cached_property
    def _matrix(self) -> F32:
        return frozen(self.matrix)


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
