"""Anchors as labels for the time of a training: which of them, and which pairs are neither right nor wrong."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset, Graph, Items
from longtail.features.settings import FeaturesConfig
from longtail.recipes.direct.objective import anchor_columns, same_texts
from longtail.recipes.direct.settings import AnchorsConfig
from longtail.training.prepare import TrainingSet, prepare

TEXTS = ["red apple", "green pear", "yellow plum", "red plum"]


def fruit() -> TrainingSet:
    """Anchors: fruit (3 links), unknown words (2 links), the second document itself (2 links), plum (1 link)."""
    anchors = Items(["fruit", "x", "pear", "plum"], {"title": ["apple pear plum", "zzz", "green pear", "plum"]})
    documents = csr_array(np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]], np.float32))
    labels = csr_array(np.array([[1, 0, 1, 0], [0, 0, 0, 1]], np.float32))
    graph = Graph("kinds", anchors, documents, labels)
    data = Dataset.from_texts(
        TEXTS,
        [["green pear"], ["sweet"], ["sweet"], ["green pear"]],
        {"green pear": "green pear", "sweet": "sweet red"},
        {"kinds": graph},
    )
    return prepare(data, FeaturesConfig(subwords="none", pairs=False, min_count=1))


def test_anchors_with_enough_links_and_a_known_word_are_used() -> None:
    found = anchor_columns(fruit(), AnchorsConfig(weight=1))
    assert found is not None
    assert found.count == 2, "fruit and pear"
    np.testing.assert_array_equal(found.documents.toarray(), [[1, 0], [0, 0], [1, 0], [0, 1]])


def test_a_document_is_never_called_unlike_itself() -> None:
    found = anchor_columns(fruit(), AnchorsConfig(weight=1))
    assert found is not None
    np.testing.assert_array_equal(found.own_documents.toarray(), [[0, 0], [0, 1], [0, 0], [0, 0]])


def test_none_where_none_are_asked_for_or_good() -> None:
    assert anchor_columns(fruit(), AnchorsConfig(weight=0)) is None
    assert anchor_columns(fruit(), AnchorsConfig(weight=1, fewest=9)) is None


def test_same_texts_ignores_empty_ones() -> None:
    left = csr_array(np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], np.float32))
    right = csr_array(np.array([[0, 0, 0], [1, 0, 1], [1, 1, 1], [1, 0, 1]], np.float32))
    np.testing.assert_array_equal(same_texts(left, right).toarray(), [[0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]])
