"""Peers on feature rows, beside a recipe, with intervals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import peers
from longtail.data.dataset import Dataset

NAME = "tests.benchmarks.fake_peer:Popular"


def test_a_recipe_beside_a_peer_on_the_same_rows(planted_folder: Path, planted: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "peers.json"
    words = ["--peer-python", sys.executable, "--names", NAME, "--recipe", "tiny", "--out", str(out)]
    peers.main([str(planted_folder), *words])
    numbers = json.loads(out.read_text())["numbers"]
    popular = np.bincount(planted.train.targets.indices).argmax()
    expected = 100 * planted.need_test().targets[:, [popular]].mean()
    assert numbers["models"][NAME]["metrics"]["P@1"] == pytest.approx(expected)
    assert numbers["models"][NAME]["train_s"] > 0
    found = numbers["differences"][f"tiny - {NAME}"]["P@1"]
    assert numbers["models"]["tiny"]["metrics"]["P@1"] - expected == pytest.approx(found["mean"])
    assert 0 < found["low"] < found["high"]
