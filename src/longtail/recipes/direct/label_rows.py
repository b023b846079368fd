"""Classifier rows that are the sum of text and a trusted free vector: how they are made, and learn from their gradient.

Text is a label's own (`TextRows`). The sum is made in torch, which is the oracle and runs on a GPU, and by
kernels of one pass each where a CPU multiplies bf16 (`kernels`): there the products are so fast that passes over
the rows take most of a step.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import COLUMN_MULTIPLE, to_device
from longtail.nn.full import FixedTable, Float32Table, ReadTable
from longtail.nn.row_tables import AdamFactors, Convolution, RowTable
from longtail.types import Csr


class TextRows(nn.Module):
    """T = g Z E M for all labels, with a trained gain g and a trained matrix M.

    table: token vectors E, (V, D), shared with the encoder of documents.  texts: Z, (L, V) CSR.
    mapped: whether there is an M, which is at first the identity.
    compute: type of the products with M; they are as large as those of a step.
    Only tokens that occur in texts are read, and only their gradients exist: `tokens`, ascending.
    """

    def __init__(
        self, table: RowTable, texts: Csr, *, mapped: bool = False, compute: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.table, self.compute = table, compute
        device = table.weight.device
        used, places = np.unique(texts.indices, return_inverse=True)
        self.tokens = to_device(used.astype(np.int64), device)
        compact = type(texts)((texts.data, places.astype(np.int32), texts.indptr), shape=(texts.shape[0], len(used)))
        self.sums = Convolution(compact, device)
        self.gain = nn.Parameter(torch.ones(1, device=device))
        self.map = nn.Parameter(torch.eye(table.weight.shape[1], device=device)) if mapped else None
        # What the gain multiplies, of the last `forward`; a buffer, so that a resumed training has it.
        self.plain: Tensor
        self.register_buffer("plain", torch.zeros(texts.shape[0], table.weight.shape[1], device=device))

    @torch.no_grad()
    def forward(self) -> Tensor:
        """(L, D), without gradients: `gradient` gives them."""
        self.plain.copy_(self.sums(self.table.weight.index_select(0, self.tokens)))
        scaled = self.gain[0] * self.plain
        return scaled if self.map is None else self._product(scaled, self.map)

    @torch.no_grad()
    def gradient(self, gradient_LD: Tensor) -> Tensor:
        """(tokens, D): the gradient to the vectors of `tokens`, of a gradient to the last `forward`.

        Those of the gain and of M are left at them. T is linear in the vectors, so nothing has to be computed again.
        """
        if self.map is not None:
            self.map.grad = self._product((self.gain[0] * self.plain).T, gradient_LD)
            gradient_LD = self._product(gradient_LD, self.map.T)
        self.gain.grad = (gradient_LD * self.plain).sum()[None]
        return self.sums.back(self.gain[0] * gradient_LD)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        return (left.to(self.compute) @ right.to(self.compute)).float()


# Rows of a block are a whole multiple of these (see `batches.padded`).
_ROW_MULTIPLE = 8


class ComposedRows:
    """Row of label l: (text_l + trust_l * free_l, bias_l).  free: (L, D + 1), the last column the bias.  trust: (L, 1).

    text: (L, D), or None where labels have no text; who changes it owns it.
    text_gradient: the gradient to texts, summed up until it is taken.
    """

    def __init__(self, free: Tensor, trust: Tensor, *, text: bool) -> None:
        self.free, self.trust = Float32Table(free), trust
        self.labels, self.width = len(free), free.shape[1] - 1
        self.text = torch.zeros(self.labels, self.width, device=free.device) if text else None
        self.text_gradient = torch.zeros(self.labels, self.width, device=free.device) if text else None
        self._rows = torch.empty_like(free)

    def rows(self) -> Tensor:
        """(L, D + 1) float32. Changed by the next call."""
        torch.mul(self.free.rows[:, : self.width], self.trust, out=self._rows[:, : self.width])
        if self.text is not None:
            self._rows[:, : self.width] += self.text
        self._rows[:, self.width] = self.free.rows[:, self.width]
        return self._rows

    def table(self) -> ReadTable:
        """The rows as a sweep reads them. Changed by the next call."""
        return FixedTable(self.rows())

    def learn(self, start: int, labels: int, gradient: Tensor, scale: float, factors: AdamFactors) -> None:
        """From the gradient of the rows from `start` on: free vectors now, texts by what is summed up."""
        block = slice(start, start + labels)
        own = gradient[:labels, : self.width + 1].float().mul_(scale)
        if self.text_gradient is not None:
            self.text_gradient[block] += own[:, : self.width]
        own[:, : self.width] *= self.trust[block]
        self.free.update(start, labels, own, 1.0, factors)


class ComposedRowsOnCpu(ComposedRows):
    """For products in bf16 on a CPU; the same numbers."""

    def __init__(self, free: Tensor, trust: Tensor, *, text: bool) -> None:
        super().__init__(free, trust, text=text)
        shape = (self.labels + -self.labels % _ROW_MULTIPLE, self.width + 1 + -(self.width + 1) % COLUMN_MULTIPLE)
        self._padded = torch.zeros(shape, dtype=torch.bfloat16)

    def table(self) -> ReadTable:
        from longtail.recipes.direct.kernels import composed_bits

        composed_bits(
            bits(self._padded), self.free.rows.numpy(), self.trust.numpy(), array_or_none(self.text, self.width)
        )
        return PaddedTable(self._padded, self.labels)

    def learn(self, start: int, labels: int, gradient: Tensor, scale: float, factors: AdamFactors) -> None:
        from longtail.recipes.direct.kernels import learn_composed

        block = slice(start, start + labels)
        free = self.free
        text_gradient = array_or_none(self.text_gradient, self.width)
        learn_composed(
            free.rows[block].numpy(),
            free.first[block].numpy(),
            free.second[block].numpy(),
            bits(gradient),
            np.float32(scale),
            self.trust[block].numpy(),
            text_gradient[block],
            factors.array(np.float32),
        )


class PaddedTable:
    """bf16 rows that are stored as products read them: zeros around them."""

    def __init__(self, padded: Tensor, labels: int) -> None:
        self._padded, self.labels = padded, labels

    def block(self, start: int, count: int, compute: torch.dtype) -> Tensor:
        assert compute == torch.bfloat16, "rows are kept in one type"
        return self._padded[start : start + count + -count % _ROW_MULTIPLE]

    def picked(self, ids: Tensor, compute: torch.dtype) -> Tensor:
        assert compute == torch.bfloat16, "rows are kept in one type"
        return self._padded[ids]


def composed_rows(free: Tensor, trust: Tensor, *, text: bool, compute: torch.dtype) -> ComposedRows:
    """The fastest that gives these numbers here."""
    by_kernel = free.device.type == "cpu" and compute == torch.bfloat16
    return (ComposedRowsOnCpu if by_kernel else ComposedRows)(free, trust, text=text)


def bits(tensor: Tensor) -> np.ndarray:
    """bf16 numbers as their 16 bits, the same memory."""
    return tensor.view(torch.uint16).numpy()


def array_or_none(tensor: Tensor | None, width: int) -> np.ndarray:
    """An array without rows stands for None: kernels know no None."""
    return np.empty((0, width), np.float32) if tensor is None else tensor.numpy()
