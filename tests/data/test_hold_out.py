"""A slice of the training data as test: what is in it, and what is masked in it."""

from __future__ import annotations

import numpy as np

from longtail.data.dataset import Dataset


def packages() -> Dataset:
    """Documents that are labels. Every second pair has its reverse: 2i <-> 2i + 1; and all have label 'shared'."""
    names = [f"package {i}" for i in range(20)]
    partners = [f"package {i ^ 1}" for i in range(20)]
    # A second document of each label, so that a slice leaves it one.
    labels = [*([partner, "shared"] for partner in partners), *([name] for name in names)]
    return Dataset.from_texts(
        [*names, *(f"more of {name}" for name in names)], labels, {name: name for name in [*names, "shared"]}
    )


def test_documents_are_split_and_keep_their_labels() -> None:
    data = Dataset.from_texts([f"text {i}" for i in range(40)], [[f"label {i % 3}", "shared"] for i in range(40)])
    held = data.hold_out(0.25, seed=3)
    test = held.need_test()
    assert sorted([*held.train.documents.uids, *test.documents.uids]) == sorted(data.train.documents.uids)
    assert len(test) == 10
    row = {uid: i for i, uid in enumerate(data.train.documents.uids)}
    for i, uid in enumerate(test.documents.uids):
        assert np.array_equal(test.targets[[i]].toarray(), data.train.targets[[row[uid]]].toarray())
    assert (
        data.hold_out(0.25, seed=3).train.documents.uids
        == held.train.documents.uids
        != data.hold_out(0.25, seed=4).train.documents.uids
    )


def test_labels_without_a_training_document_are_not_asked_for() -> None:
    """As in test splits: a choice must not be made by who guesses labels that were never seen."""
    texts, labels = (
        [f"text {i}" for i in range(20)],
        [[f"own {i}", "shared"] if i % 2 else [f"own {i}"] for i in range(20)],
    )
    held = Dataset.from_texts(texts, labels).hold_out(0.5, seed=0)
    test = held.need_test()
    trained = set(held.train.documents.fields["title"])
    assert list(test.documents.fields["title"]) == [
        text for i, text in enumerate(texts) if text not in trained and i % 2
    ]
    assert {held.labels.name(label) for label in test.targets.indices} == {"shared"}


def test_pairs_whose_reverse_is_left_in_training_are_masked() -> None:
    held = packages().hold_out(0.25, seed=3)
    test, names = held.need_test(), held.labels
    text = {name: i for i, name in enumerate(names.fields["title"])}
    trained = set(held.train.documents.fields["title"])
    wanted = set()
    for row, title in enumerate(test.documents.fields["title"]):
        partner = f"package {int(title.split()[-1]) ^ 1}"
        if partner in trained and f"more of {partner}" in trained and not title.startswith("more"):
            wanted.add((row, text[partner]))
    assert wanted
    masked = {
        (row, label)
        for row, label in test.masked.tolist()
        if names.fields["title"][label] != test.documents.fields["title"][row]
    }
    assert masked == wanted
