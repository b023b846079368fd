"""From a data set to what training sees: what is dropped is counted, everything stays in step, and test documents
stay out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.errors import DataError
from longtail.features.settings import FeaturesConfig
from longtail.persistence import load_part, save_part
from longtail.training.prepare import TrainingSet, prepare
from longtail.types import Batch, Csr

KEPT = [0, 3, 5]


def ones(rows: int, columns: int, *pairs: tuple[int, int]) -> Csr:
    matrix = np.zeros((rows, columns), dtype=np.float32)
    for pair in pairs:
        matrix[pair] = 1
    return csr_array(matrix)


def dataset() -> Dataset:
    """Of six documents three can be trained on.

    1 has no words; 2 has no label; 4 has one label, and that pair is masked. 3 keeps one of its two labels; (5, 0) is
    masked though it is no target.
    """
    documents = Items(
        [f"d{n}" for n in range(6)], {"title": ["cat dog", "", "cat fish", "dog fish", "fish", "bird cat"]}
    )
    targets = ones(6, 3, (0, 0), (1, 1), (3, 0), (3, 2), (4, 1), (5, 1), (5, 2))
    labels = Items(["one", "two", "three"], {"title": ["the first", "the second", ""], "note": ["a", "", "c"]})
    anchors = Items(["p", "q", "r", "s"], {"title": ["cat", "", "q & a", "été"]})
    graphs = {
        "links": Graph(
            "links", anchors, ones(6, 4, (0, 1), (1, 0), (2, 2), (3, 3), (5, 0), (5, 2)), ones(3, 4, (0, 3), (2, 1))
        ),
        "related": Graph("related", label_label=ones(3, 3, (0, 1), (2, 0))),
    }
    masked = np.array([[1, 0], [3, 2], [4, 1], [5, 0]])
    return Dataset("made by hand", labels, Split(documents, targets, masked), graphs=graphs)


@pytest.fixture
def prepared() -> TrainingSet:
    return prepare(dataset(), FeaturesConfig())


def test_documents_that_teach_nothing_are_dropped_and_counted(prepared: TrainingSet) -> None:
    assert prepared.rows.tolist() == KEPT
    assert prepared.dropped == {
        "training documents without a label": 2,
        "training documents with a label but without a known word": 1,
        "masked pairs taken out of the training targets": 2,
    }
    assert (prepared.n_documents, prepared.n_labels) == (3, 3)


def test_masked_pairs_are_no_targets(prepared: TrainingSet) -> None:
    assert prepared.targets.toarray().tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 1]]
    assert prepared.label_counts().tolist() == [2, 1, 1]
    # (3, 2) and (5, 0), by the new numbers of the documents; pairs of dropped documents are gone
    assert prepared.masked.tolist() == [[1, 2], [2, 0]]
    matrix = prepared.masked_matrix()
    assert matrix is not None
    assert np.argwhere(matrix.toarray() == 1).tolist() == [[1, 2], [2, 0]]
    twice = replace(prepared, masked=np.concatenate([prepared.masked, prepared.masked])).masked_matrix()
    assert twice is not None
    np.testing.assert_array_equal(twice.toarray(), matrix.toarray())
    assert replace(prepared, masked=prepared.masked[:0]).masked_matrix() is None


def test_features_belong_to_the_documents_that_are_left(prepared: TrainingSet) -> None:
    chosen = dataset().train.documents.rows(np.array(KEPT))
    batch = prepared.featurizer.batch(chosen)
    assert same_csr(batch.sparse, prepared.documents.sparse)
    assert len(prepared.documents) == 3


def test_the_vocabulary_knows_documents_that_are_dropped_later(prepared: TrainingSet) -> None:
    """A document without a label still says how rare a word is."""
    batch = prepared.featurizer.batch_of_texts(["fish"])
    assert batch.sparse is not None
    assert batch.sparse.nnz == 1


def test_graphs_stay_in_step_with_the_documents(prepared: TrainingSet) -> None:
    given = dataset().graphs["links"]
    assert given.documents is not None
    links = prepared.graphs["links"]
    assert links.documents is not None
    assert links.documents.toarray().tolist() == given.documents.toarray()[KEPT].tolist()
    assert same_csr(links.labels, given.labels)
    assert prepared.graphs["related"].documents is None


def test_labels_are_all_there(prepared: TrainingSet) -> None:
    assert list(prepared.labels.uids) == ["one", "two", "three"]
    assert prepared.label_texts is not None
    assert len(prepared.label_texts) == 3


# ---- saving ----


def same_csr(a: Any, b: Any) -> bool:
    return a is b is None or (a.shape == b.shape and a.dtype == b.dtype and (a != b).nnz == 0)


def same_batch(a: Batch | None, b: Batch | None) -> None:
    assert (a is None) == (b is None)
    if a is not None and b is not None:
        assert same_csr(a.sparse, b.sparse)
        np.testing.assert_array_equal(np.asarray(a.dense), np.asarray(b.dense))
        np.testing.assert_array_equal(np.asarray(a.tokens), np.asarray(b.tokens))


def same_items(a: Items | None, b: Items | None) -> None:
    assert (a is None) == (b is None)
    if a is not None and b is not None:
        assert list(a.uids) == list(b.uids)
        assert {name: list(texts) for name, texts in a.fields.items()} == {
            name: list(texts) for name, texts in b.fields.items()
        }


def same(a: TrainingSet, b: TrainingSet) -> None:
    same_batch(a.documents, b.documents)
    same_batch(a.label_texts, b.label_texts)
    same_items(a.labels, b.labels)
    assert same_csr(a.targets, b.targets)
    np.testing.assert_array_equal(a.masked, b.masked)
    np.testing.assert_array_equal(a.rows, b.rows)
    assert a.dropped == b.dropped
    assert list(a.graphs) == list(b.graphs)
    for name, graph in a.graphs.items():
        other = b.graphs[name]
        assert graph.name == other.name
        same_items(graph.anchors, other.anchors)
        assert all(
            same_csr(getattr(graph, side), getattr(other, side)) for side in ("documents", "labels", "label_label")
        )


VECTORS = np.arange(12, dtype=np.float32).reshape(6, 2)


@pytest.mark.parametrize("kind", ["words", "tokens", "dense", "sparse", "labels without text"])
def test_a_saved_training_set_is_the_same(kind: str, tmp_path: Path) -> None:
    data, features = dataset(), FeaturesConfig(max_tokens=3 if kind == "tokens" else 0)
    if kind in ("dense", "sparse"):
        vectors = csr_array(VECTORS) if kind == "sparse" else VECTORS
        data = replace(data, train=replace(data.train, documents=Items(data.train.documents.uids, vectors=vectors)))
    if kind == "labels without text":
        data = replace(data, labels=Items(data.labels.uids))
    before = prepare(data, features)
    assert (before.documents.tokens is not None) == (kind == "tokens")
    assert (before.documents.dense is not None) == (kind == "dense")
    save_part(before, tmp_path / "part")
    after = load_part(tmp_path / "part")
    same(before, after)
    if kind in ("words", "tokens"):
        same_batch(after.featurizer.batch_of_texts(["cat fish"]), before.featurizer.batch_of_texts(["cat fish"]))


# ---- borders ----


class Sealed(Split):
    """A split that must not be looked at."""

    sealed = False

    def __getattribute__(self, name: str) -> Any:
        if Sealed.sealed and not name.startswith("__"):
            raise AssertionError(f"the test split was read ({name})")
        return super().__getattribute__(name)

    def __len__(self) -> int:
        if Sealed.sealed:
            raise AssertionError("the test split was counted")
        return super().__len__()


def test_the_test_split_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dataset()
    test = Sealed(Items(["t"], {"title": ["bird xylophone"]}), ones(1, 3, (0, 0)))
    data = replace(data, test=test)
    monkeypatch.setattr(Sealed, "sealed", True)
    with pytest.raises(AssertionError, match="was read"):
        _ = test.targets
    found = prepare(data, FeaturesConfig())
    monkeypatch.setattr(Sealed, "sealed", False)
    same(found, prepare(dataset(), FeaturesConfig()))
    batch = found.featurizer.batch_of_texts(["xylophone"])
    assert batch.sparse is not None
    assert batch.sparse.nnz == 0, "a word of a test document is not in the vocabulary"


def test_a_training_set_has_no_place_for_test_documents() -> None:
    assert not any("test" in name for name in TrainingSet.__dataclass_fields__)


def test_nothing_left_to_train_on_is_said_with_numbers() -> None:
    data = dataset()
    everything = np.argwhere(data.train.targets.toarray())
    with pytest.raises(
        DataError, match=r"no training document with both .* \(6 documents, 0 with a label, 5 with a feature\)"
    ) as caught:
        prepare(replace(data, train=replace(data.train, masked=everything)), FeaturesConfig())
    assert "data check" in caught.value.hint
