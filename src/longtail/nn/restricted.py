"""Training of classifier rows on each document's own candidates: binary cross-entropy, mean over real entries.

Rows that are parameters of their own are updated within the step (`RestrictedTrainer`); rows that are composed of
other things get their gradients from the same pass (`CompiledPass`). Only rows that some document of the batch names
are read or changed.

On a CPU one compiled pass does all (`longtail.nn.kernels`). Elsewhere torch scores the *union* of the batch's labels
as one matrix product: on a GPU that costs less than gathering rows per document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.nn.batches import padded, to_device
from longtail.nn.row_tables import OneVsAll, RowAdam
from longtail.nn.shards import Shard
from longtail.types import F32, I32, Candidates, TopK

if TYPE_CHECKING:
    from longtail.nn.kernels import RowGroups


class RestrictedTrainer:
    """Binary cross-entropy over candidates with row-wise Adam on the classifier's rows, as one step.

    The step returns the gradient to the document vectors, for the caller's backward pass. A `reference` RowAdam (the
    oracle) takes torch's way on a CPU too. compute: type of the products there; bf16 on a GPU unless said otherwise.
    shard: which labels the rows are, where labels are split over processes. All of them are given the same documents
    and candidates; each scores those of its own labels, and loss and gradient are summed.
    """

    def __init__(
        self,
        classifier: OneVsAll,
        *,
        adam: RowAdam | None = None,
        compute: torch.dtype | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.classifier, self.shard = classifier, shard or Shard(classifier.labels)
        if len(classifier.rows) != self.shard.count:
            raise ValueError(f"{len(classifier.rows)} rows for a shard of {self.shard.count}")
        self.adam = adam or RowAdam(classifier.rows)
        self.compute = compute or products_type(classifier.rows)
        self._pass = CompiledPass()

    def step(self, z_BD: Tensor, candidates: Candidates, rate: float) -> tuple[Tensor, Tensor]:
        """(loss, gradient of the loss to z): a scalar and (B, D). Updates the rows. Without a real entry both are 0."""
        inputs, entries = self.classifier.inputs(z_BD.detach()), int(np.count_nonzero(candidates.mask))
        if not entries:
            return z_BD.new_zeros(()), torch.zeros_like(z_BD)
        own = self.shard.places(real_ids(candidates))
        if (own >= 0).any():
            way = self._by_kernel if self.adam.by_kernel else self._by_torch
            loss, gradient = way(inputs, own, candidates.targets, entries, rate)
        else:
            self.adam.factors(rate)  # a step of all rows, though none of these is named
            loss, gradient = inputs.new_zeros(()), torch.zeros_like(inputs)
        self.shard.summed_together([gradient, loss], "documents")
        return loss, gradient[:, : self.classifier.width]

    def _by_kernel(
        self, z_BD: Tensor, ids_BC: I32, targets_BC: F32, entries: int, rate: float
    ) -> tuple[Tensor, Tensor]:
        from longtail.nn.kernels import grouped_by_row

        adam = self.adam
        factors = adam.factors(rate).array(adam.arrays[0].dtype)
        groups = grouped_by_row(ids_BC.ravel(), adam.slots)
        return self._pass(z_BD, CandidateRows(*adam.arrays, factors, None, groups.rows), groups, targets_BC, entries)

    @torch.no_grad()
    def _by_torch(self, z_BD: Tensor, ids_BC: I32, targets_BC: F32, entries: int, rate: float) -> tuple[Tensor, Tensor]:
        ids = to_device(ids_BC, z_BD.device).long()
        real = ids >= 0
        rows, place = self.adam.named_rows(torch.where(real, ids, ids.max()))
        loss, gradient, row_gradient = loss_and_gradients(
            z_BD, self.adam.table[rows], place, real, targets_BC, 1 / entries, self.compute
        )
        self.adam.update_rows(rows, row_gradient, rate)
        return loss, gradient


def loss_and_gradients(
    z_BD: Tensor,
    rows_UD: Tensor,
    place_BC: Tensor,
    real_BC: Tensor,
    targets_BC: F32,
    share: float,
    compute: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, gradient to documents (B, D) and to rows (U, D), by torch.

    place_BC: the row of each candidate. Padding (`real_BC` False) takes the place of some row that is named anyway,
        and weighs nothing: shapes stay fixed, a GPU need not be asked.
    """
    documents, width = z_BD.shape
    targets = to_device(targets_BC, z_BD.device).to(z_BD.dtype)
    z, weights = (padded(matrix, compute, columns=8) for matrix in (z_BD, rows_UD))
    scores_BU = z @ weights.T
    at = torch.arange(documents, device=z_BD.device)[:, None] * scores_BU.shape[1] + place_BC
    scores = scores_BU.view(-1)[at].to(z_BD.dtype)
    loss = torch.where(real_BC, nn.functional.softplus(scores) - scores * targets, 0).sum() * share
    slope = torch.where(real_BC, scores.sigmoid() - targets, 0) * share
    slope_BU = scores_BU.zero_()
    slope_BU.view(-1).index_add_(0, at.view(-1), slope.to(compute).view(-1))
    to_documents = (slope_BU @ weights)[:documents, :width].to(z_BD.dtype)
    return loss, to_documents, (slope_BU.T @ z)[: len(rows_UD), :width].to(z_BD.dtype)


class CandidateRows(NamedTuple):
    """Rows as the kernel wants them: with moments and Adam's factors to be updated, or with room for their gradients.

    table: (R, D).  named: (U,) int32, those of its rows that are touched.  gradients: (U, D).
    """

    table: NDArray[Any]
    first: NDArray[Any] | None
    second: NDArray[Any] | None
    factors: NDArray[Any] | None
    gradients: NDArray[Any] | None
    named: I32


class CompiledPass:
    """The kernel with its scratch memory, which is kept from step to step."""

    def __init__(self) -> None:
        self._partial: NDArray[np.floating] = np.empty((0, 0, 0), dtype=np.float32)

    def __call__(
        self, z_BD: Tensor, rows: CandidateRows, groups: RowGroups, targets_BC: F32, entries: int
    ) -> tuple[Tensor, Tensor]:
        """Loss and gradient to the documents; `rows` are updated, or get their gradients.

        entries: of which the loss is the mean, those of labels of other processes among them.
        """
        from longtail.nn.kernels import CHUNKS, restricted_step, summed_parts

        z = z_BD.contiguous().numpy()
        share = z.dtype.type(1 / max(entries, 1))
        if self._partial.shape != (CHUNKS, *z.shape) or self._partial.dtype != z.dtype:
            self._partial = np.empty((CHUNKS, *z.shape), dtype=z.dtype)
        losses = np.empty(CHUNKS)
        restricted_step(
            *rows,
            *groups[1:],
            targets_BC.shape[1],
            z,
            targets_BC.ravel(),
            share,
            self._partial,
            losses,
        )
        gradient = torch.empty_like(z_BD)
        summed_parts(self._partial, gradient.numpy())
        return torch.tensor(losses.sum() * float(share), dtype=z_BD.dtype), gradient


def real_ids(candidates: Candidates) -> I32:
    """(B, C): label numbers, -1 wherever the mask says padding."""
    return np.where(candidates.mask, candidates.ids, np.int32(TopK.PAD))


def products_type(like: Tensor) -> torch.dtype:
    return torch.bfloat16 if like.is_cuda else like.dtype
