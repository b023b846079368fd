"""The scaling study on sizes that take no time."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from benchmarks.scaling.__main__ import exponent, growth, main
from benchmarks.scaling.plot import log_log
from benchmarks.scaling.rows import BRANCHES, planted_documents, planted_index, planted_rows, topics_of


def test_planted_rows_are_the_same_every_time_and_near_their_siblings() -> None:
    rows, again = (np.concatenate(list(planted_rows(3000, 64))) for _ in range(2))
    np.testing.assert_array_equal(rows, again)
    assert rows.shape == (3000, 65)
    units = rows[:, :-1] / np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)
    siblings, strangers = (units[:-1] * units[1:]).sum(axis=1), (units[:1500] * units[1500:]).sum(axis=1)
    assert siblings.mean() > strangers.mean() + 0.3


def test_topics_nest_and_their_sizes_follow_a_power_law() -> None:
    broad, narrow = topics_of(20_000, 2, np.random.default_rng(0))
    np.testing.assert_array_equal(narrow // BRANCHES, broad)
    sizes = np.bincount(broad, minlength=BRANCHES)
    assert sizes[0] > 3 * sizes[-1] > 0


def test_documents_are_near_labels_and_never_negative() -> None:
    index = planted_index(2000, 64)
    documents = planted_documents(index, 50)
    assert documents.min() >= 0
    assert (documents[:, -1] == 1).all()
    top = index.query(documents, 10)
    assert (top.scores[:, 0] - top.scores[:, -1]).mean() > 1, "some labels are clearly better than others"
    np.testing.assert_array_equal(documents, planted_documents(index, 50))


def test_exponents_are_slopes_in_logarithms() -> None:
    assert exponent({10: 5.0, 1000: 50.0}) == pytest.approx(0.5)
    numbers = {
        str(labels): {"taken": {"single_p50_ms": labels**0.2, "batch_ms": labels**0.1}, "search": [{"kind": "exact", "single_ms": float(labels)}]}
        for labels in (10_000, 100_000, 1_000_000)
    }
    found = growth(numbers)["exponents"]
    assert found["single_p50_ms"] == {"all": pytest.approx(0.2), "from 100000": pytest.approx(0.2)}
    assert found["exact search alone"]["all"] == pytest.approx(1)


def test_the_plot_has_a_line_for_each_series() -> None:
    plot = ElementTree.fromstring(log_log("a < b", "ms", {"one": {10: 0.5, 1000: 2.0}, "two & more": {10: 3.0, 1000: 4.0}}))
    lines = [element for element in plot if element.tag.endswith("polyline")]
    assert len(lines) == 2
    (x0, y0), (x1, y1) = (tuple(map(float, point.split(","))) for point in lines[0].attrib["points"].split())
    assert x0 < x1
    assert y0 > y1, "more stands higher"


def test_the_command(tmp_path: Path) -> None:
    assert main(["--sizes", "200,400", "--width", "64", "--out", str(tmp_path / "scaling.json"), "--work", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "scaling.json").read_text())
    for labels in ("200", "400"):
        taken = result["numbers"]["sizes"][labels]["taken"]
        assert taken["kind"] == "exact"
        assert 0 < taken["single_p50_ms"] <= taken["single_p99_ms"]
        assert min(taken["batch_ms"], taken["peak_mb"], taken["open_seconds"]) > 0
    assert "single_p50_ms" in result["numbers"]["exponents"]
    assert (tmp_path / "scaling.svg").read_text().startswith("<svg")
    assert str(tmp_path) not in result["command"]
