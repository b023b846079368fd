"""Warm start and zero shot: nothing that is to be found may be seen in training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.cli import main
from longtail.data.dataset import Dataset, Items
from longtail.data.identity import titles
from longtail.data.inspect import check
from longtail.data.protocols import identity, warm_start, zero_shot
from longtail.data.read import read, write
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import ConfigError, DataError

DATA = synthesise(
    SyntheticConfig(
        documents=400, test_documents=200, labels=150, topics=10, missing_rate=0.1, share_documents_are_labels=0.2
    ),
    0,
).dataset


def pairs(targets: Any) -> set[tuple[int, int]]:
    entries = targets.tocoo()
    return set(zip(entries.row.tolist(), entries.col.tolist(), strict=True))


def no_errors(dataset: Dataset) -> bool:
    return not [finding for finding in check(dataset) if finding.level == "error"]


# ---- warm start ----


def test_half_of_the_labels_is_revealed_to_warm_training_only() -> None:
    started = warm_start(DATA, seed=1)
    original, held = DATA.need_test(), started.warm.need_test()
    n = len(DATA.train)
    assert started.cold.train is DATA.train
    assert len(started.warm.train) == n + len(held)
    for row, uid in enumerate(held.documents.uids):
        before = list(original.documents.uids).index(uid)
        truth = set(original.targets[[before]].indices.tolist())
        hidden, revealed = (
            set(held.targets[[row]].indices.tolist()),
            set(started.warm.train.targets[[n + row]].indices.tolist()),
        )
        assert len(truth) >= 2
        assert len(revealed) == len(truth) // 2
        assert hidden == truth - revealed
        assert revealed <= truth
        masked = {label for document, label in held.masked.tolist() if document == row}
        assert masked == revealed | {label for document, label in original.masked.tolist() if document == before}
        assert started.warm.train.documents.uids[n + row] == uid
        assert started.warm.train.documents.fields["title"][n + row] == original.documents.fields["title"][before]
    added = {(document - n, label) for document, label in started.warm.train.masked.tolist() if document >= n}
    assert added == {
        (document, label)
        for document, label in held.masked.tolist()
        if started.warm.train.targets[n + document, label] == 0
    }
    assert len(held) == (np.diff(original.targets.indptr) >= 2).sum()
    np.testing.assert_array_equal(started.cold.need_test().targets.toarray(), held.targets.toarray())
    assert no_errors(started.warm)
    assert started.warm.digest != started.cold.digest


def test_masked_pairs_are_neither_revealed_nor_hidden() -> None:
    data = Dataset.from_texts(
        ["x"], [["a", "b", "c"]], test_texts=["y", "z"], test_labels=[["a", "b", "c"], ["a", "b"]]
    )
    data = replace(data, test=replace(data.need_test(), masked=np.array([[0, 0], [1, 1]], dtype=np.int64)))
    held = warm_start(data, seed=0).warm.need_test()
    assert list(held.documents.uids) == ["test-0"]
    assert [0, 0] in held.masked.tolist()
    assert held.targets[0, 0] == 0
    assert held.targets.nnz == 1


def test_the_seed_chooses_the_labels() -> None:
    one, same, other = warm_start(DATA, 1), warm_start(DATA, 1), warm_start(DATA, 2)
    assert one.warm.digest == same.warm.digest
    assert pairs(one.warm.need_test().targets) != pairs(other.warm.need_test().targets)


def test_added_documents_have_no_edges() -> None:
    started = warm_start(DATA, seed=1)
    before: Any = DATA.graphs["anchors"].documents
    after: Any = started.warm.graphs["anchors"].documents
    assert after.shape == (len(started.warm.train), before.shape[1])
    assert after.nnz == before.nnz
    assert pairs(after) == pairs(before)


@pytest.mark.parametrize("sparse", [True, False])
def test_vectors_are_stacked(sparse: bool) -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    plain = Dataset.from_texts(["x"], [["a", "b"]], test_texts=["y", "z"], test_labels=[["a", "b"], ["a"]])
    train = replace(plain.train, documents=Items(["d"], vectors=csr_array(values[:1]) if sparse else values[:1]))
    test = replace(
        plain.need_test(), documents=Items(["t", "u"], vectors=csr_array(values[1:]) if sparse else values[1:])
    )
    vectors: Any = warm_start(replace(plain, train=train, test=test), 0).warm.train.documents.vectors
    np.testing.assert_array_equal(vectors.toarray() if sparse else vectors, values[:2])


def test_warm_start_needs_documents_with_two_labels() -> None:
    with pytest.raises(DataError, match="two or more labels"):
        warm_start(Dataset.from_texts(["x"], [["a"]], test_texts=["y"], test_labels=[["a"]]), 0)
    with pytest.raises(DataError, match="no test documents"):
        warm_start(Dataset.from_texts(["x"], [["a"]]), 0)


# ---- zero shot ----


def test_held_out_labels_are_gone_from_training() -> None:
    shot = zero_shot(DATA, seed=3, share=0.2)
    held = {DATA.labels.uids[label] for label in shot.held_out}
    assert len(shot.held_out) == 30
    assert set(shot.train.labels.uids) == set(DATA.labels.uids) - held
    assert list(shot.unseen.labels.uids) == [uid for uid in DATA.labels.uids if uid in held]
    assert list(shot.generalised.labels.uids) == list(DATA.labels.uids)
    assert shot.train.test is None
    assert shot.unseen.train.targets.nnz == 0
    assert (np.diff(shot.train.train.targets.indptr) > 0).all()
    assert all(no_errors(data) for data in (shot.train, shot.generalised))
    named = {
        (shot.train.train.documents.uids[row], shot.train.labels.uids[label])
        for row, label in pairs(shot.train.train.targets)
    }
    assert named == {
        (DATA.train.documents.uids[row], DATA.labels.uids[label])
        for row, label in pairs(DATA.train.targets)
        if DATA.labels.uids[label] not in held
    }


def test_test_sides_hold_documents_with_a_held_out_label() -> None:
    shot = zero_shot(DATA, seed=3, share=0.2)
    held = set(shot.held_out.tolist())
    original = DATA.need_test()
    expected = [
        uid for row, uid in enumerate(original.documents.uids) if held & set(original.targets[[row]].indices.tolist())
    ]
    for data in (shot.unseen, shot.generalised):
        assert list(data.need_test().documents.uids) == expected
    unseen = {
        (shot.unseen.need_test().documents.uids[row], shot.unseen.labels.uids[label])
        for row, label in pairs(shot.unseen.need_test().targets)
    }
    assert unseen == {
        (original.documents.uids[row], DATA.labels.uids[label])
        for row, label in pairs(original.targets)
        if label in held
    }
    everything = {
        (shot.generalised.need_test().documents.uids[row], label)
        for row, label in pairs(shot.generalised.need_test().targets)
    }
    assert everything == {
        (original.documents.uids[row], label)
        for row, label in pairs(original.targets)
        if original.documents.uids[row] in expected
    }


def test_edges_of_held_out_labels_are_kept_only_when_transductive() -> None:
    square = csr_array(np.ones((150, 150), dtype=np.float32))
    graphs = {
        "anchors": DATA.graphs["anchors"],
        "near": replace(
            DATA.graphs["anchors"], name="near", documents=None, labels=None, anchors=None, label_label=square
        ),
    }
    data = replace(DATA, graphs=graphs)
    strict, loose = zero_shot(data, 3), zero_shot(data, 3, transductive_labels=True)
    np.testing.assert_array_equal(strict.held_out, loose.held_out)
    held = strict.held_out
    for shot, kept in ((strict, False), (loose, True)):
        labels: Any = shot.generalised.graphs["anchors"].labels
        assert (labels[held].nnz > 0) == kept
        near: Any = shot.generalised.graphs["near"].label_label
        assert near.nnz == (150**2 if kept else (150 - len(held)) ** 2)
        training: Any = shot.train.graphs["anchors"]
        assert training.labels.shape[0] == len(shot.train.labels) == (150 if kept else 150 - len(held))
        assert training.documents.shape[0] == len(shot.train.train)
        assert shot.train.train.targets.shape[1] == len(shot.train.labels)
    assert loose.train.train.targets[:, held].nnz == 0


def test_held_out_labels_have_text_and_all_frequencies() -> None:
    titles = ["" if label % 2 else title for label, title in enumerate(DATA.labels.fields["title"])]
    data = replace(DATA, labels=replace(DATA.labels, fields={"title": titles}))
    held = zero_shot(data, seed=0, share=0.4).held_out
    assert all(titles[label] for label in held)
    counts = np.bincount(DATA.train.targets.indices, minlength=150)
    eligible = np.array([label for label in range(150) if titles[label]])
    assert abs(np.median(counts[held]) - np.median(counts[eligible])) <= 1
    assert counts[held].max() >= np.sort(counts[eligible])[-8]


def test_masked_pairs_follow() -> None:
    shot = zero_shot(DATA, seed=3, share=0.2)
    for data in (shot.train, shot.unseen, shot.generalised):
        for split in (data.train, data.test):
            for document, label in [] if split is None else split.masked.tolist():
                assert split is not None
                assert split.documents.fields["title"][document] == data.labels.fields["title"][label]
    assert len(shot.train.train.masked)
    assert len(shot.generalised.need_test().masked)


def test_settings_and_data_that_do_not_work() -> None:
    with pytest.raises(ConfigError, match="share of 1"):
        zero_shot(DATA, 0, share=1.0)
    without = replace(DATA, labels=replace(DATA.labels, fields={"title": [""] * 150}))
    with pytest.raises(DataError, match="0 labels with text"):
        zero_shot(without, 0)
    lonely = Dataset.from_texts(
        [str(n) for n in range(20)], [[f"l{n}"] for n in range(20)], test_texts=["z"], test_labels=[[]]
    )
    with pytest.raises(DataError, match="0 test documents"):
        zero_shot(lonely, 0, share=0.5)


# ---- documents that are labels ----


def test_test_documents_are_told_apart_by_whether_they_are_labels() -> None:
    cut = identity(DATA)
    assert cut.labels is not None
    assert cut.others is not None
    known = set(titles(DATA.labels))
    assert all(title in known for title in titles(cut.labels.need_test().documents))
    assert not any(title in known for title in titles(cut.others.need_test().documents))
    assert len(cut.labels.need_test()) + len(cut.others.need_test()) == len(DATA.need_test())
    assert cut.labels.train is DATA.train
    assert no_errors(cut.labels)
    config = SyntheticConfig(
        documents=400, test_documents=50, labels=150, topics=10, share_documents_are_labels=0.0, graph_coverage=0.0
    )
    assert identity(synthesise(config).dataset).labels is None


def test_the_command_writes_both_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(DATA, tmp_path / "data", "lf")
    assert main(["data", "identity", str(tmp_path / "data"), str(tmp_path / "cut")]) == 0
    made, sizes = identity(read(tmp_path / "data")), []
    for name, expected in (("labels", made.labels), ("others", made.others)):
        assert expected is not None
        assert read(tmp_path / "cut" / name).digest == expected.digest
        sizes.append(f"{len(expected.need_test()):,} test documents in")
    said = capsys.readouterr().out
    assert all(size in said for size in sizes)


def test_data_whose_test_documents_are_no_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = Dataset.from_texts(["a", "b"], [["x"], ["y"]], test_texts=["c"], test_labels=[["x"]])
    write(plain, tmp_path / "data", "lf")
    assert main(["data", "identity", str(tmp_path / "data"), str(tmp_path / "cut")]) == 2
    assert "no test document of 'data' has the title of a label" in capsys.readouterr().err
    assert not (tmp_path / "cut").exists()
