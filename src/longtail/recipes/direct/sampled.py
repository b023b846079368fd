"""One training step of `direct` on a CPU: the same loss as `AllLabels` in expectation, by a fraction of the work.

- *Few labels.* A document is scored against a sample of the labels; one with many documents is in it more surely
  (`inclusion`), and a label that was in it by the chance p counts 1 / p times. Each group of documents has a sample of
  its own, so that no label is without its negatives for a whole step. What is known of a document (its labels, masked
  pairs) is always in.
- *Scores of bytes.* Rows and documents are multiplied as bytes with a scale each; a score moves by some hundredths.
- *Few slopes.* Nearly all slopes are tiny. One below `LEAST_SLOPE` is dropped or made that large, by chance, so that
  its mean is right. What is left is a few dozen per document; the two products of the way back, Adam, and the bytes of
  rows are made for these alone. The noise that this adds is a fraction of that of the targets: a slope of p stands for
  a target that is 1 with the chance p, whose variance is p (1 - p).
- *Texts in parts.* A look at the texts is a look at one of `TEXT_PARTS` parts of the labels, in turn. Words are taught
  as often as by looks at all texts, for a fraction of the work.

None of the first three moves the expectation of a gradient, but for what bytes round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.nn.batches import DeviceCsr, TensorBatch, fastest_products
from longtail.nn.blocks import ByteDropout
from longtail.nn.encoders import Encoded, Encoder, GivenView
from longtail.nn.full import Pairs
from longtail.nn.row_tables import AdamFactors, RowAdam, RowTable, bag_sums
from longtail.recipes.direct.objective import (
    BETAS,
    EPSILON,
    AllLabels,
    ComposedRows,
    TextRows,
    array_or_none,
    bits,
)
from longtail.types import F32, I64, Csr

# Slopes below this are dropped or made this large.
LEAST_SLOPE = 0.2
# Into how many parts label texts are cut.
TEXT_PARTS = 4
# The chance of a label to be in a sample grows with this power of its documents.
POWER = 0.5
# Documents that share a sample of labels; products of so few rows are still fast.
GROUP = 128
# Products of a tile: it should stay near the processor until it was looked at.
TILE = 1 << 19
# Random thresholds of a step, besides those of a tile's width; a document begins anywhere among them.
THRESHOLDS = 1 << 16


def inclusion(counts: NDArray[np.float64], expected: float) -> F32:
    """(L,): the chance of each label to be in a sample of `expected` labels in the mean.

    min(1, k sqrt(n + 1)) of labels with n documents; all 1 where there are not more labels than that.
    """
    if expected >= len(counts):
        return np.ones(len(counts), np.float32)
    weights = (np.asarray(counts, np.float64) + 1) ** POWER
    low, high = 0.0, 1 / weights.min()
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if np.minimum(weights * middle, 1).sum() > expected else (middle, high)
    return np.minimum(weights * high, 1).astype(np.float32)


class TextRowsOnCpu(TextRows):
    """`TextRows` without the detour over a table of the tokens that occur: sums read the table of all, and the
    gradient of a token goes into its Adam as soon as it is summed up.
    """

    def __init__(self, table: RowTable, texts: Csr, **options: Any) -> None:
        from longtail.nn.kernels import balanced_edges

        super().__init__(table, texts, **options)
        self.bags = DeviceCsr(texts).rows(np.arange(texts.shape[0]))
        by_token = texts.T.tocsr()
        self.starts = by_token.indptr[np.append(self.tokens.numpy(), texts.shape[1])].astype(np.int64)
        self.edges = balanced_edges(self.starts)
        self.owners, self.values = by_token.indices.astype(np.int32), by_token.data.astype(np.float32)

    def sums_of_vectors(self) -> Tensor:
        return bag_sums(self.table.weight.detach(), self.bags)

    @torch.no_grad()
    def teach(self, gradient_LD: Tensor, adam: RowAdam, rate: float) -> None:
        from longtail.recipes.direct.kernels import learn_tokens

        gradient, factors = self.gradient_to_sums(gradient_LD).bfloat16(), adam.factors(rate).array(np.float32)
        learn_tokens(
            *adam.arrays,
            self.tokens.numpy(),
            self.starts,
            self.edges,
            self.owners,
            self.values,
            bits(gradient),
            factors,
        )


class TextParts(nn.Module):
    """Label texts in parts, label l in part l % parts: `TextRows` each, with one gain and one matrix for all."""

    def __init__(
        self, table: RowTable, texts: Csr, *, view: tuple[GivenView, Tensor] | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.table = table
        self.count = min(TEXT_PARTS, texts.shape[0])
        self.parts = nn.ModuleList(
            TextRowsOnCpu(
                table,
                texts[k :: self.count],
                view=None if view is None else (view[0], view[1][k :: self.count]),
                **options,
            )
            for k in range(self.count)
        )
        for part in self.parts:
            part.gain, part.map = self.parts[0].gain, self.parts[0].map

    def part(self, number: int) -> TextRowsOnCpu:
        found = self.parts[number]
        assert isinstance(found, TextRowsOnCpu)
        return found


class CodedRows(ComposedRows):
    """Composed rows, and their bytes: row ~ scale * codes.  codes: (L, D) int8.  scales: (L,)."""

    def __init__(self, free: Tensor, trust: Tensor, *, text: bool) -> None:
        super().__init__(free, trust, text=text)
        self.codes = torch.zeros(self.labels, self.width, dtype=torch.int8)
        self.scales = torch.zeros(self.labels)
        self.code(np.arange(self.labels))

    def code(self, labels: I64) -> None:
        """Make the bytes of these labels anew."""
        from longtail.recipes.direct.kernels import code_rows

        text = array_or_none(self.text, self.width)
        code_rows(labels, self.free.rows.numpy(), self.trust.numpy(), text, self.codes.numpy(), self.scales.numpy())


class SampledLabels(AllLabels):
    """`AllLabels` against samples of the labels, on a CPU.

    labels_per_step: how many labels a document meets in a step, in the mean.
    text_every: steps between two looks at a part of the texts.
    """

    rows: CodedRows

    def __init__(
        self, encoder: Encoder, texts: TextParts | None, *arguments: Any, labels_per_step: int, **options: Any
    ) -> None:
        with_fast_dropout(encoder)
        super().__init__(encoder, cast(Any, texts), *arguments, **options)
        self.parts = texts
        counts = self.targets.positive_sums()
        self.chances = inclusion(counts, labels_per_step)
        self.sampled = bool((self.chances < 1).any())
        self.log_weights = -np.log(self.chances)
        self.slots = np.zeros(len(counts), np.int32)
        self.fast = fastest_products(self.documents.device)

    def new_rows(self, free: Tensor, trust: Tensor, *, text: bool) -> CodedRows:
        return CodedRows(free, trust, text=text)

    def final_rows(self) -> Tensor:
        self._look_at_parts(range(0 if self.parts is None else self.parts.count))
        return self.rows.rows()

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"codes": self.rows.codes, "scales": self.rows.scales}

    def _part(self) -> int:
        """Whose turn it is."""
        return 0 if self.parts is None else int(self._count) // self.text_every % self.parts.count

    def _look_at_texts(self) -> None:
        """At one part; before the first step at all of them."""
        if self.parts is not None:
            self._look_at_parts([self._part()] if int(self._count) else range(self.parts.count))

    def _look_at_parts(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            assert self.parts is not None
            assert self.rows.text is not None
            labels = np.arange(number, self.rows.labels, self.parts.count)
            self.rows.text[number :: self.parts.count] = self.parts.part(number)()
            self.rows.code(labels)

    def _learn_texts(self, rate: float) -> None:
        summed = self.rows.text_gradient
        if self.parts is None or summed is None or int(self._count) % self.text_every:
            return
        number = self._part()
        part = slice(number, None, self.parts.count)
        adam = self.adam.rows_of(self.parts.table)
        self.parts.part(number).teach(summed[part].contiguous(), adam, rate * self.text_rate)
        summed[part] = 0

    def vectors(self, batch: TensorBatch, documents: int) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.fast == torch.bfloat16):
            encoded: Encoded = self.encoder(batch)
        return encoded.score.float()

    def scored(self, z_BD: Tensor, rows: I64, rng: np.random.Generator, rate: float) -> tuple[Tensor, Tensor]:
        from longtail.nn.kernels import grouped_by_row
        from longtail.recipes.direct import kernels

        table, documents = self.rows, len(rows)
        x = np.ascontiguousarray(z_BD.detach().numpy())
        free, codes, scales = table.free.rows.numpy(), table.codes.numpy(), table.scales.numpy()
        bags = self.targets.rows(rows)
        pairs = Pairs.marked(bags, self.weights)
        pair_starts, pair_ids = bags.starts.numpy(), pairs.ids.numpy()
        scores = np.empty(len(pair_ids), np.float32)
        kernels.pair_scores(x, codes, scales, free, pairs.owners.numpy(), pair_ids, scores)
        scores_P = torch.from_numpy(scores)
        losses_P, slopes_P = pairs.bce(scores_P)
        negatives = self._negatives(x, pair_starts, pair_ids, rng)
        starts = np.zeros(documents + 1, np.int64)
        np.cumsum(negatives.counts + np.diff(pair_starts), out=starts[1:])
        ids, slopes, owners = (np.empty(starts[-1], kind) for kind in (np.int32, np.float32, np.int64))
        kernels.join_lists(
            negatives.ids,
            negatives.slopes,
            negatives.counts,
            pair_starts,
            pair_ids,
            slopes_P.numpy(),
            starts,
            ids,
            slopes,
            owners,
        )
        scale, gradient = np.float32(1 / documents), np.empty_like(x)
        kernels.gradient_to_documents(starts, ids, slopes, codes, scales, scale, gradient)
        factors = AdamFactors.of(int(self._count), rate, BETAS, EPSILON)
        kernels.learn_coded(
            *grouped_by_row(ids, self.slots),
            owners,
            slopes,
            x,
            scale,
            free,
            table.free.first.numpy(),
            table.free.second.numpy(),
            table.trust.numpy(),
            array_or_none(table.text, table.width),
            array_or_none(table.text_gradient, table.width),
            codes,
            scales,
            factors.array(np.float32),
        )
        of_pairs = losses_P + nn.functional.softplus(scores_P)
        loss = (of_pairs.sum(dtype=torch.float64) + negatives.losses.sum()) / documents
        return loss.float(), torch.from_numpy(gradient)

    def _negatives(self, x: F32, pair_starts: I64, pair_ids: I64, rng: np.random.Generator) -> KeptNegatives:
        from longtail.recipes.direct.kernels import code_documents, keep_negatives

        table, documents = self.rows, len(x)
        codes_B, scales_B = np.empty(x.shape, np.int8), np.empty(documents, np.float32)
        code_documents(x, codes_B, scales_B)
        groups = max(1, documents // GROUP) if self.sampled else 1
        edges = np.linspace(0, documents, groups + 1).astype(np.int64)
        samples = [self._sample(rng) for _ in range(groups)]
        tile = max(1, TILE // max(documents // groups, 1))
        chances = 1 - rng.random(THRESHOLDS + tile, dtype=np.float32)
        thresholds = np.log(chances * np.float32(LEAST_SLOPE))
        shifts = rng.integers(THRESHOLDS, size=documents)
        found = KeptNegatives.room_for(documents, max(map(len, samples)))
        offsets = table.free.rows[:, table.width].numpy() + self.log_weights
        for begin, end, sample in zip(edges[:-1].tolist(), edges[1:].tolist(), samples, strict=True):
            part = slice(begin, end)
            for start in range(0, len(sample), tile):
                labels = sample[start : start + tile]
                products = byte_products(
                    torch.from_numpy(codes_B[part]), table.codes.index_select(0, torch.from_numpy(labels))
                )
                keep_negatives(
                    products.numpy(),
                    scales_B[part],
                    labels,
                    table.scales.numpy()[labels],
                    offsets[labels],
                    self.log_weights[labels],
                    thresholds,
                    (shifts[part] + start) % THRESHOLDS,
                    np.float32(LEAST_SLOPE),
                    pair_starts[begin : end + 1],
                    pair_ids,
                    found.ids[part],
                    found.slopes[part],
                    found.counts[part],
                    found.losses[part],
                )
        return found

    def _sample(self, rng: np.random.Generator) -> I64:
        """Labels of one sample, ascending."""
        if not self.sampled:
            return np.arange(len(self.chances))
        return np.flatnonzero(rng.random(len(self.chances), dtype=np.float32) < self.chances)


@dataclass(frozen=True)
class KeptNegatives:
    """Lists of kept negatives, a row for each of n documents, of which the first `counts` are taken.

    ids: (n, M) int32, labels.  slopes: (n, M).  losses: (n,), of all of a document's.
    """

    ids: NDArray[np.int32]
    slopes: F32
    counts: I64
    losses: NDArray[np.float64]

    @staticmethod
    def room_for(documents: int, most: int) -> KeptNegatives:
        """Memory that is not written is not taken: room for all costs nothing."""
        shape = (documents, most)
        return KeptNegatives(
            np.empty(shape, np.int32), np.empty(shape, np.float32), np.zeros(documents, np.int64), np.zeros(documents)
        )


def with_fast_dropout(model: nn.Module) -> None:
    """Every dropout inside becomes one that draws bytes."""
    for name, part in model.named_children():
        if type(part) is nn.Dropout:
            setattr(model, name, ByteDropout(part.p))
        else:
            with_fast_dropout(part)


def byte_products(left: Tensor, right: Tensor) -> Tensor:
    """left right^T of int8, (n, D) and (M, D), as int32."""
    if bytes_are_fast():
        return torch._int_mm(left, right.T)
    return (left.float() @ right.float().T).round().int()


def bytes_are_fast() -> bool:
    """Whether the processor multiplies bytes; float32 gives the same numbers up to 1,040 of them, more slowly."""
    native = getattr(torch.cpu, "_is_vnni_supported", None)
    return native is not None and hasattr(torch, "_int_mm") and bool(native())
