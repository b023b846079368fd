"""Temperatures are chosen on training documents alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import tower_temperature as benchmark
from longtail.data.read import read

pytestmark = pytest.mark.usefixtures("one_thread")


def test_slices_are_of_training_documents(planted_graphs_folder: Path) -> None:
    data = benchmark.source(planted_graphs_folder.name, planted_graphs_folder.parent, 60)
    whole = read(planted_graphs_folder)
    chosen = {*data.train.documents.uids, *data.need_test().documents.uids}
    assert (len(data.train), len(data.need_test()), len(chosen)) == (48, 12, 60)
    assert chosen <= set(whole.train.documents.uids)
    assert not data.graphs


def test_every_temperature_is_measured(
    planted_graphs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "TEMPERATURES", (0.1, 0.3))
    monkeypatch.setattr(
        benchmark, "SETTINGS", ("encoder.width=8", "train.epochs=1", "classify.epochs=1", "features.subwords=none")
    )
    main = [
        planted_graphs_folder.name,
        "--data",
        str(planted_graphs_folder.parent),
        "--documents",
        "60",
        "--json",
        str(tmp_path / "t.json"),
    ]
    benchmark.main(main)
    found = json.loads((tmp_path / "t.json").read_text())["numbers"][planted_graphs_folder.name]
    assert {base: set(by) for base, by in found.items()} == {"dexml": {"0.1", "0.3"}, "siamese": {"0.1", "0.3"}}
    assert set(found["dexml"]["0.1"]) == set(benchmark.METRICS)
