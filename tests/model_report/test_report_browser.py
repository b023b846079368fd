"""The report in a real Chromium: nothing is fetched, nothing complains, it fits a telephone, the dark and paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.page_picture import CHROMIUM, chromium
from scripts.report_picture import HIDDEN, take
from tests.model_report.test_model_report import HOSTILE, SECTIONS

import longtail
from longtail.data.dataset import Dataset
from longtail.model_report.document import write_report

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: make browser installs Debian's")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels and texts that are long, and try to be markup."""
    folder = tmp_path_factory.mktemp("browser")
    words = ("red", "green", "blue")
    texts = [f"{word} {HOSTILE} {'very' * 40} long {word}" for word in words for _ in range(6)]
    labels = [[f"{word}-{'x' * 60}"] for word in words for _ in range(6)]
    names = {f"{word}-{'x' * 60}": f"{word} {HOSTILE} {'y' * 90}" for word in words}
    data = Dataset.from_texts(texts, labels, names, test_texts=texts, test_labels=labels[3:] + labels[:3])
    longtail.train(data, folder / "run", "tiny")
    return write_report(folder / "run", data, folder / "report.html", resamples=20, against=folder / "run")


class Visit:
    """A page with what it asked for and what it complained about."""

    def __init__(self, browser: Any, report: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda one: self.said.append(one.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda one: self.said.append(one.message))
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.goto(report.as_uri())

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()


SIZES: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 900}},
    "telephone": {"viewport": {"width": 390, "height": 844}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
}


@pytest.mark.parametrize("size", SIZES)
def test_it_fits_fetches_nothing_and_does_not_complain(browser: Any, report: Path, size: str) -> None:
    visit = Visit(browser, report, **SIZES[size])
    with visit as page:
        width = SIZES[size]["viewport"]["width"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for section in SECTIONS:
            assert page.locator(f"#{section}").is_visible()
        assert page.locator("svg text").count() > 50
    assert visit.said == []
    assert [one for one in visit.asked if not one.startswith("data:")] == [report.as_uri()]


def test_plots_follow_the_colours_of_day_and_night(browser: Any, report: Path) -> None:
    seen = []
    for scheme in ("light", "dark"):
        with Visit(browser, report, color_scheme=scheme) as page:
            look = "one => getComputedStyle(one).fill"
            text = page.locator("svg text").first.evaluate(look)
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert text != paper
            seen.append((text, paper))
    assert seen[0] != seen[1]


def test_paper_is_white_also_at_night(browser: Any, report: Path) -> None:
    with Visit(browser, report, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("svg text").first.evaluate("one => getComputedStyle(one).fill") == "rgb(0, 0, 0)"
        assert len(page.pdf(format="A4")) > 10_000


@pytest.mark.parametrize("size", ["wide", "dark"])
def test_people_who_use_other_means_can_read_it(browser: Any, report: Path, size: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # Axe itself needs to do what the policy of the page forbids.
    with Visit(browser, report, bypass_csp=True, **SIZES[size]) as page:
        found = axe.run(page).response["violations"]
    serious = [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]
    assert serious == []


def test_the_picture_of_the_readme_can_be_taken(browser: Any, report: Path, tmp_path: Path) -> None:
    take(browser, report, tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes()[:4] == b"\x89PNG"
    # What the picture leaves out is there to be left out.
    with Visit(browser, report) as page:
        assert [name for name in HIDDEN if not page.locator(name).count()] == []
