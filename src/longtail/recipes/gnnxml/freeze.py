"""From the trained two-branch network to its numpy twin, normalisations folded in."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.models.gin import FrozenGinLayer
from longtail.recipes.gnnxml.network import ALPHA_AT_INFERENCE, CONVENTIONAL, BilateralGin
from longtail.recipes.gnnxml.ranker import FrozenBranch, FrozenGin
from longtail.training.freeze import array
from longtail.types import F32


def frozen_gin(model: BilateralGin, *, weighted: bool = False) -> FrozenGin:
    """The numpy twin, without the heads. weighted: whether it was trained on weighted edges."""
    branches: dict[str, Any] = dict(model.branches.items())
    frozen = {
        name: FrozenBranch(_layers(branch.layers), *map(array, branch.norm.folded()))
        for name, branch in branches.items()
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


def _layers(layers: Any) -> tuple[FrozenGinLayer, ...]:
    return tuple(layer.frozen() for layer in layers)
