"""The measures of the server, small: that they see what there is to be seen."""

from __future__ import annotations

from pathlib import Path

from benchmarks.serving import measures
from benchmarks.serving.load import Seen
from benchmarks.serving.processes import serving

TEXTS = [f"cat dog noise{number % 50}" for number in range(700)] + ["an owl", "a pig"] * 150


def test_a_server_under_load(direct_run: Path) -> None:
    engine = measures.Engine(direct_run, TEXTS)
    assert engine.texts_per_s() > 0
    with serving(f"{measures.MODEL}={direct_run}", "--queue", "64") as running:
        alone = measures.alone(running.port, engine, rounds=1, count=20)
        assert 0 < alone["empty_p50_ms"] < alone["predict_p50_ms"]
        seen = measures.together(running.port, engine, 0.5, 4, connections=4)
        assert seen["statuses"].keys() == {"200"}
        assert seen["texts_per_s"] == round(4 * seen["answered_per_s"], 1)
        assert seen["share_of_engine"] == round(seen["texts_per_s"] / seen["engine_texts_per_s"], 3)
        found = measures.ceiling(running, engine, 0.3)
        assert 0 < found["empty"]["worker_us_per_request"] < found["one text"]["worker_us_per_request"]
        memory = measures.memory(running, TEXTS, 100, steps=2)
        assert memory["statuses"] == {"200": 100}
        assert len(memory["private_mb"]) == 3


def test_exchanges_and_kills(direct_run: Path) -> None:
    found = measures.swaps(direct_run, TEXTS, 2)
    assert found["exchanges"] == 2
    assert found["failed"] == found["answers_not_of_the_version_they_name"] == 0
    assert found["statuses"].keys() == {"200"}
    killed = measures.kills(direct_run, TEXTS, count=1, connections=4)
    assert killed["failed"] <= 4
    assert killed["statuses"].keys() == {"200"}


def test_a_summary_of_what_was_seen() -> None:
    seen = Seen([0.001 * number for number in range(1, 101)], failed=2, wall=2.0)
    seen.statuses.update({200: 100, 503: 7})
    found = seen.summary()
    assert (found["p50_ms"], found["p99_ms"]) == (51.0, 100.0)
    assert (found["requests"], found["answered_per_s"]) == (109, 50.0)
