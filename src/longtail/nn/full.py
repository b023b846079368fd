"""Training against all labels at once, block of labels by block; (B, L) scores never exist.

In reading order: the pairs of a batch that are not plain negatives (`Pairs`), rows as products read them and with their
Adam, one pass over the labels (`Sweep`), the slopes of losses at scores in torch, which is the oracle, or by Triton
kernels (`Slopes`), and what trainers use: `FullRows` for free rows, `full_loss` for rows that are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from longtail.nn.batches import Bags, has_triton, padded
from longtail.nn.row_tables import AdamFactors, adam_by_torch, with_gradients
from longtail.nn.shards import Shard

LossKind = Literal["bce", "softmax"]
MeanOver = Literal["entries", "documents"]
# torch: a product, then its sigmoid.  triton: one kernel for both.
Variant = Literal["torch", "triton"]

# Tiles of Triton's kernels are so many documents or labels wide.
ROW_MULTIPLE = 128

# Scores of a block. On a CPU it stays in the cache between the three products; a GPU wants large products.
BLOCK_SCORES = {"cpu": 1 << 22, "cuda": 1 << 28}

# Beyond this a sum over all labels minus the positives says nothing about the negatives any more.
_SMALLEST_SHARE = 1e-6

# Called with (first label, number of labels, gradient (number or more, D or more), factor that the gradient needs).
Receiver = Callable[[int, int, Tensor, float], None]
# Called with (first label, number of labels, slopes (B or more, number or more), documents (B or more, D or more),
# factor): the gradient of the rows is slopes^T documents, times the factor.
BlockLearner = Callable[[int, int, Tensor, Tensor, float], None]


def by_gradient(receive: Receiver) -> BlockLearner:
    """Makes the gradient of a block, for whoever wants it whole."""
    return lambda start, count, slopes, x, scale: receive(start, count, slopes.T @ x, scale)


@dataclass(frozen=True)
class Pairs:
    """Positives and masked pairs of B documents.

    owners: (P,) int64, the document.
    ids: (P,) int64, the row of the label.
    values: (P,) target, 1 or softer.  weights: (P,) how much the positive part of the loss counts.
    hidden: (P,) how much less than a negative it counts: 0 a plain pair, 1 neither positive nor negative.
    """

    owners: Tensor
    ids: Tensor
    values: Tensor
    weights: Tensor
    hidden: Tensor

    @staticmethod
    def of(targets: Bags, masked: Bags | None, label_weights: Tensor | None, dtype: torch.dtype) -> Pairs:
        """No pair may occur twice.  label_weights: (L,), or None for 1."""
        owners, ids, values = targets.owners, targets.ids.long(), targets.weights.to(dtype)
        hidden = torch.zeros_like(values)
        if masked is not None and len(masked.ids):
            owners, ids = torch.cat([owners, masked.owners]), torch.cat([ids, masked.ids.long()])
            values = nn.functional.pad(values, (0, len(masked.ids)))
            hidden = nn.functional.pad(hidden, (0, len(masked.ids)), value=1.0)
        weights = torch.ones_like(values) if label_weights is None else label_weights.to(dtype)[ids]
        return Pairs(owners, ids, values, weights, hidden)

    @staticmethod
    def marked(bags: Bags, label_weights: Tensor | None) -> Pairs:
        """Targets and masked pairs of each document in one bag: a negative weight, -1 at most, says how much of the
        pair is hidden.
        """
        ids = bags.ids.long()
        weights = torch.ones_like(bags.weights) if label_weights is None else label_weights[ids]
        return Pairs(bags.owners, ids, bags.weights.clamp(min=0), weights, (-bags.weights).clamp(min=0))

    def bce(self, scores_P: Tensor) -> tuple[Tensor, Tensor]:
        """(loss beyond that of a negative, slope) per pair for w t softplus(-s) + (1 - t) softplus(s).

        A hidden pair's loss beyond that of a negative takes back what is hidden of the negative's.
        """
        as_negative, chance = nn.functional.softplus(scores_P), scores_P.sigmoid()
        extra = self.values * ((self.weights - 1) * as_negative - self.weights * scores_P)
        slope = chance + self.values * ((self.weights - 1) * chance - self.weights)
        hides = self.hidden > 0
        loss = torch.where(hides, -self.hidden * as_negative, extra)
        return loss, torch.where(hides, (1 - self.hidden) * chance, slope)

    def softmax(self, scores_P: Tensor, negatives_B: Tensor) -> tuple[Tensor, Tensor]:
        """(loss, slope) per pair of w t softplus(n - s), n being the log-sum-exp over the document's negatives.

        A positive competes with all negatives and with no other positive. Paper: DEXML, decoupled softmax.
        """
        distance = negatives_B[self.owners] - scores_P
        share = torch.where(self.hidden == 0, self.values * self.weights, 0)
        return share * nn.functional.softplus(distance), -share * distance.sigmoid()

    def summed(self, values_P: Tensor, documents: int) -> Tensor:
        """(B,): the sum over the pairs of each document."""
        return values_P.new_zeros(documents).index_add_(0, self.owners, values_P)


class ReadTable(Protocol):
    """(L, D) rows, as a sweep reads them."""

    @property
    def labels(self) -> int: ...

    def block(self, start: int, count: int, compute: torch.dtype) -> Tensor:
        """(count or more, D or more) rows from `start` on, for products of type `compute`; what is more is zero."""
        ...

    def picked(self, ids: Tensor, compute: torch.dtype) -> Tensor:
        """(P, D or more) rows at `ids`."""
        ...


class FixedTable:
    """Rows that are only read: their gradients go elsewhere."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.labels = rows.detach(), len(rows)

    def block(self, start: int, count: int, compute: torch.dtype) -> Tensor:
        return padded(self.rows[start : start + count], compute)

    def picked(self, ids: Tensor, compute: torch.dtype) -> Tensor:
        return padded(self.rows[ids], compute, 1)


class Float32Table(FixedTable):
    """The given rows are updated in place."""

    def __init__(self, rows: Tensor, *, kernels: bool | None = None) -> None:
        """kernels: update with Triton, else with numba on a CPU and torch elsewhere; None: what is fastest here."""
        super().__init__(rows)
        wanted = rows.is_cuda and has_triton() if kernels is None else kernels
        self.kernels = wanted and rows.dtype == torch.float32 and rows.is_contiguous()
        self.first, self.second = self._moments()

    def _moments(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self.rows), torch.zeros_like(self.rows)

    def update(self, start: int, count: int, gradient: Tensor, scale: float, factors: AdamFactors) -> None:
        """Adam on the rows from `start` on; gradient: of the shape of `block`, to be multiplied by `scale`."""
        part = slice(start, start + count)
        rows, first, second = self.rows[part], self.first[part], self.second[part]
        gradient = gradient[:count, : rows.shape[1]]
        if self.kernels:
            from longtail.nn.triton_kernels import adam_float32

            adam_float32(rows, first, second, gradient, scale, factors)
        elif rows.device.type == "cpu":
            from longtail.nn.kernels import adam_block

            numbers, kind = gradient.to(rows.dtype).numpy(), rows.numpy().dtype
            adam_block(rows.numpy(), first.numpy(), second.numpy(), numbers, kind.type(scale), factors.array(kind))
        else:
            adam_by_torch(rows, first, second, gradient.to(rows.dtype).mul(scale), factors)

    def state(self) -> dict[str, Tensor]:
        """Live tensors: everything that updates change."""
        return {"rows": self.rows, "first": self.first, "second": self.second}


class Sweep:
    """How to go over all labels: which loss, in which precision, by which kernels. Keeps its memory, `scratch`.

    compute: type of the products; None for bf16 on a GPU and float32 on a CPU.  variant: None for what is fastest here.
    mean_over: the loss is the sum over all entries divided by their number, or by that of documents.
    shard: which labels the rows are, where labels are split over processes.
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
        self.slopes = Slopes(self.compute) if self.variant == "torch" else TritonSlopes()
        self.scratch = torch.empty(0, dtype=self.compute, device=device)

    @torch.no_grad()
    def __call__(
        self, x_BD: Tensor, table: ReadTable, targets: Pairs, learn: BlockLearner, *, batch: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """(mean loss, its gradient to x); `learn` is called with the slopes of each block of rows, which it may change.

        batch: documents of the whole batch, where x are those of this process.  targets: of all of them, of the
        labels of this process; the loss is that of these labels, to be summed.
        """
        width = x_BD.shape[1]
        x_BD = x_BD if self.shard is None else self.shard.gathered(x_BD, batch or len(x_BD), "documents")
        documents = len(x_BD)
        x = padded(x_BD, self.compute, ROW_MULTIPLE)
        scores_P = self.slopes.pair_scores(x, table, targets)
        if self.loss == "bce":
            losses_P, slopes_P = targets.bce(scores_P)
            negatives = torch.empty(0)
            forces = torch.empty(0)
        else:
            negatives = self._negatives(x, documents, table, targets, scores_P)
            losses_P, slopes_P = targets.softmax(scores_P, negatives)
            forces = targets.summed(-slopes_P, documents)
            forces = forces if self.shard is None else self.shard.summed(forces, "negatives")
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
            learn(start, count, slopes, x, scale)
        gradient_BD = gradient[:documents, :width].mul_(scale)
        return loss * scale, gradient_BD if self.shard is None else self.shard.scattered(gradient_BD, "gradients")

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

    def _scale(self, documents: int, labels: int) -> float:
        labels = labels if self.shard is None else self.shard.labels
        return 1 / max(documents * (labels if self.mean_over == "entries" else 1), 1)

    def _blocks(self, documents: int, labels: int) -> list[tuple[int, int]]:
        """(first label, number) of blocks of about the same size; none where there are no labels."""
        most = max(1, BLOCK_SCORES[self.scratch.device.type] // max(documents, 1))
        number = max(1, -(-labels // most))
        width = -(-labels // number)
        width += -width % ROW_MULTIPLE
        return [(start, min(width, labels - start)) for start in range(0, labels, max(width, 1))]

    def _slopes_of(self, documents: int, labels: int) -> Tensor:
        """(documents, labels) scratch, followed in memory by at least one more number (see `Slopes.put`)."""
        if self.scratch.numel() <= documents * labels:
            self.scratch = torch.empty(documents * labels + 8, dtype=self.compute, device=self.scratch.device)
        return self.scratch[: documents * labels].view(documents, labels)


def add_product(gradient: Tensor, slopes: Tensor, rows: Tensor) -> None:
    """gradient += slopes @ rows, summed in the type of `gradient`."""
    if gradient.dtype == slopes.dtype:
        gradient.addmm_(slopes, rows)
    else:
        gradient.add_(slopes @ rows)


def default_variant(device: torch.device, compute: torch.dtype) -> Variant:
    """The fastest way that works here: kernels are for bf16, on a GPU, where Triton is installed."""
    return "triton" if compute == torch.bfloat16 and device.type == "cuda" and has_triton() else "torch"


class Slopes:
    """Slopes of the loss at a block of scores, by torch.

    x: (documents or more, D) and rows: (labels or more, D), as products read them; what is more is zero.
    slopes: (len(x), len(rows)), overwritten. Beyond `documents` and `labels` they are any finite numbers: there they
    are multiplied by zeros, or give the gradient of rows that do not exist.
    """

    def __init__(self, compute: torch.dtype) -> None:
        self.compute, self.wide = compute, torch.promote_types(compute, torch.float32)

    def pair_scores(self, x: Tensor, table: ReadTable, pairs: Pairs) -> Tensor:
        """(P,) scores of the pairs."""
        rows = table.picked(pairs.ids, self.compute)
        return (x[pairs.owners].to(self.wide) * rows.to(self.wide)).sum(1)

    def bce(self, x: Tensor, rows: Tensor, slopes: Tensor, documents: int, labels: int) -> Tensor:
        """Slopes as if every pair were a negative; the sum of the losses."""
        torch.mm(x, rows.T, out=slopes)
        loss = nn.functional.softplus(slopes[:documents, :labels]).sum(dtype=self.wide)
        slopes.sigmoid_()
        return loss

    def softmax(self, x: Tensor, rows: Tensor, slopes: Tensor, shift_B: Tensor, scale_B: Tensor) -> None:
        """scale * exp(score - shift)."""
        torch.mm(x, rows.T, out=slopes)
        # Positives may lie above the sum over negatives; they are overwritten, but must not overflow before.
        real = slopes[: len(shift_B)]
        real.copy_((real - shift_B[:, None]).clamp_(max=60).exp_().mul_(scale_B[:, None]))

    def log_sum_exp(
        self, x: Tensor, rows: Tensor, scratch: Tensor, documents: int, start: int, labels: int, pairs: Pairs
    ) -> Tensor:
        """(documents,) of a block's scores, with or without those of the pairs: here without."""
        torch.mm(x, rows.T, out=scratch)
        self.put(scratch, pairs, torch.full_like(pairs.values, -torch.inf), start, labels)
        return torch.logsumexp(scratch[:documents, :labels].to(pairs.values.dtype), dim=1)

    def without_pairs(self, total_B: Tensor, pairs: Pairs, scores_P: Tensor) -> Tensor:
        """`total` of all blocks, now without the pairs."""
        return total_B

    def put(self, slopes: Tensor, pairs: Pairs, values_P: Tensor, start: int, labels: int) -> None:
        """Overwrite the slopes of pairs whose label is among `labels` from `start` on.

        Pairs of other blocks go to the number behind the block: shapes stay fixed, a GPU is not asked for counts.
        """
        here = (pairs.ids >= start) & (pairs.ids < start + labels)
        place = torch.where(here, pairs.owners * slopes.shape[1] + pairs.ids - start, slopes.numel())
        slopes.as_strided((slopes.numel() + 1,), (1,)).scatter_(0, place, values_P.to(slopes.dtype))


class TritonSlopes(Slopes):
    """The same by Triton kernels, on a GPU."""

    def __init__(self) -> None:
        super().__init__(torch.bfloat16)
        from longtail.nn import triton_kernels

        self.kernels = triton_kernels

    def pair_scores(self, x: Tensor, table: ReadTable, pairs: Pairs) -> Tensor:
        picked = table.picked(pairs.ids, torch.bfloat16)
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
        share = (scores_P - total_B[pairs.owners]).exp()
        return total_B + (1 - pairs.summed(share, len(total_B))).clamp_(min=_SMALLEST_SHARE).log()

    def put(self, slopes: Tensor, pairs: Pairs, values_P: Tensor, start: int, labels: int) -> None:
        self.kernels.put_pairs(slopes, pairs.owners, pairs.ids, values_P, start, labels)


class FullRows:
    """(L, D) float32 classifier rows with their Adam, updated in place. A step scores a batch against all L labels.

    compute: type of the products; by default bf16 on a GPU and float32 on a CPU.
    mean_over: "entries": mean over all B x L entries; "documents": mean over documents of the sum over labels.
        Adam cares through `epsilon` alone.
    shard: which labels `rows` are when labels are split over processes. A step is then given the documents of this
        process (`Shard.part`), and targets of the whole batch, of the labels of this process.
    """

    def __init__(
        self,
        rows: Tensor,
        *,
        loss: LossKind = "bce",
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        mean_over: MeanOver = "entries",
        compute: torch.dtype | None = None,
        variant: Variant | None = None,
        shard: Shard | None = None,
    ) -> None:
        if shard is not None and shard.count != len(rows):
            raise ValueError(f"{len(rows)} rows for a shard of {shard.count} labels")
        self.betas, self.epsilon, self.shard = betas, epsilon, shard
        self.sweep = Sweep(rows.device, loss=loss, mean_over=mean_over, compute=compute, variant=variant, shard=shard)
        self.table = Float32Table(rows, kernels=self.sweep.variant == "triton")
        self.count = torch.zeros((), dtype=torch.int64)

    @property
    def rows(self) -> Tensor:
        """(L, D), the live tensor."""
        return self.table.rows

    def step(self, x_BD: Tensor, targets: Bags, rate: float, masked: Bags | None = None) -> tuple[Tensor, Tensor]:
        """(loss, gradient of the loss to x): a scalar and (B, D). Updates the rows.

        targets: the labels of each document, weights being target values (1 or softer). masked: labels of each
        document that are neither right nor wrong. No label may occur twice in a document.
        """
        self.count += 1
        factors = AdamFactors.of(int(self.count), rate, self.betas, self.epsilon)

        def receive(start: int, count: int, gradient: Tensor, scale: float) -> None:
            self.table.update(start, count, gradient, scale, factors)

        x = x_BD.detach()
        pairs = Pairs.of(targets, masked, None, _wide(x))
        loss, gradient_BD = self.sweep(x, self.table, pairs, by_gradient(receive), batch=len(targets))
        return loss if self.shard is None else self.shard.summed(loss, "loss"), gradient_BD

    def state(self) -> dict[str, Tensor]:
        """Live tensors: everything that steps change."""
        return self.table.state() | {"count": self.count}


def full_gradients(
    x_BD: Tensor,
    rows_LD: Tensor,
    targets: Bags,
    *,
    masked: Bags | None = None,
    weights: Tensor | None = None,
    loss: LossKind = "bce",
    mean_over: MeanOver = "entries",
    compute: torch.dtype | None = None,
    variant: Variant | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, gradient to x, gradient to the rows): for rows that are computed, whose gradient goes on through autograd.

    All as in `FullRows`, but that rows are not updated: a scalar, (B, D) and (L, D).
    """
    sweep = Sweep(x_BD.device, loss=loss, mean_over=mean_over, compute=compute, variant=variant)
    x, gradient_LD = x_BD.detach(), torch.empty_like(rows_LD)

    def receive(start: int, count: int, gradient: Tensor, scale: float) -> None:
        torch.mul(gradient[:count, : rows_LD.shape[1]].to(rows_LD.dtype), scale, out=gradient_LD[start : start + count])

    pairs = Pairs.of(targets, masked, weights, _wide(x))
    mean, gradient_BD = sweep(x, FixedTable(rows_LD), pairs, by_gradient(receive))
    return mean, gradient_BD, gradient_LD


def full_loss(
    x_BD: Tensor,
    rows_LD: Tensor,
    targets: Bags,
    *,
    masked: Bags | None = None,
    loss: LossKind,
    mean_over: MeanOver = "documents",
    compute: torch.dtype | None = None,
) -> Tensor:
    """The mean loss of `full_gradients` as a value that gradients flow through, to documents and rows."""
    options: dict[str, Any] = {"masked": masked, "loss": loss, "mean_over": mean_over, "compute": compute}
    return with_gradients(lambda: full_gradients(x_BD, rows_LD.detach(), targets, **options), x_BD, rows_LD)


def _wide(x: Tensor) -> torch.dtype:
    """The type of losses and slopes of single pairs."""
    return torch.promote_types(x.dtype, torch.float32)
