"""Tables of labels that a trained model is to learn (`longtail labels add --file`): an id, a text, and where there are
some the ids of labels near it and texts that carry it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from longtail.data.find_columns import place_of, quoted
from longtail.data.table_files import TableSource
from longtail.data.tables import IdLists, Rows, column_texts, read_rows, unique_ids

SEPARATOR = "|"


@dataclass(frozen=True)
class NewLabels:
    """What is said of new labels, by id."""

    texts: Mapping[str, str]
    near: Mapping[str, Sequence[str]]
    examples: Mapping[str, Sequence[str]]


def read_new_labels(source: TableSource) -> NewLabels:
    """A row per label, with the columns ``id`` and, where there are some, ``text``, ``near`` and ``examples``: lists,
    or strings that `SEPARATOR` splits. Other columns are not read.
    """
    names = source.columns()
    places = {name: place_of(names, name) for name in ("id", "text", "near", "examples")}
    uid, text = places["id"], places["text"]
    if uid is None:
        raise source.error(
            None,
            f"the columns are {quoted(names)}, and none is 'id'",
            "give a table with the columns id and text, or JSON lines with these keys",
        )
    table = read_rows(source, [place for place in places.values() if place is not None])
    if not len(table):
        raise source.error(None, "no label in it", "give a row per label, with id and text")
    uids = unique_ids(table, uid)
    texts = [""] * len(table) if text is None else column_texts(table, text)
    near, examples = (_lists(table, name, places[name]) for name in ("near", "examples"))
    return NewLabels(
        dict(zip(uids, texts, strict=True)),
        dict(zip(uids, near, strict=True)),
        dict(zip(uids, examples, strict=True)),
    )


def _lists(table: Rows, name: str, place: str | None) -> list[list[str]]:
    return [[] for _ in table.lines] if place is None else IdLists(name, name, SEPARATOR).split(table, place)
