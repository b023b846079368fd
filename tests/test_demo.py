"""The demo on a small data set of its own shape: what it prints, and what becomes of a run that an older version
left.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail import demo
from longtail.cli import main
from longtail.data.read import write
from longtail.data.synthetic import SyntheticConfig, synthesise


def test_it_says_how_to_begin_anew_where_an_older_version_left_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        synthesise(SyntheticConfig(documents=400, test_documents=20, labels=60, topics=6), 0).dataset,
        tmp_path / "sample",
        "lf",
    )
    monkeypatch.setattr(demo, "sample_folder", lambda: tmp_path / "sample")
    monkeypatch.setattr(demo, "SETTINGS", ["encoder.width=8", "train.epochs=1"])
    command = ["demo", "--out", str(tmp_path / "run")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "On the 20 test definitions" in said
    assert "longtail predict" in said.splitlines()[-2]
    assert "make serve" in said.splitlines()[-1]
    monkeypatch.setattr(demo, "SETTINGS", ["encoder.width=16", "train.epochs=1"])
    assert main(command) == 2
    assert "--restart" in capsys.readouterr().err
    assert main([*command, "--restart"]) == 0
