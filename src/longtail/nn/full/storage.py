"""How the rows of all labels are stored: as products read them, and with their Adam, updated block by block.

Two ways to store rows that are trained. `Float32Table`: rows and both moments in float32, rows updated in place.
`SplitTable`: 8 bytes per number in all, for millions of labels on a GPU. A row's float32 value is kept as two halves of
16 bits: the nearest bf16, which products read as it is, and the rest; moments are bf16, rounded at random so that small
changes are not lost on average. The random bits are a hash of the number's position and the count of steps: there is no
generator state.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from longtail.nn.precision import has_triton
from longtail.nn.row_tables import AdamFactors, adam_by_torch

Precision = Literal["float32", "bfloat16"]
Bits = TypeVar("Bits", int, Tensor)

# bf16 matrices are padded with zeros: tensor cores want rows of whole 16-byte pieces, Triton's tiles of 32 bytes.
COLUMN_MULTIPLE, ROW_MULTIPLE = 16, 128
# Rows that are split at a time: a float32 copy of all of them would be the largest thing in memory.
_PIECE = 1 << 16


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


def padded(matrix: Tensor, dtype: torch.dtype, rows_multiple: int = 8) -> Tensor:
    """`matrix` (R, D) as `dtype`; for bf16 with zeros around it up to good sizes."""
    matrix = matrix.to(dtype)
    if dtype != torch.bfloat16:
        return matrix
    rows, columns = -matrix.shape[0] % rows_multiple, -matrix.shape[1] % COLUMN_MULTIPLE
    return nn.functional.pad(matrix, (0, columns, 0, rows)) if rows or columns else matrix.contiguous()


class FixedTable:
    """Rows that are only read: their gradients go elsewhere."""

    def __init__(self, rows: Tensor) -> None:
        self._rows, self.labels = rows.detach(), len(rows)

    @property
    def rows(self) -> Tensor:
        return self._rows

    def block(self, start: int, count: int, compute: torch.dtype) -> Tensor:
        return padded(self._rows[start : start + count], compute)

    def picked(self, ids: Tensor, compute: torch.dtype) -> Tensor:
        return padded(self._rows[ids], compute, 1)


class Float32Table(FixedTable):
    """The given rows are updated in place."""

    def __init__(self, rows: Tensor, *, kernels: bool | None = None) -> None:
        """kernels: update with Triton, else with numba on a CPU and torch elsewhere; None: what is fastest here."""
        super().__init__(rows)
        wanted = rows.is_cuda and has_triton() if kernels is None else kernels
        self.kernels = wanted and rows.dtype == torch.float32 and rows.is_contiguous()
        self.first, self.second = torch.zeros_like(self._rows), torch.zeros_like(self._rows)

    def update(self, start: int, count: int, gradient: Tensor, scale: float, factors: AdamFactors, step: int) -> None:
        """Adam on the rows from `start` on; gradient: of the shape of `block`, to be multiplied by `scale`."""
        part = slice(start, start + count)
        rows, first, second = self._rows[part], self.first[part], self.second[part]
        gradient = gradient[:count, : rows.shape[1]]
        if self.kernels:
            from longtail.nn.full.triton_kernels import adam_float32

            adam_float32(rows, first, second, gradient, scale, factors)
        elif rows.device.type == "cpu":
            from longtail.nn.kernels import adam_block

            numbers, kind = gradient.to(rows.dtype).numpy(), rows.numpy().dtype
            adam_block(rows.numpy(), first.numpy(), second.numpy(), numbers, kind.type(scale), factors.array(kind))
        else:
            adam_by_torch(rows, first, second, gradient.to(rows.dtype).mul(scale), factors)

    def state(self) -> dict[str, Tensor]:
        """Live tensors: everything that updates change."""
        return {"rows": self._rows, "first": self.first, "second": self.second}


class SplitTable:
    """See the module. high: (L or more, D or more) bf16, low: int16 of the same shape; first, second: bf16."""

    def __init__(self, rows: Tensor, *, kernels: bool) -> None:
        """kernels: update with Triton; else with torch: the same bits up to the rounding of square roots."""
        self.labels, self.width, self.kernels = *rows.shape, kernels
        shape = (self.labels + -self.labels % ROW_MULTIPLE, self.width + -self.width % COLUMN_MULTIPLE)
        self.high = rows.new_zeros(shape, dtype=torch.bfloat16)
        self.low = rows.new_zeros(shape, dtype=torch.int16)
        self.first, self.second = torch.zeros_like(self.high), torch.zeros_like(self.high)
        for start in range(0, self.labels, _PIECE):
            piece = slice(start, min(start + _PIECE, self.labels))
            high, low = split(rows[piece].detach().float())
            self.high[piece, : self.width], self.low[piece, : self.width] = high, low

    @property
    def rows(self) -> Tensor:
        """A copy."""
        return self._float32(slice(0, self.labels))

    def block(self, start: int, count: int, compute: torch.dtype) -> Tensor:
        """count: a whole multiple of `ROW_MULTIPLE`, but at the end."""
        if compute == torch.bfloat16:
            return self.high[start : start + count + -count % ROW_MULTIPLE]
        return self._float32(slice(start, start + count)).to(compute)

    def picked(self, ids: Tensor, compute: torch.dtype) -> Tensor:
        return self.high[ids] if compute == torch.bfloat16 else self._float32(ids).to(compute)

    def _float32(self, part: slice | Tensor) -> Tensor:
        return joined(self.high[part, : self.width], self.low[part, : self.width])

    def update(self, start: int, count: int, gradient: Tensor, scale: float, factors: AdamFactors, step: int) -> None:
        """As `Float32Table.update`."""
        columns, part, gradient = self.high.shape[1], slice(start, start + count), gradient[:count]
        if gradient.shape[1] < columns:
            gradient = nn.functional.pad(gradient, (0, columns - gradient.shape[1]))
        tables = (self.high[part], self.low[part], self.first[part], self.second[part])
        position, seed = start * columns, hashed(step)
        if self.kernels:
            from longtail.nn.full.triton_kernels import adam_split

            adam_split(*tables, gradient.contiguous(), scale, factors, position, seed)
            return
        high, low, first, second = tables
        rows, m, v = joined(high, low), first.float(), second.float()
        adam_by_torch(rows, m, v, gradient.float().mul(scale), factors)
        high[:], low[:] = split(rows)
        random = random_bits(rows.shape, position, seed, rows.device)
        first[:], second[:] = _rounded(m, random & 0xFFFF), _rounded(v, random >> 16)

    def state(self) -> dict[str, Tensor]:
        return {"high": self.high, "low": self.low, "first": self.first, "second": self.second}


def split(values: Tensor) -> tuple[Tensor, Tensor]:
    """float32 as the nearest bf16 and a signed 16-bit rest: bits = (high << 16) + low."""
    bits = values.contiguous().view(torch.int32)
    high = (bits + 0x8000) >> 16
    return high.to(torch.int16).view(torch.bfloat16), (bits - (high << 16)).to(torch.int16)


def joined(high: Tensor, low: Tensor) -> Tensor:
    """The inverse of `split`."""
    return ((high.contiguous().view(torch.int16).int() << 16) + low.int()).view(torch.float32)


def hashed(x: Bits) -> Bits:
    """32 well mixed bits of a number; the kernels compute the same (the constants are those of "lowbias32")."""
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def random_bits(shape: torch.Size, position: int, seed: int, device: torch.device) -> Tensor:
    """int64, 32 random bits per number: `hashed` of its position, mixed with the seed of the step."""
    return hashed(torch.arange(position, position + shape.numel(), device=device) ^ seed).view(shape)


def _rounded(values: Tensor, random: Tensor) -> Tensor:
    """bf16, up or down with chances such that the mean is right; random: 16 bits per number."""
    return ((values.view(torch.int32) + random.int()) >> 16).to(torch.int16).view(torch.bfloat16)
