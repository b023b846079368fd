"""Documents as tensors, taken by row without a Python loop over rows.

`Batch` (numpy, scipy) is what the rest of the house passes around; here it moves to where the model is. `Documents`
moves once and then gives out rows, so that an epoch on a GPU copies nothing but row positions. Also what depends on
the processor: matrices as its products like them (`padded`), and which products are fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.types import F32, I64, Batch, Csr


@dataclass(frozen=True)
class Bags:
    """B bags of weighted rows of some table: CSR as tensors. An empty bag is fine.

    starts: (B + 1,) int64; bag b holds entries starts[b]..starts[b + 1].
    ids: (P,) int32, row numbers.  weights: (P,) float.
    one_each: every bag is one row of weight 1, and no two are the same.
    """

    starts: Tensor
    ids: Tensor
    weights: Tensor
    one_each: bool = False

    def __len__(self) -> int:
        return int(self.starts.shape[0]) - 1

    @cached_property
    def owners(self) -> Tensor:
        """(P,) int64: the bag of every entry."""
        return owners_of(self.starts, len(self.ids))

    def sums(self, table: Tensor) -> Tensor:
        """(B, D): weighted sums of rows of a table (R, D)."""
        if self.one_each:
            return table.index_select(0, self.ids)
        weights = self.weights.to(table.dtype)
        return nn.functional.embedding_bag(
            self.ids, table, self.starts.int(), mode="sum", per_sample_weights=weights, include_last_offset=True
        )

    @staticmethod
    def of_rows(rows: Tensor) -> Bags:
        """A bag for each of these different rows, (U,) int32."""
        count = len(rows)
        return Bags(
            torch.arange(count + 1, device=rows.device), rows, torch.ones(count, device=rows.device), one_each=True
        )

    @staticmethod
    def joined(bags: list[Bags]) -> Bags:
        """The bags of all, in order."""
        if len(bags) == 1:
            return bags[0]
        pieces = [bags[0].starts]
        for following in bags[1:]:
            pieces.append(following.starts[1:] + pieces[-1][-1])
        return Bags(torch.cat(pieces), torch.cat([b.ids for b in bags]), torch.cat([b.weights for b in bags]))


@dataclass(frozen=True)
class TensorBatch:
    """A `Batch` on a device.

    tokens: (B, T) int32, padded with -1.  lengths: (B,) how many each has, in numpy: known without asking a GPU.
    """

    sparse: Bags | None = None
    dense: Tensor | None = None
    tokens: Tensor | None = None
    lengths: I64 | None = None

    @staticmethod
    def joined(batches: Sequence[TensorBatch]) -> TensorBatch:
        """The token sequences of all, in order."""
        tokens = [batch.need_tokens() for batch in batches]
        width = max(each.shape[1] for each in tokens)
        padded = [
            each if each.shape[1] == width else nn.functional.pad(each, (0, width - each.shape[1]), value=-1)
            for each in tokens
        ]
        return TensorBatch(
            tokens=torch.cat(padded), lengths=np.concatenate([batch.need_lengths() for batch in batches])
        )

    def need_sparse(self) -> Bags:
        assert self.sparse is not None, "the encoder reads sparse features, the batch has none"
        return self.sparse

    def need_dense(self) -> Tensor:
        assert self.dense is not None, "the encoder reads dense vectors, the batch has none"
        return self.dense

    def need_tokens(self) -> Tensor:
        assert self.tokens is not None, "the encoder reads token sequences, the batch has none"
        return self.tokens

    def need_lengths(self) -> I64:
        assert self.lengths is not None, "the encoder reads token sequences, the batch has none"
        return self.lengths


class DeviceCsr:
    """A CSR array whose entries live on a device; rows are taken there.

    Row pointers stay in numpy: the size of a selection is then known without asking the GPU.
    """

    def __init__(self, csr: Csr, device: torch.device | str = "cpu") -> None:
        self.columns = int(csr.shape[1])
        self.starts = np.asarray(csr.indptr, dtype=np.int64)
        self.ids = to_tensor(np.asarray(csr.indices).astype(np.int32, copy=False), device)
        self.weights = to_tensor(np.asarray(csr.data).astype(np.float32, copy=False), device)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def rows(self, index: I64) -> Bags:
        """The rows at `index`, in that order."""
        starts, begin = self.bounds(index)
        if self.ids.device.type == "cpu":
            place = to_tensor(np.arange(starts[-1]) + np.repeat(begin - starts[:-1], np.diff(starts)), "cpu")
            return Bags(to_tensor(starts, "cpu"), self.ids[place], self.weights[place])
        return self.rows_there(starts, begin)

    def bounds(self, index: I64) -> tuple[I64, I64]:
        """Where each of the rows at `index` starts among their entries, (B + 1,), and where it begins here, (B,)."""
        begin = self.starts[index]
        starts = np.zeros(len(index) + 1, dtype=np.int64)
        np.cumsum(self.starts[index + 1] - begin, out=starts[1:])
        return starts, begin

    def positive_sums(self) -> NDArray[np.float64]:
        """(columns,): the sum of the values above 0 of each column."""
        positives = self.weights.clamp(min=0).cpu().numpy()
        return np.bincount(self.ids.cpu().numpy(), positives, minlength=self.columns).astype(np.float64)

    def rows_there(self, starts: I64, begin: I64) -> Bags:
        """`rows` on a GPU: it is given where bags start and where rows begin, and finds the entries by itself."""
        both = to_device(np.concatenate([starts, begin - starts[:-1]]), self.ids.device)
        bounds, shift = both[: len(starts)], both[len(starts) :]
        owners = owners_of(bounds, int(starts[-1]))
        place = torch.arange(len(owners), device=owners.device) + shift[owners]
        return Bags(bounds, self.ids[place], self.weights[place])


def owners_of(starts: Tensor, entries: int) -> Tensor:
    """(entries,) int64: the bag of every entry."""
    return torch.repeat_interleave(
        torch.arange(len(starts) - 1, device=starts.device), starts.diff(), output_size=entries
    )


class Documents:
    """All documents of a training on a device, given out by row.

    sparse, dense: what they have on the device, or None.
    """

    def __init__(self, batch: Batch, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._length = len(batch)
        self.sparse = None if batch.sparse is None else DeviceCsr(batch.sparse, device)
        self.dense = None if batch.dense is None else to_tensor(batch.dense.astype(np.float32, copy=False), device)
        self._tokens = None if batch.tokens is None else to_tensor(batch.tokens.astype(np.int32, copy=False), device)
        self._lengths = None if batch.tokens is None else np.count_nonzero(batch.tokens >= 0, axis=1)

    def __len__(self) -> int:
        return self._length

    def order(self, rng: np.random.Generator) -> Any:
        """Every document once, in a random order: what `fit` draws batches from."""
        return rng.permutation(len(self))

    def rows(self, index: I64) -> TensorBatch:
        at = None if self.dense is None and self._tokens is None else to_device(index, self.device)
        return TensorBatch(
            None if self.sparse is None else self.sparse.rows(index),
            None if self.dense is None else self.dense[at],
            None if self._tokens is None else self._tokens[at],
            None if self._lengths is None else self._lengths[index],
        )


def to_tensor(array: NDArray[Any], device: torch.device | str) -> Tensor:
    """The array on a device; on a CPU the same memory, or a copy where the array is read-only (a mapped file)."""
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy()).to(device)


def to_numpy(tensor: Tensor) -> F32:
    """A copy as float32, in memory of its own: what is frozen for prediction."""
    here = tensor.detach().cpu()
    wide = here.float().contiguous()
    return np.asarray(wide.clone() if wide.data_ptr() == tensor.data_ptr() else wide)


def to_device(array: NDArray[Any], device: torch.device | str) -> Tensor:
    """`to_tensor` for the small arrays of a step: a GPU gets them through pinned memory, and its other work goes on."""
    if torch.device(device).type == "cpu":
        return to_tensor(array, device)
    return to_tensor(array, "cpu").pin_memory().to(device, non_blocking=True)


# Tensor cores load 16 bytes at a time, and bf16 rows of another length (D = 300) take kernels that are several times
# slower; Triton's tiles want rows of whole 32-byte pieces.
COLUMN_MULTIPLE = 16


def padded(matrix: Tensor, dtype: torch.dtype, rows: int = 8, columns: int = COLUMN_MULTIPLE) -> Tensor:
    """`matrix` (R, D) as `dtype`; for bf16 with zeros around it, up to whole multiples of `rows` and `columns`."""
    matrix = matrix.to(dtype)
    if dtype != torch.bfloat16:
        return matrix
    below, beside = -matrix.shape[0] % rows, -matrix.shape[1] % columns
    return nn.functional.pad(matrix, (0, beside, 0, below)) if below or beside else matrix.contiguous()


def fastest_products(device: torch.device) -> torch.dtype:
    """The type in which this processor does big products fastest: bf16 on a GPU and on CPUs that multiply it."""
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return torch.bfloat16 if device.type == "cuda" or (native is not None and native()) else torch.float32


@cache
def has_triton() -> bool:
    """Whether kernels for a GPU can be compiled here."""
    return find_spec("triton") is not None
