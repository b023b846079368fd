"""What labels are seen with, and documents that carry them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import longtail
from longtail.bundle import COMPANY, LabelTable
from longtail.data.dataset import Dataset, Items
from longtail.errors import BundleError
from longtail.graph import company as module
from longtail.graph.company import Company
from longtail.persistence import load_part, save_part
from longtail.predictor import Predictor
from longtail.types import Batch

TARGETS = csr_array(
    np.array(
        [
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 0, 0, 0],
            [0, 0, 0, 0],
            [1, 0, 1, 0],
            [1, 0, 0, 0],
        ],
        dtype=np.float32,
    )
)
LABELS = Items(["a", "b", "c", "d"], {"title": ["A", "B", "C", "D"], "about": ["", "of B", "", "x" * 3000]})
DOCUMENTS = Items([f"doc{n}" for n in range(7)], {"title": [f"text {n} " + "y" * 300 for n in range(7)]})


def test_neighbours_share_documents() -> None:
    found = Company.of(TARGETS, LABELS)
    assert [label for label, _ in found.neighbours_of(0)] == [1, 2]
    strengths = [score for _, score in found.neighbours_of(0)]
    assert strengths == pytest.approx([2 / np.sqrt(5 * 2), 2 / np.sqrt(5 * 2)])
    assert [label for label, _ in found.neighbours_of(1)] == [0, 2]
    assert found.neighbours_of(1)[1][1] == pytest.approx(1 / 2)
    assert found.neighbours_of(3) == []
    assert found.examples_of(0) == []


def test_only_the_strongest_are_kept_whatever_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    targets = csr_array((rng.random((200, 40)) < 0.2).astype(np.float32))
    labels = Items([str(n) for n in range(40)])
    whole = Company.of(targets, labels).neighbours
    assert np.diff(whole.indptr).max() == module.NEIGHBOURS
    dense = (targets.T @ targets).toarray()
    strength = dense / np.sqrt(np.outer(np.diag(dense), np.diag(dense)))
    np.fill_diagonal(strength, 0)
    for label in range(40):
        order = np.lexsort((np.arange(40), -strength[label].astype(np.float32)))[: module.NEIGHBOURS]
        assert [n for n, _ in Company(whole).neighbours_of(label)] == order.tolist()
    monkeypatch.setattr(module, "_BLOCK", 7)
    assert (Company.of(targets, labels).neighbours != whole).nnz == 0


def test_examples_say_most_about_their_label() -> None:
    """Those with the fewest labels, then the first; the rows of the training set are not those of the data."""
    rows = np.array([0, 1, 2, 3, 4, 6])
    found = Company.of(TARGETS, LABELS, DOCUMENTS, rows)
    assert [uid for uid, _ in found.examples_of(0)] == ["doc2", "doc6", "doc0"]
    assert [uid for uid, _ in found.examples_of(1)] == ["doc0", "doc1"]
    assert found.examples_of(3) == []
    text = found.examples_of(0)[2][1]
    assert text.startswith("text 0")
    assert len(text) == module.TEXT


WORDS = csr_array(np.array([[0, 1], [0, 1], [0.6, 0.8], [1, 0], [0.8, 0.6], [1, 0]], dtype=np.float32))
NAMES = csr_array(np.array([[1, 0], [1, 0], [0, 0], [1, 0]], dtype=np.float32))


def test_the_nearest_documents_are_kept_nearest_first() -> None:
    """By the words of the label's text; one without words has those with the fewest labels, as has one that shares no
    word with its documents.
    """
    found = Company.of(TARGETS, LABELS, DOCUMENTS, read=(Batch(sparse=WORDS), Batch(sparse=NAMES)))
    assert [uid for uid, _ in found.examples_of(0)] == ["doc5", "doc4", "doc2"]
    assert [uid for uid, _ in found.examples_of(1)] == ["doc0", "doc1"]
    assert [uid for uid, _ in found.examples_of(2)] == ["doc4", "doc1"]
    assert found.examples_of(3) == []


def test_nearness_is_the_cosine_of_the_pairs_whatever_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    targets = csr_array((rng.random((90, 30)) < 0.2).astype(np.float32))
    words, names = (rng.random(shape) * (rng.random(shape) < 0.3) for shape in ((90, 12), (30, 12)))
    read = (Batch(sparse=csr_array(words.astype(np.float32))), Batch(sparse=csr_array(names.astype(np.float32))))
    labels, documents = Items([str(n) for n in range(30)]), Items([str(n) for n in range(90)], {"title": ["x"] * 90})
    whole = Company.of(targets, labels, documents, read=read)
    near = words.astype(np.float32) @ names.astype(np.float32).T
    others = np.diff(targets.indptr)
    for label in range(30):
        carry = np.flatnonzero(targets.toarray()[:, label])
        expected = sorted(carry.tolist(), key=lambda row: (-round(float(near[row, label]), 5), others[row], row))
        assert [uid for uid, _ in whole.examples_of(label)] == [str(row) for row in expected[: module.EXAMPLES]]
    monkeypatch.setattr(module, "_WORDS", 10)
    cut = Company.of(targets, labels, documents, read=read)
    assert [cut.examples_of(label) for label in range(30)] == [whole.examples_of(label) for label in range(30)]


def test_tokens_are_words_too() -> None:
    """Of documents that are read as sequences: a rare token counts more than one that all have."""
    tokens = np.array([[0, 1, -1], [0, 2, 2], [0, 1, -1], [0, -1, -1]], dtype=np.int32)
    names = np.array([[0, 2]], dtype=np.int32)
    targets = csr_array(np.ones((4, 1), dtype=np.float32))
    documents = Items(list("abcd"), {"title": list("abcd")})
    found = Company.of(targets, Items(["x"]), documents, read=(Batch(tokens=tokens), Batch(tokens=names)))
    assert [uid for uid, _ in found.examples_of(0)] == ["b", "a", "c"]


def test_models_of_before_say_nothing_of_nearness(tmp_path: Path) -> None:
    saved = Company.of(TARGETS, LABELS, DOCUMENTS)
    assert saved.carried is not None
    ones = saved.carried.copy()
    ones.data[:] = 1
    save_part(replace(saved, carried=ones), tmp_path / "part")
    assert [uid for uid, _ in load_part(tmp_path / "part").examples_of(0)] == ["doc0", "doc2", "doc5"]


def test_a_trained_model_shows_what_is_nearest_to_the_name(direct_run: Path, planted: Dataset) -> None:
    """Among the documents of a label all those with its word come before those without."""
    company = Predictor.open(direct_run).bundle.company()
    for number, uid in enumerate(planted.labels.uids[:5]):
        assert all(uid.removeprefix("id-") in text for _, text in company.examples_of(number))


def test_many_labels_have_fewer_examples_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALL_EXAMPLES", 8)
    found = Company.of(TARGETS, LABELS, DOCUMENTS)
    assert [len(found.examples_of(label)) for label in range(4)] == [2, 2, 2, 0]


def test_texts_beside_the_name() -> None:
    found = Company.of(TARGETS, LABELS)
    assert found.texts is not None
    assert found.texts[0] == ""
    assert found.texts[1] == "of B"
    assert len(found.texts[3]) == module.LABEL_TEXT
    assert Company.of(TARGETS, replace(LABELS, fields={"title": LABELS.fields["title"]})).texts is None


def test_it_is_saved_and_checked(tmp_path: Path) -> None:
    saved = Company.of(TARGETS, LABELS, DOCUMENTS)
    save_part(saved, tmp_path / "part")
    loaded = load_part(tmp_path / "part")
    assert loaded.neighbours_of(0) == saved.neighbours_of(0)
    assert loaded.examples_of(2) == saved.examples_of(2)
    assert loaded.texts[1] == "of B"
    with pytest.raises(ValueError, match="fit together"):
        Company(saved.neighbours, texts=saved.example_ids)
    with pytest.raises(ValueError, match="lack"):
        Company(saved.neighbours, carried=saved.carried)
    with pytest.raises(ValueError, match="shape"):
        Company(saved.neighbours, None, saved.carried, saved.texts, saved.texts)


def test_it_goes_with_the_model(tmp_path: Path, direct_run: Path) -> None:
    model = Predictor.open(direct_run)
    expected = model.bundle.company()
    assert expected.examples_of(0)
    model.save(tmp_path / "saved")
    longtail.pack(direct_run, tmp_path / "packed")
    for folder in ("saved", "packed"):
        found = Predictor.open(tmp_path / folder).bundle.company()
        assert found.neighbours_of(3) == expected.neighbours_of(3)
        assert found.examples_of(3) == expected.examples_of(3)


def test_no_examples_and_no_company(tmp_path: Path, planted: Dataset) -> None:
    run = tmp_path / "run"
    model = longtail.train(planted, run, "tiny", examples=False, progress=False)
    assert model.bundle.company().neighbours_of(0)
    assert model.bundle.company().examples is None
    texts = planted.train.documents.titles()
    whole = b"".join(path.read_bytes() for path in (run / "bundle" / COMPANY).rglob("*") if path.is_file())
    assert not any(text.encode() in whole for text in texts)
    # Other labels, other company; and bundles of before have none.
    bundle = model.bundle
    assert replace(bundle, own_labels=False).company() is None
    before = {name: about for name, about in bundle.manifest["files"].items() if not name.startswith(COMPANY)}
    assert replace(bundle, manifest={**bundle.manifest, "files": before}).company() is None
    fewer = replace(bundle, labels=LabelTable.of(Items(["a"]), np.ones(1, np.int64)))
    with pytest.raises(BundleError, match="company"):
        fewer.company()


def test_ids_are_the_text_of_labels_that_have_no_other(tmp_path: Path) -> None:
    table = tmp_path / "books.csv"
    rows = ["A hive,bees|honey", "A meadow,bees", "Bees in small gardens,bees|gardens", "A jar,honey"]
    table.write_text("\n".join(["title,labels", *rows]) + "\n")
    company = longtail.train(table, tmp_path / "run", "tiny", progress=False).bundle.company()
    label = Predictor.open(tmp_path / "run").labels.index("bees")
    assert [text for _, text in company.examples_of(label)] == ["Bees in small gardens", "A meadow", "A hive"]
