"""The choice of an index: by recall first, then by time, and with a reason for what was not tried."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from longtail import packing
from longtail.errors import ConfigError, MissingExtra
from longtail.packing import Measured, SearchKind, choose, shared
from longtail.search.index import ExactIndex, HnswIndex
from longtail.search.packed import PackedIndex
from longtail.search.sketch import SketchIndex
from longtail.types import F32, TopK


def rows(n: int = 800, dim: int = 129, seed: int = 0) -> F32:
    rng = np.random.default_rng(seed)
    groups = rng.standard_normal((20, dim))
    return (groups[rng.integers(20, size=n)] + 0.5 * rng.standard_normal((n, dim))).astype(np.float32)


@pytest.fixture(scope="module")
def exact() -> PackedIndex:
    return PackedIndex.of(ExactIndex(rows(), "dot"), "int8", last_whole=True)


def never() -> F32:
    raise AssertionError("nothing is measured, so nothing is asked")


def numbers(kind: str, recall: float, single: float, batch: float) -> Measured:
    return Measured(kind, {}, recall, recall, single, batch, 0.0, 0)


def test_recall_is_the_share_of_the_true_best() -> None:
    def top(ids: list[list[int]]) -> TopK:
        return TopK(np.array(ids, np.int32), np.zeros((2, 4), np.float32))

    assert shared(top([[1, 2, 3, 4], [4, 3, 2, 1]]), top([[4, 3, 2, 1], [5, 6, 7, 1]])) == (1 + 0.25) / 2


def test_the_fastest_that_finds_enough_and_is_clearly_faster_wins() -> None:
    exact = numbers("exact", 1.0, 1.0, 1.0)
    assert (
        packing._fastest([exact, numbers("sketch", 0.99, 0.5, 0.5), numbers("leaves", 0.94, 0.1, 0.1)]).kind == "sketch"
    )
    assert packing._fastest([exact, numbers("sketch", 0.99, 0.9, 0.9)]).kind == "exact"
    assert (
        packing._fastest([exact, numbers("sketch", 0.99, 0.2, 3.0), numbers("leaves", 0.99, 0.7, 0.7)]).kind == "leaves"
    )
    assert not Measured("leaves", {}, 0.96, 0.96, 1, 1, 0, 0).good_enough, "of the ten best nearly all must be found"


@pytest.mark.parametrize(
    ("kind", "made"), [("exact", PackedIndex), ("sketch", SketchIndex), ("leaves", SketchIndex), ("hnsw", HnswIndex)]
)
def test_what_is_asked_for_is_made(exact: PackedIndex, kind: SearchKind, made: type) -> None:
    queries = rows(60, seed=1)
    found = choose(exact, lambda: queries, kind)
    assert found.kind == kind
    assert isinstance(found.index, made)
    if kind != "exact":
        assert found.taken is not None
        assert found.taken.good_enough
        assert kind in found.render()
        again = shared(found.index.query(queries, 100), exact.query(queries, 100))
        assert found.taken.recall_at_100 == pytest.approx(again)
        assert not {"single_ms", "batch_ms", "seconds"} & found.about().keys(), "a bundle holds no times"


def test_small_tables_stay_exact_unmeasured(exact: PackedIndex) -> None:
    found = choose(exact, never)
    assert found.kind == "exact"
    assert found.taken is None
    assert "too few" in found.render()


def test_what_is_not_tried_has_a_reason(exact: PackedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "SMALL", 0)
    monkeypatch.setitem(sys.modules, "faiss", None)
    found = choose(exact, lambda: rows(60, seed=1))
    assert [one.kind for one in found.tried][:2] == ["exact", "sketch"]
    assert "hnsw: not tried, an HNSW index needs the package 'faiss-cpu'" in found.render()
    assert "leaves: not tried, 800 rows" in found.render()
    with pytest.raises(MissingExtra):
        choose(exact, lambda: rows(5, seed=1), "hnsw")


def test_the_search_for_settings_stops_at_the_first_that_do(exact: PackedIndex) -> None:
    trial = packing._Trial(exact, rows(60, seed=1))
    built = SketchIndex.build(exact)
    asked: list[int] = []

    def variants() -> Any:
        for more in (0, 1000, 2000):
            asked.append(more)
            yield built.tuned(more=more), {"more": more}

    assert trial.first_good(variants())[1] == {"more": asked[-1]}
    assert asked[-1] < 2000


def test_an_unknown_kind(exact: PackedIndex) -> None:
    untyped: Any = "magic"
    with pytest.raises(ConfigError, match="magic"):
        choose(exact, never, untyped)
