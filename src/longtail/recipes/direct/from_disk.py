"""Documents that are on the disk, as a training of `direct` asks for them: batch by batch.

What a batch is trained towards is made when it is drawn, by the same steps as for all documents in memory: soft targets
by the label graph, masked pairs. What a training begins with (the first bias, and how often labels are drawn where they
are sampled) follows from the sample of documents that is in memory (`TrainingSet`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data.mapped import DocumentsOnDisk
from longtail.nn.batches import Bags, DeviceCsr, Documents, TensorBatch, to_device
from longtail.nn.shards import Shard
from longtail.recipes.direct.objective import bias_of, marked_targets
from longtail.training.prepare import TrainingSet
from longtail.types import I64, Csr

_BLOCK = 4096
# (N, L) targets and masked pairs of the documents of a training set.
TargetsOf = Callable[[TrainingSet], tuple[Csr, Csr]]


class DiskDocuments(Documents):
    """All documents, given out by row; in the order of `DocumentsOnDisk.order` the disk is read in long pieces."""

    def __init__(self, everything: DocumentsOnDisk, device: torch.device | str) -> None:
        self.device, self._everything = torch.device(device), everything

    def __len__(self) -> int:
        return len(self._everything)

    def order(self, rng: np.random.Generator) -> Any:
        return self._everything.order(rng)

    def rows(self, index: I64) -> TensorBatch:
        starts, ids, weights = (to_device(piece, self.device) for piece in self._everything.pieces("features", index))
        return TensorBatch(Bags(starts, ids, weights))


class DiskTargets(DeviceCsr):
    """What all documents are trained towards, given out by row.

    data: the sample, and everything.  targets_of: what the recipe makes of some of the documents.
    first_bias: see `objective.first_bias`, of the sample.
    """

    def __init__(self, data: TrainingSet, targets_of: TargetsOf, device: torch.device | str, shard: Shard) -> None:
        assert data.everything is not None, "the documents are on the disk"
        self.columns, self.device, self._shard = shard.count, device, shard
        self._data, self._everything, self._targets_of = data, data.everything, targets_of
        self._positives = np.zeros(shard.count)
        values = [np.zeros(0, np.float32)]
        for part in _blocks(data):
            plain, masked = targets_of(part)
            values.append(plain.data)
            marked = marked_targets(plain, masked, "cpu", shard)
            # One after the other, as if all were counted at once: sums are then the same to the last bit.
            np.add.at(self._positives, marked.ids.numpy(), marked.weights.clamp(min=0).numpy().astype(np.float64))
        self.first_bias = bias_of(np.concatenate(values).sum(), data.targets.shape)

    def __len__(self) -> int:
        return len(self._everything)

    def rows(self, index: I64) -> Bags:
        targets, masked, same = self._everything.labels_of(index)
        plain, hidden = self._targets_of(replace(self._data, targets=targets, masked=masked, same=same))
        return marked_targets(plain, hidden, self.device, self._shard).rows(np.arange(len(index)))

    def positive_sums(self) -> NDArray[np.float64]:
        """Of the sample."""
        return self._positives


def _blocks(data: TrainingSet) -> Iterator[TrainingSet]:
    """The documents of the sample, some at a time: their labels and masked pairs."""
    for start in range(0, data.n_documents, _BLOCK):
        stop = min(start + _BLOCK, data.n_documents)
        masked, same = (
            pairs[slice(*np.searchsorted(pairs[:, 0], [start, stop]))] - np.array([start, 0])
            for pairs in (data.masked, data.same)
        )
        yield replace(data, targets=data.targets[start:stop], masked=masked, same=same)
