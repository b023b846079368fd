"""The vectors of all texts of a step, of several sets of texts: documents, labels, anchors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from longtail.nn.batches import Documents, TensorBatch
from longtail.nn.encoders import Encoder
from longtail.training.objectives import batch_vectors, training_vectors
from longtail.types import I64


@dataclass(frozen=True)
class Wanted:
    """`rows` of `texts`.  seed: their dropout has a stream of its own; None: the common one."""

    texts: Documents
    rows: I64
    seed: int | None = None


def vectors_together(encoder: Encoder, wanted: Sequence[Wanted]) -> list[Tensor]:
    """(B, D) float32 for each that is wanted.

    Where the encoder asks for it (`Encoder.together`) all go through in one call, and dropout has one stream: seeds
    do not count.
    """
    if not encoder.together or len(wanted) < 2:
        return [_vectors(encoder, each) for each in wanted]
    batch = TensorBatch.joined([each.texts.rows(each.rows) for each in wanted])
    return list(
        batch_vectors(encoder, batch, wanted[0].texts.device).split_with_sizes([len(each.rows) for each in wanted])
    )


def _vectors(encoder: Encoder, wanted: Wanted) -> Tensor:
    if wanted.seed is None:
        return training_vectors(encoder, wanted.texts, wanted.rows)
    device = wanted.texts.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(wanted.seed)
        return training_vectors(encoder, wanted.texts, wanted.rows)
