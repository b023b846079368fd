from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.encoders import FrozenBag, ResidualMap
from longtail.models.rankers import IndexedRows
from longtail.search.index import ExactIndex
from longtail.types import Batch, TopK


@pytest.fixture
def model() -> IndexedRows:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((7, 5)).astype(np.float32)
    table, weight = rng.standard_normal((9, 4)).astype(np.float32), rng.standard_normal((4, 4)).astype(np.float32)
    return IndexedRows(FrozenBag(table), ResidualMap(weight), ExactIndex.build(rows, "dot"))


def test_scores_are_sigmoids_of_rows_with_bias(model: IndexedRows) -> None:
    documents = csr_array(np.random.default_rng(1).random((3, 9)).astype(np.float32))
    top = model.rank(Batch(sparse=documents), 4)
    assert isinstance(model.encoder, FrozenBag)
    assert isinstance(model.refinement, ResidualMap)
    assert isinstance(model.index, ExactIndex)
    v = np.maximum(documents.toarray() @ model.encoder.table, 0)
    x = v + np.maximum(v @ model.refinement.weight.T, 0)
    scores = 1 / (1 + np.exp(-(x @ model.index.vectors[:, :4].T + model.index.vectors[:, 4])))
    np.testing.assert_array_equal(top.ids, np.argsort(-scores, axis=1)[:, :4])
    np.testing.assert_allclose(top.scores, -np.sort(-scores, axis=1)[:, :4], rtol=1e-5)


def test_nothing_is_said_of_a_document_without_known_words(model: IndexedRows) -> None:
    documents = csr_array(np.array([[0.0] * 9, [1.0] * 9], dtype=np.float32))
    documents.eliminate_zeros()
    top = model.rank(Batch(sparse=documents), 9)
    assert top.k == 7
    assert np.all(top.ids[0] == TopK.PAD)
    assert np.all(np.isneginf(top.scores[0]))
    assert np.all(top.ids[1] >= 0)
