"""Data sets from Python lists: label order, counted repairs, and errors that name the index and the value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset, Graph, Items
from longtail.errors import DataError
from longtail.persistence import StringTable


def test_without_label_texts_labels_are_sorted_and_named_by_their_id() -> None:
    data = Dataset.from_texts(["a cat", "a dog and a cat"], [["zoo"], ["dog", "cat", "zoo"]], name="pets")
    assert data.name == "pets"
    assert list(data.labels.uids) == ["cat", "dog", "zoo"]
    assert data.labels.name(1) == "dog"
    assert data.labels.fields["title"] == ["cat", "dog", "zoo"]
    np.testing.assert_array_equal(data.train.targets.toarray(), [[0, 0, 1], [1, 1, 1]])
    assert data.train.targets.dtype == np.float32
    assert data.train.documents.fields == {"title": ["a cat", "a dog and a cat"]}
    assert data.test is None
    assert not data.repairs
    assert data.digest


def test_label_texts_give_the_order_and_may_name_labels_without_documents() -> None:
    data = Dataset.from_texts(["x", "y"], [["b"], ["a", "unlisted"]], {"b": "bee", "lonely": "no document", "a": "ant"})
    assert list(data.labels.uids) == ["b", "lonely", "a", "unlisted"]
    assert data.labels.fields["title"] == ["bee", "no document", "ant", ""]
    np.testing.assert_array_equal(data.train.targets.toarray(), [[1, 0, 0, 0], [0, 0, 1, 1]])
    assert sum(data.repairs.values()) == 1


def test_unknown_test_labels_and_repeated_labels_are_counted() -> None:
    data = Dataset.from_texts(["x"], [["a", "a", "b"]], test_texts=["y", "z"], test_labels=[["a", "new", "newer"], []])
    assert data.test is not None
    np.testing.assert_array_equal(data.train.targets.toarray(), [[1, 1]])
    np.testing.assert_array_equal(data.test.targets.toarray(), [[1, 0], [0, 0]])
    assert {what: count for what, count in data.repairs.items() if "twice" in what} == {
        "labels given twice to one document, merged": 1
    }
    assert [count for what, count in data.repairs.items() if "test documents" in what] == [2]
    assert data.train.documents.uids[0] != data.test.documents.uids[0]


def test_series_count_from_anywhere() -> None:
    frame = pd.DataFrame({"text": ["x", "y", "z"], "labels": [["a"], ["b"], ["c"]]})[1:]
    data = Dataset.from_texts(frame["text"], frame["labels"])
    assert (data.train.documents.fields["title"], data.labels.uids) == (["y", "z"], ["b", "c"])


def test_test_labels_that_only_label_texts_know_stay_in_the_truth() -> None:
    data = Dataset.from_texts(["x"], [["a"]], {"a": "", "b": "bee"}, test_texts=["y"], test_labels=[["b"]])
    np.testing.assert_array_equal(data.need_test().targets.toarray(), [[0, 1]])
    assert not data.repairs


def test_fields() -> None:
    data = Dataset.from_texts([{"title": "one", "content": "long"}, {"title": "two"}], [["a"], ["b"]])
    assert data.train.documents.fields == {"title": ["one", "two"], "content": ["long", ""]}


def test_the_digest_tells_data_apart() -> None:
    digests = {
        Dataset.from_texts(["x", "y"], [["a"], ["b"]]).digest,
        Dataset.from_texts(["x", "z"], [["a"], ["b"]]).digest,
        Dataset.from_texts(["x", "y"], [["b"], ["a"]]).digest,
        Dataset.from_texts(["x", "y"], [["a"], ["b"]], graphs={"g": csr_array(np.eye(2))}).digest,
    }
    assert len(digests) == 4
    assert Dataset.from_texts(["x", "y"], [["a"], ["b"]]).digest in digests


LABELS = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "é", "10", "9"]), max_size=5), min_size=1, max_size=8)


@settings(max_examples=60)
@given(LABELS)
def test_targets_match_a_plain_loop(labels: list[list[str]]) -> None:
    data = Dataset.from_texts([f"text {row}" for row in range(len(labels))], labels)
    for row, uids in enumerate(labels):
        found = data.train.targets[[row]].indices
        assert [data.labels.uids[label] for label in found] == sorted(set(uids))
    assert list(data.labels.uids) == sorted({uid for uids in labels for uid in uids})


# ---- graphs ----


def test_graphs_in_their_three_forms() -> None:
    documents, labels, square = csr_array(np.ones((2, 3))), csr_array(np.eye(2, 3)), csr_array(np.eye(2))
    given_graph = Graph("other name", anchors=Items(["p", "q", "r"]), documents=documents)
    data = Dataset.from_texts(
        ["x", "y"],
        [["a"], ["b"]],
        graphs={"both": (documents, labels), "one": (None, labels), "square": square, "ready": given_graph},
    )
    sides: dict[str, Any] = {
        name: (graph.documents, graph.labels, graph.label_label) for name, graph in data.graphs.items()
    }
    np.testing.assert_array_equal(sides["both"][0].toarray(), np.ones((2, 3)))
    np.testing.assert_array_equal(sides["both"][1].toarray(), np.eye(2, 3))
    assert sides["both"][1].dtype == np.float32
    assert sides["one"][0] is None
    np.testing.assert_array_equal(sides["square"][2].toarray(), np.eye(2))
    assert data.graphs["ready"].name == "ready"
    assert data.graphs["ready"].anchors is not None


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ((csr_array((3, 4)), None), ["'g'", "3 rows", "2 training documents"]),
        ((None, csr_array((1, 4))), ["'g'", "1 rows", "2 labels"]),
        ((csr_array((2, 4)), csr_array((2, 5))), ["'g'", "[4, 5]", "anchors"]),
        (csr_array((2, 3)), ["'g'", "3 columns", "2 labels"]),
        (csr_array((3, 3)), ["'g'", "3 rows", "2 labels"]),
        (csr_array(np.array([[0, np.nan], [0, 0]])), ["'g'", "label_label", "not a number"]),
        ((None, None), ["'g'", "(None, None)"]),
        (np.eye(2), ["'g'", "csr_array"]),
        (Graph("x", anchors=Items(["a"]), documents=csr_array((2, 2))), ["'g'", "[1, 2]"]),
    ],
)
def test_graphs_that_do_not_fit(graph: Any, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        Dataset.from_texts(["x", "y"], [["a"], ["b"]], graphs={"g": graph})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.claim("R19")
def test_test_documents_never_enter_a_graph() -> None:
    anchors = Items(["test-0", "p", "q"], {"title": ["", "A  Cow", "free"]})
    graph = Graph("g", anchors, documents=csr_array(np.ones((1, 3))), labels=csr_array(np.ones((1, 3))))
    data = Dataset.from_texts(
        ["x"], [["a"]], graphs={"g": graph}, test_texts=["y", "a cow"], test_labels=[["a"], ["a"]]
    )
    kept: Any = data.graphs["g"]
    assert list(kept.anchors.uids) == ["q"]
    assert kept.documents.shape == kept.labels.shape == (1, 1)
    assert list(data.repairs.values()) == [2]


def test_training_documents_without_text_are_dropped_with_their_edges_and_test_documents_are_not() -> None:
    edges = csr_array(np.array([[1.0], [2.0], [3.0]]))
    data = Dataset.from_texts(
        ["x", " ", "y"], [["a"], ["b"], ["c"]], graphs={"g": (edges, None)}, test_texts=[""], test_labels=[["a"]]
    )
    assert list(data.train.documents.uids) == ["train-0", "train-2"]
    np.testing.assert_array_equal(data.train.targets.toarray(), [[1, 0, 0], [0, 0, 1]])
    kept: Any = data.graphs["g"].documents
    np.testing.assert_array_equal(kept.toarray(), [[1], [3]])
    assert len(data.need_test()) == 1
    assert list(data.repairs.values()) == [1]
    with pytest.raises(DataError, match="has a text or a vector"):
        Dataset.from_texts([""], [["a"]])


# ---- garbage ----


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"texts": ["x", "y"], "labels": [["a"]]}, ["2 texts", "1 labels"]),
        ({"texts": [], "labels": []}, ["texts is empty"]),
        ({"texts": "one text", "labels": [["a"]]}, ["texts is a str", "list"]),
        ({"texts": ["x"], "labels": {"a": 1}}, ["labels is a dict", "list"]),
        ({"texts": {"x"}, "labels": [["a"]]}, ["texts is a set", "list"]),
        ({"texts": ["x", 7], "labels": [["a"], ["b"]]}, ["texts[1]", "7", "string"]),
        ({"texts": [None, "x"], "labels": [["a"], ["b"]]}, ["texts[0]", "None"]),
        ({"texts": [{"title": "x"}, "y"], "labels": [["a"], ["b"]]}, ["texts[1]", "'y'", "dict"]),
        ({"texts": [{"title": 3}], "labels": [["a"]]}, ["texts[0]", "'title': 3"]),
        ({"texts": ["x", "y\ud800"], "labels": [["a"], ["b"]]}, ["texts[1]", "half a character"]),
        ({"texts": ["x", "y"], "labels": [["a"], "b"]}, ["labels[1]", "'b'", "list"]),
        ({"texts": ["x", "y"], "labels": [["a"], None]}, ["labels[1]", "None"]),
        ({"texts": ["x", "y"], "labels": [["a"], [3]]}, ["labels[1]", "3", "str(id)"]),
        ({"texts": ["x", "y"], "labels": [["a"], [" "]]}, ["labels[1]", "' '"]),
        ({"texts": ["x"], "labels": [["\ud800"]]}, ["labels[0]", "ud800"]),
        ({"texts": ["x"], "labels": [["a"]], "label_texts": {"a": "\ud800"}}, ["label_texts", "ud800"]),
        ({"texts": ["x"], "labels": [["a"]], "label_texts": ["a"]}, ["label_texts", "list", "dict"]),
        ({"texts": ["x"], "labels": [["a"]], "label_texts": {"a": None}}, ["label_texts", "'a': None"]),
        ({"texts": ["x"], "labels": [["a"]], "label_texts": {3: "x"}}, ["label_texts", "3: 'x'"]),
        ({"texts": ["x"], "labels": [["a"]], "test_texts": ["y"]}, ["test_texts", "without test_labels"]),
        ({"texts": ["x"], "labels": [["a"]], "test_labels": [["a"]]}, ["test_labels", "without test_texts"]),
        ({"texts": ["x"], "labels": [["a"]], "test_texts": ["y"], "test_labels": [7]}, ["test_labels[0]", "7"]),
    ],
)
def test_garbage_names_the_place_and_the_value(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        Dataset.from_texts(**arguments)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.hint


def test_names_are_titles_or_ids_and_a_full_table_is_given_as_it_is() -> None:
    items = Items(["a", "b"], {"title": ["cat", ""]})
    assert list(items.names()) == ["cat", "b"] == [items.name(row) for row in range(2)]
    table = StringTable.of(["cat", "dog"])
    assert Items(["a", "b"], {"title": table}).names() is table
    assert list(Items(["a", "b"], {"title": StringTable.of(["", "dog"])}).names()) == ["a", "dog"]
    assert list(Items(["a", "b"]).names()) == ["a", "b"]
