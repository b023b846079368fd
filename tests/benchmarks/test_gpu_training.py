"""`benchmarks.gpu_training`: the parts that it puts clocks around are there."""

from __future__ import annotations

import importlib

import pytest
from benchmarks.gpu_training import PARTS


@pytest.mark.parametrize("place", PARTS.values())
def test_what_is_timed_is_there(place: str) -> None:
    module, _, attribute = place.partition(":")
    owner = importlib.import_module(module)
    for name in attribute.split("."):
        owner = getattr(owner, name)
    assert callable(owner)
