"""The measurement of encoders in training: it sees what steps send through the encoder, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.encoder_speed import main
from tests.checkpoints import write_checkpoint
from tests.conftest import ANIMALS

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("recipe", ["ance", "ramen"])
def test_training_beside_the_bare_encoder(recipe: str, planted_graphs_folder: Path, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", ANIMALS, layers=1)
    out = tmp_path / "speed.json"
    main(
        [
            str(planted_graphs_folder),
            "--checkpoint",
            str(checkpoint),
            "--recipe",
            recipe,
            "--set",
            "train.random=0",
            "--steps",
            "2",
            "--device",
            "cpu",
            "--json",
            str(out),
        ]
    )
    record = json.loads(out.read_text())
    found = record["numbers"]
    assert found["documents_per_step"] == 8
    # Documents and one label of each at least; with graphs their anchors, too.
    assert found["texts_per_step"] > (14 if recipe == "ance" else 18)
    assert found["calls_per_step"] == 1, "all texts of a step go through together"
    assert found["texts_per_second"]["training"] == pytest.approx(
        found["texts_per_step"] / found["seconds_per_step"]["training"]
    )
    assert found["share_of_bare"] == sorted(found["share_of_bare_by_block"])[1]
    assert str(tmp_path) not in json.dumps(record)
