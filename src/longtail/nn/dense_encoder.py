"""Encoder of given vectors: image embeddings, sentence embeddings, anything."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import TensorBatch
from longtail.nn.encoded import Encoded, Encoder
from longtail.nn.initial import xavier_linear


class GivenVectors(Encoder):
    """Vectors as they are, with either sign: sums of token vectors that are no longer trained, say."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, batch: TensorBatch) -> Encoded:
        a_BD = batch.need_dense()
        return Encoded(a_BD, a_BD)


class DenseEncoder(Encoder):
    """v = dropout(ReLU(A x + b)), or dropout(ReLU(x)) without projection.

    The plain form keeps the positive part only: right for vectors that come out of a ReLU (image networks); signed
    vectors want the projection.
    """

    def __init__(
        self, inputs: int, rng: np.random.Generator, *, project_to: int | None = None, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.projection = None if project_to is None else xavier_linear(inputs, project_to, rng)
        self.dropout = nn.Dropout(dropout)
        self.width = project_to or inputs

    def forward(self, batch: TensorBatch) -> Encoded:
        x_BD = batch.need_dense()
        v_BD: Tensor = self.dropout(torch.relu(x_BD if self.projection is None else self.projection(x_BD)))
        return Encoded(v_BD, v_BD)
