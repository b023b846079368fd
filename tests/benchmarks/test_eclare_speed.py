"""Two models are timed in turns, over the same documents."""

from __future__ import annotations

import time
from typing import Any

import pytest

from benchmarks import eclare_speed
from longtail.data.dataset import Items

DOCUMENTS = Items([f"d{n}" for n in range(5)], {"title": ["a"] * 5})


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
    times = eclare_speed.in_turns(watched.models, DOCUMENTS, at_once=2, turns=3)
    assert [name for name, _ in watched.asked] == ["eclare", "astec"] * 4
    expected = [("d0", "d1"), ("d2", "d3"), ("d4", "d0"), ("d1", "d2")]
    assert [uids for _, uids in watched.asked[::2]] == [uids for _, uids in watched.asked[1::2]] == expected
    assert times["eclare"] == pytest.approx([0.003] * 3)
    assert times["astec"] == pytest.approx([0.002] * 3)


def test_ratios_are_of_medians_per_document(watched: Watched) -> None:
    found = eclare_speed.compared(watched.models, DOCUMENTS)
    assert found.keys() == {"1 at once", "256 at once"}
    for numbers in found.values():
        assert numbers["eclare / astec"] == 1.5
        assert numbers["milliseconds per document"] == {"eclare": 3.0, "astec": 2.0}
        assert numbers["quartiles"] == {"eclare": [3.0, 3.0], "astec": [2.0, 2.0]}


def test_both_methods_are_compared_with_shortlists_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, int] = {}

    def looked_at(models: dict[str, Any], documents: Items) -> dict[str, Any]:
        sizes.update({name: model.bundle.ranker.shortlist_size for name, model in models.items()})
        return {}

    monkeypatch.setattr(eclare_speed, "compared", looked_at)
    found = eclare_speed.measured(eclare_speed.planted(300), width=16)
    assert found == {"labels": 300, "shortlist": sizes["eclare"]}
    assert 300 <= sizes["eclare"] == sizes["astec"] <= 330, "all clusters are looked into, of 4 or 5 labels each"
