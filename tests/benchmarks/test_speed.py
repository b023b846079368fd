"""The command `benchmarks.speed`, and what its cases share."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.speed import common
from benchmarks.speed.__main__ import NAMES, main
from benchmarks.speed.cases import eclare
from tests.benchmarks.conftest import Measure

from longtail.data.dataset import Items

DOCUMENTS = Items([f"d{n}" for n in range(5)], {"title": ["a"] * 5})


def test_cases_are_listed_with_what_they_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(line.endswith(".") for line in lines)


def test_every_case_is_run_by_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_speed*.py"))
    assert [name for name in NAMES if f'record_of("{name}"' not in tests.replace("(\n        ", "(")] == []


def test_a_case_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "no case 'nothing'; cases: composed-step," in capsys.readouterr().err


def test_a_process_of_its_own_has_the_number_of_threads_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert common.alone(os.getenv, "OMP_NUM_THREADS", threads=1) == "1"
    assert common.alone(os.getenv, "OMP_NUM_THREADS") == "3"
    assert common.alone(os.getenv, "OMP_NUM_THREADS", OMP_NUM_THREADS="2") == "2"
    assert common.alone(os.getpid) != os.getpid()


def test_tasks_of_a_training_are_timed_and_their_memory_is_looked_at() -> None:
    now = iter((1.0, 4.0))
    watch = common.TaskWatch(lambda: next(now), memory=True)
    with watch.task("surrogate", 12):
        pass
    assert (watch.seconds, watch.steps) == ({"surrogate": 3.0}, {"surrogate": 12})
    assert watch.peak["surrogate"] > 2**20


class Watched:
    """Two models on a clock that only they move: seconds per document, and once more a second when they are asked for
    the first time.
    """

    def __init__(self, seconds: dict[str, float]) -> None:
        self.now, self.asked = 0.0, list[tuple[str, tuple[str, ...]]]()
        self.models: Any = {name: self._model(name, each) for name, each in seconds.items()}

    def _model(self, name: str, seconds: float) -> Any:
        def rank(documents: Items, k: int) -> None:
            self.now += seconds * len(documents.uids) + (name not in {asked for asked, _ in self.asked})
            self.asked.append((name, tuple(documents.uids)))

        return type("Model", (), {"rank": staticmethod(rank)})()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched({"eclare": 0.003, "astec": 0.002})
    monkeypatch.setattr(time, "perf_counter", lambda: watched.now)
    return watched


def test_models_take_turns_on_the_same_documents_and_the_first_turn_does_not_count(watched: Watched) -> None:
    times = common.in_turns(watched.models, DOCUMENTS, at_once=2, turns=3)
    assert [name for name, _ in watched.asked] == ["eclare", "astec"] * 4
    expected = [("d0", "d1"), ("d2", "d3"), ("d4", "d0"), ("d1", "d2")]
    assert [uids for _, uids in watched.asked[::2]] == [uids for _, uids in watched.asked[1::2]] == expected
    assert times["eclare"] == pytest.approx([0.003] * 3)
    assert times["astec"] == pytest.approx([0.002] * 3)


def test_ratios_are_of_medians_per_document(watched: Watched) -> None:
    found = common.beside(watched.models, DOCUMENTS)
    assert found.keys() == {"1 at once", "256 at once"}
    for numbers in found.values():
        assert numbers["eclare / astec"] == 1.5
        assert numbers["milliseconds per document"] == {"eclare": 3.0, "astec": 2.0}
        assert numbers["quartiles"] == {"eclare": [3.0, 3.0], "astec": [2.0, 2.0]}


def test_eclare_and_astec_are_compared_with_shortlists_of_one_size(
    record_of: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, int] = {}

    def looked_at(models: dict[str, Any], documents: Items) -> dict[str, Any]:
        sizes.update({name: model.bundle.ranker.shortlist_size for name, model in models.items()})
        return {}

    monkeypatch.setattr(eclare, "beside", looked_at)
    record = record_of("eclare", "--labels", 300, "--width", 16)
    assert record["numbers"] == {"labels": 300, "shortlist": sizes["eclare"]}
    assert record["data_hash"]
    assert 300 <= sizes["eclare"] == sizes["astec"] <= 512, "all 256 clusters are looked into, of 1 or 2 labels each"


def test_galaxc_costs_and_memory(
    record_of: Measure, planted_graphs_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "TURNS", {1: 2})
    monkeypatch.setattr("benchmarks.speed.cases.galaxc.LARGE", 300)
    record = record_of("galaxc", planted_graphs_folder, "--width", 16, "--epochs", 1)
    numbers = record["numbers"]
    assert record["command"].split()[4:6] == ["DATA/planted_with_graphs", "--width"]
    assert numbers["training over the graph alone: attention / none"] > 0
    assert numbers["processor seconds of training"].keys() == {"none", "label"}
    assert numbers["cold prediction"]["1 at once"]["galaxc / astec"] > 0
    assert numbers["memory of 300 predictions (MB)"] >= 0
