"""A bundle opens without torch, says what is wrong with it, and predicts what the training predicted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail import Predictor
from longtail.bundle import digest_of, open_bundle, sha256
from longtail.data.dataset import Dataset
from longtail.errors import BundleError, ConfigError
from longtail.persistence import StringTable, load_part, save_part, write_arrays

MANIFEST = "manifest.json"


def test_predictions_carry_the_users_own_label_ids(tiny_run: Path) -> None:
    (found,) = Predictor.open(tiny_run).predict("owl", k=2)
    assert (found[0].label, found[0].name) == ("id-owl", "the owl")
    assert found[0].score > found[1].score > 0


def test_a_run_and_its_bundle_are_the_same_model(tiny_run: Path) -> None:
    assert Predictor.open(tiny_run).predict(["owl cat"]) == Predictor.open(tiny_run / "bundle").predict(["owl cat"])
    assert Predictor.open(tiny_run, verify=False).predict(["owl"]) == Predictor.open(tiny_run).predict(["owl"])


def test_a_bundle_shares_the_files_of_its_last_stage(tiny_run: Path) -> None:
    shared = [path for path in (tiny_run / "bundle" / "ranker").rglob("*") if path.is_file()]
    assert shared
    assert all(
        path.samefile(tiny_run / "stages" / "4_classify" / path.relative_to(tiny_run / "bundle" / "ranker"))
        for path in shared
    )


def test_training_twice_gives_equal_bytes(planted_folder: Path, tiny_run: Path, tmp_path: Path) -> None:
    import longtail

    longtail.train(planted_folder, tmp_path / "again", "tiny")
    for path in (tiny_run / "bundle").rglob("*"):
        if path.is_file():
            assert (
                path.read_bytes()
                == (tmp_path / "again" / "bundle" / path.relative_to(tiny_run / "bundle")).read_bytes()
            )


def test_predicting_imports_no_torch(tiny_run: Path) -> None:
    code = (
        f"import sys, longtail; print(longtail.Predictor.open({str(tiny_run)!r}).predict(['owl'], "
        "k=1)[0][0].label); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "id-owl"


def test_blocks_do_not_change_predictions(tiny_run: Path, planted: Dataset) -> None:
    model, documents = Predictor.open(tiny_run), planted.need_test().documents
    whole = model.rank(documents, 5)
    seen: list[int] = []
    pieces = model.rank(documents, 5, block=7, on_block=seen.append)
    np.testing.assert_array_equal(whole.ids, pieces.ids)
    np.testing.assert_array_equal(whole.scores, pieces.scores)
    assert sum(seen) == len(documents)


def test_wrong_calls(tiny_run: Path) -> None:
    model = Predictor.open(tiny_run)
    assert model.predict([]) == []
    assert model.predict(["zzzz"]) == [[]]
    with pytest.raises(ConfigError, match="k is 0"):
        model.predict(["owl"], k=0)
    untyped: Any = ["owl", 3]
    with pytest.raises(ConfigError, match="text 1 is 3"):
        model.predict(untyped)


def edit_manifest(change: Callable[[dict[str, object]], object], *, resign: bool = True) -> Callable[[Path], None]:
    def edit(bundle: Path) -> None:
        head = json.loads((bundle / MANIFEST).read_text())
        head.pop("manifest_sha256")
        change(head)
        (bundle / MANIFEST).write_text(json.dumps({**head, "manifest_sha256": digest_of(head) if resign else "0"}))

    return edit


def flip_a_byte(bundle: Path) -> None:
    path = bundle / "ranker" / "arrays.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def truncate(bundle: Path) -> None:
    path = bundle / "ranker" / "arrays.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def link(bundle: Path) -> None:
    (bundle / "config.toml").rename(bundle.parent / "elsewhere.toml")
    (bundle / "config.toml").symlink_to(bundle.parent / "elsewhere.toml")


def sealed(spoil: Callable[[Path], object]) -> Callable[[Path], None]:
    """Spoils a bundle and writes a manifest with the checksums of what is there then."""

    def spoil_and_seal(bundle: Path) -> None:
        spoil(bundle)
        files = {
            path.relative_to(bundle).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256(path)}
            for path in bundle.rglob("*")
            if path.is_file() and path.name != MANIFEST
        }
        edit_manifest(lambda head: head.update(files=files))(bundle)

    return spoil_and_seal


def in_part(part: str, **changes: Any) -> Callable[[Path], None]:
    """What part.json of a part says, changed."""

    def change(bundle: Path) -> None:
        path = bundle / part / "part.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return sealed(change)


def as_pipe(name: str) -> Callable[[Path], None]:
    def replace(bundle: Path) -> None:
        (bundle / name).unlink()
        os.mkfifo(bundle / name)

    return sealed(replace)


def surrogate(bundle: Path) -> None:
    path = bundle / MANIFEST
    path.write_text(path.read_text().replace('"tiny"', '"\\ud800"'))


def half_a_name(bundle: Path) -> None:
    names = StringTable.of([f"{name}\ud800" for name in load_part(bundle / "labels").names])
    shutil.rmtree(bundle / "labels" / "names")
    save_part(names, bundle / "labels" / "names")


WRONG_COLUMNS: Sequence[Mapping[str, Any]] = (
    *({"text": 5}, {"text": "a"}, {"text": [5]}),
    *({"weights": []}, {"weights": [10**400]}, {"id": 5}),
)


def with_columns(wrong: Mapping[str, Any], head: dict[str, Any]) -> None:
    right = {"text": ["a"], "weights": [1], "labels": "b", "id": None, "separator": ","}
    head["columns"] = {**right, **wrong}


def counts_of(count: int) -> Callable[[Path], None]:
    """A bundle whose labels all had so many documents."""

    def change(bundle: Path) -> None:
        file = bundle / "labels" / "arrays.safetensors"
        write_arrays(file, {"counts": np.full(len(load_part(bundle / "labels")), count, np.int64)})

    return sealed(change)


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing file": (lambda b: (b / "ranker" / "part.json").unlink(), "part.json: the file is missing"),
    "missing folder": (lambda b: shutil.rmtree(b / "featurizer"), "the file is missing"),
    "missing manifest": (lambda b: (b / MANIFEST).unlink(), "no manifest.json"),
    "truncated": (truncate, "the manifest says"),
    "altered": (flip_a_byte, "does not match its SHA-256"),
    "foreign file": (lambda b: (b / "evil.py").write_text("boom"), "evil.py: a file that the manifest does not know"),
    "a link": (link, "a link inside a bundle"),
    "manifest cut": (lambda b: (b / MANIFEST).write_text("{"), "not valid JSON"),
    "manifest foreign": (lambda b: (b / MANIFEST).write_text("[1]"), "not a manifest"),
    "manifest altered": (edit_manifest(lambda m: m.update(recipe="other"), resign=False), "its own checksum"),
    "another format": (edit_manifest(lambda m: m.update(format=99)), "bundle format 99"),
    "file outside": (
        edit_manifest(lambda m: m.update(files={"../x": {"bytes": 1, "sha256": ""}})),
        "outside the bundle",
    ),
    "counts do not fit": (edit_manifest(lambda m: m.update(n_labels=3)), "fit together"),
    "no count": (edit_manifest(lambda m: m.pop("n_labels")), "'n_labels' is 'None'"),
    "no labels": (edit_manifest(lambda m: m.update(n_labels=0)), "'n_labels' is '0'"),
    "a count that is a text": (edit_manifest(lambda m: m.update(n_labels="12")), "'n_labels'"),
    "calibration a list": (edit_manifest(lambda m: m.update(calibration=[1])), "'calibration'"),
    "calibration a text": (edit_manifest(lambda m: m.update(calibration="x")), "'calibration'"),
    "columns a list": (edit_manifest(lambda m: m.update(columns=[1])), "'columns'"),
    **{f"columns {wrong}": (edit_manifest(partial(with_columns, wrong)), "'columns'") for wrong in WRONG_COLUMNS},
    "a digest that is none": (edit_manifest(lambda m: m.update(data={"digest": 7})), "'data.digest' is '7'"),
    "a threshold that is none": (edit_manifest(lambda m: m.update(metrics={"threshold": "x"})), "'metrics.threshold'"),
    "half a character": (surrogate, "what no text is made of"),
    "fewer than no documents": (counts_of(-1), "labels of -1 to -1 documents"),
    "more documents than there are": (counts_of(1 << 62), "documents"),
    "half a character in a name": (sealed(half_a_name), "half a character"),
    "a pipe": (lambda b: os.mkfifo(b / "pipe"), "a pipe or a device inside a bundle"),
    **{f"a pipe as {name}": (as_pipe(name), "a pipe or a device") for name in ("ranker/part.json", "config.toml")},
    "a part twice": (in_part("ranker", parts=["encoder", "encoder"]), "a nested part is named 'encoder'"),
    "a part in itself": (in_part("ranker", parts=[""]), "a nested part is named ''"),
    "parts a text": (in_part("ranker", parts="encoder"), "a nested part is named 'e'"),
    "a number that is none": (in_part("ranker", values={"x": float("nan")}), "NaN is no number of JSON"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_bundle_is_refused(tiny_run: Path, tmp_path: Path, how: str) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_run / "bundle", bundle)
    spoil, says = SPOILT[how]
    spoil(bundle)
    with pytest.raises(BundleError) as caught:
        open_bundle(bundle)
    assert says in caught.value.message
    assert caught.value.hint


def test_an_unfinished_run_says_how_to_finish_it(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(BundleError, match="not finished"):
        open_bundle(tmp_path)
    with pytest.raises(BundleError, match="no such run"):
        open_bundle(tmp_path / "absent")


def test_a_folder_that_may_not_be_looked_through_is_refused(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies in it could be opened by its name, though nobody has checked it."""
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_run / "bundle", bundle)
    manifest = json.loads((bundle / MANIFEST).read_text())
    files = {name: entry for name, entry in manifest["files"].items() if not name.startswith("ranker/")}
    edit_manifest(lambda head: head.update(files=files))(bundle)
    look = os.scandir

    def refuse(folder: Any) -> Any:
        if Path(folder).name == "ranker":
            raise PermissionError(13, "Permission denied")
        return look(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(BundleError, match="ranker: cannot be looked through"):
        open_bundle(bundle)
    monkeypatch.setattr("longtail.bundle.check_files", lambda *_, verify: None)
    with pytest.raises(BundleError, match=r"ranker/part\.json: not a plain file that the manifest lists"):
        open_bundle(bundle)


def test_settings_that_are_none_are_an_error(tiny_run: Path, tmp_path: Path) -> None:
    bundle = replace(open_bundle(tiny_run), folder=tmp_path)
    for text in (b"a = \xff", b"a = ", b"a = " + b"[" * 5000 + b"]" * 5000, b"a = 1" + b"0" * 5000):
        (tmp_path / "config.toml").write_bytes(text)
        with pytest.raises(BundleError, match=r"config\.toml: is no"):
            bundle.settings()


def test_ids_of_documents_that_are_none_are_refused(tiny_run: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_run / "bundle", bundle)
    sealed(lambda folder: shutil.copytree(folder / "company", folder / "holdout"))(bundle)
    with pytest.raises(BundleError, match="holdout: no ids of documents"):
        open_bundle(bundle).held_out()


def test_parts_that_are_asked_for_later_are_those_of_the_manifest(tiny_run: Path) -> None:
    opened = open_bundle(tiny_run)
    assert opened.company() is not None
    files = {name: entry for name, entry in opened.manifest["files"].items() if name != "company/arrays.safetensors"}
    with pytest.raises(BundleError, match=r"company/arrays\.safetensors: not a plain file that the manifest lists"):
        replace(opened, manifest={**opened.manifest, "files": files}).company()
