"""The baseline ranker against a naive loop, and at its borders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from longtail.errors import ConfigError
from longtail.persistence import load_part, save_part
from longtail.search.kernels import nearest
from longtail.search.nearest import NearestDocuments, VoteConfig
from longtail.types import Batch, Csr, TopK

kernels: Any = nearest  # what numba makes of a function has no types


def planted(seed: int, n: int = 60, width: int = 40, n_labels: int = 25) -> tuple[Csr, Csr, Csr]:
    rng = np.random.default_rng(seed)

    def rows(count: int) -> Csr:
        made = csr_array(random_array((count, width), density=0.15, rng=rng, dtype=np.float32))
        # Few distinct values, so that ties are common and their order is tested.
        made.data = np.ceil(made.data * 2).astype(np.float32)
        made.sort_indices()
        return made

    targets = csr_array(random_array((n, n_labels), density=0.1, rng=rng, dtype=np.float32))
    targets.data[:] = 1
    targets.sort_indices()
    return rows(n), targets, rows(30)


def naive(documents: Csr, targets: Csr, queries: Csr, config: VoteConfig, k: int) -> list[list[tuple[int, float]]]:
    answers = []
    for query in queries.toarray():
        similarity = documents.toarray() @ query
        order = sorted(
            (row for row in range(len(similarity)) if similarity[row] > 0), key=lambda row: (-similarity[row], row)
        )[: config.neighbours]
        votes = np.zeros(targets.shape[1])
        for row in order:
            votes[targets.toarray()[row] > 0] += similarity[row] ** config.power
        total = sum(similarity[row] ** config.power for row in order)
        ranked = sorted(
            (label for label in range(len(votes)) if votes[label] > 0), key=lambda label: (-votes[label], label)
        )[:k]
        answers.append([(label, votes[label] / total) for label in ranked])
    return answers


def assert_same(top: TopK, expected: list[list[tuple[int, float]]]) -> None:
    for row, answer in enumerate(expected):
        found = top.ids[row] != TopK.PAD
        assert top.ids[row][found].tolist() == [label for label, _ in answer]
        np.testing.assert_allclose(top.scores[row][found], [score for _, score in answer], rtol=1e-5)
        assert np.all(np.isneginf(top.scores[row][~found]))


@pytest.mark.parametrize("neighbours", [1, 4, 1000])
@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_sparse_agrees_with_a_naive_loop(neighbours: int, power: float) -> None:
    documents, targets, queries = planted(neighbours)
    config = VoteConfig(neighbours, power)
    top = NearestDocuments(documents, targets, config).rank(Batch(sparse=queries), 7)
    assert_same(top, naive(documents, targets, queries, config, 7))


def test_dense_agrees_with_a_naive_loop() -> None:
    documents, targets, queries = planted(3)
    config = VoteConfig(5, 2.0)
    ranker = NearestDocuments(documents.toarray(), targets, config)
    assert_same(ranker.rank(Batch(dense=queries.toarray()), 7), naive(documents, targets, queries, config, 7))


def test_result_does_not_depend_on_threads_or_batch() -> None:
    documents, targets, queries = planted(4)
    ranker = NearestDocuments(documents, targets, VoteConfig())
    whole = ranker.rank(Batch(sparse=queries), 9)
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        alone = ranker.rank(Batch(sparse=queries), 9)
    finally:
        numba.set_num_threads(threads)
    np.testing.assert_array_equal(alone.ids, whole.ids)
    np.testing.assert_array_equal(alone.scores, whole.scores)
    for row in range(len(whole)):
        one = ranker.rank(Batch(sparse=queries[[row]]), 9)
        np.testing.assert_array_equal(one.ids[0], whole.ids[row])
        np.testing.assert_array_equal(one.scores[0], whole.scores[row])


def test_save_and_load_is_bit_equal(tmp_path: Path) -> None:
    documents, targets, queries = planted(5)
    for name, matrix, batch in (
        ("sparse", documents, Batch(sparse=queries)),
        ("dense", documents.toarray(), Batch(dense=queries.toarray())),
    ):
        ranker = NearestDocuments(matrix, targets, VoteConfig(3, 1.5))
        ranker.rank(batch, 9)
        compiled = len(kernels.rank_sparse.signatures), len(kernels.vote_all.signatures)
        save_part(ranker, tmp_path / name)
        loaded = load_part(tmp_path / name)
        np.testing.assert_array_equal(loaded.rank(batch, 9).ids, ranker.rank(batch, 9).ids)
        assert compiled == (len(kernels.rank_sparse.signatures), len(kernels.vote_all.signatures)), "one machine code"
        np.testing.assert_array_equal(loaded.rank(batch, 9).scores, ranker.rank(batch, 9).scores)


def test_a_document_without_known_words_gets_no_label() -> None:
    documents, targets, _ = planted(6)
    top = NearestDocuments(documents, targets, VoteConfig()).rank(
        Batch(sparse=csr_array((1, documents.shape[1]), dtype=np.float32)), 5
    )
    assert np.all(top.ids == TopK.PAD)


def test_values_that_cancel_stay_inside_memory() -> None:
    documents = csr_array(np.array([[1.0, 1.0], [1.0, 0.0]], dtype=np.float32))
    targets = csr_array(np.eye(2, dtype=np.float32))
    query = csr_array(np.array([[1.0, -1.0]], dtype=np.float32))
    top = NearestDocuments(documents, targets, VoteConfig()).rank(Batch(sparse=query), 2)
    assert top.ids[0].tolist() == [1, TopK.PAD]


def test_more_labels_asked_than_there_are() -> None:
    documents, targets, queries = planted(7, n_labels=3)
    assert NearestDocuments(documents, targets, VoteConfig()).rank(Batch(sparse=queries), 100).k == 3


def test_features_of_another_model_are_refused() -> None:
    documents, targets, _ = planted(8)
    with pytest.raises(ConfigError, match="vocabulary"):
        NearestDocuments(documents, targets, VoteConfig()).rank(Batch(sparse=csr_array((1, 3), dtype=np.float32)), 5)
    with pytest.raises(ConfigError, match="width 40"):
        NearestDocuments(documents.toarray(), targets, VoteConfig()).rank(
            Batch(dense=np.zeros((1, 3), dtype=np.float32)), 5
        )
