"""The walk against its exact expectation, against its own unpruned form, and on the smallest inputs."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array

from longtail.errors import ConfigError
from longtail.graph.ops import expected_walk_graph, random_walk_graph
from longtail.types import Csr


def random_targets(documents: int, labels: int, share: float, seed: int) -> Csr:
    return csr_array((np.random.default_rng(seed).random((documents, labels)) < share).astype(np.float32))


def transition(y: Csr) -> NDArray[np.float64]:
    """label -> document -> label, by plain loops."""
    dense = y.toarray()
    step = np.zeros((dense.shape[1], dense.shape[1]))
    for label in range(dense.shape[1]):
        documents = np.flatnonzero(dense[:, label])
        for document in documents:
            labels = np.flatnonzero(dense[document])
            step[label, labels] += 1 / len(documents) / len(labels)
    return step


@pytest.mark.claim("E1")
@pytest.mark.parametrize("restart", [0.2, 0.8])
def test_counts_converge_to_the_closed_form(restart: float) -> None:
    y, length = random_targets(30, 15, 0.2, 1), 20_000
    counts = random_walk_graph(y, length=length, restart=restart, rng=np.random.default_rng(0)).toarray()
    step = transition(y)
    limit = restart * step @ np.linalg.inv(np.eye(15) - (1 - restart) * step)
    assert np.abs(counts / length - limit).max() < 0.02
    assert (counts.sum(axis=1) == length).all()


def test_expectation_is_exact_for_short_walks() -> None:
    """Many copies of one small graph, walked once each: their mean must meet the finite expectation, not only the
    limit.
    """
    small, copies = csr_array(np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=np.float32)), 20_000
    y = csr_array(block_diag([small] * copies))
    walked = random_walk_graph(y, length=3, restart=0.5, rng=np.random.default_rng(3)).tocoo()
    mean = np.zeros((3, 3))
    np.add.at(mean, (walked.row % 3, walked.col % 3), walked.data / copies)
    exact = expected_walk_graph(small, length=3, restart=0.5).toarray()
    assert np.abs(mean - exact).max() < 0.03
    step = transition(small)
    assert np.allclose(
        exact,
        step + (0.5 * step + 0.5 * step @ step) + (0.5 * step + 0.25 * step @ step + 0.25 * step @ step @ step),
        atol=1e-6,
    )


def test_top_k_is_the_full_walk_pruned_with_the_label_itself_kept() -> None:
    y = random_targets(60, 40, 0.2, 2)
    full = random_walk_graph(y, length=200, restart=0.3, rng=np.random.default_rng(7)).toarray()
    pruned = random_walk_graph(y, length=200, restart=0.3, rng=np.random.default_rng(7), top_k=4).toarray()
    for label in range(40):
        importance = full[label].copy()
        importance[label] = np.inf if full[label, label] else 0
        kept = [other for other in np.lexsort((np.arange(40), -importance))[:4] if full[label, other]]
        assert np.flatnonzero(pruned[label]).tolist() == sorted(kept)
        assert (pruned[label, kept] == full[label, kept]).all()


def test_does_not_depend_on_threads_but_on_the_generator() -> None:
    y = random_targets(200, 300, 0.02, 3)

    def walk(threads: int, seed: int) -> NDArray[np.float32]:
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        try:
            return random_walk_graph(y, length=50, restart=0.2, rng=np.random.default_rng(seed), top_k=10).toarray()
        finally:
            numba.set_num_threads(before)

    assert np.array_equal(walk(1, 0), walk(numba.get_num_threads(), 0))
    assert not np.array_equal(walk(1, 0), walk(1, 1))


def test_blocks_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    y = random_targets(50, 37, 0.1, 4)
    whole = random_walk_graph(y, length=30, restart=0.2, rng=np.random.default_rng(0))
    monkeypatch.setattr("longtail.graph.ops._BLOCK_ENTRIES", 5 * 30)
    assert np.array_equal(
        random_walk_graph(y, length=30, restart=0.2, rng=np.random.default_rng(0)).toarray(), whole.toarray()
    )


def test_labels_without_documents_have_empty_rows_and_are_never_reached() -> None:
    y = csr_array(np.array([[1, 0, 1], [1, 0, 0], [0, 0, 0]], dtype=np.float32))
    walked = random_walk_graph(y, length=100, restart=0.1, rng=np.random.default_rng(0)).toarray()
    assert walked[:, 1].sum() == walked[1].sum() == 0
    assert walked[0].sum() == walked[2].sum() == 100


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 4)])
def test_smallest(shape: tuple[int, int]) -> None:
    walked = random_walk_graph(
        csr_array(np.ones(shape, dtype=np.float32)), length=5, restart=1.0, rng=np.random.default_rng(0), top_k=9
    )
    assert walked.shape == (shape[1], shape[1])
    assert (walked.sum(axis=1) == 5).all()


def test_unsorted_targets_give_the_same() -> None:
    y = random_targets(20, 10, 0.4, 5)
    shuffled = y.copy()
    for row in range(20):
        part = slice(shuffled.indptr[row], shuffled.indptr[row + 1])
        shuffled.indices[part] = shuffled.indices[part][::-1].copy()
    shuffled.has_sorted_indices = shuffled.has_canonical_format = False
    same = [
        random_walk_graph(each, length=20, restart=0.2, rng=np.random.default_rng(0)).toarray()
        for each in (y, shuffled)
    ]
    assert np.array_equal(*same)


@pytest.mark.parametrize(("length", "restart", "top_k"), [(0, 0.5, None), (5, -0.1, None), (5, 1.5, None), (5, 0.5, 0)])
def test_refuses_settings_out_of_bounds(length: int, restart: float, top_k: int | None) -> None:
    with pytest.raises(ConfigError):
        random_walk_graph(
            csr_array(np.ones((2, 2))), length=length, restart=restart, rng=np.random.default_rng(0), top_k=top_k
        )


def test_exact_refuses_many_labels() -> None:
    with pytest.raises(ConfigError, match="5001"):
        expected_walk_graph(csr_array((1, 5001)), length=1, restart=0.5)
