"""Planted worlds of warm start: half of the labels of test documents are known."""

from __future__ import annotations

from typing import Any

from longtail.config import resolve
from longtail.data.dataset import Dataset
from longtail.data.protocols import WarmStart, warm_start
from longtail.data.synthetic import PRESETS, synthesise


def warm_world(seed: int, **knobs: Any) -> Dataset:
    """Known labels are in training, and told before prediction."""
    return _cut(seed, knobs).warm


def cold_world(seed: int, **knobs: Any) -> Dataset:
    """The same test documents and hidden labels; training as it was."""
    return _cut(seed, knobs).cold


def _cut(seed: int, knobs: dict[str, Any]) -> WarmStart:
    return warm_start(synthesise(resolve(PRESETS["small"], knobs, "planted data"), seed).dataset, seed)
