"""Scores of labels that weigh several views of a document, each label in its own way. Floor: one row of D numbers per
label.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.compiled import compiled, prange
from longtail.search.product_kernels import as_float
from longtail.types import F32, I32


@compiled(parallel=True, fastmath=True)
def score_views(views: F32, rows: NDArray[Any], scales: F32, alphas: F32, ids: I32, out: F32) -> None:
    """out[b, c] = sum over k of alphas[l, k] (views[b, k] . rows[l]) for l = ids[b, c], 0 at padding.

    views: (B, K, D); rows, scales: (L, D) stored; alphas: (L, K); ids, out: (B, C). fastmath: see
        `search.product_kernels`.
    """
    for unsigned in prange(len(ids)):
        row = np.int64(unsigned)
        for place in range(ids.shape[1]):
            label = ids[row, place]
            total = np.float32(0.0)
            if label >= 0:
                for view in range(views.shape[1]):
                    dot = np.float32(0.0)
                    for d in range(views.shape[2]):
                        dot += views[row, view, d] * as_float(rows[label, d])
                    total += alphas[label, view] * dot
            out[row, place] = total * scales[label] if label >= 0 and len(scales) else total
