"""Keyword graphs on disk: written as they are made, so that a corpus need not fit into memory, and found again by
what they are made of.

    FOLDER/<key>/about.json       types and shapes of the arrays
    FOLDER/<key>/<name>.bin       one array each, memory-mapped when read

The key is a hash of texts, settings and encoder: another corpus or another setting gets a place of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.config import to_tables
from longtail.errors import DataError
from longtail.features.keygraph import Collected, KeyGraphs, split_pieces
from longtail.features.keygraph_tables import Blocks
from longtail.features.settings import KeyGraphConfig
from longtail.persistence import Part, read_json, write_json, written_aside
from longtail.types import F32

_ABOUT = "about.json"


def store_key(columns: Sequence[Sequence[str]], config: KeyGraphConfig, encoder: Part, common: Sequence[str]) -> str:
    """What determines the graphs of documents, in 20 characters."""
    digest = sha256()
    settings = {name: value for name, value in to_tables(config).items() if name != "cache"}
    state = encoder.state()
    digest.update(
        json.dumps([settings, encoder.KIND, dict(state.values), list(common), len(columns)], sort_keys=True).encode()
    )
    for array in state.arrays.values():
        digest.update(np.ascontiguousarray(array).data)
    for column in columns:
        for text in column:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:20]


def write_graphs(folder: Path, made: Iterable[tuple[Blocks, F32]], width: int) -> None:
    """Write graphs to `folder`, which appears when all are written. width: of the sentence vectors."""
    with written_aside(folder) as aside, ExitStack() as stack:
        aside.mkdir()
        empty = Collected(width).arrays
        files = {name: stack.enter_context((aside / f"{name}.bin").open("wb")) for name in empty}
        rows = dict.fromkeys(empty, 0)
        for pieces, vectors in made:
            for name, array in split_pieces(pieces, vectors).items():
                files[name].write(np.ascontiguousarray(array).data)
                rows[name] += len(array)
        about = {
            name: {"dtype": str(first[0].dtype), "shape": [rows[name], *first[0].shape[1:]]}
            for name, first in empty.items()
        }
        write_json(aside / _ABOUT, about)


def read_graphs(folder: Path) -> KeyGraphs:
    """Graphs that `write_graphs` wrote, memory-mapped and checked."""
    try:
        graphs = Collected.graphs(
            {
                name: _mapped(folder / f"{name}.bin", entry)
                for name, entry in read_json(folder / _ABOUT, DataError).items()
            }
        )
        graphs.check()
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as problem:
        raise DataError(
            f"the keyword graphs kept there cannot be read ({problem})",
            "remove the folder; they are made anew",
            file=folder,
        ) from problem
    return graphs


def _mapped(path: Path, entry: Any) -> NDArray[Any]:
    shape = tuple(int(n) for n in entry["shape"])
    if 0 in shape:
        return np.zeros(shape, dtype=entry["dtype"])
    if path.stat().st_size != int(np.prod(shape)) * np.dtype(entry["dtype"]).itemsize:
        raise ValueError(f"{path.name} is not of shape {shape}")
    return np.asarray(np.memmap(path, dtype=entry["dtype"], mode="r", shape=shape))
