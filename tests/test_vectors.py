"""Vectors for other programs: a search by inner product over them gives what the model answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import longtail
from longtail import Predictor
from longtail.cli import main
from longtail.data.dataset import Dataset
from longtail.search.index import ExactIndex, HnswIndex
from longtail.vectors import export_vectors


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, planted: Dataset) -> Path:
    out = tmp_path_factory.mktemp("vectors") / "run"
    # Votes of similar documents, which no product of vectors has, are left out.
    settings = {"encoder": {"width": 128}, "train": {"epochs": 2}, "memory": {"weight": 0.0}}
    longtail.train(planted, out, settings=settings, device="cpu", progress=False)
    return out


@pytest.mark.parametrize("packing", [None, "exact", "sketch", "leaves", "hnsw"])
def test_the_largest_products_are_the_answers_of_the_model(
    packing: str | None, trained: Path, planted: Dataset, tmp_path: Path
) -> None:
    model = Predictor.open(trained)
    if packing is not None:
        assert main(["pack", str(trained), str(tmp_path / "packed"), "--index", packing, "-q"]) == 0
        model = Predictor.open(tmp_path / "packed")
    documents = planted.need_test().documents
    assert export_vectors(model, tmp_path / "labels.npy") == (len(planted.labels), 129)
    export_vectors(model, tmp_path / "documents.npy", documents)
    labels, queries = np.load(tmp_path / "labels.npy"), np.load(tmp_path / "documents.npy")
    assert (tmp_path / "labels.ids.txt").read_text().split("\n")[:-1] == list(planted.labels.uids)
    top = model.rank(documents, 3)
    products = queries @ labels.T
    rows = np.flatnonzero(top.ids[:, 0] >= 0)
    scores = 1 / (1 + np.exp(-np.take_along_axis(products, np.maximum(top.ids, 0).astype(np.int64), axis=1)))
    assert np.abs(scores[rows] - top.scores[rows]).max() < (0.02 if packing else 1e-4)
    if packing is None:
        assert (products.argmax(axis=1)[rows] == top.ids[rows, 0]).all()


def test_parquet_holds_ids_names_and_vectors(trained: Path, planted: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "labels.parquet"
    assert main(["vectors", str(trained), str(out)]) == 0
    table = pq.read_table(out)
    assert table.column("id").to_pylist() == list(planted.labels.uids)
    export_vectors(Predictor.open(trained), tmp_path / "labels.npy")
    assert np.array_equal(
        np.array(table.column("vector").to_pylist(), dtype=np.float32), np.load(tmp_path / "labels.npy")
    )


def test_documents_of_a_file(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("an owl\n\na cat\n")
    assert main(["vectors", str(trained), str(tmp_path / "v.npy"), "--input", str(tmp_path / "texts.txt")]) == 0
    assert np.load(tmp_path / "v.npy").shape == (3, 129)
    (tmp_path / "table.csv").write_text("title,pages\nan owl,3\n")
    assert main(["vectors", str(trained), str(tmp_path / "t.npy"), "--input", str(tmp_path / "table.csv")]) == 0
    assert "text: title; id: none, rows are numbered; ignored: pages\n" in capsys.readouterr().err


def test_vectors_are_written_and_not_mapped(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is mapped onto a full disk ends the process."""

    def mapped(*_: object, **__: object) -> None:
        raise AssertionError("mapped")

    model = Predictor.open(trained)
    monkeypatch.setattr(np, "memmap", mapped)
    export_vectors(model, tmp_path / "v.npy")
    np.save(tmp_path / "again.npy", np.load(tmp_path / "v.npy"))
    assert (tmp_path / "v.npy").read_bytes() == (tmp_path / "again.npy").read_bytes()


def test_ids_replace_no_file_of_somebody_else(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids, out = tmp_path / "v.ids.txt", tmp_path / "v.npy"
    ids.write_text("precious\n")
    assert main(["vectors", str(trained), str(out)]) == 2
    assert "v.ids.txt: exists already, and is not that of v.npy" in capsys.readouterr().err
    out.touch()
    assert main(["vectors", str(trained), str(out), "--input", str(ids)]) == 2
    assert "is both --input and the file of ids" in capsys.readouterr().err
    assert (ids.read_text(), out.read_bytes()) == ("precious\n", b"")
    assert main(["vectors", str(trained), str(out), "--input", ""]) == 2
    assert "an empty name" in capsys.readouterr().err


def test_ids_and_vectors_appear_together(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "v.npy").touch()
    (tmp_path / "v.ids.txt").mkdir()
    (tmp_path / "v.ids.txt" / "full").touch()
    assert main(["vectors", str(trained), str(tmp_path / "v.npy")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.ids.txt", "v.npy"]
    assert (tmp_path / "v.npy").read_bytes() == b""


def test_a_model_without_vectors_says_so(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vectors", str(tiny_run), str(tmp_path / "labels.npy")]) == 2
    assert "'tiny' does not rank by one product" in capsys.readouterr().err
    assert main(["vectors", str(tiny_run), str(tmp_path / "labels.txt")]) == 2
    assert ".npy or" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_index_gives_its_vectors_back() -> None:
    vectors = np.random.default_rng(0).standard_normal((50, 8), dtype=np.float32)
    vectors[7] = vectors[3]  # HNSW keeps equal vectors once
    for index in (ExactIndex.build(vectors, "dot"), HnswIndex.build(vectors, similarity="dot")):
        assert np.array_equal(index.read(), vectors)
        assert np.array_equal(index.read(slice(5, 9)), vectors[5:9])
