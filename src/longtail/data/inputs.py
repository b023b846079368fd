"""Documents to predict for: a text file, JSON lines, a column of a table, or a data set's own test file. None is
dropped.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from longtail.data.columns import Columns
from longtail.data.dataset import Items
from longtail.data.find_columns import ID_NAMES, Asked, agreed_text
from longtail.data.from_texts import shown
from longtail.data.lines import open_text_lines
from longtail.errors import DataError

Fields = Sequence[str]


def read_documents(
    source: str,
    text: str | Sequence[str] | None = None,
    *,
    id: str | None = None,
    columns: Columns | None = None,
    fields: Fields = (),
    on_columns: Callable[[Columns], None] = lambda columns: None,
) -> Items:
    """The documents in `source`: ``-`` (standard input),
    ``*.json[l][.gz]``, ``*.csv``/``*.tsv``/``*.parquet``, ``*.npy``/``*.npz`` (vectors), else one text per line.

    text, id: columns of a table, by default found as in training. columns: what the model was trained on.
    fields: what the model reads. on_columns: told what a table was read as.
    A JSON line is an object with text fields (and an id), or just a string. Lines are JSON if the first one is. A
    document without text stays in its place and gets what the model says of an empty text.
    """
    asked = Asked(text=text or None, id=id, remembered=columns)
    if source == "-":
        return from_lines(sys.stdin, "standard input", asked, fields)
    path = Path(source)
    if not path.is_file():
        raise DataError(
            "no such file" if not path.exists() else "is a folder",
            "give a file of texts, JSON lines or a table, or - for standard input",
            file=path,
        )
    name = path.name.removesuffix(".gz")
    if name.endswith((".json", ".jsonl", ".ndjson")):
        return from_json_lines(open_text_lines(path), path, asked, fields)
    if name.endswith((".csv", ".tsv", ".parquet")):
        from longtail.data.tables import read_texts

        documents, found = read_texts(path, asked)
        on_columns(found)
        return documents
    if name.endswith((".npy", ".npz")):
        from longtail.data.matrices import read_vectors

        vectors = read_vectors(path)
        return Items([str(row) for row in range(vectors.shape[0])], vectors=vectors)
    return from_lines(open_text_lines(path), str(path), asked, fields)


def from_lines(lines: Iterable[str], source: str, asked: Asked, fields: Fields = ()) -> Items:
    """One text per line, or one JSON value if the first line that is not blank looks so."""
    try:
        texts = [line.rstrip("\r\n") for line in lines]
    except UnicodeDecodeError as problem:
        raise DataError(f"not valid UTF-8 ({problem.reason})", "convert the input to UTF-8", file=source) from None
    if texts:
        texts[0] = texts[0].removeprefix("\ufeff")
    if _begins_json(next((text.strip() for text in texts if text.strip()), "")):
        return from_json_lines(texts, source, asked, fields)
    return Items([str(row) for row in range(len(texts))], {_first_field(asked, fields): texts})


def _begins_json(line: str) -> bool:
    """Whether a line is JSON, or the beginning of it, and not a text that begins with the same sign."""
    if line.startswith("{"):
        return line[1:].lstrip()[:1] in ('"', "}", "")
    if line == "[":
        return True
    try:
        return line.startswith(('"', "[")) and isinstance(json.loads(line), str | list)
    except (ValueError, RecursionError):
        return False


def from_json_lines(lines: Iterable[str], source: Path | str, asked: Asked, fields: Fields = ()) -> Items:
    """Objects or strings, one per line. A string is the first field that the model reads."""
    wanted = text_names(asked, fields)
    first = _first_field(asked, fields)
    rows: list[dict[str, str]] = []
    uids: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value: Any = json.loads(line)
            row, uid = ({first: value}, None) if isinstance(value, str) else _record(value, wanted, asked)
        except json.JSONDecodeError as problem:
            message, hint = (
                f"not valid JSON ({problem.msg} at column {problem.colno}): {shown(line)}",
                "every line must be a JSON object or string, as the first is",
            )
        except (ValueError, RecursionError) as problem:
            message, hint = str(problem), f'write {{"{first}": "..."}} on every line'
        else:
            uids.append(str(len(rows)) if uid is None else uid)
            rows.append(row)
            continue
        raise DataError(message, hint, file=source, line=number)
    names = wanted or list(dict.fromkeys(name for row in rows for name in row)) or [first]
    return Items(uids, {name: [row.get(name, "") for row in rows] for name in names})


def text_names(asked: Asked, fields: Fields) -> list[str]:
    """The text fields that are read of an object; none where nobody knows. Settings may leave columns unread."""
    named = agreed_text(asked)
    return list(fields if asked.remembered is not None and fields else named or fields)


def _first_field(asked: Asked, fields: Fields) -> str:
    return next(iter(text_names(asked, fields)), "title")


def _record(value: Any, wanted: Sequence[str], asked: Asked) -> tuple[dict[str, str], str | None]:
    """The texts of an object that are read, and its id."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is neither an object nor a string")
    remembered = None if asked.remembered is None else asked.remembered.id
    id_names = (remembered, *ID_NAMES) if asked.id is None else (asked.id,)
    uid = next((str(value[name]) for name in id_names if name in value), None)
    if not wanted:
        return {name: text for name, text in value.items() if isinstance(text, str) and name not in id_names}, uid
    found = {name: _text(name, value[name]) for name in wanted if name in value}
    if not found and asked.remembered is None and not asked.text and "text" in value:
        found = {wanted[0]: _text("text", value["text"])}  # a model that has no names of its own
    if not found:
        raise ValueError(f"the object has {', '.join(value) or 'nothing'}; the model reads {', '.join(wanted)}")
    return found, uid


def _text(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return str(value)
    raise ValueError(f"'{name}' holds {shown(value)}, expected a text")


def heading(documents: Items, row: int) -> str:
    """A document for people: its text, with the id before it where the documents came with ids."""
    uid, name = documents.uids[row], documents.name(row)
    return name if uid in (str(row), name) else f"{uid}  {name}"
