from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from longtail.errors import DataError
from longtail.metrics import cut, drop_masked, drop_masked_targets, hits, to_csr, top_k
from longtail.types import Csr, TopK

Case = Callable[[int], tuple[TopK, Csr, NDArray[np.float64]]]


def ranked(*rows: list[int]) -> TopK:
    """Rows of label numbers with made-up decreasing scores; -1 is padding."""
    ids = np.array(rows, dtype=np.int32)
    scores = np.where(ids >= 0, 1.0 / (1 + np.arange(ids.shape[1])), -np.inf)
    return TopK(ids, scores.astype(np.float32))


def pairs(*rows: tuple[int, int]) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def sparse_scores(rows: list[dict[int, float]], n_labels: int, dtype: type = np.float32) -> Csr:
    """Stored entries exactly as given, zeros and disorder included."""
    indptr = np.cumsum([0, *map(len, rows)])
    indices = [label for row in rows for label in row]
    return csr_array(
        (np.array([value for row in rows for value in row.values()], dtype=dtype), indices, indptr),
        shape=(len(rows), n_labels),
    )


@settings(deadline=None, max_examples=100)
@given(
    rows=st.lists(st.dictionaries(st.integers(0, 9), st.sampled_from([-1.5, -1.0, 0.0, 0.5, 2.0])), max_size=6),
    k=st.integers(1, 12),
    dtype=st.sampled_from([np.float32, np.float64, np.int64]),
)
def test_top_k_is_sorting_by_score_then_label(rows: list[dict[int, float]], k: int, dtype: type) -> None:
    scores = sparse_scores(rows, 10, dtype)
    top = top_k(scores, k)
    assert top.ids.dtype == np.int32
    assert top.scores.dtype == np.float32
    assert top.ids.shape == (len(rows), k)
    for i, row in enumerate(rows):
        expected = sorted(((-dtype(value), label) for label, value in row.items()))[:k]
        padding = k - len(expected)
        assert top.ids[i].tolist() == [label for _, label in expected] + [-1] * padding
        assert top.scores[i].tolist() == [-value for value, _ in expected] + [-np.inf] * padding


def test_many_equal_scores_stay_in_the_order_of_labels() -> None:
    top = top_k(csr_array(np.repeat([[0.5, 2.0, 1.0]], 100, axis=0).reshape(1, 300).astype(np.float32)), 200)
    assert top.ids.tolist() == [[*range(1, 300, 3), *range(2, 300, 3)]]


def test_a_stored_zero_is_a_prediction_and_minus_infinity_is_none() -> None:
    top = top_k(sparse_scores([{0: -np.inf, 2: 0.0, 1: -1.0}], 4), 4)
    assert top.ids.tolist() == [[2, 1, -1, -1]]


def test_scores_are_compared_in_their_own_precision() -> None:
    top = top_k(sparse_scores([{0: 1.0, 1: 1.0 + 1e-12}], 2, np.float64), 2)
    assert top.ids.tolist() == [[1, 0]]


def test_repeated_entries_are_summed_and_the_argument_stays() -> None:
    scores = csr_array((np.array([1.0, 1.5, 1.0]), np.array([0, 1, 0]), np.array([0, 3])), shape=(1, 2))
    assert top_k(scores, 2).ids.tolist() == [[0, 1]]
    assert scores.nnz == 3


def test_nan_is_an_error_that_names_the_row() -> None:
    with pytest.raises(DataError, match=r"row 2 .* NaN for label 7"):
        top_k(sparse_scores([{1: 1.0}, {}, {7: np.nan, 3: 0.5}, {0: 1.0}], 9), 3)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6))
def test_csr_and_back_is_the_same(seed: int, case: Case) -> None:
    top, targets, _ = case(seed)
    matrix = to_csr(top, targets.shape[1])
    assert matrix.has_canonical_format
    again = top_k(matrix, top.k)
    assert again.ids.tolist() == top.ids.tolist()
    assert again.scores.tolist() == top.scores.tolist()


def test_to_csr_stores_zeros_and_refuses_what_does_not_fit() -> None:
    assert to_csr(TopK(np.array([[3, 1]], dtype=np.int32), np.array([[1.0, 0.0]], dtype=np.float32)), 4).nnz == 2
    with pytest.raises(DataError, match=r"label 3 .* 3 labels"):
        to_csr(ranked([3, 1]), 3)
    with pytest.raises(ValueError, match="twice"):
        to_csr(ranked([1, 0, 1]), 4)


def test_cut_shortens_and_pads() -> None:
    assert cut(ranked([2, 0, 1]), 2).ids.tolist() == [[2, 0]]
    wide = cut(ranked([2, 0]), 3)
    assert wide.ids.tolist() == [[2, 0, -1]]
    assert wide.scores.tolist() == [[1.0, 0.5, -np.inf]]


@pytest.mark.claim("F7")
def test_masked_pairs_vanish_from_predictions_and_truth() -> None:
    masked = pairs((0, 2), (1, 1))
    top = drop_masked(ranked([2, 0, 1], [0, 2, 1]), masked, 2)
    assert top.ids.tolist() == [[0, 1], [0, 2]]
    assert top.scores.tolist() == [[0.5, np.float32(1 / 3)], [1.0, 0.5]]
    targets = drop_masked_targets(csr_array(np.array([[1, 0, 1], [0, 1, 0]], dtype=np.float32)), masked)
    assert targets.toarray().tolist() == [[1, 0, 0], [0, 0, 0]]
    assert targets.nnz == 1
    assert hits(top, targets).tolist() == [[True, False], [False, False]]


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 1), k=st.integers(1, 10))
def test_masking_agrees_with_a_loop(seed: int, share: float, k: int, case: Case) -> None:
    top, targets, _ = case(seed)
    masked = np.argwhere(np.random.default_rng(seed).random(targets.shape) < share).astype(np.int64)
    gone = set(map(tuple, masked.tolist()))
    kept, truth = drop_masked(top, masked, k), drop_masked_targets(targets, masked)
    for i in range(len(top)):
        left = [
            (label, value)
            for label, value in zip(top.ids[i].tolist(), top.scores[i].tolist(), strict=True)
            if label >= 0 and (i, label) not in gone
        ][:k]
        padding = k - len(left)
        assert kept.ids[i].tolist() == [label for label, _ in left] + [-1] * padding
        assert kept.scores[i].tolist() == [value for _, value in left] + [-np.inf] * padding
        assert truth[[i]].indices.tolist() == [
            label for label in targets[[i]].indices.tolist() if (i, label) not in gone
        ]


def test_masked_pairs_of_labels_that_were_never_predicted_do_no_harm() -> None:
    assert drop_masked(ranked([0, -1]), pairs((0, 99)), 2).ids.tolist() == [[0, -1]]
    assert drop_masked_targets(csr_array(np.eye(2)), pairs((0, 3))).toarray().tolist() == np.eye(2).tolist()


@pytest.mark.parametrize("pair", [(2, 0), (-1, 0), (0, -1)])
def test_masked_pairs_of_another_data_set_are_an_error(pair: tuple[int, int]) -> None:
    with pytest.raises(DataError, match="masked pair"):
        drop_masked(ranked([0], [1]), pairs(pair), 1)
    with pytest.raises(DataError, match="masked pair"):
        drop_masked_targets(csr_array(np.eye(2)), pairs(pair))


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 10**6))
def test_hits_agree_with_a_loop(seed: int, case: Case) -> None:
    top, targets, _ = case(seed)
    dense = targets.toarray()
    assert hits(top, targets).tolist() == [
        [label >= 0 and bool(dense[i, label]) for label in row] for i, row in enumerate(top.ids.tolist())
    ]


def test_hits_in_disordered_truth_with_stored_zeros_and_a_repeated_label() -> None:
    truth = csr_array((np.array([1.0, 0.0, 1.0]), np.array([3, 1, 0]), np.array([0, 3])), shape=(1, 4))
    assert hits(ranked([0, 1, 3, 0]), truth).tolist() == [[True, False, True, False]]
    assert truth.indices.tolist() == [3, 1, 0], "the argument stays as it was"
    truth = csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert hits(ranked([0, 1]), truth).tolist() == [[False, True]]
    assert truth.nnz == 2


def test_hits_reads_memory_that_cannot_be_written() -> None:
    top, truth = ranked([0, 1]), csr_array(np.array([[0, 1]], dtype=np.float32))
    for array in (top.ids, truth.indices, truth.indptr, truth.data):
        array.flags.writeable = False
    assert hits(top, truth).tolist() == [[False, True]]


def test_predictions_for_other_documents_or_labels_are_an_error() -> None:
    with pytest.raises(DataError, match="predictions for 2 documents, and 3"):
        hits(ranked([0], [1]), csr_array(np.eye(3)))
    with pytest.raises(DataError, match=r"label 3 was predicted.* 3 labels"):
        hits(ranked([0], [1], [3]), csr_array(np.eye(3)))
