"""Labels that are split over processes: each holds the rows of every G-th label and encodes every G-th part of a batch.

A step sends two things about labels: the vectors of the documents to everybody (`Shard.gathered`), and their gradients,
summed over all labels, back to whoever encoded them (`Shard.scattered`). Rows never travel while it trains. One process
alone is the same with nothing to send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import Bags, TensorBatch
from longtail.types import F32, I32

# torch has renamed these two; the old names warn where the new ones are there.
_collectives: Any = torch.distributed
_all_gather: Any = getattr(_collectives, "all_gather_single", None) or _collectives.all_gather_into_tensor
_reduce_scatter: Any = getattr(_collectives, "reduce_scatter_single", None) or _collectives.reduce_scatter_tensor


@dataclass(frozen=True)
class Shard:
    """Labels `rank`, `rank + processes`, `rank + 2 processes`, ... of `labels`: frequent ones, which often have numbers
    close to each other, are on all processes alike.

    Every process knows all documents, and goes through them in the same order.
    group: the processes; None for the default group.  sent: bytes that this process has sent, by purpose.
    """

    labels: int
    rank: int = 0
    processes: int = 1
    group: Any = None
    sent: Counter[str] = field(default_factory=Counter, compare=False)

    @property
    def count(self) -> int:
        """Labels of this process."""
        return len(range(self.rank, self.labels, self.processes))

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.rank == 0

    def own(self, of_labels: Any) -> Any:
        """Of something with a row for each label, the rows of this process."""
        return of_labels if self.processes == 1 else of_labels[self.rank :: self.processes]

    def places(self, ids: I32) -> I32:
        """Numbers of labels as places among the rows of this process; -1 for labels of others, and at padding."""
        if self.processes == 1:
            return ids
        mine = (ids >= 0) & (ids % self.processes == self.rank)
        return np.where(mine, ids // self.processes, np.int32(-1)).astype(np.int32)

    # ---- documents of a batch ----

    def part(self, documents: int) -> slice:
        """The documents of a batch that this process encodes; none where there are fewer than processes."""
        size = -(-documents // self.processes)
        first = min(self.rank * size, documents)
        return slice(first, min(first + size, documents))

    def part_of(self, batch: TensorBatch, documents: int) -> TensorBatch:
        """The documents of this process, of a batch of so many."""
        return batch if self.processes == 1 else between(batch, self.part(documents))

    def gathered(self, own_bD: Tensor, documents: int, purpose: str) -> Tensor:
        """(B, D) of the whole batch, from what each process has of its part."""
        if self.processes == 1:
            return own_bD
        size = -(-documents // self.processes)
        own = nn.functional.pad(own_bD, (0, 0, 0, size - len(own_bD))).contiguous()
        whole = own.new_empty(size * self.processes, own.shape[1])
        _all_gather(whole, own, group=self.group)
        self.sent[purpose] += (self.processes - 1) * own.nbytes
        return whole[:documents]

    def scattered(self, whole_BD: Tensor, purpose: str) -> Tensor:
        """(b, D): the sum over all processes, of the documents that this process encodes."""
        if self.processes == 1:
            return whole_BD
        documents, part = len(whole_BD), self.part(len(whole_BD))
        size = -(-documents // self.processes)
        padded = nn.functional.pad(whole_BD, (0, 0, 0, size * self.processes - documents)).contiguous()
        own = padded.new_empty(size, padded.shape[1])
        _reduce_scatter(own, padded, group=self.group)
        self.sent[purpose] += (self.processes - 1) * own.nbytes
        return own[: part.stop - part.start]

    # ---- sums ----

    def summed(self, tensor: Tensor, purpose: str) -> Tensor:
        """The sum of `tensor` over all processes, in place."""
        if self.processes > 1:
            torch.distributed.all_reduce(tensor, group=self.group)
            self.sent[purpose] += 2 * (self.processes - 1) * tensor.nbytes // self.processes
        return tensor

    def summed_together(self, tensors: Sequence[Tensor], purpose: str) -> None:
        """Each tensor becomes its sum over all processes; they travel as one."""
        if self.processes > 1:
            flat = self.summed(torch.cat([tensor.reshape(-1).float() for tensor in tensors]), purpose)
            for tensor, total in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def log_sum_exp(self, tensor: Tensor) -> Tensor:
        """log of the sum of exp(tensor) over all processes."""
        if self.processes == 1:
            return tensor
        largest = tensor.clone()
        torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=self.group)
        largest.clamp_(min=torch.finfo(tensor.dtype).min)  # where nobody has anything, -inf - -inf would be no number
        return self.summed((tensor - largest).exp(), "negatives").log() + largest

    # ---- rows ----

    def whole(self, own: Tensor) -> Tensor | None:
        """(labels, ...) in the memory of the first process, from the rows of all; None on the others."""
        if self.processes == 1:
            return own
        most = -(-self.labels // self.processes)
        here = own.new_zeros(most, *own.shape[1:])
        here[: len(own)] = own
        parts = [torch.empty_like(here) for _ in range(self.processes)] if self.first else None
        # Bytes: not every way of sending knows every type of number.
        sent = here.contiguous().view(torch.uint8)
        received = None if parts is None else [part.view(torch.uint8) for part in parts]
        torch.distributed.gather(sent, received, dst=0, group=self.group)
        self.sent["rows"] += 0 if self.first else sent.nbytes
        if parts is None:
            return None
        result = torch.empty(self.labels, *own.shape[1:], dtype=own.dtype)
        for rank, part in enumerate(parts):
            result[rank :: self.processes] = part[: len(range(rank, self.labels, self.processes))].cpu()
        return result

    def whole_array(self, own: F32) -> F32 | None:
        """The same of an array."""
        whole = own if self.processes == 1 else self.whole(torch.from_numpy(own))
        return whole.numpy() if isinstance(whole, Tensor) else whole

    def agreed(self, value: int) -> int:
        """What the first process says."""
        if self.processes == 1:
            return value
        said = torch.tensor([value])
        torch.distributed.broadcast(said, src=0, group=self.group)
        return int(said)

    def said_by_all(self, value: int) -> list[int]:
        """What each process says."""
        if self.processes == 1:
            return [value]
        said = torch.empty(self.processes, dtype=torch.int64)
        _all_gather(said, torch.tensor([value]), group=self.group)
        return said.tolist()


def between(batch: TensorBatch, part: slice) -> TensorBatch:
    """Some documents of a batch, neighbours."""
    bags = batch.sparse
    if bags is not None:
        starts = bags.starts[part.start : part.stop + 1]
        # The bounds are asked for once a step; a GPU's own work goes on meanwhile, because sums need them anyway.
        first, last = int(bags.starts[part.start]), int(bags.starts[part.stop])
        bags = Bags(starts - first, bags.ids[first:last], bags.weights[first:last])
    return TensorBatch(
        bags,
        None if batch.dense is None else batch.dense[part],
        None if batch.tokens is None else batch.tokens[part],
        None if batch.lengths is None else batch.lengths[part],
    )
