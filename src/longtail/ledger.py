"""The ledger of the papers' claims as text: what each says, what was measured, and what became of it.

`ledger.json` beside this file is written from the verdicts in the repository, by ``python -m benchmarks.claims table``.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from longtail.config import nearest
from longtail.errors import ConfigError

WIDTH = 100
ABOUT = (
    "Claims of the papers, decided by experiment; `longtail claims PAPER` or `longtail claims ID` says more. Numbers "
    "are percent points with 95% intervals. * stale: recorded before defaults, data or code of the recipe changed, "
    "or with code that no commit holds."
)
Entry = Mapping[str, Any]


def read_ledger() -> tuple[Mapping[str, str], Sequence[Entry]]:
    """The titles of papers, and all claims."""
    content = json.loads(files("longtail").joinpath("ledger.json").read_text(encoding="utf-8"))
    return content["titles"], content["claims"]


def told(names: Sequence[str]) -> str:
    """All claims in a line each; of papers and claims that are named, everything."""
    titles, claims = read_ledger()
    if not names:
        return "\n".join([textwrap.fill(ABOUT, WIDTH), *(_overview(titles, claims))])
    known = {*titles, *(claim["id"] for claim in claims), *(claim["id"].partition("@")[0] for claim in claims)}
    for name in (name for name in names if name not in known):
        raise ConfigError(f"neither a paper nor a claim is called '{name}'", nearest(name, sorted(known)))
    chosen = [claim for claim in claims if {claim["paper"], claim["id"], claim["id"].partition("@")[0]} & set(names)]
    return "\n\n".join(whole(claim) for claim in chosen)


def _overview(titles: Mapping[str, str], claims: Sequence[Entry]) -> list[str]:
    lines = []
    for paper in dict.fromkeys(claim["paper"] for claim in claims):
        of_paper = [claim for claim in claims if claim["paper"] == paper]
        counts = Counter(claim["verdict"] for claim in of_paper)
        lines += ["", f"{titles[paper]} ({paper}): {', '.join(f'{count} {kind}' for kind, count in counts.items())}"]
        for claim in of_paper:
            mark = "*" if claim["stale"] else ""
            line = f"  {claim['verdict'] + mark:<14} {claim['id']}: {claim['sentence']}"
            lines.append(textwrap.fill(line, WIDTH, subsequent_indent=" " * 17))
    return lines


def whole(claim: Entry) -> str:
    """One claim with all that is known of it."""
    parts = [
        ("the paper", [claim["printed"]]),
        ("here", claim["measured"]),
        ("on", [", ".join(part for part in (claim["data"], _seeds(claim)) if part)]),
        ("with", claim["settings"]),
        ("without", claim["controls"]),
        ("stale", claim["stale"]),
        ("why", [claim["why"]]),
        ("again", [claim["command"]]),
    ]
    lines = [f"{claim['id']}: {claim['verdict']} ({claim['section']})", textwrap.fill(claim["sentence"], WIDTH)]
    for name, texts in parts:
        for text in filter(None, texts):
            # Commands are to be copied, so they stay on their line.
            width = 10_000 if name == "again" else WIDTH
            lines.append(textwrap.fill(text, width, initial_indent=f"  {name + ':':<11}", subsequent_indent=" " * 13))
    return "\n".join(lines)


def _seeds(claim: Entry) -> str:
    return f"{claim['seeds']} seeds" if claim["seeds"] else ""
