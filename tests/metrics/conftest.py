"""Random rankings with everything that is awkward: padding, too few predictions, documents without labels, rare
labels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from longtail.metrics import inverse_propensities
from longtail.types import Csr, TopK


def ranking_case(seed: int) -> tuple[TopK, Csr, NDArray[np.float64]]:
    """Predictions, truth (at least one label somewhere) and inverse propensities, all drawn by `seed`."""
    rng = np.random.default_rng(seed)
    n_documents, n_labels, k = int(rng.integers(1, 12)), int(rng.integers(2, 20)), int(rng.integers(1, 9))
    ids = np.full((n_documents, k), -1, dtype=np.int32)
    scores = np.full((n_documents, k), -np.inf, dtype=np.float32)
    for i in range(n_documents):
        found = int(rng.integers(0, min(k, n_labels) + 1))
        ids[i, :found] = rng.permutation(n_labels)[:found]
        scores[i, :found] = np.sort(rng.random(found))[::-1]
    dense = rng.random((n_documents, n_labels)) < rng.choice([0.05, 0.3, 0.9])
    dense[int(rng.integers(n_documents)), int(rng.integers(n_labels))] = True
    counts = (20 * rng.random(n_labels) ** 4).astype(np.int64)
    return TopK(ids, scores), csr_array(dense.astype(np.float32)), inverse_propensities(counts, 50, 0.55, 1.5)


@pytest.fixture(scope="session")
def case() -> Callable[[int], tuple[TopK, Csr, NDArray[np.float64]]]:
    return ranking_case
