"""Texts as a pretrained tokenizer numbers them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.checkpoints import SPECIAL, write_checkpoint

from longtail.data.dataset import Items
from longtail.errors import BundleError, ConfigError, DataError, MissingExtra
from longtail.features import pieces as checkpoints
from longtail.features.base import make_featurizer
from longtail.features.pieces import TokenizerPieces, checkpoint_folder, read_tokenizer
from longtail.features.settings import CheckpointFeaturesConfig
from longtail.features.vocabulary import train_pieces
from longtail.persistence import load_part, save_part

WORDS = ("cat", "dog", "##s", "bird")
NUMBER = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "c", WORDS)


def pieces(folder: Path, length: int = 6) -> TokenizerPieces:
    return TokenizerPieces(CheckpointFeaturesConfig(checkpoint=str(folder), length=length), read_tokenizer(folder))


def numbers(*words: str, length: int = 6) -> list[int]:
    return [NUMBER[word] for word in words] + [-1] * (length - len(words))


def test_texts_become_the_numbers_of_the_vocabulary(folder: Path) -> None:
    found = pieces(folder).batch_of_texts(["Cats", "", "dog unknown", " \t", "cat cat cat cat cat cat", "\ud800"])
    assert found.sparse is None
    assert found.tokens is not None
    assert found.tokens.tolist() == [
        numbers("[CLS]", "cat", "##s", "[SEP]"),
        numbers(),
        numbers("[CLS]", "dog", "[UNK]", "[SEP]"),
        numbers(),
        numbers("[CLS]", "cat", "cat", "cat", "cat", "[SEP]"),
        numbers("[CLS]", "[UNK]", "[SEP]"),
    ]
    assert found.is_empty().tolist() == [False, True, False, True, False, False]
    assert pieces(folder).width == len(NUMBER)


def test_fields_of_documents_and_labels(folder: Path) -> None:
    config = CheckpointFeaturesConfig(checkpoint=str(folder), length=6, fields=("title", "content"))
    documents = Items(["a"], {"title": ["cat"], "content": ["dogs"]})
    part, batch, of_labels = make_featurizer(documents, Items(["l"], {"title": ["bird"]}), config)
    assert isinstance(part, TokenizerPieces)
    assert batch.tokens is not None
    assert batch.tokens.tolist() == [numbers("[CLS]", "cat", "dog", "##s", "[SEP]")]
    assert of_labels is not None
    assert of_labels.tokens is not None
    assert of_labels.tokens.tolist() == [numbers("[CLS]", "bird", "[SEP]")]
    assert part.label_batch(Items(["l"])) is None
    with pytest.raises(ConfigError, match="no field 'content'"):
        part.batch(Items(["a"], {"title": ["cat"]}))


def test_it_is_saved_without_the_folder_it_came_from(folder: Path, tmp_path: Path) -> None:
    part = pieces(folder)
    save_part(part, tmp_path / "part")
    loaded = load_part(tmp_path / "part")
    assert str(folder) not in (tmp_path / "part" / "part.json").read_text()
    assert loaded.config.length == 6
    np.testing.assert_array_equal(loaded.batch_of_texts(["cats dog"]).tokens, part.batch_of_texts(["cats dog"]).tokens)
    with pytest.raises(BundleError, match="tokenizer of the model"):
        TokenizerPieces(part.config, "{}").batch_of_texts(["cat"])


def test_a_whole_tokenizer_file_comes_first(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(read_tokenizer(folder))
    assert read_tokenizer(tmp_path) == read_tokenizer(folder)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer"):
        read_tokenizer(tmp_path)


def test_what_is_missing_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"nowhere: no config\.json"):
        checkpoint_folder("nowhere", "a test")
    with pytest.raises(DataError, match="neither tokenizer"):
        read_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("cat\n[UNK]\n")
    with pytest.raises(DataError, match=r"no \[CLS\], \[SEP\]"):
        read_tokenizer(tmp_path)
    monkeypatch.setitem(checkpoints.PACKAGED, "minilm", "no_such_package")
    with pytest.raises(MissingExtra, match="no-such-package"):
        checkpoint_folder("minilm", "a test")


def test_without_the_library_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = pieces(folder)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"longtail\[text\]"):
        read_tokenizer(folder)
    with pytest.raises(MissingExtra, match=r"longtail\[text\]"):
        part.batch_of_texts(["cat"])
    with pytest.raises(MissingExtra, match=r"features\.subwords=wordpiece"):
        train_pieces(["cat"], np.ones(1, dtype=np.int64), 9)


def test_case_is_kept_where_the_settings_say_so(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", WORDS)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    found = pieces(folder).batch_of_texts(["Cat"]).tokens
    assert found is not None
    assert found.tolist() == [numbers("[CLS]", "[UNK]", "[SEP]")]
