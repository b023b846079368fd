"""Row-wise work on CSR arrays that scipy has not."""

from __future__ import annotations

import numpy as np

from longtail.compiled import compiled, prange
from longtail.graph.ranking_kernels import offer
from longtail.types import F32, I32, I64


@compiled(parallel=True)
def largest_of_rows(
    indptr: I64, indices: I32, data: F32, own: I64, new_indptr: I64, new_indices: I32, new_data: F32
) -> None:
    """Copy the largest entries of each row, as many as `new_indptr` leaves room for, in no order; that in column
    own[row] first.
    """
    for r in prange(len(indptr) - 1):
        row = np.int64(r)
        start, size = new_indptr[row], new_indptr[row + 1] - new_indptr[row]
        ids, scores = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.float32)
        found = 0
        for entry in range(indptr[row], indptr[row + 1]):
            # The heap carries the entry's place instead of its column: the same order, as columns are sorted.
            value = np.inf if indices[entry] == own[row] else data[entry]
            found = offer(ids, scores, found, entry - indptr[row], value)
        for i in range(size):
            entry = indptr[row] + ids[i]
            new_indices[start + i] = indices[entry]
            new_data[start + i] = data[entry]
