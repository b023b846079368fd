from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.config import describe, from_text
from longtail.data.dataset import Items
from longtail.errors import ConfigError
from longtail.features.base import Featurizer, GivenDense, GivenSparse, make_featurizer
from longtail.features.settings import FeaturesConfig
from longtail.features.sparse import SparseText

VECTORS = np.eye(2, 3, dtype=np.float32) * 2
TEXT = {"title": ["one two", "two three"]}


def items(vectors: Any = None, text: bool = True) -> Items:
    return Items(["a", "b"], TEXT if text else {}, vectors)


@pytest.mark.parametrize(
    ("documents", "source", "kind"),
    [
        (items(), "auto", SparseText),
        (items(), "text", SparseText),
        (items(VECTORS), "auto", GivenDense),
        (items(VECTORS), "vectors", GivenDense),
        (items(VECTORS), "text", SparseText),
        (items(csr_array(VECTORS)), "auto", GivenSparse),
        (items(csr_array(VECTORS), text=False), "auto", GivenSparse),
    ],
)
def test_vectors_win_unless_text_is_asked_for(documents: Items, source: Any, kind: type[Any]) -> None:
    featurizer, batch, labels = make_featurizer(documents, documents, FeaturesConfig(source=source))
    assert type(featurizer) is kind
    assert isinstance(featurizer, Featurizer)
    again, label_again = featurizer.batch(documents), featurizer.label_batch(documents)
    assert labels is not None
    assert label_again is not None
    for made, repeated in ((batch, again), (labels, label_again)):
        for view in ("sparse", "dense"):
            a, b = getattr(made, view), getattr(repeated, view)
            assert (a is None) == (b is None)
            if a is not None:
                assert a.shape[1] == featurizer.width
                assert abs(a - b).sum() == 0


def test_the_settings_of_text_reach_the_text() -> None:
    config = from_text(FeaturesConfig(), ["pairs=false", "min_count=2", "fields=title,content"])
    documents = Items(["a", "b"], {"title": ["x y", "x"], "content": ["z", "z"]})
    featurizer, _, labels = make_featurizer(documents, None, config)
    assert isinstance(featurizer, SparseText)
    assert sorted(featurizer.tokens) == ["x", "z"]
    assert labels is None


def test_given_vectors_are_scaled_as_set() -> None:
    for unit, length in ((True, 1.0), (False, 2.0)):
        _, batch, _ = make_featurizer(items(VECTORS), None, FeaturesConfig(unit_vectors=unit))
        assert batch.dense is not None
        assert np.linalg.norm(batch.dense, axis=1).tolist() == [length, length]


def test_labels_may_be_names_only_beside_vectors() -> None:
    assert make_featurizer(items(VECTORS), items(), FeaturesConfig())[2] is None


@pytest.mark.parametrize(
    ("documents", "labels", "source", "message"),
    [
        (items(), None, "vectors", "came without"),
        (items(text=False), None, "auto", "no text and no vectors"),
        (items(VECTORS, text=False), None, "text", "documents have no text"),
        (items(), items(VECTORS, text=False), "auto", "labels came as vectors"),
        (items(VECTORS), items(csr_array(VECTORS)), "auto", "labels sparse ones of 3"),
        (items(VECTORS), items(VECTORS[:, :2]), "auto", "labels dense ones of 2"),
    ],
)
def test_mixtures_that_cannot_work_are_refused(
    documents: Items, labels: Items | None, source: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as wrong:
        make_featurizer(documents, labels, FeaturesConfig(source=source))
    assert wrong.value.hint


def test_every_setting_is_explained() -> None:
    for field in dataclasses.fields(FeaturesConfig):
        assert field.metadata["help"], field.name
    assert "source" in describe(FeaturesConfig())
