"""The labels that a batch of documents is trained against: those that were chosen for its documents, and others on
purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail.graph.edges import drawn, linked
from longtail.types import I64, BoolArray, Csr


@dataclass(frozen=True)
class LabelPool:
    """U different labels, ascending, for B documents.

    labels: (U,).  positive: (B,) place of the label that was chosen for a document, -1 where it has none.
    right: (B, U) labels of the document.  negative: (B, U) what may be called wrong: neither right nor masked.
    """

    labels: I64
    positive: I64
    right: BoolArray
    negative: BoolArray

    @property
    def chosen(self) -> I64:
        """Places of the labels that were chosen for some document, ascending."""
        return np.unique(self.positive[self.positive >= 0])


def label_pool(
    rows: I64, targets: Csr, forbidden: Csr, rng: np.random.Generator, others: I64 | None = None
) -> LabelPool:
    """For each document one of its labels, l(i) ~ Unif(P_i), and `others` beside them (numbers of labels, -1 for none).

    targets: (N, L) CSR.  forbidden: (N, L), what must not be a negative (`forbidden_pairs`). Paper: RAMEN Sec. 3,
        mini-batches.
    """
    chosen = drawn(targets, rows, rng)
    labels = np.unique(chosen if others is None else np.concatenate([chosen, others]))
    labels = labels[labels >= 0]
    right = linked(targets, rows, labels)
    positive = np.where(chosen >= 0, np.searchsorted(labels, chosen), -1)
    return LabelPool(labels, positive, right, ~linked(forbidden, rows, labels))
