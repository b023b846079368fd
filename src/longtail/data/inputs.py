"""Documents to predict for: a text file, JSON lines, a column of a table, or a data set's own test file. None is
dropped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from longtail.data.dataset import Items
from longtail.data.lines import open_text_lines
from longtail.errors import DataError


def read_documents(source: str, text: str = "") -> Items:
    """The documents in `source`: ``-`` (standard input),
    ``*.json[l][.gz]``, ``*.csv``/``*.tsv``/``*.parquet``, ``*.npy``/``*.npz`` (vectors), else one text per line.

    text: column(s) of a table, by default found as in training.
    A JSON line is an object with text fields (``title``, ``content``, ..., and ``uid``), or just a string. A document
    without text stays in its place and gets what the model says of an empty text.
    """
    if source == "-":
        return from_lines(sys.stdin, "standard input")
    path = Path(source)
    if not path.is_file():
        raise DataError(
            "no such file" if not path.exists() else "is a folder",
            "give a file of texts, JSON lines or a table, or - for standard input",
            file=path,
        )
    name = path.name.removesuffix(".gz")
    if name.endswith((".json", ".jsonl", ".ndjson")):
        return from_json_lines(open_text_lines(path), path)
    if name.endswith((".csv", ".tsv", ".parquet")):
        from longtail.data.tables import read_texts

        return read_texts(path, text)
    if name.endswith((".npy", ".npz")):
        from longtail.data.matrices import read_vectors

        vectors = read_vectors(path)
        return Items([str(row) for row in range(vectors.shape[0])], vectors=vectors)
    return from_lines(open_text_lines(path), str(path))


def from_lines(lines: Iterable[str], source: str) -> Items:
    try:
        texts = [line.rstrip("\r\n") for line in lines]
    except UnicodeDecodeError as problem:
        raise DataError(f"not valid UTF-8 ({problem.reason})", "convert the input to UTF-8", file=source) from None
    return Items([str(row) for row in range(len(texts))], {"title": texts})


def from_json_lines(lines: Iterable[str], path: Path) -> Items:
    """Objects or strings, one per line; every string value of an object but its uid is a text field."""
    rows: list[dict[str, str]] = []
    uids: list[str] = []
    names: dict[str, None] = {"title": None}
    for number, line in enumerate(lines, 1):
        try:
            value: Any = json.loads(line)
        except json.JSONDecodeError as problem:
            raise DataError(
                f"not valid JSON ({problem.msg} at column {problem.colno})",
                "every line must be a JSON object or string",
                file=path,
                line=number,
            ) from None
        if isinstance(value, str):
            value = {"title": value}
        if not isinstance(value, dict):
            raise DataError(
                f"{str(value)[:40]!r} is neither an object nor a string",
                'write {"title": "..."} on every line',
                file=path,
                line=number,
            )
        uids.append(str(value.get("uid", number - 1)))
        row = {name: text for name, text in value.items() if isinstance(text, str) and name != "uid"}
        if "title" not in row and "text" in row:
            row["title"] = row.pop("text")  # as tables do in training
        names.update(dict.fromkeys(row))
        rows.append(row)
    return Items(uids, {name: [row.get(name, "") for row in rows] for name in names})
