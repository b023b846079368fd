"""longtail: tags a short text with the most relevant of thousands to millions of labels.

The public names are loaded when they are first used, so that ``import longtail`` is fast and needs no torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# torch and numba each keep a pool of threads, and by default an idle thread spins for work: on few cores the pools
# take the processor from each other. Measured on 2 busy cores: training steps were 5 times slower. Must be set before
# they load.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOME = {
    "Dataset": "longtail.data.dataset",
    "Predictor": "longtail.predictor",
    "TopK": "longtail.types",
    "LongtailError": "longtail.errors",
    "RECIPES": "longtail.recipes",
    "train": "longtail.api",
    "evaluate": "longtail.api",
    "pack": "longtail.api",
    "read": "longtail.data.read",
}

if TYPE_CHECKING:
    from longtail.errors import LongtailError as LongtailError


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'longtail' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
