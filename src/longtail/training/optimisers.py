"""Adam over a model: dense where every batch touches every number, by rows where a table is big."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from longtail.nn.row_tables import RowAdam, RowTable


class ModelAdam:
    """Adam on all parameters of `model` that want gradients; the tables (`RowTable`) among its modules by rows.

    factors: multiples of the rate for parameters by the beginning of their names, e.g. ``{"head.logits": 50}``;
    others have 1. `state` gives live tensors under stable names; copying saved values into them restores the
    optimiser.
    """

    def __init__(self, model: nn.Module, factors: Mapping[str, float] | None = None) -> None:
        self._factors = dict(factors or {})
        self.tables = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, RowTable) and module.weight.requires_grad
        }
        self.by_row = {name: RowAdam(table.weight) for name, table in self.tables.items()}
        in_tables = {id(table.weight) for table in self.tables.values()}
        self.dense = {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in in_tables}
        groups = [
            {"params": [p for name, p in self.dense.items() if self.factor(name) == f], "factor": f}
            for f in {1.0, *self._factors.values()}
        ]
        groups = [group for group in groups if group["params"]]
        self._adam = torch.optim.Adam(groups, fused=True) if groups else None
        if self._adam is not None:
            # torch makes this at the first step; made now, a checkpoint has something to be copied into.
            for p in self.dense.values():
                zero = torch.zeros((), dtype=torch.float32, device=p.device)
                self._adam.state[p] = {"step": zero, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    def factor(self, name: str) -> float:
        return next((factor for beginning, factor in self._factors.items() if name.startswith(beginning)), 1.0)

    def step(self, rate: float) -> None:
        """Apply and clear the gradients that backward passes left."""
        if self._adam is not None:
            for group in self._adam.param_groups:
                group["lr"] = rate * group["factor"]
            self._adam.step()
            self._adam.zero_grad(set_to_none=True)
        for name, table in self.tables.items():
            pending = table.take_gradient()
            if pending is not None:
                self.by_row[name].step(*pending, rate * self.factor(name))

    def rows_of(self, table: RowTable) -> RowAdam:
        """What updates `table`, one of the tables of the model."""
        return next(self.by_row[name] for name, module in self.tables.items() if module is table)

    def state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        if self._adam is not None:
            for name, p in self.dense.items():
                state |= {f"{name}.{moment}": value for moment, value in self._adam.state[p].items()}
        for name, adam in self.by_row.items():
            state |= {f"{name}.{moment}": value for moment, value in adam.state().items()}
        return state
