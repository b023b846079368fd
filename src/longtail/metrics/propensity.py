"""How likely a relevant label was to be recorded: rare labels are missed more often, so finding one counts for more.

    p_l = 1 / (1 + C (N_l + B)^-A),   C = (ln N - 1)(B + 1)^A,   N training documents, N_l of them with label l

Frequencies come from the training split after masked pairs were removed, and stay those of the original split in warm
start, so that numbers remain comparable.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
