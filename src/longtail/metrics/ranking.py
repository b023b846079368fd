"""From scores to ranked labels, without masked pairs, and which of them are right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.errors import DataError
from longtail.kernels.arrays import canonical
from longtail.types import I64, Csr, TopK


def top_k(scores: Csr, k: int) -> TopK:
    """The k best labels per row of a documents x labels CSR array of scores, ordered by (-score, label number).

    A stored zero is a prediction, an absent entry is none; -inf means "not a prediction", NaN is an error. Scores are
    compared in their own precision and returned as float32.
    """
    from longtail.metrics.kernels import best_of_rows

    if np.isnan(scores.data).any():
        at = int(np.argmax(np.isnan(scores.data)))
        row = int(np.searchsorted(scores.indptr, at, side="right")) - 1
        raise DataError(
            f"row {row} of the scores (counted from 0) has NaN for label {int(scores.indices[at])}",
            "NaN cannot be ranked: look for a division by zero or an overflow in what computed the scores",
        )
    scores = canonical(scores)
    top = TopK.padding(scores.shape[0], k)
    values = scores.data if scores.data.dtype == np.float32 else scores.data.astype(np.float64)
    best_of_rows(scores.indptr.astype(np.int64), scores.indices.astype(np.int32), values, top.ids, top.scores)
    return top


def to_csr(top: TopK, n_labels: int) -> Csr:
    """Ranked labels as a documents x labels CSR array of float32 scores; zeros stay stored. The inverse of `top_k`."""
    from scipy.sparse import csr_array

    check_labels(top, n_labels)
    columns = np.where(top.ids >= 0, top.ids, np.int32(n_labels))
    order = np.argsort(columns, axis=1)
    columns, values = np.take_along_axis(columns, order, axis=1), np.take_along_axis(top.scores, order, axis=1)
    real = columns < n_labels
    if (real[:, 1:] & (columns[:, 1:] == columns[:, :-1])).any():
        raise ValueError("a document lists the same label twice")
    indptr = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
    return csr_array((values[real], columns[real], indptr), shape=(len(top), n_labels))


def cut(top: TopK, k: int) -> TopK:
    """Exactly k places: the first k, padded where there are fewer."""
    if top.k >= k:
        return TopK(top.ids[:, :k], top.scores[:, :k])
    wide = TopK.padding(len(top), k)
    wide.ids[:, : top.k], wide.scores[:, : top.k] = top.ids, top.scores
    return wide


def drop_masked(top: TopK, masked: I64, k: int) -> TopK:
    """The k best labels that remain when masked (document, label) pairs vanish.

    masked: (P, 2). To lose nothing at the cut, rank k labels plus as many as one document has masked pairs.
    """
    from scipy.sparse import csr_array

    from longtail.metrics.kernels import copy_kept

    _check_pairs(masked, len(top))
    n_labels = 1 + int(max(top.ids.max(initial=0), masked[:, 1].max(initial=0)))
    gone = hits(
        top, csr_array((np.ones(len(masked), dtype=np.int32), (masked[:, 0], masked[:, 1])), shape=(len(top), n_labels))
    )
    kept = TopK.padding(len(top), k)
    copy_kept(top.ids, top.scores, gone, kept.ids, kept.scores)
    return kept


def drop_masked_targets(targets: Csr, masked: I64) -> Csr:
    """The truth without masked (document, label) pairs; other entries and the shape stay."""
    from scipy.sparse import csr_array

    n_documents, n_labels = targets.shape
    _check_pairs(masked, n_documents)
    masked = masked[masked[:, 1] < n_labels]
    rows = np.repeat(np.arange(n_documents), np.diff(targets.indptr))
    kept = ~np.isin(rows * n_labels + targets.indices, masked[:, 0] * n_labels + masked[:, 1])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=n_documents))])
    return csr_array((targets.data[kept], targets.indices[kept], indptr), shape=targets.shape)


def hits(top: TopK, targets: Csr) -> NDArray[np.bool_]:
    """(N, k) whether each ranked label is among the document's targets (N, L). Padding is a miss; a label listed
    twice counts once.
    """
    from longtail.metrics.kernels import mark_hits

    if len(top) != targets.shape[0]:
        raise DataError(
            f"there are predictions for {len(top)} documents, and {targets.shape[0]} documents with labels",
            "predict for the same documents, all of them and in the same order",
        )
    check_labels(top, targets.shape[1])
    targets = positives(targets)
    hit = np.zeros(top.ids.shape, dtype=np.bool_)
    mark_hits(top.ids, targets.indptr.astype(np.int64), targets.indices.astype(np.int32), hit)
    return hit


def positives(targets: Csr) -> Csr:
    """Targets with sorted rows, no duplicates and no stored zeros; the given array where it is so already."""
    targets = canonical(targets)
    if not targets.data.all():
        targets = targets.copy()
        targets.eliminate_zeros()
    return targets


def check_labels(top: TopK, n_labels: int) -> None:
    """Refuse label numbers that the data set does not have."""
    if top.ids.size and int(top.ids.max()) >= n_labels:
        raise DataError(
            f"label {int(top.ids.max())} was predicted, and the data set has {n_labels} labels",
            "the predictions belong to another data set",
        )


def _check_pairs(masked: I64, n_documents: int) -> None:
    if len(masked) and (masked.min() < 0 or masked[:, 0].max() >= n_documents):
        raise DataError(
            f"a masked pair names document {int(masked[:, 0].max())} of {n_documents}, or a negative number",
            "the filter file belongs to another data set",
        )
