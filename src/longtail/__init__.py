"""longtail: tags a short text with the most relevant of thousands to millions of labels.

The public names are loaded when they are first used, so that ``import longtail`` is fast and needs no torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# torch and numba each keep a pool of threads, and by default an idle thread spins for work: on few cores the pools
# take the processor from each other. Must be set before they load.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOME = {
    "Dataset": "longtail.data.dataset",
    "Predictor": "longtail.predictor",
    "TopK": "longtail.types",
    "LongtailError": "longtail.errors",
    "RECIPES": "longtail.recipes",
    "train": "longtail.pipeline",
    "evaluate": "longtail.evaluation",
    "calibrate": "longtail.calibrating",
    "pack": "longtail.packing",
    "tune": "longtail.tuning",
    "weak_labels": "longtail.failures",
    "read": "longtail.data.read",
}

if TYPE_CHECKING:
    from longtail.calibrating import calibrate as calibrate
    from longtail.data.dataset import Dataset as Dataset
    from longtail.data.read import read as read
    from longtail.errors import LongtailError as LongtailError
    from longtail.evaluation import evaluate as evaluate
    from longtail.failures import weak_labels as weak_labels
    from longtail.packing import pack as pack
    from longtail.pipeline import train as train
    from longtail.predictor import Predictor as Predictor
    from longtail.recipes import RECIPES as RECIPES
    from longtail.tuning import tune as tune
    from longtail.types import TopK as TopK


def __getattr__(name: str) -> Any:
    if name == "labels":
        return importlib.import_module("longtail.labels")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'longtail' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
