"""The benchmark of prediction with transformers: what it compares, and that it does not call numpy onnxruntime."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.checkpoints import write_checkpoint

from benchmarks import transformer_prediction as benchmark
from longtail.errors import MissingExtra
from longtail.models.checkpoint import read_checkpoint
from longtail.search.packed import Packer
from longtail.types import F32, Batch


def test_encoders_are_compared_with_the_first(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_checkpoint(tmp_path / "c", [f"w{n}" for n in range(9)]))
    tokens = np.random.default_rng(0).integers(0, 12, (6, 5)).astype(np.int32)
    frozen = checkpoint.frozen
    encoders = {
        "torch": benchmark.by_torch(checkpoint),
        "numpy": benchmark.by_numpy(frozen),
        "int8": benchmark.by_numpy(frozen.packed(Packer("int8"))),
    }
    seen: list[Any] = []

    def score(documents: F32, labels: F32) -> dict[str, float]:
        seen.append((documents.shape, labels.shape))
        return {"P@1": 1.0}

    found = benchmark.measure(encoders, Batch(tokens=tokens), Batch(tokens=tokens[:3]), score)
    assert seen == [((6, 16), (3, 16))] * 3
    assert found["torch"]["largest_difference"] == 0
    assert found["numpy"]["largest_difference"] < 1e-5
    assert 1e-4 < found["int8"]["largest_difference"] < 0.5
    assert found["int8"]["smallest_cosine"] < 1


def test_without_onnxruntime_it_does_not_run(monkeypatch: pytest.MonkeyPatch, planted_folder: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="onnxruntime"):
        benchmark.main([str(planted_folder)])
