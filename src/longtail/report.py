"""What people are shown: short names, small tables in text and for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

# Of all metrics those that a table shows, in its order.
AT_EVERY_K = ("P", "nDCG", "PSP", "F1", "hP", "hR", "hF")
AT_LAST_K = ("MacroF1", "Coverage", "ECE")
OVER_A_THRESHOLD = ("MicroF1", "MacroF1")
SHORT = 9  # metrics in one line
_LONGEST = 2000  # characters of an error or a hint


def named(text: str) -> str:
    """A name for a line that must stay short: in quotes, cut where it is long."""
    return repr(text if len(text) <= 24 else f"{text[:21]}...")


def one_line(text: str) -> str:
    """A text without line ends of its own, which would be taken for ours."""
    return " ".join(text.splitlines())


def first_line(problem: BaseException) -> str:
    """Of what a library says: some say pages, others nothing."""
    return str(problem).strip().split("\n", 1)[0]


def cut(text: str) -> str:
    """An error as it may be shown, logged and sent on, whatever a stranger's file made it hold."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def facts_as_html(title: str, facts: Mapping[str, str]) -> str:
    """What notebooks show of an object: its name and a small table."""
    rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(value)}</td></tr>" for what, value in facts.items())
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def table(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of metrics for people: one row per metric, one column per model. The first column says which."""
    names = shown(next(iter(columns.values())))
    width, first = max(14, *(len(title) for title in columns)), max(map(len, names)) + 1
    lines = [" " * first + "  ".join(f"{title:>{width}}" for title in columns)]
    for name in names:
        cells = (f"{scores[name]:>{width}.2f}" if name in scores else f"{'':>{width}}" for scores in columns.values())
        lines.append(f"{name:<{first}}" + "  ".join(cells))
    return "\n".join(lines)


def shown(scores: Mapping[str, Any]) -> list[str]:
    """The names of the metrics that a table shows, e.g. ``P@1``."""
    ks: dict[str, list[int]] = {}
    for name in scores:
        metric, at, k = name.partition("@")
        if at:
            ks[metric] = sorted([*ks.get(metric, ()), int(k)])
    at_ks = [f"{metric}@{k}" for metric in AT_EVERY_K for k in ks.get(metric, ())]
    at_ks += [f"R@{k}" for k in ks.get("R", ()) if k not in ks.get("P", ())]  # recall tells of longer lists
    at_last = [f"{metric}@{ks[metric][-1]}" for metric in AT_LAST_K if metric in ks]
    return [*at_ks, *at_last, *(name for name in OVER_A_THRESHOLD if name in scores)]


class Metrics(dict[str, Any]):
    """What a model was measured to be, in percent: a plain dict, which prints as a table.

    Scores are its own entries (`longtail.evaluate`), or lie under ``scores``, those of baselines under ``baselines``
    (`longtail.Predictor.metrics`).
    """

    def _columns(self) -> dict[str, Mapping[str, Any]]:
        return {"percent": self.get("scores", self), **self.get("baselines", {})}

    def __repr__(self) -> str:
        scores = self._columns()["percent"]
        first = [f"{name} {scores[name]:.2f}" for name in shown(scores)]
        more = f", ... {len(first) - SHORT} more" if len(first) > SHORT else ""
        return f"Metrics({', '.join(first[:SHORT])}{more})"

    def __str__(self) -> str:
        return table(self._columns()) if shown(self._columns()["percent"]) else "no metrics"

    def _repr_html_(self) -> str:
        scores = self._columns()["percent"]
        return facts_as_html("percent", {name: f"{scores[name]:.2f}" for name in shown(scores)} or {"metrics": "none"})
