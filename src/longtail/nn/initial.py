"""Initial values of layers, from an explicit generator. (Layers are made on "meta" first: torch draws nothing.)"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn


def uniform(shape: tuple[int, ...], limit: float, rng: np.random.Generator) -> Tensor:
    """float32 in (-limit, limit)."""
    return torch.from_numpy((rng.random(shape, dtype=np.float32) * 2 - 1) * np.float32(limit))


def xavier_matrix(outputs: int, inputs: int, rng: np.random.Generator) -> Tensor:
    """(outputs, inputs), Xavier-uniform."""
    return uniform((outputs, inputs), math.sqrt(6 / (inputs + outputs)), rng)


def xavier_linear(inputs: int, outputs: int, rng: np.random.Generator) -> nn.Linear:
    """Weights Xavier-uniform, biases zero."""
    layer = nn.Linear(inputs, outputs, device="meta")
    layer.weight = nn.Parameter(xavier_matrix(outputs, inputs, rng))
    layer.bias = nn.Parameter(torch.zeros(outputs))
    return layer


def xavier_convolution(inputs: int, outputs: int, span: int, rng: np.random.Generator) -> nn.Conv1d:
    """Weights Xavier-uniform over the `span` positions that a filter sees, biases zero."""
    layer = nn.Conv1d(inputs, outputs, span, device="meta")
    layer.weight = nn.Parameter(uniform((outputs, inputs, span), math.sqrt(6 / (span * (inputs + outputs))), rng))
    layer.bias = nn.Parameter(torch.zeros(outputs))
    return layer
