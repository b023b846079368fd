"""Personalised PageRank against its dense series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.recipes.eclare.stages import PersonalisedPageRank
from longtail.search.negatives import ShortlistNegatives, forbidden_pairs
from longtail.types import TopK


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), labels=st.integers(2, 9), teleport=st.sampled_from([0.2, 0.5]))
def test_ranks_by_the_chance_to_be_at_a_label(seed: int, labels: int, teleport: float) -> None:
    rng = np.random.default_rng(seed)
    graph = rng.random((labels, labels)) * (rng.random((labels, labels)) < 0.4) + np.eye(labels) * 0.1
    targets = (rng.random((6, labels)) < 0.4).astype(np.float32)
    rank = PersonalisedPageRank(
        csr_array(targets), csr_array(graph.astype(np.float32)), teleport=teleport, steps=60
    ).rank
    step = graph / graph.sum(axis=1, keepdims=True)
    # sum over t of teleport (1 - teleport)^t s P^t
    series = teleport * np.linalg.inv(np.eye(labels) - (1 - teleport) * step)
    rows = np.array([4, 0, 2])
    found = rank(rows, labels)
    for row, ids, scores in zip(rows, found.ids, found.scores, strict=True):
        start = targets[row] / max(targets[row].sum(), 1)
        expected = start @ series
        real = ids[ids >= 0]
        assert set(real.tolist()) == set(np.flatnonzero(expected > 1e-12).tolist())
        np.testing.assert_allclose(scores[: len(real)], expected[real], rtol=1e-3, atol=1e-5)
        assert (np.diff(scores[: len(real)]) <= 0).all()
        assert (ids[len(real) :] == TopK.PAD).all()


def test_ties_are_ordered_by_label_and_the_best_are_kept() -> None:
    graph = csr_array(np.array([[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=np.float32))
    targets = csr_array(np.array([[1, 0, 0, 0]], dtype=np.float32))
    assert PersonalisedPageRank(targets, graph).rank(np.array([0]), 3).ids.tolist() == [[0, 1, 2]]


def test_negatives_are_neighbours_of_a_documents_labels() -> None:
    """Two islands of labels: negatives come from the own island, never the own labels."""
    graph = csr_array(np.kron(np.eye(2), np.ones((3, 3))).astype(np.float32))
    targets = csr_array(np.array([[1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]], dtype=np.float32))
    found = ShortlistNegatives.from_rankings(PersonalisedPageRank(targets, graph).rank, forbidden_pairs(targets), 3)
    assert found.ids.tolist() == [[1, 2, -1], [5, -1, -1]]


@pytest.mark.parametrize("k", [1, 2])
def test_a_document_without_labels_has_no_list(k: int) -> None:
    rank = PersonalisedPageRank(csr_array((1, 3), dtype=np.float32), csr_array(np.eye(3, dtype=np.float32))).rank
    assert rank(np.array([0]), k).ids.tolist() == [[-1] * k]
