"""A sparse matrix times vectors, with gradients to the vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from longtail.nn.batches import DeviceCsr, to_tensor
from longtail.nn.row_tables import bag_sums
from longtail.types import Csr


class Convolution:
    """G @ values for a fixed (R, C) graph; the way back is a product with its transpose, made once.

    On a CPU both are sums over bags, so bits do not depend on threads. On a GPU that would let one frequent column (a
    bag of its own, thousands of entries long) hold up all others; cuSPARSE shares the work out by entries.
    """

    def __init__(self, graph: Csr, device: torch.device | str) -> None:
        make = _on_gpu if torch.device(device).type == "cuda" else _on_cpu
        self.forth, self.back = (make(matrix, device) for matrix in (graph, graph.T.tocsr()))

    def __call__(self, values_CD: Tensor) -> Tensor:
        """(R, D)"""
        return cast(Callable[..., Tensor], _Product.apply)(values_CD, self.forth, self.back)


Product = Callable[[Tensor], Tensor]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, forth: Product, back: Product) -> Tensor:
        ctx.back = back
        return forth(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        back: Product = ctx.back
        return back(gradients[0].contiguous()), None, None


def _on_cpu(matrix: Csr, device: torch.device | str) -> Product:
    bags = DeviceCsr(matrix, device).rows(np.arange(matrix.shape[0]))
    return lambda values: bag_sums(values, bags)


def _on_gpu(matrix: Csr, device: torch.device | str) -> Product:
    # 32-bit positions, which cuSPARSE knows: half the bytes to read.
    pointers, columns = (to_tensor(np.asarray(piece, np.int32), device) for piece in (matrix.indptr, matrix.indices))
    sparse = torch.sparse_csr_tensor(
        pointers,
        columns,
        to_tensor(np.asarray(matrix.data, np.float32), device),
        tuple(matrix.shape),
        check_invariants=False,
    )
    return lambda values: sparse @ values.float()
