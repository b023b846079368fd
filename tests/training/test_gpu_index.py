"""The GPU index runs on any torch device, so its answers are checked here on the CPU."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from longtail.search.index import DOCUMENTS, ExactIndex, IndexBuilder, Similarity, build_index
from longtail.training import indices as gpu_index
from longtail.training.indices import GpuExactIndex, exact_index_on, index_on


@pytest.mark.parametrize("kind", ["cosine", "dot"])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_same_answers_as_the_exact_index(kind: Similarity, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_index, "_BLOCK_SCORES", 1000)
    rng = np.random.default_rng(0)
    # Small whole numbers: products are exact, and ties are many.
    items, queries = rng.integers(0, 3, (90, 4)).astype(np.float32), rng.integers(0, 3, (33, 4)).astype(np.float32)
    exact, ours = (
        ExactIndex.build(items, kind).query(queries, k),
        GpuExactIndex.build(items, kind, "cpu").query(queries, k),
    )
    np.testing.assert_allclose(ours.scores, exact.scores, atol=1e-6)
    if kind == "dot" and k == 500:
        np.testing.assert_array_equal(ours.ids, exact.ids)


def test_no_items_and_no_queries() -> None:
    empty = np.zeros((0, 3), dtype=np.float32)
    assert np.all(GpuExactIndex.build(empty, "dot", "cpu").query(np.ones((2, 3), np.float32), 4).ids == -1)
    assert GpuExactIndex.build(np.ones((2, 3), np.float32), "dot", "cpu").query(empty, 4).ids.shape == (0, 4)


def test_saved_as_a_plain_exact_index() -> None:
    index = GpuExactIndex.build(np.eye(3, dtype=np.float32), "dot", "cpu")
    assert index.KIND == ExactIndex.KIND
    np.testing.assert_array_equal(ExactIndex.from_state(index.state()).vectors, np.eye(3))


def test_where_training_runs_decides_the_index() -> None:
    """On a GPU exact at any size, unless HNSW is asked for."""

    def made_by(builder: IndexBuilder) -> object:
        assert isinstance(builder, partial)
        return getattr(builder.func, "__self__", builder.func)

    assert made_by(exact_index_on("cuda", "dot")) is GpuExactIndex
    assert made_by(exact_index_on("cpu")) is ExactIndex
    assert exact_index_on("cpu", "dot")(np.eye(3, dtype=np.float32)).similarity == "dot"
    assert made_by(index_on("cuda", "auto", DOCUMENTS)) is GpuExactIndex
    assert made_by(index_on("cuda", "hnsw", DOCUMENTS)) is build_index
    assert made_by(index_on("cpu", "auto", DOCUMENTS)) is build_index
