"""Which papers have claims here, and where they are written down. A new paper is a line here and a file of entries."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from benchmarks.claims.entries import Claim
from longtail.config import nearest
from longtail.errors import ConfigError

# paper -> module with CLAIMS: tuple[Claim, ...]; results are in <paper>.json
PAPERS: Mapping[str, str] = {
    "framework": "benchmarks.claims.framework",
    "cross": "benchmarks.claims.cross",
    "astec": "benchmarks.claims.deepxml",
    "eclare": "benchmarks.claims.eclare",
    "galaxc": "benchmarks.claims.galaxc",
    "gnnxml": "benchmarks.claims.gnnxml",
    "ramen": "benchmarks.claims.ramen",
}


def claims_of(paper: str) -> tuple[Claim, ...]:
    if paper not in PAPERS:
        raise ConfigError(f"unknown paper '{paper}'", nearest(paper, list(PAPERS)))
    claims: tuple[Claim, ...] = importlib.import_module(PAPERS[paper]).CLAIMS
    return claims


def chosen_claims(ids: Sequence[str], paper: str | None) -> dict[str, list[Claim]]:
    """paper -> claims: those named (``A6`` names ``A6@debian-related`` too, ``A6@`` does not), or all of a paper, or
    all.
    """
    by_paper = {name: list(claims_of(name)) for name in ([paper] if paper else PAPERS)}
    known = {name for claims in by_paper.values() for claim in claims for name in names_of(claim)}
    for unknown in (name for name in ids if name not in known):
        raise ConfigError(
            f"no claim '{unknown}' has an entry" + (f" in the paper '{paper}'" if paper else ""),
            nearest(unknown, sorted(known)),
        )
    return {
        name: [claim for claim in claims if not ids or names_of(claim) & set(ids)] for name, claims in by_paper.items()
    }


def names_of(claim: Claim) -> set[str]:
    """By which a claim can be asked for."""
    return {claim.id, claim.catalogued} | ({f"{claim.id}@"} if claim.id == claim.catalogued else set())
