"""Plots as SVG inside HTML: drawn by matplotlib, then coloured by the page, so that one file serves day, night and
paper. The only module that imports matplotlib.

Text stays text (it can be searched and read aloud), colours are variables of the page's style, and nothing is named
twice in a page of several plots.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from longtail.errors import MissingExtra
from longtail.model_report.markup import Markup, folded, table, tag
from longtail.picture import Picture

SIZE = (4.7, 2.75)  # inches; on a telephone about as wide as the screen
# Colours that no plot uses otherwise, and what the page calls them.
INK, FAINT = "#010203", "#040506"
SERIES = [f"#0a0b{number:02x}" for number in range(6)]
_VARIABLES = {INK: "var(--ink)", FAINT: "var(--line)"} | {c: f"var(--s{n})" for n, c in enumerate(SERIES, 1)}
# Of so many places the numbers are given as a table, too.
MOST_NUMBERS = 40
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "longtail",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.constrained_layout.use": True,
}


def check_installed() -> None:
    """Before anything else is done."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("matplotlib", "report", "drawing the plots of a report") from None


def figure(picture: Picture, name: str) -> Markup:
    """A figure of the page: title, how to read it, the plot, and where they are few its numbers. name: its own in the
    page.
    """
    drawn = svg(picture, name)
    words = tag("figcaption", tag("strong", picture.title), " ", tag("span", picture.about))
    return tag("figure", words, drawn, _numbers(picture), id=name)


def _numbers(picture: Picture) -> Markup:
    if len(picture.x) > MOST_NUMBERS:
        return Markup("")
    rows = [
        (_place(x), *(_place(float(values[at])) for values in picture.series.values()))
        for at, x in enumerate(picture.x)
    ]
    head = (picture.x_label or "", *picture.series)
    return folded("numbers", table(head, rows, numbers=len(picture.series), caption=picture.title))


def _place(x: Any) -> str:
    return x if isinstance(x, str) else f"{x:,.4g}" if np.isfinite(x) else ""


def svg(picture: Picture, name: str) -> Markup:
    """The plot alone."""
    import matplotlib
    from matplotlib.figure import Figure

    # Letters that the font of the plot lacks are in the font of the reader: text stays text.
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawing = Figure(figsize=SIZE)
        axes = drawing.subplots()
        (_lines if picture.shape == "lines" else _bars)(axes, picture)
        axes.set_xlabel(picture.x_label)
        axes.set_ylabel(picture.y_label)
        if len(picture.series) > 1 and picture.shape == "lines":
            axes.legend(loc="best")
        elif len(picture.series) > 1:  # bars leave no room beside them
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
        out = io.BytesIO()
        drawing.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(out.getvalue().decode("utf-8"), name, f"{picture.title}. {picture.about}")


def _lines(axes: Any, picture: Picture) -> None:
    x = np.asarray(picture.x, dtype=np.float64)
    for place, (label, values) in enumerate(picture.series.items()):
        colour, y = SERIES[place % len(SERIES)], np.asarray(values, dtype=np.float64)
        own = np.isfinite(y)
        if label == picture.reference:
            axes.plot(x[own], y[own], "--", color=INK, label=_cut(label), linewidth=1)
            continue
        marker = "o" if own.sum() <= 24 else None
        style = ("-", "--", "-.", ":")[place // len(SERIES) % 4]
        axes.plot(x[own], y[own], style, color=colour, label=_cut(label), marker=marker, markersize=3, linewidth=1.6)
    if picture.log_x:
        axes.set_xscale("log")
    elif np.all(x == np.rint(x)):
        axes.xaxis.get_major_locator().set_params(integer=True)
    if picture.log_y:
        axes.set_yscale("log")


def _bars(axes: Any, picture: Picture) -> None:
    places, count = np.arange(len(picture.x)), max(len(picture.series), 1)
    below = np.zeros(len(places))
    for number, (label, values) in enumerate(picture.series.items()):
        colour, y = SERIES[number % len(SERIES)], np.nan_to_num(np.asarray(values, dtype=np.float64))
        if picture.shape == "stacked":
            axes.bar(places, y, 0.75, bottom=below, color=colour, label=_cut(label))
            below = below + y
        else:
            width = 0.8 / count
            axes.bar(places + (number - (count - 1) / 2) * width, y, width * 0.92, color=colour, label=_cut(label))
    axes.set_xticks(places, [_cut(str(x), 14) for x in picture.x], rotation=0 if _short(picture.x) else 30)
    if not _short(picture.x):
        for text in axes.get_xticklabels():
            text.set_horizontalalignment("right")
    axes.grid(visible=False, axis="x")
    if picture.log_y:
        axes.set_yscale("log")


def _short(x: Sequence[Any]) -> bool:
    return sum(len(str(one)) for one in x) <= 42


def _cut(text: str, most: int = 28) -> str:
    # A dollar begins a formula, an underscore at the beginning hides a legend: names are neither.
    text = text if len(text) <= most else f"{text[: most - 1]}\u2026"
    return text.replace("$", r"\$").lstrip("_")


_REFERRED = re.compile(r'(?:xlink:href="#|url\(#)([\w-]+)')


def _inline(drawn: str, name: str, spoken: str) -> Markup:
    """An SVG file as an element of a page."""
    body = drawn[drawn.index("<svg") :]
    head, _, rest = body.partition(">")
    box = re.search(r'viewBox="([\d. ]+)"', head)
    assert box is not None, "matplotlib says how large its drawings are"
    rest = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", rest, flags=re.S)
    known = set(_REFERRED.findall(rest))
    rest = re.sub(r' id="([\w.-]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in known else "", rest)
    rest = re.sub(r'xlink:href="#([\w-]+)"', rf'href="#{name}-\1"', rest)
    rest = re.sub(r"url\(#([\w-]+)\)", rf"url(#{name}-\1)", rest)
    for colour, variable in _VARIABLES.items():
        rest = rest.replace(colour, variable)
    # Fonts of the page; the size stays.
    rest = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", rest)
    rest = re.sub(r" ?font-family: [^;\"]*;?", "", rest)
    rest = re.sub(r"(\d+\.\d\d)\d+", r"\1", rest)  # a hundredth of a point is enough
    rest = re.sub(r"\s*\n\s*", "\n", rest)
    svg_tag = tag("svg", viewBox=box[1], role="img", aria_label=spoken).removesuffix("</svg>")
    return Markup(svg_tag + rest.strip())
