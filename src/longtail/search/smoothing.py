"""Softer truth: labels that are probably missing get a target between 0 and 1."""

from __future__ import annotations

import numpy as np

from longtail.graph.ops import scale_rows_to_sum_one
from longtail.types import Csr


def smoothed_targets(targets: Csr, graph: Csr, most: float) -> Csr:
    """(N, L): 1 where a label is given; elsewhere up to `most`, by how close it is to the given ones in the label graph.

    A label that gets all the weight of one given label's row of the graph (l1, itself included) would have `most`.
    """
    spread = (targets @ scale_rows_to_sum_one(graph)).tocsr()
    spread.data = np.minimum(spread.data * np.float32(most), np.float32(most))
    soft = (targets + spread).tocsr()
    soft.data = np.where(soft.data >= 1, np.float32(1), soft.data).astype(np.float32)
    soft.sort_indices()
    return soft
