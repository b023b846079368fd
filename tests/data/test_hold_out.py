"""A slice of the training data as test: what is in it, and what is masked in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import ConfigError, DataError


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


# ---- by group ----


def shops(sizes: list[int]) -> Dataset:
    """Shop i has sizes[i] documents."""
    groups = [f"shop {shop}" for shop, size in enumerate(sizes) for _ in range(size)]
    data = Dataset.from_texts(
        [f"text {i}" for i in range(len(groups))], [["a", "b"][i % 2 :] for i in range(len(groups))]
    )
    return replace(data, train=replace(data.train, groups=groups))


@pytest.mark.parametrize("seed", range(5))
def test_a_group_is_on_one_side(seed: int) -> None:
    held = shops([3, 7, 2, 5, 9, 1, 4, 6, 8, 5]).hold_out(0.3, seed, "shop")
    sides = [set(split.groups or ()) for split in (held.train, held.need_test())]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 10
    assert 10 <= len(held.need_test()) <= 15, "of 50 documents"


def test_a_text_field_can_be_the_group() -> None:
    texts = [{"title": f"text {i}", "shop": f"shop {i % 4}"} for i in range(20)]
    held = Dataset.from_texts(texts, [["a"]] * 20).hold_out(0.25, 0, "shop")
    assert set(held.need_test().documents.fields["shop"]).isdisjoint(held.train.documents.fields["shop"])
    assert len(held.need_test()) == 5


def test_documents_without_a_group_are_groups_of_their_own() -> None:
    data = shops([10])
    mixed = replace(data, train=replace(data.train, groups=[""] * 8 + ["shop"] * 2))
    rows = mixed.held_out_rows(0.3, 0, "shop")
    assert len(rows) == 3
    assert ({8, 9} <= set(rows.tolist())) or not ({8, 9} & set(rows.tolist()))


def test_a_group_that_is_larger_than_the_share_is_taken_where_no_other_fits() -> None:
    assert len(shops([12, 8]).held_out_rows(0.1, 0, "shop")) == 8


def test_groups_that_do_not_help_are_refused() -> None:
    with pytest.raises(ConfigError, match="all 10 training documents are of one group"):
        shops([10]).hold_out(0.1, 0, "shop")
    with pytest.raises(ConfigError, match=r"'shop' is none of the text fields \(title\)"):
        packages().hold_out(0.1, 0, "shop")


def test_a_column_of_a_table_can_be_the_group(tmp_path: Path) -> None:
    rows = "".join(f"{'' if i == 3 else f'text {i}'},a,{i % 4}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"text,labels,shop\n{rows}")
    data = read(tmp_path / "t.csv", group="shop")
    assert data.train.groups == [str(i % 4) for i in range(20) if i != 3], "what is dropped takes its group with it"
    assert list(data.train.documents.fields) == ["text"]
    assert data.digest == read(tmp_path / "t.csv").digest
    assert len({data.train.groups[row] for row in data.held_out_rows(0.3, 0, "shop")}) == 1
    with pytest.raises(DataError, match=r"no column 'store'.*'shop'"):
        read(tmp_path / "t.csv", group="store")
