"""Training against all labels at once, block of labels by block.

Reading order: `pairs` (what is not a plain negative), `slopes` (losses as slopes of scores), `sweep` (one pass over
the labels), `tables` (rows with their Adam), `rows` (what trainers use). `triton_kernels` is the GPU's way of the
same steps.
"""

from __future__ import annotations

from longtail.nn.full.pairs import LossKind, MeanOver
from longtail.nn.full.rows import FullRows, full_gradients
from longtail.nn.full.shards import Shard
from longtail.nn.full.sweep import Variant
from longtail.nn.full.tables import Precision

__all__ = ["FullRows", "LossKind", "MeanOver", "Precision", "Shard", "Variant", "full_gradients"]
