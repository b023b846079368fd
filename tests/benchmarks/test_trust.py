"""`benchmarks.trust` on a small planted set: what is recorded, and what is said of a case that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.trust.__main__ import CASES, main

SMALL = ("--recipe", "tiny", "--holdout", "0.3")


def test_calibration_is_recorded_with_what_is_needed_to_do_it_again(planted_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    assert main(["calibration", str(planted_folder), *SMALL, "--runs", str(tmp_path / "runs"), "--out", str(out)]) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["name"] == "trust_calibration"
    assert result["command"].startswith("python -m benchmarks.trust calibration DATA/")
    (found,) = result["numbers"].values()
    assert found["data_hash"] in result["data_hash"]
    assert set(found["before"]) == set(found["after"]) == {"ECE@1", "ECE@3", "ECE@5"}
    assert found["after"]["ECE@5"] < found["before"]["ECE@5"]
    assert found["ranking unchanged"] is True
    assert [one["asked"] for one in found["precision"]] == [0.8, 0.9, 0.95]
    assert len(found["by way of calibrating"]) == 8
    assert found["slowdown"]["raw, alone"] > 0
    assert str(tmp_path) not in out.read_text(encoding="utf-8")


def test_cases_are_listed_with_what_they_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(CASES)
    assert all(len(line.split()) > 3 for line in lines)


def test_an_unknown_case_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "no case 'nothing'" in capsys.readouterr().err


def test_a_report_is_timed_and_planted_errors_are_counted(planted_folder: Path, tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    words = ["report", str(planted_folder), "--model", str(tiny_run), "--draws", "1", "--share", "0.2"]
    assert main([*words, "--out", str(out)]) == 0
    (found,) = json.loads(out.read_text(encoding="utf-8"))["numbers"].values()
    assert found["report"]["bytes"] > 50_000
    assert found["report"]["seconds"] > 0
    shares = found["percent in the first tenth"]
    assert set(shares) == {
        *("wrong, drawn by frequency", "wrong, drawn from all labels"),
        *("lost, of all", "lost, of those in the list"),
    }
    # 30 documents: a tenth of the list has room for half of what was planted at most.
    assert shares["wrong, drawn by frequency"]["mean"] > 10
    assert str(tmp_path) not in out.read_text(encoding="utf-8")
