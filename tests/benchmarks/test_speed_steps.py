"""Cases of `benchmarks.speed` about training: what each compares, and that its ways are really different ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.speed.cases import composed_step, full_engine, label_text, stage4_step, stage_growth
from tests.benchmarks.conftest import Measure
from tests.checkpoints import write_checkpoint
from tests.conftest import ANIMALS

from longtail.nn.blocks import ByteDropout
from longtail.recipes import make_recipe
from longtail.recipes.eclare import network as label_text_graph


def test_every_way_and_size_has_a_time(record_of: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composed_step, "DOCUMENTS", (8, 16))
    numbers = record_of("composed-step", "--labels", 40, "--width", 8, "--shortlist", 6)["numbers"]
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


def test_our_step_and_the_usual_one_do_the_same(record_of: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage4_step, "bandwidth", lambda device: 1e9)
    sizes = ["--documents", 8, "--candidates", 10, "--width", 16, "--labels", 200, "--rounds", 1]
    record = record_of("stage4-step", *sizes)
    assert record["config"] == {"documents": 8, "candidates": 10, "width": 16, "labels": 200, "rounds": 1}
    for kind in ("uniform", "skewed"):
        numbers = record["numbers"][kind]
        assert numbers["loss_difference"] < 1e-4
        assert 10 <= numbers["rows_touched"] <= 80
        assert numbers["ours_over_torch"] > 0


def test_engine_steps_and_errors(record_of: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.speed.engine_oracle.SHAPES", ((30, 500, 16),))
    monkeypatch.setattr(full_engine, "QUICK_SECONDS", 0.001)
    numbers = record_of("full-engine", "--device", "cpu", "--quick")["numbers"]
    errors = [float(error) for found in numbers["relative errors"].values() for error in found]
    assert len(errors) == 3 * 2 * 2, "loss and two gradients, of two losses, in float32 and in bf16"
    assert max(errors) < 0.02
    assert min(numbers["(64, 2000, 64)"].values()) > 0


def test_stages_of_two_sizes(record_of: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_growth, "TOPICS", 10)
    monkeypatch.setattr(stage_growth, "WIDTH", 16)
    monkeypatch.setattr(stage_growth, "EPOCHS", {"surrogate": 1, "classify": 1})
    numbers = record_of("stage-growth", "--documents", 300, "--labels", 50, 100, 200)["numbers"]
    assert numbers.keys() >= {"50 labels", "200 labels", "exponent of surrogate", "exponent of classify"}
    assert numbers["50 labels"]["classify seconds per epoch"] > 0
    assert numbers["50 labels"]["E + W + moments (MB)"] < numbers["200 labels"]["E + W + moments (MB)"]


def test_variants_take_away_the_matrix_and_then_the_text() -> None:
    configs = [
        make_recipe("direct", assignments=list(settings)).config.labels for settings in label_text.VARIANTS.values()
    ]
    assert [(labels.text, labels.text and labels.map) for labels in configs] == [
        (True, "on"),
        (True, "off"),
        (False, False),
    ]


def test_only_steps_are_timed(record_of: Measure, planted_folder: Path) -> None:
    words = ["--rounds", 1, "--set", "encoder.width=8", "--device", "cpu"]
    numbers = record_of("label-text", planted_folder, *words)["numbers"]
    times = numbers["milliseconds per step, fastest round"]
    assert times.keys() == label_text.VARIANTS.keys()
    assert all(0 < each < 1000 for each in times.values())


def test_a_round_on_a_busy_machine_does_not_decide() -> None:
    with_map, text, plain = label_text.VARIANTS
    found = label_text.summary({with_map: [30.0, 300.0, 28.0], text: [20.0, 150.0, 20.0], plain: [10.0, 100.0, 14.0]})
    assert found["times the step of free vectors alone, median round"] == pytest.approx({with_map: 3.0, text: 1.5})
    assert found["milliseconds per step, fastest round"] == {with_map: 28.0, text: 20.0, plain: 10.0}


@pytest.mark.parametrize("recipe", ["ance", "ramen"])
def test_training_beside_the_bare_encoder(
    recipe: str, record_of: Measure, planted_graphs_folder: Path, tmp_path: Path
) -> None:
    """It sees what steps send through the encoder, and leaves nothing behind."""
    checkpoint = write_checkpoint(tmp_path / "c", ANIMALS, layers=1)
    words = ["--checkpoint", checkpoint, "--recipe", recipe, "--set", "train.random=0", "--steps", 2, "--device", "cpu"]
    record = record_of("encoder", planted_graphs_folder, *words)
    found = record["numbers"]
    assert found["documents_per_step"] == 8
    # Documents and one label of each at least; with graphs their anchors, too.
    assert found["texts_per_step"] > (14 if recipe == "ance" else 18)
    assert found["calls_per_step"] == 1, "all texts of a step go through together"
    assert found["texts_per_second"]["training"] == pytest.approx(
        found["texts_per_step"] / found["seconds_per_step"]["training"]
    )
    assert found["share_of_bare"] == sorted(found["share_of_bare_by_block"])[1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_rows_of_two_bytes_by_kernel_and_by_torch(record_of: Measure) -> None:
    numbers = record_of("small-rows", "--quick")["numbers"]
    assert all(isinstance(found, dict) for name, found in numbers.items() if name.startswith(("differences", "step")))
