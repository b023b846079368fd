"""The benchmark of ECLARE's step: what it compares, and that each way is really another one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks import composed_step
from longtail.nn.blocks import ByteDropout
from longtail.recipes.eclare import network as label_text_graph


def test_every_way_and_size_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composed_step, "DOCUMENTS", (8, 16))
    numbers = composed_step.measured(labels=40, width=8, shortlist=6)
    ways = {
        "8 documents, as it is",
        "16 documents, as it is",
        "16 documents, products in float32",
        "16 documents, torch's dropout",
    }
    times = numbers["time of a step over that of the largest as it is"]
    assert set(times) == ways
    assert times["16 documents, as it is"] == 1
    assert all(time > 0 for time in times.values())
    assert numbers["time per document over that of the largest as it is"]["16 documents"] == 1


def test_changes_hold_inside_and_are_gone_after() -> None:
    products, by_bytes = vars(label_text_graph)["fastest_products"], ByteDropout.forward
    with composed_step.in_float32(), composed_step.torch_dropout():
        assert vars(label_text_graph)["fastest_products"](torch.device("cpu")) == torch.float32
        assert ByteDropout.forward is torch.nn.Dropout.forward
    assert vars(label_text_graph)["fastest_products"] is products
    assert ByteDropout.forward is by_bytes


def test_candidates_are_different_labels_with_positives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composed_step, "DOCUMENTS", (4, 8))
    found = composed_step.Steps(30, 4, 10).candidates(np.arange(8), np.random.default_rng(0))
    for ids, mask in zip(found.ids, found.mask, strict=True):
        assert len(set(ids[mask])) == mask.sum()
        assert np.all(ids[~mask] == -1)
    assert found.targets.sum() > 0
    assert np.all(found.targets[~found.mask] == 0)
