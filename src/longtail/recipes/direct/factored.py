"""One training step of `direct` whose rows have factored second moments in the place of Adam's two for each number.

    r_l <- decayed mean of g_l^2, over the numbers of row l;   c_d <- that of column d, over all labels
    u_ld = g_ld / sqrt(r_l c_d / mean c)
    w_l <- w_l - rate u_l / max(1, RMS of u_l)

Paper: Shazeer and Stern, Adafactor (2018), Sec. 3 and 4. As there, a vector is not factored: biases have second moments
of their own, and there are no first moments. Differs:

- Columns are those of the steps before. Blocks of labels are updated while others have no gradient yet; so they see the
  same columns in any order, and those of all processes. A column counts as a hundredth of the mean at least: it may
  have had no gradient before.
- The RMS of an update is bounded for each label, not for all together: a label that was rarely seen has a small r, and
  would be thrown up to thirty times as far as others, all at once. Nobody else need wait for it.
- Decay, and the correction of its bias, are Adam's.

That is 20 bytes a number with label text and 8 without, where `AllLabels` takes 28 and 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtail.nn.full import Float32Table
from longtail.nn.row_tables import AdamFactors, add_mean_squares
from longtail.nn.shards import Shard
from longtail.recipes.direct.objective import BETAS, EPSILON, AllLabels, ComposedRows
from longtail.types import I64

# A square that means nothing beside any other, and what a column is at least beside the mean of all.
_TINY, _SMALLEST = 1e-30, 0.01


class FactoredTable(Float32Table):
    """(L, D + 1) rows of the labels of a shard, the last column the bias; updated in place.

    second: (L, 2), the mean of the squared gradients of a row, and those of its bias.  columns: (D,) float64, of each
    column, up to the step before, summed over the labels of all processes: only their shares count.
    """

    def __init__(self, rows: Tensor) -> None:
        super().__init__(rows)
        self.columns = torch.zeros(rows.shape[1] - 1, dtype=torch.float64, device=rows.device)
        self._sums = torch.zeros_like(self.columns)

    def _moments(self) -> tuple[Tensor, Tensor]:
        return self.rows.new_zeros(self.labels, 0), self.rows.new_zeros(self.labels, 2)

    def update(self, start: int, count: int, gradient: Tensor, scale: float, factors: AdamFactors) -> None:
        part = slice(start, start + count)
        change = gradient[:count, : self.rows.shape[1]].to(self.rows.dtype).mul(scale)
        vectors, bias, second = change[:, :-1], change[:, -1:], self.second[part]
        self._sums += vectors.square().sum(0, dtype=torch.float64)
        add_mean_squares(second[:, :1], vectors, factors)
        add_mean_squares(second[:, 1:], bias, factors)
        spread = second.sqrt().mul_(factors.spread)
        vectors /= spread[:, :1] * self._roots_of_shares() + factors.epsilon
        bias /= spread[:, 1:] + factors.epsilon
        change /= change.square().mean(1, keepdim=True).sqrt().clamp(min=1)
        self.rows[part].sub_(change, alpha=factors.rate)

    def _roots_of_shares(self) -> Tensor:
        """(D,): of columns beside their mean; 1 in the first step."""
        shares = (self.columns + _TINY) / (self.columns.mean() + _TINY)
        return shares.clamp(min=_SMALLEST).sqrt().to(self.rows.dtype)

    def end_step(self, shard: Shard) -> None:
        """The squares of this step count from the next one on."""
        self.columns.mul_(BETAS[1]).add_(shard.summed(self._sums, "squares of columns"), alpha=1 - BETAS[1])
        self._sums.zero_()

    def state(self) -> dict[str, Tensor]:
        """Live tensors with a row for each label; `columns` are those of all of them."""
        return {"rows": self.rows, "second": self.second}


class FactoredRows(ComposedRows):
    """`ComposedRows` whose free vectors are a `FactoredTable`."""

    free: FactoredTable

    def table_of(self, free: Tensor) -> FactoredTable:
        return FactoredTable(free)


class FactoredLabels(AllLabels):
    """`AllLabels` with such rows.  pace: what the learning rate is multiplied with to be that of rows."""

    rows: FactoredRows

    def __init__(self, *arguments: Any, pace: float, **options: Any) -> None:
        self.pace = pace
        super().__init__(*arguments, **options)

    def new_rows(self, free: Tensor, trust: Tensor, *, text: bool) -> FactoredRows:
        return FactoredRows(free, trust, text=text)

    def scored(self, z_BD: Tensor, rows: I64, rng: np.random.Generator, rate: float) -> tuple[Tensor, Tensor]:
        found = super().scored(z_BD, rows, rng, rate)
        self.rows.free.end_step(self.shard)
        return found

    def factors(self, rate: float) -> AdamFactors:
        return AdamFactors.of(int(self._count), self.pace * rate, (0.0, BETAS[1]), EPSILON)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"columns": self.rows.free.columns}
