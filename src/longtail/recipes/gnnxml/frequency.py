"""How clusters of labels ease the long tail: frequencies of labels and of clusters side by side, as data of a plot.

Paper: GNN-XML Fig. 1 (labels, clusters, words per document).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from longtail.persistence import State
from longtail.types import I32, I64, Csr

# Documents above which a label or cluster counts as frequent. Paper: Fig. 1 has 1.51% of labels and 75.8% of clusters
# on Wiki10-31K.
FREQUENT = 100


@dataclass(frozen=True)
class FrequencyCurves:
    """A part, left in RUN/analysis.

    labels, clusters: training documents of each label that has any, and of each cluster, most frequent first.
    sizes: labels of each cluster, in the order of `clusters`. words: words per document, in the order of the
        documents; may be empty.
    """

    KIND = "frequency-curves"

    labels: I64
    clusters: I64
    sizes: I64
    words: I32

    @classmethod
    def of(cls, targets: Csr, clusters: I32, words: I32) -> FrequencyCurves:
        """targets: (N, L) CSR. clusters: (L,), -1 for labels without documents."""
        counts = np.bincount(targets.indices, minlength=targets.shape[1])
        by_cluster, sizes = cluster_frequencies(targets, clusters)
        order = np.argsort(-by_cluster, kind="stable")
        return cls(np.sort(counts[counts > 0])[::-1].astype(np.int64), by_cluster[order], sizes[order], words)

    def frequent_shares(self, above: int = FREQUENT) -> tuple[float, float]:
        """Percent of labels and of clusters with more than `above` documents."""
        return 100 * float(np.mean(self.labels > above)), 100 * float(np.mean(self.clusters > above))

    def state(self) -> State:
        return State(arrays={field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def from_state(cls, state: State) -> FrequencyCurves:
        return cls(**{field.name: state.arrays[field.name] for field in fields(cls)})


def cluster_frequencies(targets: Csr, clusters: I32) -> tuple[I64, I64]:
    """(K,) documents with a label of each cluster, and (K,) labels of each."""
    n_clusters = int(clusters.max(initial=-1)) + 1
    rows = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
    owner = clusters[targets.indices]
    pairs = np.unique(rows[owner >= 0] * np.int64(max(n_clusters, 1)) + owner[owner >= 0])
    documents = np.bincount(pairs % max(n_clusters, 1), minlength=n_clusters)
    return documents.astype(np.int64), np.bincount(clusters[clusters >= 0], minlength=n_clusters).astype(np.int64)
