"""docs/claims.md says what the committed verdicts say."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.claims import results
from benchmarks.claims.__main__ import COMPLETE, main
from benchmarks.claims.page import TITLES, page
from benchmarks.claims.papers import PAPERS

ROOT = Path(__file__).parents[2]
VERDICTS = ROOT / "benchmarks" / "results" / "claims"
PAGE = ROOT / "docs" / "claims.md"


def test_the_page_is_what_the_command_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "claims.md"
    assert main(["table", "--results", str(VERDICTS), "--out", str(out)]) == COMPLETE
    assert str(out) in capsys.readouterr().out
    written = out.read_text(encoding="utf-8")
    assert written == page(VERDICTS)
    hint = "make it again: python -m benchmarks.claims table --out docs/claims.md"
    assert PAGE.read_text(encoding="utf-8") == written, hint


def test_the_summary_counts_every_verdict_once() -> None:
    text = page(VERDICTS)
    rows = {
        title: [int(number) for number in numbers.split(" | ")]
        for title, numbers in re.findall(r"^\| ([^|]+?) \| (\d[\d |]*\d) \|$", text, flags=re.M)
    }
    assert list(rows) == [*(TITLES.get(paper, paper) for paper in PAPERS), "all"]
    for paper in PAPERS:
        found = Counter(record["verdict"] for record in results.verdicts(VERDICTS, paper))
        *kinds, total = rows[TITLES[paper]]
        assert kinds == [found[kind] for kind in ("pass", "fail", "inconclusive", "reported")]
        assert total == sum(kinds) == found.total()
    assert rows["all"] == [sum(column) for column in zip(*(rows[TITLES[paper]] for paper in PAPERS), strict=True)]


def test_every_claim_has_a_row_with_its_sentence() -> None:
    text = page(VERDICTS)
    for paper in PAPERS:
        for record in results.verdicts(VERDICTS, paper):
            start = f"| {record['id']}: {record['sentence'].replace('|', '/')} ("
            assert text.count(f"\n{start}") == 1
            assert text.split(start)[1].split("\n")[0].split(" | ")[1] == record["verdict"]


def test_a_folder_without_verdicts_gives_an_empty_page(tmp_path: Path) -> None:
    assert "| all | 0 | 0 | 0 | 0 | 0 |" in page(tmp_path)
