"""Pretrained vectors of tokens, one each, in the layout of the package `wordllama`. Nothing is ever downloaded."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from longtail.errors import DataError, MissingExtra
from longtail.persistence import map_arrays


def static_folder(name: str) -> Path:
    """The folder `name`, or that of the package; nothing is downloaded."""
    if name:
        return Path(name)
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("wordllama", "wordllama", "pretrained vectors of words")
    return Path(next(iter(found.submodule_search_locations)))


def static_files(root: Path) -> tuple[NDArray[Any], Path]:
    """The table of vectors, and the file of the tokenizer that numbers its rows."""
    weights = sorted((root / "weights").glob("*.safetensors"))
    tokenizers = sorted((root / "tokenizers").glob("*.json"))
    if not weights or not tokenizers:
        raise DataError(
            "no weights/*.safetensors and tokenizers/*.json in the folder",
            "give the folder of WordLlama's package",
            file=root,
        )
    tables = list(map_arrays(weights[0]).values())
    if len(tables) != 1 or tables[0].ndim != 2:
        raise DataError(
            f"expected one table of vectors, found {len(tables)} arrays",
            "give the weights of a WordLlama model",
            file=weights[0],
        )
    return tables[0], tokenizers[0]
