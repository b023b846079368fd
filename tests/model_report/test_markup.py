"""Text stays text, and plots are elements of a page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from longtail.model_report.markup import Markup, facts, folded, joined, table, tag
from longtail.model_report.plots import MOST_NUMBERS, figure, svg
from longtail.picture import Picture

HOSTILE = "</td><script>alert(1)</script>\"' onload=x & \x00\x1b\ud800"


def test_strings_are_text_wherever_they_stand() -> None:
    for made in (
        tag("p", HOSTILE),
        tag("p", "a", title=HOSTILE),
        table((HOSTILE,), [(HOSTILE,)], caption=HOSTILE),
        facts([(HOSTILE, HOSTILE)]),
        folded(HOSTILE, HOSTILE),
        joined([HOSTILE]),
    ):
        assert "<script" not in made
        ElementTree.fromstring(f"<div>{made}</div>")
        assert "\x00" not in made
    assert tag("p", tag("b", "x")) == "<p><b>x</b></p>"
    assert tag("p", "x", class_=None, aria_label="y") == '<p aria-label="y">x</p>'
    assert isinstance(tag("p"), Markup)


LINES = Picture("Loss", "falls", "lines", [1.0, 2.0, 3.0], {"a": [3, 2, float("nan")], "b": [1, 1, 1]}, "x", "y")
BARS = Picture("Parts", "add up", "stacked", ["head", HOSTILE], {"_hidden": [1, 2], "$5 <b>": [3, 4]})


@pytest.mark.parametrize("picture", [LINES, BARS], ids=["lines", "bars"])
def test_plots_take_their_colours_from_the_page_and_keep_text(picture: Picture) -> None:
    drawn = svg(picture, "one")
    tree = ElementTree.fromstring(drawn)
    assert tree.get("role") == "img"
    assert picture.title in str(tree.get("aria-label"))
    words = " ".join("".join(text.itertext()) for text in tree.iter() if text.tag.endswith("text"))
    for name in picture.series:
        assert name.lstrip("_") in words
    assert not re.search(r"#[0-9a-f]{6}", drawn.replace("#ffffff", ""))
    assert "var(--s1)" in drawn
    assert "var(--ink)" in drawn
    assert "DejaVu" not in drawn
    assert "<style" not in drawn
    assert "http" not in drawn


def test_letters_that_the_font_lacks_are_kept_and_nobody_is_warned() -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "\u732b" in svg(Picture("t", "a", "bars", ["\u732b"], {"\u732b": [1.0], "b": [2.0]}), "one")


def test_two_plots_of_a_page_share_no_names() -> None:
    both = [set(re.findall(r' id="([^"]+)"', figure(LINES, name))) for name in ("one", "two")]
    assert both[0]
    assert not both[0] & both[1]
    for drawn, name in ((figure(LINES, "one"), "one"),):
        referred = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', drawn))
        assert {a or b for a, b in referred} <= both[0]
        assert all((a or b).startswith(name) for a, b in referred)


def test_few_numbers_stand_beside_a_plot() -> None:
    assert "<details>" in figure(LINES, "one")
    many = Picture("t", "a", "lines", list(range(MOST_NUMBERS + 1)), {"a": [0.0] * (MOST_NUMBERS + 1)})
    assert "<details>" not in figure(many, "one")


def test_a_series_has_a_value_for_every_place() -> None:
    with pytest.raises(ValueError, match="2 values at 1 places"):
        Picture("t", "a", "lines", [1.0], {"s": [1.0, 2.0]})
