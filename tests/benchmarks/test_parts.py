"""What a part is worth: means over seeds, and differences of the seeds that both variants have."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.parts import SHOWN, compared


def keep(folder: Path, variant: str, seed: int, right: int) -> None:
    """A model that is right for the first so many of 100 documents, by every metric."""
    numerators = np.zeros((100, len(SHOWN)))
    numerators[:right] = 1
    np.savez(
        folder / f"planted+{variant}+{seed}.npz",
        about=json.dumps({"n_test": 100}),
        numerators=numerators,
        denominators=np.ones((100, 1)),
        divisor=np.zeros(len(SHOWN), np.int64),
    )


def test_variants_are_compared_by_the_seeds_that_both_have(tmp_path: Path) -> None:
    keep(tmp_path, "base", 0, 40)
    keep(tmp_path, "base", 1, 50)
    keep(tmp_path, "smoothing off", 0, 30)
    keep(tmp_path, "smoothing off", 2, 90)
    found = compared("planted", tmp_path)
    assert found["n_test"] == 100
    assert found["variants"]["base"]["mean"]["P@1"] == pytest.approx(45)
    other = found["variants"]["smoothing off"]
    assert other["mean"]["P@1"] == pytest.approx(60)
    assert other["beside base"]["seeds"] == [0]
    mean, low, high = other["beside base"]["P@1"]
    assert mean == pytest.approx(-10)
    assert low < mean < high < 0
    assert "beside smoothing off" not in found["variants"]["base"]
    both_ways = compared("planted", tmp_path, ["base", "smoothing off"])["variants"]
    assert both_ways["base"]["beside smoothing off"]["P@1"][0] == pytest.approx(10)
    assert both_ways["smoothing off"]["beside base"] == other["beside base"]
