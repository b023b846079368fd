"""What every index promises, whichever way it searches. A new index joins by one line in `BUILDERS`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from longtail.errors import ConfigError, DataError
from longtail.persistence import load_part, save_part
from longtail.search.index import ExactIndex, HnswIndex, HnswSettings, Index, Similarity
from longtail.search.joined import JoinedIndex
from longtail.types import F32, TopK

# On a few dozen items this effort makes HNSW exact, so the contract can be checked to the letter.


def joined(vectors: F32, similarity: Similarity = "cosine") -> JoinedIndex:
    """The first third as it was, the others behind it."""
    first = len(vectors) // 3
    return JoinedIndex.of(ExactIndex.build(vectors[:first], similarity), vectors[first:])


THOROUGH = HnswSettings(neighbours=64, build_effort=400, query_effort=400)
BUILDERS: dict[str, Callable[..., Index]] = {
    "exact": ExactIndex.build,
    "joined": joined,
    "hnsw": partial(HnswIndex.build, settings=THOROUGH),
}


@pytest.fixture(params=sorted(BUILDERS))
def build(request: pytest.FixtureRequest) -> Any:
    return BUILDERS[request.param]


def vectors(n: int, dim: int = 6, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def naive(items: F32, queries: F32, k: int, similarity: str) -> TopK:
    """Every pair by a loop, in double precision."""
    ids, scores = np.full((len(queries), k), -1, np.int32), np.full((len(queries), k), -np.inf, np.float32)
    for q, query in enumerate(queries.astype(np.float64)):
        found = []
        for i, item in enumerate(items.astype(np.float64)):
            lengths = np.linalg.norm(query) * np.linalg.norm(item)
            value = float(query @ item) / (lengths if similarity == "cosine" and lengths else 1.0)
            found.append((-np.float32(value), i))
        for place, (value, i) in enumerate(sorted(found)[:k]):
            ids[q, place], scores[q, place] = i, -value
    return TopK(ids, scores)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_agrees_with_the_naive_loop(build: Any, similarity: str) -> None:
    items, queries = vectors(50) * np.linspace(0.5, 2, 50, dtype=np.float32)[:, None], vectors(20, seed=1)
    found, expected = build(items, similarity=similarity).query(queries, 7), naive(items, queries, 7, similarity)
    assert np.array_equal(found.ids, expected.ids)
    assert np.allclose(found.scores, expected.scores, atol=1e-5)


def test_more_asked_than_there_is(build: Any) -> None:
    found = build(vectors(3)).query(vectors(2, seed=1), 5)
    assert (np.sort(found.ids[:, :3], axis=1) == np.arange(3)).all()
    assert (found.ids[:, 3:] == TopK.PAD).all()
    assert np.isneginf(found.scores[:, 3:]).all()
    assert (np.diff(found.scores[:, :3]) <= 0).all()


def test_one_item_no_query_and_nothing_asked(build: Any) -> None:
    index = build(vectors(1))
    assert len(index) == 1
    assert index.query(vectors(4), 1).ids.tolist() == [[0]] * 4
    assert index.query(vectors(0), 3).ids.shape == (0, 3)
    assert index.query(vectors(2), 0).ids.shape == (2, 0)
    with pytest.raises(ConfigError):
        index.query(vectors(1), -1)


def test_no_items(build: Any) -> None:
    index = build(np.zeros((0, 4), np.float32))
    assert len(index) == 0
    assert index.query(vectors(2, 4), 3).ids.tolist() == [[-1] * 3] * 2


def test_equal_items_come_in_the_order_of_their_numbers(build: Any) -> None:
    distinct = vectors(6)
    items = distinct[[0, 1, 0, 2, 0, 3, 4, 0, 5, 1]]
    found = build(items).query(distinct[:2], 6)
    assert found.ids[0, :4].tolist() == [0, 2, 4, 7]
    assert found.ids[1, :2].tolist() == [1, 9]
    assert build(items).query(distinct[:1], 3).ids.tolist() == [[0, 2, 4]]


def test_different_items_with_equal_similarity_come_in_the_order_of_their_numbers(build: Any) -> None:
    """Copies between items of the same similarity: a group of equal items must not push in front."""
    items = np.array([[0, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]], dtype=np.float32)
    query = np.array([[1, 1, 0]], dtype=np.float32)
    assert build(items).query(query, 6).ids.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert build(items).query(query, 3).ids.tolist() == [[0, 1, 2]]


def test_zero_vectors_have_similarity_zero(build: Any) -> None:
    items = np.concatenate([np.zeros((2, 6), np.float32), vectors(3)])
    index = build(items)
    assert (index.query(np.zeros((1, 6), np.float32), 5).scores == 0).all()
    found = index.query(items[2:3], 5)
    assert found.ids[0, 0] == 2
    assert (found.scores[0, np.isin(found.ids[0], [0, 1])] == 0).all()


def test_cosine_ignores_lengths(build: Any) -> None:
    items, queries = vectors(30), vectors(5, seed=2)
    index = build(items)
    plain, scaled = index.query(queries, 5), build(items * 7).query(queries * 0.25, 5)
    assert np.array_equal(plain.ids, scaled.ids)
    assert np.allclose(plain.scores, scaled.scores, atol=1e-6)
    assert np.allclose(index.query(items[:4], 1).scores, 1, atol=1e-6)


def test_answers_do_not_depend_on_the_batch_or_the_threads(build: Any) -> None:
    index, queries = build(vectors(40)), vectors(150, seed=3)  # enough for two threads
    together = index.query(queries, 6)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        again = index.query(queries, 6)
        alone = [index.query(queries[i : i + 1], 6) for i in range(9)]
    finally:
        numba.set_num_threads(before)
    assert np.array_equal(together.ids, again.ids)
    assert np.array_equal(together.scores, again.scores)
    assert np.array_equal(together.ids[:9], np.concatenate([a.ids for a in alone]))
    assert np.allclose(together.scores[:9], np.concatenate([a.scores for a in alone]), atol=1e-6)


def test_queries_and_items_are_not_changed(build: Any) -> None:
    items, queries = vectors(8), vectors(3, seed=1)
    kept = items.copy(), queries.copy()
    build(items).query(queries, 2)
    assert np.array_equal(items, kept[0])
    assert np.array_equal(queries, kept[1])


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_saved_and_loaded_it_answers_bit_for_bit(build: Any, similarity: str, tmp_path: Path) -> None:
    items = vectors(40)[[*range(40), 3, 3, 5]]
    index, queries = build(items, similarity=similarity), vectors(10, seed=4)
    assert isinstance(index, Index)
    save_part(index, tmp_path / "index")
    loaded = load_part(tmp_path / "index")
    assert type(loaded) is type(index)
    assert len(loaded) == 43
    before, after = index.query(queries, 9), loaded.query(queries, 9)
    assert np.array_equal(before.ids, after.ids)
    assert np.array_equal(before.scores, after.scores)


def test_equal_vectors_give_equal_files(build: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_part(build(vectors(200)), tmp_path / name)
    one, other = (sorted((tmp_path / name).rglob("*.safetensors")) for name in ("a", "b"))
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in other] != []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_is_refused(build: Any, bad: float) -> None:
    broken = vectors(4)
    broken[2, 1] = bad
    # Of a joined index the second part has it, as its own second.
    with pytest.raises(DataError, match="vector 1 of 3" if build is joined else "vector 2 of 4"):
        build(broken)
    with pytest.raises(DataError, match="vector 2 of 4"):
        build(vectors(4)).query(broken, 1)
