"""The case `scaling` on sizes that take no time, and the case `shape`, which says what its planted rows are like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from benchmarks.speed.cases.scaling import exponent, growth
from benchmarks.speed.cases.shape import distance, fitted, in_main_directions, planted_shape, shape_of, trained
from benchmarks.speed.planted_rows import BRANCHES, YSO, planted_documents, planted_index, planted_rows, topics_of
from benchmarks.speed.plot import log_log
from tests.benchmarks.conftest import Measure

import longtail
from longtail.data.dataset import Dataset


def test_planted_rows_are_the_same_every_time_and_near_their_siblings() -> None:
    rows, again = (np.concatenate(list(planted_rows(3000, 64))) for _ in range(2))
    np.testing.assert_array_equal(rows, again)
    assert rows.shape == (3000, 65)
    units = rows[:, :-1] / np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)
    siblings, strangers = (units[:-1] * units[1:]).sum(axis=1), (units[:1500] * units[1500:]).sum(axis=1)
    assert siblings.mean() > strangers.mean() + 0.15


def test_a_shape_knows_directions_neighbours_and_scores() -> None:
    """Rows that differ in 4 of 16 directions, in pairs."""
    rng = np.random.default_rng(0)
    rows = np.zeros((2000, 17), np.float32)
    rows[::2, :4] = rng.standard_normal((1000, 4))
    rows[1::2] = rows[::2]
    queries = np.concatenate([rows[:50, :16], np.ones((50, 1))], axis=1).astype(np.float32)
    found = shape_of(rows, queries)
    assert found["directions 0.25"] == pytest.approx(1, abs=1e-5)
    assert found["directions 0.125"] < 0.7
    assert found["cosine 1"] == pytest.approx(1, abs=1e-5), "the twin of each"
    assert found["cosine 1"] > found["cosine 10"] > found["cosine 1000"]
    scores = queries @ rows.T
    assert 0.2 < found["in leaves"] <= 1
    assert found["best 1"] == pytest.approx(
        ((scores.max(axis=1) - scores.mean(axis=1)) / scores.std(axis=1)).mean(), rel=1e-4
    )


def test_main_directions_keep_products() -> None:
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 20)) + rng.standard_normal(20)
    rows, queries = (
        np.concatenate([part, rng.standard_normal((len(part), 1))], axis=1).astype(np.float32)
        for part in (flat, flat[:40])
    )
    narrow_rows, narrow_queries = in_main_directions(rows, queries, 4)
    assert narrow_rows.shape == (300, 5)
    np.testing.assert_allclose(narrow_queries @ narrow_rows.T, queries @ rows.T, rtol=1e-3, atol=1e-3)


def test_planted_rows_are_fitted_to_planted_rows() -> None:
    """Begun elsewhere, a likeness is found whose rows come far nearer."""
    target = planted_shape(1500, 64, YSO)
    start = replace(YSO, last_share=min(0.95, YSO.last_share / 0.85**2))
    like, error = fitted(target, 1500, 64, start, rounds=3)
    assert error == pytest.approx(distance(target, planted_shape(1500, 64, like)))
    assert error < distance(target, planted_shape(1500, 64, start)) / 2


@pytest.fixture(scope="module")
def direct_run(tmp_path_factory: pytest.TempPathFactory, planted: Dataset) -> Path:
    run = tmp_path_factory.mktemp("runs") / "direct"
    longtail.train(planted, run, "direct", settings={"encoder": {"width": 16}, "train": {"epochs": 1}}, device="cpu")
    return run


def test_a_trained_model_gives_its_rows_and_what_documents_ask(
    direct_run: Path, planted_folder: Path, planted: Dataset, tmp_path: Path
) -> None:
    rows, queries = trained(direct_run, planted_folder)
    assert rows.shape == (len(planted.labels), 17)
    assert queries.shape[1] == 17
    assert (queries[:, -1] == 1).all()
    assert trained(direct_run, None)[1].shape[1] == 17
    longtail.pack(direct_run, tmp_path / "packed")
    with pytest.raises(SystemExit, match="as training leaves it"):
        trained(tmp_path / "packed", None)


def test_the_shape_of_a_trained_model(
    record_of: Measure, direct_run: Path, planted_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.speed.cases.shape.STEPS", {"noise": (0.85, 1.15)})
    record = record_of("shape", planted_folder, "--model", direct_run, "--width", 8)
    assert record["command"].split()[4:] == ["DATA/planted", "--model", "RUN/direct", "--width", "8"]
    numbers = record["numbers"]
    assert (numbers["labels"], numbers["width"]) == (12, 8)
    assert numbers["trained"].keys() == numbers["planted"].keys()


def test_topics_nest_and_their_sizes_follow_a_power_law() -> None:
    broad, narrow = topics_of(20_000, 2, np.random.default_rng(0))
    np.testing.assert_array_equal(narrow // BRANCHES, broad)
    sizes = np.bincount(broad, minlength=BRANCHES)
    assert sizes[0] > 3 * sizes[-1] > 0


def test_documents_are_near_labels() -> None:
    index = planted_index(2000, 64)
    documents = planted_documents(index, 50)
    assert (documents[:, -1] == 1).all()
    top = index.query(documents, 10)
    assert (top.scores[:, 0] - top.scores[:, -1]).mean() > 1, "some labels are clearly better than others"
    np.testing.assert_array_equal(documents, planted_documents(index, 50))


def test_exponents_are_slopes_in_logarithms() -> None:
    assert exponent({10: 5.0, 1000: 50.0}) == pytest.approx(0.5)
    numbers = {
        str(labels): {
            "taken": {"single_p50_ms": labels**0.2, "batch_ms": labels**0.1},
            "search": [{"kind": "exact", "single_ms": float(labels)}],
        }
        for labels in (10_000, 100_000, 1_000_000)
    }
    found = growth(numbers)["exponents"]
    assert found["single_p50_ms"] == {"all": pytest.approx(0.2), "from 100000": pytest.approx(0.2)}
    assert found["exact search alone"]["all"] == pytest.approx(1)


def test_the_plot_has_a_line_for_each_series() -> None:
    plot = ElementTree.fromstring(
        log_log("a < b", "ms", {"one": {10: 0.5, 1000: 2.0}, "two & more": {10: 3.0, 1000: 4.0}})
    )
    lines = [element for element in plot if element.tag.endswith("polyline")]
    assert len(lines) == 2
    (x0, y0), (x1, y1) = (tuple(map(float, point.split(","))) for point in lines[0].attrib["points"].split())
    assert x0 < x1
    assert y0 > y1, "more stands higher"


def test_two_sizes_and_their_plot(record_of: Measure, tmp_path: Path) -> None:
    result = record_of("scaling", "--sizes", "200,400", "--width", 64, "--work", tmp_path)
    for labels in ("200", "400"):
        taken = result["numbers"]["sizes"][labels]["taken"]
        assert taken["kind"] == "exact"
        assert 0 < taken["single_p50_ms"] <= taken["single_p99_ms"]
        assert min(taken["batch_ms"], taken["peak_mb"], taken["open_seconds"]) > 0
    assert "single_p50_ms" in result["numbers"]["exponents"]
    assert (tmp_path / "scaling.svg").read_text().startswith("<svg")
