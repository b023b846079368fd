"""docs/label-graph.md tells the truth: its code runs and prints what the page shows; its settings exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from longtail.config import names
from longtail.graph.label_graph import LabelGraphConfig
from longtail.search.shortlist import GameSettings

PAGE = (Path(__file__).parents[2] / "docs" / "label-graph.md").read_text()


def test_the_code_prints_what_is_shown() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", PAGE, flags=re.S | re.M)
    assert len(blocks) >= 7
    code = "".join(code for code, _ in blocks)
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "".join(shown for _, shown in blocks)


def test_every_setting_is_there() -> None:
    table = PAGE[PAGE.index("## Settings") :]
    for setting in names(LabelGraphConfig(), "graph."):
        assert f"`{setting}`" in table, setting
    for setting in ("mix", "transpose"):
        assert f"`game.{setting}`" in table
        assert setting in names(GameSettings())
