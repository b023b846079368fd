"""Encoder of token sequences: convolutions with dynamic max-pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from longtail.models.encoders import FrozenCnn
from longtail.nn.batches import Bags, TensorBatch, to_numpy
from longtail.nn.encoders import Encoded, Encoder
from longtail.nn.initial import uniform, xavier_linear
from longtail.nn.rows import RowTable


class TokenCnn(Encoder):
    """Filters of several spans over token vectors, each map cut into `chunks` pieces of which the maximum is kept, then
    a bottleneck: v = dropout(ReLU(A dropout(pooled) + b)). Paper: XML-CNN (Liu et al. 2017) Sec. 3.

    Sequences are cut or padded (with zero vectors) to `length`, so that a document's vector does not depend on the
    other documents of its batch. A document without tokens is all padding.
    """

    def __init__(
        self,
        table: RowTable,
        width: int,
        rng: np.random.Generator,
        *,
        length: int = 32,
        spans: tuple[int, ...] = (2, 4, 8),
        filters: int = 128,
        chunks: int = 4,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.table, self.length, self.chunks, self.width = table, max(length, *spans), chunks, width
        inputs = int(table.weight.shape[1])
        self.convolutions = nn.ModuleList(xavier_convolution(inputs, filters, span, rng) for span in spans)
        self.output = xavier_linear(len(spans) * filters * chunks, width, rng)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: TensorBatch) -> Encoded:
        x_BDT = self._token_vectors(batch.need_tokens()).transpose(1, 2)
        pooled = [
            nn.functional.adaptive_max_pool1d(torch.relu(convolve(x_BDT)), self.chunks).flatten(1)
            for convolve in self.convolutions
        ]
        v_BD: Tensor = self.dropout(torch.relu(self.output(self.dropout(torch.cat(pooled, dim=1)))))
        return Encoded(v_BD, v_BD)

    def frozen(self) -> FrozenCnn:
        convolutions: list[Any] = list(self.convolutions)
        return FrozenCnn(
            to_numpy(self.table.weight),
            tuple(to_numpy(convolve.weight) for convolve in convolutions),
            tuple(to_numpy(convolve.bias) for convolve in convolutions),
            to_numpy(self.output.weight),
            to_numpy(self.output.bias),
            self.length,
            self.chunks,
        )

    def _token_vectors(self, tokens_BT: Tensor) -> Tensor:
        """(B, length, D'): a bag of one token per position, an empty bag at padding."""
        tokens = nn.functional.pad(tokens_BT[:, : self.length], (0, max(0, self.length - tokens_BT.shape[1])), value=-1)
        there = tokens.reshape(-1) >= 0
        starts = nn.functional.pad(there.cumsum(0), (1, 0))
        ids = tokens.reshape(-1)[there]
        vectors: Tensor = self.table(
            Bags(starts, ids, torch.ones(len(ids), dtype=self.table.weight.dtype, device=ids.device))
        )
        return vectors.view(len(tokens_BT), self.length, -1)


def xavier_convolution(inputs: int, outputs: int, span: int, rng: np.random.Generator) -> nn.Conv1d:
    """Weights Xavier-uniform over the `span` positions that a filter sees, biases zero."""
    layer = nn.Conv1d(inputs, outputs, span, device="meta")
    layer.weight = nn.Parameter(uniform((outputs, inputs, span), math.sqrt(6 / (span * (inputs + outputs))), rng))
    layer.bias = nn.Parameter(torch.zeros(outputs))
    return layer
