"""What the stages of ECLARE leave behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.label_groups import Bins, equal_count
from longtail.models.encoders import FrozenSum, Refinement
from longtail.persistence import DataPart
from longtail.search.negatives import ShortlistNegatives
from longtail.search.shortlist import ClusterBeam
from longtail.types import F32, I32, I64, Csr


@dataclass(frozen=True)
class Surrogate(DataPart):
    """Of stage I.

    encoder: a = E x.  vectors: (N, D), a of all training documents.  clusters: (L,) the cluster of every label.
    graph: (L, L) CSR, the label graph; one entry per row, on the diagonal, where there is none.
    network: trained tensors of the document block and of the clusters' classifiers, by name; stage II goes on from
        them.
    """

    KIND = "eclare-surrogate"

    encoder: FrozenSum
    vectors: F32
    clusters: I32
    graph: Csr
    network: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Shortlists(DataPart):
    """Of stage II: the clusters with their classifiers, the document block they read, and hard negatives."""

    KIND = "eclare-shortlists"

    beam: ClusterBeam
    document_map: Refinement
    negatives: ShortlistNegatives | None


@dataclass(frozen=True)
class ConvolvedTexts(DataPart):
    """Of stage III: G^k E Z for k = 0, 1, ..., each (L, D)."""

    KIND = "eclare-texts"

    orders: tuple[F32, ...]


@dataclass(frozen=True)
class LabelComponents(DataPart):
    """Of stage IV, for analyses and never in a bundle: what classifiers are made of, label by label.

    names: of the J components.  weights, lengths: (L, J), of each component of each label.
    counts: (L,) training documents.
    """

    KIND = "label-components"

    names: tuple[str, ...]
    weights: F32
    lengths: F32
    counts: I64

    def __post_init__(self) -> None:
        shape = len(self.counts), len(self.names)
        if self.weights.shape != shape or self.lengths.shape != shape:
            raise ValueError(f"weights {self.weights.shape} and lengths {self.lengths.shape} of {shape} components")

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
