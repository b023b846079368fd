"""Encoders of sparse features: a weighted bag of vectors, alone or under a small network."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import TensorBatch
from longtail.nn.encoded import Encoded, Encoder
from longtail.nn.initial import xavier_linear
from longtail.nn.row_table import RowTable


class BagEncoder(Encoder):
    """v = dropout(ReLU(sum of weight * vector of each feature)). Paper: Astec Sec. 4.

    A document without features becomes the zero vector.
    """

    def __init__(self, table: RowTable, *, dropout: float = 0.5) -> None:
        super().__init__()
        self.table = table
        self.dropout = nn.Dropout(dropout)
        self.width = int(table.weight.shape[1])

    def forward(self, batch: TensorBatch) -> Encoded:
        v_BD: Tensor = self.dropout(torch.relu(self.table(batch.need_sparse())))
        return Encoded(v_BD, v_BD)


class BagSum(Encoder):
    """a = dropout(sum of weight * vector of each feature), with either sign: what a `DocumentBlock` turns into x.
    Paper: ECLARE Sec. 3.1.
    """

    def __init__(self, table: RowTable, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.table = table
        self.dropout = nn.Dropout(dropout)
        self.width = int(table.weight.shape[1])

    def forward(self, batch: TensorBatch) -> Encoded:
        a_BD: Tensor = self.dropout(self.table(batch.need_sparse()))
        return Encoded(a_BD, a_BD)


class MlpEncoder(Encoder):
    """A bag as the first layer, then one more: v = dropout(ReLU(A dropout(ReLU(bag + b)) + c)). Paper: MACH's
    network.
    """

    def __init__(self, table: RowTable, width: int, rng: np.random.Generator, *, dropout: float = 0.5) -> None:
        super().__init__()
        self.table = table
        hidden = int(table.weight.shape[1])
        self.hidden_bias = nn.Parameter(torch.zeros(hidden))
        self.output = xavier_linear(hidden, width, rng)
        self.dropout = nn.Dropout(dropout)
        self.width = width

    def forward(self, batch: TensorBatch) -> Encoded:
        hidden = self.dropout(torch.relu(self.table(batch.need_sparse()) + self.hidden_bias))
        v_BD: Tensor = self.dropout(torch.relu(self.output(hidden)))
        return Encoded(v_BD, v_BD)
