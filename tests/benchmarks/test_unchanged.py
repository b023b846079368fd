"""Recording the same code twice gives the same rankings; a changed score, a lost ranking and a failure are found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks import unchanged


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny`, recorded once."""
    before = tmp_path_factory.mktemp("unchanged") / "before"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unchanged, "PLANTED", ["documents=300", "test_documents=20", "labels=60", "topics=6"])
        assert unchanged.main(["record", str(before), "--once", "--only", "tiny"]) == 0
    return before


def test_the_same_code_twice_is_equal_to_the_last_bit(recorded: Path, tmp_path: Path) -> None:
    after, out = tmp_path / "after", tmp_path / "compared.json"
    shutil.copytree(recorded / "planted", after / "planted")
    assert unchanged.main(["record", str(after), "--only", "tiny"]) == 0
    assert unchanged.main(["compare", str(recorded), str(after), "--out", str(out)]) == 0
    numbers = json.loads(out.read_text())["numbers"]
    assert numbers["rankings"] == {"tiny.plain": "equal to the last bit"}
    assert numbers["seconds after / before"]["tiny"].keys() == {"train", "predict plain"}


def test_a_changed_score_and_a_lost_ranking_are_found(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = tmp_path / "after"
    shutil.copytree(recorded, after)
    with np.load(recorded / "tiny.plain.npz") as found:
        arrays = {name: found[name] for name in found.files}
    name = next(name for name, values in arrays.items() if values.dtype == np.float32)
    arrays[name].flat[3] = np.nextafter(arrays[name].flat[3], np.float32(np.inf))
    np.savez(after / "tiny.plain.npz", **arrays)
    assert unchanged.main(["compare", str(recorded), str(after)]) == 1
    assert f"arrays that differ: {name}" in capsys.readouterr().out
    (after / "tiny.plain.npz").unlink()
    assert unchanged.main(["compare", str(recorded), str(after)]) == 1
    assert json.loads(capsys.readouterr().out)["rankings"] == {"tiny.plain": "missing"}


def test_a_case_that_fails_is_recorded_as_such(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after = tmp_path / "after"
    shutil.copytree(recorded, after)
    monkeypatch.setitem(unchanged.CASES, "tiny", ("tiny", ["no.such=1"]))
    assert unchanged.main(["record", str(after), "--only", "tiny"]) == 1
    assert "error" in json.loads((after / "times.json").read_text())["tiny"]
    with pytest.raises(SystemExit):
        unchanged.main(["record", str(after), "--only", "nothing"])
    assert "no case 'nothing'; cases: tiny, direct" in capsys.readouterr().err


def test_turns_keep_the_medians_and_leave_out_the_first_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {"before": iter([90.0, 2.0, 4.0, 90.0] * 5), "after": iter([90.0, 6.0, 8.0, 1.0] * 5)}
    asked: list[tuple[str, ...]] = []

    def times(program: unchanged.Program, *words: str) -> tuple[float, float]:
        asked.append(words)
        return 7.0, 0.0 if words[0] == "data" else next(spent[program.source.name])

    monkeypatch.setattr(unchanged.Program, "times", times)
    words = ["--before", str(tmp_path / "before"), "--after", str(tmp_path / "after"), "--only", "tiny"]
    result = tmp_path / "result.json"
    assert unchanged.main(["turns", str(tmp_path / "out"), "--rounds", "3", "--json", str(result), *words]) == 0
    found = json.loads((tmp_path / "out" / "turns.json").read_text())
    assert found == {"start": 1.5, "train tiny": 1.5, "predict tiny": 1.5}
    assert json.loads(result.read_text())["numbers"][unchanged.TIMES] == found
    assert [words[0] for words in asked[1:5]] == ["recipes"] * 4
