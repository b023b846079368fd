"""Rows that are the sum of text and a trusted free vector, beside their sweep: who makes them, and who learns from
their gradient.

In torch, which is the oracle and runs on a GPU, and by kernels of one pass each where a CPU multiplies bf16: there
the products are so fast that passes over the rows take most of a step.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from longtail.nn.full.tables import COLUMN_MULTIPLE, FixedTable, Float32Table, ReadTable
from longtail.nn.row_adam import AdamFactors

# Rows of a block are a whole multiple of these (see `tables.padded`).
_ROW_MULTIPLE = 8


class ComposedRows:
    """Row of label l: (text_l + trust_l * free_l, bias_l).  free: (L, D + 1), the last column the bias.  trust: (L, 1).

    text: (L, D), or None where labels have no text; who changes it owns it.  text_gradient: the gradient to texts,
        summed up until it is taken.
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

    def learn(self, start: int, labels: int, gradient: Tensor, scale: float, factors: AdamFactors, step: int) -> None:
        """From the gradient of the rows from `start` on: free vectors now, texts by what is summed up."""
        block = slice(start, start + labels)
        own = gradient[:labels, : self.width + 1].float().mul_(scale)
        if self.text_gradient is not None:
            self.text_gradient[block] += own[:, : self.width]
        own[:, : self.width] *= self.trust[block]
        self.free.update(start, labels, own, 1.0, factors, step)


class ComposedRowsOnCpu(ComposedRows):
    """For products in bf16 on a CPU; the same numbers."""

    def __init__(self, free: Tensor, trust: Tensor, *, text: bool) -> None:
        super().__init__(free, trust, text=text)
        shape = (self.labels + -self.labels % _ROW_MULTIPLE, self.width + 1 + -(self.width + 1) % COLUMN_MULTIPLE)
        self._padded = torch.zeros(shape, dtype=torch.bfloat16)

    def table(self) -> ReadTable:
        from longtail.nn.full.composed_kernels import composed_bits

        composed_bits(
            bits(self._padded), self.free.rows.numpy(), self.trust.numpy(), array_or_none(self.text, self.width)
        )
        return PaddedTable(self._padded, self.labels)

    def learn(self, start: int, labels: int, gradient: Tensor, scale: float, factors: AdamFactors, step: int) -> None:
        from longtail.nn.full.composed_kernels import learn_composed

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
