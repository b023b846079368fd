"""What a recorded step reads, in fixed shapes (`recorded`).

Batches have room for more entries than most of them have; what is left over counts for nothing. Words of a batch are
grouped on its device, those of label texts once for all steps; kernels are those of `recorded_triton`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from longtail.nn.batches import Bags, DeviceCsr, TensorBatch, to_tensor
from longtail.nn.row_tables import AdamFactors, RowAdam
from longtail.recipes.direct.objective import BETAS, EPSILON, AllLabels, TextRows
from longtail.types import I64, Csr

if TYPE_CHECKING:
    from longtail.nn.triton_kernels import FactorsThere

# Names no row of any table.
_NONE = 2**31 - 1
# Of how many standard deviations more entries than the average a batch has room for.
_SPREADS = 6.0
# A word of more label texts than this is summed up in pieces: one bag of thousands would hold up all others.
_LONG, _PIECE = 128, 64


@dataclass(frozen=True)
class Sources:
    """Rows of a table that learn, and from which rows of a gradient: sums over bags.

    rows: (U,), `_NONE` where there is none.  starts: (U + 1,).  ids: (P,) rows of the gradient.
    weights: (P,); None where they are those of a batch.  order: (P,) then, the entries of the batch in this order.
    """

    rows: Tensor
    starts: Tensor
    ids: Tensor
    weights: Tensor | None = None
    order: Tensor | None = None

    def learn(self, adam: RowAdam, gradient: Tensor, factors: FactorsThere, weights: Tensor | None = None) -> None:
        """weights: of the batch, entry by entry."""
        from longtail.recipes.direct import recorded_triton

        own = self.weights if weights is None else weights[self.order]
        assert own is not None, "entries have weights"
        bags = (self.starts, self.ids, own)
        recorded_triton.learn_rows(adam.table, adam.first, adam.second, self.rows, bags, gradient, factors)


@dataclass(frozen=True, kw_only=True)
class RoomyBags(Bags):
    """Bags with room for more entries than they have; those count for nothing.

    owned: (P,) the bag of every entry, some bag where there is none.  words: which words the entries are, grouped.
    """

    owned: Tensor
    words: Sources | None = None

    @cached_property
    def owners(self) -> Tensor:
        return self.owned

    def sums(self, table: Tensor) -> Tensor:
        from longtail.recipes.direct import recorded_triton

        return recorded_triton.bag_sums(table, self.starts, self.ids, self.weights)


def room_for(matrix: DeviceCsr, batch: int) -> int:
    """Entries of a batch of so many rows, at most, but for one batch in many millions."""
    lengths = np.diff(matrix.starts)
    likely = batch * lengths.mean() + _SPREADS * lengths.std() * batch**0.5
    room = min(int(likely), int(np.sort(lengths)[-batch:].sum()))
    return room + -room % 128 or 128


def taken(matrix: DeviceCsr, starts: Tensor, begin: Tensor, room: int, nothing: int) -> RoomyBags:
    """The rows of a batch, (B,), as `DeviceCsr.bounds` says where they are.  nothing: the id where no entry is."""
    place = torch.arange(room, dtype=starts.dtype, device=starts.device)
    owners = torch.searchsorted(starts, place, right=True) - 1
    real = owners < len(begin)
    owners = owners.clamp(max=len(begin) - 1)
    at = torch.where(real, place + (begin - starts[:-1])[owners], 0)
    ids = torch.where(real, matrix.ids[at], nothing)
    return RoomyBags(starts, ids, torch.where(real, matrix.weights[at], 0.0), owned=owners)


def grouped(bags: RoomyBags) -> Sources:
    """The words of a batch, ascending, each with its documents; entries with `_NONE` are none."""
    count = len(bags.ids)
    found, order = bags.ids.sort(stable=True)
    first = torch.ones_like(found, dtype=torch.bool)
    first[1:] = found[1:] != found[:-1]
    slot = torch.where(first, first.cumsum(0) - 1, count + 1)
    places = torch.arange(count, dtype=torch.int32, device=found.device)
    starts = torch.full((count + 2,), count, dtype=torch.int32, device=found.device).scatter_(0, slot, places)[:-1]
    rows = torch.where(starts[:-1] < count, found[starts[:-1].clamp(max=count - 1)], _NONE)
    return Sources(rows, starts, bags.owned[order].int(), order=order)


@dataclass(frozen=True)
class TextPlan:
    """Sums over the words of label texts, and the way back.

    forth: (starts, ids, weights) of every label.  short: words that few labels have.  pieces, long: words that many
    have: bags of at most `_PIECE` labels each, and which of them belong to a word; None: there are no such words.
    """

    forth: tuple[Tensor, Tensor, Tensor]
    short: Sources
    pieces: tuple[Tensor, Tensor, Tensor] | None
    long: Sources | None

    @staticmethod
    def of(texts: TextRows) -> TextPlan:
        device, tokens = texts.tokens.device, texts.tokens.cpu().numpy()

        def there(*arrays: Any) -> tuple[Tensor, ...]:
            """Row numbers and positions in 32 bits."""
            kinds = (np.float32 if array.dtype.kind == "f" else np.int32 for array in arrays)
            return tuple(to_tensor(array.astype(kind), device) for array, kind in zip(arrays, kinds, strict=True))

        entries: Csr = texts.read.entries
        forth = there(entries.indptr, tokens[entries.indices], entries.data)
        back = entries.T.tocsr()
        counts = np.diff(back.indptr)
        # Those with most to do first.
        order = np.argsort(-counts, kind="stable")
        many, few = order[counts[order] > _LONG], order[counts[order] <= _LONG]
        part = back[few]
        short = Sources(*there(tokens[few], part.indptr, part.indices, part.data))
        if not len(many):
            return TextPlan((forth[0], forth[1], forth[2]), short, None, None)
        part = back[many]
        numbers = -(-np.diff(part.indptr) // _PIECE)
        ends = np.cumsum(numbers)
        within = np.arange(ends[-1]) - np.repeat(ends - numbers, numbers)
        starts = np.append(np.repeat(part.indptr[:-1], numbers) + _PIECE * within, part.nnz)
        pieces = there(starts, part.indices, part.data)
        whole = there(tokens[many], np.append(0, ends), np.arange(ends[-1]), np.ones(ends[-1], np.float32))
        return TextPlan((forth[0], forth[1], forth[2]), short, (pieces[0], pieces[1], pieces[2]), Sources(*whole))

    def look(self, texts: TextRows) -> None:
        """`TextRows.plain` becomes the sums of the words' vectors."""
        from longtail.recipes.direct import recorded_triton

        recorded_triton.bag_sums(texts.table.weight.detach(), *self.forth, out=texts.plain)

    def teach(self, adam: RowAdam, gradient: Tensor, factors: FactorsThere) -> None:
        """Words learn from a gradient to their sums, float32 or bf16."""
        from longtail.recipes.direct import recorded_triton

        if self.pieces is not None and self.long is not None:
            self.long.learn(adam, recorded_triton.bag_sums(gradient, *self.pieces), factors)
        self.short.learn(adam, gradient, factors)


class FixedInputs:
    """What is sent to the GPU in each step of a batch of so many documents: one array of 32-bit numbers.

    Four places for the rate and the spread of each `AdamFactors` (groups of 16 bytes); of the documents' words and of
    their targets where they start and begin (`DeviceCsr.bounds`); and the documents' own numbers.
    """

    def __init__(self, one: AllLabels, documents: int, factors: int) -> None:
        self.matrices = [matrix for matrix in (one.documents.sparse, one.targets) if matrix is not None]
        self.rooms = [room_for(matrix, documents) for matrix in self.matrices]
        self.dense, self.documents = one.documents.dense, documents
        self.sizes = [4 * factors, *[documents + 1, documents] * len(self.matrices), documents]
        self.there = torch.zeros(sum(self.sizes), dtype=torch.int32, device=one.documents.device)

    def positions(self, rows: I64) -> list[I64] | None:
        """To be sent; None if the batch has more entries than there is room for, or none at all."""
        pieces = []
        for matrix, room in zip(self.matrices, self.rooms, strict=True):
            starts, begin = matrix.bounds(rows)
            if not 0 < starts[-1] <= room:
                return None
            pieces += [starts, begin]
        return [*pieces, rows]

    def send(self, positions: Sequence[I64], factors: Sequence[AdamFactors]) -> None:
        numbers = np.zeros((len(factors), 4), np.float32)
        numbers[:, :2] = [(each.rate, each.spread) for each in factors]
        array = np.concatenate([numbers.reshape(-1).view(np.int32), *(piece.astype(np.int32) for piece in positions)])
        host = torch.from_numpy(array)
        self.there.copy_(host.pin_memory() if self.there.is_cuda else host, non_blocking=True)

    def batch(self) -> tuple[TensorBatch, Bags, list[FactorsThere]]:
        """The documents, their targets, and Adam's factors, made of what was sent."""
        from longtail.nn.triton_kernels import FactorsThere

        numbers, *pieces, rows = torch.split(self.there, self.sizes)
        # A word that is none, and a label: kernels leave both alone.
        nothing = [_NONE] * (len(self.matrices) - 1) + [-1]
        *words, targets = [
            taken(matrix, pieces[2 * at], pieces[2 * at + 1], self.rooms[at], nothing[at])
            for at, matrix in enumerate(self.matrices)
        ]
        sparse = replace(words[0], words=grouped(words[0])) if words else None
        dense = None if self.dense is None else self.dense[rows]
        same = AdamFactors.of(1, 0.0, BETAS, EPSILON)
        factors = [
            FactorsThere(*same[:4], each[0:1], each[1:2], EPSILON) for each in numbers.view(torch.float32).view(-1, 4)
        ]
        return TensorBatch(sparse, dense), targets, factors
