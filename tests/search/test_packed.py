"""Packed tables: what they lose, and that search over them is search over what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import ConfigError
from longtail.kernels.arrays import frozen
from longtail.models.encoders import FrozenBag
from longtail.models.rankers import Classifier
from longtail.persistence import load_part, save_part
from longtail.search.index import FEW_QUERIES, ExactIndex
from longtail.search.kernels import packed as byte_kernels
from longtail.search.packed import PackedIndex, PackedRows, PackedType, stored
from longtail.types import F32, TopK

BOTH: tuple[PackedType, ...] = ("float16", "int8")


def vectors(n: int, dim: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def packed(items: F32, dtype: PackedType, last_whole: bool = True) -> PackedIndex:
    return PackedIndex.of(ExactIndex(items, "dot"), dtype, last_whole=last_whole)


def oracle(index: PackedIndex, queries: F32, k: int) -> TopK:
    """A plain product with what the rows hold, all labels sorted."""
    items = index.rows[:] if index.offsets is None else np.concatenate([index.rows[:], index.offsets[:, None]], axis=1)
    scores = (queries.astype(np.float64) @ items.astype(np.float64).T).astype(np.float32)
    order = np.lexsort((np.broadcast_to(np.arange(len(items)), scores.shape), -scores), axis=1)[:, :k]
    return TopK(order.astype(np.int32), np.take_along_axis(scores, order, axis=1))


def same(found: TopK, expected: TopK) -> None:
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-5)
    differ = found.ids != expected.ids
    # Scores that are equal to rounding may change places.
    assert np.all(np.abs(np.diff(expected.scores, axis=1, append=-np.inf))[differ] < 1e-4) or not differ.any()


# ---- rows ----


@pytest.mark.parametrize(("dtype", "step"), [("float16", 2.0**-11), ("int8", 1 / 254)])
def test_rows_come_back_to_half_a_step(dtype: PackedType, step: float) -> None:
    rows = vectors(40, 7) * np.logspace(-3, 3, 40, dtype=np.float32)[:, None]
    back = PackedRows.of(rows, dtype)[:]
    assert back.dtype == np.float32
    bound = np.abs(rows) * step + 1e-7 if dtype == "float16" else np.abs(rows).max(axis=1, keepdims=True) * step * 1.001
    assert np.all(np.abs(back - rows) <= bound)


def test_zero_rows_stay_zero_and_stored() -> None:
    rows = np.zeros((3, 4), np.float32)
    rows[1] = 1
    made = PackedRows.of(rows, "int8")
    np.testing.assert_array_equal(made[:], rows)
    assert len(made.values) == 3


@pytest.mark.parametrize("dtype", [*BOTH, "int4"])
def test_what_is_not_kept_is_zero_and_takes_no_room(dtype: PackedType) -> None:
    rows = vectors(6, 4)
    keep = np.array([True, False, True, True, False, True])
    made, all_kept = PackedRows.of(rows, dtype, keep), PackedRows.of(rows, dtype)
    assert made.shape == rows.shape
    assert len(made.values) == 4
    np.testing.assert_array_equal(made[:], np.where(keep[:, None], all_kept[:], 0))
    np.testing.assert_array_equal(made[np.array([[5, 1], [0, 4]])], made[:][np.array([[5, 1], [0, 4]])])


@pytest.mark.parametrize("dtype", [*BOTH, "int4"])
def test_rows_are_saved_as_a_part_of_their_own(dtype: PackedType, tmp_path: Path) -> None:
    made = PackedRows.of(vectors(5, 4), dtype, np.array([True, True, False, True, True]))
    save_part(made, tmp_path / "rows")
    loaded = load_part(tmp_path / "rows")
    np.testing.assert_array_equal(loaded[:], made[:])
    assert loaded.values.dtype == made.values.dtype
    assert FrozenBag.from_state(FrozenBag(made).state()).table is made
    plain = vectors(2, 2)
    assert FrozenBag.from_state(FrozenBag(plain).state()).table is plain


def test_numbers_too_large_for_float16_and_unknown_types_are_refused() -> None:
    with pytest.raises(ConfigError, match="too large for float16"):
        PackedRows.of(np.full((1, 2), 1e6, np.float32), "float16")
    untyped: Any = "int2"
    with pytest.raises(ConfigError, match="int2"):
        PackedRows.of(vectors(1, 2), untyped)


def test_four_bits_hold_two_numbers_in_a_byte_and_cut_what_is_far_out() -> None:
    rows = vectors(50, 256)
    made = PackedRows.of(rows, "int4")
    assert made.values.shape == (50, 128)
    assert made.shape == rows.shape
    largest = np.abs(rows).max(axis=1, keepdims=True)
    inside = np.abs(rows) <= 0.75 * largest
    assert np.all(np.abs(made[:] - rows)[inside] <= (0.75 * largest / 14 * 1.001 + np.zeros_like(rows))[inside])
    np.testing.assert_allclose(np.abs(made[:]).max(axis=1), 0.75 * largest[:, 0], rtol=1e-5)
    error = {dtype: float(np.square(PackedRows.of(rows, dtype)[:] - rows).mean()) for dtype in ("int4", "int8")}
    assert error["int8"] < error["int4"] < 0.02, "of numbers whose squares are 1 on average"


def test_four_bits_are_for_words_alone() -> None:
    made = PackedRows.of(vectors(3, 4), "int4")
    with pytest.raises(ValueError, match="words alone"):
        PackedIndex(made, None, "dot")
    with pytest.raises(ValueError, match="words alone"):
        Classifier(made).scores(vectors(1, 4), np.zeros((1, 2), np.int32))
    with pytest.raises(ConfigError, match="two to a byte"):
        PackedRows.of(vectors(3, 5), "int4")


GARBAGE: dict[str, tuple[Any, ...]] = {
    "float64": (np.zeros((2, 2)),),
    "bytes without scales": (np.zeros((2, 2), np.int8),),
    "halves with scales": (np.zeros((2, 2), np.float16), np.ones(2, np.float32)),
    "too few scales": (np.zeros((2, 2), np.int8), np.ones(1, np.float32)),
    "one dimension": (np.zeros(4, np.float16),),
    "places outside": (np.zeros((2, 2), np.float16), None, np.array([0, 2], np.int32)),
    "places below": (np.zeros((2, 2), np.float16), None, np.array([0, -2], np.int32)),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_arrays_that_do_not_fit_are_refused(what: str) -> None:
    with pytest.raises(ValueError, match=r"rows|scales"):
        PackedRows(*GARBAGE[what])


def test_an_index_wants_all_rows_and_their_offsets() -> None:
    some = PackedRows.of(vectors(3, 2), "int8", np.array([True, False, True]))
    with pytest.raises(ValueError, match="every row"):
        PackedIndex(some, None, "dot")
    with pytest.raises(ValueError, match="offset"):
        PackedIndex(PackedRows.of(vectors(3, 2), "int8"), np.zeros(2, np.float32), "dot")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**16 - 1))
def test_every_float16_is_read_as_it_is(bits: int) -> None:
    from longtail.kernels.products import dot

    value = np.array([[bits]], np.uint16).view(np.float16)
    if np.isfinite(value).all():
        table = stored(PackedRows(value)).values
        assert dot(table, 0, np.ones((1, 1), np.float32), 0) == np.float32(value[0, 0])


# ---- search ----


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("queries", [1, 3, FEW_QUERIES + 5])
@pytest.mark.parametrize("dim", [5, 64, 128])
@pytest.mark.parametrize("positive", [True, False])
def test_search_is_exact_over_what_the_rows_hold(dtype: PackedType, queries: int, dim: int, positive: bool) -> None:
    """Width 64 and queries of no negative number go through products of bytes where the machine has them."""
    asked = vectors(queries, dim + 1, seed=1)
    asked = np.maximum(asked, 0) if positive else asked
    for n in (1, 3, 30, 301):
        index = packed(vectors(n, dim + 1) + np.float32(0.1), dtype)
        same(index.query(asked, min(7, n)), oracle(index, asked, 7))


@pytest.mark.skipif(not byte_kernels.available(), reason="the machine cannot multiply bytes")
@pytest.mark.parametrize(("asked", "room"), [(1, 1), (6, 8)])
def test_products_of_bytes_are_whole_numbers_without_error(asked: int, room: int) -> None:
    rng = np.random.default_rng(0)
    rows, queries = (
        rng.integers(-128, 128, (1 + 4 * 130, 192), dtype=np.int8),
        rng.integers(0, 256, (room, 192), dtype=np.uint8),
    )
    rows[0], queries[0] = -128, 255
    n, ones = len(rows), np.ones(len(rows), np.float32)
    ids, scores, sizes = (
        np.empty((1, asked, 2 * n), np.int32),
        np.empty((1, asked, 2 * n), np.float32),
        np.zeros((1, asked), np.int64),
    )
    rounded = queries, np.ones(room, np.float32), np.full(asked, 2, np.float32), np.zeros(asked, np.float32)
    same = frozen(ones)
    byte_kernels.scan_bytes((frozen(rows), same, same, same), rounded, ids, scores, sizes)
    expected = queries[:asked].astype(np.int64) @ rows.astype(np.int64).T + 2
    assert (sizes == n).all()
    for query in range(asked):
        np.testing.assert_array_equal(np.sort(ids[0, query, :n]), np.arange(n))
        np.testing.assert_array_equal(scores[0, query, :n], expected[query, ids[0, query, :n]])


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("keep", [1, 7, 150, 300])
def test_pools_of_bytes_hold_the_best_rows_of_each_piece(pieces: int, keep: int) -> None:
    rng = np.random.default_rng(0)
    rows, queries = rng.integers(-128, 128, (700, 64), dtype=np.int8), rng.integers(0, 256, (8, 64), dtype=np.uint8)
    ones, some = np.ones(len(rows), np.float32), np.ones(5, np.float32)
    ids, scores, sizes = (
        np.empty((pieces, 5, 2 * keep), np.int32),
        np.empty((pieces, 5, 2 * keep), np.float32),
        np.zeros((pieces, 5), np.int64),
    )
    rounded = queries, np.ones(8, np.float32), some, some * 0
    same = frozen(ones)
    byte_kernels.scan_bytes((frozen(rows), same, same, same), rounded, ids, scores, sizes)
    products = queries[:5].astype(np.int64) @ rows.astype(np.int64).T + 1
    step = -(-len(rows) // pieces)
    for piece, query in np.ndindex(pieces, 5):
        here = products[query, piece * step : (piece + 1) * step]
        size = min(keep, len(here))
        assert sizes[piece, query] == size
        np.testing.assert_array_equal(np.sort(scores[piece, query, :size]), np.sort(here)[-size:])
        np.testing.assert_array_equal(scores[piece, query, :size], products[query, ids[piece, query, :size]])


@pytest.mark.skipif(not byte_kernels.available(), reason="the machine cannot multiply bytes")
def test_a_query_that_rounding_could_spoil_is_asked_again() -> None:
    """Hundreds of rows that differ by less than a step of the query's bytes: candidates alone would be any of them."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-100, 100, (400, 65)).astype(np.float32)
    rows[:, 0], rows[:, -1] = 127, 0
    index = packed(rows, "int8")
    # All but the first number of a query round to zero.
    asked = rng.random((9, 65), dtype=np.float32) * np.float32(0.07)
    asked[:, 0] = 40
    found, expected = index.query(asked, 5), oracle(index, asked, 5)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)


@pytest.mark.parametrize("dtype", BOTH)
def test_equal_items_come_by_number(dtype: PackedType) -> None:
    items = vectors(6, 65)[[0, 1, 0, 2, 0, 3, 4, 0, 5, 1]]
    for asked in (vectors(6, 65)[:1], np.abs(vectors(20, 65))):
        top = packed(items, dtype).query(asked, 10)
        for ids in top.ids:
            for group in ([0, 2, 4, 7], [1, 9]):
                assert [i for i in ids if i in group] == group


@pytest.mark.parametrize("dtype", BOTH)
def test_threads_change_nothing(dtype: PackedType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.search.index._BYTES_PER_THREAD", 1)
    index, asked = packed(vectors(700, 65), dtype), np.abs(vectors(5, 65, seed=1))
    before, answers = numba.get_num_threads(), []
    try:
        for threads in {1, before}:
            numba.set_num_threads(threads)
            answers.append(index.query(asked, 9))
    finally:
        numba.set_num_threads(before)
    for answer in answers:
        same(answer, oracle(index, asked, 9))
        np.testing.assert_array_equal(answer.scores, answers[0].scores)


def test_pieces_of_the_table_are_put_together_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As three threads would leave them, also on a machine that has one."""
    from longtail.kernels.products import gather, scan
    from longtail.search.index import Heaps

    index, asked = packed(vectors(50, 9), "int8"), vectors(2, 9, seed=1)
    values, scales, _ = index.rows.stored
    assert index.offsets is not None
    ids, scores, sizes = np.empty((3, 2, 7), np.int32), np.empty((3, 2, 7), np.float32), np.zeros((3, 2), np.int64)
    scan(
        values,
        scales,
        index.offsets,
        np.ascontiguousarray(asked[:, :-1]),
        np.ascontiguousarray(asked[:, -1]),
        ids,
        scores,
        sizes,
    )
    answer = Heaps(2, 7)
    gather(ids, scores, sizes, *answer.arrays)
    same(answer.ranked(), oracle(index, asked, 7))


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("last_whole", [True, False])
def test_an_index_is_saved_whole(dtype: PackedType, last_whole: bool, tmp_path: Path) -> None:
    index, asked = packed(vectors(30, 65), dtype, last_whole), np.abs(vectors(4, 65, seed=1))
    save_part(index, tmp_path / "index")
    loaded = load_part(tmp_path / "index")
    before, after = index.query(asked, 6), loaded.query(asked, 6)
    np.testing.assert_array_equal(before.ids, after.ids)
    np.testing.assert_array_equal(before.scores, after.scores)


@pytest.mark.parametrize("dtype", BOTH)
def test_cosines_ignore_the_length_of_queries(dtype: PackedType) -> None:
    index = PackedIndex.of(ExactIndex.build(vectors(30, 64)), dtype, last_whole=False)
    for asked in (np.abs(vectors(3, 64, 1)), vectors(3, 64, 1)):
        np.testing.assert_allclose(index.query(asked * 7, 4).scores, index.query(asked, 4).scores, atol=1e-6)
        assert index.query(asked, 30).scores.max() <= 1


def test_no_item_no_query_nothing_asked() -> None:
    index = packed(vectors(3, 65), "int8")
    assert index.query(vectors(0, 65), 2).ids.shape == (0, 2)
    assert index.query(vectors(2, 65), 0).ids.shape == (2, 0)
    assert packed(np.zeros((0, 65), np.float32), "int8").query(vectors(2, 65), 2).ids.tolist() == [[-1, -1]] * 2
    assert index.query(np.zeros((1, 65), np.float32), 5).ids.tolist() == [[0, 1, 2, -1, -1]]
