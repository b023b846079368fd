"""How good groups of labels are: what they lose of the information that labels have about documents; and what is in
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from longtail.types import I32, Csr


class InformationLoss(NamedTuple):
    """nats: I(label; document) - I(cluster; document), at least 0. percent: of I(label; document), 0 where that
    is 0.
    """

    nats: float
    percent: float


def lmi(targets: Csr, clusters: I32) -> InformationLoss:
    """Loss of mutual information when a label is only known by its cluster. Lower is better; compare at equal numbers
    of clusters.

    targets: (N, L) CSR, not negative; clusters: (L,), -1 for labels without documents. The joint distribution of
    label and document is targets / sum. Paper: ECLARE Sec. 4 and Tab. 7; Dhillon, Mallela, Kumar 2003.
    """
    if np.any(clusters[np.unique(targets.indices[targets.data != 0])] < 0):
        raise ValueError("a label that has documents has no cluster")
    of_labels = _information(targets)
    nats = max(of_labels - _information(_by_cluster(targets, clusters)), 0.0)
    return InformationLoss(nats, 100 * nats / of_labels if of_labels > 0 else 0.0)


def cluster_listing(clusters: I32, names: Sequence[str], chosen: Iterable[int]) -> dict[int, list[str]]:
    """The names of the labels in each chosen cluster, by label number. Paper: ECLARE Fig. 8."""
    return {cluster: [names[label] for label in np.flatnonzero(clusters == cluster).tolist()] for cluster in chosen}


def _by_cluster(targets: Csr, clusters: I32) -> Csr:
    """(N, K): the targets of a document summed over each cluster."""
    from scipy.sparse import csr_array

    cluster_of = np.maximum(clusters, 0)  # a label without a cluster has no document
    shape = (int(targets.shape[0]), int(cluster_of.max(initial=0)) + 1)
    # A copy of the pointers too: adding up duplicates changes them in place.
    merged = csr_array(
        (targets.data.astype(np.float64), cluster_of[targets.indices], targets.indptr), shape=shape, copy=True
    )
    merged.sum_duplicates()
    return merged


def _information(joint: Csr) -> float:
    """I(column; row) in nats of a joint distribution that is proportional to a sparse matrix."""
    weights = joint.data.astype(np.float64)
    total = weights.sum()
    rows, columns = np.asarray(joint.sum(axis=1, dtype=np.float64)), np.asarray(joint.sum(axis=0, dtype=np.float64))
    there = weights > 0
    row_of = np.repeat(np.arange(joint.shape[0]), np.diff(joint.indptr))
    logs = np.log(weights[there] * total / (rows[row_of[there]] * columns[joint.indices[there]]))
    return float((weights[there] / total) @ logs) if total > 0 else 0.0
