"""Adam on a block of rows in one pass, on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled, prange
from longtail.nn.row_kernels import adam_row


@compiled(parallel=True)
def adam_block(
    rows: NDArray[Any],
    first: NDArray[Any],
    second: NDArray[Any],
    gradient: NDArray[Any],
    scale: float,
    factors: NDArray[Any],
) -> None:
    """All (n, D). gradient: to be multiplied by `scale`; overwritten."""
    for index in prange(rows.shape[0]):
        n = np.int64(index)
        for d in range(rows.shape[1]):
            gradient[n, d] *= scale
        adam_row(rows[n], first[n], second[n], gradient[n], factors)
