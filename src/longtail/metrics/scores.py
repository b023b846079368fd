"""The metric table, the same per document, and the propensities that rare labels are weighed by.

    P@k      share of the k places that are right
    nDCG@k   the same, discounted by place, relative to the best ranking of this document
    PSP@k, PSnDCG@k, PSR@k   rare labels count for more (1/p), relative to the best possible ranking
    R@k      share of the document's labels that are found;   FN@k = 1 - R@k, the share that is missed
    F1@k     harmonic mean of P@k and R@k of a document, 2 * found / (k + labels of the document)
    Hits@k   whether any of the k places is right

Each metric is a ratio of sums over documents, 100 * sum_i numerator_i / sum_i denominator_i: for a plain mean the
denominator is 1 per document; PSP, PSnDCG and PSR have the best possible gain there, summed first and divided once.
(A mean of per-document ratios is a different, wrong number.) Documents without labels count as 0 (FN: 1) unless
`skip_empty`. Missing places count as misses.

The propensity p_l is how likely a relevant label was to be recorded:

    p_l = 1 / (1 + C (N_l + B)^-A),   C = (ln N - 1)(B + 1)^A,   N training documents, N_l of them with label l

Frequencies come from the training split after masked pairs were removed, and stay those of the original split in warm
start, so that numbers remain comparable.

Differs: the formulas printed in the papers' appendices have typesetting errors; these are the definitions that the
published numbers follow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.metrics.ranking import cut, hits, positives
from longtail.types import I32, I64, Csr, TopK


@dataclass(frozen=True)
class PropensityConstants:
    """A and B of the model, and the family of data sets they are the custom for. Print them beside every PSP."""

    a: float
    b: float
    family: str

    def __str__(self) -> str:
        return f"A={self.a:g} B={self.b:g} ({self.family})"


WIKIPEDIA = PropensityConstants(0.5, 0.4, "wikipedia")
AMAZON = PropensityConstants(0.6, 2.6, "amazon")
DEFAULT = PropensityConstants(0.55, 1.5, "default")

# A size is part of the name: WikiSeeAlso-350K, Wiki10-31K and AmazonCat-13K are of the default family.
_FAMILIES = (
    (
        re.compile(
            r"wiki(pedia)?[-_ ]?(large)?[-_ ]?(titles)?[-_ ]?500k(?![a-z0-9])|wikilshtc[-_ ]?(325k)?(?![a-z0-9])"
        ),
        WIKIPEDIA,
    ),
    (re.compile(r"amazon[-_ ]?(titles)?[-_ ]?(131k|670k|1[._-]?3m|3m)(?![a-z0-9])"), AMAZON),
)


def constants_for(name: str) -> PropensityConstants:
    """The constants that published numbers on the data set `name` use; the default family for any other name.

    Case, separators (``-``, ``_``, space), an ``LF-`` before and words after the name do not matter.
    Differs: AmazonCat-13K has no printed constants; common practice, 0.55 / 1.5, is followed.
    """
    for pattern, constants in _FAMILIES:
        if pattern.search(name.lower()):
            return constants
    return DEFAULT


def inverse_propensities(counts: ArrayLike, n_documents: int, a: float, b: float) -> NDArray[np.float64]:
    """1 / p_l for every label, (L,) float64, all >= 1.

    counts: (L,) training documents per label. n_documents: N.
    The model needs N > e. With fewer (0, 1 or 2 documents) C is taken as 0: all labels count alike, and PSP is the
    precision relative to the best possible one.
    """
    frequency = np.asarray(counts, dtype=np.float64)
    if a <= 0 or b <= 0:
        raise ValueError(f"propensity constants must be positive, got A={a}, B={b}")
    if n_documents < 0 or (frequency < 0).any():
        raise ValueError("numbers of documents cannot be negative")
    c = max(0.0, math.log(max(n_documents, 1)) - 1.0) * (b + 1.0) ** a
    return 1.0 + c * (frequency + b) ** -a


# name -> (numerator, denominator), each (N,) float64; metrics that share a denominator share the array
Columns = Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


@dataclass(frozen=True)
class PerDocument:
    """M metrics of N documents as ratios of sums, ready to be resampled.

    names: M metrics. numerators: (N, M) float64. denominators: (N, D) float64, the distinct ones.
    divisor: (M,) which denominator each metric has.
    """

    names: tuple[str, ...]
    numerators: NDArray[np.float64]
    denominators: NDArray[np.float64]
    divisor: I64

    @classmethod
    def of(cls, columns: Columns) -> PerDocument:
        distinct = {id(denominator): denominator for _, denominator in columns.values()}
        place = {key: at for at, key in enumerate(distinct)}
        return cls(
            names=tuple(columns),
            numerators=np.stack([numerator for numerator, _ in columns.values()], axis=1),
            denominators=np.stack(list(distinct.values()), axis=1),
            divisor=np.array([place[id(denominator)] for _, denominator in columns.values()], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.numerators)

    def values(self) -> dict[str, float]:
        """The metrics over all documents, in percent."""
        totals = percent(self.numerators.sum(axis=0), self.denominators.sum(axis=0)[self.divisor])
        return dict(zip(self.names, totals.tolist(), strict=True))


def percent(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """100 * numerator / denominator, and 0 where there is nothing to divide by (no document has a label)."""
    return 100.0 * np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def score(
    top: TopK,
    targets: Csr,
    inverse_propensity: NDArray[np.float64],
    ks: Sequence[int] = (1, 3, 5),
    recall_ks: Sequence[int] = (10, 100),
    skip_empty: bool = False,
) -> dict[str, float]:
    """The metric table, e.g. ``{"P@1": 45.5, ..., "R@100": 81.2}``, in percent. Arguments as in `measure`."""
    return measure(top, targets, inverse_propensity, ks, recall_ks, skip_empty).values()


def measure(
    top: TopK,
    targets: Csr,
    inverse_propensity: NDArray[np.float64],
    ks: Sequence[int] = (1, 3, 5),
    recall_ks: Sequence[int] = (10, 100),
    skip_empty: bool = False,
) -> PerDocument:
    """Every metric of every document.

    top: (N, any) ranked labels, masked pairs dropped. targets: (N, L) CSR truth, masked pairs dropped.
    inverse_propensity: (L,) from `inverse_propensities`. ks: places for all metrics; recall_ks: more places for R and
        FN.
    skip_empty: leave documents without labels out of the means; for analysis, not for tables.
    """
    ranked = Ranked.of(top, targets, inverse_propensity, depth=max(ks), hit_depth=max([*ks, *recall_ks]))
    hit, gain, best = ranked.hit, ranked.gain, ranked.best
    documents = ranked.labelled if skip_empty else np.ones_like(ranked.labelled)
    discount = 1.0 / np.log2(np.arange(2, max(ks) + 2))
    n_labels = np.maximum(ranked.n_labels, 1)
    columns: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def first(k: int, values: NDArray[np.float64] | NDArray[np.bool_]) -> NDArray[np.float64]:
        return values[:, :k].sum(axis=1, dtype=np.float64)

    def ideal(k: int) -> NDArray[np.float64]:
        return np.cumsum(discount)[np.minimum(k, n_labels) - 1]

    for k in ks:
        columns[f"P@{k}"] = first(k, hit) / k, documents
    for k in ks:
        columns[f"nDCG@{k}"] = first(k, hit[:, :k] * discount[:k]) / ideal(k), documents
    for k in ks:
        columns[f"PSP@{k}"] = first(k, gain) / k, first(k, best) / k
    for k in ks:
        columns[f"PSnDCG@{k}"] = first(k, gain * discount) / ideal(k), first(k, best * discount) / ideal(k)
    for k in ks:
        columns[f"PSR@{k}"] = first(k, gain) / n_labels, first(k, best) / n_labels
    for k in ks:
        columns[f"Hits@{k}"] = np.minimum(first(k, hit), 1.0), documents
    recalled = {k: first(k, hit) / n_labels for k in sorted({*ks, *recall_ks})}
    for k in ks:
        columns[f"F1@{k}"] = 2.0 * first(k, hit) / (k + ranked.n_labels), documents
    for k, share in recalled.items():
        columns[f"R@{k}"] = share, documents
    for k, share in recalled.items():
        columns[f"FN@{k}"] = documents - share, documents
    return PerDocument.of(columns)


@dataclass(frozen=True)
class Ranked:
    """What all metrics are made of; K places of N documents.

    ids: (N, K) ranked labels. hit: (N, H >= K) bool. gain: (N, K) 1/p of each hit, else 0.
    best: (N, K) the largest 1/p among the document's labels, decreasing, then 0. n_labels: (N,). labelled: (N,) 1.0
        or 0.0.
    """

    ids: I32
    hit: NDArray[np.bool_]
    gain: NDArray[np.float64]
    best: NDArray[np.float64]
    n_labels: I64
    labelled: NDArray[np.float64]

    @classmethod
    def of(cls, top: TopK, targets: Csr, inverse_propensity: NDArray[np.float64], depth: int, hit_depth: int) -> Ranked:
        if inverse_propensity.shape != (targets.shape[1],):
            raise ValueError(
                f"{targets.shape[1]} labels need as many inverse propensities, got shape {inverse_propensity.shape}"
            )
        top, targets = cut(top, hit_depth), positives(targets)
        hit, ids = hits(top, targets), top.ids[:, :depth]
        n_labels = np.diff(targets.indptr).astype(np.int64)
        return cls(
            ids=ids,
            hit=hit,
            gain=np.where(hit[:, :depth], inverse_propensity[ids], 0.0),
            best=_best_gains(targets, inverse_propensity, depth),
            n_labels=n_labels,
            labelled=(n_labels > 0).astype(np.float64),
        )


def _best_gains(targets: Csr, inverse_propensity: NDArray[np.float64], depth: int) -> NDArray[np.float64]:
    gains = inverse_propensity[targets.indices]
    rows = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
    places = np.arange(len(rows)) - targets.indptr[rows]
    gains = gains[np.lexsort((-gains, rows))]
    best = np.zeros((targets.shape[0], depth))
    shown = places < depth
    best[rows[shown], places[shown]] = gains[shown]
    return best
