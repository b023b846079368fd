"""Counts and remarks on data sets whose counts are known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.identity import check_reciprocal, normalised, self_pairs
from longtail.data.inspect import Finding, check, render, statistics


def small() -> Dataset:
    """Four training and three test documents, four labels with 3, 1, 0 and 1 documents."""
    data = Dataset.from_texts(
        ["a cat", "A  Cat ", "a dog", "to be emptied"],
        [["cat", "pet"], ["cat"], ["cat"], []],
        {"cat": "a cat", "pet": "pets", "lonely": "", "dog": "A CAT"},
        test_texts=["a CAT", "a dog", "a cow"],
        test_labels=[["cat"], ["pet", "cat"], []],
    )
    # Readers drop training documents without text; a data set made by hand may have some.
    titles = [*data.train.documents.fields["title"][:3], ""]
    return with_train(data, documents=replace(data.train.documents, fields={"title": titles}))


def codes(dataset: Dataset, level: str | None = None) -> set[str]:
    return {finding.code for finding in check(dataset) if level in (None, finding.level)}


def with_train(dataset: Dataset, **changes: Any) -> Dataset:
    return replace(dataset, train=replace(dataset.train, **changes))


def test_labels_that_look_like_ids_are_doubted() -> None:
    texts = [f"text {n}" for n in range(20)]
    assert "labels-like-ids" in codes(Dataset.from_texts(texts, [[f"sku-{n}"] for n in range(20)]), "warning")
    nearly = Dataset.from_texts(texts, [[f"sku-{min(n, 18)}"] for n in range(20)])
    assert "18 of 20 training documents have one label each" in str(check(nearly)[0])
    assert "labels-like-ids" not in codes(Dataset.from_texts(texts, [[f"sku-{n // 2}"] for n in range(20)]))
    both = [[f"sku-{n}", "all"] for n in range(20)]
    assert "labels-like-ids" not in codes(Dataset.from_texts(texts, both)), "there is something to share"
    assert "labels-like-ids" not in codes(Dataset.from_texts(texts[:5], [[f"sku-{n}"] for n in range(5)])), "by chance"


def test_a_truth_that_lost_much_is_doubted() -> None:
    texts, labels = [f"text {n}" for n in range(40)], [["a"], ["b"]] * 20
    asked = [f"asked {n}" for n in range(19)]
    half = Dataset.from_texts(texts, labels, test_texts=asked, test_labels=[["a", f"new {n}"] for n in range(19)])
    assert "50.0% of all labels of test documents are unknown to training" in str(check(half)[0])
    few = Dataset.from_texts(texts, labels, test_texts=asked, test_labels=[*[["a"]] * 18, ["b", "new"]])
    assert few.repairs, "one of twenty is 5%"
    assert "test-labels-unknown" in codes(few, "warning")
    fewer = Dataset.from_texts(texts, labels, test_texts=asked, test_labels=[*[["a", "b"]] * 18, ["b", "new"]])
    assert fewer.repairs, "one of 38 is printed as a repair, and that is enough"
    assert "test-labels-unknown" not in codes(fewer)


def test_labels_of_one_text_are_named() -> None:
    (found,) = [finding for finding in check(small()) if finding.code == "labels-same-text"]
    assert "such as 'cat' and 'dog'" in found.message
    texts = {"a": "", "b": "", "c": "the same", "d": "the same"}
    found, *_ = [one for one in check(Dataset.from_texts(["x"], [["a"]], texts)) if one.code == "labels-same-text"]
    assert "such as 'c' and 'd'" in found.message


# ---- counts ----


def test_counts_of_documents_and_labels() -> None:
    counts = statistics(small())
    train, test, labels = counts["train"], counts["test"], counts["labels"]
    assert (
        train["documents"],
        train["pairs"],
        train["labels_per_document_mean"],
        train["labels_per_document_max"],
    ) == (4, 4, 1.0, 2)
    assert (train["documents_without_labels"], train["share_without_labels"]) == (1, 0.25)
    assert (train["documents_without_text"], train["repeated_texts"], train["fields"]) == (1, 1, {"title": 3})
    assert train["words_per_document_mean"] == 6 / 4
    assert train["documents_that_are_labels"] == 2
    assert (test["documents"], test["share_without_labels"], test["texts_also_in_train"], test["repeated_texts"]) == (
        3,
        1 / 3,
        2,
        0,
    )
    assert labels["labels"] == 4
    assert (
        labels["documents_per_label_mean"],
        labels["documents_per_label_median"],
        labels["documents_per_label_max"],
    ) == (1.0, 0.5, 3)
    assert (labels["share_with_0_documents"], labels["share_with_1_document"]) == (0.5, 0.25)
    assert (labels["share_with_under_5_documents"], labels["share_with_under_10_documents"]) == (1.0, 1.0)
    assert (labels["labels_without_text"], labels["share_without_text"], labels["repeated_texts"]) == (1, 0.25, 1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=30))
def test_label_shares_match_a_plain_count(rows: list[list[int]]) -> None:
    data = Dataset.from_texts(
        [f"t{i}" for i in range(len(rows))],
        [[f"l{label}" for label in row] for row in rows],
        {f"l{label}": "" for label in range(6)},
    )
    frequency = [sum(label in row for row in rows) for label in range(6)]
    labels = statistics(data)["labels"]
    assert labels["documents_per_label_max"] == max(frequency)
    assert labels["documents_per_label_median"] == np.median(frequency)
    for key, holds in (
        ("0_documents", lambda n: n == 0),
        ("1_document", lambda n: n == 1),
        ("under_5_documents", lambda n: n < 5),
        ("under_10_documents", lambda n: n < 10),
    ):
        assert labels[f"share_with_{key}"] == sum(map(holds, frequency)) / 6


def test_masked_pairs_count_neither_as_labels_nor_as_frequency() -> None:
    data = with_train(small(), masked=np.array([[0, 0]], dtype=np.int64))
    counts = statistics(data)
    assert counts["train"]["filter_pairs"] == 1
    assert counts["train"]["pairs"] == 3
    assert counts["labels"]["documents_per_label_max"] == 2


def test_empty_texts_are_not_the_same_text() -> None:
    data = small()
    emptied = replace(data.need_test(), documents=Items(["1", "2", "3"], {"title": ["", "", "a cow"]}))
    counts = statistics(replace(data, test=emptied))["test"]
    assert (counts["texts_also_in_train"], counts["repeated_texts"], counts["documents_without_text"]) == (0, 0, 2)


def test_vectors() -> None:
    sparse = csr_array(np.array([[1, -1, 0], [0, np.nan, 0], [np.inf, 0, 0], [0, 0, 0]], dtype=np.float32))
    data = with_train(small(), documents=replace(small().train.documents, vectors=sparse))
    assert statistics(data)["train"]["vectors"] == {
        "dimensions": 3,
        "kind": "sparse",
        "nan": 1,
        "infinite": 1,
        "negative": 1,
        "empty_rows": 1,
    }
    dense = with_train(small(), documents=replace(small().train.documents, vectors=sparse.toarray()))
    assert statistics(dense)["train"]["vectors"] == {
        "dimensions": 3,
        "kind": "dense",
        "nan": 1,
        "infinite": 1,
        "negative": 1,
        "empty_rows": 1,
    }
    assert {"vectors-not-finite", "vectors-negative", "vectors-empty"} <= codes(data)
    assert "vectors-negative" not in codes(dense)


def graph_with_test_nodes() -> Dataset:
    """Anchors: a test document by id, two by title, and an innocent one."""
    anchors = Items(["test-2", "x", "y", "z"], {"title": ["q", "A dog", "a cow", "free"]})
    documents = csr_array(np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=np.float32))
    labels = csr_array(np.array([[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=np.float32))
    return replace(
        small(),
        graphs={
            "links": Graph("links", anchors, documents, labels),
            "near": Graph("near", label_label=csr_array(np.eye(4, k=1, dtype=np.float32))),
        },
    )


def test_graphs() -> None:
    counts = statistics(graph_with_test_nodes())["graphs"]
    assert counts["links"]["anchors"] == 4
    assert counts["links"]["documents"] == {
        "edges": 4,
        "isolated": 1,
        "covered_share": 0.75,
        "largest_degree": 2,
        "largest_column_degree": 2,
        "weights_not_finite": 0,
    }
    assert counts["links"]["labels"]["isolated"] == 3
    assert counts["links"]["test_nodes"] == 3
    assert counts["near"]["label_label"]["edges"] == 3
    assert "anchors" not in counts["near"]


def test_planted_test_nodes_are_an_error() -> None:
    assert "graph-test-nodes" in codes(graph_with_test_nodes(), "error")
    anchors = Items(["p", "q", "r", "s"], {"title": ["", "a cat", "b", "c"]})  # a cat is a test document, too
    for test_uid, title, found in (("p", "z", True), ("z", "A  CAT", True), ("z", "z", False)):
        data = graph_with_test_nodes()
        test = replace(data.need_test(), documents=Items([test_uid, "y", "x"], {"title": [title, "", "unlike"]}))
        data = replace(data, test=test, graphs={"links": replace(data.graphs["links"], anchors=anchors)})
        assert ("graph-test-nodes" in codes(data)) == found


def test_counts_are_json_and_rendered_in_columns() -> None:
    data = replace(graph_with_test_nodes(), repairs={"things mended": 1234})
    counts = statistics(data)
    assert json.loads(json.dumps(counts, allow_nan=False)) == counts
    lines = render(counts).splitlines()
    assert "labels" in lines
    assert "  share with 0 documents" in [line[: len("  share with 0 documents")] for line in lines]
    row = next(line for line in lines if "share with 0 documents" in line)
    assert row.endswith("50.0%")
    assert next(line for line in lines if "things mended" in line).endswith("1,234")
    assert len({line.index(line.split()[-1]) for line in lines if "documents per label m" in line}) == 1


# ---- the same thing twice ----


def test_normalised() -> None:
    assert normalised("  A\tCat \n sat ") == "a cat sat"


def test_documents_that_are_labels() -> None:
    pairs = self_pairs(
        Items(["1", "2", "3"], {"title": ["A  b", "", "c"]}), Items(["x", "y", "z"], {"title": ["a B", "a b ", ""]})
    )
    np.testing.assert_array_equal(pairs, [[0, 0], [0, 1]])
    assert self_pairs(Items(["1"]), Items(["x"])).shape == (0, 2)


def article_links(train: list[tuple[str, str]], test: list[tuple[str, str]]) -> Dataset:
    """Documents and labels are the same articles; a pair says which one links to which."""
    names = sorted({name for pair in train + test for name in pair})

    def side(pairs: list[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
        sources = sorted({source for source, _ in pairs}) or ["nothing"]
        return sources, [[target for source, target in pairs if source == document] for document in sources]

    (texts, labels), (test_texts, test_labels) = side(train), side(test)
    return Dataset.from_texts(
        texts, labels, {name: name for name in names}, test_texts=test_texts, test_labels=test_labels
    )


PAIRS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), max_size=12)


@settings(max_examples=60, deadline=None)
@given(PAIRS, PAIRS)
def test_reciprocal_pairs_match_a_plain_search(train: list[tuple[str, str]], test: list[tuple[str, str]]) -> None:
    data = article_links(train, test)
    found = check_reciprocal(data)
    side = data.need_test()
    named = {
        (side.documents.fields["title"][document], data.labels.uids[label]) for document, label in found.test.tolist()
    }
    assert named == {(a, b) for a, b in set(test) if (b, a) in train and a != b}
    assert found.within_train == sum((b, a) in train and a != b for a, b in set(train))


def test_masked_reciprocal_pairs_are_forgiven() -> None:
    data = article_links([("a", "b")], [("b", "a")])
    assert "reciprocal-pairs" in codes(data, "warning")
    masked = replace(data, test=replace(data.need_test(), masked=check_reciprocal(data).test))
    assert len(check_reciprocal(masked).test) == 0
    assert "reciprocal-pairs" not in codes(masked)


# ---- remarks ----


def test_a_clean_data_set_has_no_warnings() -> None:
    data = Dataset.from_texts(["x", "y"], [["a"], ["b"]], test_texts=["z"], test_labels=[["a"]])
    assert check(data) == []


def test_remarks_on_the_small_one() -> None:
    found = check(small())
    assert codes(small(), "error") == set()
    assert codes(small(), "warning") == {
        "train-without-labels",
        "train-without-text",
        "test-without-labels",
        "test-texts-in-train",
    }
    assert {
        "labels-without-documents",
        "labels-without-text",
        "labels-same-text",
        "train-repeated-texts",
        "train-documents-are-labels",
    } <= codes(small(), "note")
    levels = [finding.level for finding in found]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)
    assert "1 of 4 train documents have no label" in {finding.message for finding in found}
    assert "2 of 3 test documents have the text of a training document" in {finding.message for finding in found}


def test_remarks_can_reuse_counts() -> None:
    counts = statistics(small())
    counts["labels"]["labels_without_text"] = 77
    assert any("77 of 4 labels" in finding.message for finding in check(small(), counts))


def test_no_test_side_is_noted() -> None:
    data = replace(small(), test=None)
    assert "no-test" in codes(data, "note")
    assert "test" not in statistics(data)


@pytest.mark.parametrize(
    ("code", "spoil"),
    [
        (
            "duplicate-ids",
            lambda data: with_train(data, documents=replace(data.train.documents, uids=["1", "2", "3", "1"])),
        ),
        ("duplicate-ids", lambda data: replace(data, labels=replace(data.labels, uids=["1", "2", "3", "1"]))),
        ("targets-not-binary", lambda data: with_train(data, targets=data.train.targets * 2)),
        (
            "targets-unsorted",
            lambda data: with_train(
                data, targets=csr_array((np.ones(2, np.float32), [1, 0], [0, 2, 2, 2, 2]), shape=(4, 4))
            ),
        ),
        (
            "targets-unsorted",
            lambda data: with_train(
                data, targets=csr_array((np.ones(2, np.float32), [1, 1], [0, 2, 2, 2, 2]), shape=(4, 4))
            ),
        ),
        ("masked-out-of-range", lambda data: with_train(data, masked=np.array([[0, 4]], dtype=np.int64))),
        ("masked-out-of-range", lambda data: with_train(data, masked=np.array([[4, 0]], dtype=np.int64))),
        ("masked-out-of-range", lambda data: with_train(data, masked=np.array([[0, -1]], dtype=np.int64))),
        (
            "graph-shape",
            lambda data: replace(data, graphs={"g": Graph("g", label_label=csr_array((3, 3), dtype=np.float32))}),
        ),
        (
            "graph-not-finite",
            lambda data: replace(data, graphs={"g": Graph("g", documents=csr_array(np.full((4, 1), np.nan)))}),
        ),
        ("train-without-labels", lambda data: with_train(data, targets=csr_array((4, 4), dtype=np.float32))),
        (
            "train-without-text",
            lambda data: with_train(data, documents=Items(["1", "2", "3", "4"], {"title": [" "] * 4})),
        ),
        (
            "train-empty",
            lambda data: replace(data, train=Split(Items([], {"title": []}), csr_array((0, 4), dtype=np.float32))),
        ),
        (
            "no-labels",
            lambda _: Dataset(
                "d", Items([]), Split(Items(["1"], {"title": ["x"]}), csr_array((1, 0), dtype=np.float32))
            ),
        ),
    ],
)
def test_errors(code: str, spoil: Any) -> None:
    assert code not in codes(small(), "error")
    assert code in codes(spoil(small()), "error")


def test_an_empty_graph_is_a_warning() -> None:
    assert "graph-empty" in codes(
        replace(small(), graphs={"g": Graph("g", documents=csr_array((4, 1), dtype=np.float32))}), "warning"
    )


def test_a_finding_reads_well() -> None:
    assert (
        str(Finding("warning", "some-code", "what is wrong", "what to do"))
        == "warning: what is wrong [some-code]\n  hint: what to do"
    )
