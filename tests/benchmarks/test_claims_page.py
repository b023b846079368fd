"""docs/claims.md, `longtail claims` and the committed verdicts say the same."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.claims import ledger, results
from benchmarks.claims.__main__ import COMPLETE, main
from benchmarks.claims.background import PRINTED, REASONS, UNEXPLAINED
from benchmarks.claims.ledger import NOT_RUN, TITLES, changed_settings, entries
from benchmarks.claims.page import KINDS, page
from benchmarks.claims.papers import PAPERS, claims_of

from longtail import cli
from longtail.ledger import read_ledger

ROOT = Path(__file__).parents[2]
VERDICTS = ROOT / "benchmarks" / "results" / "claims"
PAGE, SHIPPED = ROOT / "docs" / "claims.md", ROOT / "src" / "longtail" / "ledger.json"
HINT = "make it again: python -m benchmarks.claims table --out docs/claims.md --json src/longtail/ledger.json"


@pytest.fixture(scope="module")
def text() -> str:
    return page(VERDICTS)


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    return entries(VERDICTS)


def test_page_and_ledger_are_what_the_command_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, shipped = tmp_path / "claims.md", tmp_path / "ledger.json"
    assert main(["table", "--results", str(VERDICTS), "--out", str(out), "--json", str(shipped)]) == COMPLETE
    assert str(out) in capsys.readouterr().out
    assert PAGE.read_text(encoding="utf-8") == out.read_text(encoding="utf-8"), HINT
    assert json.loads(SHIPPED.read_text(encoding="utf-8")) == json.loads(shipped.read_text(encoding="utf-8")), HINT


def test_the_summary_counts_every_verdict_once(text: str) -> None:
    rows = {
        title: [int(number) for number in numbers.split(" | ")]
        for title, numbers in re.findall(r"^\| ([^|]+?) \| (\d[\d |]*\d) \|$", text, flags=re.M)
    }
    assert list(rows) == [*(TITLES[paper] for paper in PAPERS), "all"]
    for paper in PAPERS:
        verdicts = Counter(record["verdict"] for record in results.verdicts(VERDICTS, paper))
        *kinds, not_run, total, _stale = rows[TITLES[paper]]
        assert kinds == [verdicts[kind] for kind in KINDS if kind != NOT_RUN]
        assert total == len(claims_of(paper)) == verdicts.total() + not_run
    assert rows["all"] == [sum(column) for column in zip(*(rows[TITLES[paper]] for paper in PAPERS), strict=True)]


def test_every_claim_has_a_row_with_paper_numbers_verdict_and_command(text: str) -> None:
    for paper in PAPERS:
        records = {record["id"]: record for record in results.verdicts(VERDICTS, paper)}
        for claim in claims_of(paper):
            start = f"| {claim.id}: {claim.sentence.replace('|', '/')} ("
            assert text.count(f"\n{start}") == 1
            printed, measured, verdict, *_, command = text.split(start)[1].split("\n")[0].split(" | ")[1:]
            assert printed == PRINTED[claim.catalogued].replace("|", "/")
            record = records.get(claim.id)
            assert verdict.split("<br>")[0] == (NOT_RUN if record is None else record["verdict"])
            for check in [] if record is None else [*record["all_of"], *record["any_of"]]:
                assert f"{check['value']:.2f} [{check['low']:.2f}, {check['high']:.2f}]" in measured
            assert f"`python -m benchmarks.claims run {claim.id}" in command


def test_failures_have_a_reason_that_an_experiment_supports_or_say_that_there_is_none(
    found: list[dict[str, Any]], text: str
) -> None:
    log = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    failed = {entry["id"]: entry["why"] for entry in found if entry["verdict"] == "fail"}
    assert set(REASONS) <= set(failed), "a claim that holds now needs no reason"
    for name, why in failed.items():
        assert text.count(f"\n- **{name}**: {why}") == 1
        assert (why == UNEXPLAINED) == (name not in REASONS)
    for reason in REASONS.values():
        assert f"\n### {reason.entry}\n" in log
        assert all((VERDICTS.parent / file).exists() for file in reason.files)


def test_a_folder_without_verdicts_has_claims_that_were_not_run(tmp_path: Path) -> None:
    assert all(entry["verdict"] == NOT_RUN and not entry["stale"] for entry in entries(tmp_path))


# ---- stale ----


def test_verdicts_of_other_defaults_or_uncommitted_code_are_stale() -> None:
    claim = claims_of("gnnxml")[0]
    record = next(record for record in results.verdicts(VERDICTS, "gnnxml") if record["id"] == claim.id)

    def stale(**changed: Any) -> list[str]:
        return ledger.stale({**record, **changed}, claim, "gnnxml")

    assert stale() == []
    assert stale(uncommitted_changes=True) == ["recorded with uncommitted changes"]
    assert stale(sentence="Another.") == ["the claim is worded otherwise now"]
    settings = record["config"]["settings"]
    other = {**record["config"], "settings": {**settings, "rankers": {**settings["rankers"], "beam": 99}}}
    assert [line[:44] for line in stale(config=other)] == ["defaults changed since: rankers.beam (99, no"]


def test_verdicts_of_other_data_are_stale() -> None:
    """Also where only the control's is another."""
    claim = next(claim for claim in claims_of("cross") if claim.id == "X1")
    assert claim.data is not None
    assert claim.controls[0].data is not None
    data = [{"data": claim.data.describe()}, {"data": claim.controls[0].data.describe()}]
    record = {"uncommitted_changes": False, "sentence": claim.sentence, "config": {}, "date": "2100", "data": data}
    assert ledger.stale(record, claim, "cross") == []
    data[1] = {"data": "planted otherwise"}
    assert ledger.stale(record, claim, "cross") == ["the data of the claim or of its control is another now"]


def test_verdicts_of_a_recipe_that_was_mended_since_are_stale() -> None:
    """By a variant's recipe, and where a probe trains: by the paper."""
    by_paper = [("galaxc", "G6c"), ("galaxc", "G10"), ("cross", "X1@debian-related"), ("astec", "A6@debian-related")]
    found = {}
    for paper, name in by_paper:
        claim = next(claim for claim in claims_of(paper) if claim.id == name)
        record = next(record for record in results.verdicts(VERDICTS, paper) if record["id"] == name)
        old = {**record, "date": "2026-11-16T00:00:00+00:00"}
        found[name] = any(line.startswith("mended since") for line in ledger.stale(old, claim, paper))
        assert not any(
            line.startswith("mended since") for line in ledger.stale({**record, "date": "2100"}, claim, paper)
        )
    assert found == {"G6c": True, "G10": True, "X1@debian-related": True, "A6@debian-related": False}


def test_what_a_claim_sets_beside_defaults_is_said() -> None:
    of = {claim.id: ledger.in_common(claim) for paper in PAPERS for claim in claims_of(paper)}
    assert of["X1@debian-related"] == []
    assert of["A6@debian-related"] == [
        "classify.count=100, classify.random=0, shortlist.size=100, reranker.enabled=false"
    ]
    assert [line.split(":")[0] for line in of["X1"]] == ["astec", "eclare", "galaxc"]
    assert "shortlist.voters=0" in of["G6"][0]


def test_what_is_written_otherwise_but_means_the_same_is_not_stale() -> None:
    then: dict[str, Any] = {
        "features": {"fields": ["title"], "gone": 1},
        "surrogate": {"clusters": 65536, "rate": 0.3333},
    }
    now: dict[str, Any] = {"features": {"fields": (), "new": 2}, "surrogate": {"clusters": 0, "rate": 1 / 3}}
    assert changed_settings({"base": "a", "settings": then}, {"base": "a", "settings": now}) == []
    now["surrogate"]["clusters"] = 64
    assert changed_settings({"base": "a", "settings": then}, {"base": "a", "settings": now}) == [
        "surrogate.clusters (65536, now 64)"
    ]


def test_settings_of_other_variants_count_and_those_of_other_bases_do_not() -> None:
    def config(rate: float, of_another: int) -> dict[str, Any]:
        return {
            "base": "a",
            "settings": {"base": "ance", "direct": {"width": of_another}, "eclare": {"width": 1}},
            "changes": {"b": [f"train.rate: 'absent' -> {rate}", "at prediction: alpha = 1"]},
        }

    assert changed_settings(config(0.1, 1), config(0.1, 2)) == []
    assert changed_settings(config(0.1, 1), config(0.2, 1)) == ["train.rate (0.1, now 0.2)"]
    lacked = {"base": "a", "settings": {"gamma": 1}, "changes": {"b": ["gamma: 1 -> 'absent'"]}}
    has = {**lacked, "changes": {"b": ["gamma: 1 -> 2"]}}
    assert changed_settings(lacked, has) == [], "a setting that came since"


def test_a_setting_that_came_with_another_default_makes_what_was_before_stale() -> None:
    then = {"base": "a", "settings": {"surrogate": {"clusters": 0}}}
    now = {"base": "a", "settings": {"surrogate": {"clusters": 0, "labels_per_cluster": 1}}}
    assert changed_settings(then, now) == ["surrogate.labels_per_cluster (4, now 1)"]
    assert changed_settings(now, now) == []


# ---- the command ----


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["claims", *words]) == 0
    return capsys.readouterr().out


def test_the_command_lists_every_claim_with_its_verdict(
    capsys: pytest.CaptureFixture[str], found: list[dict[str, Any]]
) -> None:
    lines = said(capsys).split("\n")
    assert read_ledger()[1] == found, HINT
    for entry in found:
        mark = "*" if entry["stale"] else ""
        start = f"  {entry['verdict'] + mark:<14} {entry['id']}: "
        assert sum(line.startswith(start) for line in lines) == 1


def test_the_command_tells_everything_of_a_claim_or_a_paper(
    capsys: pytest.CaptureFixture[str], found: list[dict[str, Any]]
) -> None:
    entry = next(entry for entry in found if entry["id"] == "E5")
    one = " ".join(said(capsys, "E5").split())
    for part in ("sentence", "printed", "why", "command"):
        assert " ".join(entry[part].split()) in one
    for part in ("measured", "stale", "controls"):
        assert all(" ".join(line.split()) in one for line in entry[part])
    both = said(capsys, "gnnxml", "R1t")
    assert [line.split(":")[0] for line in both.split("\n") if re.match(r"[A-Z]\w*@?[\w-]*: ", line)] == [
        *(entry["id"] for entry in found if entry["paper"] == "gnnxml"),
        "R1t",
    ]


def test_the_ledger_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert SHIPPED.name in settings["tool"]["setuptools"]["package-data"]["longtail"]


def test_an_unknown_claim_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims", "E55"]) == 2
    assert "neither a paper nor a claim is called 'E55'" in capsys.readouterr().err
