"""Matrices as tensor cores like them, and what else depends on the processor."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor, nn

# Tensor cores load 16 bytes at a time; bf16 rows of another length (D = 300) take kernels that are several times
# slower.
_BF16_MULTIPLE = 8


def for_products(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """`matrix` (R, D) as `dtype`; for bf16 both sides are padded with zeros to multiples of 8. Cut results back."""
    matrix = matrix.to(dtype)
    if dtype != torch.bfloat16:
        return matrix
    rows, columns = (-size % _BF16_MULTIPLE for size in matrix.shape)
    return nn.functional.pad(matrix, (0, columns, 0, rows)) if rows or columns else matrix


def fastest_products(device: torch.device) -> torch.dtype:
    """The type of big matrix products that this processor does fastest: bf16 on a GPU and on CPUs that multiply it
    natively.
    """
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return torch.bfloat16 if device.type == "cuda" or (native is not None and native()) else torch.float32


@cache
def has_triton() -> bool:
    """Whether kernels for a GPU can be compiled here."""
    return find_spec("triton") is not None
