"""Big tables of vectors of which a batch touches few rows: token vectors, and classifiers with a row per label.

Gradients never become a tensor of the table's size, and Adam (`RowAdam`) changes the rows that were touched. Also the
product of a sparse matrix with vectors (`Convolution`), with gradients to the vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.models.rankers import Classifier
from longtail.nn.batches import Bags, DeviceCsr, has_triton, to_numpy, to_tensor
from longtail.nn.blocks import uniform
from longtail.nn.shards import Shard
from longtail.types import Csr


class RowTable(nn.Module):
    """(R, D) vectors, read as weighted sums of rows (`forward`).

    A backward pass leaves behind *which bags* were read and the gradient of each sum; `RowAdam.step` takes exactly
    that. There is no padding row: what is not there is an empty bag, so padding can never be updated.
    """

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(vectors)
        self._pending: list[tuple[Bags, Tensor]] = []

    @classmethod
    def random(cls, rows: int, width: int, rng: np.random.Generator, device: torch.device | str = "cpu") -> RowTable:
        """Entries from N(0, 1 / D): rows of about unit length. A GPU draws its own: a CPU takes seconds for many."""
        if torch.device(device).type == "cpu":
            return cls(torch.from_numpy(rng.standard_normal((rows, width), dtype=np.float32)).div_(width**0.5))
        generator = torch.Generator(device).manual_seed(int(rng.integers(2**63 - 1)))
        return cls(torch.randn(rows, width, generator=generator, device=device).div_(width**0.5))

    def forward(self, bags: Bags) -> Tensor:
        """(B, D): the weighted sum of each bag."""
        return cast(Callable[..., Tensor], _BagSum.apply)(self.weight, self, bags)

    def take_gradient(self) -> tuple[Bags, Tensor] | None:
        """What backward passes left since the last call: all bags and the (B, D) gradients of their sums, or None."""
        if not self._pending:
            return None
        bags, gradients = zip(*self._pending, strict=True)
        self._pending.clear()
        return Bags.joined(list(bags)), gradients[0] if len(gradients) == 1 else torch.cat(gradients)

    def leave_gradient(self, bags: Bags, gradient_BD: Tensor) -> None:
        self._pending.append((bags, gradient_BD))


def with_gradients(compute: Callable[[], tuple[Tensor, ...]], *inputs: Tensor) -> Tensor:
    """A loss whose gradients to `inputs` come with it.  compute: gives the loss, then the gradients."""
    return cast(Callable[..., Tensor], _KnownGradients.apply)(compute, *inputs)


class _KnownGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compute: Callable[[], tuple[Tensor, ...]], *inputs: Tensor) -> Tensor:
        value, *gradients = compute()
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(known * gradients[0] for known in ctx.saved_tensors)


class _BagSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, table: RowTable, bags: Bags) -> Tensor:
        ctx.table, ctx.bags = table, bags
        return bag_sums(weight, bags)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.table.leave_gradient(ctx.bags, gradients[0])
        return None, None, None


def bag_sums(table: Tensor, bags: Bags) -> Tensor:
    """(B, D): weighted sums of rows."""
    return bags.sums(table)


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


def summed_by_row(bags: Bags, gradient_BD: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows that bags name, ascending, and the sum of weight * gradient over the bags that name each.

    Both in as many slots as there are entries, (P,) and (P, D), the slots beyond the last row repeating it, with sums
    of zero: so a GPU need not be asked how many rows there are. Sums are over entries sorted by row, not by atomic
    additions: a GPU does not wait where many bags share a frequent word, and the result is the same every time.
    """
    order = bags.ids.argsort(stable=True)
    found = bags.ids[order].long()
    first = torch.ones_like(found, dtype=torch.bool)
    first[1:] = found[1:] != found[:-1]
    slot = first.cumsum(0) - 1
    sizes = torch.zeros(len(found) + 1, dtype=torch.int64, device=found.device).index_add_(
        0, slot + 1, torch.ones_like(slot)
    )
    by_row = Bags(sizes.cumsum(0), bags.owners[order].int(), bags.weights[order])
    filled = torch.arange(len(found), device=found.device).minimum(slot[-1])
    return torch.zeros_like(found).scatter_(0, slot, found)[filled], bag_sums(gradient_BD, by_row)


class AdamFactors(NamedTuple):
    """What the update of a step needs, in the order that kernels unpack.

    m = keep_first m + add_first g, v = keep_second v + add_second g^2, value -= rate m / (sqrt(v) spread + epsilon).
    """

    keep_first: float
    add_first: float
    keep_second: float
    add_second: float
    rate: float
    spread: float
    epsilon: float

    @staticmethod
    def of(step: int, rate: float, betas: tuple[float, float], epsilon: float) -> AdamFactors:
        """Of step 1, 2, ...; `rate` and `spread` hold the correction of the moments' bias."""
        beta1, beta2 = betas
        return AdamFactors(
            beta1, 1 - beta1, beta2, 1 - beta2, rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step), epsilon
        )

    def array(self, dtype: Any) -> NDArray[Any]:
        return np.array(self, dtype=dtype)


@torch.no_grad()
def adam_by_torch(values: Tensor, first: Tensor, second: Tensor, gradient: Tensor, factors: AdamFactors) -> None:
    """One Adam step, in place, on tensors of one shape. Compiled kernels (`kernels`, `triton_kernels`) do the same."""
    first.mul_(factors.keep_first).add_(gradient, alpha=factors.add_first)
    second.mul_(factors.keep_second).addcmul_(gradient, gradient, value=factors.add_second)
    values.addcdiv_(first, second.sqrt().mul_(factors.spread).add_(factors.epsilon), value=-factors.rate)


def add_mean_squares(second: Tensor, gradient: Tensor, factors: AdamFactors) -> None:
    """second: (R, 1), one second moment for all numbers of a row, in place.  gradient: (R, D)."""
    second.mul_(factors.keep_second).add_(gradient.square().mean(1, keepdim=True), alpha=factors.add_second)


class RowAdam:
    """Adam whose moments and updates exist only for the rows a step touches; bias correction counts all steps.

    On a touched row the first step equals dense Adam. Later steps differ on purpose: dense Adam would also decay
    moments of, and move, rows without gradient, at the cost of a pass over the whole table.

    table: (R, D) tensor, updated in place. `first` and `second` are its moments, `count` the steps so far; the three
    are the state to save. On a CPU compiled kernels do the work, on a GPU a Triton kernel; without Triton, and for
    `reference=True` (the oracle), torch.
    """

    def __init__(
        self,
        table: Tensor,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        reference: bool = False,
    ) -> None:
        self.table = table.detach()
        self.betas, self.epsilon = betas, epsilon
        self.first, self.second = self._moments()
        self.count = torch.zeros((), dtype=torch.int64)
        self.by_kernel = self.table.device.type == "cpu" and not reference
        self.by_triton = self.table.is_cuda and not reference and self.table.dtype == torch.float32 and has_triton()
        self._slots = np.zeros(len(self.table), dtype=np.int32) if self.by_kernel else None
        self._marks: Tensor | None = None

    def _moments(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self.table), torch.zeros_like(self.table)

    def state(self) -> dict[str, Tensor]:
        """Live tensors: what a checkpoint saves, and copies back into."""
        return {"first": self.first, "second": self.second, "count": self.count}

    @property
    def slots(self) -> NDArray[np.int32]:
        """Scratch for grouping by row."""
        assert self._slots is not None
        return self._slots

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Table and moments as kernels take them, the same memory."""
        return self.table.numpy(), self.first.numpy(), self.second.numpy()

    def factors(self, rate: float) -> AdamFactors:
        """Begin a step: count it."""
        self.count += 1
        return AdamFactors.of(int(self.count), rate, self.betas, self.epsilon)

    def step(self, bags: Bags, gradient_BD: Tensor, rate: float) -> None:
        """Rows named by the bags receive the sum of weight * gradient of their bag.

        A step without entries changes nothing but `count`.
        """
        gradient_BD = gradient_BD.to(self.table.dtype)
        if self.by_kernel:
            self._step_by_kernel(bags, gradient_BD, rate)
        elif bags.one_each:
            self.update_rows(bags.ids.long(), gradient_BD, rate)
        elif len(bags.ids):
            self.update_rows(*summed_by_row(bags, gradient_BD), rate)
        else:
            self.factors(rate)

    def _step_by_kernel(self, bags: Bags, gradient_BD: Tensor, rate: float) -> None:
        from longtail.nn.kernels import adam_from_bags, grouped_by_row

        factors = self.factors(rate).array(self.arrays[0].dtype)
        rows, starts, entries, edges = grouped_by_row(bags.ids.numpy(), self.slots)
        owners, weights = bags.owners.numpy(), bags.weights.to(self.table.dtype).numpy()
        gradients = gradient_BD.contiguous().numpy()
        adam_from_bags(*self.arrays, rows, starts, entries, edges, owners, weights, gradients, factors)

    def named_rows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The different rows that `ids` (int64) name, ascending, and for every id the place of its row among them.

        Rows of the table are marked and counted; no sort of the ids, which are many more than the rows they name.
        """
        if self._marks is None:
            self._marks = torch.zeros(len(self.table), dtype=torch.int64, device=self.table.device)
        self._marks.zero_().index_fill_(0, ids.reshape(-1), 1)
        rows = self._marks.nonzero()[:, 0]
        return rows, (self._marks.cumsum_(0) - 1)[ids]

    @torch.no_grad()
    def update_rows(self, rows: Tensor, gradient_UD: Tensor, rate: float) -> None:
        """A step on `rows` (U,) int64 with their gradients (U, D).

        Rows must differ; but torch and Triton allow repetitions of the last row behind it, whose gradients count for
        nothing.
        """
        self.change_rows(rows, gradient_UD, self.factors(rate))

    @torch.no_grad()
    def change_rows(self, rows: Tensor, gradient_UD: Tensor, factors: AdamFactors) -> None:
        """`update_rows` as a part of a step that was begun (`factors`)."""
        gradient_UD = gradient_UD.to(self.table.dtype)
        if self.by_kernel:
            from longtail.nn.kernels import adam_rows

            numbers = gradient_UD.contiguous().numpy()
            adam_rows(*self.arrays, rows.numpy(), numbers, factors.array(numbers.dtype))
        elif self.by_triton:
            self._update_by_triton(rows, gradient_UD, factors)
        else:
            self._update_by_torch(rows, gradient_UD, factors)

    def _update_by_triton(self, rows: Tensor, gradient_UD: Tensor, factors: AdamFactors) -> None:
        from longtail.nn import triton_kernels

        triton_kernels.adam_rows(self.table, self.first, self.second, rows, gradient_UD, factors)

    def _step_by_torch(
        self, values: Tensor, first: Tensor, second: Tensor, gradient: Tensor, factors: AdamFactors
    ) -> None:
        adam_by_torch(values, first, second, gradient, factors)

    def _update_by_torch(self, rows: Tensor, gradient_UD: Tensor, factors: AdamFactors) -> None:
        if len(rows) > 1:
            # A repetition gets the gradient of what it repeats: then it does not matter which of them is written last.
            last = (rows[1:] != rows[:-1]).sum()
            gradient_UD = gradient_UD[torch.arange(len(rows), device=rows.device).minimum(last)]
        values, first, second = self.table[rows], self.first[rows], self.second[rows]
        self._step_by_torch(values, first, second, gradient_UD, factors)
        for whole, part in ((self.table, values), (self.first, first), (self.second, second)):
            whole.index_copy_(0, rows, part)


class LightRowAdam(RowAdam):
    """`RowAdam` with 2 bytes of moments for each number in place of 8: first moments in bf16, and one second moment
    for all numbers of a row, the mean of their squared gradients.

    Its first moments change by a tenth in a step, which bf16 does not lose. On a CPU torch does the work.
    """

    def __init__(self, table: Tensor, **options: Any) -> None:
        super().__init__(table, **options)
        self.by_kernel = False

    def _moments(self) -> tuple[Tensor, Tensor]:
        return self.table.to(torch.bfloat16).zero_(), self.table.new_zeros(len(self.table), 1)

    def _update_by_triton(self, rows: Tensor, gradient_UD: Tensor, factors: AdamFactors) -> None:
        from longtail.nn import triton_kernels

        triton_kernels.light_rows(self.table, self.first, self.second, rows, gradient_UD, factors)

    def _step_by_torch(
        self, values: Tensor, first: Tensor, second: Tensor, gradient: Tensor, factors: AdamFactors
    ) -> None:
        moved = first.to(values.dtype).mul_(factors.keep_first).add_(gradient, alpha=factors.add_first)
        first.copy_(moved)
        add_mean_squares(second, gradient, factors)
        values.addcdiv_(moved, second.sqrt().mul_(factors.spread).add_(factors.epsilon), value=-factors.rate)


class LabelRows(nn.Module):
    """A row of numbers per label, which document vectors are multiplied with: free numbers, or composed of others."""

    labels: int
    has_bias: bool

    def inputs(self, z_BD: Tensor) -> Tensor:
        """Document vectors as rows want them: with a trailing 1 where there is a bias."""
        return torch.cat([z_BD, z_BD.new_ones(len(z_BD), 1)], dim=1) if self.has_bias else z_BD

    def all_rows(self) -> Tensor:
        """(L, D), with a bias (L, D + 1), with gradients to all that is trained."""
        raise NotImplementedError

    def free_rows(self) -> Tensor | None:
        """The tensor of all rows where these are nothing but trained numbers, to be updated in place; else None."""
        return None


class OneVsAll(LabelRows):
    """An independent linear classifier per label.

    rows: (L, D) parameter; with `bias` (L, D + 1), the last column being the weight of a feature that is always 1:
    every way of training then handles the bias without knowing of it.
    shard: which of the labels have their rows here.
    """

    def __init__(
        self, labels: int, width: int, rng: np.random.Generator, *, bias: bool = False, shard: Shard | None = None
    ) -> None:
        """Xavier-uniform weights, zero biases. Paper: Astec Sec. 4 (initialisation)."""
        super().__init__()
        self.labels, self.width, self.has_bias, self.shard = labels, width, bias, shard or Shard(labels)
        limit = math.sqrt(6 / (width + labels))
        # All are drawn, whoever has them: they begin as those of one process.
        rows = self.shard.own(uniform((labels, width), limit, rng)).contiguous()
        self.rows = nn.Parameter(torch.cat([rows, torch.zeros(len(rows), 1)], dim=1) if bias else rows)

    @property
    def weight(self) -> Tensor:
        """(L, D)"""
        return self.rows[:, : self.width]

    @property
    def bias(self) -> Tensor | None:
        """(L,)"""
        return self.rows[:, self.width] if self.has_bias else None

    def all_rows(self) -> Tensor:
        return self.rows

    def free_rows(self) -> Tensor:
        return self.rows

    def scores(self, z_BD: Tensor, ids_BC: Tensor) -> Tensor:
        """(B, C): each document against its own labels. At padding (-1) the score is that of label 0: mask it."""
        return torch.einsum("bd,bcd->bc", self.inputs(z_BD), self.rows[ids_BC.clamp(min=0).long()])

    def frozen(self) -> Classifier:
        """Its twin that predicts without torch."""
        return Classifier(to_numpy(self.weight), None if self.bias is None else to_numpy(self.bias))

    def whole(self) -> Classifier | None:
        """The same of all labels, at the first process of several; None at the others."""
        rows = self.shard.whole(self.rows.detach())
        if rows is None:
            return None
        return Classifier(to_numpy(rows[:, : self.width]), to_numpy(rows[:, self.width]) if self.has_bias else None)
