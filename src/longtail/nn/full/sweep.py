"""One sweep over all labels for one batch: scores, loss and gradients, a block of labels at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from longtail.nn.full.pairs import LossKind, MeanOver, Pairs
from longtail.nn.full.shards import Shard
from longtail.nn.full.slopes import Slopes, TorchSlopes, TritonSlopes
from longtail.nn.full.tables import ROW_MULTIPLE, ReadTable, padded
from longtail.nn.precision import has_triton

# torch: a product, then its sigmoid. epilogue: a product, then one kernel over the scores. fused: one kernel for both.
Variant = Literal["torch", "epilogue", "fused"]
DEFAULT_VARIANT: dict[str, Variant] = {"cpu": "torch", "cuda": "fused"}

# Scores of a block. On a CPU it stays in the cache between the three products; a GPU wants large products.
BLOCK_SCORES = {"cpu": 1 << 22, "cuda": 1 << 28}
# Into how many products over parts of the labels the gradient of the documents is cut: alone it has too few tiles for
# a large GPU.
PARTS = {"cpu": 1, "cuda": 1}


# Told (first label, number of labels, gradient (number or more, D or more), factor that the gradient still needs).
Receiver = Callable[[int, int, Tensor, float], None]


class Sweep:
    """How to go over all labels: which loss, in which precision, by which kernels. Keeps scratch memory between
    batches.

    compute: type of the products; None for bf16 on a GPU and float32 on a CPU. variant: None for what is fastest here.
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
        self.slopes: Slopes = (
            TorchSlopes(self.compute) if self.variant == "torch" else TritonSlopes(fused=self.variant == "fused")
        )
        self._scratch = torch.empty(0, dtype=self.compute, device=device)

    @torch.no_grad()
    def __call__(
        self, x_BD: Tensor, table: ReadTable, targets: Pairs, receive: Receiver, negatives_count_B: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(mean loss, its gradient to x); `receive` is told the gradient of each block of rows.

        negatives_count_B: how much each document's negatives count, above 0; None for 1. For binary cross-entropy
        only, and in the gradients only: the loss that is told counts all in full.
        """
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
        documents_as_seen_by_rows = x
        if negatives_count_B is not None:
            assert self.loss == "bce", "negatives of a softmax compete, they do not add up"
            # All of a document's slopes are scaled, so those of its pairs are made larger before.
            slopes_P = slopes_P / negatives_count_B[targets.owners]
            documents_as_seen_by_rows = padded(x_BD * negatives_count_B[:, None], self.compute, ROW_MULTIPLE)
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
            receive(start, count, slopes.T @ documents_as_seen_by_rows, scale)
        gradient_BD = gradient[:documents, :width].mul_(scale)
        if negatives_count_B is not None:
            gradient_BD *= negatives_count_B[:, None]
        return self._summed(loss) * scale, self._summed(gradient_BD)

    def _negatives(self, x: Tensor, documents: int, table: ReadTable, targets: Pairs, scores_P: Tensor) -> Tensor:
        """(B,): log-sum-exp of the scores of each document's negatives."""
        total = torch.full((documents,), -torch.inf, dtype=scores_P.dtype, device=x.device)
        for start, count in self._blocks(documents, table.labels):
            rows = table.block(start, count, self.compute)
            part = self.slopes.log_sum_exp(
                x, rows, self._slopes_of(len(x), len(rows)), documents, start, count, targets
            )
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
        return
    parts = PARTS[slopes.device.type]
    if parts == 1 or len(rows) % parts:
        gradient.add_(slopes @ rows)
        return
    by_part = torch.bmm(slopes.view(len(slopes), parts, -1).transpose(0, 1), rows.view(parts, -1, rows.shape[1]))
    gradient.add_(by_part.sum(0, dtype=gradient.dtype))


def default_variant(device: torch.device, compute: torch.dtype) -> Variant:
    """The fastest way that works here: kernels are for bf16, on a GPU, where Triton is installed."""
    return (
        DEFAULT_VARIANT[device.type]
        if compute == torch.bfloat16 and device.type == "cuda" and has_triton()
        else "torch"
    )
