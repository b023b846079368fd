"""Training of one-vs-all rows on each document's own candidates: loss, gradients and update of the rows as one step."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.nn.batches import sent
from longtail.nn.classifiers import OneVsAll
from longtail.nn.products import for_products
from longtail.nn.row_adam import RowAdam
from longtail.types import F32, I32, Candidates, TopK


class RestrictedTrainer:
    """Binary cross-entropy over candidates, mean over real entries, with row-wise Adam on the classifier's rows.

    Only rows that some document of the batch names are read or changed. The step returns the gradient to the document
    vectors, for the caller's backward pass.

    On a CPU one compiled pass does all (`restricted_kernels`). Elsewhere, and for a `reference` RowAdam (the oracle),
    torch scores the *union* of the batch's labels as one matrix product: on a GPU that product costs less than gathering
    rows per document. compute: type of the products there; bf16 on a GPU unless said otherwise.
    """

    def __init__(self, classifier: OneVsAll, *, adam: RowAdam | None = None, compute: torch.dtype | None = None) -> None:
        self.classifier = classifier
        self.adam = adam or RowAdam(classifier.rows)
        rows = classifier.rows
        self.compute = compute or (torch.bfloat16 if rows.is_cuda else rows.dtype)
        self._partial: NDArray[np.floating] = np.empty((0, 0, 0), dtype=np.float32)

    def step(self, z_BD: Tensor, candidates: Candidates, rate: float) -> tuple[Tensor, Tensor]:
        """(loss, gradient of the loss to z): a scalar and (B, D). Updates the rows. Without a real entry the loss is 0."""
        inputs = self.classifier.inputs(z_BD.detach())
        if not candidates.mask.any():
            return z_BD.new_zeros(()), torch.zeros_like(z_BD)
        ids = np.where(candidates.mask, candidates.ids, np.int32(TopK.PAD))
        loss, gradient = (self._by_kernel if self.adam.by_kernel else self._by_torch)(inputs, ids, candidates.targets, rate)
        return loss, gradient[:, : self.classifier.width]

    def _by_kernel(self, z_BD: Tensor, ids_BC: I32, targets_BC: F32, rate: float) -> tuple[Tensor, Tensor]:
        from longtail.nn.restricted_kernels import restricted_step, summed_parts
        from longtail.nn.row_kernels import CHUNKS, grouped_by_row

        adam, z = self.adam, z_BD.contiguous().numpy()
        factors = adam.factors(rate)
        groups = grouped_by_row(ids_BC.ravel(), adam.slots)
        share = z.dtype.type(1 / len(groups.entries))
        if self._partial.shape != (CHUNKS, *z.shape) or self._partial.dtype != z.dtype:
            self._partial = np.empty((CHUNKS, *z.shape), dtype=z.dtype)
        losses = np.empty(CHUNKS)
        restricted_step(
            adam.table.numpy(),
            adam.first.numpy(),
            adam.second.numpy(),
            groups.rows,
            groups.starts,
            groups.entries,
            groups.edges,
            ids_BC.shape[1],
            z,
            targets_BC.ravel(),
            share,
            factors,
            self._partial,
            losses,
        )
        gradient = torch.empty_like(z_BD)
        summed_parts(self._partial, gradient.numpy())
        return torch.tensor(losses.sum() * float(share), dtype=z_BD.dtype), gradient

    @torch.no_grad()
    def _by_torch(self, z_BD: Tensor, ids_BC: I32, targets_BC: F32, rate: float) -> tuple[Tensor, Tensor]:
        documents, width = z_BD.shape
        ids, targets = sent(ids_BC, z_BD.device).long(), sent(targets_BC, z_BD.device).to(z_BD.dtype)
        share = 1 / int((ids_BC >= 0).sum())
        # Padding takes the place of some label that is named anyway, and weighs nothing: shapes stay fixed, a GPU need not be asked.
        real = ids >= 0
        rows, place = self.adam.named_rows(torch.where(real, ids, ids.max()))

        z, weights = for_products(z_BD, self.compute), for_products(self.adam.table[rows], self.compute)
        scores_BU = z @ weights.T
        at = torch.arange(documents, device=ids.device)[:, None] * scores_BU.shape[1] + place
        scores = scores_BU.view(-1)[at].to(z_BD.dtype)
        loss = torch.where(real, nn.functional.softplus(scores) - scores * targets, 0).sum() * share
        slope = torch.where(real, scores.sigmoid() - targets, 0) * share
        slope_BU = scores_BU.zero_()
        slope_BU.view(-1).index_add_(0, at.view(-1), slope.to(self.compute).view(-1))
        gradient = (slope_BU @ weights)[:documents, :width].to(z_BD.dtype)
        self.adam.update_rows(rows, (slope_BU.T @ z)[: len(rows), :width].to(z_BD.dtype), rate)
        return loss, gradient
