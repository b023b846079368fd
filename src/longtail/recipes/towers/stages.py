"""What a stage of dual encoders leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.models.encoders import FrozenEncoder
from longtail.persistence import DataPart
from longtail.types import F32


@dataclass(frozen=True)
class Towers(DataPart):
    """Stage I: the encoder, and the unit vectors of documents (N, D) and labels (L, D)."""

    KIND = "two-towers"

    encoder: FrozenEncoder
    documents: F32
    labels: F32
