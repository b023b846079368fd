"""What the papers claim, in our words: ids and types of spec 07. A claim of a paper listed here needs a test or an entry.

Type U (unit) and P (property) claims are pytest tests marked ``@pytest.mark.claim("F1")``; B (benchmark) claims are entries
of this package. `tests/test_claims.py` fails when one has neither. When a recipe is implemented, its paper's section is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Catalogued:
    """section: of spec 07; 0 is the framework, metrics and data."""

    id: str
    section: int
    type: Literal["U", "P", "B"]
    sentence: str


FRAMEWORK = (
    Catalogued("F1", 0, "U", "The golden example of the metrics gives its known values."),
    Catalogued(
        "F2",
        0,
        "P",
        "At k = 1 P equals nDCG and PSP equals PSnDCG; a perfect ranking scores 1; neither the order of documents nor monotone score changes matter.",
    ),
    Catalogued("F3", 0, "U", "PSP is a ratio of means, not a mean of ratios."),
    Catalogued("F4", 0, "P", "Propensities follow their closed form, lie between 0 and 1 and grow with label frequency."),
    Catalogued("F5", 0, "P", "Contributions of label bins sum to P@k and FN@k; each label is in one bin; bins of equal volume hold their share."),
    Catalogued("F6", 0, "U", "Every file format survives writing and reading; a broken line is named in the error."),
    Catalogued("F7", 0, "U", "Masked pairs vanish from predictions and truth."),
    Catalogued("F8", 0, "P", "Sampled negatives are valid, unique, within their number, and never positives."),
    Catalogued("F9", 0, "U", "With all labels as negatives, loss and gradient of stage IV are those of dense one-vs-all."),
    Catalogued("F10", 0, "U", "Classifier rows that no candidate names get no gradient; row-wise Adam is dense Adam on the rows it touches."),
    Catalogued("F11", 0, "B", "The approximate index finds at least 95% of the true 100 nearest at its defaults."),
    Catalogued("F12", 0, "B", "Time of a shortlist query grows sub-linearly with the number of labels."),
    Catalogued("F13", 0, "U", "A saved model predicts what it predicted before; equal seeds give equal models on a CPU."),
    Catalogued("F14", 0, "P", "Nothing depends on test truth."),
    Catalogued("F15", 0, "P", "The prediction of a document does not depend on its batch."),
    Catalogued("F16", 0, "P", "A label outside the shortlist never outranks one inside."),
    Catalogued("F17", 0, "B", "An ensemble of three is better than its members are on average."),
    Catalogued("F18", 0, "P", "Power iteration bounds the spectral norm, and gradients flow through the normalised matrix."),
)

ASTEC = (
    Catalogued("A1", 1, "P", "Refined features stay within the spectral bound times the length of v (Theorem 1a), on random input and on every test document."),
    Catalogued("A2", 1, "P", "Cosines to centroids before and after refinement bound each other (Theorem 1b) for non-negative v."),
    Catalogued("A2n", 1, "P", "Without the ReLU on v, Theorem 1b is violated in some cases."),
    Catalogued("A3", 1, "U", "At the start refined features are 2v, so lists by cosine are the same."),
    Catalogued("A4", 1, "P", "Label clusters are balanced, as many as asked for, and hold every label once."),
    Catalogued("A5", 1, "P", "The objective of a split never falls; clusters of smoothed centroids hold more labels that occur together."),
    Catalogued("A6", 1, "B", "Hard negatives from the indices beat uniform and unigram ones at equal number."),
    Catalogued("A7", 1, "B", "Both search structures together recall at least what the better one does."),
    Catalogued("A8", 1, "B", "Shortlists by v and by refined features mostly agree."),
    Catalogued("A9", 1, "B", "Clusters are a better surrogate task than none; label selection and random projection lie between."),
    Catalogued("A10", 1, "B", "Clustering with label correlations raises recall where labels are missing."),
    Catalogued("A11", 1, "B", "The re-ranker does not hurt and helps somewhere."),
    Catalogued("A12", 1, "B", "The spectral bound costs nothing and alone bounds the drift of features."),
    Catalogued("A13", 1, "B", "Several centroids raise the recall of multi-modal head labels and leave the others alone."),
    Catalogued("A14", 1, "B", "Some weight on the similarity gives a better PSP than the classifier alone."),
    Catalogued("A15", 1, "B", "Prediction time grows sub-linearly with the number of labels."),
    Catalogued("A16", 1, "B", "XML-CNN and MACH inside the framework beat their versions that stop after stage I."),
    Catalogued("A17", 1, "B", "On dense vectors the framework beats nearest neighbours on the vectors as they are."),
    Catalogued("A18", 1, "U", "The cluster surrogate trains every word of labelled documents."),
    Catalogued("A19", 1, "B", "Gains over linear one-vs-all on TF-IDF lie in rare labels."),
)

CATALOGUE = {claim.id: claim for claim in (*FRAMEWORK, *ASTEC)}
