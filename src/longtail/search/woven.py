"""Rows of bytes in the order in which `woven_kernels` reads them: sixteen rows side by side, four numbers of each in
turn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.types import I64

# Rows of a block, numbers of each that stand together, and rows that tables are filled up to a multiple of: as many
# as a word has bits.
LANES, TOGETHER, GROUP = 16, 4, 64


def weave(rows: NDArray[np.int8]) -> NDArray[np.int8]:
    """(blocks, 16 D) of (n, D) rows, D a multiple of 4, filled up with rows of zeros."""
    n, width = rows.shape
    blocks = -(-n // GROUP) * (GROUP // LANES)
    filled = np.pad(rows, ((0, blocks * LANES - n), (0, 0)))
    woven = filled.reshape(blocks, LANES, width // TOGETHER, TOGETHER).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(woven).reshape(blocks, LANES * width)


def unwoven(woven: NDArray[np.int8], rows: I64) -> NDArray[np.int8]:
    """(n, D): some rows as they were."""
    width = woven.shape[1] // LANES
    taken = woven.reshape(len(woven), width // TOGETHER, LANES, TOGETHER)[rows // LANES, :, rows % LANES]
    return np.ascontiguousarray(taken.reshape(len(rows), width))
