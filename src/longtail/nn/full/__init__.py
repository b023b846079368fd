"""Training against all labels at once, block of labels by block.

Reading order: `pairs` (the pairs of a batch that are not plain negatives; labels split over processes), `storage` (rows
as products read them, and with their Adam), `sweep` (one pass over the labels: losses as slopes of scores, and
gradients), `full_rows` (what trainers use). `triton_kernels` is the GPU's way of the same steps.
"""

from __future__ import annotations

from longtail.nn.full.full_rows import FullRows, full_gradients, full_loss
from longtail.nn.full.pairs import LossKind, MeanOver, Shard
from longtail.nn.full.storage import Precision
from longtail.nn.full.sweep import Variant

__all__ = ["FullRows", "LossKind", "MeanOver", "Precision", "Shard", "Variant", "full_gradients", "full_loss"]
