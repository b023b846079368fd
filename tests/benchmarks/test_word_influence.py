"""The comparison of rules for the words that a packed model keeps, on planted data."""

from __future__ import annotations

from benchmarks.word_influence import POWERS, SHOWN, compared

from longtail.data.dataset import Dataset


def test_every_rule_is_measured_on_the_held_out_documents(planted: Dataset, one_thread: None) -> None:
    data = planted.hold_out(0.2, 0)
    found = compared(data, ["encoder.width=64", "train.epochs=12"], keep=0.05)
    assert len(found) == len(POWERS) + 2
    assert all(scores.keys() == set(SHOWN) for scores in found.values())
    assert found["all vectors"]["P@1"] > 50
    kept = [scores["P@1"] for name, scores in found.items() if name != "all vectors"]
    assert max(kept) <= found["all vectors"]["P@1"]
    assert min(kept) < found["all vectors"]["P@1"], "with a twentieth of the words something is lost"
