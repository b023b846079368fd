"""Where causes of failed claims are looked for: what is asked exists, and the file says what was found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.claims import causes
from benchmarks.claims.causes import LOOKS, Look
from benchmarks.claims.entries import Difference, Value, difference
from benchmarks.claims.measures import by_frequency
from benchmarks.claims.workshop import Workshop, recipe_of
from tests.benchmarks.small_claims import BLIND, SEES, SILENT, WORLD

READING = Look(
    worlds={"texts": WORLD, "noise": SILENT},
    variants={"sees": SEES, "blind": BLIND},
    compared=(("sees", "blind"),),
    also=(
        Value("sees", "P@5 [10-99]", by_frequency),
        Difference(Value("sees", "P@1"), Value("sees", "P@5")),
    ),
    shown=("P@1",),
    only={"noise": ("blind",)},
)


@pytest.mark.parametrize("claim", list(LOOKS))
def test_what_is_asked_of_a_look_exists(claim: str) -> None:
    look = LOOKS[claim]
    for variant in look.variants.values():
        recipe_of(variant)  # refuses settings that do not exist
    named = {name for pair in look.compared for name in pair} | {n for names in look.only.values() for n in names}
    named |= {value.variant for asked in look.also for value in causes._values(asked)}
    assert named <= look.variants.keys()
    assert look.only.keys() <= look.worlds.keys()


def test_the_file_says_what_was_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(causes.LOOKS, "A6", READING)
    out = tmp_path / "found.json"
    words = ["A6", "--device", "cpu", "--cache", str(tmp_path / "cache"), "--out", str(out), "--seeds", "2"]
    assert causes.main(words) == 0
    found = json.loads(out.read_text())["numbers"]
    assert found["seeds"] == 2
    texts, noise = found["A6"]["texts"], found["A6"]["noise"]
    assert texts["settings"] == {"sees": "tiny", "blind": "tiny features.max_features=1"}
    gain = texts["differences"]["P@1: sees - blind"]
    assert 10 < gain["low"] <= gain["value"] <= gain["high"]
    assert len(gain["per seed"]) == 2
    sees, blind = (texts["metrics"][name]["P@1"]["mean"] for name in ("sees", "blind"))
    assert gain["value"] == pytest.approx(sees - blind, abs=2e-3)
    # Two metrics of one variant are named both, a single value by its variant.
    assert texts["differences"]["P@1(sees) - P@5(sees)"]["value"] > 0
    assert any("[10-99]" in name for name in texts["differences"])
    # Only one of the variants was trained on noise, so nothing is compared there.
    assert noise["settings"].keys() == {"blind"}
    assert noise["differences"] == {}


def test_a_look_that_compares_what_is_not_there_is_silent_of_it(tmp_path: Path) -> None:
    look = replace(READING, only={"texts": ("sees",), "noise": ("blind",)}, also=(difference("sees", "blind", "P@1"),))
    found = look.found(Workshop(tmp_path, device="cpu"), 1)
    assert found["texts"]["differences"] == found["noise"]["differences"] == {}
