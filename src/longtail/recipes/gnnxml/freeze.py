"""From the trained two-branch network to its numpy twin, normalisations folded in."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from longtail.recipes.gnnxml.encoder import FrozenBranch, FrozenGin, FrozenLayer
from longtail.recipes.gnnxml.network import ALPHA_AT_INFERENCE, CONVENTIONAL, BilateralGin, GinLayer, Norm
from longtail.training.freeze import array
from longtail.types import F32


def frozen_gin(model: BilateralGin, *, weighted: bool = False) -> FrozenGin:
    """The numpy twin, without the heads. weighted: whether it was trained on weighted edges."""
    branches: dict[str, Any] = dict(model.branches.items())
    frozen = {
        name: FrozenBranch(_layers(branch.layers), *_scale_and_shift(branch.norm)) for name, branch in branches.items()
    }
    return FrozenGin(_layers(model.common), frozen, model.concat, model.readout == "mean", weighted)


def frozen_heads(model: BilateralGin) -> F32:
    """(K, branches x D + 1): one row per cluster, to be multiplied with what `FrozenGin.encode` gives."""
    branches: dict[str, Any] = dict(model.branches.items())
    alpha = {
        name: (ALPHA_AT_INFERENCE if name == CONVENTIONAL else 1 - ALPHA_AT_INFERENCE) if len(branches) == 2 else 1.0
        for name in branches
    }
    weights = [alpha[name] * array(branches[name].head.weight) for name in sorted(branches)]
    bias = np.sum([alpha[name] * array(branch.head.bias) for name, branch in branches.items()], axis=0)
    return np.concatenate([*weights, bias[:, None]], axis=1).astype(np.float32)


def _layers(layers: Any) -> tuple[FrozenLayer, ...]:
    return tuple(_layer(layer) for layer in layers)


def _layer(layer: GinLayer) -> FrozenLayer:
    scale, shift = _scale_and_shift(layer.norm)
    first = array(layer.first.weight) * scale[:, None]
    return FrozenLayer(
        float(layer.eps.detach()),
        first,
        array(layer.first.bias) * scale + shift,
        array(layer.second.weight),
        array(layer.second.bias),
    )


def _scale_and_shift(norm: Norm) -> tuple[F32, F32]:
    """A trained normalisation as x * scale + shift."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return array(scale), array(norm.bias - norm.running_mean * scale)
