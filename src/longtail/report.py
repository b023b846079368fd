"""What people are shown: short names, small tables in text and for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

# Of all metrics those that a table shows, in its order.
SHOWN = ("P", "nDCG", "PSP", "R")


def named(text: str) -> str:
    """A name for a line that must stay short: in quotes, cut where it is long."""
    return repr(text if len(text) <= 24 else f"{text[:21]}...")


def facts_as_html(title: str, facts: Mapping[str, str]) -> str:
    """What notebooks show of an object: its name and a small table."""
    rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(value)}</td></tr>" for what, value in facts.items())
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def table(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of metrics for people: one row per metric, one column per model. The first column says which."""
    width = max(14, *(len(title) for title in columns))
    lines = [" " * 8 + "  ".join(f"{title:>{width}}" for title in columns)]
    lines += [
        f"{name:<8}" + "  ".join(f"{scores[name]:>{width}.2f}" for scores in columns.values())
        for name in shown(next(iter(columns.values())))
    ]
    return "\n".join(lines)


def shown(scores: Mapping[str, Any]) -> list[str]:
    """The names of the metrics that a table shows, e.g. ``P@1``."""
    found = [(metric, k) for metric, at, k in (name.partition("@") for name in scores) if at and metric in SHOWN]
    return [f"{metric}@{k}" for metric, k in sorted(found, key=lambda one: (SHOWN.index(one[0]), int(one[1])))]


class Metrics(dict[str, Any]):
    """What a model was measured to be, in percent: a plain dict, which prints as a table."""

    def __str__(self) -> str:
        return table({"percent": self}) if shown(self) else "no metrics"

    def _repr_html_(self) -> str:
        return facts_as_html("percent", {name: f"{self[name]:.2f}" for name in shown(self)} or {"metrics": "none"})
