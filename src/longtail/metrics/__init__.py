"""Measuring rankings: P, nDCG, PSP, PSnDCG, R, FN, F1, PSR and Hits @k; propensities; label quantiles; bootstrap.

Reading order: `ranking` (scores -> `TopK`, masked pairs, hits), `propensity`, `scores` (the table), `quantiles`
(which labels it comes from), `label_means` (means over labels, not over documents), `bootstrap` (whether a difference
is real), `clusters` (groups of labels). `reference` says the definitions as plain loops.

Every metric is reported in percent (0-100).
"""

from __future__ import annotations

from longtail.metrics.bootstrap import Difference, Interval, bootstrap_interval, paired_bootstrap
from longtail.metrics.clusters import InformationLoss, cluster_listing, lmi
from longtail.metrics.label_means import LabelCounts, best_threshold, f1_at_threshold, macro_score
from longtail.metrics.quantiles import (
    CONVENTIONS,
    Bins,
    bins_for,
    by_frequency,
    contributions,
    equal_count,
    equal_volume,
    in_bin,
    measure_bins,
)
from longtail.metrics.ranking import cut, drop_masked, drop_masked_targets, hits, to_csr, top_k
from longtail.metrics.scores import (
    PerDocument,
    PropensityConstants,
    constants_for,
    inverse_propensities,
    measure,
    score,
)

__all__ = [
    "CONVENTIONS",
    "Bins",
    "Difference",
    "InformationLoss",
    "Interval",
    "LabelCounts",
    "PerDocument",
    "PropensityConstants",
    "best_threshold",
    "bins_for",
    "bootstrap_interval",
    "by_frequency",
    "cluster_listing",
    "constants_for",
    "contributions",
    "cut",
    "drop_masked",
    "drop_masked_targets",
    "equal_count",
    "equal_volume",
    "f1_at_threshold",
    "hits",
    "in_bin",
    "inverse_propensities",
    "lmi",
    "macro_score",
    "measure",
    "measure_bins",
    "paired_bootstrap",
    "score",
    "to_csr",
    "top_k",
]
