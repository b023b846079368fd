"""Rows of all labels with their Adam, updated block by block.

Two ways to store them. `Float32Table`: rows and both moments in float32, rows updated in place. `SplitTable`: 8 bytes
per number in all, for millions of labels on a GPU. A row's float32 value is kept as two halves of 16 bits: the
nearest bf16, which products read as it is, and the rest; moments are bf16, rounded at random so that small changes
are not lost on average. The random bits are a hash of the number's position and the count of steps: there is no
generator state.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from longtail.nn.precision import has_triton
from longtail.nn.rows import AdamFactors

Precision = Literal["float32", "bfloat16"]

# bf16 matrices are stored padded with zeros: tensor cores want rows of whole 16-byte pieces, Triton's tiles of 32
# bytes.
COLUMN_MULTIPLE, ROW_MULTIPLE = 16, 128


class ReadTable(Protocol):
    """(L, D) rows, as a sweep reads them."""

    @property
    def labels(self) -> int: ...

    def block(self, start: int, count: int, compute: torch.dtype) -> Tensor:
        """(count or more, D or more) rows from `start` on as products of type `compute` read them; what is more is
        zero.
        """
        ...

    def picked(self, ids: Tensor, compute: torch.dtype) -> Tensor:
        """(P, D or more) rows at `ids`."""
        ...


class Table(ReadTable, Protocol):
    """Rows with their optimiser."""

    @property
    def rows(self) -> Tensor:
        """(L, D) float32."""
        ...

    def update(self, start: int, count: int, gradient: Tensor, scale: float, factors: AdamFactors, step: int) -> None:
        """Adam on the rows from `start` on; gradient: of the shape of `block`, to be multiplied by `scale`."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Live tensors: everything that updates change."""
        ...


def padded(matrix: Tensor, dtype: torch.dtype, rows_multiple: int = 8) -> Tensor:
    """`matrix` (R, D) as `dtype`; for bf16 with zeros around it up to good sizes."""
    matrix = matrix.to(dtype)
    if dtype != torch.bfloat16:
        return matrix
    rows, columns = -matrix.shape[0] % rows_multiple, -matrix.shape[1] % COLUMN_MULTIPLE
    return nn.functional.pad(matrix, (0, columns, 0, rows)) if rows or columns else matrix.contiguous()


def padded_to(matrix: Tensor, columns: int) -> Tensor:
    return nn.functional.pad(matrix, (0, columns - matrix.shape[1])) if matrix.shape[1] < columns else matrix


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
        """kernels: update with Triton, else with numba on a CPU and torch elsewhere; None: with what is fastest
        here.
        """
        super().__init__(rows)
        wanted = rows.is_cuda and has_triton() if kernels is None else kernels
        self.kernels = wanted and rows.dtype == torch.float32 and rows.is_contiguous()
        self.first, self.second = torch.zeros_like(self._rows), torch.zeros_like(self._rows)

    def update(self, start: int, count: int, gradient: Tensor, scale: float, factors: AdamFactors, step: int) -> None:
        part = slice(start, start + count)
        rows, first, second = self._rows[part], self.first[part], self.second[part]
        gradient = gradient[:count, : rows.shape[1]]
        if self.kernels:
            from longtail.nn.full.triton_kernels import adam_float32

            adam_float32(rows, first, second, gradient, scale, factors)
        elif rows.device.type == "cpu":
            from longtail.nn.full.adam_kernels import adam_block

            kind = rows.numpy().dtype
            adam_block(
                rows.numpy(),
                first.numpy(),
                second.numpy(),
                gradient.to(rows.dtype).numpy(),
                kind.type(scale),
                factors.array(kind),
            )
        else:
            _adam(rows, first, second, gradient.to(rows.dtype).mul(scale), factors)

    def state(self) -> dict[str, Tensor]:
        return {"rows": self._rows, "first": self.first, "second": self.second}


class SplitTable:
    """See the module. high: (L or more, D or more) bf16, low: int16 of the same shape; first, second: bf16."""

    def __init__(self, rows: Tensor, *, kernels: bool) -> None:
        """kernels: update with Triton; else with torch, which gives the same bits up to the rounding of square
        roots.
        """
        self.labels, self.width, self.kernels = *rows.shape, kernels
        shape = (self.labels + -self.labels % ROW_MULTIPLE, self.width + -self.width % COLUMN_MULTIPLE)
        self.high = rows.new_zeros(shape, dtype=torch.bfloat16)
        self.low = rows.new_zeros(shape, dtype=torch.int16)
        self.first, self.second = torch.zeros_like(self.high), torch.zeros_like(self.high)
        # In pieces: a float32 copy of everything would be the largest thing in memory.
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
        gradient, part = padded_to(gradient[:count], self.high.shape[1]), slice(start, start + count)
        tables = (self.high[part], self.low[part], self.first[part], self.second[part])
        position, seed = start * self.high.shape[1], hashed(step)
        if self.kernels:
            from longtail.nn.full.triton_kernels import adam_split

            adam_split(*tables, gradient.contiguous(), scale, factors, position, seed)
            return
        high, low, first, second = tables
        rows, m, v = joined(high, low), first.float(), second.float()
        _adam(rows, m, v, gradient.float().mul(scale), factors)
        high[:], low[:] = split(rows)
        random = random_bits(rows.shape, position, seed, rows.device)
        first[:], second[:] = _rounded(m, random & 0xFFFF), _rounded(v, random >> 16)

    def state(self) -> dict[str, Tensor]:
        return {"high": self.high, "low": self.low, "first": self.first, "second": self.second}


_PIECE = 1 << 16


@torch.no_grad()
def _adam(rows: Tensor, first: Tensor, second: Tensor, gradient: Tensor, factors: AdamFactors) -> None:
    first.mul_(factors.keep_first).add_(gradient, alpha=factors.add_first)
    second.mul_(factors.keep_second).addcmul_(gradient, gradient, value=factors.add_second)
    rows.addcdiv_(first, second.sqrt().mul_(factors.spread).add_(factors.epsilon), value=-factors.rate)


def split(values: Tensor) -> tuple[Tensor, Tensor]:
    """float32 as the nearest bf16 and a signed 16-bit rest: bits = (high << 16) + low."""
    bits = values.contiguous().view(torch.int32)
    high = (bits + 0x8000) >> 16
    return high.to(torch.int16).view(torch.bfloat16), (bits - (high << 16)).to(torch.int16)


def joined(high: Tensor, low: Tensor) -> Tensor:
    """The inverse of `split`."""
    return ((high.contiguous().view(torch.int16).int() << 16) + low.int()).view(torch.float32)


def hashed(x: int) -> int:
    """32 well mixed bits of a number; the kernels compute the same (the constants are those of "lowbias32")."""
    x &= 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def random_bits(shape: torch.Size, position: int, seed: int, device: torch.device) -> Tensor:
    """int64, 32 random bits per number: `hashed` of its position, mixed with the seed of the step."""
    x = (torch.arange(position, position + shape.numel(), device=device) ^ seed) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return (x ^ (x >> 16)).view(shape)


def _rounded(values: Tensor, random: Tensor) -> Tensor:
    """bf16, up or down with chances such that the mean is right; random: 16 bits per number."""
    return ((values.view(torch.int32) + random.int()) >> 16).to(torch.int16).view(torch.bfloat16)
