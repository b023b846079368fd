"""Encoders whose vectors have unit length: what dual encoders compare by cosine."""

from __future__ import annotations

from torch import nn

from longtail.nn.batches import TensorBatch
from longtail.nn.encoded import Encoded, Encoder


class UnitEncoder(Encoder):
    """x / |x| of any encoder's vectors after `block` (None: as they are), with either sign. A document without
    features stays zero.
    """

    def __init__(self, encoder: Encoder, block: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder, self.block = encoder, block
        self.width, self.together = encoder.width, encoder.together

    def forward(self, batch: TensorBatch) -> Encoded:
        encoded: Encoded = self.encoder(batch)
        x_BD = encoded.score if self.block is None else self.block(encoded.score)
        unit_BD = nn.functional.normalize(x_BD.float(), dim=1)
        return Encoded(unit_BD, unit_BD)
