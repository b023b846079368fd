"""Encoders: documents in, vectors out. How to run one over many documents, and what it becomes for prediction.

Of sparse features (a weighted bag of vectors, alone or under a small network), of token sequences (convolutions with
dynamic max-pooling), of given vectors (image embeddings, sentence embeddings, anything), and of unit length (what dual
encoders compare by cosine).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from longtail.models.encoders import (
    FrozenBag,
    FrozenCnn,
    FrozenDense,
    FrozenEncoder,
    FrozenMlp,
    FrozenRectified,
    FrozenSum,
    FrozenUnit,
)
from longtail.nn.batches import Bags, Documents, TensorBatch, to_numpy
from longtail.nn.blocks import Block, frozen_block, xavier_convolution, xavier_linear
from longtail.nn.row_tables import RowTable
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
        (`training.objectives.vectors_together`).  unit: its vectors have unit length.
    """

    width: int
    together: bool = False
    unit: bool = False

    def forward(self, batch: TensorBatch) -> Encoded:
        raise NotImplementedError

    def frozen(self) -> FrozenEncoder:
        """Its twin that predicts without torch; the forward pass here, without dropout, is the oracle of the twin."""
        raise NotImplementedError(f"no frozen form of {type(self).__name__}")


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


class ViewSource(Protocol):
    """Where the vectors of a view come from.  width: numbers of each, H."""

    @property
    def width(self) -> int: ...

    def frozen(self, table: F32, matrix: F32, *, rectified: bool) -> FrozenEncoder:
        """What predicts: the bag of a table (V, D), and beside it vectors of this kind times a matrix (H, D); with a
        ReLU at its end if `rectified`.
        """
        ...


class GivenView(nn.Module):
    """Vectors that training does not change, through one matrix that it learns: u P.

    A batch brings what its texts have of such vectors, u, as its dense vectors.
    """

    def __init__(self, source: ViewSource, width: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.source = source
        start = rng.standard_normal((source.width, width), dtype=np.float32) / np.float32(width) ** 0.5
        # Short at first: what is learnt of words begins with more to say.
        self.map = nn.Parameter(torch.from_numpy(start) * 0.1)

    def forward(self, given_BH: Tensor) -> Tensor:
        return given_BH @ self.map

    def frozen(self, table: F32, *, rectified: bool) -> FrozenEncoder:
        return self.source.frozen(table, to_numpy(self.map), rectified=rectified)


class BagEncoder(Encoder):
    """v = dropout(ReLU(sum of weight * vector of each feature)). Paper: Astec Sec. 4.

    A document without features becomes the zero vector.  view: what is known of texts beside the table.
    """

    def __init__(self, table: RowTable, *, dropout: float = 0.5, view: GivenView | None = None) -> None:
        super().__init__()
        self.table, self.view = table, view
        self.dropout = nn.Dropout(dropout)
        self.width = int(table.weight.shape[1])

    def forward(self, batch: TensorBatch) -> Encoded:
        v_BD: Tensor = self.dropout(torch.relu(bag_of(batch, self.table, self.view)))
        return Encoded(v_BD, v_BD)

    def frozen(self) -> FrozenEncoder:
        table = to_numpy(self.table.weight)
        return FrozenBag(table) if self.view is None else self.view.frozen(table, rectified=True)


def bag_of(batch: TensorBatch, table: RowTable, view: GivenView | None) -> Tensor:
    """(B, D): the weighted sum of the vectors of all features."""
    sums: Tensor = table(batch.need_sparse())
    return sums if view is None else sums + view(batch.need_dense())


class BagSum(Encoder):
    """a = dropout(sum of weight * vector of each feature), with either sign: what a `Block` turns into x.

    Paper: ECLARE Sec. 3.1.  view: as in `BagEncoder`.
    """

    def __init__(self, table: RowTable, *, dropout: float = 0.0, view: GivenView | None = None) -> None:
        super().__init__()
        self.table, self.view = table, view
        self.dropout = nn.Dropout(dropout)
        self.width = int(table.weight.shape[1])

    def forward(self, batch: TensorBatch) -> Encoded:
        a_BD: Tensor = self.dropout(bag_of(batch, self.table, self.view))
        return Encoded(a_BD, a_BD)

    def frozen(self) -> FrozenEncoder:
        table = to_numpy(self.table.weight)
        return FrozenSum(table) if self.view is None else self.view.frozen(table, rectified=False)


class MlpEncoder(Encoder):
    """A bag as the first layer, then one more: v = dropout(ReLU(A dropout(ReLU(bag + b)) + c)).

    Paper: MACH's network.
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

    def frozen(self) -> FrozenMlp:
        return FrozenMlp(
            to_numpy(self.table.weight),
            to_numpy(self.hidden_bias),
            to_numpy(self.output.weight),
            to_numpy(self.output.bias),
        )


class TokenCnn(Encoder):
    """Filters of several spans over token vectors, each map cut into `chunks` pieces of which the maximum is kept,
    then a bottleneck: v = dropout(ReLU(A dropout(pooled) + b)). Paper: XML-CNN (Liu et al. 2017) Sec. 3.

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

    def frozen(self) -> FrozenDense:
        if self.projection is None:
            return FrozenDense()
        return FrozenDense(to_numpy(self.projection.weight), to_numpy(self.projection.bias))


class RectifiedEncoder(Encoder):
    """v = ReLU of any encoder's vectors; what is scored has dropout after it. Paper: Astec Sec. 5 (a transformer as the
    encoder of stage I).
    """

    def __init__(self, encoder: Encoder, *, dropout: float = 0.5) -> None:
        super().__init__()
        self.encoder, self.dropout = encoder, nn.Dropout(dropout)
        self.width, self.together = encoder.width, encoder.together

    def forward(self, batch: TensorBatch) -> Encoded:
        encoded: Encoded = self.encoder(batch)
        v_BD = torch.relu(encoded.search.float())
        return Encoded(v_BD, self.dropout(v_BD))

    def frozen(self) -> FrozenRectified:
        return FrozenRectified(self.encoder.frozen())


class UnitEncoder(Encoder):
    """x / |x| of any encoder's vectors after `block` (None: as they are), with either sign.

    A document without features stays zero.
    """

    unit = True

    def __init__(self, encoder: Encoder, block: Block | None = None) -> None:
        super().__init__()
        self.encoder, self.block = encoder, block
        self.width, self.together = encoder.width, encoder.together

    def forward(self, batch: TensorBatch) -> Encoded:
        encoded: Encoded = self.encoder(batch)
        x_BD = encoded.score if self.block is None else self.block(encoded.score)
        unit_BD = nn.functional.normalize(x_BD.float(), dim=1)
        return Encoded(unit_BD, unit_BD)

    def frozen(self) -> FrozenUnit:
        return FrozenUnit(self.encoder.frozen(), frozen_block(self.block))
