"""Search by sketches and leaves: with enough candidates it is exact search; with few it finds most."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import ConfigError
from longtail.kernels import basics as ranking_kernels
from longtail.persistence import State, load_part, save_part
from longtail.search.index import ExactIndex
from longtail.search.kernels import packed as byte_kernels
from longtail.search.packed import PackedIndex, PackedType, as_bytes, deinterleave, interleave
from longtail.search.sketch import Heads, SketchIndex, two_level_clusters
from longtail.types import F32, TopK


def vectors(n: int, dim: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def clustered(n: int, dim: int, groups: int, seed: int = 0, spread: float = 0.4) -> F32:
    rng = np.random.default_rng(seed)
    return (
        vectors(groups, dim, seed + 1)[rng.integers(groups, size=n)] + spread * rng.standard_normal((n, dim))
    ).astype(np.float32)


def packed(items: F32, dtype: PackedType = "int8", last_whole: bool = True) -> PackedIndex:
    return PackedIndex.of(ExactIndex(items, "dot"), dtype, last_whole=last_whole)


def recall(found: TopK, true: TopK) -> float:
    return float(np.mean([len(np.intersect1d(a, b)) / true.k for a, b in zip(found.ids, true.ids, strict=True)]))


def same(found: TopK, expected: TopK) -> None:
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-5)
    differ = found.ids != expected.ids
    # Scores that are equal to rounding may change places.
    assert np.all(np.abs(np.diff(expected.scores, axis=1, append=-np.inf))[differ] < 1e-4) or not differ.any()


@pytest.mark.parametrize("dtype", ["int8", "float16"])
@pytest.mark.parametrize("last_whole", [True, False])
@pytest.mark.parametrize("leaves", [0, 7])
@pytest.mark.parametrize("documents", [1, 3, 41])
def test_with_all_rows_as_candidates_it_is_exact_search(
    dtype: PackedType, last_whole: bool, leaves: int, documents: int
) -> None:
    exact = packed(vectors(500, 80), dtype, last_whole)
    index = SketchIndex.build(exact, leaves=leaves, rng=np.random.default_rng(0)).tuned(more=500, effort=500)
    queries = vectors(documents, 80, 1)
    same(index.query(queries, 12), exact.query(queries, 12))


@pytest.mark.parametrize("leaves", [0, 60])
def test_few_candidates_find_most(leaves: int) -> None:
    items, queries = clustered(6000, 256, 40), clustered(50, 256, 40, seed=5)
    items = items @ np.diag(
        1 / (1 + np.arange(256, dtype=np.float32) / 8)
    )  # rows of trained models point into few directions
    exact = packed(items.astype(np.float32), last_whole=False)
    index = SketchIndex.build(exact, leaves=leaves, rng=np.random.default_rng(0))
    true = exact.query(queries, 50)
    assert recall(index.tuned(more=100, effort=3000).query(queries, 50), true) > 0.95
    # Asking for one, and looking at two leaves or so: those of the best of fifty.
    hasty = index.tuned(more=0, effort=1).query(queries, 1)
    assert leaves == 0 or 0.3 < np.mean(hasty.ids[:, 0] == true.ids[:, 0]) < 0.98, (
        "looking at few rows finds less, or nothing was left out"
    )


def test_a_wider_sketch_finds_more() -> None:
    exact, queries = packed(vectors(3000, 256), last_whole=False), vectors(30, 256, 1)
    true = exact.query(queries, 20)
    narrow, wide = (
        recall(SketchIndex.build(exact, width=width).tuned(more=50).query(queries, 20), true) for width in (64, 192)
    )
    assert narrow < wide


@pytest.mark.parametrize("leaves", [0, 9])
def test_ties_go_by_number_and_threads_do_not_matter(leaves: int) -> None:
    items = np.repeat(vectors(100, 64), 3, axis=0)[np.random.default_rng(1).permutation(300)]
    index = SketchIndex.build(packed(items, last_whole=False), leaves=leaves, rng=np.random.default_rng(0)).tuned(
        more=300, effort=300
    )
    queries = vectors(40, 64, 2)
    found = index.query(queries, 9)
    ties = found.scores[:, 1:] == found.scores[:, :-1]
    assert ties.any()
    assert np.all(np.diff(found.ids, axis=1)[ties] > 0)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = index.query(queries, 9)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(found.ids, alone.ids)
    np.testing.assert_array_equal(found.scores, alone.scores)


@pytest.mark.parametrize("leaves", [0, 9])
def test_a_document_does_not_depend_on_its_batch(leaves: int) -> None:
    index = SketchIndex.build(packed(clustered(900, 96, 20)), leaves=leaves, rng=np.random.default_rng(0)).tuned(
        more=20, effort=200
    )
    queries = clustered(30, 96, 20, seed=3)
    whole = index.query(queries, 5)
    for row in range(30):
        alone = index.query(queries[row : row + 1], 5)
        np.testing.assert_array_equal(alone.ids[0], whole.ids[row])
        np.testing.assert_allclose(alone.scores[0], whole.scores[row], rtol=1e-5)


def test_where_no_row_beats_another_all_are_compared() -> None:
    """Nothing beats a threshold that all share; the answer is then that of exact search."""
    exact = packed(vectors(300, 64), last_whole=False)
    index = SketchIndex.build(exact)
    found = index.query(np.zeros((2, 64), np.float32), 4)
    np.testing.assert_array_equal(found.ids, np.tile(np.arange(4), (2, 1)))
    index = SketchIndex.build(exact, leaves=5, rng=np.random.default_rng(0))
    assert np.all(index.query(np.zeros((2, 64), np.float32), 300).ids == np.arange(300))


@pytest.mark.parametrize("leaves", [0, 3])
def test_odd_wishes(leaves: int) -> None:
    index = SketchIndex.build(
        packed(vectors(40, 64)[:, :64], last_whole=False), leaves=leaves, rng=np.random.default_rng(0)
    )
    queries = vectors(2, 64, 1)
    assert index.query(queries, 0).ids.shape == (2, 0)
    assert index.query(queries[:0], 3).ids.shape == (0, 3)
    more = index.query(queries, 45)
    assert np.all(np.sort(more.ids[:, :40], axis=1) == np.arange(40))
    assert np.all(more.ids[:, 40:] == TopK.PAD)
    with pytest.raises(ConfigError, match="no sketch of 64"):
        SketchIndex.build(packed(vectors(5, 30)))


@pytest.mark.parametrize("leaves", [0, 12])
def test_it_survives_saving(tmp_path: Path, leaves: int) -> None:
    index = SketchIndex.build(packed(vectors(400, 65)), leaves=leaves, rng=np.random.default_rng(0)).tuned(
        more=30, effort=90
    )
    save_part(index, tmp_path / "index")
    again, queries = load_part(tmp_path / "index"), vectors(20, 65, 1)
    for documents in (1, 20):
        before, after = index.query(queries[:documents], 6), again.query(queries[:documents], 6)
        np.testing.assert_array_equal(before.ids, after.ids)
        np.testing.assert_array_equal(before.scores, after.scores)
    assert (again.more, again.effort, again.leaves) == (30, 90 if leaves else 0, index.leaves)


def test_parts_that_do_not_fit_are_refused() -> None:
    index = SketchIndex.build(packed(vectors(50, 65)), leaves=4, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="heads"):
        SketchIndex(index.whole, index.basis[:, :-1], index.heads)
    with pytest.raises(ValueError, match="leaves"):
        SketchIndex(index.whole, index.basis, index.heads, index.centres)
    with pytest.raises(ValueError, match="items"):
        SketchIndex(index.whole, index.basis, index.heads, numbers=np.full(50, 50, np.int32))


def test_two_levels_of_clusters_are_near_the_number_asked_for_and_none_is_empty() -> None:
    rows = clustered(3000, 8, 50)
    owners = two_level_clusters(rows, 100, np.random.default_rng(0))
    sizes = np.bincount(owners)
    assert sizes.min() > 0
    assert 60 <= len(sizes) <= 110
    np.testing.assert_array_equal(owners, two_level_clusters(rows, 100, np.random.default_rng(0)))
    spread = sum(((rows[owners == c] - rows[owners == c].mean(axis=0)) ** 2).sum() for c in range(len(sizes)))
    assert spread < 0.5 * ((rows - rows.mean(axis=0)) ** 2).sum()


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=60), st.data())
@settings(max_examples=100, deadline=None)
def test_the_better_half_is_that_of_sorting(numbers: list[int], data: st.DataObject) -> None:
    scores, ids = np.array(numbers, np.float32), np.arange(len(numbers), dtype=np.int32)
    keep = data.draw(st.integers(1, len(numbers)))
    original = scores.copy()
    lowest = ranking_kernels.better_half(ids, scores, len(scores), keep)
    np.testing.assert_array_equal(np.sort(scores[:keep]), np.sort(original)[-keep:])
    assert lowest == scores[:keep].min()
    np.testing.assert_array_equal(original[ids], scores)


def test_sums_of_bytes_are_those_of_whole_numbers_on_any_machine() -> None:
    rng = np.random.default_rng(0)
    rows, queries = rng.integers(-127, 128, (32, 128)).astype(np.int8), rng.integers(0, 256, (4, 128)).astype(np.uint8)
    expected = queries.astype(np.int32) @ rows.astype(np.int32).T
    here, tile, column = (np.zeros((4, 32), np.int32) for _ in range(3))
    byte_kernels.products(rows, 0, 32, queries, 0, here)
    byte_kernels.plain_tile(rows, 8, queries, 0, tile, 8)
    byte_kernels.plain_column(rows, 16, queries, 0, column, 16)
    np.testing.assert_array_equal(here, expected)
    np.testing.assert_array_equal(tile[:, 8:12], expected[:, 8:12])
    np.testing.assert_array_equal(column[0, 16:], expected[0, 16:])


@pytest.mark.parametrize("n", [1, 16, 63, 130])
def test_interleaved_rows_can_be_taken_apart_again(n: int) -> None:
    rows = np.random.default_rng(0).integers(-127, 128, (n, 64)).astype(np.int8)
    found = interleave(rows)
    assert found.shape == (-(-n // 64) * 4, 16 * 64)
    np.testing.assert_array_equal(deinterleave(found, np.arange(n)), rows)
    np.testing.assert_array_equal(found[0, :4], rows[0, :4])
    np.testing.assert_array_equal(found[0, 64:68], rows[0, 4:8], "the next numbers follow those of all sixteen rows")


@pytest.mark.parametrize("documents", [1, 3, 8])
@pytest.mark.parametrize("look", [byte_kernels.look, byte_kernels.plain_look])
def test_a_look_at_interleaved_rows_tells_values_and_what_beats_the_threshold(documents: int, look: Any) -> None:
    rng = np.random.default_rng(documents)
    queries, offsets = vectors(documents, 64, 1) + 2, vectors(1, 90, 2)[0]
    heads, lasts, shifts = (
        Heads.of(vectors(90, 64), offsets),
        vectors(1, documents, 3)[0],
        rng.random(documents).astype(np.float32),
    )
    rounded, scales = as_bytes(np.maximum(queries, 0))
    bytes_of_rows = deinterleave(heads.interleaved, np.arange(90)).astype(np.float32) * heads.scales[:90, None]
    expected = (
        (rounded[:documents] * scales[:, None]) @ bytes_of_rows.T
        + lasts[:, None] * offsets
        - shifts[:, None] * bytes_of_rows.sum(axis=1)
    )
    thresholds = np.median(expected, axis=1).astype(np.float32)
    values, bits = np.zeros((4, 128), np.float32), np.full((4, 8), 0xFFFF, np.uint16)
    for tile in range(0, documents, 4):
        # Five blocks from the second on: four at once, and one more.
        look(heads.arrays, 1, 5, (rounded, scales, lasts, shifts), tile, thresholds, values, bits)
        for q in range(min(4, documents - tile)):
            np.testing.assert_allclose(values[q, :74], expected[tile + q, 16:], rtol=1e-4, atol=1e-4)
            beats = np.unpackbits(bits[q, :5].view(np.uint8), bitorder="little").astype(bool)
            np.testing.assert_array_equal(beats[:74], values[q, :74] > thresholds[tile + q])
            assert not beats[74:].any(), "what fills up beats nothing"


def test_a_sketch_without_its_heads_is_refused() -> None:
    state = SketchIndex.build(packed(vectors(50, 65))).state()
    arrays = {name: array for name, array in state.arrays.items() if name != "heads.interleaved"}
    with pytest.raises(KeyError, match=r"heads\.interleaved"):
        SketchIndex.from_state(State(state.values, arrays, state.parts))


def test_heads_that_do_not_fit_are_refused() -> None:
    heads = Heads.of(vectors(50, 64), None)
    with pytest.raises(ValueError, match="interleaved rows"):
        replace(heads, n=65)
    with pytest.raises(ValueError, match="do not fit"):
        replace(heads, totals=heads.totals[:50])
