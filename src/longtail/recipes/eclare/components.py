"""What the classifiers of a trained `LabelTextGraph` are made of, label by label: kept for analyses, never in a
bundle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.quantiles import Bins, equal_count
from longtail.persistence import State
from longtail.types import F32, I64


@dataclass(frozen=True)
class LabelComponents:
    """names: of the J components.  weights, lengths: (L, J), of each component of each label.  counts: (L,) training
    documents.
    """

    KIND = "label-components"

    names: tuple[str, ...]
    weights: F32
    lengths: F32
    counts: I64

    def dominance(self, binned: Callable[[I64], Bins] = equal_count) -> tuple[Bins, NDArray[np.float64]]:
        """Bins of labels by frequency, head first, and (Q, J) the mean of weight x length in each; nan where a bin is
        empty.

        Paper: ECLARE Fig. 9 (which shows rare labels first).
        """
        bins = binned(self.counts)
        strength = self.weights.astype(np.float64) * self.lengths
        sums = np.stack(
            [np.bincount(bins.bin_of_label, weights=column, minlength=len(bins)) for column in strength.T], axis=1
        )
        sizes = bins.n_labels[:, None].astype(np.float64)
        return bins, np.divide(sums, sizes, out=np.full_like(sums, np.nan), where=sizes > 0)

    def state(self) -> State:
        return State(
            {"names": list(self.names)}, {"weights": self.weights, "lengths": self.lengths, "counts": self.counts}
        )

    @classmethod
    def from_state(cls, state: State) -> LabelComponents:
        return cls(tuple(state.values["names"]), **state.arrays)
