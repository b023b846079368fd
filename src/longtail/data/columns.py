"""What the columns of a table mean. A run remembers it, so that evaluation and prediction read what training read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# How labels are written where no separator stands between them.
LISTS, JSON, URIS = None, "json", "uris"


@dataclass(frozen=True)
class Columns:
    """Which columns are read as what.

    text: columns that are read as text, each a field of that name; weights: what an occurrence in each counts.
    labels: the column of labels. id: the column of ids; None: rows are numbered.
    separator: between the labels of a cell; "" is one label per cell, None lists, "json" and "uris" say themselves.
    ignored, maybe_id: columns that are not read, and one of them that may be an id; only to be shown.
    """

    text: tuple[str, ...]
    weights: tuple[float, ...]
    labels: str | None
    id: str | None = None
    separator: str | None = None
    ignored: tuple[str, ...] = field(default=(), compare=False)
    maybe_id: str | None = field(default=None, compare=False)

    def line(self) -> str:
        """For people: what is read as what, and what is ignored."""
        parts = [f"text: {', '.join(map(_weighted, self.text, self.weights))}"]
        if self.labels is not None:
            parts.append(f"labels: {self.labels}{self._split()}")
        maybe = f" (unless --id {self.maybe_id})" if self.maybe_id else ""
        parts.append(f"id: {self.id or f'none, rows are numbered{maybe}'}")
        parts.append(f"ignored: {', '.join(self.ignored) or 'nothing'}")
        return "; ".join(parts)

    def _split(self) -> str:
        known = {LISTS: "lists", JSON: "JSON lists", URIS: "<uri> <uri>", "": "one per cell", "\t": "split at tabs"}
        return f" ({known.get(self.separator, f'split at {self.separator}')})"

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
