"""Pretrained vectors of pieces of words: which pieces there are, how texts are cut, and models that read them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import longtail
from longtail.config import from_text
from longtail.data.dataset import Dataset, Items
from longtail.errors import ConfigError, DataError, MissingExtra
from longtail.features.settings import FeaturesConfig
from longtail.features.sparse import SparseText
from longtail.predictor import Predictor
from longtail.recipes.direct.recipe import Direct
from longtail.recipes.direct.settings import DirectConfig
from longtail.recipes.direct.view import StaticVectors, pieces_of

TOKENS = [
    "<unk>",
    "<0x0A>",
    "\u2581Cat",
    "\u2581cat",
    "s",
    "\u2581Dog",
    "##",
    "\u2581lion",
    "ess",
    "\u2581",
    "!",
    "ish",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the layout of WordLlama: cat and lion are near each other, dog is not."""
    root = tmp_path_factory.mktemp("static")
    (root / "weights").mkdir()
    (root / "tokenizers").mkdir()
    rng = np.random.default_rng(0)
    table = rng.standard_normal((len(TOKENS), 8)).astype(np.float16)
    table[TOKENS.index("\u2581lion")] = table[TOKENS.index("\u2581cat")]
    save_file({"embedding.weight": table}, root / "weights" / "small.safetensors")
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    (root / "tokenizers" / "small.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    return root


def test_pieces_are_words_and_their_endings() -> None:
    """Lower case; a token that was lower case already goes first; what builds no word is left out."""
    numbers = {token: number for number, token in enumerate(TOKENS)}
    assert pieces_of(numbers) == {"cat": 3, "##s": 4, "dog": 5, "lion": 7, "##ess": 8, "##ish": 11}


def fitted(folder: Path, texts: list[str]) -> tuple[SparseText, StaticVectors]:
    vectors = StaticVectors.read(str(folder))
    items = Items([str(n) for n in range(len(texts))], {"title": texts})
    return SparseText.fit_batches(items, None, FeaturesConfig().sparse_text(), vectors.pieces)[0], vectors


def test_every_piece_is_a_feature_behind_the_others(folder: Path) -> None:
    words, vectors = fitted(folder, ["cats and dogs", "a cat"])
    assert [words.token(feature) for feature in words.view_range] == list(vectors.pieces)
    assert words.view_range.stop == words.width
    assert all(words.kind(feature) != "piece" for feature in range(words.view_range.start))


def test_words_that_training_never_saw_are_cut_into_pieces(folder: Path) -> None:
    words, _ = fitted(folder, ["cats and dogs", "a cat"])
    row = words.transform_texts(["lioness lions catish xyz"])
    first = words.view_range.start
    assert {words.token(column) for column in row.indices if column >= first} == {
        "lion",
        "##ess",
        "##s",
        "cat",
        "##ish",
    }
    assert not [column for column in row.indices if column < first], "none of these words was in training"


def test_the_view_has_a_length_of_its_own(folder: Path) -> None:
    words, _ = fitted(folder, ["cats and dogs", "a cat", "lions"])
    with_view = words.transform_texts(["cats and dogs and a lion"]).toarray()[0]
    first = words.view_range.start
    assert np.linalg.norm(with_view[:first]) == pytest.approx(1, rel=1e-5)
    assert np.linalg.norm(with_view[first:]) == pytest.approx(1, rel=1e-5)
    without = SparseText.fit(
        Items(["0", "1", "2"], {"title": ["cats and dogs", "a cat", "lions"]}), None, FeaturesConfig().sparse_text()
    )
    np.testing.assert_allclose(with_view[:first], without.transform_texts(["cats and dogs and a lion"]).toarray()[0])


def test_a_model_knows_words_by_their_given_vectors(folder: Path, tmp_path: Path) -> None:
    """`lion` occurs in no document, and has the vector of `cat`."""
    rng = np.random.default_rng(1)
    animals = ["cat", "dog"] * 40
    texts = [f"{animal} w{rng.integers(30)} w{rng.integers(30)}" for animal in animals]
    data = Dataset.from_texts(texts, [[animal.upper()] for animal in animals])
    settings = (
        "features.view=static",
        f"features.view_model={folder}",
        "features.subwords=none",
        "encoder.width=16",
        "train.epochs=20",
        "memory.weight=0",
    )
    model = longtail.train(data, tmp_path / "run", Direct(from_text(DirectConfig(), settings)), device="cpu")
    assert model.predict(["lion"], k=1)[0][0].label == "CAT"
    assert Predictor.open(tmp_path / "run").predict(["lion"], k=1)[0][0].label == "CAT"
    without = longtail.train(data, tmp_path / "without", Direct(from_text(DirectConfig(), settings[2:])), device="cpu")
    assert without.predict(["lion"], k=1) == [[]]


def test_a_view_beside_pieces_of_its_own_kind_is_refused(folder: Path, tmp_path: Path) -> None:
    settings = ("features.view=static", f"features.view_model={folder}", "features.subwords=wordpiece")
    with pytest.raises(ConfigError, match="pieces of words of its own"):
        longtail.train(
            Dataset.from_texts(["a cat"], [["CAT"]]), tmp_path / "run", Direct(from_text(DirectConfig(), settings))
        )


def test_what_is_missing_is_said(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"no weights/\*\.safetensors"):
        StaticVectors.read(str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="wordllama"):
        StaticVectors.read()


def test_a_tokenizer_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "mixed"
    (root / "weights").mkdir(parents=True)
    (root / "tokenizers").mkdir()
    save_file({"x": np.zeros((3, 8), np.float16)}, root / "weights" / "x.safetensors")
    (root / "tokenizers" / "x.json").write_text((folder / "tokenizers" / "small.json").read_text())
    with pytest.raises(DataError, match="12 tokens for 3 vectors"):
        StaticVectors.read(str(root))
    (root / "tokenizers" / "x.json").write_text("{}")
    with pytest.raises(DataError, match="no vocabulary"):
        StaticVectors.read(str(root))
