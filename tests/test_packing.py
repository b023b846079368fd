"""Packing a bundle: what it writes, what it saves, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import longtail
from longtail import Predictor
from longtail.bundle import bytes_by_part
from longtail.cli import main
from longtail.data.columns import Columns
from longtail.data.dataset import Dataset
from longtail.data.from_texts import with_digest
from longtail.errors import BundleError, ConfigError
from longtail.models.encoders import FrozenBag
from longtail.models.rankers import IndexedRows
from longtail.packing import SearchKind
from longtail.persistence import home_of, load_part
from longtail.search.packed import PackedIndex, PackedRows, PackedType, Packer
from longtail.types import Batch


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, planted: Dataset, one_thread: None) -> Path:
    """Wide enough for products of bytes."""
    folder = tmp_path_factory.mktemp("runs") / "direct"
    table = replace(planted, columns=Columns(("title",), (1.0,), "labels", "uid", "|"))
    longtail.train(table, folder, "direct", settings={"encoder": {"width": 64}, "train": {"epochs": 12}}, device="cpu")
    return folder


@pytest.fixture(scope="module")
def packed(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "packed"
    longtail.pack(run, out)
    return out


def ranker_of(folder: Path) -> Any:
    ranker = Predictor.open(folder).bundle.ranker
    assert isinstance(ranker, IndexedRows)
    return ranker


def test_tables_are_bytes_and_biases_are_whole(run: Path, packed: Path) -> None:
    whole, small = ranker_of(run), ranker_of(packed)
    assert isinstance(small.encoder.table, PackedRows)
    assert isinstance(small.index, PackedIndex)
    assert small.encoder.table.values.dtype == small.index.rows.values.dtype == np.int8
    np.testing.assert_array_equal(small.index.offsets, whole.index.vectors[:, -1])
    step = np.abs(whole.encoder.table).max(axis=1, keepdims=True) / 254
    assert np.all(np.abs(small.encoder.table[:] - whole.encoder.table) <= step * 1.001)


def test_it_ranks_as_before_alone_and_in_batches(run: Path, packed: Path, planted: Dataset) -> None:
    documents = planted.need_test().documents
    whole, small = Predictor.open(run).rank(documents, 3), Predictor.open(packed).rank(documents, 3)
    assert np.mean(whole.ids[:, 0] == small.ids[:, 0]) > 0.9
    np.testing.assert_allclose(small.scores, whole.scores, atol=0.02)
    for row in range(5):
        alone = Predictor.open(packed).rank(documents.rows(np.array([row])), 3)
        np.testing.assert_array_equal(alone.ids[0], small.ids[row])
        np.testing.assert_allclose(alone.scores[0], small.scores[row], atol=1e-6)


def test_it_remembers_the_columns_of_its_table(run: Path, packed: Path) -> None:
    assert Predictor.open(packed).columns == Predictor.open(run).columns is not None


def test_sizes_are_those_of_the_files(run: Path, packed: Path) -> None:
    for folder in (run / "bundle", packed):
        assert sum(bytes_by_part(folder).values()) == sum(
            path.stat().st_size for path in folder.rglob("*") if path.is_file()
        )
    before, after = bytes_by_part(run), bytes_by_part(packed)
    assert {"labels", "featurizer", "ranker/encoder", "ranker/index", "config.toml"} <= before.keys()
    assert after["ranker/encoder"] < 0.35 * before["ranker/encoder"]
    assert after["labels"] == before["labels"]


def test_the_manifest_says_what_it_was_made_from(run: Path, packed: Path) -> None:
    before, after = Predictor.open(run).bundle.manifest, Predictor.open(packed).bundle.manifest
    assert after["packed"] == {
        "dtype": "int8",
        "features": 0,
        "search": {"kind": "exact"},
        "from": before["manifest_sha256"],
    }
    assert (after["recipe"], after["data"], after["seed"]) == (before["recipe"], before["data"], before["seed"])
    assert (packed / "config.toml").read_bytes() == (run / "bundle" / "config.toml").read_bytes()


def test_packing_twice_gives_equal_bytes(run: Path, packed: Path, tmp_path: Path) -> None:
    longtail.pack(run, tmp_path / "again")
    for path in packed.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(packed)).read_bytes()


def test_opening_and_predicting_imports_no_torch_and_maps_memory(packed: Path) -> None:
    code = (
        f"import sys, numpy, longtail; model = longtail.Predictor.open({str(packed)!r}); rows = "
        "model.bundle.ranker.index.rows.values\n"
        "while rows.base is not None and not isinstance(rows, numpy.memmap): rows = rows.base\n"
        "assert isinstance(rows, numpy.memmap)\n"
        "print(model.predict(['owl'], k=1)[0][0].label); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "id-owl"


def test_only_the_most_useful_words_are_kept(run: Path, tmp_path: Path) -> None:
    whole = ranker_of(run)
    longtail.pack(run, tmp_path / "few", features=30)
    table = ranker_of(tmp_path / "few").encoder.table
    kept = table.places >= 0
    assert kept.sum() == len(table.values) == 30
    featurizer: Any = Predictor.open(run).bundle.featurizer
    assert featurizer.config.damping  # so that a small idf may be that of a rare word
    weight = np.linalg.norm(whole.encoder.table, axis=1) * featurizer.idf * featurizer.document_shares**0.25
    assert weight[kept].min() >= weight[~kept].max()
    assert not table[:][~kept].any()


@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
def test_bags_of_packed_words_are_those_of_what_the_table_holds(dtype: PackedType) -> None:
    rng = np.random.default_rng(0)
    keep = rng.random(40) < 0.6
    table = PackedRows.of(rng.standard_normal((40, 10)).astype(np.float32), dtype, keep)
    x = csr_array(np.where(rng.random((7, 40)) < 0.3, rng.random((7, 40)), 0).astype(np.float32))
    encoded = FrozenBag(table).encode(Batch(sparse=x))
    np.testing.assert_allclose(encoded, np.maximum(x.toarray() @ table[:], 0), atol=1e-5)


def test_words_of_four_bits_leave_labels_at_eight(run: Path, packed: Path, tmp_path: Path) -> None:
    longtail.pack(run, tmp_path / "small", "int4", index="exact")
    small, bytes_ = ranker_of(tmp_path / "small"), ranker_of(packed)
    assert small.encoder.table.values.dtype == np.uint8
    assert 2 * small.encoder.table.values.nbytes == bytes_.encoder.table.values.nbytes
    np.testing.assert_array_equal(small.index.rows.values, bytes_.index.rows.values)
    asked = ["owl", "a barn owl at night"]
    assert [row[0].label for row in Predictor.open(tmp_path / "small").predict(asked)] == [
        row[0].label for row in Predictor.open(run).predict(asked)
    ]


def test_vectors_of_zeros_are_dropped() -> None:
    table = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    table[[1, 4]] = 0
    assert Packer("int8").worth_keeping(table).tolist() == [True, False, True, True, False, True]
    assert Packer("int8", features=5).worth_keeping(table).sum() == 4, "a zero vector is never among those kept"


def test_accuracy_is_measured_before_and_after(run: Path, tmp_path: Path, planted: Dataset) -> None:
    report = longtail.pack(run, tmp_path / "out", "float16", data=planted)
    expected = [longtail.evaluate(folder, planted) for folder in (run, tmp_path / "out")]
    assert report.accuracy == {name: (expected[0][name], expected[1][name]) for name in ("P@1", "PSP@5")}
    assert "P@1" in report.render()


def test_refusals(run: Path, packed: Path, tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="packed already"):
        longtail.pack(packed, out)
    with pytest.raises(ConfigError, match=r"'nearest-documents' has no tables"):
        longtail.pack(tiny_run, out)
    with pytest.raises(ConfigError, match="-1"):
        longtail.pack(run, out, features=-1)
    untyped: Any = "float8"
    with pytest.raises(ConfigError, match="float8"):
        longtail.pack(run, out, untyped)
    assert not out.exists()
    with pytest.raises(ConfigError, match="exists already"):
        longtail.pack(run, packed)


@pytest.mark.parametrize("kind", ["sketch", "leaves", "hnsw"])
def test_labels_can_be_searched_in_other_ways(
    run: Path, packed: Path, planted: Dataset, tmp_path: Path, kind: SearchKind
) -> None:
    """Of twelve labels every way looks at all."""
    report = longtail.pack(run, tmp_path / "out", index=kind, data=planted)
    model, documents = Predictor.open(tmp_path / "out"), planted.need_test().documents
    assert model.bundle.manifest["packed"]["search"]["kind"] == kind
    assert {"exact", kind} == {one["kind"] for one in report.search["tried"]}
    assert "<- taken" in report.render()
    found, expected = model.rank(documents, 5), Predictor.open(packed).rank(documents, 5)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    assert np.mean(found.ids == expected.ids) > 0.95, "equal scores may change places"


def test_a_model_that_does_not_look_at_all_labels_has_no_choice(planted: Dataset, tmp_path: Path) -> None:
    small = {"surrogate": {"width": 16, "epochs": 1}, "classify": {"epochs": 1}}
    longtail.train(planted, tmp_path / "run", "astec", settings=small, device="cpu")
    with pytest.raises(ConfigError, match="does not compare documents with all labels"):
        longtail.pack(tmp_path / "run", tmp_path / "out", index="leaves")
    assert not (tmp_path / "out").exists()
    assert not longtail.pack(tmp_path / "run", tmp_path / "out").search


def test_a_model_of_given_vectors_is_measured_with_documents_or_stays_exact(planted: Dataset, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).random((len(planted.train) + len(planted.need_test()), 6), dtype=np.float32)
    train, test = planted.train, planted.need_test()
    given = replace(
        planted,
        train=replace(train, documents=replace(train.documents, vectors=vectors[: len(train)])),
        test=replace(test, documents=replace(test.documents, vectors=vectors[len(train) :])),
    )
    small = {"encoder": {"width": 64}, "train": {"epochs": 1}, "features": {"source": "vectors"}}
    longtail.train(with_digest(given), tmp_path / "run", "direct", settings=small, device="cpu")
    assert "give some with --data" in longtail.pack(tmp_path / "run", tmp_path / "exact").render()
    with pytest.raises(ConfigError, match="reads no text"):
        longtail.pack(tmp_path / "run", tmp_path / "out", index="sketch")
    assert (
        longtail.pack(tmp_path / "run", tmp_path / "out", index="sketch", data=given).search["taken"]["kind"]
        == "sketch"
    )


def test_a_longtail_that_knows_no_packed_rows_says_so(packed: Path) -> None:
    with pytest.raises(BundleError, match="packed-rows") as caught:
        load_part(packed / "ranker", lambda kind: None if kind == "packed-rows" else home_of(kind))
    assert "upgrade" in caught.value.hint


def test_the_command(run: Path, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, report = tmp_path / "out", tmp_path / "report.json"
    assert (
        main(["pack", str(run), str(out), "--dtype", "float16", "--data", str(planted_folder), "--json", str(report)])
        == 0
    )
    shown = capsys.readouterr().out
    assert "ranker/encoder" in shown
    assert "PSP@5" in shown
    assert json.loads(report.read_text())["dtype"] == "float16"
    assert main(["predict", str(out), "owl", "-k", "1"]) == 0
    assert "id-owl" in capsys.readouterr().out
    assert main(["pack", str(run), str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
