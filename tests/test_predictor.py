"""What a model can do for a Python program: train without a folder, be saved, travel as bytes; with real types."""

from __future__ import annotations

import ast
import gc
import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_type, get_overloads, get_type_hints

import pytest

import longtail
from longtail.data.dataset import Dataset, Items
from longtail.errors import BundleError, ConfigError
from longtail.predictor import Prediction, Predictor, TemporaryFolder, _remove
from longtail.report import Metrics

TEXTS = ["the cat", "a dog and a hen"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_without_a_folder_the_model_lies_where_it_goes_with_it(
    planted: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = longtail.train(planted, recipe="tiny")
    (folder,) = tmp_path.iterdir()
    assert folder in model.bundle.folder.parents
    answers = model.predict(TEXTS)
    model.save(tmp_path / "kept")
    saved = contents(model.bundle.folder)
    del model
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert contents(tmp_path / "kept") == saved
    assert Predictor.open(tmp_path / "kept").predict(TEXTS) == answers


def test_a_folder_that_was_given_stays(planted: Dataset, tmp_path: Path) -> None:
    longtail.train(planted, tmp_path / "run", "tiny")
    gc.collect()
    assert (tmp_path / "run" / "bundle" / "manifest.json").exists()


def test_a_process_that_was_forked_off_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home = TemporaryFolder()
    _remove(home.path, os.getpid() + 1)
    assert home.path.exists()


def test_saving_takes_nothing_away(tiny_run: Path, tmp_path: Path) -> None:
    model = Predictor.open(tiny_run)
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        model.save(tmp_path / "mine")
    model.save(tmp_path / "new" / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "new"]
    assert contents(tmp_path / "new" / "folder") == contents(tiny_run / "bundle")


def test_a_model_travels_as_bytes(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = Predictor.open(tiny_run)
    files = model.files()
    assert files == contents(tiny_run / "bundle")
    assert Predictor.from_files(files).predict(TEXTS) == model.predict(TEXTS)
    with pytest.raises(ConfigError, match="outside the bundle"):
        Predictor.from_files({**files, "../evil": b"x"})
    with pytest.raises(BundleError, match="does not match its SHA-256"):
        Predictor.from_files({**files, "config.toml": files["config.toml"][::-1]})
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_what_was_measured_is_saved_as_well(planted: Dataset, tmp_path: Path) -> None:
    frame = {"title": planted.train.documents.fields["title"], "tags": [["a"], ["b"], ["c"]] * 40}
    model = longtail.train(frame, recipe="tiny", holdout=0.2)
    assert model.metrics["scores"].keys() >= {"P@1", "PSP@5"}
    assert "P@1" in str(model.metrics)
    assert "<th>P@1</th>" in model._repr_html_()
    model.save(tmp_path / "kept")
    again = Predictor.open(tmp_path / "kept")
    assert again.metrics == model.metrics
    assert list(again.bundle.held_out() or ()) == list(model.bundle.held_out() or ()) != []


def test_items_can_be_asked_as_they_are(tiny_run: Path) -> None:
    model = Predictor.open(tiny_run)
    assert model.predict(Items(["a", "b"], {"title": TEXTS})) == model.predict(TEXTS)


def test_columns_are_for_tables(planted: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'labels' is for tables, and the data is a Dataset"):
        longtail.train(planted, tmp_path / "run", "tiny", labels="tags")


def test_columns_of_a_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,b,c\nbees hum,x;y,1\nroses smell,z,2\n")
    model = longtail.train(tmp_path / "d.csv", recipe="tiny", text="a", labels="b")
    assert list(model.labels) == ["x", "y", "z"]


def test_public_functions_have_real_types() -> None:
    """mypy sees the types of `longtail.train` and its like: nothing that comes back is Any."""
    returned = {
        longtail.train: Predictor,
        longtail.read: Dataset,
        longtail.Predictor.open: Predictor,
        longtail.Predictor.from_files: Predictor,
    }
    for function, expected in returned.items():
        assert get_type_hints(function)["return"] is expected
    for name, kind in {"recipe": str, "metrics": Metrics}.items():
        assert get_type_hints(inspect.getattr_static(Predictor, name).fget)["return"] is kind
    lists, _ = get_overloads(Predictor.predict)
    assert get_type_hints(lists)["return"] == list[list[Prediction]]
    for name, annotation in get_type_hints(longtail.train).items():
        assert annotation is not Any, name


def _as_a_program_sees_them() -> None:
    """Read by mypy (`make lint`), never called. Were a name Any, `assert_type` would be wrong, and the calls that are
    wrong would be right, so that what ignores them would be of no use: mypy says both.
    """
    model = longtail.train("shop.csv", text={"title": 2.0}, labels="tags", holdout=0.1)
    assert_type(model, Predictor)
    assert_type(longtail.read("shop.csv", text=["title"], test_file="test.csv"), Dataset)
    assert_type(longtail.Predictor.open("run"), Predictor)
    assert_type(longtail.evaluate(model, "shop.csv"), Metrics)
    assert_type(model.predict(["a text"], k=3), list[list[Prediction]])
    assert_type(model.predict(["a text"])[0][0].score, float)
    assert_type(model.labels, Sequence[str])
    assert_type(model.recipe, str)
    assert_type(model.metrics, Metrics)
    longtail.train("shop.csv", holdout="much")  # type: ignore[arg-type]
    longtail.read("shop.csv", texts="title")  # type: ignore[call-arg]
    longtail.Predictor.open(7)  # type: ignore[arg-type]


def test_what_mypy_reads_is_all_that_is_public() -> None:
    """Names are loaded when they are first used; mypy reads them where they are imported for it alone."""
    tree = ast.parse(inspect.getsource(longtail))
    seen = {
        (alias.name, node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name  # which mypy takes for public
    }
    assert seen == set(longtail._HOME.items())
