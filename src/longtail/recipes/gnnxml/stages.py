"""What the stages of GNN-XML leave behind for one another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail.kernels.arrays import csr
from longtail.persistence import DataPart
from longtail.recipes.gnnxml.ranker import FrozenGin
from longtail.search.cluster import meta_labels
from longtail.types import F32, I32, Csr


@dataclass(frozen=True)
class Clusters(DataPart):
    """What stage I leaves behind. clusters: (L,), -1 for labels without documents."""

    KIND = "gnnxml-clusters"

    clusters: I32

    @property
    def count(self) -> int:
        return int(self.clusters.max(initial=-1)) + 1

    def targets(self, labels: Csr) -> Csr:
        """(N, K) CSR: the clusters of each document."""
        present = self.clusters >= 0
        return meta_labels(labels.tocsc()[:, present].tocsr(), self.clusters[present], self.count)


@dataclass(frozen=True)
class Matcher(DataPart):
    """What stage II leaves behind: the network, its heads, and for every training document its vector and the
    clusters that it finds.

    heads: (K, branches x D + 1).  vectors: (N, D).  found: (N, m), best first.
    """

    KIND = "gnnxml-matcher"

    encoder: FrozenGin
    heads: F32
    vectors: F32
    found: I32

    def found_clusters(self) -> Csr:
        """(N, K) CSR of ones."""
        n, found = self.found.shape
        return csr(
            np.ones(n * found, np.float32),
            np.asarray(self.found).ravel(),
            np.arange(n + 1) * found,
            (n, len(self.heads)),
        )
