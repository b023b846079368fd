"""What an encoder gives back, and how to run one over many documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import Documents, TensorBatch
from longtail.types import F32


@dataclass(frozen=True)
class Encoded:
    """Two views of B documents.

    search: (B, D), what a shortlist looks up.
    score: (B, D), what the classifier reads.
    """

    search: Tensor
    score: Tensor


class Encoder(nn.Module):
    """Documents in, vectors out, non-negative ones unless the class says otherwise. `width` is D.

    together: a call costs so much that all texts of a step should go through in one
        (`training.objectives.vectors_together`).
    """

    width: int
    together: bool = False

    def forward(self, batch: TensorBatch) -> Encoded:
        raise NotImplementedError


class Refined(Encoder):
    """An encoder whose `score` passes through one more block; `search` stays what it was."""

    def __init__(self, encoder: Encoder, block: nn.Module) -> None:
        super().__init__()
        self.encoder, self.block = encoder, block
        self.width = encoder.width

    def forward(self, batch: TensorBatch) -> Encoded:
        encoded: Encoded = self.encoder(batch)
        return Encoded(encoded.search, self.block(encoded.score))


@torch.no_grad()
def encode_all(encoder: Encoder, documents: Documents, view: Literal["search", "score"], *, block: int = 4096) -> F32:
    """(N, D) float32: one view of every document, without dropout. The encoder's mode is put back afterwards."""
    was_training = encoder.training
    encoder.eval()
    try:
        vectors = np.empty((len(documents), encoder.width), dtype=np.float32)
        for start in range(0, len(documents), block):
            stop = min(start + block, len(documents))
            encoded: Encoded = encoder(documents.rows(np.arange(start, stop)))
            vectors[start:stop] = getattr(encoded, view).float().cpu().numpy()
        return vectors
    finally:
        encoder.train(was_training)
