"""Classifiers: a vector per label, scored against document vectors."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.initial import uniform


class OneVsAll(nn.Module):
    """An independent linear classifier per label.

    rows: (L, D) parameter; with `bias` (L, D + 1), the last column being the weight of a feature that is always 1:
    every way of training then handles the bias without knowing of it.
    """

    def __init__(self, labels: int, width: int, rng: np.random.Generator, *, bias: bool = False) -> None:
        """Xavier-uniform weights, zero biases. Paper: Astec Sec. 4 (initialisation)."""
        super().__init__()
        self.width, self.has_bias = width, bias
        limit = math.sqrt(6 / (width + labels))
        rows = uniform((labels, width), limit, rng)
        self.rows = nn.Parameter(torch.cat([rows, torch.zeros(labels, 1)], dim=1) if bias else rows)

    @property
    def labels(self) -> int:
        return int(self.rows.shape[0])

    @property
    def weight(self) -> Tensor:
        """(L, D)"""
        return self.rows[:, : self.width]

    @property
    def bias(self) -> Tensor | None:
        """(L,)"""
        return self.rows[:, self.width] if self.has_bias else None

    def inputs(self, z_BD: Tensor) -> Tensor:
        """Document vectors as `rows` want them: with a trailing 1 where there is a bias."""
        return torch.cat([z_BD, z_BD.new_ones(len(z_BD), 1)], dim=1) if self.has_bias else z_BD

    def all_rows(self) -> Tensor:
        """(L, D), (L, D + 1) with `bias`: what `inputs` are multiplied with."""
        return self.rows

    def scores(self, z_BD: Tensor, ids_BC: Tensor) -> Tensor:
        """(B, C): each document against its own labels. At padding (-1) the score is that of label 0: mask it."""
        return torch.einsum("bd,bcd->bc", self.inputs(z_BD), self.rows[ids_BC.clamp(min=0).long()])

    def all_scores(self, z_BD: Tensor) -> Tensor:
        """(B, L)"""
        return self.inputs(z_BD) @ self.rows.T
