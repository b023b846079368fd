"""Takes the picture of the page that the README opens with: serves a model, asks it a question, opens a label.

    make demo
    .venv/bin/python scripts/page_picture.py runs/demo docs/page.png

Needs Chromium (`make browser`) and the packages of development (`make test` installs them).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUESTION = "a fruit with a hard stone inside"
LABEL = 4  # the label that is opened, counted from 1
SIZE = (1280, 960)

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Nothing that a browser does for its maker: no updates, no reports, no synchronisation.
OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium with an empty profile. No other event loop can run in this thread meanwhile."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@contextlib.contextmanager
def serving(*models: str) -> Iterator[str]:
    """`longtail serve` in a process of its own, once it answers: its address."""
    command = [sys.executable, "-m", "longtail", "serve", *models, "--port", "0", "--quiet"]
    environment = {**os.environ, "NUMBA_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout
    try:
        seen = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", seen)):
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server ended: {seen}")
            seen += line
        address = found.group() + "/"
        _wait_for(f"{address}v2/health/ready")
        yield address
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def _wait_for(address: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def take(browser: Browser, address: str, picture: Path, *, question: str = QUESTION, label: int = LABEL) -> None:
    context = browser.new_context(
        viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light", reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(address)
    page.fill("#text", question)
    page.click(f".result:nth-child({label}) .name")
    page.wait_for_selector("#label h3")
    page.mouse.move(0, 0)
    page.wait_for_timeout(700)  # reasons come after labels
    page.screenshot(path=picture)
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run or a bundle, e.g. runs/demo")
    parser.add_argument("picture", type=Path, help="the PNG to write")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--label", type=int, default=LABEL, help="which label is opened, counted from 1")
    said = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("error: no Chromium on this machine\nhint: make browser installs Debian's")
    with serving(said.run) as address, chromium() as browser:
        take(browser, address, said.picture, question=said.question, label=said.label)
    print(f"{said.picture}: {said.picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
