"""The ledger as a page for readers: a summary by paper, then for each paper a table, and why claims failed
(docs/claims.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks.claims.ledger import NOT_RUN, entries, title_of
from benchmarks.claims.papers import PAPERS
from benchmarks.claims.runner import Verdict

COLUMNS = (
    "claim",
    "the paper",
    "measured here [95% interval]",
    "verdict",
    "where the mechanism is removed",
    "data, seeds, settings",
    "again",
)
KINDS: tuple[str, ...] = (*get_args(Verdict), NOT_RUN)

HEAD = """\
# Claims of the papers, and what became of them

This page is made by a program; do not edit it. From the repository root:

```sh
python -m benchmarks.claims table --out docs/claims.md --json src/longtail/ledger.json
```

It says what the files `benchmarks/results/claims/*.json` hold. There each record also has its command, commit, machine,
settings, data and seeds. `longtail claims` prints the same, of a paper or of one claim: `longtail claims ramen`,
`longtail claims E5`.

- **pass**: every interval lies where the claim says, and the effect is gone where the mechanism is removed.
- **fail**: an interval lies elsewhere, or the effect is there without the mechanism, too. Why stands below the table,
  where an experiment says so.
- **inconclusive**: an interval has both sides in it, or a control is undecided, or there are fewer than three seeds.
  What would decide it stands beside the number.
- **reported**: numbers without a claim about them.
- **not run**: there is an experiment, and no verdict yet.
- **stale**: the verdict was recorded with code that no commit holds, or defaults of the recipe, its code or the data of
  the claim changed since. It is not known whether today's program comes to the same.

Verdicts are of the recipes with their defaults, but for what stands behind *with*: small worlds ask for small models,
and a claim about a part of a method leaves others out.

Claims that can be decided exactly are tests (`@pytest.mark.claim`) and not on this page. Claims are about planted data
where nothing else is said; `A6@debian-related` is claim A6 on that data set. Values are in percent points unless they
say otherwise, with 95% intervals; the papers' numbers are of public benchmarks, which we do not have. DATA is the
folder that holds the real data sets.
"""


def page(folder: Path) -> str:
    all_entries = entries(folder)
    sections = [section(paper, [entry for entry in all_entries if entry["paper"] == paper]) for paper in PAPERS]
    return "\n".join([HEAD, "## Summary", "", summary(all_entries), *sections]) + "\n"


def summary(all_entries: Iterable[Mapping[str, Any]]) -> str:
    """How many claims came to which verdict, by paper, and how many of the verdicts are stale."""
    counts = {title_of(paper): Counter[str]() for paper in PAPERS} | {"all": Counter[str]()}
    for entry in all_entries:
        for title in (title_of(entry["paper"]), "all"):
            counts[title].update([entry["verdict"], "claims", *(["stale"] if entry["stale"] else [])])
    columns = (*KINDS, "claims", "stale")
    lines = [f"| paper | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {title} | {' | '.join(str(count[kind]) for kind in columns)} |" for title, count in counts.items()]
    return "\n".join(lines)


def section(paper: str, of_paper: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        f"\n## {title_of(paper)}\n",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
        *(row(entry) for entry in of_paper),
    ]
    failed = [entry for entry in of_paper if entry["why"]]
    if failed:
        lines += ["\nWhy claims failed:\n", *(f"- **{entry['id']}**: {entry['why']}" for entry in failed)]
    return "\n".join(lines)


def row(entry: Mapping[str, Any]) -> str:
    verdict = [entry["verdict"], *(f"stale: {reason}" for reason in entry["stale"])]
    seeds = f"{entry['seeds']} seeds" if entry["seeds"] else ""
    cells = [
        f"{entry['id']}: {entry['sentence']} ({entry['section']})",
        entry["printed"],
        "<br>".join(entry["measured"]),
        "<br>".join(verdict),
        "<br>".join(entry["controls"]),
        "<br>".join(part for part in (entry["data"], seeds, *map(_with, entry["settings"])) if part),
        f"`{entry['command']}`",
    ]
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _with(settings: str) -> str:
    return f"with {settings}"
