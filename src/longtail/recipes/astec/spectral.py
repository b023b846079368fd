"""Word vectors without labels: the leading singular vectors of the document matrix."""

from __future__ import annotations

import numpy as np

from longtail.kernels.arrays import right_singular_vectors
from longtail.types import F32, Csr


def spectral_vectors(documents: Csr, width: int, rng: np.random.Generator, rounds: int = 4) -> F32:
    """(V, width) float32: right singular vectors of (N, V) CSR, by randomised subspace iteration; unit mean square
    length.

    The second half of the numbers mirrors the first: after a ReLU a sum of vectors keeps both signs.
    """
    n, vocabulary = documents.shape
    rank = max(1, min(width // 2, n, vocabulary))
    half = right_singular_vectors(documents, rank, rng, rounds)
    vectors = np.zeros((vocabulary, width), dtype=np.float32)
    vectors[:, :rank], vectors[:, rank : 2 * rank] = half, -half[:, : max(0, width - rank)]
    return vectors * np.float32(np.sqrt(vocabulary / max(float((vectors**2).sum()), 1e-12)))
