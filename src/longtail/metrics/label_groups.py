"""Which labels a metric comes from: bins of labels by training frequency, from the head (first bin) to the tail (last).

Three conventions; papers use the first two under the same name, so always say which:

- `equal_count`: bins with the same number of labels (Astec Fig. 3).
- `equal_volume`: bins with the same number of training pairs (ECLARE Fig. 7, GalaXC Fig. 5, RAMEN Fig. 4): few labels
  in the first bin, most of all labels in the last.
- `by_frequency`: fixed edges, 100+ | 10-99 | 5-9 | 2-4 | 1 | 0 training documents: comparable between data sets.

Ties are ordered by (-frequency, label number).

And how good clusters of labels are: what they lose of the information that labels have about documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.errors import ConfigError
from longtail.metrics.ranking import positives
from longtail.metrics.scores import PerDocument, Ranked
from longtail.types import I32, I64, Csr, TopK


@dataclass(frozen=True)
class Bins:
    """A partition of the labels into Q bins, head first.

    bin_of_label: (L,) int64, 0..Q-1. n_labels: (Q,). mean_frequency: (Q,) training documents per label, 0 for an
        empty bin.
    """

    convention: str
    names: tuple[str, ...]
    bin_of_label: I64
    n_labels: I64
    mean_frequency: NDArray[np.float64]

    @classmethod
    def of(cls, convention: str, names: Sequence[str], bin_of_label: I64, counts: I64) -> Bins:
        n_labels = np.bincount(bin_of_label, minlength=len(names))
        volume = np.bincount(bin_of_label, weights=counts, minlength=len(names))
        return cls(convention, tuple(names), bin_of_label, n_labels, volume / np.maximum(n_labels, 1))

    def __len__(self) -> int:
        return len(self.names)


def equal_count(counts: I64, n_bins: int = 5) -> Bins:
    """Labels by decreasing frequency in bins whose sizes differ by at most one. counts: (L,) training documents per
    label.
    """
    bin_of_label = np.empty(len(counts), dtype=np.int64)
    for number, labels in enumerate(np.array_split(_by_decreasing_frequency(counts), n_bins)):
        bin_of_label[labels] = number
    return Bins.of("equal_count", _numbered(n_bins), bin_of_label, counts)


def equal_volume(counts: I64, n_bins: int = 5) -> Bins:
    """Labels by decreasing frequency; a bin is filled until it holds at least 1/n_bins of all training pairs.

    The label that crosses the boundary belongs to the bin it crosses in; the last bin takes what is left. Very frequent
    labels can fill their bins so far beyond the share that later bins stay empty.
    """
    order = _by_decreasing_frequency(counts)
    filled = np.cumsum(counts[order], dtype=np.int64)
    bin_of_label = np.full(len(counts), n_bins - 1, dtype=np.int64)
    start, total = 0, int(counts.sum())
    for number in range(n_bins - 1):
        before = int(filled[start - 1]) if start else 0
        # in integers, so that no rounding decides where a label goes: filled >= before + total / n_bins
        end = start + int(np.searchsorted(filled[start:] * n_bins, before * n_bins + total)) + 1
        bin_of_label[order[start:end]] = number
        start = min(end, len(order))
    return Bins.of("equal_volume", _numbered(n_bins), bin_of_label, counts)


def by_frequency(counts: I64, edges: Sequence[int] = (0, 1, 2, 5, 10, 100)) -> Bins:
    """Labels by fixed frequencies: bin i holds those from edges[i] to below edges[i + 1], the highest bin comes
    first.
    """
    if not edges or edges[0] != 0 or any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"frequency edges must start with 0 and increase, got {list(edges)}")
    names = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise(edges)] + [f"{edges[-1]}+"]
    from_below = np.searchsorted(np.asarray(edges), counts, side="right") - 1
    return Bins.of("by_frequency", names[::-1], (len(edges) - 1 - from_below).astype(np.int64), counts)


CONVENTIONS: Mapping[str, Callable[[I64], Bins]] = {
    "equal_count": equal_count,
    "equal_volume": equal_volume,
    "by_frequency": by_frequency,
}


def bins_for(convention: str, counts: I64) -> Bins:
    """The labels in bins by the convention of that name."""
    if convention not in CONVENTIONS:
        raise ConfigError(f"there are no label quantiles '{convention}'", f"choose one of {', '.join(CONVENTIONS)}")
    return CONVENTIONS[convention](counts)


def in_bin(metric: str, bin_name: str) -> str:
    """The name that `measure_bins` gives to a bin's contribution to a metric."""
    return f"{metric} [{bin_name}]"


def measure_bins(
    top: TopK,
    targets: Csr,
    inverse_propensity: NDArray[np.float64],
    bins: Bins,
    ks: Sequence[int] = (1, 3, 5),
    skip_empty: bool = False,
) -> PerDocument:
    """The contribution of each bin of labels to P@k, PSP@k and FN@k of every document, named by `in_bin`.

    Contributions sum to the metric: P@k and PSP@k of `measure` with the same arguments, and FN@k with
    ``skip_empty=True`` (what is missed of a document without labels is undefined, so those documents are always left
    out of FN here).
    """
    ranked = Ranked.of(top, targets, inverse_propensity, depth=max(ks), hit_depth=max(ks))
    documents = ranked.labelled if skip_empty else np.ones_like(ranked.labelled)
    bin_of_place = np.where(ranked.hit, bins.bin_of_label[ranked.ids], -1)
    true_labels = _labels_in_bins(positives(targets), bins)
    best = {k: ranked.best[:, :k].sum(axis=1) / k for k in ks}
    n_labels = np.maximum(ranked.n_labels, 1)
    columns: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for number, name in enumerate(bins.names):
        here = bin_of_place == number
        gain = np.where(here, ranked.gain, 0.0)
        for k in ks:
            found = here[:, :k].sum(axis=1, dtype=np.float64)
            columns[in_bin(f"P@{k}", name)] = found / k, documents
            columns[in_bin(f"PSP@{k}", name)] = gain[:, :k].sum(axis=1) / k, best[k]
            columns[in_bin(f"FN@{k}", name)] = (true_labels[:, number] - found) / n_labels, ranked.labelled
    return PerDocument.of(columns)


def contributions(
    top: TopK,
    targets: Csr,
    inverse_propensity: NDArray[np.float64],
    bins: Bins,
    ks: Sequence[int] = (1, 3, 5),
    skip_empty: bool = False,
) -> dict[str, list[float]]:
    """``{"P@1": [a value per bin], ...}`` in percent; see `measure_bins` for what they sum to."""
    values = measure_bins(top, targets, inverse_propensity, bins, ks, skip_empty).values()
    return {
        f"{metric}@{k}": [values[in_bin(f"{metric}@{k}", name)] for name in bins.names]
        for metric in ("P", "PSP", "FN")
        for k in ks
    }


def _labels_in_bins(targets: Csr, bins: Bins) -> I64:
    """(N, Q) how many of a document's labels lie in each bin."""
    rows = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
    cells = rows * len(bins) + bins.bin_of_label[targets.indices]
    return np.bincount(cells, minlength=targets.shape[0] * len(bins)).reshape(targets.shape[0], len(bins))


def _by_decreasing_frequency(counts: I64) -> I64:
    return np.argsort(-counts.astype(np.int64), kind="stable")


def _numbered(n_bins: int) -> list[str]:
    return ["1 (head)", *map(str, range(2, n_bins)), f"{n_bins} (tail)"] if n_bins > 1 else ["1"]


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
