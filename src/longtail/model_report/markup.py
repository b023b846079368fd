"""HTML that cannot be broken by what it shows: a plain string is text, whatever is in it; `Markup` alone is markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


class Markup(str):
    """HTML that is finished: made here, or of our own files."""

    __slots__ = ()


# Characters that HTML does not allow, not even by their numbers.
_NOT_ALLOWED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def shown(child: Any) -> str:
    """A child of an element: markup as it is, anything else as text."""
    return child if isinstance(child, Markup) else _NOT_ALLOWED.sub("\ufffd", escape(str(child), quote=True))


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """``tag("p", "a < b", class_="note")``. An attribute that is None is left out; a trailing underscore goes."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{shown(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{''.join(map(shown, children))}</{name}>")


BREAK = Markup("<br>")


def joined(parts: Iterable[Any]) -> Markup:
    return Markup("".join(map(shown, parts)))


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], *, numbers: int = 0, caption: str = "") -> Markup:
    """A table that scrolls by itself where it is wider than the page. The last `numbers` columns hold numbers; the
    first column names the rows.
    """
    first_number = len(head) - numbers

    def cells(values: Sequence[Any]) -> Markup:
        return joined(
            tag("th" if at == 0 else "td", value, scope="row" if at == 0 else None, class_=_kind(at, first_number))
            for at, value in enumerate(values)
        )

    titles = joined(tag("th", one, scope="col", class_=_kind(at, first_number)) for at, one in enumerate(head))
    body = joined(tag("tr", cells(row)) for row in rows)
    inside = tag(
        "table",
        tag("caption", caption) if caption else Markup(""),
        tag("thead", tag("tr", titles)) if any(head) else Markup(""),
        tag("tbody", body),
    )
    return tag("div", inside, class_="wide", tabindex="0", role="region", aria_label=caption or "table")


def _kind(at: int, first_number: int) -> str | None:
    return "number" if at >= first_number else None


def facts(rows: Iterable[tuple[str, Any]], caption: str = "") -> Markup:
    """A table of names and values."""
    return table(("", ""), rows, numbers=1, caption=caption)


def folded(title: str, *inside: Any) -> Markup:
    """What is shown when it is asked for."""
    return tag("details", tag("summary", title), *inside)


def note(*text: Any) -> Markup:
    return tag("p", *text, class_="note")
