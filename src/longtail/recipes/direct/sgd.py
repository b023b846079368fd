"""One training step of `direct` whose rows take two bytes a number: bf16, rounded by chance, learnt without moments.

    w_l <- w_l - c s_l sum_b (p_bl - y_bl) x_b / mean |x|^2

c is how far a document moves its own score towards its target (`train.row_rate`, at the highest rate); s_l is 1 for
rare labels, and the smaller, the more documents of a label meet in a batch: 1 / (1 + B n_l / N). So nothing is asked of
the gradients of before, and the sum over documents, not their mean, decides: a row learns as much from a document in a
large batch as in a small one.

Most changes are smaller than the distance of two bf16 numbers. Rounded to the nearest they would be lost; rounded by
chance their mean is right. Chances come from a hash of step, label and column: they do not depend on how labels are cut
into blocks or split over processes, and a training that goes on has the same.

Of text and free vector only the text is kept beside the row: the free vector is what is left. Gradients to texts are
summed up in bf16, too. Texts are made anew from words, some columns at a time (`TokenTexts`). That is 6 bytes a number
with label text and 2 without, where `AllLabels` takes 28 and 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from longtail.nn.batches import COLUMN_MULTIPLE, has_triton
from longtail.nn.encoders import Encoder
from longtail.nn.full import BlockLearner, ReadTable
from longtail.nn.row_tables import RowAdam
from longtail.nn.shards import Shard
from longtail.recipes.direct.objective import AllLabels, ComposedTexts, PaddedTable

_MASK = 0xFFFFFFFF
# Numbers of texts that are made at a time, and words whose vectors are.
_NUMBERS, _WORDS = 3 << 27, 1 << 18
# Columns at a time, at least and in multiples: fewer make sparse products slow.
_FEWEST_COLUMNS = 16


# ---- rounding by chance ----


def random_bits(numbers: Tensor, columns: Tensor, key: int) -> Tensor:
    """(l, C) int64: 32 bits for each label number, (l,), and column, (C,), both int64."""
    bits = ((numbers[:, None] * 0x9E3779B1 + columns) & _MASK) ^ key
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & _MASK
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & _MASK
    return bits ^ (bits >> 16)


def by_chance(values: Tensor, bits: Tensor) -> Tensor:
    """float32 as bf16: one of the two numbers around each, the nearer the likelier.  bits: the lowest 16 count."""
    moved = values.contiguous().view(torch.int32) + (bits & 0xFFFF).int()
    return (moved >> 16).to(torch.int16).view(torch.bfloat16)


def key_of(step: int, use: int) -> int:
    """32 bits for a step; each `use` in it (0 or 1) has its own."""
    bits = (2 * step + use + 0x9E3779B9) & _MASK
    for factor in (0x7FEB352D, 0x846CA68B, 0x7FEB352D):
        bits = ((bits ^ (bits >> 16)) * factor) & _MASK
    return bits ^ (bits >> 16)


# ---- rows ----


class SgdTable(PaddedTable):
    """(L, D + 1) rows of the labels of a shard, the last column the bias; bf16, with zeros around them.

    trust: (L,), the share of its own gradient that a row takes beside its text.  shares: (L,), of the documents that
        have the label.
    texts, sums: (L, D or more) bf16: the part of rows that is text, and gradients to it; None where there is no text.
    """

    def __init__(self, width: int, trust: Tensor, shares: Tensor, shard: Shard, *, text: bool) -> None:
        device, labels = trust.device, len(trust)
        self.width, self.shard = width, shard
        self.trust, self.shares = trust.reshape(-1).contiguous(), shares
        super().__init__(_zeros(labels + -labels % 8, width + 1, device), labels)
        self.texts = _zeros(labels, width, device) if text else None
        self.sums = _zeros(labels, width, device) if text else None
        self.kernels = trust.is_cuda and has_triton()

    @property
    def rows(self) -> Tensor:
        """(L, D + 1), the live numbers."""
        return self._padded[: self.labels, : self.width + 1]

    def block(self, start: int, count: int, compute: torch.dtype) -> Tensor:
        same = compute == torch.bfloat16
        return super().block(start, count, compute) if same else self.rows[start : start + count].to(compute)

    def picked(self, ids: Tensor, compute: torch.dtype) -> Tensor:
        return super().picked(ids, compute) if compute == torch.bfloat16 else self.rows[ids].to(compute)

    def learner(self, step: int, reach: float) -> BlockLearner:
        """Of step 1, 2, ...; `reach`: the c of the formula above."""
        key, size = key_of(step, 0), torch.empty(0)

        def learn(start: int, count: int, slopes: Tensor, x: Tensor, scale: float) -> None:
            nonlocal size
            documents = round(1 / scale)  # the loss is a mean over them
            if not len(size):
                size = reach * documents / x.float().square().sum().reshape(1)
            self.learn(start, count, slopes, x, scale, size=size, key=key, documents=documents)

        return learn

    def learn(
        self,
        start: int,
        count: int,
        slopes: Tensor,
        x: Tensor,
        scale: float,
        *,
        size: Tensor,
        key: int,
        documents: int,
    ) -> None:
        """Rows from `start` on learn from the slopes of their block.  size: (1,), c / mean |x|^2."""
        part = slice(start, start + count)
        trust, shares = self.trust[part], self.shares[part]
        if self.kernels:
            from longtail.recipes.direct.sgd_triton import learn_rows

            learn_rows(
                slopes,
                x,
                self._padded[part],
                None if self.sums is None else self.sums[part],
                trust,
                shares,
                size,
                key=_signed(key),
                scale=scale,
                documents=documents,
                labels=count,
                start=start,
                rank=self.shard.rank,
                processes=self.shard.processes,
                width=self.width,
            )
            return
        gradient = (slopes.T @ x)[:count, : self.width + 1].float()
        bits = random_bits(*self._counters(part, 0, self.width + 1), key)
        pull = size / (1 + documents * shares)
        reach = torch.where(
            torch.arange(self.width + 1, device=x.device) == self.width, pull[:, None], (pull * trust)[:, None]
        )
        self.rows[part] = by_chance(self.rows[part].float() - reach * gradient, bits)
        if self.sums is not None:
            sums = self.sums[part, : self.width]
            sums.copy_(by_chance(sums.float() + scale * gradient[:, : self.width], bits[:, : self.width] >> 16))

    def move(self, start: int, new: Tensor, step: int) -> None:
        """Columns of the texts from `start` on become `new`, (L, C) float32, and rows move as far."""
        assert self.texts is not None
        key, columns = key_of(step, 1), new.shape[1]
        if self.kernels:
            from longtail.recipes.direct.sgd_triton import move_rows

            shard = self.shard
            move_rows(
                self._padded,
                self.texts,
                new.contiguous(),
                key=_signed(key),
                start=start,
                rank=shard.rank,
                processes=shard.processes,
            )
            return
        part = slice(start, start + columns)
        bits = random_bits(*self._counters(slice(0, self.labels), start, columns), key)
        # To the nearest: a text that does not change must not move its row.
        moved = new.bfloat16().float() - self.texts[:, part].float()
        self.rows[:, part] = by_chance(self.rows[:, part].float() + moved, bits)
        self.texts[:, part] = new.bfloat16()

    def _counters(self, part: slice, first: int, columns: int) -> tuple[Tensor, Tensor]:
        device = self._padded.device
        local = torch.arange(part.start, part.stop, device=device)
        return local * self.shard.processes + self.shard.rank, torch.arange(first, first + columns, device=device)

    def state(self) -> dict[str, Tensor]:
        """Live tensors: everything that steps change."""
        found = {"rows": self._padded[: self.labels]}
        if self.texts is not None and self.sums is not None:
            found |= {"text": self.texts, "text_gradient": self.sums}
        return found


def _zeros(rows: int, columns: int, device: torch.device) -> Tensor:
    return torch.zeros(rows, columns + -columns % COLUMN_MULTIPLE, dtype=torch.bfloat16, device=device)


def _signed(bits: int) -> int:
    """32 bits as kernels take them."""
    return bits - (1 << 32) if bits >> 31 else bits


# ---- texts ----


class TokenTexts(ComposedTexts):
    """T = g Z (E M) + g U (P M) for all labels: `TextRows` with nothing of the size of T but T itself.

    Products with M are made on the side of words, of which there are fewer numbers, and the way back begins with
    Z^T times the gradient: gradients of E, M and g all follow from it.  Arguments and fields: see `ComposedTexts`.
    """

    def pieces(self) -> list[slice]:
        """Columns that are made at a time."""
        room = _NUMBERS // max(self.shard.count, len(self.tokens), 1)
        size = max(room - room % _FEWEST_COLUMNS, _FEWEST_COLUMNS)
        return [slice(start, min(start + size, self.width)) for start in range(0, self.width, size)]

    @torch.no_grad()
    def columns(self) -> Iterator[tuple[int, Tensor]]:
        """(first column, (L, C) float32): all columns of T, some at a time."""
        for piece in self.pieces():
            found = self.sums(self._words(piece))
            if self.view is not None:
                found += self._product(self.given, self._turned(self.view.map, piece))
            yield piece.start, found.mul_(self.gain[0])

    def forward(self) -> Tensor:
        """(L, D)"""
        return torch.cat([part for _, part in self.columns()], dim=1)

    @torch.no_grad()
    def teach(self, gradient: Tensor, adam: RowAdam, rate: float) -> None:
        """Token vectors learn from a gradient to T, (L, D or more); those of the others are left at them."""
        several = self.shard.processes > 1
        kind = torch.float32 if several or not gradient.is_cuda else torch.bfloat16
        back = torch.empty(len(self.tokens), self.width, dtype=kind, device=gradient.device)
        for piece in self.pieces():
            back[:, piece] = self.sums.back(gradient[:, piece].float().contiguous())
        of_gain, of_map = gradient.new_zeros(1, dtype=torch.float32), None
        if self.map is not None:
            of_map = torch.zeros_like(self.map)
        for part in self._parts():
            words, theirs = self.table.weight[self.tokens[part]], back[part].float()
            of_gain += (self._turned(words) * theirs).sum()
            if of_map is not None:
                of_map += self._product(words.T, theirs)
        if self.view is not None:
            theirs = self._product(self.given.T, gradient[:, : self.width])
            of_gain += (self._turned(self.view.map) * theirs).sum()
            if of_map is not None:
                of_map += self._product(self.view.map.T, theirs)
            own = self.gain[0] * self._turned_back(theirs)
            self.view.map.grad = own if self.view.map.grad is None else self.view.map.grad + own
        self.gain.grad = of_gain
        if self.map is not None and of_map is not None:
            self.map.grad = self.gain[0] * of_map
        self.shard.summed(back, "label texts")
        factors = adam.factors(rate)
        for part in self._parts():
            adam.change_rows(self.tokens[part], self.gain[0] * self._turned_back(back[part].float()), factors)

    def _parts(self) -> list[slice]:
        return [slice(start, start + _WORDS) for start in range(0, len(self.tokens), _WORDS)]

    def _words(self, piece: slice) -> Tensor:
        """(tokens, C): columns of E M."""
        if self.map is None:
            return self.table.weight[:, piece].index_select(0, self.tokens)
        return torch.cat([self._turned(self.table.weight[self.tokens[part]], piece) for part in self._parts()])

    def _turned(self, vectors: Tensor, piece: slice = slice(None)) -> Tensor:
        return vectors[:, piece] if self.map is None else self._product(vectors, self.map[:, piece])

    def _turned_back(self, gradient: Tensor) -> Tensor:
        return gradient if self.map is None else self._product(gradient, self.map.T)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        return (left.to(self.compute) @ right.to(self.compute)).float()


# ---- the step ----


class SgdLabels(AllLabels):
    """`AllLabels` with rows of two bytes a number.

    shares: (L,) of the documents that have each label, of all labels.
    pace: what the learning rate of a step is multiplied with to be the c of rows.
    """

    table: SgdTable

    def __init__(
        self,
        encoder: Encoder,
        texts: TokenTexts | None,
        *arguments: Any,
        shares: Tensor,
        pace: float,
        **options: Any,
    ) -> None:
        self.pace, self.shares, self.words = pace, shares, texts
        super().__init__(encoder, cast(Any, texts), *arguments, **options)

    def make_rows(self, start: Tensor | None, bias: Tensor, trust: Tensor) -> None:
        shares = self.shard.own(self.shares).contiguous()
        self.table = SgdTable(self.encoder.width, trust, shares, self.shard, text=self.words is not None)
        if start is not None:
            self.table.rows[:, :-1] = start * trust
        self.table.rows[:, -1] = bias

    def final_rows(self) -> Tensor | None:
        self._look_at_texts()
        return self.shard.whole(self.table.rows)

    def state_of_rows(self) -> dict[str, Tensor]:
        return self.table.state()

    def _table(self) -> ReadTable:
        return self.table

    def _learner(self, rate: float) -> BlockLearner:
        return self.table.learner(int(self._count), self.pace * rate)

    def _look_at_texts(self) -> None:
        if self.words is not None:
            for start, new in self.words.columns():
                self.table.move(start, new, int(self._count))

    def _learn_texts(self, rate: float) -> None:
        if self.words is None or self.table.sums is None or int(self._count) % self.text_every:
            return
        self.words.teach(self.table.sums, self.adam.rows_of(self.words.table), rate * self.text_rate)
        self.table.sums.zero_()
