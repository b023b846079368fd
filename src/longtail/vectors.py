"""`longtail vectors`: label rows and document vectors as files, for vector stores and other programs.

The inner product of a document's vector with a label's is what the model ranks by (its score is the sigmoid of it), so
a store that searches by inner product gives the answers of the model. A ``.npy`` file holds the vectors alone; ids
stand in the same order in a file beside it (``OUT.ids.txt``, one a line). A ``.parquet`` file holds ids, names and
vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.dataset import Items
from longtail.errors import ConfigError, MissingExtra
from longtail.persistence import written_aside
from longtail.predictor import Predictor
from longtail.types import F32

BLOCK = 8192
SUFFIXES = (".npy", ".parquet")


def export_vectors(model: Predictor, out: Path, documents: Items | None = None) -> tuple[int, int]:
    """Write the vectors of `documents`, or of all labels; gives their number and their width.

    A row takes part as it is: an empty document has the vector that the model gives it.
    """
    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"{out}: unknown kind of file", f"name it OUT{' or OUT'.join(SUFFIXES)}")
    if suffix == ".parquet":
        _pyarrow()
    labels = model.bundle.labels
    uids = list(labels.uids if documents is None else documents.uids)
    shown = list(labels.names) if documents is None else [documents.name(row) for row in range(len(documents))]
    blocks = _label_blocks(model) if documents is None else _document_blocks(model, documents)
    first = next(blocks, np.zeros((0, 0), dtype=np.float32))
    if suffix == ".npy":
        _write_npy(out, uids, first, blocks)
    else:
        _write_parquet(out, uids, shown, first, blocks)
    return len(uids), int(first.shape[1])


def _label_blocks(model: Predictor) -> Iterator[F32]:
    for start in range(0, len(model.bundle.labels), BLOCK):
        rows = model.bundle.ranker.label_vectors(slice(start, start + BLOCK))
        if rows is None:
            raise ConfigError(
                f"a model of the recipe '{model.recipe}' does not rank by one product of vectors",
                "train direct, ance or dexml (or ramen over one of them), whose labels have a vector each",
            )
        yield rows


def _document_blocks(model: Predictor, documents: Items) -> Iterator[F32]:
    for start in range(0, len(documents), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(documents)), dtype=np.int64)
        vectors = model.bundle.ranker.document_vectors(model.batch(documents.rows(rows)))
        if vectors is None:
            raise ConfigError(
                f"a model of the recipe '{model.recipe}' makes no vectors of documents",
                "train a recipe with an encoder, e.g. direct",
            )
        yield vectors


def _write_npy(out: Path, uids: list[str], first: F32, rest: Iterator[F32]) -> None:
    """Ids take their place after the vectors, so that where they lie alone they are of somebody else. Not mapped: where
    a disk is full, what was mapped ends the process.
    """
    ids = ids_file(out)
    if ids.exists() and not (ids.is_file() and out.exists()):
        raise ConfigError(
            f"{ids}: exists already, and is not that of {out.name}", "move it away, or choose another name for OUT"
        )
    about = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False}
    with written_aside(ids) as ids_aside, written_aside(out) as aside:
        ids_aside.write_text("".join(f"{uid}\n" for uid in uids), encoding="utf-8")
        with aside.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {**about, "shape": (len(uids), first.shape[1])})
            for block in _chained(first, rest):
                file.write(np.ascontiguousarray(block, dtype=np.float32).data)


def ids_file(out: Path) -> Path:
    """Where the ids of the vectors in a file stand, a line each."""
    return out.with_suffix(".ids.txt")


def _write_parquet(out: Path, uids: list[str], shown: list[str], first: F32, rest: Iterator[F32]) -> None:
    pa = _pyarrow()
    import pyarrow.parquet as pq

    vector = pa.list_(pa.float32(), first.shape[1])
    schema = pa.schema([("id", pa.string()), ("name", pa.string()), ("vector", vector)])
    with written_aside(out) as aside, pq.ParquetWriter(aside, schema) as file:
        start = 0
        for block in _chained(first, rest):
            part = slice(start, start + len(block))
            flat = pa.array(np.ascontiguousarray(block).reshape(-1))
            rows = pa.FixedSizeListArray.from_arrays(flat, type=vector)
            columns = [pa.array(uids[part]), pa.array(shown[part]), rows]
            file.write_table(pa.Table.from_arrays(columns, schema=schema))
            start += len(block)


def _chained(first: F32, rest: Iterator[F32]) -> Iterator[F32]:
    if len(first):
        yield first
    yield from rest


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise MissingExtra("pyarrow", "parquet", "writing Parquet") from None
    return pyarrow
