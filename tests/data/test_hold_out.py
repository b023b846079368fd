"""A slice of the training data as test: what is in it, and what is masked in it."""

from __future__ import annotations

import numpy as np

from longtail.data.dataset import Dataset


def packages() -> Dataset:
    """Documents that are labels. Every second pair has its reverse: 2i <-> 2i + 1; and all have label 'shared'."""
    names = [f"package {i}" for i in range(20)]
    partners = [f"package {i ^ 1}" for i in range(20)]
    return Dataset.from_texts(names, [[partner, "shared"] for partner in partners], {name: name for name in [*names, "shared"]})


def test_documents_are_split_and_keep_their_labels() -> None:
    data = packages()
    held = data.hold_out(0.25, seed=3)
    test = held.need_test()
    assert sorted([*held.train.documents.uids, *test.documents.uids]) == sorted(data.train.documents.uids)
    assert len(test) == 5
    row = {uid: i for i, uid in enumerate(data.train.documents.uids)}
    for i, uid in enumerate(test.documents.uids):
        assert np.array_equal(test.targets[[i]].toarray(), data.train.targets[[row[uid]]].toarray())
    assert held.hold_out(0.25, seed=3).train.documents.uids == packages().hold_out(0.25, seed=3).hold_out(0.25, seed=3).train.documents.uids


def test_pairs_whose_reverse_is_left_in_training_are_masked() -> None:
    held = packages().hold_out(0.25, seed=3)
    test, names = held.need_test(), held.labels
    text = {name: i for i, name in enumerate(names.fields["title"])}
    trained = set(held.train.documents.fields["title"])
    wanted = set()
    for row, title in enumerate(test.documents.fields["title"]):
        partner = f"package {int(title.split()[1]) ^ 1}"
        if partner in trained:
            wanted.add((row, text[partner]))
    assert wanted
    masked = {(row, label) for row, label in test.masked.tolist() if names.fields["title"][label] != test.documents.fields["title"][row]}
    assert masked == wanted
