"""What label text costs: the variants differ in nothing else, and ratios are of the same round."""

from __future__ import annotations

import pytest

from benchmarks import label_text_cost
from longtail import api
from longtail.data.synthetic import SyntheticConfig, synthesise


def test_variants_take_away_the_matrix_and_then_the_text() -> None:
    configs = [
        api.make_recipe("direct", assignments=list(settings)).config.labels
        for settings in label_text_cost.VARIANTS.values()
    ]
    assert [(labels.text, labels.text and labels.map) for labels in configs] == [
        (True, "on"),
        (True, "off"),
        (False, False),
    ]


def test_only_steps_are_timed() -> None:
    data = synthesise(SyntheticConfig(documents=400, test_documents=20, labels=60, topics=6), 0).dataset
    assert 0 < label_text_cost.step_time(data, ["encoder.width=8", "train.epochs=1"], "cpu") < 1000


def test_a_round_on_a_busy_machine_does_not_decide() -> None:
    with_map, text, plain = label_text_cost.VARIANTS
    found = label_text_cost.summary(
        {with_map: [30.0, 300.0, 28.0], text: [20.0, 150.0, 20.0], plain: [10.0, 100.0, 14.0]}
    )
    assert found["times the step of free vectors alone, median round"] == pytest.approx({with_map: 3.0, text: 1.5})
    assert found["milliseconds per step, fastest round"] == {with_map: 28.0, text: 20.0, plain: 10.0}
