"""The verdicts as a page for readers: a summary by paper, then one table per paper (docs/claims.md)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

from benchmarks.claims import results
from benchmarks.claims.papers import PAPERS
from benchmarks.claims.runner import Verdict

TITLES = {
    "framework": "The framework",
    "cross": "Methods beside each other",
    "astec": "DeepXML / Astec",
    "eclare": "ECLARE",
    "galaxc": "GalaXC",
    "gnnxml": "GNN-XML",
    "ramen": "RAMEN",
}

HEAD = """\
# Claims of the papers, and what became of them

This page is made by a program; do not edit it. From the repository root:

```sh
python -m benchmarks.claims table --out docs/claims.md
```

It says what the files `benchmarks/results/claims/*.json` hold. There each record also has its command, commit, machine,
settings, data and seeds. `python -m benchmarks.claims run ID` decides a claim again.
[experiments.md](experiments.md) discusses the outcomes.

- **pass**: every interval lies where the claim says, and the effect is gone where the mechanism is removed.
- **fail**: an interval lies elsewhere, or the effect is there without the mechanism, too.
- **inconclusive**: an interval has both sides in it, or a control is undecided, or there are fewer than three seeds.
  What would decide it stands beside the number.
- **reported**: numbers without a claim about them.

Claims that can be decided exactly are tests (`@pytest.mark.claim`) and not on this page. Claims are about planted data
where nothing else is said; `A6@debian-related` is claim A6 on that data set. Values are in percent points unless they
say otherwise, with 95% intervals.
"""


def page(folder: Path) -> str:
    return "\n".join([HEAD, "## Summary", "", summary(folder), *[section(folder, paper) for paper in PAPERS]])


def summary(folder: Path) -> str:
    """How many claims came to which verdict, by paper."""
    kinds: tuple[str, ...] = get_args(Verdict)
    counts = {
        TITLES.get(paper, paper): Counter(r["verdict"] for r in results.verdicts(folder, paper)) for paper in PAPERS
    }
    counts["all"] = sum(counts.values(), Counter[str]())
    lines = [f"| paper | {' | '.join(kinds)} | claims |", "|---" * (len(kinds) + 2) + "|"]
    lines += [
        f"| {title} | {' | '.join(str(count[kind]) for kind in kinds)} | {count.total()} |"
        for title, count in counts.items()
    ]
    return "\n".join(lines)


def section(folder: Path, paper: str) -> str:
    return f"\n## {TITLES.get(paper, paper)}\n\n{results.table(folder, [paper], sentences=True)}" + (
        "\n" if paper == list(PAPERS)[-1] else ""
    )
