"""The part of classifier rows that is made of words: a label's text and, through a label graph, its neighbours'
texts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import sent
from longtail.nn.convolution import Convolution
from longtail.nn.row_table import RowTable
from longtail.types import Csr


class TextRows(nn.Module):
    """T = (g_0 E Z + g_1 G E Z) M for all labels, with one trained gain per order and a trained matrix M, at first
    the identity.

    table: token vectors E, (V, D), shared with the encoder of documents.  texts: Z, (L, V) CSR.  graph: G, (L, L) CSR
    or None. Only tokens that occur in texts are read, and only their gradients exist: `tokens`, ascending.  mapped:
    whether there is an M.
    compute: type of the products with M; they are as large as those of a step.
    """

    def __init__(
        self,
        table: RowTable,
        texts: Csr,
        graph: Csr | None,
        *,
        graph_gain: float = 1.0,
        mapped: bool = False,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.table, self.compute = table, compute
        device = table.weight.device
        used, places = np.unique(texts.indices, return_inverse=True)
        self.tokens = sent(used.astype(np.int64), device)
        compact = type(texts)((texts.data, places.astype(np.int32), texts.indptr), shape=(texts.shape[0], len(used)))
        self.sums = Convolution(compact, device)
        self.neighbours = None if graph is None else Convolution(graph, device)
        self.gains = nn.Parameter(torch.tensor([1.0] if graph is None else [1.0, graph_gain], device=device))
        self.map = nn.Parameter(torch.eye(table.weight.shape[1], device=device)) if mapped else None
        # What the gains multiply, of the last `forward`; a buffer, so that a resumed training has it.
        self.orders: Tensor
        self.register_buffer(
            "orders", torch.zeros(len(self.gains), texts.shape[0], table.weight.shape[1], device=device)
        )

    @torch.no_grad()
    def forward(self) -> Tensor:
        """(L, D), without gradients: `gradient` gives them."""
        self.orders[0] = self.sums(self.table.weight.index_select(0, self.tokens))
        if self.neighbours is not None:
            self.orders[1] = self.neighbours(self.orders[0])
        return self._mixed() if self.map is None else self._product(self._mixed(), self.map)

    @torch.no_grad()
    def gradient(self, gradient_LD: Tensor) -> Tensor:
        """(tokens, D): what a gradient of the last `forward` means for the vectors of `tokens`; those of gains and M
        are left at them.

        T is linear in the vectors, so nothing has to be computed forth again before it goes back.
        """
        if self.map is not None:
            self.map.grad = self._product(self._mixed().T, gradient_LD)
            gradient_LD = self._product(gradient_LD, self.map.T)
        self.gains.grad = torch.stack([(gradient_LD * order).sum() for order in self.orders])
        of_own = self.gains[0] * gradient_LD
        if self.neighbours is not None:
            of_own += self.gains[1] * self.neighbours.back(gradient_LD)
        return self.sums.back(of_own)

    def _mixed(self) -> Tensor:
        mixed = self.gains[0] * self.orders[0]
        return mixed if self.neighbours is None else mixed.add_(self.gains[1] * self.orders[1])

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        return (left.to(self.compute) @ right.to(self.compute)).float()
