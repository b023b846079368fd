"""Cases of `benchmarks.speed` that a default was chosen by, or that say how a part of a method grows."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.speed.cases import temperature
from benchmarks.speed.cases.word_influence import POWERS, SHOWN, compared
from tests.benchmarks.conftest import Measure

from longtail.data.dataset import Dataset
from longtail.data.read import read

pytestmark = pytest.mark.usefixtures("one_thread")


def test_slices_are_of_training_documents(planted_graphs_folder: Path) -> None:
    data = temperature.source(str(planted_graphs_folder), 60)
    whole = read(planted_graphs_folder)
    chosen = {*data.train.documents.uids, *data.need_test().documents.uids}
    assert (len(data.train), len(data.need_test()), len(chosen)) == (48, 12, 60)
    assert chosen <= set(whole.train.documents.uids)
    assert not data.graphs


def test_every_temperature_is_measured(
    record_of: Measure, planted_graphs_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temperature, "TEMPERATURES", (0.1, 0.3))
    monkeypatch.setattr(
        temperature, "SETTINGS", ("encoder.width=8", "train.epochs=1", "classify.epochs=1", "features.subwords=none")
    )
    record = record_of("temperature", planted_graphs_folder, "--documents", 60)
    found = record["numbers"][planted_graphs_folder.name]
    assert {base: set(by) for base, by in found.items()} == {"dexml": {"0.1", "0.3"}, "siamese": {"0.1", "0.3"}}
    assert set(found["dexml"]["0.1"]) == set(temperature.METRICS)


def test_every_rule_is_measured_on_the_held_out_documents(planted: Dataset, one_thread: None) -> None:
    data = planted.hold_out(0.2, 0)
    found = compared(data, ["encoder.width=64", "train.epochs=12"], keep=0.05)
    assert len(found) == len(POWERS) + 2
    assert all(scores.keys() == set(SHOWN) for scores in found.values())
    assert found["all vectors"]["P@1"] > 50
    kept = [scores["P@1"] for name, scores in found.items() if name != "all vectors"]
    assert max(kept) <= found["all vectors"]["P@1"]
    assert min(kept) < found["all vectors"]["P@1"], "with a twentieth of the words something is lost"


def test_rules_are_recorded_with_what_is_kept(
    record_of: Measure, planted_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.speed.cases.word_influence.sample_folder", lambda: planted_folder)
    record = record_of("word-influence", "--set", "encoder.width=8", "--set", "train.epochs=1", "--keep", 0.5)
    assert record["config"] == {"share": 0.1, "keep": 0.5}
    assert len(record["numbers"]) == len(POWERS) + 2


def test_the_label_graph_of_ten_times_the_labels(record_of: Measure) -> None:
    numbers = record_of("label-graph", "--sizes", 100, 1000)["numbers"]
    assert [size["labels"] for size in numbers["sizes"]] == [100, 1000]
    assert numbers["sizes"][0]["edges"] > 100
    ratio = numbers["sizes"][1]["seconds"] / numbers["sizes"][0]["seconds"]
    assert numbers["time_ratio_10x_labels"] == pytest.approx(ratio, rel=0.01)


def test_parts_of_gnnxml(record_of: Measure) -> None:
    numbers = record_of("gnnxml", "--scale", 0.002)["numbers"]
    assert numbers["keygraphs"]["documents"] == 200
    assert numbers["keygraphs"]["sentences"] == 1000
    assert (numbers["clusters"]["labels"], numbers["clusters"]["clusters"]) == (1000, 16)
    assert numbers["rankers"] == {"left_out": "no DATA given"}


def test_rankers_of_gnnxml(record_of: Measure, tmp_path: Path, planted: Dataset) -> None:
    from dataclasses import replace

    from longtail.data.read import write

    def with_content(data: Dataset) -> Dataset:
        documents = data.train.documents
        fields = {**documents.fields, "content": documents.fields["title"]}
        return replace(data, train=replace(data.train, documents=replace(documents, fields=fields)), test=None)

    write(with_content(planted), tmp_path / "described", "lf")
    record = record_of("gnnxml", tmp_path / "described", "--part", "rankers")
    assert record["command"].split()[4] == "DATA/described"
    assert record["numbers"]["rankers"]["documents"] == 120
    assert record["numbers"]["rankers"]["labels"] > 0
