from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from longtail.recipes.direct import targets as smoothing
from longtail.recipes.direct.targets import completed_targets, smoothed_targets


def test_neighbours_of_given_labels_get_a_share_of_the_most() -> None:
    targets = csr_array(np.array([[1, 0, 0], [1, 1, 0]], dtype=np.float32))
    graph = csr_array(np.array([[2, 1, 1], [0, 1, 0], [0, 0, 1]], dtype=np.float32))
    soft = smoothed_targets(targets, graph, 0.4).toarray()
    np.testing.assert_allclose(soft, [[1, 0.1, 0.1], [1, 1, 0.1]], rtol=1e-6)


def test_no_more_than_the_most() -> None:
    targets = csr_array(np.ones((1, 4), dtype=np.float32) * np.array([1, 1, 1, 0], dtype=np.float32))
    targets.eliminate_zeros()
    graph = csr_array(np.array([[0, 0, 0, 1]] * 3 + [[0, 0, 0, 1]], dtype=np.float32))
    np.testing.assert_allclose(smoothed_targets(targets, graph, 0.3).toarray(), [[1, 1, 1, 0.3]], rtol=1e-6)


def matrix(rows: list[list[float]]) -> csr_array:
    return csr_array(np.array(rows, dtype=np.float32))


def naive_completion(
    targets: np.ndarray, documents: np.ndarray, most: float, neighbours: int, masked: np.ndarray
) -> np.ndarray:
    """Document by document, label by label."""
    unit = documents / np.maximum(np.linalg.norm(documents, axis=1, keepdims=True), 1e-30)
    cosines, soft = unit @ unit.T, targets.copy()
    for document in range(len(targets)):
        others = [
            (cosines[document, other], other)
            for other in range(len(targets))
            if other != document and cosines[document, other] > 0
        ]
        nearest = sorted(others, key=lambda found: (-found[0], found[1]))[:neighbours]
        votes, total = np.zeros(targets.shape[1]), 1.0 if documents[document].any() else 0.0
        for cosine, other in nearest:
            votes += cosine**2 * targets[other]
            total += cosine**2
        for label in range(targets.shape[1]):
            share = votes[label] / max(total, 1e-30)
            if not targets[document, label] and not masked[document, label] and share >= 0.1:
                soft[document, label] = most * share
    return soft


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), most=st.sampled_from([0.1, 0.5, 1.0]), neighbours=st.integers(1, 12))
def test_completion_equals_naive_loops(seed: int, most: float, neighbours: int) -> None:
    """Features are drawn from a continuum: no two neighbours tie, and no share lies at the limit. One document has no
    feature.
    """
    rng = np.random.default_rng(seed)
    documents = random_array((12, 9), density=0.4, rng=rng, dtype=np.float32).toarray()
    documents[3] = 0
    targets = (rng.random((12, 7)) < 0.25).astype(np.float32)
    masked = ((rng.random((12, 7)) < 0.2) & (targets == 0)).astype(np.float32)
    found = completed_targets(
        csr_array(targets), csr_array(documents), most, neighbours=neighbours, masked=csr_array(masked)
    )
    expected = naive_completion(targets, documents.astype(np.float64), most, neighbours, masked)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-4, atol=1e-6)
    assert found.dtype == np.float32
    assert found.has_sorted_indices
    assert np.all(found.toarray()[masked > 0] == 0)
    assert np.all(found.toarray()[targets == 0] <= most)
    assert np.all(found.toarray()[targets > 0] == 1)


def test_a_twin_of_a_document_gives_it_half_of_the_most() -> None:
    soft = completed_targets(
        matrix([[1, 0], [0, 1], [1, 0]]), matrix([[1, 0], [2, 0], [0, 1]]), 0.6, neighbours=5
    ).toarray()
    np.testing.assert_allclose(soft, [[1.0, 0.3], [0.3, 1.0], [1.0, 0.0]], rtol=1e-6)


def test_a_masked_pair_is_not_completed() -> None:
    """Document 0 and its twin document 1 are paired as labels 0 and 1; the pair of document 0 is the reverse of one
    that is known.
    """
    targets, documents = matrix([[1, 0, 0], [1, 1, 1]]), matrix([[1], [1]])
    assert completed_targets(targets, documents, 0.6, neighbours=1).toarray()[0].tolist() == pytest.approx(
        [1, 0.3, 0.3]
    )
    masked = matrix([[0, 1, 0], [0, 0, 0]])
    assert completed_targets(targets, documents, 0.6, neighbours=1, masked=masked).toarray()[
        0
    ].tolist() == pytest.approx([1, 0, 0.3])


def test_far_neighbours_complete_nothing() -> None:
    """A cosine of 0.3 is a vote of 0.09 beside the document's own 1."""
    documents = matrix([[1, 0], [0.3, (1 - 0.09) ** 0.5]])
    assert completed_targets(matrix([[1, 0], [0, 1]]), documents, 1.0, neighbours=1).nnz == 2


def test_blocks_of_documents_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    documents = csr_array(random_array((23, 9), density=0.4, rng=rng, dtype=np.float32))
    targets = csr_array((rng.random((23, 7)) < 0.25).astype(np.float32))
    whole = completed_targets(targets, documents, 0.5, neighbours=4)
    monkeypatch.setattr(smoothing, "_BLOCK", 5)
    assert (completed_targets(targets, documents, 0.5, neighbours=4) != whole).nnz == 0


def test_documents_are_compared_by_their_strongest_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its two strongest features document 0 is like document 1, by all of them like document 2."""
    documents, targets = (
        matrix([[3, 3, 2.5, 2.5, 2.5], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1]]),
        matrix([[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    )
    assert completed_targets(targets, documents, 1.0, neighbours=1)[[0]].indices.tolist() == [0, 2]
    monkeypatch.setattr(smoothing, "_COMPARED_FEATURES", 2)
    np.testing.assert_allclose(
        completed_targets(targets, documents, 1.0, neighbours=1).toarray()[0], [1, 0.5, 0], rtol=1e-6
    )
