"""A layer of a graph isomorphism network for prediction. Its twin in torch is `longtail.nn.gin.GinLayer`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from longtail.kernels.arrays import F64, steady_product
from longtail.types import F32


@dataclass(frozen=True)
class FrozenGinLayer:
    """h = ReLU(B ReLU(A a + c) + d) with a = (1 + epsilon) own + message, batch norm folded into A and c.

    first: A, (D, D_in); first_bias: c, (D,); second: B, (D, D); second_bias: d, (D,).
    """

    epsilon: float
    first: F32
    first_bias: F32
    second: F32
    second_bias: F32

    def apply(self, own: F32, message: F32) -> F32:
        """own: (..., D_in) vectors of nodes.  message: the sum of their neighbours'.  Gives (..., D)."""
        gathered = np.float32(1 + self.epsilon) * own + message
        hidden = np.maximum(steady_product(gathered, self._first) + self.first_bias, 0)
        return np.maximum(steady_product(hidden, self._second) + self.second_bias, 0)

    @cached_property
    def _first(self) -> F64:
        return self.first.astype(np.float64)

    @cached_property
    def _second(self) -> F64:
        return self.second.astype(np.float64)
