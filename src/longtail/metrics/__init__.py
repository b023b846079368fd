"""Measuring rankings: P, nDCG, PSP, PSnDCG, R, FN, F1, PSR and Hits @k; propensities; label quantiles; bootstrap.

Reading order: `ranking` (scores -> `TopK`, masked pairs, hits), `scores` (propensities, the table), `label_groups`
(which labels it comes from, and how good clusters are), `label_means` (means over labels, not over documents),
`hierarchy` (near is less wrong), `curves` and `reliability` (what thresholds cost, whether scores are probabilities),
`label_errors` (what is probably wrong in the truth), `bootstrap` (whether a difference is real).

Every metric is reported in percent (0-100).
"""

from __future__ import annotations

from longtail.metrics.bootstrap import Difference, Interval, bootstrap_interval, paired_bootstrap
from longtail.metrics.curves import PrecisionRecall, precision_recall
from longtail.metrics.hierarchy import hierarchical, with_broader
from longtail.metrics.label_errors import doubts_of_given, doubts_of_missing
from longtail.metrics.label_groups import (
    CONVENTIONS,
    Bins,
    InformationLoss,
    bins_for,
    by_frequency,
    cluster_listing,
    contributions,
    equal_count,
    equal_volume,
    in_bin,
    lmi,
    measure_bins,
)
from longtail.metrics.label_means import LabelCounts, best_threshold, f1_at_threshold, macro_score
from longtail.metrics.ranking import cut, drop_masked, drop_masked_targets, hits, to_csr, top_k
from longtail.metrics.reliability import Reliability, binned, calibration_errors, reliability
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
    "PrecisionRecall",
    "PropensityConstants",
    "Reliability",
    "best_threshold",
    "binned",
    "bins_for",
    "bootstrap_interval",
    "by_frequency",
    "calibration_errors",
    "cluster_listing",
    "constants_for",
    "contributions",
    "cut",
    "doubts_of_given",
    "doubts_of_missing",
    "drop_masked",
    "drop_masked_targets",
    "equal_count",
    "equal_volume",
    "f1_at_threshold",
    "hierarchical",
    "hits",
    "in_bin",
    "inverse_propensities",
    "lmi",
    "macro_score",
    "measure",
    "measure_bins",
    "paired_bootstrap",
    "precision_recall",
    "reliability",
    "score",
    "to_csr",
    "top_k",
    "with_broader",
]
