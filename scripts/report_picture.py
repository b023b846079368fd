"""Takes the picture of a report that the README shows: its beginning, some plots, and an example.

    .venv/bin/longtail report RUN DATA --output report.html
    PYTHONPATH=. .venv/bin/python scripts/report_picture.py report.html docs/report.png

Needs Chromium (`make browser`) and the packages of development (`make test` installs them).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.page_picture import CHROMIUM, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SIZE = (1240, 1830)
# What the picture leaves out, so that it shows some of each kind.
HIDDEN = (
    *("#model", "#data", "#metrics", "#training", "#size", "#inside", "#weak", "#made"),
    *("#frequency .wide", "#frequency figure:nth-child(n+3)", "#frequency p", "#curves p", "details"),
    *("#examples .example:nth-of-type(n+3)", "#suspects"),
)


def take(browser: Browser, report: Path, picture: Path) -> None:
    context = browser.new_context(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    page.add_style_tag(content=f"{', '.join(HIDDEN)} {{ display: none }}")
    page.screenshot(path=picture)
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="a report, as longtail report writes it")
    parser.add_argument("picture", type=Path, help="the PNG to write")
    said = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("error: no Chromium on this machine\nhint: make browser installs Debian's")
    with chromium() as browser:
        take(browser, said.report, said.picture)
    print(f"{said.picture}: {said.picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
