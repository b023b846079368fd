"""Finding out what the columns of a table mean: as the caller says, as a run remembers, or by name and look.

By name (case does not matter) a column is text (`TEXT_NAMES`), labels (`LABEL_NAMES`) or an id (`ID_NAMES`). By look a
column is text if most of its values are different and have several words; numbers, dates and prices are not. All text
columns of known names are read. Where a column that looks like text has another name, or two could be the labels, the
reader asks and shows what it saw: it never chooses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from shlex import quote
from typing import Any

from longtail.data.columns import Columns
from longtail.data.from_texts import shown
from longtail.data.table_files import NamedSource, NoValues, TableSource
from longtail.errors import ConfigError

TEXT_NAMES = (
    "title",
    "text",
    "content",
    "abstract",
    "description",
    "body",
    "sentence",
    "question",
    "query",
    "document",
)
LABEL_NAMES = (
    "labels",
    "label",
    "subjects",
    "subject",
    "uris",
    "subject_uris",
    "tags",
    "tag",
    "categories",
    "category",
    "keywords",
    "topics",
    "targets",
    "classes",
    "class",
)
ID_NAMES = ("uid", "id")

_ROWS = 1000  # that are looked at
_MANY_TEXTS = 20  # different values of several words that are texts though most of them repeat
_ENOUGH = 10  # rows that say what a column of a known name holds
# Parts of names that suggest a text, so that one word is enough.
_TEXT_PARTS = (*TEXT_NAMES, "name", "headline", "summary", "desc", "label")
_ID_ENDS = ("id", "sku", "key", "code")
_LONGEST_ID = 40
# Words of dates, which are no words of a text.
_CALENDAR = re.compile(
    r"jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?"
    r"|dec(ember)?|mon(day)?|tue(sday)?|wed(nesday)?|thu(rsday)?|fri(day)?|sat(urday)?|sun(day)?|[ap]m|tz?|z|utc|gmt",
    re.IGNORECASE,
)
_NO_LETTERS = re.compile(r"[\W\d_]+")


@dataclass(frozen=True)
class Asked:
    """What the caller says of the columns; None is to be found.

    text: columns, ``"title:2,content"`` or a list of them; a number after the name is the weight of an occurrence. Or a
        dict of names and weights.
    id: "" for none. separator: between the labels of a string, "" for one label per cell.
    remembered: what a run was trained on; what else is said must agree with it.
    """

    text: str | Sequence[str] | Mapping[str, float] | None = None
    labels: str | None = None
    id: str | None = None
    separator: str | None = None
    remembered: Columns | None = None


@dataclass(frozen=True)
class Found:
    """columns: what is read as what. places: for each of these names, the column of this table. notes: what is
    doubtful.
    """

    columns: Columns
    places: Mapping[str, str]
    notes: tuple[str, ...] = ()


def find_columns(source: TableSource, asked: Asked, *, labelled: bool = True) -> Found:
    """What the columns of a table mean. labelled: without it a table needs no labels, as for prediction."""
    table = _Looks(source, source.columns())
    if asked.remembered is not None:
        return _as_remembered(table, asked, asked.remembered, labelled)
    labels = _labels(table, asked.labels) if labelled else None
    uid = None if asked.id == "" else table.named(asked.id, "--id") if asked.id else _one_of(table, ID_NAMES, "--id")
    rest = [name for name in table.names if name not in (labels, uid)]
    chosen = _asked_text(table, asked.text) or [(name, None) for name in _text(table, rest)]
    if labels in {name for name, _ in chosen}:
        raise source.error(
            None, f"the column '{labels}' is both text and labels", "name another one: --text COLUMN or --labels COLUMN"
        )
    columns = _lower([name for name, _ in chosen])
    ignored = [name for name in rest if name not in {name for name, _ in chosen}]
    made = Columns(
        text=tuple(columns),
        weights=tuple(1.0 if weight is None else weight for _, weight in chosen),
        labels=labels,
        id=uid,
        ignored=tuple(ignored),
        maybe_id=None if uid or asked.id == "" else next((n for n in ignored if table.looks[n].could_be_id), None),
    )
    places = dict(zip(columns, (name for name, _ in chosen), strict=True))
    others = {name: name for name in (labels, uid) if name is not None}
    return Found(made, others | places, _left_out(table, ignored, made.text) if labelled else ())


def place_of(names: Sequence[str], column: str) -> str | None:
    """The column of that name, or the only one that differs from it in case."""
    if column in names:
        return column
    alike = [name for name in names if name.strip().lower() == column.strip().lower()]
    return alike[0] if len(alike) == 1 else None


def place_in(source: NamedSource, names: Sequence[str], column: str, option: str) -> str:
    """The column of that name. option: what named it, for the error where there is none."""
    place = place_of(names, column)
    if place is None:
        raise source.error(
            None, f"no column '{column}'; the columns are {quoted(names)}", f"name one of them: {option} COLUMN"
        )
    return place


def quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


# ---- what the caller says ----


def _labels(table: _Looks, asked: str | None) -> str:
    found = table.named(asked, "--labels") if asked else _one_of(table, LABEL_NAMES, "--labels")
    if found is None:
        raise table.source.error(
            None, f"no labels column among {table.samples(table.names)}", "name it: --labels COLUMN"
        )
    return found


def _asked_text(
    table: _Looks, text: str | Sequence[str] | Mapping[str, float] | None
) -> list[tuple[str, float | None]]:
    """Columns and what was said of their weights; none where nothing is asked for."""
    chosen = [_weighed(part, table.names) for part in _parts(text)]
    named = [(table.named(name, "--text"), weight) for name, weight in chosen]
    if len({name for name, _ in named}) < len(named):
        raise ConfigError(
            f"the text columns {', '.join(name for name, _ in named)} name one twice", "name each column once"
        )
    return named


def _weighed(part: str, names: Sequence[str]) -> tuple[str, float | None]:
    """``title:2``, unless a column is called so."""
    name, colon, number = part.rpartition(":")
    if not colon or place_of(names, part) is not None:
        return part, None
    try:
        weight = float(number)
    except ValueError:
        return part, None
    if not weight > 0 or math.isinf(weight):
        raise ConfigError(
            f"the text column '{name}' has the weight {number}, expected a number above 0",
            "leave a column out to ignore it",
        )
    return name.strip(), weight


# ---- what a run remembers ----


def _as_remembered(table: _Looks, asked: Asked, known: Columns, labelled: bool) -> Found:
    """The columns of a run, in this table. What else is asked for must agree."""
    agreed_text(asked)
    if asked.labels and known.labels and asked.labels.lower() != known.labels.lower():
        raise _contradiction("--labels", asked.labels, known.labels)
    if asked.separator is not None and known.separator not in (None, asked.separator):
        raise _contradiction("--separator", asked.separator, known.separator)
    if asked.id and known.id and asked.id.lower() != known.id.lower():
        raise _contradiction("--id", asked.id, known.id)
    places = {name: table.remembered(name, "text", "rename the column, or train again") for name in known.text}
    labels = known.labels or asked.labels if labelled else None
    if labelled and labels is None:
        labels = _labels(table, None)
    if labels is not None:
        places[labels] = (
            table.remembered(labels, "labels", "rename the column, or train again")
            if known.labels
            else table.named(labels, "--labels")
        )
    uid = known.id if asked.id is None else asked.id or None
    if uid is not None:
        places[uid] = (
            table.named(uid, "--id")
            if asked.id
            else table.remembered(uid, "id", "rename the column, or number the rows with --id ''")
        )
    ignored = tuple(name for name in table.names if name not in places.values())
    return Found(Columns(known.text, known.weights, labels, uid, known.separator, ignored), places)


def agreed_text(asked: Asked) -> Sequence[str]:
    """The text columns that a run remembers, with which what is asked for must agree; without a run what is asked
    for.
    """
    known = asked.remembered
    said = [_weighed(part, () if known is None else known.text) for part in _parts(asked.text)]
    if known is None:
        return [name for name, _ in said]
    weights = {name.lower(): weight for name, weight in zip(known.text, known.weights, strict=True)}
    if said and (
        {name.lower() for name, _ in said} != set(weights)
        or any(weight not in (None, weights[name.lower()]) for name, weight in said)
    ):
        raise _contradiction("--text", ",".join(_parts(asked.text)), known.shown_text())
    return known.text


def _parts(text: str | Sequence[str] | Mapping[str, float] | None) -> list[str]:
    if isinstance(text, Mapping):
        return [f"{name}:{weight:g}" for name, weight in text.items()]
    if not isinstance(text, str | list | tuple | None):
        raise ConfigError(
            f"a {type(text).__name__} as text, expected the name of a column or several",
            "give the texts as first argument",
        )
    parts = text.split(",") if isinstance(text, str) else text or []
    return [part.strip() for part in parts if part.strip()]


def _contradiction(option: str, said: str, known: str) -> ConfigError:
    return ConfigError(
        f"{option} says '{said}', and the model was trained on '{known}'",
        f"leave {option} out: the model remembers its columns; or train again with {option} '{said}'",
    )


# ---- by name and look ----


def _one_of(table: _Looks, known: Sequence[str], option: str) -> str | None:
    """The only column that has one of the known names and is not empty."""
    found = [name for name in table.names if name.strip().lower() in known]
    found = [name for name in found if table.looks[name].filled] or found[:1]
    if len(found) > 1:
        what = option.removeprefix("--")
        raise table.source.error(
            None, f"{_count(found)} could be the {what}: {table.samples(found)}", f"name it: {option} {quote(found[0])}"
        )
    return found[0] if found else None


def _text(table: _Looks, rest: Sequence[str]) -> list[str]:
    """All columns of known names, if no other looks like text; else the only one that does, or that is left."""
    looks = [table.looks[name] for name in rest]
    unnamed = [look.name for look in looks if not look.has_name(TEXT_NAMES + LABEL_NAMES) and look.is_text]
    named = [look.name for look in looks if look.has_name(TEXT_NAMES)]
    named = [name for name in named if not table.looks[name].is_surely_bare] or ([] if unnamed else named)
    if unnamed and len(named + unnamed) > 1:
        both = [name for name in rest if name in named or name in unnamed]
        raise table.source.error(
            None,
            f"{_count(both)} could be the text: {table.samples(both)}",
            f"name what is to be read: --text {quote(both[0])}, or --text {quote(','.join(both))} for all of them",
        )
    if named:
        return sorted(named, key=lambda name: TEXT_NAMES.index(name.strip().lower()))
    if unnamed:
        return unnamed
    left = [look.name for look in looks if not look.has_name(LABEL_NAMES)]
    if len(left) == 1:
        return left
    raise table.source.error(
        None,
        f"no text column among {table.samples(table.names)}",
        "name it: --text COLUMN (several: --text title,content)",
    )


def _left_out(table: _Looks, ignored: Sequence[str], text: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"the column {table.samples([name])} looks like text and is not read; "
        f"--text {quote(','.join([*text, name]))} reads it too"
        for name in ignored
        if table.looks[name].is_text or (name.strip().lower() in TEXT_NAMES and not table.looks[name].is_bare)
    )


def _lower(columns: Sequence[str]) -> list[str]:
    """Names of fields: as the columns, but known names in lower case, unless two would be the same."""
    fields = [column.strip().lower() if column.strip().lower() in TEXT_NAMES else column for column in columns]
    return fields if len(set(fields)) == len(fields) else list(columns)


def _count(names: Sequence[str]) -> str:
    return "two columns" if len(names) == 2 else f"{len(names)} columns"


@dataclass(frozen=True)
class _Look:
    """The values of a column that are not empty, among those looked at. total: how many were looked at."""

    name: str
    filled: list[Any]
    total: int

    def has_name(self, known: Sequence[str]) -> bool:
        return self.name.strip().lower() in known

    @cached_property
    def is_bare(self) -> bool:
        """Numbers, dates, addresses, or nothing."""
        return not any(isinstance(value, str) and "://" not in value and _words(value) for value in self.filled)

    @property
    def is_surely_bare(self) -> bool:
        """Numbers or dates, in so many rows that it is no chance."""
        return len(self.filled) >= _ENOUGH and self.is_bare

    @cached_property
    def is_text(self) -> bool:
        texts = [value for value in self.filled if isinstance(value, str)]
        if self.is_bare or 2 * len(texts) < len(self.filled):
            return False
        words = sum(len(word) > 1 for text in texts for word in _words(text)) / len(texts)
        enough = 1 if any(part in self.name.lower() for part in _TEXT_PARTS) else 2
        different = len(set(texts))
        return words >= enough and (2 * different > len(texts) or different >= _MANY_TEXTS)

    @cached_property
    def could_be_id(self) -> bool:
        """Short values, all there and different, under a name that says so."""
        values = [str(value) for value in self.filled]
        return (
            self.name.strip().lower().endswith(_ID_ENDS)
            and len(set(values)) == self.total > 0
            and all(len(value) <= _LONGEST_ID and not any(map(str.isspace, value)) for value in values)
        )


def _words(text: str) -> list[str]:
    """The letters of every word that has some; not those of a date."""
    dated = any(map(str.isdigit, text))
    letters = (_NO_LETTERS.sub("", token) for token in text.split())
    return [word for word in letters if word and not (dated and _CALENDAR.fullmatch(word))]


@dataclass(frozen=True)
class _Looks:
    """The columns of a table, and what their first values look like."""

    source: TableSource
    names: list[str]

    @cached_property
    def looks(self) -> dict[str, _Look]:
        try:
            columns = self._first_values(self.names)
        except NoValues:
            columns = [column for name in self.names for column in self._first_values_if_any(name)]
        total = max(map(len, columns), default=0)
        return {
            name: _Look(name, [value for value in values if not _is_empty(value)], total)
            for name, values in zip(self.names, columns, strict=True)
        }

    def _first_values(self, names: Sequence[str]) -> Sequence[Sequence[Any]]:
        rows = [values for _, values in islice(self.source.rows(names), _ROWS)]
        return list(zip(*rows, strict=True)) or [()] * len(names)

    def _first_values_if_any(self, name: str) -> Sequence[Sequence[Any]]:
        """A column that nobody can look at is no text, and no empty one. It may be left unread."""
        try:
            return self._first_values([name])
        except NoValues:
            return [[_Unknown()]]

    def named(self, column: str, option: str) -> str:
        """The column that an option names."""
        return place_in(self.source, self.names, column, option)

    def remembered(self, column: str, what: str, hint: str) -> str:
        found = place_of(self.names, column)
        if found is None:
            raise self.source.error(
                None,
                f"no column '{column}', which is the {what} of the training data; the columns are {quoted(self.names)}",
                hint,
            )
        return found

    def samples(self, names: Sequence[str]) -> str:
        """Columns with a value each, for a person who is to choose."""
        return ", ".join(
            f"'{name}' (e.g. {shown(self.looks[name].filled[0])})" if self.looks[name].filled else f"'{name}' (empty)"
            for name in names
        )


class _Unknown:
    """Stands for the values of a column that cannot be shown."""

    def __repr__(self) -> str:
        return "values that cannot be shown"


def _is_empty(value: Any) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())
