"""The ledger: every claim with what the paper prints, what was measured here, the verdict, whether it is stale, why it
failed, and the command that decides it again. docs/claims.md and what ``longtail claims`` prints are made of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.claims import results
from benchmarks.claims.background import PRINTED, REASONS, UNEXPLAINED
from benchmarks.claims.entries import Claim
from benchmarks.claims.papers import PAPERS, claims_of
from benchmarks.claims.runner import config_record
from benchmarks.claims.worlds import Folder

TITLES = {
    "framework": "The framework",
    "cross": "Methods beside each other",
    "astec": "DeepXML / Astec",
    "eclare": "ECLARE",
    "galaxc": "GalaXC",
    "gnnxml": "GNN-XML",
    "ramen": "RAMEN",
}
NOT_RUN = "not run"

# Defaults that are written in another way today and mean what they meant: the only field of planted data and of titles
# is the first, and as many clusters as suit the data were the most that one got.
_SAME = {
    "features.fields": (("title",), ()),
    "surrogate.clusters": ((65536, 131072), 0),
    "astec.clusters": ((65536,), 0),
    "eclare.surrogate.clusters": ((131072,), 0),
}
# Settings that came with a default that is not what was done before: what was done.
_BEFORE = {
    "surrogate.labels_per_cluster": 4,
    "eclare.surrogate.labels_per_cluster": 4,
    "rankers.cluster_power": 1.0,
}
# What the code of a recipe does otherwise since, with no setting that tells: verdicts of before are of another program.
_MENDED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "galaxc": (
        ("2026-11-18T08:31:36+00:00", "documents that are hidden hide the edges to their own labels and no others"),
    ),
}
# A line of what differs between variants.
_CHANGE = re.compile(r"([a-z_.]+): .* -> (.+)")
# Sections of RAMEN that only one base reads.
_OF_A_BASE = ("direct", "eclare")


def title_of(paper: str) -> str:
    return TITLES.get(paper, paper)


def entries(folder: Path) -> list[dict[str, Any]]:
    """One for every claim that has an experiment, in the order of papers, as plain values."""
    return [entry for paper in PAPERS for entry in _of_paper(folder, paper)]


def _of_paper(folder: Path, paper: str) -> Iterator[dict[str, Any]]:
    found = {record["id"]: record for record in results.verdicts(folder, paper)}
    for claim in claims_of(paper):
        record = found.get(claim.id)
        yield {
            "paper": paper,
            "id": claim.id,
            "section": claim.section,
            "sentence": claim.sentence,
            "printed": PRINTED.get(claim.catalogued, ""),
            "verdict": NOT_RUN if record is None else record["verdict"],
            "measured": [] if record is None else measured(record),
            "controls": [] if record is None else [_control(control) for control in record["controls"]],
            "data": "" if record is None else "; ".join(data["data"] for data in record["data"][:1]),
            "settings": in_common(claim),
            "seeds": 0 if record is None else len(record["seeds"]),
            "stale": [] if record is None else stale(record, claim, paper),
            "why": why(claim.id) if record is not None and record["verdict"] == "fail" else "",
            "command": command(claim, record),
        }


def measured(record: Mapping[str, Any]) -> list[str]:
    """Each check with its interval and what was asked for; of a claim without checks, its numbers."""
    checks = [
        f"{check['check']} = {results.interval(check)}, asked for {check['rule']}{results.needs(check)}"
        for check in (*record["all_of"], *record["any_of"])
    ]
    return checks or [f"{value['value_of']} = {results.interval(value)}" for value in record["also"]]


def _control(control: Mapping[str, Any]) -> str:
    return f"{control['removed']}: {results.interval(control)} ({control['state']})"


def why(claim: str) -> str:
    """The reason of a failure, with where it is taken from."""
    reason = REASONS.get(claim)
    if reason is None:
        return UNEXPLAINED
    files = f"; {', '.join(reason.files)}" if reason.files else ""
    return f"{reason.text} (docs/experiments.md, \u201c{reason.entry}\u201d{files})"


def command(claim: Claim, record: Mapping[str, Any] | None) -> str:
    """Decides this claim alone."""
    words = ["python -m benchmarks.claims run", f"{claim.id}@" if claim.id == claim.catalogued else claim.id]
    if isinstance(claim.data, Folder):
        words.append("--data DATA")
    if record is not None:
        words.append(f"--device {record['device']}")
    return " ".join(words)


# ---- stale ----


def stale(record: Mapping[str, Any], claim: Claim, paper: str) -> list[str]:
    """Why a verdict may not be that of today's program: its code was in no commit, or defaults, data or what the code
    of a recipe does are others now.
    """
    found = ["recorded with uncommitted changes"] if record["uncommitted_changes"] else []
    if record["sentence"] != claim.sentence:
        found.append("the claim is worded otherwise now")
    changes = changed_settings(record["config"], config_record(claim.variants))
    if changes:
        found.append(f"defaults changed since: {', '.join(changes)}")
    worlds = [control.data for control in claim.controls if control.data is not None]
    if claim.data is not None and {each["data"] for each in record["data"]} != {
        data.describe() for data in (claim.data, *worlds)
    }:
        found.append("the data of the claim or of its control is another now")
    recipes = {variant.recipe for variant in claim.variants.values()} | {paper}
    for recipe in sorted(recipes & _MENDED.keys()):
        found += [f"mended since: {what}" for when, what in _MENDED[recipe] if record["date"] < when]
    return found


def in_common(claim: Claim) -> list[str]:
    """The settings that all variants of a claim have beside the defaults of their recipes. Of variants of several
    recipes: each recipe's own.
    """
    by_recipe: dict[str, list[list[str]]] = {}
    for variant in claim.variants.values():
        by_recipe.setdefault(variant.recipe, []).append(_assignments(variant.settings))
    found = []
    for recipe, variants in by_recipe.items():
        shared = [each for each in variants[0] if all(each in others for others in variants[1:])]
        mark = f"{recipe}: " if len(by_recipe) > 1 and shared else ""
        found += [f"{mark}{', '.join(shared)}"] if shared else []
    return found


def _assignments(settings: Any) -> list[str]:
    """``a.b=c`` of each setting; where one is given twice, the last."""
    if isinstance(settings, Mapping):
        return [f"{name}={value}" for name, value in _flat(settings)]
    return [f"{name}={value}" for name, value in dict(each.split("=", 1) for each in settings).items()]


def changed_settings(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """``a.b (old, now new)`` for each setting of a variant that was recorded, exists and differs. What came or went
    since is left out: a new setting's default does what was done before, but for those in `_BEFORE`.
    """
    found: dict[str, str] = {}
    today = _variants(now)
    for variant, settings in _variants(then).items():
        new = today.get(variant, {})
        settings = {**{name: value for name, value in _BEFORE.items() if name in new}, **settings}
        for name in sorted(settings.keys() & new.keys()):
            section, base = name.partition(".")[0], new.get("base")
            unread = base is not None and section in _OF_A_BASE and section != base
            if not unread and not _equal(name, settings[name], new[name]):
                found[f"{name} ({_short(settings[name])}, now {_short(new[name])})"] = variant
    return list(found)


def _variants(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of each variant: all of the first, and of others what differs from it (`config.differences`)."""
    found = {config.get("base", ""): dict(_flat(config.get("settings", {})))}
    for variant, changes in config.get("changes", {}).items():
        pairs = (_CHANGE.fullmatch(change) for change in changes)
        settings = {pair[1]: ast.literal_eval(pair[2]) for pair in pairs if pair is not None}
        # A variant of another recipe lacks settings of the first.
        found[variant] = {name: value for name, value in settings.items() if value != "absent"}
    return found


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _equal(name: str, old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return round(old, results.DECIMALS) == round(new, results.DECIMALS)
    if isinstance(old, Sequence) and not isinstance(old, str):
        old, new = tuple(old), tuple(new) if isinstance(new, Sequence) and not isinstance(new, str) else new
    if old == new:
        return True
    before, today = _SAME.get(name, ((), None))
    return new == today and (old == before or old in before)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
