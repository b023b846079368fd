"""One sweep over all labels for one batch: scores, loss and gradients, a block of labels at a time.

What a sweep needs of a loss are its slopes at scores (`Slopes`): in torch, which is the oracle, or by Triton kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from longtail.nn.full.pairs import LossKind, MeanOver, Pairs, Shard
from longtail.nn.full.storage import ROW_MULTIPLE, ReadTable, SplitTable, padded
from longtail.nn.precision import has_triton

# torch: a product, then its sigmoid.  triton: one kernel for both.
Variant = Literal["torch", "triton"]

# Scores of a block. On a CPU it stays in the cache between the three products; a GPU wants large products.
BLOCK_SCORES = {"cpu": 1 << 22, "cuda": 1 << 28}

# Beyond this a sum over all labels minus the positives says nothing about the negatives any more.
_SMALLEST_SHARE = 1e-6

# Called with (first label, number of labels, gradient (number or more, D or more), factor that the gradient needs).
Receiver = Callable[[int, int, Tensor, float], None]


class Sweep:
    """How to go over all labels: which loss, in which precision, by which kernels. Keeps its scratch memory.

    compute: type of the products; None for bf16 on a GPU and float32 on a CPU.  variant: None for what is fastest here.
    mean_over: the loss is the sum over all entries divided by their number, or by that of documents.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        loss: LossKind = "bce",
        mean_over: MeanOver = "entries",
        compute: torch.dtype | None = None,
        variant: Variant | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.loss, self.mean_over, self.shard = loss, mean_over, shard
        self.compute = compute or (torch.bfloat16 if device.type == "cuda" else torch.float32)
        self.variant: Variant = variant or default_variant(device, self.compute)
        if self.variant != "torch" and self.compute != torch.bfloat16:
            raise ValueError(f"the kernels multiply bf16; {self.compute} is for variant torch")
        self.slopes: Slopes = TorchSlopes(self.compute) if self.variant == "torch" else TritonSlopes()
        self._scratch = torch.empty(0, dtype=self.compute, device=device)

    @torch.no_grad()
    def __call__(self, x_BD: Tensor, table: ReadTable, targets: Pairs, receive: Receiver) -> tuple[Tensor, Tensor]:
        """(mean loss, its gradient to x); `receive` is called with the gradient of each block of rows."""
        documents, width = x_BD.shape
        x = padded(x_BD, self.compute, ROW_MULTIPLE)
        scores_P = self.slopes.pair_scores(x, table, targets)
        if self.loss == "bce":
            losses_P, slopes_P = targets.bce(scores_P)
            negatives = torch.empty(0)
            forces = torch.empty(0)
        else:
            negatives = self._negatives(x, documents, table, targets, scores_P)
            losses_P, slopes_P = targets.softmax(scores_P, negatives)
            forces = self._summed(targets.summed(-slopes_P, documents))
        loss = losses_P.sum()
        scale = self._scale(documents, table.labels)
        gradient = torch.zeros(x.shape, dtype=scores_P.dtype, device=x.device)
        for start, count in self._blocks(documents, table.labels):
            rows = table.block(start, count, self.compute)
            slopes = self._slopes_of(len(x), len(rows))
            if self.loss == "bce":
                loss += self.slopes.bce(x, rows, slopes, documents, count)
            else:
                self.slopes.softmax(x, rows, slopes, negatives, forces)
            self.slopes.put(slopes, targets, slopes_P, start, count)
            add_product(gradient, slopes, rows)
            receive(start, count, slopes.T @ x, scale)
        gradient_BD = gradient[:documents, :width].mul_(scale)
        return self._summed(loss) * scale, self._summed(gradient_BD)

    def _negatives(self, x: Tensor, documents: int, table: ReadTable, targets: Pairs, scores_P: Tensor) -> Tensor:
        """(B,): log-sum-exp of the scores of each document's negatives."""
        total = torch.full((documents,), -torch.inf, dtype=scores_P.dtype, device=x.device)
        for start, count in self._blocks(documents, table.labels):
            rows = table.block(start, count, self.compute)
            scratch = self._slopes_of(len(x), len(rows))
            part = self.slopes.log_sum_exp(x, rows, scratch, documents, start, count, targets)
            total = torch.logaddexp(total, part.to(total.dtype))
        total = self.slopes.without_pairs(total, targets, scores_P)
        total = total if self.shard is None else self.shard.log_sum_exp(total)
        return total.clamp_(min=torch.finfo(total.dtype).min / 2)

    def _summed(self, tensor: Tensor) -> Tensor:
        return tensor if self.shard is None else self.shard.summed(tensor.contiguous())

    def _scale(self, documents: int, labels: int) -> float:
        labels = labels if self.shard is None else self.shard.labels
        return 1 / max(documents * (labels if self.mean_over == "entries" else 1), 1)

    def _blocks(self, documents: int, labels: int) -> list[tuple[int, int]]:
        """(first label, number) of blocks of about the same size."""
        most = max(1, BLOCK_SCORES[self._scratch.device.type] // max(documents, 1))
        number = max(1, -(-labels // most))
        width = -(-labels // number)
        width += -width % ROW_MULTIPLE
        return [(start, min(width, labels - start)) for start in range(0, labels, width)]

    def _slopes_of(self, documents: int, labels: int) -> Tensor:
        """(documents, labels) scratch, followed in memory by at least one more number (see `TorchSlopes.put`)."""
        if self._scratch.numel() <= documents * labels:
            self._scratch = torch.empty(documents * labels + 8, dtype=self.compute, device=self._scratch.device)
        return self._scratch[: documents * labels].view(documents, labels)


def add_product(gradient: Tensor, slopes: Tensor, rows: Tensor) -> None:
    """gradient += slopes @ rows, summed in the type of `gradient`."""
    if gradient.dtype == slopes.dtype:
        gradient.addmm_(slopes, rows)
    else:
        gradient.add_(slopes @ rows)


def default_variant(device: torch.device, compute: torch.dtype) -> Variant:
    """The fastest way that works here: kernels are for bf16, on a GPU, where Triton is installed."""
    return "triton" if compute == torch.bfloat16 and device.type == "cuda" and has_triton() else "torch"


class Slopes(Protocol):
    """Slopes of the loss at a block of scores.

    x: (documents or more, D) and rows: (labels or more, D), as products read them; what is more is zero.
    slopes: (len(x), len(rows)), overwritten. Beyond `documents` and `labels` they are any finite numbers: there they
    are multiplied by zeros, or give the gradient of rows that do not exist.
    """

    def pair_scores(self, x: Tensor, table: ReadTable, pairs: Pairs) -> Tensor:
        """(P,) scores of the pairs; anything for pairs of another shard."""
        ...

    def bce(self, x: Tensor, rows: Tensor, slopes: Tensor, documents: int, labels: int) -> Tensor:
        """Slopes as if every pair were a negative; the sum of the losses."""
        ...

    def softmax(self, x: Tensor, rows: Tensor, slopes: Tensor, shift_B: Tensor, scale_B: Tensor) -> None:
        """scale * exp(score - shift)."""
        ...

    def log_sum_exp(
        self, x: Tensor, rows: Tensor, scratch: Tensor, documents: int, start: int, labels: int, pairs: Pairs
    ) -> Tensor:
        """(documents,) of a block's scores, with or without those of the pairs."""
        ...

    def without_pairs(self, total_B: Tensor, pairs: Pairs, scores_P: Tensor) -> Tensor:
        """`total` of all blocks, now without the pairs."""
        ...

    def put(self, slopes: Tensor, pairs: Pairs, values_P: Tensor, start: int, labels: int) -> None:
        """Overwrite the slopes of pairs whose label is among `labels` from `start` on."""
        ...


class TorchSlopes:
    def __init__(self, compute: torch.dtype) -> None:
        self.compute, self.wide = compute, torch.promote_types(compute, torch.float32)

    def pair_scores(self, x: Tensor, table: ReadTable, pairs: Pairs) -> Tensor:
        rows = table.picked(pairs.ids.clamp(min=0), self.compute)
        return (x[pairs.owners].to(self.wide) * rows.to(self.wide)).sum(1)

    def bce(self, x: Tensor, rows: Tensor, slopes: Tensor, documents: int, labels: int) -> Tensor:
        torch.mm(x, rows.T, out=slopes)
        loss = nn.functional.softplus(slopes[:documents, :labels]).sum(dtype=self.wide)
        slopes.sigmoid_()
        return loss

    def softmax(self, x: Tensor, rows: Tensor, slopes: Tensor, shift_B: Tensor, scale_B: Tensor) -> None:
        torch.mm(x, rows.T, out=slopes)
        # Positives may lie above the sum over negatives; they are overwritten, but must not overflow before.
        real = slopes[: len(shift_B)]
        real.copy_((real - shift_B[:, None]).clamp_(max=60).exp_().mul_(scale_B[:, None]))

    def log_sum_exp(
        self, x: Tensor, rows: Tensor, scratch: Tensor, documents: int, start: int, labels: int, pairs: Pairs
    ) -> Tensor:
        """Without the pairs."""
        torch.mm(x, rows.T, out=scratch)
        self.put(scratch, pairs, torch.full_like(pairs.values, -torch.inf), start, labels)
        return torch.logsumexp(scratch[:documents, :labels].to(pairs.values.dtype), dim=1)

    def without_pairs(self, total_B: Tensor, pairs: Pairs, scores_P: Tensor) -> Tensor:
        return total_B

    def put(self, slopes: Tensor, pairs: Pairs, values_P: Tensor, start: int, labels: int) -> None:
        """Pairs of other blocks go to the number behind the block: shapes stay fixed, a GPU is not asked for counts."""
        here = (pairs.ids >= start) & (pairs.ids < start + labels)
        place = torch.where(here, pairs.owners * slopes.shape[1] + pairs.ids - start, slopes.numel())
        slopes.as_strided((slopes.numel() + 1,), (1,)).scatter_(0, place, values_P.to(slopes.dtype))


class TritonSlopes:
    def __init__(self) -> None:
        from longtail.nn.full import triton_kernels

        self.kernels = triton_kernels

    def pair_scores(self, x: Tensor, table: ReadTable, pairs: Pairs) -> Tensor:
        if isinstance(table, SplitTable):
            return self.kernels.pair_scores(x, table.high, pairs.owners, pairs.ids)
        picked = table.picked(pairs.ids.clamp(min=0), torch.bfloat16)
        return self.kernels.pair_scores(x, picked, pairs.owners, torch.arange(len(picked), device=x.device))

    def bce(self, x: Tensor, rows: Tensor, slopes: Tensor, documents: int, labels: int) -> Tensor:
        return self.kernels.bce_slopes(x, rows, slopes, documents, labels)

    def softmax(self, x: Tensor, rows: Tensor, slopes: Tensor, shift_B: Tensor, scale_B: Tensor) -> None:
        self.kernels.softmax_slopes(x, rows, slopes, shift_B, scale_B)

    def log_sum_exp(
        self, x: Tensor, rows: Tensor, scratch: Tensor, documents: int, start: int, labels: int, pairs: Pairs
    ) -> Tensor:
        """With the pairs."""
        return self.kernels.log_sum_exp(x, rows, documents, labels)

    def without_pairs(self, total_B: Tensor, pairs: Pairs, scores_P: Tensor) -> Tensor:
        """By subtraction: where positives have all but a millionth of the sum, negatives keep a millionth."""
        share = torch.where(pairs.ids >= 0, (scores_P - total_B[pairs.owners]).exp(), 0)
        return total_B + (1 - pairs.summed(share, len(total_B))).clamp_(min=_SMALLEST_SHARE).log()

    def put(self, slopes: Tensor, pairs: Pairs, values_P: Tensor, start: int, labels: int) -> None:
        self.kernels.put_pairs(slopes, pairs.owners, pairs.ids, values_P, start, labels)
