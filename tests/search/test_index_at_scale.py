"""Recall and choice of the approximate index, and what happens without faiss or with a spoilt file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail.errors import BundleError, MissingExtra
from longtail.persistence import load_part, map_arrays, save_part, write_arrays
from longtail.search.index import CENTROIDS, DOCUMENTS, ExactIndex, HnswIndex, HnswSettings, build_index, choose_index
from longtail.types import F32, TopK


def clustered(n: int, seed: int, centres: int = 50, dim: int = 32) -> F32:
    """Non-negative vectors in lumps, as trained ones are."""
    rng = np.random.default_rng(seed)
    middle = np.random.default_rng(99).standard_normal((centres, dim))
    return np.maximum(middle[rng.integers(centres, size=n)] + 0.7 * rng.standard_normal((n, dim)), 0).astype(np.float32)


def recall(found: TopK, truth: TopK) -> float:
    """By similarity: which of several equal items is found does not matter."""
    return float(np.mean(found.scores >= truth.scores[:, -1:] - 1e-6))


@pytest.mark.parametrize("settings", [CENTROIDS, DOCUMENTS])
def test_recall_at_100_with_default_effort(settings: HnswSettings) -> None:
    items, queries = clustered(4000, 0), clustered(200, 1)
    assert (
        recall(HnswIndex.build(items, settings).query(queries, 100), ExactIndex.build(items).query(queries, 100))
        >= 0.95
    )


def test_crowds_of_equal_items_do_not_hurt_recall() -> None:
    """40% of the items are copies of a few: inserted as they are, they would fill each other's links."""
    items, queries = clustered(3000, 2), clustered(200, 3)
    items[:1200] = items[np.random.default_rng(0).integers(1200, 1210, 1200)]
    index = HnswIndex.build(items, DOCUMENTS)
    assert index.graph.ntotal <= 1800
    assert len(index) == 3000
    assert recall(index.query(queries, 100), ExactIndex.build(items).query(queries, 100)) >= 0.95


def test_zero_has_one_sign() -> None:
    index = HnswIndex.build(np.array([[0.0, 1.0], [-0.0, 2.0]], dtype=np.float32))
    assert index.graph.ntotal == 1


@pytest.mark.parametrize(("k", "effort"), [(10, 50), (40, 80)])
def test_effort_grows_with_what_is_asked_for(k: int, effort: int, monkeypatch: pytest.MonkeyPatch) -> None:
    faiss: Any = pytest.importorskip("faiss")
    used, original = [], faiss.SearchParametersHNSW

    def spy(efSearch: int) -> Any:
        used.append(efSearch)
        return original(efSearch=efSearch)

    index = HnswIndex.build(clustered(100, 0), HnswSettings(query_effort=50))
    monkeypatch.setattr(faiss, "SearchParametersHNSW", spy)
    index.query(clustered(3, 1), k)
    assert used == [effort]


def test_blocks_of_the_exact_index_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    items, queries = clustered(300, 0), clustered(70, 1)
    whole = ExactIndex.build(items).query(queries, 20)
    monkeypatch.setattr("longtail.search.index._QUERIES", 16)
    monkeypatch.setattr("longtail.search.index._SIMILARITIES", 16 * 37)
    blocked = ExactIndex.build(items).query(queries, 20)
    assert np.allclose(blocked.scores, whole.scores, atol=1e-6)
    assert np.mean(blocked.ids == whole.ids) > 0.99  # two nearly equal ones may change places


def test_choice_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_index(30_000, 300) == "exact"
    assert choose_index(1_000_000, 300) == "hnsw"
    monkeypatch.setattr("longtail.search.index._HNSW_FROM", 100)
    assert type(build_index(clustered(20, 0))) is HnswIndex
    assert type(build_index(clustered(20, 0), "exact")) is ExactIndex
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert choose_index(1_000_000, 300) == "exact"
    with pytest.raises(MissingExtra, match=r"longtail\[hnsw\]"):
        build_index(clustered(20, 0), "hnsw")


def test_a_bundle_says_which_extra_its_index_needs(
    direct_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longtail.pack(direct_run, tmp_path / "packed", index="hnsw")
    assert longtail.Predictor.open(tmp_path / "packed").predict(["an owl"], k=1)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"longtail\[hnsw\]"):
        longtail.Predictor.open(tmp_path / "packed").predict(["an owl"], k=1)


def test_a_build_leaves_the_thread_count_as_it_was() -> None:
    import faiss

    before = faiss.omp_get_max_threads()
    HnswIndex.build(clustered(10, 0))
    assert faiss.omp_get_max_threads() == before


def test_a_spoilt_graph_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    save_part(HnswIndex.build(clustered(50, 0)), tmp_path / "index")
    file = tmp_path / "index" / "arrays.safetensors"
    arrays = {name: np.array(array) for name, array in map_arrays(file).items()}
    for spoilt in (
        {"graph": arrays["graph"][:100]},
        {"graph": np.zeros(500, np.uint8)},
        {"group_ptr": arrays["group_ptr"][:-1]},
    ):
        write_arrays(file, arrays | spoilt)
        with pytest.raises(BundleError, match="index"):
            load_part(tmp_path / "index")
