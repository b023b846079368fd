"""Sentence encoders: unit vectors from documents, from a static table, from any function."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from longtail.data.dataset import Items
from longtail.errors import ConfigError, DataError, MissingExtra
from longtail.features.settings import SparseTextConfig
from longtail.features.sparse import SparseText
from longtail.kernels.arrays import right_singular_vectors
from longtail.persistence import load_part, save_part
from longtail.recipes.gnnxml import features as sentences
from longtail.recipes.gnnxml.features import (
    NamedSentences,
    SpectralSentences,
    StaticSentences,
    make_encoder,
    register_encoder,
)
from longtail.recipes.gnnxml.keygraph import KeyGraphConfig

TEXTS = ["cat sat mat", "cat sat rug", "dog ran road", "dog ran street", "cat dog", "unique"]


@pytest.fixture(scope="module")
def fitted() -> tuple[SparseText, Any]:
    text, rows, _ = SparseText.fit_batches(
        Items([str(n) for n in range(len(TEXTS))], {"title": TEXTS}), None, SparseTextConfig()
    )
    return text, rows.sparse


def lengths(vectors: Any) -> list[float]:
    return np.linalg.norm(vectors, axis=1).round(5).tolist()


def test_spectral_vectors_relate_words_that_share_documents(fitted: tuple[SparseText, Any]) -> None:
    text, rows = fitted
    encoder = SpectralSentences.fit(rows, text, 2)
    vectors = encoder.encode(["cat", "sat", "dog", "ran", "nothing known", "unique", ""], text)
    assert vectors.dtype == np.float32
    assert lengths(vectors) == [1, 1, 1, 1, 0, 0, 0]
    similar = vectors @ vectors.T
    assert similar[0, 1] > similar[0, 3] + 0.2
    assert similar[2, 3] > similar[2, 1] + 0.2
    assert encoder.encode([], text).shape == (0, 2)


def test_spectral_width_is_kept_where_documents_are_few(fitted: tuple[SparseText, Any]) -> None:
    text, rows = fitted
    assert SpectralSentences.fit(rows, text, 64).encode(["cat"], text).shape == (1, 64)
    assert lengths(SpectralSentences.fit(rows[:1], text, 8).encode(["cat"], text)) == [1], (
        "where no word repeats all words have vectors"
    )


def test_singular_vectors_are_those_of_numpy() -> None:
    from scipy.sparse import csr_array

    matrix = np.random.default_rng(0).standard_normal((30, 12)) @ np.diag(2.0 ** -np.arange(12))
    found = right_singular_vectors(csr_array(matrix.astype(np.float32)), 4, np.random.default_rng(1))
    _, _, expected = np.linalg.svd(matrix, full_matrices=False)
    np.testing.assert_allclose(np.abs(found.T @ expected[:4].T), np.eye(4), atol=1e-3)


# ---- a static table ----


@pytest.fixture
def static_folder(tmp_path: Path) -> Path:
    words = {"[UNK]": 0, "cat": 1, "dog": 2, "sat": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (tmp_path / "weights").mkdir()
    (tmp_path / "tokenizers").mkdir()
    tokenizer.save(str(tmp_path / "tokenizers" / "small.json"))
    save_file(
        {"embedding.weight": np.array([[0, 0], [1, 0], [0, 1], [1, 1]], np.float16)},
        tmp_path / "weights" / "small_2.safetensors",
    )
    return tmp_path


def test_static_vectors_are_means_of_tokens(
    static_folder: Path, fitted: tuple[SparseText, Any], tmp_path: Path
) -> None:
    text, rows = fitted
    encoder = make_encoder(KeyGraphConfig(encoder="wordllama", model=str(static_folder)), rows, text)
    found = encoder.encode(["cat", "cat dog", "cat sat", "stranger", "", "cat \ud800"], text)
    expected = [[1, 0], [0.70711, 0.70711], [2 / 5**0.5, 1 / 5**0.5], [0, 0], [0, 0], [1, 0]]
    np.testing.assert_allclose(found, np.array(expected, dtype=np.float64), atol=1e-4)
    save_part(encoder, tmp_path / "saved")
    np.testing.assert_array_equal(
        load_part(tmp_path / "saved").encode(["cat dog sat"], text), encoder.encode(["cat dog sat"], text)
    )


def test_a_folder_without_a_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        StaticSentences.wordllama(str(tmp_path))


def test_packages_that_are_missing_are_named(fitted: tuple[SparseText, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    text, rows = fitted
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="wordllama"):
        make_encoder(KeyGraphConfig(encoder="wordllama"), rows, text)
    with pytest.raises(MissingExtra, match="minilm"):
        make_encoder(KeyGraphConfig(encoder="minilm"), rows, text)


# ---- encoders that are code ----


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(sentences, "_REGISTERED", {})
    calls: list[int] = []

    def load(model: str) -> Any:
        def encode(texts: Any) -> Any:
            calls.append(len(texts))
            return [[len(text), 1.0, float(model or 0)] for text in texts]

        return encode

    register_encoder("lengths", load)
    return calls


def test_any_function_is_an_encoder(registered: list[int], fitted: tuple[SparseText, Any], tmp_path: Path) -> None:
    text, rows = fitted
    encoder = make_encoder(KeyGraphConfig(encoder="lengths", model="2"), rows, text)
    assert encoder.width == 3
    np.testing.assert_allclose(encoder.encode(["ab"], text), [[2 / 3, 1 / 3, 2 / 3]], atol=1e-6)
    assert encoder.encode([], text).shape == (0, 3)
    save_part(encoder, tmp_path / "saved")
    np.testing.assert_array_equal(load_part(tmp_path / "saved").encode(["ab"], text), encoder.encode(["ab"], text))


def test_an_unknown_encoder_is_refused_and_a_wrong_shape_too(
    registered: list[int], fitted: tuple[SparseText, Any]
) -> None:
    text, rows = fitted
    with pytest.raises(ConfigError, match="'lengts', which is not known here"):
        make_encoder(KeyGraphConfig(encoder="lengts"), rows, text)
    with pytest.raises(DataError, match=r"shape \(1, 3\) for 1 sentences"):
        NamedSentences("lengths", "", 5).encode(["a"], text)
    sentences.trust_folder("nan")
    with pytest.raises(DataError, match="not finite"):
        NamedSentences("lengths", "nan", 3).encode(["a"], text)


def test_a_bundle_cannot_name_a_model_that_is_read(
    registered: list[int], fitted: tuple[SparseText, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle comes from anywhere; what it names is read only where whoever runs the process named it, too."""
    text, _ = fitted
    for forged in (NamedSentences("minilm", str(tmp_path), 4), NamedSentences("lengths", "../7", 3)):
        save_part(forged, tmp_path / forged.name)
        monkeypatch.setattr(sentences, "_encoder", lambda name, model: pytest.fail(f"{model} would be read"))
        with pytest.raises(ConfigError, match="which nobody named here"):
            load_part(tmp_path / forged.name).encode(["a"], text)
    monkeypatch.setenv(sentences.TRUSTED, f"{tmp_path}/elsewhere:{tmp_path}")
    monkeypatch.setattr(sentences, "_encoder", lambda name, model: lambda texts: [[1.0, 0, 0, 0]] * len(texts))
    assert NamedSentences("minilm", str(tmp_path / "model"), 4).encode(["a"], text).shape == (1, 4)
