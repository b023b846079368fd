"""Adam over a model: dense where every batch touches every number, by rows where a table is big."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.nn.row_adam import RowAdam
from longtail.nn.row_table import RowTable


class ModelAdam:
    """Adam on all parameters of `model` that want gradients; the tables (`RowTable`) among its modules by rows.

    `state` gives live tensors under stable names; copying saved values into them restores the optimiser.
    """

    def __init__(self, model: nn.Module) -> None:
        self.tables = {name: module for name, module in model.named_modules() if isinstance(module, RowTable) and module.weight.requires_grad}
        self.by_row = {name: RowAdam(table.weight) for name, table in self.tables.items()}
        in_tables = {id(table.weight) for table in self.tables.values()}
        self.dense = {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in in_tables}
        self._adam = torch.optim.Adam(list(self.dense.values()), fused=True) if self.dense else None
        if self._adam is not None:
            # torch makes this at the first step; made now, a checkpoint has something to be copied into.
            for p in self.dense.values():
                zero = torch.zeros((), dtype=torch.float32, device=p.device)
                self._adam.state[p] = {"step": zero, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    def step(self, rate: float) -> None:
        """Apply and clear the gradients that backward passes left."""
        if self._adam is not None:
            self._adam.param_groups[0]["lr"] = rate
            self._adam.step()
            self._adam.zero_grad(set_to_none=True)
        for name, table in self.tables.items():
            pending = table.take_gradient()
            if pending is not None:
                self.by_row[name].step(*pending, rate)

    def state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        if self._adam is not None:
            for name, p in self.dense.items():
                state |= {f"{name}.{moment}": value for moment, value in self._adam.state[p].items()}
        for name, adam in self.by_row.items():
            state |= {f"{name}.{moment}": value for moment, value in adam.state().items()}
        return state
