"""What the columns of a table mean. A run remembers it, so that evaluation and prediction read what training read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from longtail.errors import DataError

# How labels are written where no separator stands between them: ``["a", "b"]`` and ``<uri> <uri>``.
JSON, URIS = "json", "uris"


@dataclass(frozen=True)
class Columns:
    """Which columns are read as what.

    text: columns that are read as text, each a field of that name; weights: what an occurrence in each counts.
    labels: the column of labels. id: the column of ids; None: rows are numbered.
    separator: between the labels of a cell; "" is one label per cell, `JSON` and `URIS` are notations, None means that
        no cell had to be split: cells are lists, or have one label each.
    ignored, maybe_id: columns that are not read, and one of them that may be an id; group: the column that says which
        documents belong together. Only to be shown.
    """

    text: tuple[str, ...]
    weights: tuple[float, ...]
    labels: str | None
    id: str | None = None
    separator: str | None = None
    ignored: tuple[str, ...] = field(default=(), compare=False)
    maybe_id: str | None = field(default=None, compare=False)
    group: str | None = field(default=None, compare=False)

    def line(self) -> str:
        """For people: what is read as what, and what is ignored."""
        parts = [f"text: {self.shown_text()}"]
        if self.labels is not None:
            parts.append(f"labels: {self.labels}{self._split()}")
        maybe = f" (unless --id {self.maybe_id})" if self.maybe_id else ""
        parts.append(f"id: {self.id or f'none, rows are numbered{maybe}'}")
        if self.group is not None:
            parts.append(f"group: {self.group}")
        parts.append(f"ignored: {', '.join(name for name in self.ignored if name != self.group) or 'nothing'}")
        return "; ".join(parts)

    def shown_text(self) -> str:
        return ", ".join(map(_weighted, self.text, self.weights))

    def _split(self) -> str:
        if self.separator is None:
            return ""
        known = {
            JSON: "JSON lists",
            URIS: "<uri> <uri>",
            "": "one per cell",
            " ": "split at spaces",
            "\t": "split at tabs",
        }
        return f" ({known.get(self.separator, f'split at {self.separator}')})"

    def joined(self, other: Columns) -> Columns:
        """What two models need together, to be asked about the same table."""
        self.check_labels(other)
        both = dict(zip(self.text, self.weights, strict=True)) | dict(zip(other.text, other.weights, strict=True))
        uid = self.id if self.id == other.id else None
        return Columns(tuple(both), tuple(both.values()), self.labels, uid, self.separator or other.separator)

    def check_fit(self, data: Columns) -> None:
        """An error unless data that was read so is what a model reads that was trained so."""
        if not set(self.text) <= set(data.text):
            raise DataError(
                f"the model was trained on the text '{self.shown_text()}', the data was read for '{data.shown_text()}'",
                "read it with the columns of the model: leave out --text, in Python read(..., columns=model.columns)",
            )
        self.check_labels(data)

    def check_labels(self, other: Columns) -> None:
        names = {(columns.labels or "").lower() for columns in (self, other)} - {""}
        separators = {columns.separator for columns in (self, other)} - {None}
        if len(names) > 1 or len(separators) > 1:
            raise DataError(
                f"'{self.labels}{self._split()}' and '{other.labels}{other._split()}' are different labels",
                "a model is measured on the labels column that it was trained on, split in the same way",
            )

    def saved(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "text": list(self.text),
            "weights": list(self.weights),
            "labels": self.labels,
            "id": self.id,
            "separator": self.separator,
        }

    @classmethod
    def loaded(cls, saved: Mapping[str, Any]) -> Columns:
        return cls(
            tuple(saved["text"]), tuple(map(float, saved["weights"])), saved["labels"], saved["id"], saved["separator"]
        )


def _weighted(name: str, weight: float) -> str:
    return name if weight == 1 else f"{name}:{weight:g}"
