"""Metrics that know which labels are broader than others: a wrong label near the right one is less wrong.

Labels are looked at together with all that are broader, however far: if "spaniel" is under "dog" and "dog" under
"animal", then "dog" in place of "spaniel" shares two of three.

    hP@k   share of the first k predictions with all that is broader which the truth, with all that is broader, has
    hR@k   share of the truth with all that is broader which the first k predictions have
    hF@k   their harmonic mean

All three are ratios of sums over documents, as Kiritchenko et al. define them: documents with many labels count more.
A label stands for itself once, however many paths lead to it; circles do no harm. No root is added: two labels that
have nothing broader in common share nothing.

Paper: Kiritchenko, Matwin, Famili: Functional annotation of genes using hierarchical text categorization (2005).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.ranking import cut, positives
from longtail.metrics.scores import PerDocument
from longtail.types import Csr, TopK

# Documents looked at together: bounds what is in memory, which is their labels with all that is broader.
_BLOCK = 4096


def with_broader(broader: Csr, labels: NDArray[np.int64]) -> Csr:
    """(n, L) binary CSR: each of `labels` with all that is broader than it, itself included.

    broader: (L, L), a row's label points to those right above it.
    """
    from scipy.sparse import csr_array

    size, n = broader.shape[0], len(labels)
    above = csr_array((np.ones(broader.nnz, dtype=np.float32), broader.indices, broader.indptr), shape=broader.shape)
    own = (np.ones(n, dtype=np.float32), labels, np.arange(n + 1))
    found = step = csr_array(own, shape=(n, size))
    # Each round goes one level up; what was there before is not followed again, so circles end.
    while step.nnz:
        step = _binary(step @ above)
        step = _binary(step - step.multiply(found))
        found = _binary(found + step)
    return found


def _binary(matrix: Csr) -> Csr:
    matrix = matrix.tocsr()
    matrix.eliminate_zeros()
    matrix.data = np.ones_like(matrix.data)
    return matrix


def hierarchical(top: TopK, targets: Csr, broader: Csr, ks: Sequence[int] = (1, 3, 5)) -> PerDocument:
    """hP, hR and hF of every document, to be summed or resampled.

    top: ranked labels, masked pairs dropped. targets: (N, L) CSR truth. broader: see `with_broader`.
    """
    targets = positives(targets)
    used = np.unique(np.concatenate([top.ids[top.ids >= 0].astype(np.int64), targets.indices.astype(np.int64)]))
    wide = with_broader(broader, used)
    place = np.zeros(targets.shape[1], dtype=np.int64)
    place[used] = np.arange(len(used))
    n = len(top)
    said, shared = {k: np.zeros(n) for k in ks}, {k: np.zeros(n) for k in ks}
    right = np.zeros(n)
    for start in range(0, n, _BLOCK):
        rows = slice(start, min(start + _BLOCK, n))
        truth = _widened(targets[rows], place, wide)
        right[rows] = np.diff(truth.indptr)
        for k in ks:
            predicted = _widened(_listed(cut(TopK(top.ids[rows], top.scores[rows]), k), targets.shape[1]), place, wide)
            said[k][rows] = np.diff(predicted.indptr)
            shared[k][rows] = np.asarray(predicted.multiply(truth).sum(axis=1)).ravel()
    columns = {f"hP@{k}": (shared[k], said[k]) for k in ks}
    columns |= {f"hR@{k}": (shared[k], right) for k in ks}
    columns |= {f"hF@{k}": (2.0 * shared[k], said[k] + right) for k in ks}
    return PerDocument.of(columns)


def _listed(top: TopK, n_labels: int) -> Csr:
    from scipy.sparse import csr_array

    real = top.ids >= 0
    indptr = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
    return csr_array((np.ones(int(real.sum()), dtype=np.float32), top.ids[real], indptr), shape=(len(top), n_labels))


def _widened(labels: Csr, place: NDArray[np.int64], wide: Csr) -> Csr:
    """Labels of documents with all that is broader."""
    from scipy.sparse import csr_array

    shape = (labels.shape[0], wide.shape[0])
    ones = np.ones(labels.nnz, dtype=np.float32)
    return _binary(csr_array((ones, place[labels.indices], labels.indptr), shape=shape) @ wide)
