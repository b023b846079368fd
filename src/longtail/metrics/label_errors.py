"""Which labels of the truth are probably wrong, and which are probably missing, by what a model says of documents that
it was not trained on.

Scores are compared as log-odds, ln(p / (1 - p)): between 0.001 and 0.00001 lies as much as between 0.1 and 0.001, and a
label that is simply wrong has the smallest scores of all.

    doubt of a given label    = half of what is usual for the label - its log-odds + a quarter of the document's best
    doubt of a missing label  = its log-odds - 2 ln(its place in the list)

*Usual for a label* are the log-odds that documents have which carry it: the model's own confidence in the label, as in
confident learning. A label of which it is rarely sure is no suspect for a low score. Few documents carry a rare label,
so the mean of labels of like frequency counts as much as `PRIOR` documents; a pair itself does not count for its own
label. Half of it: labels that nobody finds would otherwise be above suspicion. *The document's best*: where the model
has nothing to say of a document, its low scores say little. *The place*: labels that come after others are less often
right than their scores say. For missing labels what is usual does not help. The weights were chosen on the embedded
sample.

Paper: Northcutt, Jiang, Chuang, JAIR 2021 (confident learning).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from longtail.kernels.arrays import F64
from longtail.types import I64

# Scores below are all "not at all": what is left of a score there is rounding.
LEAST = 1e-7
PRIOR = 5.0
USUAL, BEST, PLACE = 0.5, 0.25, 2.0


def log_odds(scores: ArrayLike) -> F64:
    """ln(p / (1 - p)) of scores that are taken for probabilities; ends are cut at `LEAST`."""
    p = np.clip(np.asarray(scores, dtype=np.float64), LEAST, 1.0 - LEAST)
    return np.log(p) - np.log1p(-p)


def doubts_of_given(labels: I64, scores: ArrayLike, best: ArrayLike, bin_of_label: I64) -> F64:
    """(n,) how doubtful each of n pairs of a document and a label that it is given is; more is more doubtful.

    labels, scores: (n,) of the pairs.  best: (n,) the highest score that the document has for any label.
    bin_of_label: (L,) labels of like frequency have the same number.
    """
    odds = log_odds(scores)
    return USUAL * usual(labels, odds, bin_of_label) - odds + BEST * log_odds(best)


def doubts_of_missing(scores: ArrayLike, places: ArrayLike) -> F64:
    """(n,) how surely each of n predicted pairs that the truth lacks is missing there; more is surer.

    places: (n,) in the lists of their documents, from 1.
    """
    return log_odds(scores) - PLACE * np.log(np.asarray(places, dtype=np.float64))


def usual(labels: I64, odds: F64, bin_of_label: I64) -> F64:
    """(n,) the mean log-odds of the other pairs with the same label, drawn towards the mean of its bin.

    labels, odds: (n,) of the pairs.
    """
    size, bins = len(bin_of_label), int(bin_of_label.max(initial=0)) + 1
    sums, counts = np.bincount(labels, odds, minlength=size), np.bincount(labels, minlength=size)
    group = bin_of_label[labels]
    of_bin = np.bincount(group, odds, minlength=bins) / np.maximum(np.bincount(group, minlength=bins), 1)
    return (sums[labels] - odds + PRIOR * of_bin[group]) / (counts[labels] - 1 + PRIOR)
