"""The texts of labels as vectors, as they are and summed over neighbours in a label graph: G^k E Z for k = 0, 1, ..."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from longtail.graph.arrays import csr
from longtail.nn.batches import Bags, DeviceCsr, sent
from longtail.nn.convolution import Convolution
from longtail.nn.row_table import RowTable, bag_sums
from longtail.types import I32, I64, Csr


class LabelTexts(nn.Module):
    """L labels, vectors of width D, and as many orders as there are powers of the graph (0: the text itself) to
    give.
    """

    labels: int
    width: int
    orders: int
    device: torch.device

    def convolved(self, labels: I32 | None) -> list[Tensor]:
        """For each order a (U, D) tensor: the rows of `labels`, in that order, or of all labels."""
        raise NotImplementedError


class FrozenTexts(LabelTexts):
    """Token vectors no longer change: every order was computed before, rows are only looked up."""

    def __init__(self, orders: Sequence[Tensor]) -> None:
        super().__init__()
        # Not buffers: what never changes need not be in a checkpoint.
        self._orders = [order.detach() for order in orders]
        self.labels, self.width = (int(n) for n in self._orders[0].shape)
        self.orders, self.device = len(self._orders), self._orders[0].device

    @classmethod
    def of(cls, table: Tensor, texts: Csr, graph: Csr | None, orders: int) -> FrozenTexts:
        """table: (V, D) token vectors E; texts: (L, V) rows Z; graph: (L, L), needed for orders beyond the first."""
        device = table.device
        found = [bag_sums(table, DeviceCsr(texts, device).rows(np.arange(texts.shape[0])))]
        for _ in range(1, orders):
            assert graph is not None, "texts of neighbours need a graph"
            found.append(Convolution(graph, device)(found[-1]))
        return cls(found)

    def convolved(self, labels: I32 | None) -> list[Tensor]:
        if labels is None:
            return self._orders
        at = sent(labels, self.device)
        return [order.index_select(0, at) for order in self._orders]


class TrainedTexts(LabelTexts):
    """Token vectors are trained: sums are computed in every step, and gradients reach the table.

    texts: (L, V).  graph: (L, L), needed for orders beyond the first.
    """

    def __init__(self, table: RowTable, texts: Csr, graph: Csr | None, orders: int) -> None:
        super().__init__()
        self.table, self.orders, self.device = table, orders, table.weight.device
        self.labels, self.width = int(texts.shape[0]), int(table.weight.shape[1])
        self._texts, self._graph = DeviceCsr(texts, self.device), graph
        # For all labels at once: texts over the tokens that occur in them, so that gradients are sums of few rows,
        # not of all entries.
        tokens, places = np.unique(texts.indices, return_inverse=True)
        self._tokens = Bags.of_rows(sent(tokens.astype(np.int32), self.device))
        self._sums = Convolution(
            csr(texts.data, places.astype(np.int32), texts.indptr, (self.labels, len(tokens))), self.device
        )
        self._neighbours = Convolution(graph, self.device) if graph is not None and orders > 1 else None

    def convolved(self, labels: I32 | None) -> list[Tensor]:
        if labels is not None:
            return self._of_some(labels.astype(np.int64))
        found = [self._sums(self.table(self._tokens))]
        for _ in range(1, self.orders):
            assert self._neighbours is not None
            found.append(self._neighbours(found[-1]))
        return found

    def _of_some(self, labels: I64) -> list[Tensor]:
        """Only the texts within reach of `labels` are summed."""
        graph = self._graph
        reach = [np.unique(labels)]  # reach[n]: what n steps in the graph lead to, ascending
        for _ in range(1, self.orders):
            assert graph is not None
            reach.append(np.union1d(reach[-1], graph[reach[-1]].indices))
        values: Tensor = self.table(self._texts.rows(reach[-1]))
        found = [self._chosen(values, reach[-1], labels)]
        for inner, outer in zip(reach[-2::-1], reach[:0:-1], strict=True):
            assert graph is not None
            values = Convolution(graph[inner][:, outer].tocsr(), self.device)(values)
            found.append(self._chosen(values, inner, labels))
        return found

    def _chosen(self, values: Tensor, names: I64, labels: I64) -> Tensor:
        """The rows of `labels` out of `values`, whose rows are those of `names`."""
        if np.array_equal(names, labels):
            return values
        # A product with a 0/1 matrix: its gradient is a sum over bags, the same bits for any number of threads.
        count = len(labels)
        return Convolution(
            csr(np.ones(count, np.float32), np.searchsorted(names, labels), np.arange(count + 1), (count, len(names))),
            self.device,
        )(values)
