"""Strange texts and wishes have defined answers: nothing known gives no label, size and noise do no harm, and errors
say what to do.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import longtail
from longtail import Predictor
from longtail.bundle import BUNDLE_FORMAT, digest_of
from longtail.cli import main
from longtail.data.dataset import Dataset, Items
from longtail.errors import BundleError, ConfigError

LABELS = 12


@pytest.fixture(scope="module", params=["tiny", "direct", "packed"])
def model(
    request: pytest.FixtureRequest,
    tiny_run: Path,
    planted: Dataset,
    tmp_path_factory: pytest.TempPathFactory,
    one_thread: None,
) -> Predictor:
    if request.param == "tiny":
        return Predictor.open(tiny_run)
    run, out = (tmp_path_factory.mktemp("runs") / name for name in ("direct", "packed"))
    longtail.train(planted, run, "direct", settings={"encoder": {"width": 64}, "train": {"epochs": 12}}, device="cpu")
    if request.param == "packed":
        longtail.pack(run, out)
    return Predictor.open(out if request.param == "packed" else run)


@pytest.mark.parametrize(
    "text", ["", " ", "\n\t ", "qqqq zzzz", "\x00", "\x1b\x07\x00\x7f", "...!?", "\ud800", "\u200b", "漢字", "q" * 1000]
)
def test_a_text_of_which_nothing_is_known_gets_no_label(model: Predictor, text: str) -> None:
    """Also between others, whose answers do not change."""
    assert model.predict(text) == [[]]
    alone = model.predict("owl")[0]
    before, none, after = model.predict(["owl", text, "owl"])
    assert none == []
    assert [p.label for p in before] == [p.label for p in after] == [p.label for p in alone]


@pytest.mark.parametrize(
    "text",
    ["\x00owl\x00", "\x1b[31m owl \x1b[0m", "owl\x07", "OWL", "\ufeffowl", "owl \ud800", "o\u00adwl", "\r\nowl\x7f"],
)
def test_control_characters_separate_words_and_say_nothing(model: Predictor, text: str) -> None:
    assert model.predict(text, 1)[0][0].label == "id-owl"


def test_a_text_of_ten_megabytes_is_read_whole(model: Predictor) -> None:
    long = "qqqq " * 2_000_000 + "owl"
    assert len(long) > 10_000_000
    found = model.predict(["cat", long], 1)
    assert [p[0].label for p in found] == ["id-cat", "id-owl"]


@pytest.mark.parametrize("k", [LABELS, LABELS + 1, 10**6])
def test_more_labels_than_there_are(model: Predictor, planted: Dataset, k: int) -> None:
    documents = planted.need_test().documents
    top = model.rank(documents, k)
    assert top.ids.shape == (len(documents), LABELS)
    (found,) = model.predict("owl", k)
    assert len({p.label for p in found}) == len(found) <= LABELS
    assert found[0].label == "id-owl"
    assert all(np.isfinite(p.score) for p in found)


def test_vectors_are_no_text(model: Predictor) -> None:
    with pytest.raises(ConfigError, match=r"are vectors, and the model reads texts \(title\)"):
        model.rank(Items(["0"], vectors=np.ones((1, 4), np.float32)), 1)


def test_no_document(model: Predictor, planted: Dataset) -> None:
    assert model.rank(planted.need_test().documents.rows(np.zeros(0, np.int64)), 3).ids.shape == (0, 3)


def test_a_bundle_of_a_newer_format_asks_for_an_upgrade(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_run / "bundle", bundle)
    head = json.loads((bundle / "manifest.json").read_text())
    head.pop("manifest_sha256")
    head["format"] = BUNDLE_FORMAT + 1
    (bundle / "manifest.json").write_text(json.dumps({**head, "manifest_sha256": digest_of(head)}))
    with pytest.raises(BundleError, match="of a newer longtail") as caught:
        Predictor.open(bundle)
    assert caught.value.hint == "upgrade longtail"
    assert main(["predict", str(bundle), "owl"]) == 2
    assert "hint: upgrade longtail" in capsys.readouterr().err


def test_a_part_of_a_newer_format_asks_for_an_upgrade(tiny_run: Path, tmp_path: Path) -> None:
    from longtail.persistence import load_part

    shutil.copytree(tiny_run / "bundle" / "ranker", tmp_path / "ranker")
    head = json.loads((tmp_path / "ranker" / "part.json").read_text())
    (tmp_path / "ranker" / "part.json").write_text(json.dumps({**head, "format": 3}))
    with pytest.raises(BundleError, match="format 2") as caught:
        load_part(tmp_path / "ranker")
    assert "upgrade" in caught.value.hint
