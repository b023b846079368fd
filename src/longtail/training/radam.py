"""Rectified Adam over a small model. Paper: GNN-XML Sec. 4.2; Liu et al., ICLR 2020."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ModelRAdam:
    """RAdam at its original settings on all parameters of `model` that want gradients.

    `state` gives live tensors under stable names; copying saved values into them restores the optimiser.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._radam = torch.optim.RAdam(list(self.parameters.values()))
        # torch makes this at the first step; made now, a checkpoint has something to be copied into.
        for p in self.parameters.values():
            self._radam.state[p] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }

    def step(self, rate: float) -> None:
        """Apply and clear the gradients that a backward pass left."""
        self._radam.param_groups[0]["lr"] = rate
        self._radam.step()
        self._radam.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}.{moment}": value
            for name, p in self.parameters.items()
            for moment, value in self._radam.state[p].items()
        }
