"""Directions in which documents differ most: leading right singular vectors of a sparse matrix."""

from __future__ import annotations

import numpy as np

from longtail.types import F32, Csr

# Columns beyond the wanted ones that the iteration carries along: they make the last wanted ones accurate.
_SPARE = 8


def right_singular_vectors(documents: Csr, rank: int, rng: np.random.Generator, rounds: int = 4) -> F32:
    """(V, rank) float32, orthonormal columns, for (N, V) CSR; by randomised subspace iteration. rank <= min(N, V)."""
    vocabulary = documents.shape[1]
    basis = rng.standard_normal((vocabulary, min(rank + _SPARE, vocabulary))).astype(np.float32)
    for _ in range(rounds):
        basis, _ = np.linalg.qr(documents.T @ (documents @ basis))
    _, _, rotation = np.linalg.svd(documents @ basis, full_matrices=False)
    return (basis @ rotation[:rank].T).astype(np.float32)
