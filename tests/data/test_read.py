"""Recognising what lies at a path, and the digest that names it."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.identity import digest, training_digest
from longtail.data.read import read, write
from longtail.errors import ConfigError, DataError


def small() -> Dataset:
    labels = Items(["l0", "l1"], {"title": ["cat", "dog"]})
    train = Split(
        Items(["a", "b"], {"title": ["one", "two"]}), csr_array(np.eye(2, dtype=np.float32)), np.array([[0, 1]])
    )
    test = Split(Items(["t"], {"title": ["three"]}), csr_array(np.array([[0, 1]], dtype=np.float32)))
    graph = Graph("g", Items(["p"], {"title": ["point"]}), csr_array(np.array([[1.0], [2.0]], dtype=np.float32)))
    return Dataset("small", labels, train, test, {"g": graph})


def fails(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.hint
    return str(caught.value)


def test_what_is_not_recognised_is_described(tmp_path: Path) -> None:
    assert f"{tmp_path / 'absent'}: no such file or folder" in fails(tmp_path / "absent")
    assert f"{tmp_path}: the format is not recognised; the folder is empty" in fails(tmp_path)
    for number in range(10):
        (tmp_path / f"x{number}.dat").write_text("?")
    error = fails(tmp_path)
    assert "the folder holds x0.dat, x1.dat" in error
    assert "x7.dat and 2 more" in error
    assert "trn.json.gz and lbl.json.gz" in error
    assert "it is a file of 1 bytes" in fails(tmp_path / "x0.dat")
    (tmp_path / "notes.txt").write_text("dear diary\n")
    assert "notes.txt: the format is not recognised" in fails(tmp_path / "notes.txt")


@pytest.mark.parametrize("format", ["lf", "npz", "split", "jsonl", "csv", "tsv"])
def test_formats_of_texts_keep_the_digest(tmp_path: Path, format: str) -> None:
    write(small(), tmp_path / "small", format)
    assert read(tmp_path / "small").digest == digest(small())


@pytest.mark.parametrize("format", ["lf", "npz", "jsonl"])
def test_the_digest_of_training_does_not_depend_on_the_test_side(tmp_path: Path, format: str) -> None:
    write(small(), tmp_path / "small", format)
    alone = read(tmp_path / "small", test=False)
    assert alone.test is None
    assert alone.digest == training_digest(digest(small())) == digest(replace(small(), test=None))


def test_tables_take_options_and_other_formats_do_not(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("question,answers\nwho,a/b\n")
    (tmp_path / "y.csv").write_text("question,answers\nwhy,b\n")
    data = read(tmp_path / "x.csv", text="question", labels="answers", separator="/", test_file=tmp_path / "y.csv")
    assert list(data.labels.uids) == ["a", "b"]
    assert data.need_test().targets.toarray().tolist() == [[0, 1]]
    write(small(), tmp_path / "lf", "lf")
    with pytest.raises(ConfigError, match="'separator' is for tables"):
        read(tmp_path / "lf", separator="/")


def test_compression_does_not_change_the_digest(tmp_path: Path) -> None:
    write(small(), tmp_path / "small", "lf")
    before = read(tmp_path / "small").digest
    path = tmp_path / "small" / "trn.json.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1, mtime=7))
    assert read(tmp_path / "small").digest == before


def altered() -> dict[str, Dataset]:
    """One data set per thing that can differ, each by the least amount."""
    data = small()
    train, graph = data.train, data.graphs["g"]
    edges: Any = graph.documents

    def with_documents(items: Items) -> Dataset:
        return replace(data, train=replace(train, documents=items))

    return {
        "label text": replace(data, labels=Items(["l0", "l1"], {"title": ["cat", "dof"]})),
        "label uid": replace(data, labels=Items(["l0", "l2"], {"title": ["cat", "dog"]})),
        "text": with_documents(Items(["a", "b"], {"title": ["one", "twp"]})),
        "where a text ends": with_documents(Items(["a", "b"], {"title": ["onet", "wo"]})),
        "field name": with_documents(Items(["a", "b"], {"content": ["one", "two"]})),
        "further field": with_documents(Items(["a", "b"], {"title": ["one", "two"], "content": ["", ""]})),
        "vectors": with_documents(Items(["a", "b"], {"title": ["one", "two"]}, np.zeros((2, 1), dtype=np.float32))),
        "sparse vectors": with_documents(
            Items(["a", "b"], {"title": ["one", "two"]}, csr_array((2, 1), dtype=np.float32))
        ),
        "targets": replace(data, train=replace(train, targets=csr_array(np.array([[1, 0], [1, 0]], dtype=np.float32)))),
        "masked": replace(data, train=replace(train, masked=np.array([[1, 1]]))),
        "graph name": replace(data, graphs={"h": replace(graph, name="h")}),
        "graph weight": replace(data, graphs={"g": replace(graph, documents=edges * np.float32(2))}),
        "graph side": replace(data, graphs={"g": replace(graph, documents=None, labels=edges)}),
        "anchor": replace(data, graphs={"g": replace(graph, anchors=Items(["p"], {"title": ["paint"]}))}),
        "no graph": replace(data, graphs={}),
    }


def test_the_digest_sees_every_difference_in_training() -> None:
    digests = {"": digest(small()), **{what: digest(data) for what, data in altered().items()}}
    assert len({training_digest(one) for one in digests.values()}) == len(digests)
    assert len({one.split("+")[1] for one in digests.values()}) == 1


def test_the_digest_names_content_not_names_or_repairs() -> None:
    assert digest(replace(small(), name="x", repairs={"y": 1}, digest="z")) == digest(small())
    wide = small().train.targets.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert digest(replace(small(), train=replace(small().train, targets=wide))) == digest(small())


def test_a_test_side_changes_only_the_second_part() -> None:
    data = small()
    other = replace(data, test=replace(data.need_test(), documents=Items(["t"], {"title": ["four"]})))
    assert training_digest(digest(other)) == training_digest(digest(data))
    assert digest(other) != digest(data)
